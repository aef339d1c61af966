"""The bounds hold for whole families: quadratics of any spectrum, logistic problems of any data, any schedule."""

from __future__ import annotations

from bound_checks import violations
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_problems import Case, logistic_case, quadratic_case

from levelport_lab.theory import rates, rates_stable
from levelport_lab.theory.steps import explicit_form, measured_form

K = 8
spectra = st.lists(st.floats(-3.0, 1.0).map(lambda exponent: 10.0**exponent), min_size=1, max_size=6)
anything = st.frozensets(st.integers(0, K - 1))


def assert_bounds_hold(case: Case, schedule: frozenset[int], factor: float) -> None:
    """One Armijo run and one with steps of factor/(L L̃), all bounds."""
    constants, stability = case.constants, case.constants.stability
    assert stability is not None
    L, mu, R, gap = constants.L.value, constants.mu.value, constants.radius.value, constants.initial_gap
    run = case.run(K, schedule)
    curves = [
        rates.strongly_convex(gap, [1 / L] * K, L, mu),
        rates.convex(K, rates.armijo_gain(L), R, gap),
        rates_stable.armijo_measured(run.gaps, schedule, L, R, stability),
        rates_stable.armijo_explicit(K, schedule, L, R, stability),
        rates_stable.armijo_sharp(K, schedule, L, R, stability, gap),
    ]
    assert [violations(curve, run.gaps, case.rounding) for curve in curves] == [[]] * len(curves)

    step = factor / (L * stability.upper)
    run = case.run(K, schedule, steps=(step, step))
    curvatures = {k: lam for k, lam in run.curvatures.items() if run.gaps[k] > 1e4 * case.rounding and lam > 0.0}
    steps = rates_stable.fixed_steps(K, curvatures, L, R, stability, step)
    curves = [
        rates.strongly_convex(gap, run.steps, L, mu),
        rates.strongly_convex_sharp(gap, run.steps, L, mu),
        rates.convex(K, rates.step_gain(step, L), R, gap),
        measured_form(steps, run.gaps),
        explicit_form(steps),
    ]
    assert [violations(curve, run.gaps, case.rounding) for curve in curves] == [[]] * len(curves)


@given(spectrum=spectra, seed=st.integers(0, 1000), schedule=anything, factor=st.floats(0.1, 1.99))
@settings(max_examples=40)
def test_quadratics(spectrum: list[float], seed: int, schedule: frozenset[int], factor: float) -> None:
    assert_bounds_hold(quadratic_case("", spectrum, seed), schedule, factor)


@given(
    spectrum=spectra,
    seed=st.integers(0, 1000),
    schedule=anything,
    factors=st.lists(st.floats(0.1, 3.0), min_size=K, max_size=K),
)
@settings(max_examples=40)
def test_quadratics_are_non_expansive(
    spectrum: list[float], seed: int, schedule: frozenset[int], factors: list[float]
) -> None:
    """Also beyond 2/L, where descent is lost: the contraction then exceeds 1 and the bound says so."""
    case = quadratic_case("", spectrum, seed)
    L, mu = case.constants.L.value, case.constants.mu.value
    for factor in factors[:2]:
        run = case.run(K, schedule, steps=(factor / L, factor / L))
        bounds = rates.strongly_convex_non_expansive(run.gaps[0], run.steps, L, mu)
        assert violations(bounds, run.gaps, case.rounding * max(1.0, max(run.gaps))) == []
        for row in run.rows:
            assert row.distance_after_teleport <= row.distance * (1 + 1e-9) + 1e-12


@given(
    n=st.integers(8, 40),
    log_penalty=st.floats(-3.0, -0.5),
    seed=st.integers(0, 1000),
    nearness=st.floats(0.02, 1.0),
    squeeze=st.floats(0.2, 1.0),
    schedule=anything,
    factor=st.floats(0.1, 1.99),
)
@settings(max_examples=12)
def test_logistic_problems(
    n: int, log_penalty: float, seed: int, nearness: float, squeeze: float, schedule: frozenset[int], factor: float
) -> None:
    assert_bounds_hold(logistic_case("", n, 10.0**log_penalty, seed, nearness, squeeze), schedule, factor)
