"""Teleports recycled from past gradients: the guarantee, the economy, and what they do for descent."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from levelport.objective import Objective, Point
from levelport.objectives import FunctionObjective, LinearObjective, ModuleObjective
from levelport.optim._minimize import minimize
from levelport.optim.armijo import Armijo
from levelport.optim.result import MinimizeStatus
from levelport.optim.schedules import Never
from levelport.problems.functions import FUNCTIONS
from levelport.problems.quadratics import Quadratic
from levelport.solvers import Recycled, Status, TeleportResult
from levelport.solvers.recycled import IsEnough, default_memory


class Watched:
    """Recycled teleports that are written down."""

    def __init__(self, inner: Recycled) -> None:
        self.inner = inner
        self.seen: list[tuple[Point, TeleportResult, Point]] = []

    def begin(self, enough: IsEnough) -> Watched:
        self.run = self.inner.begin(enough)
        return self

    def __call__(self, objective: Objective, start: Point) -> tuple[TeleportResult, Point]:
        result, end = self.run(objective, start)
        self.seen.append((start, result, end))
        return result, end


def logistic(samples: int, dimension: int, seed: int, penalty: float) -> LinearObjective:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(samples, dimension, generator=generator, dtype=torch.float64)
    X *= torch.logspace(0, -2, dimension, dtype=torch.float64)
    y = torch.sign(X @ torch.randn(dimension, generator=generator, dtype=torch.float64) + 1e-3)
    return LinearObjective.logistic(X, y, penalty=penalty)


def network(seed: int) -> ModuleObjective:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 1)).double()
    inputs = torch.randn(40, 4, dtype=torch.float64)
    targets = torch.sign(inputs[:, 0] * inputs[:, 1])
    return ModuleObjective(
        module, lambda z, y: nn.functional.softplus(-y * z.squeeze(1)).mean(), inputs, targets, penalty=1e-3
    )


def cases() -> list[tuple[str, Objective, Tensor]]:
    found: list[tuple[str, Objective, Tensor]] = []
    for name, function in FUNCTIONS.items():
        start = torch.tensor(function.start, dtype=torch.float64)
        found.append((name, FunctionObjective(function, like=start), start))
    found.append(("logistic", logistic(200, 30, 0, 1e-6), torch.zeros(30, dtype=torch.float64)))
    relu = network(0)
    found.append(("relu network", relu, relu.initial_point()))
    spectrum = torch.logspace(0, 5, 40, dtype=torch.float64)
    found.append(("quadratic", Quadratic.random(spectrum, 1), torch.ones(40, dtype=torch.float64)))
    return found


@pytest.mark.parametrize(
    ("name", "objective", "start"), cases(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_teleport_of_a_run_keeps_the_guarantee(name: str, objective: Objective, start: Tensor) -> None:
    watched = Watched(Recycled())
    minimize(objective, start, jump=watched, max_iterations=60)
    assert watched.seen
    for before, result, after in watched.seen:
        fresh = objective.at(after.x.clone())
        assert fresh.value <= before.value
        assert result.value == fresh.value
        if result.status is Status.DESCENDED:
            assert fresh.value < before.value
        else:
            assert fresh.gradient_norm >= before.gradient_norm * (1 - 1e-12)
        if result.status not in (Status.UNCERTIFIED, Status.DESCENDED):
            assert result.status in (Status.ALIGNED, Status.NO_FEASIBLE_GAIN, Status.STATIONARY_START)
            assert after is before


def test_climbs_on_smooth_problems() -> None:
    """Almost every descent on a smooth problem ends in a climb; it would be a quasi-Newton method otherwise."""
    watched = Watched(Recycled())
    minimize(logistic(200, 30, 0, 1e-6), torch.zeros(30, dtype=torch.float64), jump=watched, max_iterations=20)
    moved = [result for _, result, _ in watched.seen if result.status in (Status.UNCERTIFIED, Status.DESCENDED)]
    climbed = [result for result in moved if result.status is Status.UNCERTIFIED]
    assert len(climbed) >= 5
    assert len(climbed) >= 0.8 * len(moved)
    assert all(result.gain >= 1.0 for result in climbed)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    dimension=st.integers(1, 30),
    condition=st.floats(0, 6),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_solves_quadratics_of_any_scale(seed: int, dimension: int, condition: float, scale: float) -> None:
    spectrum = scale * torch.logspace(0, condition, dimension, dtype=torch.float64)
    objective = Quadratic.random(spectrum, seed)
    start = objective.minimiser + torch.randn(
        dimension, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    first = objective.at(start).value
    result = minimize(objective, start, gtol=1e-9, max_cost=4000.0)
    assert result.value - objective.minimum <= 1e-8 * first


def test_nothing_depends_on_the_units_of_f_or_x() -> None:
    base = logistic(200, 20, 3, 1e-5)

    def counts(f_scale: float, x_scale: float) -> tuple[int, float]:
        like = torch.zeros(20, dtype=torch.float64)
        y = base.loss.y  # type: ignore[attr-defined]
        fun = FunctionObjective(
            lambda w: (
                f_scale
                * (
                    nn.functional.softplus(-y * (base.X @ (w * x_scale))).mean()
                    + base.penalty * ((w * x_scale) ** 2).sum()
                )
            ),
            like=like,
        )
        # The first plain step tries 1, which no scale-free method would: give it the problem's own scale.
        rule = Armijo(c=0.1, initial=1.0 / (f_scale * x_scale**2), max_step=math.inf)
        result = minimize(fun, like, method=rule, gtol=1e-7, max_cost=2000.0)
        return result.iterations, result.cost.gradient_equivalents

    reference = counts(1.0, 1.0)
    for f_scale, x_scale in ((2.0**20, 1.0), (2.0**-20, 1.0), (1.0, 2.0**20), (1.0, 2.0**-20)):
        assert counts(f_scale, x_scale) == reference


def test_an_aligned_gradient_is_left_to_a_plain_step_only_once() -> None:
    """On Σ x⁴ from equal entries the gradient is always aligned."""
    quartic = FunctionObjective(lambda x: (x**4).sum(), like=torch.zeros(3, dtype=torch.float64))
    watched = Watched(Recycled())
    result = minimize(quartic, torch.ones(3, dtype=torch.float64), jump=watched, gtol=1e-9)
    statuses = [result.status for _, result, _ in watched.seen]
    assert Status.ALIGNED in statuses
    assert (Status.ALIGNED, Status.ALIGNED) not in itertools.pairwise(statuses)
    assert result.success


def test_spends_a_single_hvp() -> None:
    objective = logistic(300, 40, 5, 1e-6)
    minimize(objective, torch.zeros(40, dtype=torch.float64), gtol=0.0, max_iterations=40)
    assert objective.cost.hvps == 1


def test_a_descent_that_reaches_the_goal_is_not_undone_by_a_climb() -> None:
    objective = logistic(300, 40, 5, 1e-3)
    zero = torch.zeros(40, dtype=torch.float64)
    watched = Watched(Recycled(descents=50))
    result = minimize(objective, zero, jump=watched, gtol=1e-6)
    assert result.success
    assert result.gradient_norm <= 1e-6 * objective.at(zero).gradient_norm
    assert watched.seen[-1][1].status is Status.DESCENDED
    budget = minimize(logistic(300, 40, 5, 1e-3), zero, jump=Recycled(descents=50), gtol=0.0, max_cost=12.0)
    assert 12.0 <= budget.cost.gradient_equivalents <= 14.0


def test_the_trace_of_a_run_that_ends_inside_a_teleport() -> None:
    zero = torch.zeros(40, dtype=torch.float64)
    result = minimize(logistic(300, 40, 5, 1e-3), zero, jump=Recycled(descents=50), gtol=1e-6)
    descent, last = result.trace[-2:]
    assert (descent.teleported, last.teleported) == (True, False)
    assert (descent.value, descent.cost) == (last.value, last.cost)
    assert math.isnan(last.step)
    assert last.iteration == result.iterations == descent.iteration + 1
    stopped = minimize(
        logistic(300, 40, 5, 1e-3),
        zero,
        jump=Recycled(descents=50),
        gtol=1e-6,
        callback=lambda row, point: row.cost == descent.cost,
    )
    assert stopped.status is MinimizeStatus.STOPPED


def test_beats_plain_descent_at_equal_cost() -> None:
    """At 300 gradient equivalents the gap to the minimum is a thousandth of what the line search alone leaves."""
    zero = torch.zeros(40, dtype=torch.float64)
    least = minimize(logistic(300, 40, 7, 1e-5), zero, gtol=1e-12, max_cost=5000.0).value
    ours = minimize(logistic(300, 40, 7, 1e-5), zero, gtol=0.0, max_cost=300.0).value
    plain = minimize(logistic(300, 40, 7, 1e-5), zero, Armijo(), Never(), gtol=0.0, max_cost=300.0).value
    assert ours - least < 1e-3 * (plain - least)


def test_memory_is_bounded_for_large_models() -> None:
    assert default_memory(1_000) == 60
    assert default_memory(300_000) == 27
    assert default_memory(2_000_000) == 10


@pytest.mark.parametrize(("setting", "value"), [("memory", 0), ("descents", 0)])
def test_bad_settings_are_named(setting: str, value: int) -> None:
    with pytest.raises(ValueError, match=setting):
        Recycled(**{setting: value})
