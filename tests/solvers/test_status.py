"""The status is true of the point returned."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.cases import Case, all_cases
from tests.functions import booth, rosenbrock
from torch import Tensor

from levelport import SQP, Auto, TeleportStatus, teleport
from levelport.objectives import FunctionObjective
from levelport.solvers import Certificate, Krylov, solver_named
from levelport.solvers.contract import Monitor, Outcome
from levelport.solvers.problem import TeleportProblem


@pytest.mark.parametrize("level_set", [False, True])
def test_an_end_far_below_the_level_is_no_kkt_point(level_set: bool) -> None:
    """Σ exp(w): down the valley one coordinate is left, ∇f and ∇²f ∇f are parallel, but the level is far away.

    On the level e^a + e^b = s the norm sqrt(e^2a + e^2b) tends to s as one of them goes to -∞.
    """
    start = torch.tensor([0.4, -0.3], dtype=torch.float64)
    result = teleport(lambda w: w.exp().sum(), start, level_set=level_set)
    level = float(start.exp().sum())
    assert result.status is TeleportStatus.CONVERGED
    assert result.gradient_norm == pytest.approx(level, rel=1e-5)
    assert result.value == pytest.approx(level, rel=1e-8)
    assert result.alignment > 1 - 1e-11


@pytest.mark.parametrize("level_set", [False, True])
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_converged_means_aligned(case: Case, level_set: bool) -> None:
    for solver in (Auto(), Auto(memory=1)):
        result = teleport(case.fun, case.start, replace(solver_named(solver), max_hvps=200), level_set=level_set)
        if result.status is TeleportStatus.CONVERGED and result.curvature != 0.0:
            sine = result.kkt_residual * result.gradient_norm / abs(result.curvature)
            assert sine <= 2e-6
            assert level_set or result.curvature > 0.0


def bump(x: Tensor) -> Tensor:
    return -torch.exp(-0.5 * x.square().sum())


@pytest.mark.parametrize("solver", ["sqp", SQP(mode="released", final="last"), "krylov", "auto"], ids=str)
def test_no_kkt_point_where_the_gradient_grows_below_the_level(solver: str | SQP) -> None:
    """Outside the inflection of a bump every point has H g parallel to g, with λ < 0: ‖∇f‖ is largest at |x| = 1."""
    result = teleport(bump, torch.tensor([1.5, 1.0], dtype=torch.float64), solver)
    if result.status is TeleportStatus.CONVERGED:
        assert result.gradient_norm == pytest.approx(math.exp(-0.5), rel=1e-6)
    else:
        assert result.curvature < 0.0


def test_target_alignment_is_seen_without_a_solver_product() -> None:
    start = torch.tensor([-1.2, 1.0], dtype=torch.float64)
    result = teleport(rosenbrock, start, Krylov(target_alignment=0.5))
    assert result.status is TeleportStatus.TARGET_REACHED
    assert result.alignment >= 0.5


@pytest.mark.parametrize("shift", [0.0, 0.85])
def test_the_level_set_at_the_value_zero_is_as_good_as_any_other(shift: float) -> None:
    """On an ellipse the gradient is largest at the ends of its short axis: ‖∇f‖² = 4·4·f."""

    def ellipse(z: Tensor) -> Tensor:
        return (z[0] - 0.3) ** 2 + 4.0 * (z[1] - 0.7) ** 2 - shift

    start = torch.tensor([1.0, 1.0], dtype=torch.float64)
    result = teleport(ellipse, start, level_set=True)
    assert result.status is TeleportStatus.CONVERGED
    assert result.gradient_norm == pytest.approx(4.0 * math.sqrt(0.85), rel=1e-8)
    assert result.value == pytest.approx(float(ellipse(start)), abs=1e-12 + 1e-9 * abs(result.value))


def test_angles_that_a_cosine_does_not_show_are_told_apart() -> None:
    """f = ½(x² + (1 + a) y²) at (1, 1): H g is turned from g by some a/2, and cos(1e-10) is 1 in float64."""
    tilt = 1e-10
    f = FunctionObjective(lambda x: 0.5 * (x[0] ** 2 + (1.0 + tilt) * x[1] ** 2), like=torch.zeros(2).double())
    certificate = Certificate.at(f.at(torch.ones(2, dtype=torch.float64)))
    assert certificate.alignment == pytest.approx(1.0, abs=1e-15)
    assert certificate.misalignment == pytest.approx(tilt / 2, rel=1e-4)
    assert certificate.aligned(level_set=False, tol=1e-9)
    assert not certificate.aligned(level_set=False, tol=1e-11)


def test_a_solver_that_ends_by_its_own_limit_says_so() -> None:
    start = torch.tensor([7.5, -4.0], dtype=torch.float64)
    own = teleport(booth, start, SQP(max_iterations=3, max_hvps=50))
    assert own.status is TeleportStatus.BUDGET_SPENT
    assert "max_iterations=3" in own.message
    assert "max_iterations" not in teleport(booth, start, SQP(max_hvps=5)).message


@pytest.mark.parametrize(("dtype", "relative"), [(torch.float64, 1e-9), (torch.float32, 100 * 2.0**-23)])
def test_how_near_the_level_is_near_enough(dtype: torch.dtype, relative: float) -> None:
    """In level-set mode 1e-9 of f(w), or a hundred roundings of it where that is more; else nothing above it."""
    seen: list[float] = []

    class Asks(Auto):
        def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
            seen.append(problem.slack)
            return super().solve(problem, monitor)

    start = torch.tensor([7.5, -4.0], dtype=dtype)
    for level_set in (True, False):
        result = teleport(booth, start, Asks(), level_set=level_set)
        assert result.violation <= seen[-1]
    assert seen == pytest.approx([relative * float(booth(start)), 0.0])


@pytest.mark.parametrize("level_set", [True, False])
def test_trace_tells_the_distance_to_the_target(level_set: bool) -> None:
    start = torch.tensor([-1.2, 1.0], dtype=torch.float64)
    result = teleport(rosenbrock, start, SQP(max_hvps=30), level_set=level_set)
    excesses = [row.value - result.value_start for row in result.trace]
    assert min(excesses) < 0.0 < max(excesses)  # or the test would show nothing
    violations = [abs(excess) if level_set else max(0.0, excess) for excess in excesses]
    assert [row.violation for row in result.trace] == violations
