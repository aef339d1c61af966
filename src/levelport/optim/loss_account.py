"""When to teleport, with an account of what trials have cost: for gradient methods, and with a horizon for momentum.

A trial that does not pay has cost evaluations that plain steps could have used: it leaves the run as far behind as that
cost. The account is kept in this unit, gradient equivalents of delay,

    d ← max(d + C - D/r, -C),        C the cost of a trial, D the decrease of f that it brought,

r the decrease of f per gradient equivalent of the plain steps before it. A run that is d behind has a loss that is
higher by R d/f, R the rate of plain steps *now*: a delay costs much where progress is fast, and nothing where it has
stopped. So a trial is made only where

    R (d + C) + J ≤ 0.04 f,          R the fastest recent stretch, C all that the trial can cost, J the largest jump,

f standing for the decrease since the start where it may be negative. A trial that paid earns the next one, no more. The
size k of the Krylov space follows success: doubled where a trial paid twice, halved where it did not pay.

Losses of mini-batches jump, and so do those of a step size that is too long. J is the largest rise from one loss to the
next among the last hundred: where losses jump by more than the account may lose, nobody could tell what a trial has
done, and none is made. Below that a trial counts as paid only if its decrease exceeds what plain steps would have
bought and twice the jump. So noise makes teleports rarer, never more frequent.

C is known before a trial where the solver says what its products cost, as "krylov", the default, and "auto" do. For
others ("sqp", symmetries, your own) every product counts as 20 gradient equivalents, or as the dearest bill so far if
that was dearer: trials are rare with them, and one whose cost nobody could foresee may exceed the bound, once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from levelport import checks
from levelport.optim.history import History, Trial, jump_of, scale_of
from levelport.optim.schedules import Limits, Schedule

_MOST_VECTORS = 64
_AMONG = 4  # times the pause: ticks among which the fastest stretch is looked for
_JUMPS = 100  # ticks among which the largest jump is looked for
_STANDSTILL = 1e-4  # of the loss per gradient equivalent: slower steps count as this fast where decreases become delays
_EVALUATIONS = 5.0  # of a trial besides its products, at most: two climbs, the bottom, the step and its check


@dataclass(frozen=True)
class _Account:
    """Where the trials so far have led: the delay, the next size, ticks to wait and failures in a row."""

    delay: float
    vectors: int
    wait: int
    failures: int


@dataclass(frozen=True)
class LossAccount(Schedule):
    """Trials while the account of their losses allows it: the default for gradient methods.

    Args:
        overdraft: the relative loss that trials may cause.
        start: gradient equivalents before the first trial; early teleports waste the fastest part of a run.
        pause: ticks between trials that pay; doubled after every failure.
        vectors: size of the first Krylov space; for other solvers, the products of the first trial.

    Example:
        >>> print(LossAccount())
        while the account of trials allows it: at most 0.04 of the loss
    """

    overdraft: float = 0.04
    start: float = 40.0
    pause: int = 5
    vectors: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("overdraft", self.overdraft, above=0.0)
        checks.number("start", self.start, at_least=0.0)
        checks.whole("pause", self.pause, at_least=1)
        checks.whole("vectors", self.vectors, at_least=1)

    @property
    def watches(self) -> bool:
        return True

    def due(self, tick: int, history: History) -> bool:
        if history.ticks[-1].cost < self.start or _too_early(tick, history, self.pause):
            return False
        account = self._account(history)
        if _too_early(tick, history, account.wait):
            return False
        return at_stake(account.delay + largest_cost(account.vectors, history), history, self.pause) <= self.overdraft

    def limits(self, history: History) -> Limits:
        vectors = self._account(history).vectors
        forgone = max(history.plain_rate(self.pause), 0.0) * predicted_cost(vectors, history)
        return Limits(vectors, forgone)

    def _account(self, history: History) -> _Account:
        account = _Account(0.0, self.vectors, self.pause, 0)
        for trial in history.trials:
            account = self._after(account, trial)
        return account

    def _after(self, account: _Account, trial: Trial) -> _Account:
        rate = max(trial.plain_rate, 0.0) if math.isfinite(trial.plain_rate) else 0.0
        decrease = trial.decrease if math.isfinite(trial.decrease) else 0.0
        gained = decrease / max(rate, _STANDSTILL * trial.scale)
        delay = max(account.delay + trial.cost - gained, -trial.cost)
        if decrease > max(rate * trial.cost, 2.0 * trial.jump):
            grown = min(2 * account.vectors, _MOST_VECTORS) if decrease > 2.0 * rate * trial.cost else account.vectors
            return _Account(delay, grown, self.pause, 0)
        failures = account.failures + 1
        return _Account(delay, max(account.vectors // 2, 2), self.pause * 2**failures, failures)

    def __str__(self) -> str:
        return f"while the account of trials allows it: at most {self.overdraft:g} of the loss"


@dataclass(frozen=True)
class Horizon(Schedule):
    """Trials that are judged late and may use a small share of all cost: the default for momentum.

    After a move the momentum still points where it pointed. So a trial is judged only when plain steps have cost twice
    what it cost, by the decrease since before it; and trials may use at most ``share`` of the whole cost. All of what
    they have used counts as delay, as if none had paid.

    Args:
        share: of all gradient equivalents that trials may use.
        overdraft: the relative loss that a trial may cause where it comes to nothing, at the fastest recent rate.
        start: gradient equivalents before the first trial.
        vectors: size of the Krylov space; for other solvers, the products of a trial.

    Example:
        >>> print(Horizon())
        at most 0.05 of all cost, judged by what follows
    """

    share: float = 0.05
    overdraft: float = 0.04
    start: float = 40.0
    vectors: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("share", self.share, above=0.0, at_most=1.0)
        checks.number("overdraft", self.overdraft, above=0.0)
        checks.number("start", self.start, at_least=0.0)
        checks.whole("vectors", self.vectors, at_least=1)

    @property
    def watches(self) -> bool:
        return True

    def due(self, tick: int, history: History) -> bool:
        now = history.ticks[-1]
        if now.cost < self.start:
            return False
        lost, largest = sum(trial.cost for trial in history.trials), largest_cost(self.vectors, history)
        if lost + largest > self.share * now.cost or at_stake(lost + largest, history, 5) > self.overdraft:
            return False
        failures = 0
        for trial in reversed(history.trials):
            if self._paid(trial):
                break
            failures += 1
        last = history.trials[-1] if history.trials else None
        if last is None:
            return math.isfinite(history.plain_rate(5))
        return now.cost >= last.cost_before + 3.0 * last.cost * 2**failures  # so never before its own horizon

    @staticmethod
    def _paid(trial: Trial) -> bool:
        """Judged at the first tick after plain steps of twice the cost; not paid as long as there is none."""
        if math.isnan(trial.cost_later):
            return False
        forgone = max(trial.plain_rate, 0.0) * (trial.cost_later - trial.cost_before)
        return trial.value - trial.value_later > max(forgone, 2.0 * trial.jump)

    def limits(self, history: History) -> Limits:
        forgone = max(history.plain_rate(5), 0.0) * predicted_cost(self.vectors, history)
        return Limits(self.vectors, forgone)

    def __str__(self) -> str:
        return f"at most {self.share:g} of all cost, judged by what follows"


def at_stake(delay: float, history: History, pause: int) -> float:
    """The share of the loss by which a run that is ``delay`` behind may be higher; infinite where nobody knows."""
    rate = history.fastest_rate(pause, _AMONG * pause)
    if not math.isfinite(rate):
        return math.inf
    values = [seen.value for seen in history.ticks]
    return (max(rate, 0.0) * max(delay, 0.0) + max(jump_of(values[-_JUMPS:]), 0.0)) / scale_of(values)


def largest_cost(vectors: int, history: History) -> float:
    """What a trial with so many Krylov vectors can cost where everything goes wrong but nothing has to be repeated."""
    return history.product_cost * vectors + _EVALUATIONS


def predicted_cost(vectors: int, history: History) -> float:
    """Of a trial with so many Krylov vectors: the products, two evaluations of the move, a check."""
    return history.product_cost * vectors + 2.5


def _too_early(tick: int, history: History, wait: int) -> bool:
    last = history.last_teleport
    return last is not None and tick - last < wait
