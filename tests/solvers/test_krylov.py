"""Truncated-Krylov teleports: against closed forms on quadratics, the guarantee elsewhere, and what comes for free."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from tests.cases import Case, all_cases, labelled_data
from tests.functions import Quadratic

from levelport import LinearObjective, TeleportStatus, teleport
from levelport.objectives import FunctionObjective
from levelport.optim import Armijo, Every, minimize
from levelport.optim.first_step import averaged_curvature
from levelport.solvers import Auto, Certificate, Krylov, move_from
from levelport.solvers.contract import Monitor
from levelport.solvers.krylov import _outcome_at
from levelport.solvers.problem import TeleportProblem

CASES = all_cases()


def quadratic(d: int = 20, condition: float = 1e3, seed: int = 3) -> Quadratic:
    return Quadratic.random(torch.logspace(0, -torch.tensor(condition).log10().item(), d, dtype=torch.float64), seed)


FAR = {"first_norm": 1e60}
"""The state of a run that has converged far: the model is built to the last vector."""


def start_of(d: int = 20, seed: int = 4) -> torch.Tensor:
    return torch.randn(d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("hvp", ["exact", "difference"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_guarantee_holds_everywhere(case: Case, hvp: str) -> None:
    result = teleport(case.fun, case.start, Krylov(hvp=hvp))  # type: ignore[arg-type]
    assert result.value <= result.value_start
    assert result.gradient_norm >= result.gradient_norm_start
    assert bool(torch.isfinite(torch.as_tensor(result.x)).all())


def test_whole_space_teleport_is_the_exact_maximum_times_share() -> None:
    f, x = quadratic(), start_of()
    move = move_from(f.at(x), f, Krylov(hvp="exact"), FAR)
    assert move.result.gradient_norm == pytest.approx(0.8 * f.largest_gradient_norm(x), rel=1e-6)
    gap = move.result.value_start
    assert move.result.value == pytest.approx(0.64 * gap, rel=1e-6)


def test_free_curvature_is_the_one_along_the_climb() -> None:
    f, x = quadratic(), start_of()
    free = move_from(f.at(x), f, Krylov(hvp="exact"), FAR, certify=False)
    assert free.result.curvature == pytest.approx(float(f.eigenvalues.max()), rel=1e-6)
    assert free.result.status is TeleportStatus.PREDICTED


def test_the_averaged_curvature_is_exact_on_a_quadratic() -> None:
    f, x = quadratic(), start_of()
    before = f.at(x)
    after = f.at(x - 0.3 * before.gradient)
    assert averaged_curvature(before, after) == pytest.approx(Certificate.at(before).curvature, rel=1e-9)
    assert math.isnan(averaged_curvature(before, f.at(x + start_of(seed=9))))


def test_a_sphere_is_not_worth_a_teleport() -> None:
    f = Quadratic.random(torch.ones(5, dtype=torch.float64), 0)
    move = move_from(f.at(start_of(5)), f, Krylov(), certify=False)
    assert move.result.status is TeleportStatus.NOT_WORTHWHILE
    assert move.lower is not None
    assert torch.allclose(move.lower.x, f.minimizer, atol=1e-6)


def test_declined_teleport_certifies_its_start_for_free() -> None:
    f, x = quadratic(), start_of()
    move = move_from(f.at(x), f, Krylov(hvp="exact", least_decrease=1e9), certify=False)
    assert move.result.status is TeleportStatus.NOT_WORTHWHILE
    assert move.result.alignment == pytest.approx(Certificate.at(f.at(x)).alignment)
    assert move.model is not None
    assert move.result.cost.hvps == move.model.size


def test_products_are_chosen_by_dtype_and_by_what_they_cost() -> None:
    X, y = labelled_data()
    closed = LinearObjective.logistic(X, y, penalty=1e-3)
    smooth = FunctionObjective(lambda x: (x**4).sum(), like=start_of(5))
    single = FunctionObjective(lambda x: (x**4).sum(), like=start_of(5).float())
    for objective, by_differences in ((closed, False), (smooth, True), (single, False)):
        point = objective.at(torch.ones(objective.dimension, dtype=objective.dtype))
        assert (move_from(point, objective, Krylov(), certify=False).result.nhev == 0) is by_differences
        point = objective.at(point.x)
        assert move_from(point, objective, Krylov(hvp="exact"), certify=False).result.nhev > 0
    assert teleport(closed, torch.zeros(8).double(), Krylov(hvp="difference")).cost.hvps == 0
    assert teleport(smooth, torch.ones(5).double(), Auto(hvp="difference")).cost.hvps == 0


def test_wrong_arguments_are_answered_by_sentences() -> None:
    with pytest.raises(ValueError, match="hvp must be"):
        Krylov(hvp="numeric")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_vectors"):
        Krylov(max_vectors=0)
    with pytest.raises(ValueError, match="level_set"):
        teleport(quadratic(), start_of(), "krylov", level_set=True)


@pytest.mark.parametrize("radius", [1e-3, 0.1, 1.0])
def test_the_radius_is_kept(radius: float) -> None:
    for case in CASES:
        result = teleport(case.fun, case.start, Krylov(radius=radius))
        assert float((torch.as_tensor(result.x) - case.start).norm()) <= radius * (1 + 1e-9)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_run_of_krylov_teleports_never_rises(case: Case) -> None:
    result = minimize(case.fun, case.start, Armijo(c=0.1), schedule=Every(1), max_cost=300.0)
    values = [row.value for row in result.trace]
    assert all(later <= earlier for earlier, later in pairwise(values))
    assert {row.kind for row in result.trace} <= {"start", "teleport", "stay", "step", "descent"}


def test_trace_marks_teleports() -> None:
    X, y = labelled_data(200, 20)
    scaled = X * torch.logspace(0, -2, 20, dtype=torch.float64)
    objective = LinearObjective.logistic(scaled, y, penalty=1e-6)
    result = minimize(objective, torch.zeros(20).double(), Armijo(c=0.1), schedule=Every(1))
    assert result.success
    kinds = [row.kind for row in result.trace]
    assert kinds.count("teleport") == result.teleports > 0


def test_minimize_is_gradient_descent_from_teleported_points() -> None:
    """Every step of the default that follows a teleport is a multiple of the gradient there."""
    points = []
    f = quadratic(10, 1e4)
    minimize(f, start_of(10), Armijo(c=0.1), schedule=Every(1), callback=lambda row, point: points.append((row, point)))
    for (before, w), (after, x) in pairwise(points):
        if before.kind == "teleport":
            assert after.kind == "step"
            assert torch.allclose(w.x - x.x, after.step * w.gradient, atol=1e-10)


def test_state_is_returned_and_solver_stays_as_it_is() -> None:
    solver = Krylov()
    f, x = quadratic(), start_of()
    first = minimize(f, x, schedule=Every(1), solver=solver)
    again = minimize(f, x, schedule=Every(1), solver=solver)
    assert first.cost.gradients == again.cost.gradients
    move = move_from(f.at(x), f, solver)
    assert move.state["first_norm"] == f.at(x).gradient_norm
    assert solver == Krylov()
    later = move_from(move.point, f, solver, move.state)
    assert later.state["first_norm"] == move.state["first_norm"]


@pytest.mark.parametrize("vectors", [1, 3, 20])
def test_ritz_pairs_are_products_without_another_product(vectors: int) -> None:
    f, x = quadratic(), start_of()
    point = f.at(x)
    move = move_from(point, f, Krylov(vectors, hvp="exact"), FAR, certify=False)
    assert move.model is not None
    spent = f.cost.hvps
    found, images = move.model.ritz_pairs()
    assert f.cost.hvps == spent
    assert found.shape == images.shape == (move.model.size, 20)
    for v, image in zip(found, images, strict=True):
        assert torch.allclose(image, f.at(x).hvp(v), atol=1e-9 * float(f.eigenvalues.max()))


def test_aligned_point_below_the_level_is_no_kkt_point() -> None:
    """Booth's climb ends at 0.64 of the level: H g = λ g there, with λ > 0, and the gradient grows up to the level."""
    result = teleport(
        lambda w: (w[0] + 2 * w[1] - 7) ** 2 + (2 * w[0] + w[1] - 5) ** 2, torch.tensor([7.5, -4.0]).double(), "krylov"
    )
    assert result.certificate.misalignment < 1e-6
    assert result.value < 0.9 * result.value_start
    assert result.status is TeleportStatus.PREDICTED


def test_collapsed_trust_radius_does_not_end_all_teleports() -> None:
    """At a minimum moves miss the model's prediction by mere roundings, again and again; f may change later."""
    f, x = quadratic(), start_of()
    point, state = f.at(x), {"radius": 1e-200, "first_norm": f.at(x).gradient_norm}
    for _ in range(8):
        move = move_from(point, f, Krylov(), state, certify=False)
        point, state = move.lower or move.point, dict(move.state)
    assert point.value < 0.1 * f.at(x).value


def test_products_at_the_domain_edge_are_taken_inside() -> None:
    c = torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)

    def entropy(x: torch.Tensor) -> torch.Tensor:
        return (c * x + x * torch.log(x)).sum()

    start = torch.tensor([0.5, 1e-9, 0.2], dtype=torch.float64)
    assert teleport(entropy, start, "krylov").status is not TeleportStatus.NON_FINITE_START
    assert minimize(entropy, start, max_iterations=300).value < 0.151


def test_nowhere_to_go_is_said() -> None:
    f = FunctionObjective(lambda x: torch.where(x < 1.0, math.nan, x * x).sum(), torch.ones(1).double())
    move = move_from(f.at(torch.ones(1).double()), f, Krylov())
    assert move.result.status is TeleportStatus.NO_FEASIBLE_GAIN
    assert move.result.detail == "the model led to no lower point"
    assert move.lower is None


def test_points_as_high_as_the_start_are_no_descent() -> None:
    """x² is lost beside 1e17."""
    f = FunctionObjective(lambda x: 1e17 + (x * x).sum(), torch.ones(2).double())
    assert move_from(f.at(torch.tensor([1.0, 0.5]).double()), f, Krylov()).lower is None


def test_first_step_is_no_longer_than_twice_the_move() -> None:
    """On a plateau the gradient may be orthogonal to the climb, so that 1/λ would lead far away."""
    x = torch.tensor([3.0, 0.0], dtype=torch.float64)
    objective = FunctionObjective(lambda x: -torch.exp(-x.square().sum()), like=x)
    problem, end = TeleportProblem(objective, objective.at(x)), objective.at(0.9 * x)
    upward = torch.tensor([1e-6, 1.0], dtype=torch.float64)
    outcome = _outcome_at(problem, Monitor(problem), end, upward, 1.0, 2.0)
    assert outcome.certificate is not None
    assert end.gradient_norm / outcome.certificate.curvature == pytest.approx(6.0)
