"""Broken bounds are caught: each rate holds on the evidence, and with a factor removed it does not.

The evidence is made of the sequences that fall no faster than the one-step lemmas force them to (any schedule), and
of runs on quadratics, where several bounds are attained. The published formulas that are wrong are among the mutants.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from bound_checks import hardest_sequence, violations
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_problems import quadratic_case

from levelport_lab.problems.quadratics import Quadratic
from levelport_lab.theory import descend, rates, rates_stable
from levelport_lab.theory.rates_stable import Stability, armijo_steps, fixed_steps
from levelport_lab.theory.steps import Steps, explicit_form, measured_form, recursion

L, R = 2.0, 3.0
GAP = 0.45 * L * R**2  # smoothness allows up to L R²/2
HORIZON = 40
SCHEDULES = [
    frozenset(),
    frozenset(range(1, HORIZON, 2)),
    frozenset(range(0, HORIZON, 2)),
    frozenset({1}),
    frozenset({30, 31, 32}),
    frozenset({0, 1, 2, 10, 11, 20}),
    frozenset(range(HORIZON)),
]
STABILITIES = [Stability(1.05, 0.95), Stability(2.0, 0.7), Stability(30.0, 0.2)]
Maker = Callable[[Steps, list[float]], list[float]]


def evidence() -> list[tuple[Steps, list[float]]]:
    found = []
    for schedule in SCHEDULES:
        for stability in STABILITIES:
            armijo = armijo_steps(HORIZON, schedule, L, R, stability)
            fixed = fixed_steps(HORIZON, dict.fromkeys(schedule, 0.8 * L), L, R, stability, 1 / (L * stability.upper))
            found += [(steps, hardest_sequence(steps, GAP)) for steps in (armijo, fixed)]
    return found


EVIDENCE = evidence()


def holds(maker: Maker) -> bool:
    return all(not violations(maker(steps, gaps), gaps) for steps, gaps in EVIDENCE)


def convex(steps: Steps, gaps: list[float]) -> list[float]:
    return rates.convex(HORIZON, min(steps.gains), steps.radius)


def measured(steps: Steps, gaps: list[float]) -> list[float]:
    return measured_form(steps, gaps)


def explicit(steps: Steps, gaps: list[float]) -> list[float]:
    return explicit_form(steps)


def sharp(steps: Steps, gaps: list[float]) -> list[float]:
    return recursion(steps, gaps[0])


def strongly_convex_recursion_without_its_condition(steps: Steps, gaps: list[float]) -> list[float]:
    """The trivial contraction used where f is not known to be strongly convex."""
    return recursion(replace(steps, mu=0.3 * L), gaps[0])


def halved(maker: Maker) -> Maker:
    return lambda steps, gaps: [0.5 * bound for bound in maker(steps, gaps)]


def smaller_radius(maker: Maker) -> Maker:
    return lambda steps, gaps: maker(replace(steps, radius=steps.radius / math.sqrt(2)), gaps)


def larger_growth(maker: Maker) -> Maker:
    def broken(steps: Steps, gaps: list[float]) -> list[float]:
        return maker(replace(steps, growths={k: beta**2 for k, beta in steps.growths.items()}), gaps)

    return broken


def counts_teleports_as_gradient_steps_too(steps: Steps, gaps: list[float]) -> list[float]:
    """M = K in place of M = K - |𝒯|, the growth of the blocks on top."""
    bounds = measured_form(steps, gaps)
    extra = [sum(steps.gain(k) for k in range(1, K) if k in steps.growths) for K in range(HORIZON + 1)]
    return [math.inf] + [1 / (1 / bounds[K] + extra[K]) for K in range(1, HORIZON + 1)]


def growth_without_minus_one(steps: Steps, gaps: list[float]) -> list[float]:
    """Σ Πβ/δ_{k-1} in place of Σ (Πβ - 1)/δ_{k-1}."""
    bounds = measured_form(steps, gaps)
    extra = [sum(1 / gaps[k - 1] for k, _ in steps.blocks(K)) for K in range(HORIZON + 1)]
    return [math.inf] + [1 / (1 / bounds[K] + extra[K]) for K in range(1, HORIZON + 1)]


def grows_from_the_start(steps: Steps, gaps: list[float]) -> list[float]:
    """All steps, not only those before the teleports, multiplied by all growth."""
    total = [math.prod(steps.growths[k] for k in steps.growths if k < K) for K in range(HORIZON + 1)]
    return [bound / total[K] for K, bound in enumerate(convex(steps, gaps))]


@pytest.mark.parametrize("maker", [convex, measured, explicit, sharp])
def test_rates_hold_on_the_hardest_sequences(maker: Maker) -> None:
    assert holds(maker)


@pytest.mark.parametrize(
    "mutant",
    [
        *(halved(maker) for maker in (convex, measured, explicit, sharp)),
        *(smaller_radius(maker) for maker in (convex, measured, explicit, sharp)),
        *(larger_growth(maker) for maker in (measured, explicit, sharp)),
        counts_teleports_as_gradient_steps_too,
        growth_without_minus_one,
        grows_from_the_start,
        strongly_convex_recursion_without_its_condition,
    ],
)
def test_broken_rates_are_caught(mutant: Maker) -> None:
    assert not holds(mutant)


@given(
    schedule=st.frozensets(st.integers(0, HORIZON - 1)),
    upper=st.floats(1.0, 50.0),
    lower=st.floats(0.01, 1.0),
    fraction=st.floats(0.01, 1.0),
    curvatures=st.lists(st.floats(0.01, 1.0), min_size=HORIZON, max_size=HORIZON),
    step=st.floats(0.05, 1.99),
)
@settings(max_examples=150)
def test_rates_hold_for_every_schedule(
    schedule: frozenset[int], upper: float, lower: float, fraction: float, curvatures: list[float], step: float
) -> None:
    stability = Stability(upper, lower)
    lambdas = {k: curvatures[k] * L for k in schedule}
    for steps in (
        armijo_steps(HORIZON, schedule, L, R, stability),
        fixed_steps(HORIZON, lambdas, L, R, stability, step / (L * upper)),
        fixed_steps(HORIZON, lambdas, L, R, stability, 1 / L, step / (L * upper)),
    ):
        gaps = hardest_sequence(steps, fraction * GAP)
        for maker in (measured, explicit, sharp):
            assert violations(maker(steps, gaps), gaps) == []
        for ours, theirs in zip(recursion(steps), explicit_form(steps), strict=True):
            assert ours <= theirs * (1 + 1e-9)


@given(upper=st.floats(1.0, 100.0), lower=st.floats(0.01, 1.0), half=st.integers(1, 60))
def test_alternating_closed_form_is_the_explicit_rate(upper: float, lower: float, half: int) -> None:
    stability = Stability(upper, lower)
    closed = rates_stable.armijo_alternating(2 * half, L, R, stability)
    summed = rates_stable.armijo_explicit(2 * half, frozenset(range(1, 2 * half, 2)), L, R, stability)[-1]
    assert closed == pytest.approx(summed, rel=1e-6, abs=1e-290)


def published_alternating(iterations: int, stability: Stability) -> float:
    """2R²L (L̃ - μ̃)/μ̃ / (ρ^{K/2} - 1), as printed."""
    return 2 * R**2 * L / stability.surplus / math.expm1(iterations / 2 * stability.log_growth)


def test_published_alternating_constant_near_quadratics() -> None:
    """An abstract sequence, no function: it obeys the one-step lemmas and exceeds the published bound."""
    stability, iterations = Stability(1.05, 0.95), 4
    steps = armijo_steps(iterations, frozenset({1, 3}), L, R, stability)
    gaps = hardest_sequence(steps, GAP)
    assert gaps[-1] > published_alternating(iterations, stability)
    assert gaps[-1] <= rates_stable.armijo_alternating(iterations, L, R, stability)


@given(ratio=st.floats(1.193, 50.0), half=st.integers(1, 60), fraction=st.floats(0.01, 1.0))
def test_published_alternating_constant_elsewhere(ratio: float, half: int, fraction: float) -> None:
    """With δ_0 ≤ LR²/2 for all L̃/μ̃ ≥ 1.193: u = μ̃/(L̃ - μ̃) then satisfies u² ≤ 5u + 1."""
    stability = Stability(max(1.0, ratio**0.5), min(1.0, ratio**-0.5))
    steps = armijo_steps(2 * half, frozenset(range(1, 2 * half, 2)), L, R, stability)
    gaps = hardest_sequence(steps, fraction * L * R**2 / 2)
    assert gaps[-1] <= published_alternating(2 * half, stability) * (1 + 1e-9)
    bound = recursion(steps, L * R**2 / 2)[-1]
    assert bound <= published_alternating(2 * half, stability) * (1 + 1e-9)


def test_published_corollary_starts_too_early() -> None:
    """As printed, without the factor two of its proof."""
    stability = Stability(10.0, 0.5)
    K = next(K for K in range(2, 1000, 2) if math.log(K / stability.surplus + 1) / stability.log_growth < K)
    assert published_alternating(K, stability) > 2 * R**2 * L / K


@given(upper=st.floats(1.0, 1000.0), lower=st.floats(0.01, 1.0))
def test_break_even_is_the_first_iteration_of_the_lead(upper: float, lower: float) -> None:
    stability = Stability(upper, lower)
    first = rates_stable.alternating_break_even(stability)
    assert first % 2 == 0

    def faster(K: int) -> bool:
        return rates_stable.armijo_alternating(K, L, R, stability) < 2 * R**2 * L / K * (1 - 1e-12)

    assert all(faster(K) for K in range(int(first) + 2, int(first) + 40, 2))
    if first > 4:
        assert not faster(int(first) - 2)


def test_break_even_beyond_the_range_of_floats_is_infinite() -> None:
    assert math.isinf(rates_stable.alternating_break_even(Stability(1e306, 1e-3)))
    assert rates_stable.alternating_break_even(Stability(1e200, 1.0)) == pytest.approx(2.5e200, rel=0.02)


def test_published_break_even_lacks_a_factor_two() -> None:
    """The condition of the corollary, its constant mended, but without the 2: met at a K where GD's bound is better."""
    stability = Stability(10.0, 0.5)
    K = 2
    while math.log1p(K * stability.surplus) / stability.log_growth >= K:
        K += 2
    assert rates_stable.armijo_alternating(K, L, R, stability) > 2 * R**2 * L / K
    assert rates_stable.alternating_break_even(stability) > K


def test_published_sign_of_psi_makes_teleports_harmful() -> None:
    """With ψ = 1 - Πβ the denominator loses what it should gain, and turns negative: no bound at all."""
    stability = Stability(1.2, 0.9)
    schedule = frozenset(range(1, HORIZON, 2))
    steps = fixed_steps(HORIZON, dict.fromkeys(schedule, L), L, R, stability, 1 / (L * stability.upper))
    gaps = hardest_sequence(steps, GAP)
    plain = sum(steps.gain(k) for k in range(HORIZON) if k not in schedule)
    teleported = sum((1 - steps.growths[k]) / gaps[k - 1] for k in schedule)
    assert plain + teleported < 0.0
    assert all(beta > 1.0 for beta in steps.growths.values())


def test_payoff_gap_separates_the_two_guarantees() -> None:
    for stability in STABILITIES:
        threshold = rates_stable.payoff_gap(L, R, stability)
        for gap in (0.5 * threshold, 0.99 * threshold, 1.01 * threshold, 2 * threshold):
            assert (stability.growth / gap > 1 / gap + 1 / (2 * R**2 * L)) == (gap < threshold)


def test_strongly_convex_mutants_are_caught_on_quadratics() -> None:
    case = quadratic_case("sphere", [2.0, 2.0], 0)
    steps = [0.3] * 6
    run = case.run(6, frozenset({1, 4}), steps=(0.3, 0.3))
    gap = case.constants.initial_gap
    assert violations(rates.strongly_convex(gap, steps, 2.0, 2.0), run.gaps, 1e-16) == []
    without_correction = [gap * (1 - 2 * 2.0 * 0.3) ** k for k in range(7)]
    assert violations(without_correction, run.gaps, 1e-16) != []
    assert violations([0.9 * b for b in rates.strongly_convex(gap, steps, 2.0, 2.0)], run.gaps, 1e-16) != []

    wide = quadratic_case("condition 20", [0.5, 2.0, 10.0], 1)
    step = 2 / 10.5 * 1.02
    run = wide.run(6, frozenset(range(6)), steps=(step, step))
    bound = rates.strongly_convex_non_expansive(wide.constants.initial_gap, [step] * 6, 10.0, 0.5)
    assert violations(bound, run.gaps, 1e-16) == []
    smaller_contraction = [b * 0.9**k / 20 for k, b in enumerate(bound)]  # attained but for L/μ, so this must fail
    assert violations(smaller_contraction, run.gaps, 1e-16) != []


def test_published_gap_lemma_fails_without_its_square() -> None:
    """On a quadratic f - f* = ½‖∇f‖²_{H⁻¹} exactly; ½‖∇f‖_{H⁻¹} is less once the decrement exceeds 1."""
    case = quadratic_case("steep", [100.0, 400.0], 0)
    point = case.objective.at(case.start)
    hessian = case.objective.hessian  # type: ignore[attr-defined]
    decrement_squared = float(point.gradient @ torch.linalg.solve(hessian, point.gradient))
    assert decrement_squared / 2 == pytest.approx(case.constants.initial_gap)
    assert case.constants.initial_gap > 0.5 * math.sqrt(decrement_squared)


def test_published_armijo_decrease_fails_for_curvature_above_one() -> None:
    """f falls by at least ‖g‖²/(2L), attained along the top eigenvector, and not by L‖g‖²/2."""
    case = quadratic_case("steep", [5.0, 5.0], 0)
    run = case.run(1)
    decrease, squared = run.gaps[0] - run.gaps[1], run.rows[0].gradient_norm ** 2
    assert decrease == pytest.approx(rates.armijo_gain(5.0) / 2 * squared)
    assert decrease < 5.0 / 2 * squared


@given(schedule=st.frozensets(st.integers(1, HORIZON - 1)), upper=st.floats(1.01, 30.0), lower=st.floats(0.02, 1.0))
@settings(max_examples=50)
def test_recursion_proves_the_weights_of_the_main_text(schedule: frozenset[int], upper: float, lower: float) -> None:
    """2R²L/Σ_{k ∉ 𝒯, k < K} ρ^{n_k}, n_k the teleports after k: stronger than the appendix proves, and yet true."""
    stability = Stability(upper, lower)
    rho = stability.growth
    weights = [rho ** sum(i > k for i in schedule) for k in range(HORIZON) if k not in schedule]
    main_text = 2 * R**2 * L / sum(weights)
    assert rates_stable.armijo_sharp(HORIZON, schedule, L, R, stability)[-1] <= main_text * (1 + 1e-9)
    assert main_text <= rates_stable.armijo_explicit(HORIZON, schedule, L, R, stability)[-1] * (1 + 1e-9)


def test_bound_with_a_tenth_of_its_constant_is_caught() -> None:
    """One exact line search from (1/μ, 1/L) is the slowest there is; at condition 4 it leaves 0.106 LD²/2."""
    objective = Quadratic(torch.tensor([0.25, 1.0]).double(), torch.eye(2).double(), torch.zeros(2).double())
    start = torch.tensor([4.0, 1.0], dtype=torch.float64)
    run = descend(objective, start, 1, minimum=0.0, minimizer=objective.minimizer)
    bound = rates.gradient_descent_armijo(1, 1.0, float(torch.linalg.vector_norm(start)))[1]
    assert 0.1 * bound < run.gaps[1] <= bound


@given(
    gap=st.floats(0.1, 10.0),
    lam=st.floats(0.1, 5.0),
    t=st.floats(0.0, 2.0),
    upper=st.floats(1.0, 20.0),
    lower=st.floats(0.05, 1.0),
)
def test_one_step_factors_are_tight_under_stability(
    gap: float, lam: float, t: float, upper: float, lower: float
) -> None:
    """Both inequalities with equality: f falls by η‖g‖² - L̃η²λ‖g‖²/2, and ‖g‖² = λ‖g‖²_{H⁻¹} = 2λμ̃δ."""
    stability, squared = Stability(upper, lower), 2 * lam * lower * gap

    def fall(step: float) -> float:
        return step * squared - upper * step**2 * lam * squared / 2

    step = t / (lam * upper)
    assert rates_stable.teleport_factor(step, lam, stability) * gap == pytest.approx(gap - fall(step), abs=1e-9)
    # The largest Armijo step solves fall(η) = η‖g‖²/2, that is η = 1/(λL̃).
    armijo = 1 / (lam * upper)
    assert fall(armijo) == pytest.approx(armijo * squared / 2)
    assert rates_stable.teleport_factor_armijo(stability) * gap == pytest.approx(gap - fall(armijo), abs=1e-9)
