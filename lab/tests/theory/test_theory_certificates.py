"""Certificates of single steps, Newton steps in place of teleports, lemmas along runs, and the local SQP condition."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from bound_checks import violations
from hypothesis import given
from hypothesis import strategies as st
from theory_problems import Case, cases, logistic_case, quadratic_case, schedules

from levelport import FunctionObjective, LinearObjective, teleport
from levelport.objective import Point
from levelport.solvers import Auto
from levelport_lab.problems.functions import rosenbrock
from levelport_lab.problems.quadratics import Quadratic
from levelport_lab.theory import certify, check_lemmas, constants_of, descend, local_sqp_condition
from levelport_lab.theory.certificates import step_factor
from levelport_lab.theory.rates_stable import newton_steps
from levelport_lab.theory.steps import explicit_form, measured_form, recursion

K = 8


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_certificates_bound_the_measured_factors(case: Case) -> None:
    run = case.run(K, frozenset(range(0, K, 2)))
    found = [one for one in certify(case.objective, run, case.constants) if run.gaps[one.k] > 1e5 * run.rounding]
    assert found
    for one in found:
        slack = 2 * run.rounding / run.gaps[one.k] + 1e-7  # brute-force teleports are exact to about eight digits
        assert one.measured <= one.pair + slack
        assert one.measured <= one.proved + slack
        assert one.alignment == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("factor", [0.4, 1.0, 1.7])
def test_certificates_hold_for_fixed_steps_too(factor: float) -> None:
    case = logistic_case("", 60, 1e-2, 1)
    step = factor / case.constants.L.value
    run = case.run(K, frozenset(range(1, K, 2)), steps=(step, step))
    found = certify(case.objective, run, case.constants)
    assert found
    for one in found:
        assert one.measured <= min(one.pair, one.proved) + 1e-7


@pytest.mark.parametrize("factor", [3.0, 4.0, 6.0])
def test_steps_that_are_too_long_have_no_certificate(factor: float) -> None:
    """Beyond rt = 2 the step may raise f, and nothing bounds by how much: what is said must be true all the same."""
    case = logistic_case("", 60, 1e-2, 1)
    step = factor / case.constants.L.value
    run = case.run(K, frozenset(range(1, K, 2)), steps=(step, step))
    found = certify(case.objective, run, case.constants)
    assert any(one.measured > 1.0 for one in found)
    for one in found:
        assert all(one.measured <= bound + 1e-7 for bound in (one.pair, one.proved) if not math.isnan(bound))
        assert math.isnan(one.pair) or one.measured <= 1.0 + 1e-7


def test_an_unknown_newton_direction_certifies_nothing() -> None:
    """At condition 1e15 rounding decides gᵀH⁻¹g; a guess at it is no certificate."""
    case = quadratic_case("", torch.logspace(-15, 0, 20, dtype=torch.float64).tolist(), 0)
    run = descend(
        case.objective,
        case.start,
        1,
        minimum=0.0,
        minimizer=case.constants.minimum.x,
        schedule={0},
        oracle=lambda point: replace_gradient(case, point.x),
    )
    (found,) = certify(case.objective, run, case.constants)
    assert math.isnan(found.alignment)
    assert math.isnan(found.pair)
    assert not found.proved < 1.0 - 1e-9


def replace_gradient(case: Case, x: torch.Tensor) -> Point:
    """A point as flat as it is steep: every eigenvector has the same share of gᵀH⁻¹g."""
    objective = case.objective
    assert isinstance(objective, Quadratic)
    parts = torch.logspace(-15, 0, 20, dtype=torch.float64).rsqrt()
    return objective.at(objective.minimizer + 1e-3 * objective.eigenvectors @ parts, curvature=True)


def test_rounding_does_not_decide_the_armijo_test() -> None:
    """The largest Armijo step meets its test with equality; in single precision a repeated test may miss it."""
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        X = 2.0 * torch.randn(40, 3, generator=generator)
        y = torch.where(torch.rand(40, generator=generator) < 0.5, 1.0, -1.0)
        objective = LinearObjective.logistic(X, y, penalty=0.05)
        start = torch.randn(3, generator=generator)
        constants = constants_of(objective, start)
        run = descend(
            objective,
            start,
            1,
            minimum=constants.minimum.value,
            minimizer=constants.minimum.x,
            schedule={0},
            oracle=lambda point: point,
        )
        (found,) = certify(objective, run, constants)
        trivial = 1.0 - constants.mu.value / constants.L.value
        assert found.proved <= trivial + 1e-6  # what Armijo's largest step has at least


def test_the_pairs_explain_a_run_within_a_factor_of_two() -> None:
    """Near the minimum δ_{k+1}/δ_k is about half of what the pairs allow, while both fall by orders of magnitude."""
    case = logistic_case("", 60, 1e-2, 1)
    run = case.run(K, frozenset(range(1, K, 2)))
    found = [one for one in certify(case.objective, run, case.constants) if one.measured > 0.0]
    assert len(found) >= 2
    assert all(0.3 < one.measured / one.pair <= 1.0 + 1e-6 for one in found)
    assert found[-1].measured < 1e-2 * found[0].measured


@given(r=st.floats(1.0, 9.0), m=st.floats(0.05, 1.0), a=st.floats(0.0, 1.0), share=st.floats(0.01, 1.0))
def test_both_forms_of_the_factor_agree_at_the_armijo_step(r: float, m: float, a: float, share: float) -> None:
    armijo, plain = (step_factor(r, m, a, 1 / r, armijo=way) for way in (True, False))
    assert armijo == pytest.approx(plain, abs=1e-12)
    # A step that passed Armijo's test and is shorter guarantees less.
    assert step_factor(r, m, a, share / r, armijo=True) >= armijo - 1e-12


@pytest.mark.parametrize("schedule_name", list(schedules(K)))
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_rates_hold_with_intermittent_newton_steps(case: Case, schedule_name: str) -> None:
    schedule, constants = schedules(K)[schedule_name], case.constants
    stability = constants.stability
    assert stability is not None
    run = descend(
        case.objective,
        case.start,
        K,
        minimum=constants.minimum.value,
        minimizer=constants.minimum.x,
        schedule=schedule,
        newton=True,
    )
    steps = newton_steps(K, schedule, constants.L.value, constants.radius.value, stability, constants.mu.value)
    for curve in (recursion(steps, constants.initial_gap), explicit_form(steps), measured_form(steps, run.gaps)):
        assert violations(curve, run.gaps, case.rounding) == []
    if schedule_name == "always":
        factor = 1 - stability.lower / stability.upper
        assert violations([constants.initial_gap * factor**k for k in range(K + 1)], run.gaps, case.rounding) == []
    for row in run.rows:
        if row.newton and row.gap > 1e5 * run.rounding:
            assert row.step >= (1 - 1e-6) / stability.upper  # the largest Armijo step along the Newton direction


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_lemmas_hold_along_runs(case: Case) -> None:
    run = case.run(K, frozenset({0, 3, 4}))
    checks = check_lemmas(run, case.constants)
    # The brute-force boundary is found to about eight digits, which a tiny gap magnifies.
    assert [str(one) for one in checks if not one.holds and not one.name.startswith("relaxation")] == []
    assert next(one for one in checks if one.name.startswith("relaxation")).worst < 1e-4
    assert len(checks) == 6


def test_broken_lemmas_are_reported() -> None:
    case = logistic_case("", 60, 1e-2, 1)
    run = case.run(4, frozenset({1}))
    rising = replace(run, final_gap=2 * run.gaps[0])
    assert "BROKEN" in str(check_lemmas(rising, case.constants)[0])
    inside = replace(run, rows=(run.rows[0], replace(run.rows[1], drop=0.1 * run.gaps[1]), *run.rows[2:]))
    assert not next(one for one in check_lemmas(inside, case.constants) if "relaxation" in one.name).holds
    far = replace(run, rows=(replace(run.rows[0], distance=1e3), *run.rows[1:]))
    assert not next(one for one in check_lemmas(far, case.constants) if "units of R" in one.name).holds


def lagrangian_hessian(objective: FunctionObjective, x: torch.Tensor, multiplier: float) -> torch.Tensor:
    """∇²(-½ log ‖∇f‖² + νf) by automatic differentiation alone."""

    def lagrangian(w: torch.Tensor) -> torch.Tensor:
        value = objective.fun(w)
        (gradient,) = torch.autograd.grad(value, w, create_graph=True)
        return -0.5 * torch.log(gradient.square().sum()) + multiplier * value

    hessian = torch.autograd.functional.hessian(lagrangian, x.clone())
    assert isinstance(hessian, torch.Tensor)
    return hessian


def smooth(w: torch.Tensor) -> torch.Tensor:
    """Convex, with third derivatives that matter."""
    rows = torch.tensor([[1.0, 2.0, 0.0], [-1.0, 0.5, 1.0], [0.3, -1.0, -2.0], [0.0, 1.0, 1.5]], dtype=w.dtype)
    return torch.nn.functional.softplus(rows @ w).sum() + 0.2 * (w**2 @ torch.tensor([1.0, 2.0, 0.5], dtype=w.dtype))


@pytest.mark.parametrize(
    ("fun", "start"), [(smooth, [2.0, -1.0, 1.0]), (rosenbrock, [-0.5, 0.8])], ids=["convex", "rosenbrock"]
)
def test_local_condition_against_automatic_differentiation(fun, start: list[float]) -> None:
    x = torch.tensor(start, dtype=torch.float64)
    objective = FunctionObjective(fun, like=x)
    landed = teleport(objective, x, Auto(tol=1e-9, max_hvps=300)).x
    point = objective.at(landed, curvature=True)
    found = local_sqp_condition(objective, landed)
    matrix = lagrangian_hessian(objective, landed, found.multiplier / point.gradient_norm**2)
    basis = torch.linalg.svd(point.normal[None, :]).Vh[1:]
    inside = torch.linalg.eigvalsh(basis @ matrix @ basis.T)
    assert found.exact
    assert found.largest == pytest.approx(float(torch.linalg.eigvalsh(matrix)[-1]), rel=1e-5)
    assert found.tangent_smallest == pytest.approx(float(inside[0]), rel=1e-4, abs=1e-6)
    assert found.tangent_largest == pytest.approx(float(inside[-1]), rel=1e-4)


@pytest.mark.parametrize("share", [0.2, 0.7, 0.95])
def test_predicted_rate_is_that_of_the_published_update(share: float) -> None:
    """The update with a fixed ρ below the tangent limit converges at the predicted rate; above it, it does not."""
    x = torch.tensor([2.0, -1.0, 1.0], dtype=torch.float64)
    objective = FunctionObjective(smooth, like=x)
    landed = teleport(objective, x, Auto(tol=1e-10, max_hvps=500)).x
    level = objective.at(landed).value
    found = local_sqp_condition(objective, landed)
    assert found.critical
    assert found.published_limit < found.tangent_limit

    def errors(rho: float, iterations: int) -> list[float]:
        w, seen = landed + 1e-3 * torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64), []
        for _ in range(iterations):
            point = objective.at(w, curvature=True)
            g, q, square = point.gradient, point.hvp(point.gradient), point.gradient_norm**2
            v = max(0.0, rho * float(g @ q) / square + point.value - level) * g
            w = w + (rho * q - v) / square
            seen.append(float(torch.linalg.vector_norm(w - landed)))
        return seen

    rho = share * found.tangent_limit
    measured = errors(rho, 40)
    usable = [k for k in range(5, 39) if measured[k + 1] > 1e-7]
    slope = (measured[usable[-1] + 1] / measured[usable[0]]) ** (1 / (usable[-1] + 1 - usable[0]))
    assert slope == pytest.approx(found.rate(rho), rel=0.1)
    assert errors(1.3 * found.tangent_limit, 200)[-1] > 1e-3


def test_local_condition_of_a_quadratic_in_closed_form() -> None:
    """θ_i = λ_i(λ_max - λ_i)/‖g‖² on the tangent space, 2λ_max²/‖g‖² along the normal."""
    case = quadratic_case("", [0.5, 1.0, 4.0], 3)
    landed = case.oracle(case.objective.at(case.start, curvature=True))
    found, square = local_sqp_condition(case.objective, landed.x), landed.gradient_norm**2
    assert found.tangent_smallest * square == pytest.approx(0.5 * 3.5, rel=1e-5)
    assert found.tangent_largest * square == pytest.approx(3.0, rel=1e-5)
    assert found.largest * square == pytest.approx(32.0, rel=1e-5)
    assert found.published_limit == pytest.approx(square / 32.0, rel=1e-5)


def test_lanczos_and_the_written_out_condition_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    from levelport_lab.theory import local_sqp

    case = quadratic_case("", [0.5, 0.8, 1.0, 2.0, 4.0], 3)
    landed = case.oracle(case.objective.at(case.start, curvature=True)).x
    dense = local_sqp_condition(case.objective, landed)
    monkeypatch.setattr(local_sqp, "_DENSE", 0)
    iterative = local_sqp_condition(case.objective, landed)
    assert not iterative.exact
    assert iterative.largest == pytest.approx(dense.largest, rel=1e-6)
    assert iterative.tangent_largest == pytest.approx(dense.tangent_largest, rel=1e-6)


def test_flat_level_sets_are_not_critical() -> None:
    sphere = quadratic_case("", [2.0, 2.0, 2.0], 0)
    found = local_sqp_condition(sphere.objective, sphere.start)
    assert not found.critical
    assert "predicts no linear convergence" in found.sentence()
    assert math.isfinite(found.published_limit)


def test_what_is_not_known_gives_no_bound() -> None:
    """max(0, nan) is 0 in Python, the strongest bound of all."""
    for unknown in ((math.nan, 0.8, 0.9), (1.2, math.nan, 0.9), (1.2, 0.8, math.nan)):
        upper, lower, alignment = unknown
        assert math.isnan(step_factor(upper, lower, alignment, 0.9, armijo=False))
    assert math.isnan(step_factor(1.2, 0.8, math.nan, 0.9, armijo=True))
    assert math.isnan(step_factor(1.2, math.nan, 0.9, 0.9, armijo=True))
    assert step_factor(math.nan, 0.8, 0.9, 0.9, armijo=True) == pytest.approx(1.0 - 0.9 * 0.8 * 0.9)


def test_what_the_argument_does_not_reach_gives_no_bound() -> None:
    """s ≥ 2mδ⁺ is no lower bound for m ≤ 0, and of no use where the step's decrease is negative."""
    assert step_factor(1.25, 0.8, 0.9, 1.6, armijo=False) == pytest.approx(1.0)
    assert math.isnan(step_factor(1.25, 0.8, 0.9, 1.7, armijo=False))
    for lower in (0.0, -0.3):
        for armijo in (False, True):
            assert math.isnan(step_factor(1.25, lower, 0.9, 0.9, armijo=armijo))


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e5])
def test_local_condition_is_free_of_units(unit: float) -> None:
    """x measured in other units: ∇²ℒ is divided by the square of the unit, and nothing else changes."""
    x = torch.tensor([2.0, -1.0, 1.0], dtype=torch.float64)
    landed = teleport(FunctionObjective(smooth, like=x), x, Auto(tol=1e-9, max_hvps=300)).x
    found = local_sqp_condition(FunctionObjective(smooth, like=x), landed)
    scaled = local_sqp_condition(FunctionObjective(lambda w: smooth(w / unit), like=x), unit * landed)
    assert scaled.largest * unit**2 == pytest.approx(found.largest, rel=1e-5)
    assert scaled.tangent_largest * unit**2 == pytest.approx(found.tangent_largest, rel=1e-5)
    assert scaled.tangent_smallest * unit**2 == pytest.approx(found.tangent_smallest, rel=1e-4)


def test_in_one_dimension_nothing_is_tangential() -> None:
    x = torch.tensor([1.5], dtype=torch.float64)
    found = local_sqp_condition(FunctionObjective(lambda w: (w**4 + 0.5 * w**2).sum(), like=x), x)
    assert math.isnan(found.tangent_smallest)
    assert math.isnan(found.tangent_largest)
    assert found.critical
    assert math.isinf(found.tangent_limit)
    assert found.rate(0.1) == 0.0
    assert "isolated points" in found.sentence()
    assert "along the level set ρ <" not in found.sentence()


def test_a_level_that_holds_nothing_back_is_said_to_do_so() -> None:
    """-½‖w‖²: the gradient grows downhill, and the multiplier is negative."""
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    found = local_sqp_condition(FunctionObjective(lambda w: -0.5 * w.square().sum(), like=x), x)
    assert not found.critical
    assert "multiplier is not positive" in found.sentence()


def test_a_run_needs_an_iteration() -> None:
    case = cases()[1]
    with pytest.raises(ValueError, match="iterations must be at least 1, not 0"):
        case.run(0)


def test_local_condition_dense_equals_lanczos(monkeypatch: pytest.MonkeyPatch) -> None:
    """The normal itself is no tangent: its eigenvalue 0 is not the smallest one of the tangent space."""
    spectrum = torch.linspace(1, 10, 110, dtype=torch.float64)
    objective = FunctionObjective(lambda x: 0.5 * (spectrum * x * x).sum(), spectrum)
    end = torch.zeros(110, dtype=torch.float64)
    end[-1] = 2.0
    by_lanczos = local_sqp_condition(objective, end)
    monkeypatch.setattr("levelport_lab.theory.local_sqp._DENSE", 110)
    written_out = local_sqp_condition(objective, end)
    assert not by_lanczos.exact
    assert written_out.exact
    assert by_lanczos.critical
    assert by_lanczos.tangent_smallest == pytest.approx(written_out.tangent_smallest, rel=1e-3)
