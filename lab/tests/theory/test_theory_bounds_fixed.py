"""Every upper bound for fixed steps holds along runs with exact teleports."""

from __future__ import annotations

import math

import pytest
from bound_checks import violations
from theory_problems import Case, cases, quadratic_case, schedules

from levelport_lab.theory import rates, rates_stable
from levelport_lab.theory.steps import explicit_form, measured_form

K = 10
CASES = [case for case in cases() if case.constants.stability_upper.value < 1e3]


def test_enough_problems() -> None:
    assert len(cases()) >= 10
    assert len(CASES) >= 10


@pytest.mark.parametrize("schedule_name", list(schedules(K)))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize(("gradient_factor", "teleport_factor"), [(1.0, 1.0), (1.9, 1.9), (None, 1.0)])
def test_bounds_hold_along_fixed_step_runs(
    case: Case, schedule_name: str, gradient_factor: float | None, teleport_factor: float
) -> None:
    """Steps are multiples of 1/(L L̃); None stands for 1/L at iterations without teleport."""
    schedule = schedules(K)[schedule_name]
    constants, stability = case.constants, case.constants.stability
    assert stability is not None
    L, mu, R, gap = constants.L.value, constants.mu.value, constants.radius.value, constants.initial_gap
    after = teleport_factor / (L * stability.upper)
    step = 1 / L if gradient_factor is None else gradient_factor / (L * stability.upper)
    run = case.run(K, schedule, steps=(step, after))
    # λ_k of teleports that still resolve the level set; at the bottom of double precision there is none.
    curvatures = {k: lam for k, lam in run.curvatures.items() if run.gaps[k] > 1e4 * case.rounding and lam > 0.0}
    steps = rates_stable.fixed_steps(K, curvatures, L, R, stability, step, after)

    curves = {
        "strongly convex": rates.strongly_convex(gap, run.steps, L, mu),
        "strongly convex, sharp": rates.strongly_convex_sharp(gap, run.steps, L, mu),
        "measured": measured_form(steps, run.gaps),
        "explicit": explicit_form(steps),
    }
    if step == after:
        curves["convex"] = rates.convex(K, rates.step_gain(step, L), R)
        if schedule_name == "never":
            curves["gradient descent"] = rates.gradient_descent(K, rates.step_gain(step, L), constants.distance)
    if step == after == 1 / (L * stability.upper):
        curves["simplified"] = rates_stable.fixed_simplified(run.gaps, curvatures, L, R, stability)
    for name, curve in curves.items():
        assert violations(curve, run.gaps, case.rounding) == [], name


@pytest.mark.parametrize("long_steps", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_closed_form_for_alternating_fixed_steps(case: Case, long_steps: bool) -> None:
    constants, stability = case.constants, case.constants.stability
    assert stability is not None
    L, R = constants.L.value, constants.radius.value
    needed = 2 * math.log(2) * stability.upper / stability.lower
    if needed > 60:
        pytest.skip("the bound starts too late for a short run")
    iterations = 2 * math.ceil(needed / 2) + 4
    after = 1 / (L * stability.upper)
    run = case.run(iterations, frozenset(range(1, iterations, 2)), steps=(1 / L if long_steps else after, after))
    curvatures = [run.rows[k].curvature if run.rows[k].teleported else 0.0 for k in range(1, iterations, 2)]
    usable = [lam if run.gaps[2 * i + 1] > 1e4 * case.rounding else 0.0 for i, lam in enumerate(curvatures)]
    bound = rates_stable.fixed_alternating(usable, L, R, stability) / (stability.upper if long_steps else 1.0)
    assert run.final_gap <= bound * (1 + 1e-9) + case.rounding
    with pytest.raises(ValueError, match="starts at K"):
        rates_stable.fixed_alternating([1.0], L, R, rates_stable.Stability(100.0, 0.5))


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
@pytest.mark.parametrize("factor", [0.1, 0.7, 1.0, 1.5, 1.95])
def test_long_fixed_steps(case: Case, factor: float) -> None:
    """Steps up to 2/L, where stability plays no part: the descent lemma at every step, and the other rates."""
    constants = case.constants
    L, mu, step = constants.L.value, constants.mu.value, factor / constants.L.value
    for schedule in (frozenset[int](), frozenset({0, 2, 3})):
        run = case.run(6, schedule, steps=(step, step))
        curves = [
            rates.strongly_convex(run.gaps[0], run.steps, L, mu),
            rates.strongly_convex_sharp(run.gaps[0], run.steps, L, mu),
            rates.convex(6, rates.step_gain(step, L), constants.radius.value),
        ]
        assert [violations(curve, run.gaps, case.rounding) for curve in curves] == [[], [], []]
        for k, row in enumerate(run.rows):  # a teleport may only lower the left side
            assert run.gaps[k + 1] <= rates.descent_lemma(row.gap, row.gradient_norm, step, L) + case.rounding


def test_descent_lemma_is_attained_along_the_top_eigenvector() -> None:
    case = quadratic_case("", [1.0, 3.0], 0)
    run = case.run(1, frozenset({0}), steps=(0.2, 0.2))
    bound = rates.descent_lemma(run.gaps[0], run.rows[0].gradient_norm, 0.2, 3.0)
    assert run.gaps[1] == pytest.approx(bound)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_fixed_step_after_a_teleport(case: Case) -> None:
    constants, stability = case.constants, case.constants.stability
    assert stability is not None
    for factor in (0.3, 1.0, 1.9):
        step = factor / (constants.L.value * stability.upper)
        run = case.run(2, frozenset({0, 1}), steps=(step, step))
        for k, row in enumerate(run.rows):
            if row.gap > 1e4 * case.rounding:
                bound = rates_stable.teleport_factor(step, row.curvature, stability) * row.gap
                # brute-force teleports are exact to about eight digits
                assert run.gaps[k + 1] <= bound + 1e-7 * row.gap + case.rounding
