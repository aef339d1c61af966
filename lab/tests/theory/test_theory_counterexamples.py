"""The examples of the negative results attain what is claimed of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_problems import quadratic_case

from levelport import FunctionObjective, LinearObjective, ModuleObjective, teleport
from levelport.numerics.newton import Minimum
from levelport.solvers import Auto, Certificate
from levelport_lab.problems.functions import flat_huber, huber2, second_order_huber
from levelport_lab.theory import constants_of, rates
from levelport_lab.theory.counterexamples import FarTeleport, relu_objective
from levelport_lab.theory.trajectory import descend, fixed_step


def tensor(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def half_square(w: torch.Tensor) -> torch.Tensor:
    """All points of a level set are alike: δ_{k+1} = (1 - η)² δ_k with or without teleporting."""
    return 0.5 * w.square().sum()


def gradient_of(fun, w: torch.Tensor) -> torch.Tensor:
    return FunctionObjective(fun, like=w).at(w).gradient


@pytest.mark.parametrize("knee", [0.25, 1.0, 3.0])
def test_second_order_huber_is_convex_and_smooth(knee: float) -> None:
    grid = torch.linspace(-4 * knee, 4 * knee, 4001, dtype=torch.float64)
    values = huber2(grid, knee).numpy()
    spacing = float(grid[1] - grid[0])
    first = np.diff(values) / spacing
    second = np.diff(first) / spacing
    assert second.min() > -1e-6 / knee  # convex
    assert second.max() == pytest.approx(1.5 / knee, rel=1e-3)  # L
    assert np.abs(np.diff(second)).max() < 1e-2 / knee  # continuous: no jump at the knee
    assert values.min() == pytest.approx(3 * knee / 8)
    assert np.abs(first).max() == pytest.approx(1.0, rel=1e-6)


@given(
    extra=st.lists(st.floats(0.0, 2.0), min_size=1, max_size=4),
    signs=st.lists(st.sampled_from([-1.0, 1.0]), min_size=4, max_size=4),
    knee=st.sampled_from([0.5, 1.0]),
)
@settings(max_examples=40)
def test_teleported_gradient_is_no_newton_direction(extra: list[float], signs: list[float], knee: float) -> None:
    """Any point with all |wᵢ| ≥ knee maximizes the gradient norm on its sub-level set, with H = 0 and λ = 0."""
    w = torch.tensor([s * (knee + e) for s, e in zip(signs, extra, strict=False)], dtype=torch.float64)
    objective = FunctionObjective(lambda v: second_order_huber(v, knee), like=w)
    point = objective.at(w, curvature=True)
    assert point.gradient_norm == pytest.approx(math.sqrt(len(w)))
    assert not bool(point.hvp(point.gradient).any())
    assert Certificate.at(point).curvature == 0.0
    # No point of the space has a larger gradient, so none of the sub-level set has.
    others = 3 * torch.randn(200, len(w), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    norms = [objective.at(v).gradient_norm for v in others]
    assert max(norms) <= point.gradient_norm * (1 + 1e-12)
    # A solver started there has nothing to gain and says so without moving up.
    result = teleport(objective, w)
    assert result.gradient_norm == pytest.approx(point.gradient_norm)
    assert result.value <= point.value


def test_solver_climbs_to_the_region_without_newton_direction() -> None:
    """From (2.5, 0.2), on a level b with ⌊b⌋ = 2, the maximum √2 needs both entries beyond the knee, where H = 0."""
    result = teleport(second_order_huber, tensor(2.5, 0.2), Auto(max_hvps=200))
    assert result.gradient_norm > 1.3
    assert result.value <= float(second_order_huber(tensor(2.5, 0.2)))
    assert abs(result.curvature) < 0.25


@pytest.mark.parametrize("start", [0.7, 3.0])
def test_flat_huber_descends_alike_with_and_without_teleports(start: float) -> None:
    w = tensor(start, 5.0, -2.0)
    objective = FunctionObjective(flat_huber, like=w)
    generator = torch.Generator().manual_seed(1)

    def any_maximiser_on_the_level_set(point):
        x = torch.randn(3, generator=generator, dtype=torch.float64)
        x[0] = point.x[0] if float(x[0]) > 0 else -point.x[0]
        return objective.at(x, curvature=True)

    def run(schedule):
        return descend(
            objective,
            w,
            30,
            minimum=3 / 8,
            minimizer=tensor(0.0, 0.0, 0.0),
            schedule=schedule,
            oracle=any_maximiser_on_the_level_set,
            rules=fixed_step(0.4),
        )

    plain, teleported = run(frozenset()), run(frozenset(range(0, 30, 3)))
    assert plain.gaps == pytest.approx(teleported.gaps, rel=1e-12, abs=1e-15)
    # It is an example for the 1/K rate: the bound holds with R = |w₁|, L = 3/2.
    bounds = rates.convex(30, rates.step_gain(0.4, 1.5), start)
    assert all(gap <= bound for gap, bound in zip(teleported.gaps, bounds, strict=True))


@pytest.mark.bits
def test_flat_huber_has_other_maximisers() -> None:
    """The repair: over {f ≤ f(w)} a maximizer may lower f for nothing, which the text overlooks."""
    assert torch.equal(gradient_of(flat_huber, tensor(3.0, 0.0)), gradient_of(flat_huber, tensor(1.0, 7.0)))
    assert float(flat_huber(tensor(1.0, 7.0))) < float(flat_huber(tensor(3.0, 0.0)))


@given(
    steps=st.lists(st.floats(0.01, 1.9), min_size=1, max_size=6),
    schedule=st.frozensets(st.integers(0, 5)),
    seed=st.integers(0, 100),
)
@settings(max_examples=40)
def test_half_square_attains_the_minimax_rate(steps: list[float], schedule: frozenset[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(3, generator=generator, dtype=torch.float64)
    objective = FunctionObjective(half_square, like=w)
    sequence = iter(steps)

    def rotate(point):
        u = torch.randn(3, generator=generator, dtype=torch.float64)
        return objective.at(u * torch.linalg.vector_norm(point.x) / torch.linalg.vector_norm(u), curvature=True)

    def rule(objective, point):
        return next(sequence)

    run = descend(
        objective,
        w,
        len(steps),
        minimum=0.0,
        minimizer=torch.zeros_like(w),
        schedule=schedule,
        oracle=rotate,
        rules=(rule, rule),
    )
    bounds = rates.strongly_convex_non_expansive(run.gaps[0], steps, 1.0, 1.0)
    # Equality, so teleports cannot help. A step of 1 ends at 0, or at the square of a last bit.
    assert run.gaps == pytest.approx(bounds, rel=1e-9, abs=1e-28 * run.gaps[0])
    weaker = rates.strongly_convex(run.gaps[0], steps, 1.0, 1.0)
    assert weaker == pytest.approx(bounds, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("condition", [1.0, 3.0, 50.0, 1e4])
def test_fixed_steps_attain_the_rate_at_every_condition(condition: float) -> None:
    """Ours: teleports land on the top eigenvector, where a fixed step contracts by (1 - ηL)² and no more."""
    L, mu = 4.0, 4.0 / condition
    case = quadratic_case("", [mu, (L * mu) ** 0.5, L], 7)
    step = 1 / (L + mu) + 1 / L  # halfway between the best step and 2/L
    run = case.run(8, frozenset(range(8)), steps=(step, step))
    attained = [run.gaps[0] * (1 - step * L) ** (2 * k) for k in range(9)]
    assert run.gaps == pytest.approx(attained, rel=1e-6, abs=1e-20)
    bounds = rates.strongly_convex_non_expansive(run.gaps[0], [step] * 8, L, mu)
    assert [mu / L * bound for bound in bounds] == pytest.approx(attained, rel=1e-9)
    assert rates.strongly_convex_sharp(run.gaps[0], [step] * 8, L, mu) == pytest.approx(attained, rel=1e-9)


def farthest_and_steepest(f: FarTeleport, w: torch.Tensor) -> tuple[np.ndarray, float]:
    """Brute force on the sub-level set: the point of largest gradient, and R = max ‖·‖ about w* = 0."""

    def value(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        def huber(t, d):
            return np.where(np.abs(t) <= d, t**2 / 2, d * (np.abs(t) - d / 2))

        height = y if f.one_sided else np.abs(y)
        return huber(x, 1.0) + huber(y, f.epsilon) + np.maximum(height - f.alpha, 0.0) ** 2 / 2

    def slope(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        height = y if f.one_sided else np.abs(y)
        gy = np.clip(y, -f.epsilon, f.epsilon) + np.maximum(height - f.alpha, 0.0) * np.sign(y)
        return np.hypot(np.clip(x, -1.0, 1.0), gy)

    level = float(f(w))
    assert float(value(*w.numpy())) == pytest.approx(level)
    far = 4 * (f.alpha + level) + 2 * level / f.epsilon
    angle = np.concatenate([np.linspace(-np.pi, np.pi, 20001), np.pi / 2 + np.linspace(-1, 1, 20001) / f.alpha])
    low, high = np.zeros(len(angle)), np.full(len(angle), far)
    for _ in range(100):
        middle = (low + high) / 2
        inside = value(middle * np.cos(angle), middle * np.sin(angle)) <= level
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    x, y = low * np.cos(angle), low * np.sin(angle)
    best = int(slope(x, y).argmax())
    return np.array([x[best], y[best]]), float(low.max())


@pytest.mark.parametrize("alpha", [2.0, 10.0, 100.0])
@pytest.mark.parametrize("epsilon", [1e-1, 1e-2, 1e-4])
def test_teleport_goes_a_constant_fraction_of_the_radius_away(alpha: float, epsilon: float) -> None:
    f = FarTeleport(alpha, min(epsilon, 0.1 / alpha))
    w = f.start()
    landed, R = farthest_and_steepest(f, w)
    assert np.linalg.norm(landed) >= alpha
    reach = float(w[0]) + f.epsilon * float(w[1])
    bound = reach + alpha + math.sqrt(2 * reach)  # on R, of the two-sided function
    assert bound * (1 + 1e-9) >= R
    assert bound < 4 * alpha
    assert np.linalg.norm(landed) >= R / 4
    # The start was near: the distance to w* grew by a factor of nearly α.
    assert np.linalg.norm(landed) > 0.7 * alpha * float(torch.linalg.vector_norm(w))
    # The gradient there is 1 + (ε + y⁺ - α)², as corrected.
    gradient = gradient_of(f, torch.from_numpy(landed))
    corrected = min(abs(landed[0]), 1.0) ** 2 + (f.epsilon + abs(landed[1]) - alpha) ** 2
    assert float(gradient @ gradient) == pytest.approx(corrected, rel=1e-6)


def test_one_sided_function_fails_in_the_proofs_limit() -> None:
    """Downwards it grows with slope ε only: R/‖w⁺‖ diverges as ε → 0, so the proof's bound on R cannot hold."""
    ratios = []
    for epsilon in (1e-2, 1e-3, 1e-4):
        f = FarTeleport(5.0, epsilon, one_sided=True)
        w = f.start()
        landed, R = farthest_and_steepest(f, w)
        assert pytest.approx(float(w[1]) + (float(w[0]) - 0.5) / epsilon, rel=1e-2) == R
        ratios.append(np.linalg.norm(landed) / R)
    assert ratios[0] < 0.25
    assert ratios[2] < 0.02 * 0.25 * 10
    assert ratios[0] > 5 * ratios[1] > 25 * ratios[2]


@pytest.mark.parametrize(("alpha", "epsilon", "least"), [(100.0, 0.0049, 0.45), (5.0, 0.04, 0.25)])
def test_one_sided_function_works_for_a_suitable_slope(alpha: float, epsilon: float, least: float) -> None:
    f = FarTeleport(alpha, epsilon, one_sided=True)
    landed, R = farthest_and_steepest(f, f.start())
    assert landed[1] > alpha
    assert np.linalg.norm(landed) >= least * R


def test_far_teleport_is_one_smooth_and_convex() -> None:
    f = FarTeleport(3.0, 0.1)
    generator = torch.Generator().manual_seed(3)
    for _ in range(300):
        a, b = (5 * torch.randn(2, generator=generator, dtype=torch.float64) for _ in range(2))
        difference = gradient_of(f, a) - gradient_of(f, b)
        assert float(difference @ (a - b)) >= -1e-12  # monotone gradient
        assert float(torch.linalg.vector_norm(difference)) <= float(torch.linalg.vector_norm(a - b)) * (1 + 1e-12)


def rescaled(objective: ModuleObjective, x: torch.Tensor, scale: float) -> torch.Tensor:
    """W₁/scale and W₂·scale: the same function."""
    first = objective.structure.leaves(x)[0].numel()
    return torch.cat([x[:first] / scale, x[first:] * scale])


def test_relu_networks_have_unbounded_gradients_on_the_level_set() -> None:
    objective = relu_objective()
    x = objective.initial_point()
    point = objective.at(x)
    norms = []
    for scale in (1e1, 1e3, 1e5):
        moved = objective.at(rescaled(objective, x, scale))
        assert moved.value == pytest.approx(point.value, rel=1e-9)
        norms.append(moved.gradient_norm)
    assert norms[0] < norms[1] / 50 < norms[2] / 2500


def test_penalised_relu_network_is_coercive_again() -> None:
    objective = relu_objective(penalty=0.05)
    x = objective.initial_point()
    assert objective.at(rescaled(objective, x, 1e3)).value > objective.at(x).value


@given(seed=st.integers(0, 1000), t=st.floats(0.0, 5.0))
@settings(max_examples=40)
def test_gradient_norm_grows_along_convex_gradients(seed: int, t: float) -> None:
    """Why a maximizer lies on the level set: f and ‖∇f‖ both grow along +∇f."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    y = torch.where(torch.rand(20, generator=generator) < 0.5, 1.0, -1.0).double()
    objective = LinearObjective.logistic(X, y, penalty=1e-3)
    point = objective.at(torch.randn(3, generator=generator, dtype=torch.float64))
    further = objective.at(point.x + t * point.gradient)
    assert further.gradient_norm >= point.gradient_norm * (1 - 1e-12)
    assert further.value >= point.value - 1e-15


def test_start_at_a_minimizer_is_refused() -> None:
    objective = FunctionObjective(half_square, like=tensor(0.0, 0.0))
    minimum = Minimum(tensor(0.0, 0.0), 0.0, 0.0, convex=True)
    with pytest.raises(ValueError, match="already a minimizer"):
        constants_of(objective, tensor(0.0, 0.0), minimum)
