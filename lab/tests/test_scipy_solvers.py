"""SciPy's solvers behind the front door, and the trails that pictures are drawn from."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from levelport import Auto, TeleportStatus, teleport
from levelport.objectives import FunctionObjective
from levelport.solvers import solver_named
from levelport_lab.bench.scipy_solvers import ALL_SOLVERS, ScipySolver, any_solver
from levelport_lab.level_sets import Trails, window_with
from levelport_lab.paper.plane import ExactNewton, experiment
from levelport_lab.problems.functions import FUNCTIONS, booth
from levelport_lab.problems.quadratics import Quadratic


@pytest.mark.parametrize("method", ["SLSQP", "trust-constr"])
def test_quadratic_maximum(method: str) -> None:
    quadratic = Quadratic.random(torch.logspace(0, -1, 6, dtype=torch.float64), seed=3)
    x = torch.ones(6, dtype=torch.float64)
    result = teleport(quadratic, x, replace(ScipySolver(method), max_hvps=400))  # type: ignore[arg-type]
    assert result.gradient_norm == pytest.approx(
        math.sqrt(2 * float(quadratic.eigenvalues.max()) * quadratic.at(x).value), rel=1e-6
    )
    assert result.violation == 0.0


@pytest.mark.parametrize("name", ALL_SOLVERS)
@pytest.mark.parametrize("budget", [2, 5, 20])
def test_budget_and_guarantee(name: str, budget: int) -> None:
    function = FUNCTIONS["goldstein-price"]
    result = teleport(
        function,
        torch.tensor(function.start, dtype=torch.float64),
        replace(any_solver(name), max_hvps=budget),
    )
    assert result.cost.hvps <= budget
    assert result.violation <= 1e-6 * abs(result.value_start)
    assert result.gradient_norm >= result.gradient_norm_start


@pytest.mark.parametrize("method", ["SLSQP", "trust-constr"])
def test_level_set(method: str) -> None:
    x = torch.tensor([7.5, -4.0], dtype=torch.float64)
    solver = ScipySolver(method)  # type: ignore[arg-type]
    stays = teleport(booth, x, replace(solver_named(solver), max_hvps=200), level_set=True)
    assert abs(stays.value - stays.value_start) <= 1e-9 * stays.value_start
    assert stays.gradient_norm == pytest.approx(math.sqrt(2 * 18 * 92.25), rel=1e-6)


def test_target_stops_early() -> None:
    # SLSQP's iterates lie outside the sub-level set until its last ones, so a target cannot stop it before.
    x = torch.tensor([7.5, -4.0], dtype=torch.float64)
    early = teleport(booth, x, replace(ScipySolver("trust-constr"), target_gain=1.2, max_hvps=200))
    assert early.status is TeleportStatus.TARGET_REACHED
    assert early.gain >= 1.2
    assert early.cost.hvps < 30


def test_misspelt_solver() -> None:
    with pytest.raises(ValueError, match="Did you mean 'trust-constr'"):
        any_solver("trust-const")


def test_trails_are_the_iterates() -> None:
    function = FUNCTIONS["goldstein-price"]
    trails = Trails()
    result = teleport(function, torch.tensor(function.start, dtype=torch.float64), Auto(), callback=trails)
    assert sum(map(len, trails.trails)) == len(result.trace)
    assert len(trails.trails) == 2  # one per basin
    # Along each trail steps are short against the distance between the two.
    longest = max(math.dist(a, b) for trail in trails.trails for a, b in pairwise(trail))
    assert longest < math.dist(trails.trails[0][0], trails.trails[1][0])


def test_window_shows_points_but_does_not_chase_them() -> None:
    assert window_with((0.0, 1.0, 0.0, 1.0), [(1.5, 0.5)]) == (0.0, 1.55, 0.0, 1.0)
    assert window_with((0.0, 1.0, 0.0, 1.0), [(1e6, 0.5)]) == (0.0, 1.0, 0.0, 1.0)


def test_newton_step_on_a_quadratic_leaves_a_fifth() -> None:
    start = torch.tensor([7.5, -4.0], dtype=torch.float64)
    objective = FunctionObjective(booth, like=start)
    step = ExactNewton(0.8).advance(objective, objective.at(start, curvature=True), None, None)
    assert step.point is not None
    minimizer = torch.tensor([1.0, 3.0], dtype=torch.float64)
    torch.testing.assert_close(step.point.x - minimizer, 0.2 * (start - minimizer))


def test_figure_1() -> None:
    booth_runs = experiment("booth", (7.5, -4.0))
    plain, teleported, newton = booth_runs.journeys
    assert teleported.result.iterations == 1
    assert teleported.path[-1] == pytest.approx((1.0, 3.0), abs=1e-9)
    assert plain.result.iterations > 10
    assert newton.result.value == pytest.approx(0.0, abs=1e-10)
    assert booth_runs.teleport.gradient_norm == pytest.approx(math.sqrt(2 * 18 * 92.25), rel=1e-9)
    goldstein = experiment("goldstein-price", (0.0, 0.0))
    plain, teleported, _ = goldstein.journeys
    assert teleported.result.value <= plain.result.value + 1e-9  # into the same valley or a deeper one
    assert goldstein.journeys[2].result.value > goldstein.teleport.value_start  # Newton climbs


def test_an_end_beyond_the_radius_is_not_called_converged() -> None:
    """SciPy is not told of the radius, so that what it finds beyond is discarded."""
    start = torch.tensor([7.5, -4.0], dtype=torch.float64)
    result = teleport(booth, start, replace(ScipySolver("SLSQP"), radius=1.0))
    assert result.status is not TeleportStatus.CONVERGED
    assert float((result.x - start).norm()) <= 1.0
