"""The account of trials, against runs whose rates are known: its bound, its credit, and the size of what it tries."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from levelport.optim import Teleporter, WhileAffordable
from levelport.optim.schedules import History
from levelport.solvers import Krylov


class Run:
    """Plain steps of cost 1 lower f by the share ``rate``; trials cost ``cost(vectors)`` and lower it by ``gain``.

    Attributes:
        trials: the tick, the size that was allowed and the cost of every trial.
        behind: by how much f was above that of plain steps at the same cost, at worst; a share of it.
        delay: the share of all cost that went into trials, at worst.
    """

    def __init__(
        self,
        rate: float,
        gain: Callable[[int], float],
        *,
        ticks: int = 400,
        share: float = 1.0,
        cost: Callable[[int], float] = lambda vectors: vectors + 4.0,
    ) -> None:
        self.trials, self.behind, self.delay = list[tuple[int, int, float]](), 0.0, 0.0
        schedule, history, spent, value = WhileAffordable(share=share), History(), 0.0, 1.0
        for tick in range(ticks):
            history.observe(tick, value, spent)
            self.behind = max(self.behind, value / (1.0 - rate) ** spent - 1.0)
            self.delay = max(self.delay, (spent - tick) / max(spent, 1.0))
            if schedule.due(tick, history):
                vectors = schedule.limit(Krylov(max_hvps=1000), history).max_hvps - 1
                cost_of_trial = cost(vectors)
                history.teleported(cost_of_trial)
                value, spent = value * (1.0 - gain(len(self.trials))), spent + cost_of_trial
                self.trials.append((tick, vectors, cost_of_trial))
            value, spent = value * (1.0 - rate), spent + 1.0


@given(rate=st.floats(1e-5, 1e-3), factor=st.floats(0.0, 1.0))
def test_trials_without_success_cost_no_more_than_the_rise(rate: float, factor: float) -> None:
    """Whatever a trial costs, up to what it can cost: one per product, and five."""
    run = Run(rate, lambda trial: 0.0, cost=lambda vectors: factor * (vectors + 5.0), ticks=900)
    assert run.behind <= 0.042


def test_the_bound_is_used() -> None:
    """Otherwise it would be kept by a rule that never tries anything."""
    run = Run(1e-3, lambda trial: 0.0, ticks=900)
    assert 0.02 < run.behind <= 0.042
    waits = [later - earlier for (earlier, *_), (later, *_) in pairwise(run.trials)]
    assert waits[:2] == [10, 20]  # the pause, doubled after every failure
    assert [vectors for _, vectors, _ in run.trials[:3]] == [4, 2, 2]


@given(rate=st.floats(0.0, 1e-4), share=st.floats(0.05, 0.5))
def test_trials_without_success_cost_no_more_than_the_share(rate: float, share: float) -> None:
    """On a plateau, where their effect on the loss would allow more."""
    run = Run(rate, lambda trial: 0.0, share=share, cost=lambda vectors: vectors + 5.0)
    assert run.trials
    assert 0.5 * share < run.delay <= share


def test_trials_that_pay_go_on_and_grow() -> None:
    run = Run(1e-5, lambda trial: 2e-3)
    assert {later - earlier for (earlier, *_), (later, *_) in pairwise(run.trials)} == {5}
    assert [vectors for _, vectors, _ in run.trials[:6]] == [4, 8, 16, 32, 64, 64]


def test_trials_that_pay_once_but_not_twice_keep_their_size() -> None:
    """A trial costs 9 with its step: 1.5 times what plain steps lower f by for that."""
    run = Run(1e-4, lambda trial: 1.5 * 9.0 * 1e-4 - 1e-4)
    assert {vectors for _, vectors, _ in run.trials} == {4}


def test_a_trial_that_paid_makes_good_for_those_before_it() -> None:
    """As many without success as are allowed; where the last of them pays for them all, there are more."""
    without_success = Run(1e-3, lambda trial: 0.0, ticks=900)
    last = len(without_success.trials) - 1
    paid = Run(1e-3, lambda trial: 0.05 if trial == last else 0.0, ticks=900)
    assert len(paid.trials) > len(without_success.trials)


def test_a_trial_that_paid_ends_the_row_of_failures() -> None:
    """The pause of 5 is doubled for every failure in a row; the third trial pays."""
    run = Run(1e-5, lambda trial: 0.05 if trial == 2 else 0.0, ticks=900)
    waits = [later - earlier for (earlier, *_), (later, *_) in pairwise(run.trials)]
    assert waits[:5] == [10, 20, 5, 10, 20]


def test_a_trial_that_paid_earns_the_next_one_and_no_more() -> None:
    """A decrease worth hundreds of steps does not allow trials without success for ever."""
    rate, cost = 1e-3, 12.0
    run = Run(rate, lambda trial: 0.5 if trial == 0 else 0.0, cost=lambda vectors: cost, ticks=3000)
    without_success = sum(cost_of_trial + 1.0 for _, _, cost_of_trial in run.trials[1:])
    # d = -C after the first, and a last trial may be made where d is just below the rise.
    assert 0.0 < rate * (without_success - (cost + 1.0)) <= 0.042


@pytest.mark.parametrize(("jump", "expected"), [(0.03, True), (0.05, False)])
def test_no_trial_where_losses_jump_by_more_than_it_may_lose(jump: float, expected: bool) -> None:
    """Every fifth loss is higher: over the pause of five steps f stands still, so that the jump alone decides."""
    history = History()
    for tick in range(61):
        history.observe(tick, 1.0 if tick % 5 else 1.0 + jump, 40.0 + tick)
    assert WhileAffordable().due(60, history) is expected


@pytest.mark.parametrize("vectors", [4, 8])
@pytest.mark.parametrize("rate", [1e-3, -1e-3])
def test_a_move_must_promise_what_plain_steps_buy_for_its_cost(vectors: int, rate: float) -> None:
    """The products, at 1 each by differences, and 2.5 for the move and its check; nothing where f rises."""
    history = History()
    for tick in range(60):
        history.observe(tick, 1.0 - rate * tick, float(tick))
    limited = WhileAffordable(vectors=vectors).limit(Krylov(max_hvps=1000), history)
    assert limited.max_hvps == vectors + 1  # one for a certificate
    assert limited.least_decrease == pytest.approx(max(rate, 0.0) * (vectors + 2.5))


def test_a_solver_says_what_its_products_cost() -> None:
    weight = [nn.Parameter(torch.ones(1, dtype=torch.float64))]
    for solver, cost in (("krylov", 1.0), ("sqp", 20.0)):
        assert Teleporter(torch.optim.SGD(weight, lr=0.1), solver=solver).policy.history.product_cost == cost


ticks = st.lists(st.tuples(st.floats(0.5, 1.5), st.floats(0.5, 30.0)), min_size=2, max_size=40)


@given(run=ticks, trial_at=st.sets(st.integers(1, 39), max_size=5), share=st.sampled_from([0.1, 1.0, 100.0]))
def test_a_reason_is_given_where_no_trial_is_due(
    run: list[tuple[float, float]], trial_at: set[int], share: float
) -> None:
    schedule, history, spent = WhileAffordable(pause=1, rise=0.3, share=share), History(), 50.0
    for tick, (value, step) in enumerate(run):
        history.observe(tick, value, spent)
        why = schedule.declines_because(history)
        assert schedule.due(tick, history) == (why == "")
        if "did not pay" in why:  # then they are what it waits for, not what was long ago
            failures = int(why.split()[0])
            assert tick < history.trials[-1].index + 2**failures
        if tick in trial_at:
            history.teleported(step)
        spent += step


@pytest.mark.parametrize("schedule", [WhileAffordable(), WhileAffordable(pause=1, rise=0.3, share=0.5, vectors=9)])
@given(run=ticks, trial_at=st.sets(st.integers(1, 39), max_size=5), positive=st.booleans())
def test_the_unit_of_the_loss_decides_nothing(
    schedule: WhileAffordable, run: list[tuple[float, float]], trial_at: set[int], positive: bool
) -> None:
    """Powers of two, so that nothing is rounded: neither what is decided nor what is said changes in any bit."""

    def decisions(unit: float) -> list[object]:
        history, spent, found = History(), 50.0, list[object]()
        for tick, (value, step) in enumerate(run):
            seen = value * 0.98**tick if positive else -tick * (0.5 + value)
            history.observe(tick, unit * seen, spent)
            if tick > 0:
                limited = schedule.limit(Krylov(max_hvps=10**6), history)
                found += [limited.max_hvps, limited.least_decrease / unit]
                found += [schedule.due(tick, history), schedule.declines_because(history)]
            if tick in trial_at:
                history.teleported(step)
            spent += step
        return found

    assert decisions(1.0) == decisions(2.0**-20) == decisions(2.0**20)
