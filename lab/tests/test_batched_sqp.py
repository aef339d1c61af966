from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from levelport import teleport
from levelport.solvers import SQP, solver_named
from levelport_lab.paper.batched import batched
from levelport_lab.paper.batched_sqp import teleport_together
from levelport_lab.paper.plane_studies import RELEASED
from levelport_lab.problems import Problem, problem

PROBLEMS = {"logreg/blood": 1e-4, "mlp-relu-6-5/titanic": 1e-2, "mlp-softplus-7/digits": 1e-2}
SOLVERS = {
    "text": SQP(final="last"),
    "released": SQP(mode="released", final="last"),
    "released, Figure 1": RELEASED,
    "text, large steps": SQP(final="last", rho=100.0, max_backtracks=3),  # searches fail, with tiny steps taken
    "released, large steps": SQP(mode="released", final="last", rho=30.0, max_backtracks=2),
}
SWAPPED = np.array([2, 1, 1, 0])


def penalties(named: Problem, W: torch.Tensor) -> torch.Tensor:
    return W.new_full((len(W),), named.reg)


def members(name: str, count: int = 5) -> tuple[Problem, torch.Tensor]:
    named = problem(name, reg=PROBLEMS[name])
    generator = torch.Generator().manual_seed(1)
    spread = torch.linspace(0.1, 2.0, count, dtype=torch.float64)[:, None]
    noise = torch.randn(count, named.dimension, generator=generator, dtype=torch.float64)
    return named, named.initial_point() + spread * noise


@pytest.mark.parametrize("mode", SOLVERS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_teleporting_together_is_teleporting_one_by_one(name: str, mode: str) -> None:
    """Where they end, and what they spend, against the solver itself on an objective by autograd."""
    named, W = members(name)
    # Steps that are far too large blow rounding errors up as well.
    iterations = 3 if "large" in mode else 12
    solver = replace(SOLVERS[mode], max_iterations=iterations)
    together = teleport_together(batched(named), W, penalties(named, W), solver)
    for row, x in enumerate(W):
        alone = teleport(named.objective(), x, replace(solver_named(solver), max_hvps=iterations + 1))
        torch.testing.assert_close(together.W[row], alone.x, rtol=1e-7, atol=1e-9)
        assert together.gradients[row] == alone.cost.gradients
        certificate = alone.status.value != "converged"  # of the point returned: the batched solver makes none
        assert together.hvps[row] == alone.cost.hvps - certificate


@pytest.mark.parametrize("name", PROBLEMS)
def test_members_that_cannot_start_stay_alone(name: str) -> None:
    named, W = members(name, 3)
    solver = replace(SOLVERS["released"], max_iterations=5)
    alone = teleport_together(batched(named), W[1:2], penalties(named, W[1:2]), solver)
    W[0], W[2, 0] = torch.inf, torch.nan
    together = teleport_together(batched(named), W, penalties(named, W), solver)
    torch.testing.assert_close(together.W[1:2], alone.W)
    torch.testing.assert_close(together.W[::2], W[::2], equal_nan=True)
    assert together.hvps[[0, 2]].max() <= 1


def test_converged_member_does_not_wait_for_others() -> None:
    """Near the minimum of a quadratic-like loss one eigenvector rules: with a loose tolerance that is a KKT point."""
    named, W = members("logreg/blood", 2)
    loose = replace(SOLVERS["released"], epsilon=1e9, delta=1e9)
    together = teleport_together(batched(named), W, penalties(named, W), loose)
    assert together.hvps.tolist() == [1, 1]
    assert torch.equal(together.W, W)


def test_the_published_last_iterate_only() -> None:
    named, W = members("logreg/blood", 2)
    with pytest.raises(ValueError, match="final='last'"):
        teleport_together(batched(named), W, penalties(named, W), SQP())


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_a_grid_too_large_for_one_pass(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that are done leave the others, whose number may then fit into one pass; the outcome is the same."""
    named, W = members("mlp-relu-6-5/titanic")
    solver = replace(SOLVERS["released"], max_iterations=8)
    together = teleport_together(batched(named), W, penalties(named, W), solver)
    widest = len(named.train) * 6
    monkeypatch.setattr("levelport_lab.paper.batched._MOST_ENTRIES", at_once * widest)
    in_groups = teleport_together(batched(named), W, penalties(named, W), solver)
    torch.testing.assert_close(in_groups.W, together.W, rtol=1e-7, atol=1e-9)
    assert in_groups.gradients.tolist() == together.gradients.tolist()


@pytest.mark.parametrize("name", PROBLEMS)
def test_points_that_change_places(name: str) -> None:
    """Values, gradients and products are those of the library's objectives, with a penalty per member."""
    named, W = members(name, 4)
    regs = torch.tensor([0.0, 1e-3, 1e-2, 0.1], dtype=torch.float64)
    V = torch.randn(4, named.dimension, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    together = batched(named).points(W, regs)
    for order in (np.arange(4), SWAPPED):
        together = together.take(order)
        products = together.hvps(V)
        for row, member in enumerate(order):
            point = replace(named, reg=float(regs[member])).objective().at(W[member])
            assert together.values[row] == pytest.approx(point.value, rel=1e-12)
            torch.testing.assert_close(together.gradients[row], point.gradient, rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(products[row], point.hvp(V[row]), rtol=1e-9, atol=1e-11)
