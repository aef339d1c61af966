"""The published algorithm as its text has it, iterate for iterate, against an independent NumPy transcription."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from tests.cases import labelled_data
from tests.functions import Quadratic, goldstein_price
from torch import Tensor

from levelport import SQP, FunctionObjective, LinearObjective, Objective, Point, TeleportStatus, teleport
from levelport.solvers import TraceRow

Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]


def reference(
    evaluate: Evaluate,
    w: np.ndarray,
    iterations: int,
    *,
    level_set: bool = False,
    restart: bool = False,
) -> list[np.ndarray]:
    """Update rule, merit function, penalty and backtracking of the paper with its published constants."""
    positive = (lambda t: t) if level_set else (lambda t: max(t, 0.0))
    size = abs if level_set else positive
    level, x, rho, path = evaluate(w)[0], w, 0.1, []
    for _ in range(iterations):
        rho = 0.1 if restart else rho
        f, g, H = evaluate(x)
        q, square, excess = H @ g, g @ g, f - level
        projected = q - (g @ q) / square * g
        if projected @ projected / square**2 <= 1e-6 and size(excess) <= 1e-6:
            break
        for attempt in range(26):
            trial_rho = rho if attempt < 25 else 1e-16
            v = positive(trial_rho * (g @ q) / square + excess) * g
            plus = x + (trial_rho * q - v) / square
            gamma = 0.1 * ((q @ v) / (square**2 * size(excess)) if size(excess) > 0 else 1.0)
            f_plus, g_plus, _ = evaluate(plus)
            left = 0.5 * np.log(g_plus @ g_plus) - gamma * size(f_plus - level)
            slope = q @ (plus - x) / square + gamma * size(excess)
            right = 0.5 * np.log(square) - gamma * size(excess) + 0.5 * slope
            if attempt == 25 or left >= right:
                break
            rho = rho / 2
        if attempt == 25:
            rho = rho * 32
        x = plus
        path.append(x)
    return path


def quadratic_reference(quadratic: Quadratic) -> Evaluate:
    H, center = quadratic.hessian.numpy(), quadratic.minimizer.numpy()
    return lambda x: (0.5 * (x - center) @ H @ (x - center), H @ (x - center), H)


def logistic_reference(X: np.ndarray, y: np.ndarray, penalty: float) -> Evaluate:
    def evaluate(w: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        margin = y * (X @ w)
        p = 1 / (1 + np.exp(margin))
        value = np.log1p(np.exp(-margin)).mean() + penalty * w @ w
        gradient = -(X.T @ (y * p)) / len(y) + 2 * penalty * w
        hessian = (X.T * (p * (1 - p))) @ X / len(y) + 2 * penalty * np.eye(len(w))
        return float(value), gradient, hessian

    return evaluate


def autograd_reference(f: Callable[[Tensor], Tensor]) -> Evaluate:
    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        at = torch.tensor(x, requires_grad=True)
        value = f(at)
        (gradient,) = torch.autograd.grad(value, at)
        return float(value.detach()), gradient.numpy(), torch.autograd.functional.hessian(f, at).numpy()

    return evaluate


def problem(name: str) -> tuple[Objective, Evaluate, Tensor]:
    if name == "quadratic":
        quadratic = Quadratic.random(torch.logspace(0, -2, 6, dtype=torch.float64), seed=0)
        return quadratic, quadratic_reference(quadratic), torch.ones(6, dtype=torch.float64)
    if name == "goldstein-price":
        start = torch.tensor([-0.5, 0.5], dtype=torch.float64)
        return FunctionObjective(goldstein_price, like=start), autograd_reference(goldstein_price), start
    X, y = labelled_data()
    start = torch.linspace(-1, 1, 8, dtype=torch.float64)
    return LinearObjective.logistic(X, y, penalty=1e-3), logistic_reference(X.numpy(), y.numpy(), 1e-3), start


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("level_set", [False, True])
@pytest.mark.parametrize("name", ["quadratic", "logistic", "goldstein-price"])
def test_iterate_for_iterate(name: str, level_set: bool, restart: bool) -> None:
    objective, evaluate, start = problem(name)
    iterates: list[Tensor] = []

    def keep(row: TraceRow, point: Point) -> None:
        iterates.append(point.x)

    steps = 8
    search: Literal["restart", "continue"] = "restart" if restart else "continue"
    solver = SQP(final="last", max_iterations=steps, search=search)
    result = teleport(objective, start, replace(solver, max_hvps=200), level_set=level_set, callback=keep)
    assert isinstance(result.x, Tensor)
    ours = [*iterates[1:], result.x]
    theirs = reference(evaluate, start.numpy(), steps, level_set=level_set, restart=restart)
    assert len(ours) == len(theirs) == steps
    for mine, other in zip(ours, theirs, strict=True):
        assert np.linalg.norm(mine.numpy() - other) <= 1e-12 * np.linalg.norm(other)


def test_restarted_search_solves_goldstein_price() -> None:
    """The reading of the text that begins each search at ρ reaches the KKT point of Figure 1; the other stalls."""
    start = torch.zeros(2, dtype=torch.float64)
    results = {search: teleport(goldstein_price, start, SQP(final="last", search=search)) for search in SEARCHES}
    assert results["restart"].status is TeleportStatus.CONVERGED
    assert results["restart"].gradient_norm == pytest.approx(5807.6, abs=0.1)
    assert len(results["restart"].trace) == 16
    assert results["continue"].gradient_norm < 4000.0


SEARCHES: tuple[Literal["restart", "continue"], ...] = ("restart", "continue")


def test_first_update_by_hand() -> None:
    """f = ½(4a² + b²) from (1, 1): g = (4, 1), q = (16, 1), ⟨g, q⟩ = 65, ‖g‖² = 17.

    v = ρ·65/17·g with ρ = 0.1 and x⁺ = x + (ρ q - v)/17; accepted at once, as ‖∇f‖² grows from 17 to 17.1….
    """
    solver = SQP(final="last", max_iterations=1)
    start = torch.ones(2, dtype=torch.float64)
    result = teleport(lambda w: 0.5 * (4 * w[0] ** 2 + w[1] ** 2), start, solver)
    expected = [1 + (1.6 - 0.1 * 65 / 17 * 4) / 17, 1 + (0.1 - 0.1 * 65 / 17) / 17]
    assert result.x.tolist() == pytest.approx(expected, rel=1e-14)  # type: ignore[union-attr]


def test_iteration_limit_and_published_defaults() -> None:
    solver = SQP()
    published = (solver.rho, solver.epsilon, solver.delta, solver.gamma_scale)
    assert published == (0.1, 1e-6, 1e-6, 0.1)
    assert (solver.max_iterations, solver.max_backtracks, solver.smallest_rho) == (50, 25, 1e-16)
    objective, _, start = problem("logistic")
    result = teleport(objective, start, SQP(max_iterations=4, epsilon=1e-30, max_hvps=500))
    assert len(result.trace) == 4
    assert result.status is TeleportStatus.BUDGET_SPENT


def test_backtracking_falls_back() -> None:
    """Goldstein-Price: at ρ = 0.1 the first step leaves the window where the function is tame; ρ must shrink.

    With a single backtrack allowed, the fall-back step of ρ = 1e-16 is all that is left: the point hardly moves.
    """
    start = torch.tensor([-0.5, 0.5], dtype=torch.float64)
    hasty = SQP(rho=1e6, max_backtracks=1, max_iterations=1, final="last")
    result = teleport(goldstein_price, start, hasty)
    assert isinstance(result.x, Tensor)
    assert float((result.x - start).norm()) <= 1e-12
    patient = teleport(goldstein_price, start, SQP(rho=1e6, max_backtracks=60, max_iterations=1, final="last"))
    assert isinstance(patient.x, Tensor)
    assert float((patient.x - start).norm()) > 1e-6


def test_fall_back_is_evaluated_once() -> None:
    """Three steps ρ, ρ/2, ρ/4, the last of which is the smallest and taken whatever comes of it."""
    start, places = torch.tensor([-0.5, 0.5], dtype=torch.float64), list[tuple[float, ...]]()

    def f(x: Tensor) -> Tensor:
        places.append(tuple(x.tolist()))
        return goldstein_price(x)

    teleport(f, start, SQP(rho=1e6, smallest_rho=2.5e5, max_iterations=1, final="last"))
    trials = [place for place in places if place != tuple(start.tolist())]
    assert len(trials) == len(set(trials)) == 3


def test_search_after_a_failure_begins_sixteen_times_further() -> None:
    """ρ fails, ρ/2 is kept; the next search begins at 2⁵ times that. Trial steps are linear in ρ at the level."""
    start, places = torch.tensor([-0.5, 0.5], dtype=torch.float64), list[Tensor]()

    def f(x: Tensor) -> Tensor:
        places.append(x.detach().clone())
        return goldstein_price(x)

    teleport(f, start, SQP(rho=1e6, max_backtracks=1, max_iterations=2, final="last"))
    lengths = [float((place - start).norm()) for place in places]
    first, second = (length for length in lengths if length > 1.0)
    assert second == pytest.approx(16.0 * first, rel=1e-6)


def test_last_iterate_may_be_infeasible_and_says_so() -> None:
    """As published, iterates approach the level from outside; ``final="feasible"`` repairs that."""
    objective, _, start = problem("logistic")
    last = teleport(objective, start, SQP(final="last", max_iterations=5))
    assert last.violation > 0.0
    repaired = teleport(objective, start, SQP(max_iterations=5))
    assert repaired.violation <= 1e-6 * abs(repaired.value_start)
    assert repaired.gain >= 1.0
    assert math.isfinite(repaired.kkt_residual)
