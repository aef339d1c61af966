"""A function of two variables from a typed expression, without ever running it as code.

The text is parsed into Python's syntax tree, and the tree is walked with a list of what is allowed: numbers, x and y,
+ - * / and powers, and the functions of :data:`FUNCTIONS`. Everything else is refused by a sentence. What comes out is
a nest of torch operations; nothing is ever given to ``eval``, looked up in a namespace or called by a name that is not
in the tables below.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from levelport.checks import unknown_name

MAX_LENGTH = 200
"""Characters: ample for a test function, and a bound on everything that follows from the text."""
MAX_DEPTH = 30
"""Operations inside operations."""
MAX_POWER = 16
"""Largest exponent: beyond it the plane is flat in the middle and leaves the range of numbers at the rim."""

Term = Callable[[Tensor], Tensor]
"""A part of the expression as a function of w = (x, y)."""

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "atan": torch.atan,
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": torch.nn.functional.softplus,
}
"""The functions of one argument that may be called."""

_CONSTANTS = {"pi": math.pi, "e": math.e}
_VARIABLES = {"x": 0, "y": 1}
_OPERATORS: dict[type[ast.operator], Callable[[Tensor, Tensor], Tensor]] = {
    ast.Add: torch.add,
    ast.Sub: torch.sub,
    ast.Mult: torch.mul,
    ast.Div: torch.div,
}
_HOW = "Write it as in (1 - x)**2 + 100*(y - x**2)**2."
_STRANGE = re.compile(r"[^0-9A-Za-z_+\-*/^()\[\]., ]")


class ExpressionError(ValueError):
    """The text is no function of x and y that can be drawn; the message says why and what to write instead."""


def read(text: str) -> Term:
    """The function that ``text`` writes down, of a tensor w = (x, y) of two entries.

    Example:
        >>> f = read("x^2 + 3*sin(y)")
        >>> float(f(torch.tensor([2.0, 0.0])))
        4.0
    """
    words = " ".join(text.split())
    if not words:
        raise ExpressionError(f"The field is empty. {_HOW}")
    if len(words) > MAX_LENGTH:
        raise ExpressionError(f"The expression has {len(words)} characters; at most {MAX_LENGTH} are read. Shorten it.")
    if strange := _STRANGE.search(words):
        raise ExpressionError(f"The character {strange[0]!r} has no meaning here. {_HOW}")
    tree = _parsed(words.replace("^", "**"))
    if not any(isinstance(node, ast.Name) and node.id in _VARIABLES for node in ast.walk(tree)):
        raise ExpressionError("The expression has neither x nor y in it, and a constant has nowhere to go. Add one.")
    return _term(tree, 0)


def _parsed(words: str) -> ast.expr:
    """The syntax tree; whatever Python's parser says about wrong text, and warns of, becomes our sentence."""
    if number := re.search(r"(?<![A-Za-z0-9_.])([0-9.]+)([xy(])", words):
        raise ExpressionError(f"Between {number[1]} and {number[2]} a sign is missing; write {number[1]}*{number[2]}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return ast.parse(words, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError, Warning) as error:
        if words.count("(") != words.count(")"):
            raise ExpressionError("Brackets do not match: there must be as many ( as ).") from error
        raise ExpressionError(f"{words!r} is no complete expression. {_HOW}") from error


def _term(node: ast.expr, depth: int) -> Term:
    """The part of the tree under ``node`` as a function of w."""
    if depth > MAX_DEPTH:
        raise ExpressionError(f"More than {MAX_DEPTH} operations lie inside each other. Simplify the expression.")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _number(value)
        case ast.Name(id=name) if name in _VARIABLES:
            return _entry(_VARIABLES[name])
        case ast.Name(id=name) if name in _CONSTANTS:
            return _number(_CONSTANTS[name])
        case ast.Name(id=name):
            raise ExpressionError(_unknown("variable or constant", name, [*_VARIABLES, *_CONSTANTS]))
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _term(inner, depth + 1)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _applied(torch.neg, _term(inner, depth + 1))
        case ast.BinOp(left=base, op=ast.Pow(), right=exponent):
            return _power(_term(base, depth + 1), _exponent(exponent))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _combined(_OPERATORS[type(operator)], _term(left, depth + 1), _term(right, depth + 1))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name not in FUNCTIONS:
                raise ExpressionError(_unknown("function", name, FUNCTIONS))
            if len(arguments) != 1 or isinstance(arguments[0], ast.Starred):
                raise ExpressionError(f"The function {name} takes one argument, as in {name}(x).")
            return _applied(FUNCTIONS[name], _term(arguments[0], depth + 1))
    part = ast.unparse(node)
    raise ExpressionError(f"{part!r} is not among what is read: numbers, x, y, + - * / **, and functions. {_HOW}")


def _unknown(kind: str, name: str, known: list[str] | dict[str, Callable[[Tensor], Tensor]]) -> str:
    return str(unknown_name(kind, name, known))


def _exponent(node: ast.expr) -> float:
    """A number, with a sign or without; an exponent that moves with x is written by exp and log."""
    sign = 1
    while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        sign = -sign if isinstance(node.op, ast.USub) else sign
        node = node.operand
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool) or not isinstance(node.value, int | float):
        raise ExpressionError(f"An exponent must be a number, not {ast.unparse(node)!r}; for others, exp(y*log(x)).")
    if not node.value <= MAX_POWER:
        raise ExpressionError(f"An exponent may be {MAX_POWER} at most, in size; this one is {ast.unparse(node)}.")
    return sign * node.value


def _number(value: float) -> Term:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ExpressionError("A number in the expression is too large for this machine. Write a smaller one.")
    return lambda w: torch.full((), number, dtype=w.dtype, device=w.device)


def _entry(index: int) -> Term:
    return lambda w: w[index]


def _applied(function: Callable[[Tensor], Tensor], inner: Term) -> Term:
    return lambda w: function(inner(w))


def _combined(operator: Callable[[Tensor, Tensor], Tensor], left: Term, right: Term) -> Term:
    return lambda w: operator(left(w), right(w))


def _power(base: Term, exponent: float) -> Term:
    return lambda w: torch.pow(base(w), exponent)
