"""Schedules: when they fire, what they refuse, how they print, and what the adaptive ones make of a run."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest

from levelport.optim import At, Blocks, Every, Horizon, LossAccount, Never, WhenItPays, WhenStalled
from levelport.optim.history import History, Trial
from levelport.optim.schedules import Schedule


def fires(schedule: Schedule, ticks: int) -> list[int]:
    return [tick for tick in range(ticks) if schedule.due(tick, History())]


@pytest.mark.parametrize(
    ("schedule", "expected", "text"),
    [
        (Every(50, start=5), [5, 55, 105], "every 50 steps from step 5"),
        (Every(1, start=3, stop=6), [3, 4, 5], "every step from step 3, before step 6"),
        (Every(40, unit="epochs"), [0, 40, 80], "every 40 epochs from epoch 0"),
        (At([9, 2]), [2, 9], "at steps 2, 9"),
        (At(7), [7], "at step 7"),
        (Blocks({5: 3, 40: 1}), [5, 6, 7, 40], "at steps 5 to 7, 40"),
        (At(0), [0], "at step 0"),
        (Never(), [], "never"),
    ],
    ids=str,
)
def test_fixed_schedules(schedule: Schedule, expected: list[int], text: str) -> None:
    assert fires(schedule, 110) == expected
    assert str(schedule) == text
    assert not schedule.watches
    assert eval(repr(schedule)) == schedule  # a description that can be read back
    assert hash(schedule) == hash(eval(repr(schedule)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Every(0), "period"),
        (lambda: Every(5, start=-1), "start"),
        (lambda: Every(5, start=9, stop=9), "stop must lie after start"),
        (lambda: At([]), "empty"),
        (lambda: At([3, 5, 3]), "lists 3 twice"),
        (lambda: At([-2]), "at least 0"),
        (lambda: Blocks({}), "empty"),
        (lambda: Blocks({5: 3, 7: 1}), "starts at 7 overlaps the one before it, which ends at 7"),
        (lambda: Blocks({5: 0}), "length of a block"),
        (lambda: Every(1.5), "period must be a whole number"),
        (lambda: At(True), "whole number"),
        (lambda: Blocks({1.5: 2}), "start of a block"),
        (lambda: Every(5, unit="minutes"), "unit"),
        (lambda: WhenStalled(2.0), "threshold"),
        (lambda: WhenStalled(measure="luck"), "measure"),
        (lambda: WhenStalled(wait=0), "wait"),
        (lambda: WhenStalled(window=0), "window"),
        (lambda: WhenItPays(slowdown=1.5), "slowdown"),
        (lambda: WhenItPays(slowdown=0.0), "slowdown"),
        (lambda: WhenItPays(patience=0), "patience"),
        (lambda: LossAccount(overdraft=0.0), "overdraft"),
        (lambda: LossAccount(start=-1.0), "start"),
        (lambda: LossAccount(pause=0), "pause"),
        (lambda: LossAccount(vectors=0), "vectors"),
        (lambda: Horizon(share=1.5), "share"),
        (lambda: Horizon(overdraft=0.0), "overdraft"),
        (lambda: Horizon(start=-1.0), "start"),
        (lambda: Horizon(vectors=0), "vectors"),
        (lambda: Horizon(unit="minutes"), "unit"),
    ],
)
def test_what_makes_no_sense_is_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("unit", ["steps", "epochs"])
@pytest.mark.parametrize("number", range(5))
def test_a_schedule_knows_whether_a_teleport_is_left(number: int, unit: Any) -> None:
    schedule = [
        Never(unit=unit),
        Every(3, start=2, stop=9, unit=unit),
        Every(3, start=2, stop=10, unit=unit),
        At([3, 7], unit=unit),
        Blocks({1: 2, 6: 3}, unit=unit),
    ][number]
    planned = [step for step in range(60) if schedule.planned(step, 4)]
    for step in range(60):
        assert schedule.left(step, 4) is any(later >= step for later in planned)
    for endless in (Every(3, unit=unit), WhenItPays(unit=unit)):
        assert endless.left(10**9, 4)


def test_adjacent_blocks_do_not_overlap() -> None:
    assert fires(Blocks({5: 3, 8: 2}), 12) == [5, 6, 7, 8, 9]


class Simulation:
    """A run whose plain steps and teleports decrease f as prescribed."""

    def __init__(self, schedule: Schedule, plain: Any, teleport_gain: Any, teleport_cost: float = 50.0) -> None:
        self.schedule, self.history = schedule, History()
        self.plain, self.teleport_gain, self.teleport_cost = plain, teleport_gain, teleport_cost
        self.value, self.cost, self.teleports = 1.0, 0.0, []

    def run(self, ticks: range) -> list[int]:
        for tick in ticks:
            self.history.observe(tick, self.value, self.value, self.cost)
            due = self.schedule.due(tick, self.history)
            if due:
                self.history.teleported(self.teleport_cost)
                self.teleports.append(tick)
                self.cost += self.teleport_cost
                self.value -= self.teleport_gain(self.value)
            self.cost += 2.0
            self.value -= self.plain(self.value)
        return self.teleports


def test_when_stalled_waits_for_a_stall_and_then_for_its_turn() -> None:
    # f falls by half per step at first; from 2⁻²⁰ on it crawls.
    crawling = Simulation(WhenStalled(1e-2, window=5, wait=10), lambda v: v / 2 if v > 1e-6 else 1e-9, lambda v: 0.0)
    teleports = crawling.run(range(60))
    # Over 5 steps f falls from 2⁻ᵏ to 2⁻⁽ᵏ⁺⁵⁾; that is 1% of the total at k = 7, so at step 12.
    assert teleports[0] == 12
    assert all(later - earlier == 10 for earlier, later in pairwise(teleports))
    steady = Simulation(WhenStalled(1e-2, window=5), lambda v: 1e-3, lambda v: 0.0)
    assert steady.run(range(60)) == []


def test_when_stalled_by_gradient_norm() -> None:
    schedule = WhenStalled(0.1, measure="gradient_norm", wait=2)
    history = History()
    fired = []
    for tick, size in enumerate([1.0, 4.0, 1.0, 0.41, 0.4, 0.3, 0.2]):
        history.observe(tick, 0.0, size, float(tick))
        if schedule.due(tick, history):
            fired.append(tick)
            history.teleported(10.0)
    assert fired == [4, 6]


def test_when_it_pays_goes_on_while_it_pays() -> None:
    # Plain steps take 1% of f per 2 gradient equivalents, a teleport 90% for 50: it always pays.
    schedule = WhenItPays(slowdown=0.5, start=5)
    run = Simulation(schedule, lambda v: 0.01 * v, lambda v: 0.9 * v)
    teleports = run.run(range(200))
    assert 60 <= teleports[0] <= 80  # 0.99ᵏ = ½ at k = 69, and the rate is an average
    # A rate measured before the last teleport is out of date: five plain steps measure it anew after every second one.
    assert len(teleports) > 40


def test_when_it_pays_does_not_try_while_plain_steps_go_well() -> None:
    linear = Simulation(WhenItPays(), lambda v: 1e-3, lambda v: 0.5 * v)
    assert linear.run(range(300)) == []


def test_when_it_pays_backs_off_exponentially_when_it_does_not() -> None:
    run = Simulation(WhenItPays(slowdown=0.5, patience=20), lambda v: 0.01 * v, lambda v: 0.001 * v)
    teleports = run.run(range(1000))
    gaps = [later - earlier for earlier, later in pairwise(teleports)]
    assert gaps[:4] == [20, 40, 80, 160]


def test_the_worth_of_a_teleport() -> None:
    assert Trial(3, cost=50.0, decrease=10.0, plain_rate=0.1).worth == pytest.approx(2.0)
    assert Trial(3, cost=50.0, decrease=10.0, plain_rate=math.nan).worth == math.inf
    assert Trial(3, cost=50.0, decrease=10.0, plain_rate=-1.0).worth == math.inf
    assert Trial(3, cost=50.0, decrease=-1.0, plain_rate=0.1).worth == 0.0
    assert Trial(3, cost=50.0, plain_rate=0.1).worth == 0.0


def test_a_trial_that_paid_is_not_judged_again_when_its_ticks_are_forgotten() -> None:
    """The run becomes slow long after it. That says nothing about the trial, nor about how long to wait now."""
    schedule, history, value, cost = Horizon(share=1.0, overdraft=10.0, start=0.0), History(), 1.0, 0.0
    due = []
    for tick in range(1500):
        history.observe(tick, value, 1.0, cost)
        if tick in (20, 1200):
            history.teleported(30.0)
            cost += 30.0
            value -= 0.05 if tick == 20 else 0.0  # the first pays for 500 plain steps, the second for none
        elif tick > 1200 and schedule.due(tick, history):
            due.append(tick)
        cost += 1.0
        value -= 1e-4 if tick < 20 else 1e-6
    # One failure in a row: 2 · 3 times the cost of 31 after it began, of which the trial itself takes 30.
    assert due[:1] == [1200 + 6 * 31 - 30]


@pytest.mark.parametrize(
    "schedule",
    [WhenItPays(slowdown=0.5), WhenStalled(0.3, window=3, wait=7), Horizon(share=1.0, overdraft=10.0)],
    ids=str,
)
def test_adaptive_schedules_resume_from_plain_numbers(schedule: Schedule) -> None:
    def simulate() -> Simulation:
        return Simulation(schedule, lambda v: 0.02 * v, lambda v: 0.5 * v)

    whole = simulate()
    whole.run(range(150))
    assert whole.teleports
    first = simulate()
    first.run(range(90))
    resumed = simulate()
    resumed.history.load_state_dict(json.loads(json.dumps(first.history.state_dict())))
    resumed.value, resumed.cost = first.value, first.cost
    resumed.run(range(90, 150))
    assert first.teleports + resumed.teleports == whole.teleports
    assert schedule.watches
    assert str(schedule).startswith(("when ", "at most "))
