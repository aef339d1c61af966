"""Checks that no ordinary run needs, because what they guard against is rare: each is made to matter here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from levelport import At, Auto, FunctionObjective, Krylov, Solver, Teleporter, TeleportStatus, minimize, teleport
from levelport.objectives import distributed
from levelport.objectives.isolation import RandomState, isolated, recover, restoring
from levelport.objectives.structure import Structure
from levelport.optim import FixedStep
from levelport.optim.first_step import StabilityLimit, Taken, check_unused, take_first_step
from levelport.optim.probes import Probes
from levelport.optim.schedules import History, Trial
from levelport.solvers import Certificate, Monitor, Move, Outcome, TeleportProblem, move_from, solver_named
from levelport.solvers.problem import Frame, merit, retract

SCALES = torch.tensor([1.0, 2.0, 8.0], dtype=torch.float64)


def bowl(x: Tensor) -> Tensor:
    return 0.5 * torch.dot(SCALES, x * x)


@dataclass(frozen=True)
class GoesTo(Solver):
    """Returns one point, whatever its value and gradient."""

    place: tuple[float, ...] = ()

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        place = torch.tensor(self.place, dtype=torch.float64)
        return Outcome(problem.objective.at(place, curvature=True), TeleportStatus.PREDICTED)


@pytest.mark.parametrize(
    "place",
    [(0.0, 0.0, 9.0), (1.0, 0.0, 0.0), (math.nan, 0.0, 0.5), (0.0, 0.0, 0.6)],
    ids=["higher value", "smaller gradient", "not finite", "beyond the radius"],
)
def test_answers_that_break_the_guarantee_are_dropped(place: tuple[float, ...]) -> None:
    start = torch.tensor([0.0, 1.5, 0.0], dtype=torch.float64)
    radius = 1.0 if place[2] == 0.6 else None
    result = teleport(bowl, start, GoesTo(place=place, radius=radius))
    assert result.status is TeleportStatus.NO_FEASIBLE_GAIN
    assert torch.equal(result.x, start)
    assert result.value == float(bowl(start))
    assert TeleportStatus.PREDICTED.value in result.detail


@dataclass(frozen=True)
class Remembers(GoesTo):
    """The same, with something to remember."""

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        return replace(super().solve(problem, monitor), state={"seen": 1.0})


def test_what_a_solver_has_learned_survives_a_dropped_answer() -> None:
    objective = FunctionObjective(bowl, SCALES)
    start = objective.at(torch.tensor([0.0, 1.5, 0.0], dtype=torch.float64), curvature=True)
    move = move_from(start, objective, Remembers(place=(0.0, 0.0, 9.0)))
    assert move.lower is None
    assert not move.result.moved
    assert move.state == {"seen": 1.0}


@pytest.mark.parametrize(
    ("f", "status"),
    [
        (torch.log, TeleportStatus.NON_FINITE_START),
        (torch.square, TeleportStatus.STATIONARY_START),
        (lambda x: x + x.abs() ** 1.5, TeleportStatus.NON_FINITE_START),
    ],
    ids=["no value", "no gradient", "no product"],
)
def test_what_a_run_has_learned_survives_a_bad_start(f: Callable[[Tensor], Tensor], status: TeleportStatus) -> None:
    objective = line(f)
    start = objective.at(torch.zeros(1, dtype=torch.float64), curvature=True)
    move = move_from(start, objective, Krylov(hvp="exact"), {"radius": 2.0})
    assert move.result.status is status
    assert move.state == {"radius": 2.0}


def test_target_is_met_where_the_gradient_is_just_long_enough() -> None:
    objective = FunctionObjective(bowl, SCALES)
    start, longer = (objective.at(torch.tensor(x, dtype=torch.float64)) for x in ([0.0, 1.0, 0.0], [0.0, 0.0, 0.5]))
    assert TeleportProblem(objective, start, target_gain=2.0).meets_target(longer, Certificate())
    assert not TeleportProblem(objective, start, target_gain=2.0001).meets_target(longer, Certificate())


@pytest.mark.bits
def test_gradients_of_equal_length_are_no_smaller() -> None:
    """The mirror image of the start has its value and its norm to the last bit: that keeps the guarantee."""
    start = torch.tensor([0.0, 1.5, 0.0], dtype=torch.float64)
    result = teleport(bowl, start, GoesTo(place=(0.0, -1.5, 0.0)))
    assert result.moved
    assert torch.equal(result.x, -start)
    assert result.gradient_norm == result.gradient_norm_start


@pytest.mark.parametrize("solver", ["auto", "sqp"])
def test_fifty_products_unless_told(solver: str) -> None:
    """Neither comes to an end here in fifty: 400 variables with curvatures from 1 to 1e-6, and a quartic."""
    scales = torch.logspace(0, -6, 400, dtype=torch.float64)
    objective = FunctionObjective(lambda x: 0.5 * torch.dot(scales, x * x) + 0.01 * (x**4).sum(), scales)
    before = objective.ledger.products
    teleport(objective, torch.linspace(-1.0, 2.0, 400, dtype=torch.float64), replace(solver_named(solver), tol=1e-15))
    assert 45 <= objective.ledger.products - before <= 50


def test_seconds_are_those_that_passed() -> None:
    began = time.perf_counter()
    result = teleport(bowl, torch.tensor([1.0, 0.5, 0.2], dtype=torch.float64))
    assert 0.0 < result.cost.seconds <= time.perf_counter() - began


@pytest.mark.parametrize(("short", "converged"), [(0.5, True), (3.0, False), (50.0, False)])
def test_points_below_the_level_are_not_kkt_points(short: float, converged: bool) -> None:
    """On the axis, where g is an eigenvector, below the level by ``short`` · tol of the Newton decrease."""
    start, tol = torch.tensor([0.0, 1.5, 0.0], dtype=torch.float64), 1e-6
    height = math.sqrt(2.0 * float(bowl(start)) / (1.0 + short * tol) / 8.0)
    result = teleport(bowl, start, GoesTo(place=(0.0, 0.0, height), tol=tol))
    assert result.alignment == 1.0
    assert result.status is (TeleportStatus.CONVERGED if converged else TeleportStatus.PREDICTED)


@pytest.mark.parametrize("hvp", ["exact", "difference"])
@pytest.mark.parametrize("max_hvps", range(1, 8))
def test_krylov_keeps_a_product_for_the_certificate(max_hvps: int, hvp: str) -> None:
    """With equal parts of g along eigenvalues from 1 to 1e-4 a model in twelve variables wants all twelve products."""
    scales = torch.logspace(0, -4, 12, dtype=torch.float64)
    objective = FunctionObjective(lambda x: 0.5 * torch.dot(scales, x * x), scales)
    before = objective.ledger.products
    teleport(objective, 1.0 / scales, Krylov(max_hvps=max_hvps, hvp=hvp))  # type: ignore[arg-type]
    assert objective.ledger.products - before <= max_hvps


@pytest.mark.parametrize("fails", [False, True])
def test_generators_are_put_back_after_a_look(fails: bool) -> None:
    """The dropout masks of training are those of a run without the safeguard."""
    cpu, replayed = torch.device("cpu"), RandomState.capture(torch.device("cpu"))
    torch.manual_seed(3)
    expected = [nn.functional.dropout(torch.ones(50)) for _ in range(2)]
    torch.manual_seed(3)
    seen = [nn.functional.dropout(torch.ones(50))]
    try:
        with isolated(cpu, replay=replayed):
            nn.functional.dropout(torch.ones(7))
            if fails:
                raise ArithmeticError
    except ArithmeticError:
        pass
    seen.append(nn.functional.dropout(torch.ones(50)))
    assert all(torch.equal(one, other) for one, other in zip(seen, expected, strict=True))


def test_generator_of_the_very_accelerator_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of the accelerator that is current."""
    asked: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "get_rng_state", asked.append)
    RandomState.capture(torch.device("cuda", 1))
    assert asked == [torch.device("cuda", 1)]


def line(f: Callable[[Tensor], Tensor]) -> FunctionObjective:
    return FunctionObjective(lambda x: f(x[0]), torch.zeros(1, dtype=torch.float64))


def test_shortened_moves_do_not_raise_the_loss_they_were_made_on() -> None:
    """f falls from 0 to 1 over a hill; on the other samples the first half of the way is harmless."""
    seen, unused = line(lambda x: -x + 8.0 * x * (1.0 - x)), line(lambda x: -x * (1.0 - x) + 10.0 * torch.relu(x - 0.9))
    start, end = (seen.at(torch.tensor([x], dtype=torch.float64)) for x in (0.0, 1.0))
    assert unused.at(end.x).value > unused.at(start.x).value
    found = check_unused(seen, unused, start, Taken(cast(Move, None), end))
    assert found.point is start
    assert found.share == 0.0


def test_ranks_agree_on_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks with 1 and 4: the sum would double every loss that schedules look at."""
    monkeypatch.setattr(distributed, "ranks", lambda: 2)
    monkeypatch.setattr(distributed.dist, "all_reduce", lambda total: total.add_(4.0))
    assert distributed.agreed(1.0, torch.device("cpu")) == 2.5
    assert math.isnan(distributed.agreed(math.nan, torch.device("cpu")))


def test_first_step_does_not_lead_to_infinity() -> None:
    """exp(-‖u‖²) has a limit there, and in float32 the step 1/λ is beyond the range."""
    weight = nn.Parameter(torch.tensor([-1e6, 1e6, -1.02e6]))
    optimizer = torch.optim.Adam([weight], lr=0.01)
    teleporter = Teleporter(optimizer, At(0), solver=Auto(max_hvps=5), first_step="included")
    teleporter.maybe(lambda: 1e-30 * (-(weight / 1e6 + 0.5).square().sum()).exp())
    assert bool(weight.isfinite().all())


def test_nothing_is_known_of_points_without_a_gradient() -> None:
    objective = FunctionObjective(bowl, SCALES)
    start, bottom = (objective.at(torch.tensor([x, 0.0, 0.0], dtype=torch.float64), curvature=True) for x in (1.0, 0.0))
    problem = TeleportProblem(objective, start)
    Certificate.at(start)
    frame = Frame.of(start, start.normal, torch.zeros_like(SCALES), on_level=True)
    assert merit(frame, bottom, problem) == -math.inf
    assert merit(frame, start, problem) == 0.0
    assert retract(problem, bottom) is bottom


def test_first_step_from_where_the_gradient_vanishes_is_none() -> None:
    objective = FunctionObjective(bowl, SCALES)
    start, bottom = (objective.at(torch.tensor([x, 0.0, 0.0], dtype=torch.float64)) for x in (1.0, 0.0))
    move = move_from(start, objective, Krylov())
    made = replace(move, point=bottom, lower=None, result=replace(move.result, moved=True))
    taken = take_first_step(objective, start, made, StabilityLimit())
    assert taken.point is bottom
    assert taken.size == 0.0
    assert (
        take_first_step(
            objective, start, replace(made, result=replace(move.result, moved=False)), StabilityLimit()
        ).point
        is start
    )


def test_target_is_told_without_a_certificate() -> None:
    """Optimizers do without the product that :func:`teleport` spends at the end."""
    objective = FunctionObjective(bowl, SCALES)
    start = objective.at(torch.tensor([3.0, 0.5, 0.1], dtype=torch.float64))
    for wanted, status in ((1.5, TeleportStatus.TARGET_REACHED), (1e9, TeleportStatus.PREDICTED)):
        move = move_from(start, objective, Krylov(target_gain=wanted), certify=False)
        assert move.result.gain > 1.5
        assert move.result.status is status
        assert math.isnan(move.result.alignment)


def test_a_probe_is_followed_by_a_step_before_the_next() -> None:
    history = History()
    history.observe(0, 1.0, 1e6)
    assert Probes().due(0, history)
    history.trials.append(Trial(0, 20.0))
    assert not Probes().due(0, history)


@pytest.mark.parametrize("tol", ["tol", "gtol"])
def test_two_names_of_one_tolerance(tol: str) -> None:
    start = torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64)
    ends = [minimize(bowl, start, FixedStep(0.01), **{tol: size}) for size in (0.5, 0.1)]  # type: ignore[arg-type]
    for end, size in zip(ends, (0.5, 0.1), strict=True):
        before = end.trace[-2].gradient_norm / end.trace[0].gradient_norm
        assert end.gradient_norm / end.trace[0].gradient_norm <= size < before
    with pytest.raises(ValueError, match="two names of one tolerance"):
        minimize(bowl, start, tol=0.1, gtol=0.1)


def test_generators_of_an_accelerator_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[object] = []
    device, state = torch.device("cuda", 1), torch.zeros(3)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda *given: put.append(given))
    RandomState(torch.get_rng_state(), state, device).restore()
    assert put == [(state, device)]


def test_an_error_while_putting_back_is_told_once() -> None:
    """What failed is not tried again by the next call."""
    tried: list[int] = []

    def fails() -> None:
        tried.append(1)
        raise ArithmeticError

    with pytest.raises(ArithmeticError), restoring(fails):
        pass
    recover()
    assert tried == [1]


def test_metrics_go_where_x_is() -> None:
    structure = Structure(torch.ones(2))
    structure.device = torch.device("meta")  # stands for an accelerator
    assert structure.flatten_like("metric", torch.ones(2)).device.type == "meta"
