"""Every upper bound for the largest Armijo step holds along runs with exact teleports."""

from __future__ import annotations

import pytest
from bound_checks import violations
from theory_problems import Case, cases, schedules

from levelport_lab.theory import rates, rates_stable
from levelport_lab.theory.rates_approximate import approximate_armijo_rayleigh

K = 10


@pytest.mark.parametrize("schedule_name", list(schedules(K)))
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_bounds_hold_along_armijo_runs(case: Case, schedule_name: str) -> None:
    schedule = schedules(K)[schedule_name]
    constants = case.constants
    assert constants.caveats() == []  # all constants are on the safe side
    L, mu, R, stability = constants.L.value, constants.mu.value, constants.radius.value, constants.stability
    assert stability is not None
    run = case.run(K, schedule)
    gap, gain = constants.initial_gap, rates.armijo_gain(L)

    curves = {
        "strongly convex": rates.strongly_convex(gap, [1 / L] * K, L, mu),
        "convex": rates.convex(K, gain, R),
        "convex with the initial gap": rates.convex(K, gain, R, gap),
        "measured": rates_stable.armijo_measured(run.gaps, schedule, L, R, stability),
        "explicit": rates_stable.armijo_explicit(K, schedule, L, R, stability),
        "sharp": rates_stable.armijo_sharp(K, schedule, L, R, stability),
        "sharp with the initial gap": rates_stable.armijo_sharp(K, schedule, L, R, stability, gap),
    }
    if schedule_name == "never":
        curves["gradient descent"] = rates.gradient_descent(K, gain, constants.distance)
        curves["gradient descent, Armijo"] = rates.gradient_descent_armijo(K, L, constants.distance)
    if schedule_name == "alternating":
        for k in range(2, K + 1, 2):
            bound = rates_stable.armijo_alternating(k, L, R, stability)
            assert violations([bound], [run.gaps[k]], case.rounding) == []
    for name, curve in curves.items():
        assert violations(curve, run.gaps, case.rounding) == [], name
    # Ours never exceeds what it sharpens.
    for published in ("convex", "explicit"):
        assert all(ours <= theirs * (1 + 1e-9) for ours, theirs in zip(curves["sharp"], curves[published], strict=True))


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_one_step_lemmas_hold_at_every_iteration(case: Case) -> None:
    constants, stability = case.constants, case.constants.stability
    assert stability is not None
    run = case.run(K, frozenset(range(1, K, 2)))
    for row, following in zip(run.rows, run.gaps[1:], strict=True):
        if row.gap < 1e3 * case.rounding:
            break  # only noise is left
        # Iterates and teleports stay in the initial sub-level set, and the largest step is at least 1/L.
        assert row.distance <= constants.radius.value * (1 + 1e-9)
        assert row.distance_after_teleport <= constants.radius.value * (1 + 1e-9)
        assert row.step >= (1 - 1e-9) / constants.L.value
        assert row.gap <= constants.radius.value * row.gradient_norm
        if row.teleported:
            assert row.curvature <= constants.L.value * (1 + 1e-9)
            assert row.step >= (1 - 1e-6) / (row.curvature * stability.upper)
            bound = rates_stable.teleport_factor_armijo(stability) * row.gap
            # The brute-force teleport is good to about eight digits: its error enters squared.
            residual = row.curvature * row.gradient_norm * max(0.0, 1 / row.alignment**2 - 1) ** 0.5
            error = residual**2 / max(constants.mu.value, 1e-12)
            inexact = approximate_armijo_rayleigh(row.gap, row.curvature, stability, error=error)
            assert following <= max(bound, inexact) + case.rounding
            assert inexact <= bound + 1e-3 * row.gap + case.rounding
