"""What is typed into the page: read as mathematics or refused by a sentence, and never run."""

from __future__ import annotations

import builtins
import contextlib
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from levelport_lab.play.expression import FUNCTIONS, MAX_DEPTH, MAX_LENGTH, MAX_POWER, ExpressionError, read


def at(text: str, x: float, y: float) -> float:
    return float(read(text)(torch.tensor([x, y], dtype=torch.float64)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", 0.7),
        ("-y", 1.3),
        ("x^2 + y**2", 0.7**2 + 1.3**2),
        ("2*x - y/4", 1.4 + 1.3 / 4),
        ("-x**2", -(0.7**2)),
        ("2**2*x", 2.8),
        ("x**-2", 0.7**-2),
        ("(x)**+0.5", math.sqrt(0.7)),
        ("exp(x)*sin(pi*y) + e", math.exp(0.7) * math.sin(-1.3 * math.pi) + math.e),
        ("log(1 + abs(y)) - sqrt(x)", math.log(2.3) - math.sqrt(0.7)),
        ("tanh(x) + cosh(y)", math.tanh(0.7) + math.cosh(1.3)),
        ("1e-3*x + .5 + 1_000", 0.7e-3 + 0.5 + 1000),
        ("  x\n + y ", -0.6),
    ],
)  # fmt: skip
def test_mathematics_is_read_as_it_is_written(text: str, expected: float) -> None:
    assert at(text, 0.7, -1.3) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("3", "neither x nor y"),
        ("pi**2", "neither x nor y"),
        ("x +", "no complete expression"),
        ("(x + y", "Brackets do not match"),
        ("2x + y", "write 2*x"),
        ("x + 3(y)", "write 3*("),
        ("z + x", "no variable or constant 'z'"),
        ("sinn(x)", "Did you mean 'sin'"),
        ("sin(x, y)", "one argument"),
        ("sin()*x", "one argument"),
        ("sin(*x)", "one argument"),
        ("sin + x", "'sin'"),
        ("x**y", "exponent must be a number"),
        ("2**x", "exponent must be a number"),
        ("x**(1+1)", "exponent must be a number"),
        (f"x**{MAX_POWER + 1}", f"may be {MAX_POWER} at most"),
        ("x**-99", f"may be {MAX_POWER} at most"),
        ("x**1e999", f"may be {MAX_POWER} at most"),
        ("x**True", "exponent must be a number"),
        ("x*1e999", "too large"),
        ("x + True", "not among what is read"),
        ("x*1j", "not among what is read"),
        ("x + None", "not among what is read"),
        ("x if y else x", "not among what is read"),
        ("x and y", "not among what is read"),
        ("1or x", ""),
        ("lambda x", ""),
        ("x // y", "not among what is read"),
        ("(x, y)", "not among what is read"),
        ("[x]", "not among what is read"),
        ("[x for x in y]", "not among what is read"),
        ("w + x", "no variable or constant 'w'"),
        ("w[2]", "neither x nor y"),
        ("w[True]", "neither x nor y"),
        ("x[0]", "not among what is read"),
        ("x.real", "not among what is read"),
        ("x.__class__", "not among what is read"),
        ("x.__class__.__mro__[1]", "not among what is read"),
        ("().__class__(x)", "not among what is read"),
        ("__import__(x)", "no function '__import__'"),
        ("eval(x)", "no function 'eval'"),
        ("exec(x)", "no function 'exec'"),
        ("open(x)", "no function 'open'"),
        ("sin.__globals__(x)", "not among what is read"),
        ("__import__('os').system('x')", "has no meaning here"),
        ("x := 3", "has no meaning here"),
        ("x = 3", "has no meaning here"),
        ("x; y", "has no meaning here"),
        ("x\0", "has no meaning here"),
        ("х", "has no meaning here"),  # a Cyrillic letter
        ("f'{x}'", "has no meaning here"),
        ("x" * (MAX_LENGTH + 1), "characters"),
        ("-" * (MAX_DEPTH + 1) + "x", "inside each other"),
        ("(" * 99 + "x" + ")" * 100, "Brackets do not match"),
    ],
)  # fmt: skip
def test_wrong_input_is_refused_by_a_sentence(text: str, fragment: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        read(text)
    sentence = str(caught.value)
    assert fragment in sentence
    assert sentence[0].isupper() or sentence[0] in "'\""
    assert sentence.endswith(".")


SNIPPETS = [
    "x", "y", "w", "[0]", "[1]", "1", "2.5", "1e9", "1j", "(", ")", "+", "-", "*", "**", "/", "//", "^", ",", ".", " ",
    "import", "__import__", "lambda", "if", "else", "for", "in", "not", "is", "None", "True", "await", "yield", "print",
    "eval", "open", "getattr", "__class__", "__builtins__", "torch", *FUNCTIONS,
]  # fmt: skip


@settings(max_examples=300)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(SNIPPETS), max_size=25).map("".join)))
def test_any_text_gives_a_number_or_a_sentence(text: str) -> None:
    """No other exception, no warning (they are errors here), and the result is a scalar of the same precision."""
    function, sentence = None, "."
    try:
        function = read(text)
    except ExpressionError as error:
        sentence = str(error)
    assert sentence.endswith(".")
    if function is None:
        return
    value = function(torch.tensor([0.3, 0.4], dtype=torch.float64))
    assert value.shape == ()
    assert value.dtype == torch.float64


@settings(max_examples=200)
@given(st.lists(st.sampled_from(SNIPPETS), min_size=1, max_size=25).map("".join))
def test_no_builtin_is_ever_reached(text: str) -> None:
    """With builtins booby-trapped, reading goes on as before. (``ast`` itself imports ``collections`` late.)"""
    real_import = builtins.__import__

    def trap(*arguments: Any, **_: Any) -> Any:
        if arguments and arguments[0] == "collections":
            return real_import(*arguments)
        raise AssertionError(f"{text!r} was run")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("eval", "exec", "open", "print", "__import__"):
            patch.setattr(builtins, name, trap)
        with contextlib.suppress(ExpressionError):
            read(text)(torch.tensor([0.3, 0.4], dtype=torch.float64))


def numbers() -> st.SearchStrategy[str]:
    return st.integers(0, 9).map(str) | st.floats(0.1, 9.0).map(lambda number: f"{number:.3f}")


EXPRESSIONS = st.recursive(
    st.sampled_from(["x", "y", "pi"]) | numbers(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda parts: "({} {} {})".format(*parts)),
        st.tuples(st.sampled_from(["sin", "cos", "tanh", "atan"]), inner).map(lambda parts: "{}({})".format(*parts)),
        st.tuples(inner, st.integers(0, 3)).map(lambda parts: "({})**{}".format(*parts)),
        inner.map(lambda one: f"(-{one})"),
    ),
    max_leaves=8,
)
"""Expressions that are right by construction."""


@settings(max_examples=200)
@given(EXPRESSIONS, st.floats(-2, 2), st.floats(-2, 2))
def test_agrees_with_python_s_own_arithmetic(text: str, x: float, y: float) -> None:
    """The oracle may be ``eval``: what it gets was made here, by the strategy above."""
    known = {"sin": math.sin, "cos": math.cos, "tanh": math.tanh, "atan": math.atan, "pi": math.pi}
    if len(text) > MAX_LENGTH or not any(name in text.replace("tanh", "") for name in ("x", "y")):
        return
    try:
        expected = float(eval(text, {"__builtins__": {}}, known | {"x": x, "y": y}))
    except OverflowError:
        return
    assert at(text, x, y) == pytest.approx(expected, rel=1e-9, abs=1e-9)
