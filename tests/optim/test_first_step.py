"""The first step after a teleport, on quadratics where everything is known by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from levelport.objectives import FunctionObjective
from levelport.optim.first_step import StabilityLimit, check_unused, take_first_step
from levelport.solvers import Auto
from levelport.solvers._teleport import Move, move_from

START = torch.tensor([3.0, 0.1], dtype=torch.float64)


def valley(x: Tensor) -> Tensor:
    """The largest gradient on a level set is where x[0] is 0, and the curvature along it 8."""
    return 0.5 * (x[0] ** 2 + 8.0 * x[1] ** 2)


def teleported() -> tuple[FunctionObjective, Move]:
    objective = FunctionObjective(valley, START)
    move = move_from(objective.at(START), objective, Auto())
    assert move.result.curvature == pytest.approx(8.0)
    return objective, move


@pytest.mark.parametrize(("known", "halvings"), [(8.0, 0), (4.0, 1), (0.5, 4)])
def test_a_step_that_is_too_long_is_halved(known: float, halvings: int) -> None:
    """1/8 leads to the bottom; 2/8 as high up on the other side, which is no descent."""
    objective, move = teleported()
    taken = take_first_step(objective, objective.at(START), _taken_for(move, known), StabilityLimit())
    assert taken.size == pytest.approx(1.0 / known / 2**halvings)
    assert taken.point.value == pytest.approx(0.0, abs=1e-8)


def test_without_curvature_the_step_is_as_long_as_the_teleport() -> None:
    objective, move = teleported()
    taken = take_first_step(objective, objective.at(START), _taken_for(move, 0.0), StabilityLimit())
    way = float(torch.linalg.vector_norm(move.point.x - START)) / move.point.gradient_norm
    halvings = math.log2(way / taken.size)
    assert halvings == pytest.approx(round(halvings))
    assert taken.point.value < move.point.value


@pytest.mark.parametrize("beside", [1e-2, 1e-4])
def test_a_short_teleport_is_followed_by_the_whole_newton_step(beside: float) -> None:
    """Nearly at the end of the axis already, there is not far to go; the way down is as long as ever."""
    start = torch.tensor([beside, 1.0], dtype=torch.float64)
    objective = FunctionObjective(valley, start)
    move = move_from(objective.at(start), objective, Auto())
    assert move.point.x is not start
    taken = take_first_step(objective, objective.at(start), move, StabilityLimit())
    assert taken.size == pytest.approx(1.0 / 8.0, rel=1e-6)


def test_tiny_curvature_makes_no_step_too_long_to_be_halved() -> None:
    """On an inner slope the gradient is largest where λ = 0: what is reported are roundings of it."""
    objective, move = teleported()
    taken = take_first_step(objective, objective.at(START), _taken_for(move, 3e-9), StabilityLimit())
    assert taken.refused == ""
    assert taken.point.value < move.point.value


@pytest.mark.parametrize(("curvature", "moves"), [(7.9, False), (8.1, True)])
def test_a_valley_must_bear_the_optimizers_step_size(curvature: float, moves: bool) -> None:
    objective, move = teleported()
    start = objective.at(START)
    taken = take_first_step(objective, start, move, StabilityLimit(curvature))
    assert (taken.point is not start) is moves
    assert ("too narrow" in taken.refused) is not moves


@pytest.mark.parametrize(("shift", "share"), [(0.0, 1.0), (1.0, 0.5), (9.0, 0.0)])
def test_move_is_shortened_until_other_samples_are_unharmed(shift: float, share: float) -> None:
    """From (1, 0) to (0, 0), which lowers f; on the other samples f has its minimum further to the right."""
    seen = FunctionObjective(lambda x: x[0] ** 2 + x[1] ** 2, START)
    unused = FunctionObjective(lambda x: (x[0] - 0.55 * shift) ** 2 + x[1] ** 2, START)
    start = seen.at(torch.tensor([1.0, 0.0], dtype=torch.float64))
    taken = take_first_step(seen, start, _to(seen, start.x.new_zeros(2)), StabilityLimit())
    found = check_unused(seen, unused, start, taken)
    assert found.share == share
    assert found.point.x[0].item() == 1.0 - share
    assert found.unused_change <= 0.0


def _to(objective: FunctionObjective, end: Tensor) -> Move:
    """A move that ends at ``end`` for certain: a descent that a solver found."""
    _, move = teleported()
    return replace(move, lower=objective.at(end))


def _taken_for(move: Move, curvature: float) -> Move:
    """The same with another curvature in its certificate."""
    certificate = replace(move.result.certificate, curvature=curvature)
    return replace(move, result=replace(move.result, certificate=certificate))
