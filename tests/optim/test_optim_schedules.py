"""Schedules: when they fire, what they refuse, how they print, and what the adaptive ones make of a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from levelport.optim import At, Every, Never, WhileAffordable
from levelport.optim.schedules import History, Schedule


def fires(schedule: Schedule, steps: int) -> list[int]:
    return [step for step in range(steps) if schedule.due(step, History())]


@pytest.mark.parametrize(
    ("schedule", "expected", "text"),
    [
        (Every(50, start=5), [5, 55, 105], "every 50 steps from step 5"),
        (Every(1, start=107), [107, 108, 109], "every step from step 107"),
        (At([9, 2]), [2, 9], "at steps 2, 9"),
        (At(7), [7], "at step 7"),
        (At([*range(5, 8), 40]), [5, 6, 7, 40], "at steps 5, 6, 7, 40"),
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
        (lambda: At([]), "empty"),
        (lambda: At([3, 5, 3]), "lists 3 twice"),
        (lambda: At([-2]), "at least 0"),
    ],
)
def test_what_makes_no_sense_is_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("schedule", [Never(), Every(1), Every(3, start=2), Every(7, start=3), At([3, 7])], ids=str)
def test_a_schedule_knows_its_next_teleport(schedule: Schedule) -> None:
    planned = fires(schedule, 80)
    for step in range(60):
        assert schedule.next(step) == next((later for later in planned if later >= step), None)


def test_an_adaptive_schedule_may_teleport_before_any_step() -> None:
    assert WhileAffordable().next(10**9) == 10**9


class Simulation:
    """A run whose plain steps and teleports decrease f as prescribed."""

    def __init__(self, schedule: Schedule, plain: Any, teleport_gain: Any, teleport_cost: float = 50.0) -> None:
        self.schedule, self.history = schedule, History()
        self.plain, self.teleport_gain, self.teleport_cost = plain, teleport_gain, teleport_cost
        self.value, self.cost, self.teleports = 1.0, 0.0, []

    def run(self, ticks: range) -> list[int]:
        for tick in ticks:
            self.history.observe(tick, self.value, self.cost)
            due = self.schedule.due(tick, self.history)
            if due:
                self.history.teleported(self.teleport_cost)
                self.teleports.append(tick)
                self.cost += self.teleport_cost
                self.value -= self.teleport_gain(self.value)
            self.cost += 2.0
            self.value -= self.plain(self.value)
        return self.teleports


def test_adaptive_schedule_resumes_from_plain_numbers() -> None:
    schedule = WhileAffordable(rise=10.0, share=10.0)

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
