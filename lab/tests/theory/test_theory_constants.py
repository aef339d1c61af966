"""Constants lie on the side of the truth that they say, checked by sampling, brute force and other libraries."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_problems import Case, cases

from levelport import FunctionObjective, LinearObjective
from levelport.numerics.newton import hessian_by_columns as hessian_matrix
from levelport.objectives.linear import PointwiseLoss
from levelport_lab.problems.functions import booth, rosenbrock
from levelport_lab.problems.quadratics import Quadratic
from levelport_lab.problems.spectrum import extremes, extremes_by_lanczos
from levelport_lab.theory import (
    Constant,
    Kind,
    Minimum,
    Stability,
    audit,
    constants_of,
    diagnose,
    find_minimum,
)
from levelport_lab.theory.bounds import _refuse_negative_curvature
from levelport_lab.theory.margins import margin_bounds
from levelport_lab.theory.stability import (
    curvature_ratio,
    sampled_stability,
    self_concordant_stability,
    stability_ratio,
)
from levelport_lab.theory.sublevel import boundary, largest_distance

LOGISTIC = [case for case in cases() if case.name.startswith("logistic")]


def spread_points(case: Case, count: int, seed: int) -> list[torch.Tensor]:
    """Points of the initial sub-level set: on rays from w*, half of them on its boundary."""
    generator = torch.Generator().manual_seed(seed)
    level = case.constants.minimum.value + case.constants.initial_gap
    points = []
    for index in range(count):
        u = torch.randn(case.objective.dimension, generator=generator, dtype=torch.float64)
        reach = boundary(case.objective, case.constants.minimum.x, u, level)
        points.append(case.constants.minimum.x + reach * u * (1.0 if index % 2 else 0.6))
    return points


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_constants_bound_what_they_claim_to_bound(case: Case) -> None:
    constants = case.constants
    points = spread_points(case, 24, 1)
    for point in points:
        eigenvalues = torch.linalg.eigvalsh(hessian_matrix(case.objective.at(point, curvature=True)))
        assert float(eigenvalues[-1]) <= constants.L.value * (1 + 1e-9)
        assert float(eigenvalues[0]) >= constants.mu.value * (1 - 1e-9)
        distance = float(torch.linalg.vector_norm(point - constants.minimum.x))
        assert distance <= constants.radius.value * (1 + 1e-9)
    assert constants.radius_reached.value <= constants.radius.value * (1 + 1e-9)
    for x, y in pairwise(points):
        ratio = stability_ratio(case.objective, x, y)
        if not math.isnan(ratio):
            assert constants.stability_lower.value * (1 - 1e-6) <= ratio
            assert ratio <= constants.stability_upper.value * (1 + 1e-6)


@pytest.mark.parametrize("case", LOGISTIC, ids=lambda case: case.name)
def test_radius_reached_is_the_true_radius_in_the_plane(case: Case) -> None:
    """Brute force over all directions; the proved radius is never below it; a tenth less would be caught near w*."""
    level = case.constants.minimum.value + case.constants.initial_gap
    reaches = []
    for angle in np.linspace(0, 2 * np.pi, 721):
        u = torch.tensor([np.cos(angle), np.sin(angle)], dtype=torch.float64)
        reaches.append(boundary(case.objective, case.constants.minimum.x, u, level))
    assert case.constants.radius_reached.value == pytest.approx(max(reaches), rel=1e-4)
    assert case.constants.radius.value >= max(reaches)
    if "near" in case.name:
        assert 0.9 * case.constants.radius.value < max(reaches)


@pytest.mark.parametrize("case", LOGISTIC, ids=lambda case: case.name)
def test_margins_stay_in_their_proved_ranges(case: Case) -> None:
    """Brute force over all directions of the plane, row by row."""
    objective = case.objective
    assert isinstance(objective, LinearObjective)
    minimum, gap = case.constants.minimum, case.constants.initial_gap
    reach = margin_bounds(objective, minimum, gap)
    ends = []
    for angle in np.linspace(0, 2 * np.pi, 1441):
        u = torch.tensor([np.cos(angle), np.sin(angle)], dtype=torch.float64)
        ends.append(boundary(objective, minimum.x, u, minimum.value + gap) * u)
    moved = torch.stack(ends) @ objective.X.T
    above, below = moved.max(dim=0).values, -moved.min(dim=0).values
    assert bool((above <= reach.above * (1 + 1e-9)).all())
    assert bool((below <= reach.below * (1 + 1e-9)).all())
    widest = float((above + below).max())
    # Exact widths, or a diameter so small that the cheap bounds are near: a factor of two removed would be caught.
    assert reach.diameter <= (1.01 if reach.exact_rows else 1.5) * widest
    ratio = curvature_ratio(objective, minimum, reach)
    low, high = reach.curvature_range(objective.X @ minimum.x)
    for way in ends[::60]:
        curvature = objective.loss.curvature(objective.X @ (minimum.x + way))
        assert bool((curvature >= low * (1 - 1e-9)).all())
        assert bool((curvature <= high * (1 + 1e-9)).all())
    assert 1.0 <= ratio <= case.constants.L.value / case.constants.mu.value * (1 + 1e-9)


@given(seed=st.integers(0, 10_000), log_penalty=st.floats(-3.0, 0.0), scale=st.floats(0.2, 4.0))
@settings(max_examples=25)
def test_support_widths_are_upper_bounds_for_random_data(seed: int, log_penalty: float, scale: float) -> None:
    """Points of the sub-level set in random directions never leave the proved ranges."""
    generator = torch.Generator().manual_seed(seed)
    X = scale * torch.randn(25, 3, generator=generator, dtype=torch.float64)
    y = torch.where(torch.rand(25, generator=generator) < 0.5, 1.0, -1.0).double()
    objective = LinearObjective.logistic(X, y, penalty=10.0**log_penalty)
    minimum = find_minimum(objective)
    start = minimum.x + torch.randn(3, generator=generator, dtype=torch.float64)
    level = objective.at(start).value
    reach = margin_bounds(objective, minimum, level - minimum.value)
    for _ in range(40):
        u = torch.randn(3, generator=generator, dtype=torch.float64)
        way = boundary(objective, minimum.x, u, level) * u
        moved = X @ way
        assert bool((moved <= reach.above * (1 + 1e-9)).all())
        assert bool((-moved <= reach.below * (1 + 1e-9)).all())
        assert float(torch.linalg.vector_norm(way)) <= reach.radius * (1 + 1e-9)


@pytest.mark.parametrize("case", LOGISTIC, ids=lambda case: case.name)
def test_stability_is_never_worse_than_the_condition_number(case: Case) -> None:
    constants = case.constants
    assert constants.stability_upper.value <= constants.L.value / constants.mu.value * (1 + 1e-12)
    assert constants.stability_lower.value >= constants.mu.value / constants.L.value * (1 - 1e-12)


def test_overflow_is_not_read_as_a_property_of_f() -> None:
    """Margins that move by thousands: e^D is beyond the range of floats, and f strongly convex all the same."""
    generator = torch.Generator().manual_seed(0)
    X = 300 * torch.randn(30, 2, generator=generator, dtype=torch.float64)
    y = torch.where(torch.rand(30, generator=generator) < 0.5, 1.0, -1.0).double()
    objective = LinearObjective.logistic(X, y, penalty=1e-2)
    constants = constants_of(objective, torch.tensor([4.0, -3.0], dtype=torch.float64))
    assert math.isinf(self_concordant_stability(margin_bounds(objective, constants.minimum, 50.0).diameter).upper)
    assert constants.stability_upper.value <= constants.L.value / constants.mu.value * (1 + 1e-12)
    assert constants.caveats() == []
    huge = FunctionObjective(lambda w: torch.exp(w.square().sum()), like=torch.ones(1, dtype=torch.float64))
    assert math.isnan(stability_ratio(huge, torch.tensor([1.0]).double(), torch.tensor([40.0]).double()))


def test_quadratics_are_recognised_and_called_an_observation() -> None:
    H = torch.tensor([[10.0, 8.0], [8.0, 10.0]], dtype=torch.float64)
    start = torch.tensor([7.5, -4.0], dtype=torch.float64)
    constants = constants_of(FunctionObjective(booth, like=start), start)
    eigenvalues = torch.linalg.eigvalsh(H)
    assert constants.L.value == pytest.approx(float(eigenvalues[1]))
    assert constants.mu.value == pytest.approx(float(eigenvalues[0]))
    assert constants.stability == Stability(1.0, 1.0)
    assert constants.L.kind is Kind.ESTIMATE
    assert len(constants.caveats()) == 1
    bent = constants_of(FunctionObjective(lambda w: booth(w) + 1e-3 * w[0] ** 4, like=start), start)
    assert bent.stability_upper.value > 1.0


@given(D=st.floats(1e-6, 30.0))
def test_self_concordant_constants_are_the_integrals(D: float) -> None:
    stability = self_concordant_stability(D)
    t, weights = np.polynomial.legendre.leggauss(60)
    t, weights = (t + 1) / 2, weights / 2
    assert stability.upper == pytest.approx(2 * float(weights @ ((1 - t) * np.exp(t * D))), rel=1e-7)
    assert stability.lower == pytest.approx(2 * float(weights @ ((1 - t) * np.exp(-t * D))), rel=1e-6)


@given(seed=st.integers(0, 10_000), spread=st.floats(0.01, 6.0))
@settings(max_examples=60)
def test_stability_holds_on_random_logistic_problems(seed: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(15, 3, generator=generator, dtype=torch.float64)
    y = torch.where(torch.rand(15, generator=generator) < 0.5, 1.0, -1.0).double()
    objective = LinearObjective.logistic(X, y, penalty=1e-3)
    a, b = (spread * torch.randn(3, generator=generator, dtype=torch.float64) for _ in range(2))
    stability = self_concordant_stability(float((X @ (a - b)).abs().max()))
    ratio = stability_ratio(objective, a, b)
    if not math.isnan(ratio):
        assert stability.lower * (1 - 1e-6) <= ratio <= stability.upper * (1 + 1e-6)


def test_one_sample_attains_the_self_concordant_bound_far_out() -> None:
    """φ‴ = -φ″ in the tail: with all margins large the lower constant is nearly attained, so no factor can go."""
    X = torch.tensor([[1.0]], dtype=torch.float64)
    objective = LinearObjective.logistic(X, torch.tensor([1.0], dtype=torch.float64))
    x, D = torch.tensor([8.0], dtype=torch.float64), 3.0
    stability = self_concordant_stability(D)
    assert stability_ratio(objective, x, x + D) == pytest.approx(stability.lower, rel=2e-3)
    assert stability_ratio(objective, x + D, x) == pytest.approx(stability.upper, rel=2e-3)


def test_smoothness_of_logistic_regression_is_attained_at_zero() -> None:
    case = LOGISTIC[0]
    at_zero = extremes(case.objective.at(torch.zeros(2, dtype=torch.float64), curvature=True))
    assert case.constants.L.kind is Kind.EXACT
    assert at_zero.largest == pytest.approx(case.constants.L.value, rel=1e-12)


def test_softmax_smoothness_is_an_upper_bound() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (40,), generator=generator)
    objective = LinearObjective.softmax(X, y, 3, penalty=0.05)
    start = torch.zeros(9, dtype=torch.float64)
    constants = constants_of(objective, start)
    assert constants.L.kind is Kind.UPPER
    assert extremes(objective.at(start, curvature=True)).largest <= constants.L.value
    assert constants.stability_upper.kind is Kind.UPPER  # L/μ
    assert constants.stability_upper.value == pytest.approx(constants.L.value / 0.1)
    assert constants.caveats() == []
    assert constants.radius.kind is Kind.UPPER


def test_sampled_constants_are_not_called_safe() -> None:
    def quartic(w: torch.Tensor) -> torch.Tensor:
        return (w**4).sum() + 0.5 * (w**2).sum()

    start = torch.tensor([1.0, -2.0], dtype=torch.float64)
    constants = constants_of(FunctionObjective(quartic, like=start), start)
    for constant in (constants.L, constants.radius, constants.stability_upper):
        assert constant.kind in (Kind.LOWER, Kind.ESTIMATE)
    for constant in (constants.mu, constants.stability_lower):
        assert constant.kind in (Kind.UPPER, Kind.ESTIMATE)
    assert [caveat.split(" are")[0] for caveat in constants.caveats()] == ["L, R, L̃", "μ, μ̃"]
    # 12w² + 1 on the sub-level set is largest at its tips, beyond the start: the sampled L is indeed too small.
    tip = boundary(
        FunctionObjective(quartic, like=start), torch.zeros(2).double(), torch.tensor([0.0, 1.0]).double(), 19.5
    )
    assert constants.L.value < 12 * tip**2 + 1


def test_non_convexity_is_noticed() -> None:
    start = torch.tensor([-1.2, 1.0], dtype=torch.float64)
    objective = FunctionObjective(rosenbrock, like=start)
    constants = constants_of(objective, torch.tensor([0.0, 1.0], dtype=torch.float64))
    assert not constants.convex
    assert any("not convex" in caveat for caveat in constants.caveats())


def test_minimum_agrees_with_scipy() -> None:
    for case in LOGISTIC:
        objective = case.objective

        def value_and_gradient(w, objective=objective):
            point = objective.at(torch.from_numpy(w.copy()))
            return point.value, point.gradient.numpy()

        found = scipy.optimize.minimize(
            value_and_gradient, np.zeros(2), jac=True, method="BFGS", options={"gtol": 1e-10}
        )
        assert case.constants.minimum.value <= found.fun + 1e-14
        assert case.constants.minimum.x.numpy() == pytest.approx(found.x, abs=1e-6)


def test_minimum_of_a_badly_conditioned_quadratic() -> None:
    objective = Quadratic.random(torch.logspace(-5, 2, 12, dtype=torch.float64), 0)
    found = find_minimum(objective, torch.zeros(12, dtype=torch.float64))
    assert found.convex
    assert found.value < 1e-16


def test_lanczos_lies_inside_the_spectrum_and_finds_its_ends() -> None:
    objective = Quadratic.random(torch.logspace(-2, 2, 60, dtype=torch.float64), 1)
    point = objective.at(torch.zeros(60, dtype=torch.float64))
    short, full = (extremes_by_lanczos(point.hvp, point.x, size) for size in (12, 60))
    assert 1e-2 * (1 - 1e-9) <= full.smallest <= short.smallest
    assert short.largest <= full.largest <= 100.0 * (1 + 1e-9)
    assert full.largest == pytest.approx(100.0, rel=1e-9)
    assert full.smallest == pytest.approx(1e-2, rel=1e-6)
    residual = point.hvp(full.lowest_vector) - full.smallest * full.lowest_vector
    assert float(torch.linalg.vector_norm(residual)) < 1e-6


def test_largest_distance_of_an_ellipsoid() -> None:
    objective = Quadratic.random(torch.tensor([0.1, 1.0, 7.0], dtype=torch.float64), 2)
    minimum = find_minimum(objective, torch.zeros(3, dtype=torch.float64))
    assert largest_distance(objective, minimum, 2.0) == pytest.approx(math.sqrt(2 * 2.0 / 0.1), rel=1e-6)


def test_ascent_over_directions_improves_a_poor_start() -> None:
    from levelport_lab.theory.sublevel import _ascend

    objective = Quadratic.random(torch.tensor([0.1, 1.0, 7.0], dtype=torch.float64), 2)
    poor = objective.eigenvectors[:, 2] + 0.1 * objective.eigenvectors[:, 0]
    poor = poor / torch.linalg.vector_norm(poor)
    assert _ascend(objective, objective.minimizer, poor, 2.0, 200) == pytest.approx(math.sqrt(40.0), rel=1e-6)


def test_unbounded_sublevel_sets_are_reported() -> None:
    flat = Quadratic(torch.tensor([0.0, 1.0]).double(), torch.eye(2).double(), torch.zeros(2).double())
    constants = constants_of(flat, torch.tensor([1.0, 1.0], dtype=torch.float64))
    assert math.isinf(constants.radius.value)
    ray = boundary(flat, torch.zeros(2).double(), torch.tensor([1.0, 0.0]).double(), 1.0)
    assert math.isinf(ray)


def test_sampling_refutes_stability_where_the_hessian_vanishes() -> None:
    from levelport_lab.problems.functions import second_order_huber

    start = torch.tensor([3.0, 2.0], dtype=torch.float64)
    objective = FunctionObjective(second_order_huber, like=start)
    minimum = find_minimum(objective, torch.tensor([0.5, 0.4], dtype=torch.float64))
    sampled = sampled_stability(objective, minimum, objective.at(start).value)
    assert math.isinf(sampled.upper)


def test_sampled_infinite_constant_is_a_refutation() -> None:
    """Where the Hessian vanished between samples there is no L̃; one that is only not known is no such thing."""
    from levelport_lab.problems.functions import second_order_huber

    start = torch.tensor([3.0, 2.0], dtype=torch.float64)
    objective = FunctionObjective(second_order_huber, like=start)
    minimum = find_minimum(objective, torch.tensor([0.5, 0.4], dtype=torch.float64))
    constants = constants_of(objective, start, minimum)
    assert constants.stability_upper.value == math.inf
    assert constants.stability_upper.kind is Kind.LOWER
    assert constants.stability is None
    assert "L̃" not in constants.doubtful()
    assert not any("L̃" in caveat for caveat in constants.caveats())
    unknown = replace(
        constants,
        stability_upper=Constant(math.inf, Kind.UPPER, "nothing is known"),
        stability_lower=Constant(0.1, Kind.LOWER, "proved"),
    )
    assert unknown.stability == Stability(math.inf, 0.1)


@pytest.mark.parametrize("seed", range(12))
def test_duplicated_column_is_flat_in_single_precision(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(30, 4, generator=generator)
    X[:, 3] = X[:, 0]
    objective = LinearObjective.squared(X, torch.randn(30, generator=generator))
    constants = constants_of(objective, torch.full((4,), 2.0))
    assert constants.mu.value == 0.0
    assert constants.mu.kind is Kind.LOWER  # flat or nearly so: rounding cannot tell
    assert math.isinf(constants.radius.value)
    assert constants.convex
    assert constants.caveats() == []


def test_a_saddle_is_not_called_convex() -> None:
    """From (1, 0) the descent never leaves the axis on which f is convex; the Hessian knows better."""
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    constants = constants_of(FunctionObjective(lambda w: w[0] ** 2 - w[1] ** 2, like=start), start)
    assert constants.mu.value == pytest.approx(-2.0)
    assert not constants.convex
    assert any("not convex" in caveat for caveat in constants.caveats())


def test_flat_directions_are_not_negative_in_float32() -> None:
    A = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    start = torch.ones(5)
    objective = FunctionObjective(lambda w: (A @ w).pow(4).sum() + 0.5 * (A @ w).square().sum(), like=start)
    assert constants_of(objective, start, Minimum(torch.zeros(5), 0.0, 0.0, convex=True)).convex
    _refuse_negative_curvature(objective, start)  # does not


def test_rounding_of_single_precision_is_no_stability() -> None:
    """f = 100 + ½‖w‖² between near points: what is left of the remainder is rounding, and no ratio."""
    x = torch.tensor([0.5, -0.3])
    objective = FunctionObjective(lambda w: 100.0 + 0.5 * w.square().sum(), like=x)
    for step in (0.02, 0.05, 0.1):
        assert math.isnan(stability_ratio(objective, x, x + step))
    assert stability_ratio(objective, x, x + 3.0) == pytest.approx(1.0, rel=1e-3)


class Wavy(PointwiseLoss):
    """ℓ = ½z² + a cos z: convex for a ≤ 1, and nothing the library knows."""

    def __init__(self, a: float) -> None:
        self.a = a

    def mean(self, z: torch.Tensor) -> torch.Tensor:
        return (0.5 * z.square() + self.a * torch.cos(z)).mean()

    def residual(self, z: torch.Tensor) -> torch.Tensor:
        return z - self.a * torch.sin(z)

    def curvature(self, z: torch.Tensor) -> torch.Tensor:
        return 1.0 - self.a * torch.cos(z)

    def apply(self, curvature: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        return curvature * direction


def test_a_loss_of_ones_own_is_sampled_and_not_called_convex() -> None:
    X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    start = torch.tensor([2.0, -1.0, 1.0], dtype=torch.float64)
    constants = constants_of(LinearObjective(X, Wavy(0.5), penalty=0.1), start)
    assert constants.L.kind is Kind.LOWER
    assert constants.mu.kind is Kind.UPPER  # 2·penalty would be a bound for convex losses only
    assert constants.convex
    bent = LinearObjective(X, Wavy(3.0), penalty=0.1)
    origin = torch.zeros(3, dtype=torch.float64)  # stationary, and a maximum
    assert not constants_of(bent, start, Minimum(origin, bent.at(origin).value - 9.0, 0.0, convex=True)).convex
    with pytest.raises(ValueError, match="negative curvature"):
        audit(bent, 1e-3 * start, 4)
    assert not diagnose(bent, 1e-3 * start).convex


def test_stability_refuses_impossible_constants() -> None:
    with pytest.raises(ValueError, match="L̃ ≥ 1 ≥ μ̃"):
        Stability(0.9, 0.5)
    with pytest.raises(ValueError, match="L̃ ≥ 1 ≥ μ̃"):
        Stability(2.0, 1.5)
