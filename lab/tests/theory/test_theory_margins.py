"""Margins of logistic problems, and the solves behind them, where the start is far or the data are degenerate."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from theory_problems import logistic_in_numpy

from levelport import LinearObjective
from levelport.numerics.newton import Minimum
from levelport_lab.problems.minimum import find_minimum
from levelport_lab.theory import constants_of, margins
from levelport_lab.theory.margins import curvature_ends, margin_bounds


def problem(n: int, scale: float, penalty: float, seed: int) -> LinearObjective:
    """Labels by coin: nothing separates them, and the sub-level set of a far start is nearly a polygon."""
    generator = torch.Generator().manual_seed(seed)
    X = scale * torch.randn(n, 2, generator=generator, dtype=torch.float64)
    y = torch.where(torch.rand(n, generator=generator) < 0.5, 1.0, -1.0).double()
    return LinearObjective.logistic(X, y, penalty=penalty)


def true_margins(objective: LinearObjective, minimum: Minimum, level: float) -> tuple[np.ndarray, np.ndarray]:
    """How far every margin moves up and down over the boundary, by brute force over the directions of the plane."""
    X, centre = objective.X.numpy(), minimum.x.numpy()
    value, _ = logistic_in_numpy(X, objective.loss.y.numpy(), objective.penalty)
    angles = np.linspace(0.0, 2.0 * np.pi, 4001)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    low, high = np.zeros(len(angles)), np.full(len(angles), 1e5)
    for _ in range(60):
        middle = 0.5 * (low + high)
        inside = value(centre + middle[:, None] * directions) <= level
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    moved = low[:, None] * directions @ X.T
    return moved.max(axis=0), -moved.min(axis=0)


FAR = [
    (20, 3.0, 1e-3, (3.0, -3.0)),
    (100, 1.0, 1e-3, (4.0, -4.0)),
    (200, 1.0, 1e-4, (4.0, 4.0)),
    (50, 10.0, 1e-5, (4.0, 4.0)),
]


@pytest.mark.parametrize(("n", "scale", "penalty", "start"), FAR)
@pytest.mark.parametrize("seed", [0, 1])
def test_widths_are_solved_for_from_far_starts(
    n: int, scale: float, penalty: float, start: tuple[float, float], seed: int
) -> None:
    """Diameters of 30 to 600: the least curvature there is that of the penalty, and the cheap bounds know little."""
    objective = problem(n, scale, penalty, seed)
    minimum = find_minimum(objective)
    level = objective.at(torch.tensor(start, dtype=torch.float64)).value
    above, below = true_margins(objective, minimum, level)
    reach = margin_bounds(objective, minimum, level - minimum.value)
    assert reach.exact_rows > n // 2
    assert (above <= reach.above.numpy() * (1 + 1e-9)).all()
    assert (below <= reach.below.numpy() * (1 + 1e-9)).all()
    assert reach.diameter <= 1.003 * (above + below).max()


def test_only_widths_that_were_solved_for_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = problem(20, 3.0, 1e-3, 0)
    minimum = find_minimum(objective)
    level = objective.at(torch.tensor([3.0, -3.0], dtype=torch.float64)).value
    monkeypatch.setattr(margins, "_ROUNDS", 6)
    reach = margin_bounds(objective, minimum, level - minimum.value)
    above, below = true_margins(objective, minimum, level)
    assert reach.exact_rows == 0
    assert (above <= reach.above.numpy() * (1 + 1e-9)).all()  # a bound at any time
    assert (below <= reach.below.numpy() * (1 + 1e-9)).all()


def test_single_precision_solves_for_the_same_widths() -> None:
    double = problem(30, 2.0, 1e-3, 2)
    single = LinearObjective.logistic(double.X.float(), double.loss.y.float(), penalty=1e-3)
    minimum = find_minimum(double)
    rounded = Minimum(minimum.x.float(), minimum.value, minimum.gradient_norm, convex=True)
    ours, theirs = margin_bounds(double, minimum, 2.0), margin_bounds(single, rounded, 2.0)
    assert theirs.above.dtype is torch.float32
    assert theirs.exact_rows == ours.exact_rows > 0
    assert theirs.diameter == pytest.approx(ours.diameter, rel=1e-4)


def test_a_row_of_zeros_has_no_width_and_spoils_nothing() -> None:
    """Compared with a row that is nearly zero: the same constants, but for a little."""
    objective = problem(20, 1.0, 1e-3, 0)
    start = torch.tensor([2.0, -2.0], dtype=torch.float64)

    def with_row(size: float) -> LinearObjective:
        X = objective.X.clone()
        X[3] = size
        return LinearObjective.logistic(X, objective.loss.y, penalty=1e-3)

    exact, nearly = with_row(0.0), with_row(1e-7)
    minimum = find_minimum(exact)
    reach = margin_bounds(exact, minimum, exact.at(start).value - minimum.value)
    assert float(reach.above[3]) == float(reach.below[3]) == 0.0
    assert bool((reach.above + reach.below).isfinite().all())
    ours, theirs = constants_of(exact, start), constants_of(nearly, start)
    assert ours.stability_lower.value == pytest.approx(theirs.stability_lower.value, rel=1e-3)
    assert ours.radius.value == pytest.approx(theirs.radius.value, rel=1e-3)


def test_data_of_zeros_have_margins_that_do_not_move() -> None:
    objective = LinearObjective.logistic(torch.zeros(4, 2).double(), torch.ones(4).double(), penalty=0.1)
    minimum = find_minimum(objective, torch.zeros(2, dtype=torch.float64))
    reach = margin_bounds(objective, minimum, 1.0)
    assert reach.diameter == 0.0
    assert reach.radius == pytest.approx(math.sqrt(2.0 * 1.0 / 0.2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_eigenvalues_made_by_rounding_count_as_zero(dtype: torch.dtype) -> None:
    for seed in range(12):
        X = torch.randn(30, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
        X[:, 3] = X[:, 0]
        low, high = curvature_ends(X.T @ X / 30)
        assert low == 0.0
        assert high == pytest.approx(float(torch.linalg.matrix_norm(X.double(), 2) ** 2) / 30, rel=1e-5)
    assert curvature_ends(torch.diag(torch.tensor([-1.0, 2.0], dtype=dtype))) == (-1.0, 2.0)
    assert curvature_ends(torch.diag(torch.tensor([1e-3, 2.0], dtype=dtype)))[0] == pytest.approx(1e-3)
