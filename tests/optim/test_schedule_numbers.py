"""What schedules compute from a run, against numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from levelport import Batches, FunctionObjective, Krylov, Teleporter
from levelport.optim.affordable import WhileAffordable
from levelport.optim.first_step import StabilityLimit, _sizes
from levelport.optim.polyak import Polyak, PolyakSGD, polyak_step
from levelport.optim.probes import Probes
from levelport.optim.schedules import KEPT_TICKS, History, Schedule, Trial


def history(*ticks: tuple[float, float]) -> History:
    """Of a run with these values and costs."""
    run = History()
    for index, (value, cost) in enumerate(ticks):
        run.observe(index, value, cost)
    return run


def test_plain_rate_is_the_decrease_per_cost() -> None:
    run = history((10.0, 3.0), (8.0, 5.0), (5.0, 9.0))
    assert run.plain_rate() == pytest.approx(5.0 / 6.0)
    assert run.plain_rate(window=1) == pytest.approx(3.0 / 4.0)
    assert run.fastest_rate(1, 10) == pytest.approx(1.0)


def test_plain_rate_without_any_cost_is_not_known() -> None:
    assert math.isnan(history((2.0, 7.0), (1.0, 7.0)).plain_rate())


def test_plain_rate_begins_anew_after_a_teleport() -> None:
    run = history((10.0, 0.0), (9.0, 1.0))
    run.teleported(4.0)
    assert run.trials[-1].cost == 4.0  # until the step that follows it is known
    run.observe(2, 3.0, 6.0)
    assert run.steps[run.plain :] == [2]
    assert run.plain_rate() == 1.0  # the one known at the teleport
    assert (run.trials[-1].cost, run.trials[-1].decrease) == (5.0, 6.0)
    run.observe(3, 2.5, 7.0)
    assert run.plain_rate() == 0.5


def test_long_runs_keep_their_last_ticks() -> None:
    ticks = 2 * KEPT_TICKS + 1
    run = history(*((1.0 / (index + 1), float(index)) for index in range(ticks)))
    kept = range(ticks - KEPT_TICKS, ticks)
    assert run.steps == list(kept)
    assert run.values == [1.0 / (index + 1) for index in kept]
    assert run.costs == list(map(float, kept))


def test_all_ticks_may_be_plain() -> None:
    """A teleport so long ago that its tick is forgotten."""
    run = history((10.0, 0.0), (9.0, 1.0))
    run.trials.append(Trial(-1, 1.0))
    assert run.steps[run.plain :] == [0, 1]


def probed(decrease: float, plain_rate: float, cost: float) -> History:
    run = history((10.0, 0.0), (9.0, cost))
    run.trials.append(Trial(0, 20.0, decrease=decrease, plain_rate=plain_rate, cost_before=100.0))
    return run


@pytest.mark.parametrize(
    ("decrease", "plain_rate", "pause"),
    [(5.0, 0.1, 40.0), (1.0, 0.1, 160.0), (0.5, math.nan, 40.0), (-1.0, math.nan, 160.0), (0.5, math.inf, 40.0)],
    ids=["pays", "does not", "no rate, lower", "no rate, higher", "infinite rate"],
)
def test_pause_after_a_probe(decrease: float, plain_rate: float, pause: float) -> None:
    """From 80: halved after a probe that pays, doubled after one that does not, counted from its end at 120."""
    schedule = Probes()
    assert not schedule.due(1, probed(decrease, plain_rate, 120.0 + pause - 1.0))
    assert schedule.due(1, probed(decrease, plain_rate, 120.0 + pause))


def test_affordable_is_four_percent_unless_told() -> None:
    """Falling by 1 % of the loss per gradient, a trial that costs 7.5 would cost 7.5 %; by 0.1 %, 0.75 %."""
    due = []
    for fall in (0.001, 0.01):
        run = history(*((2.0 - fall * step, 80.0 + step) for step in range(21)))
        due.append(WhileAffordable().due(20, run))
    assert due == [True, False]


def test_a_trial_may_delay_a_run_by_a_tenth() -> None:
    """On a plateau, too: a trial with four products at 1 costs at most 9, after one without success 8 + 7."""
    for spent, due in ((89.0, False), (90.0, True)):
        run = history(*((2.0, spent - 20.0 + step) for step in range(21)))
        assert WhileAffordable().due(20, run) == due
    for spent, due in ((149.0, False), (150.0, True)):
        run = history(*((2.0, spent - 20.0 + step) for step in range(21)))
        run.trials.append(Trial(-10, 8.0, decrease=0.0, plain_rate=0.0))
        assert WhileAffordable().due(20, run) == due


@pytest.mark.parametrize(
    ("momentum", "nesterov", "expected"), [(0.0, False, 4.0), (0.9, False, 7.6), (0.9, True, 7.6 / 2.8)]
)
def test_stability_limit_of_heavy_balls(momentum: float, nesterov: bool, expected: float) -> None:
    limit = StabilityLimit.fixed(0.5, momentum, nesterov=nesterov)
    plain = StabilityLimit.fixed(0.5)
    assert limit.curvature / plain.curvature == pytest.approx(expected / 4.0)
    assert StabilityLimit.fixed(0.5, 0.9).curvature == StabilityLimit.fixed(0.5, 0.9, nesterov=False).curvature


def test_first_steps_are_halved() -> None:
    objective = FunctionObjective(lambda x: (x * x).sum(), torch.zeros(1, dtype=torch.float64))
    start, end = (objective.at(torch.tensor([x], dtype=torch.float64)) for x in (1.0, 9.0))
    sizes = list(_sizes(start, end, 0.25))
    half = len(sizes) // 2
    assert sizes[:half] == [4.0 / 2.0**n for n in range(half)]
    assert sizes[half] == min(8.0 / 18.0, 4.0 / 2.0**half)
    assert sizes[half:] == [sizes[half] / 2.0**n for n in range(half)]


def test_polyak_takes_short_bounds() -> None:
    assert Polyak(max_step=0.01).max_step == 0.01
    assert polyak_step(3.0, 1.0, 2.0) == 0.5
    assert polyak_step(0.5, 1.0, 2.0) == 0.0


def test_polyak_steps_are_at_most_one_unless_told() -> None:
    weight = nn.Parameter(torch.tensor([5.0]))
    PolyakSGD([weight]).step(lambda: weight.sum())
    assert weight.tolist() == [4.0]


@dataclass(frozen=True)
class Watching(Schedule):
    """Never teleports, and keeps the loss that it is shown."""

    shown: list[float] = field(default_factory=list)

    watches = True

    def due(self, step: int, history: History) -> bool:
        self.shown.append(history.values[-1])
        return False

    def declines_because(self, history: History) -> str:
        return "it only watches"


def test_schedules_see_the_weighted_mean_over_batches() -> None:
    """Batches of 1, 2 and 5 samples: the mean over all eight, not over the three batches."""
    torch.manual_seed(0)
    model, inputs = nn.Linear(2, 1), torch.randn(8, 2)
    targets = torch.arange(8.0)[:, None]

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(model(inputs), targets)

    batches = [(inputs[rows], targets[rows]) for rows in (slice(0, 1), slice(1, 3), slice(3, 8))]
    schedule = Watching()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    teleporter = Teleporter(optimizer, schedule, teleport_on=Batches(loss, batches), solver=Krylov())
    teleporter.maybe(lambda: loss(*batches[0]))
    assert schedule.shown == [pytest.approx(loss(inputs, targets).item())]


def test_warnings_reach_code_without_a_module_name() -> None:
    """What ``exec`` runs in a namespace of its own has no ``__name__``, and is the user's all the same."""
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    names = {"teleporter": Teleporter(optimizer, Watching(), solver=Krylov()), "loss": lambda: weight.square().sum()}
    with pytest.warns(UserWarning, match="it only watches"):
        exec("for _ in range(200): teleporter.maybe(loss)", names)
