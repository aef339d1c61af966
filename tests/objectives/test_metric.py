"""Teleports in another norm: against the change of variables written out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import levelport
from levelport.objective import NotDeterministicError, ObjectiveError
from levelport.objectives import FunctionObjective
from levelport.objectives.metric import InMetric
from levelport.solvers import TeleportProblem

METRIC = torch.tensor([4.0, 0.25, 1.0], dtype=torch.float64)
START = torch.tensor([0.3, -1.0, 0.7], dtype=torch.float64)


def quartic(x: Tensor) -> Tensor:
    return (x**4).sum() + (x[0] - x[1]) ** 2 + 3.0 * x[2] ** 2 + x[0] * x[2]


def test_derivatives_are_those_of_the_function_written_out() -> None:
    z, v = START * METRIC.sqrt(), torch.tensor([0.2, 0.5, -1.0], dtype=torch.float64)
    ours = InMetric(FunctionObjective(quartic, START), METRIC).at(z)
    by_hand = FunctionObjective(lambda z: quartic(z / METRIC.sqrt()), z).at(z)
    assert ours.value == pytest.approx(by_hand.value, rel=1e-14)
    torch.testing.assert_close(ours.gradient, by_hand.gradient)
    torch.testing.assert_close(ours.hvp(v), by_hand.hvp(v))


@pytest.mark.parametrize("solver", ["auto", "krylov"])
def test_metric_teleport_is_that_of_the_rescaled_function(solver: str) -> None:
    ours = levelport.teleport(quartic, START, solver, metric=METRIC)
    z = START * METRIC.sqrt()
    by_hand = levelport.teleport(lambda z: quartic(z / METRIC.sqrt()), z, solver)
    assert ours.gradient_norm == pytest.approx(by_hand.gradient_norm, rel=1e-6)
    torch.testing.assert_close(ours.x, by_hand.x / METRIC.sqrt(), rtol=1e-5, atol=1e-5)
    assert quartic(ours.x).item() == pytest.approx(ours.value, rel=1e-14)
    assert ours.value <= ours.value_start


def test_the_callback_sees_the_users_variables() -> None:
    seen: list[Tensor] = []
    levelport.teleport(quartic, START, metric=METRIC, callback=lambda row, point: seen.append(point.x))
    torch.testing.assert_close(seen[0], START)


def of_parts(x: Any) -> Tensor:
    first, second = x.values() if isinstance(x, dict) else x
    return quartic(torch.cat([first.reshape(-1), second.reshape(-1)]))


def as_dict(flat: Tensor) -> dict[str, Tensor]:
    return {"a": flat[:2].reshape(1, 2).clone(), "b": flat[2:].clone()}


@pytest.mark.parametrize("kind", [as_dict, lambda flat: list(as_dict(flat).values())], ids=["dict", "list"])
def test_the_structure_of_x_is_the_structure_of_the_metric(kind: Callable[[Tensor], Any]) -> None:
    flat = levelport.teleport(quartic, START, metric=METRIC)
    result = levelport.teleport(of_parts, kind(START), metric=kind(METRIC))
    assert type(result.x) is type(kind(START))
    parts = result.x.values() if isinstance(result.x, dict) else result.x
    assert [tuple(part.shape) for part in parts] == [(1, 2), (1,)]
    torch.testing.assert_close(torch.cat([part.reshape(-1) for part in parts]), flat.x)
    assert flat.gradient_norm != pytest.approx(levelport.teleport(quartic, START).gradient_norm)  # weights matter


ONES = torch.ones(6, dtype=torch.float64)


@pytest.mark.parametrize(
    ("x", "metric", "words"),
    [
        (ONES.view(3, 2), ONES.view(2, 3), r"shapes \(3, 2\), not \(2, 3\)"),
        (ONES, ONES[:5], r"shapes \(6,\), not \(5,\)"),
        ([ONES[:3], ONES[3:5]], [ONES[:2], ONES[2:5]], r"shapes \[\(3,\), \(2,\)\], not \[\(2,\), \(3,\)\]"),
        ({"a": ONES[:3]}, {"a": ONES[:2]}, r"shapes \{'a': \(3,\)\}, not \{'a': \(2,\)\}"),
        ({"a": ONES}, ONES, r"shapes \{'a': \(6,\)\}, not \(6,\)"),
        (ONES, 2.0, r"not float"),
        ([ONES], [[1.0] * 6], r"not \[\['float'"),
        (ONES, ONES.to(torch.complex128), "real"),
        (ONES, ONES.to_sparse(), "dense"),
        (ONES, -ONES.long(), "positive"),
        (ONES.float(), 1e-60 * ONES, "positive and finite in every entry, in torch.float32"),
        (ONES.float(), 1e60 * ONES, "positive and finite in every entry, in torch.float32"),
    ],
)
def test_what_is_wrong_with_a_metric_is_said_of_the_metric(x: Any, metric: Any, words: str) -> None:
    def f(x: Any) -> Tensor:
        parts = [x] if isinstance(x, Tensor) else x.values() if isinstance(x, dict) else x
        return torch.stack([(part**4).sum() for part in parts]).sum()

    with pytest.raises(ObjectiveError, match=rf"^metric.*{words}"):
        levelport.teleport(f, x, metric=metric)


def test_whole_numbers_are_weights_too() -> None:
    whole = levelport.teleport(quartic, START, metric=torch.tensor([4, 1, 2]))
    torch.testing.assert_close(whole.x, levelport.teleport(quartic, START, metric=torch.tensor([4.0, 1.0, 2.0])).x)


def test_order_of_metric_keys_is_free_but_not_the_keys() -> None:
    x = {"a": START[:2].clone(), "b": START[2:].clone()}
    metric = {"b": METRIC[2:], "a": METRIC[:2]}

    def f(x: dict[str, Tensor]) -> Tensor:
        return quartic(torch.cat([x["a"], x["b"]]))

    by_name, flat = levelport.teleport(f, x, metric=metric), levelport.teleport(quartic, START, metric=METRIC)
    torch.testing.assert_close(torch.cat([by_name.x["a"], by_name.x["b"]]), flat.x)
    with pytest.raises(ObjectiveError, match=r"keys of x, \['a', 'b'\], not \['b', 'c'\]"):
        levelport.teleport(f, x, metric={"b": METRIC[2:], "c": METRIC[:2]})


def test_a_noisy_function_is_refused_in_a_metric_too() -> None:
    generator = torch.Generator().manual_seed(0)

    def noisy(x: Tensor) -> Tensor:
        return quartic(x) * (1.0 + 0.1 * torch.rand((), generator=generator, dtype=x.dtype))

    with pytest.raises(NotDeterministicError):
        levelport.teleport(noisy, START, metric=METRIC)


def test_a_metric_must_be_positive_and_as_large_as_x() -> None:
    with pytest.raises(ObjectiveError, match="positive"):
        levelport.teleport(quartic, START, metric=torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64))
    with pytest.raises(ObjectiveError, match="one entry"):
        levelport.teleport(quartic, START, metric=torch.ones(2, dtype=torch.float64))


def test_guarantee_holds_in_the_users_variables() -> None:
    """z is finite, and so are f and its gradient, but x = z/√m is not."""
    start = torch.full((1,), 1e20)
    weighted = InMetric(FunctionObjective(lambda x: x.tanh().sum(), start), torch.full((1,), 1e-30))
    problem = TeleportProblem(objective=weighted, start=weighted.around(weighted.inner.at(start)))
    outside = weighted.at(torch.full((1,), 1e25))
    assert outside.finite
    assert outside.value == problem.level
    assert not problem.fulfilled_by(outside)
    assert problem.fulfilled_by(weighted.at(torch.full((1,), 1e10)))


@pytest.mark.parametrize("given", [torch.float64, torch.float32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_products_in_a_metric_have_the_dtype_of_x(dtype: torch.dtype, given: torch.dtype) -> None:
    x = torch.ones(2, dtype=dtype)
    point = InMetric(FunctionObjective(lambda x: (x**4).sum(), x), torch.tensor([4.0, 9.0]).to(given)).at(x)
    assert (point.gradient.dtype, point.hvp(x).dtype) == (dtype, dtype)
