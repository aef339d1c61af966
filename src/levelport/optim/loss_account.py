"""When to teleport, with an account of what trials have cost: for gradient methods, and with a horizon for momentum.

A trial that does not pay has cost evaluations that plain steps could have used. Let r be the decrease of f per gradient
equivalent of recent plain steps, C the cost of a trial and D what it decreased f by. The account

    A ← max(A + (r C - D)/scale, -0.1),       scale = |f|, or the decrease since the start where f may be negative,

is what trials have lost so far relative to plain descent; trials are made only while A plus the worst case of the next
one, r C/scale, stays below 4 %. So with an honest r the loss is never more than about that far above what the same
optimizer reaches without teleports at equal cost. The size k of the Krylov space follows success: doubled where a trial
paid twice, halved where it did not pay.

Losses of mini-batches jump. A trial counts as paid only if its decrease exceeds what plain steps would have bought
*and* the jump that the losses make by themselves, twice over; so noise makes teleports rarer, never more frequent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from levelport import checks
from levelport.optim.history import History, Trial, scale_of
from levelport.optim.schedules import Limits, Schedule

_MOST_VECTORS = 64
_LARGEST_CREDIT = 0.1


@dataclass(frozen=True)
class _Account:
    """Where the trials so far have led: the balance, the next size, ticks to wait and failures in a row."""

    balance: float
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
        vectors: size of the first Krylov space.

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
        rate, account = history.plain_rate(self.pause), self._account(history)
        if not math.isfinite(rate) or _too_early(tick, history, account.wait):
            return False
        worst = (
            max(rate, 0.0) * predicted_cost(account.vectors, history) / scale_of([seen.value for seen in history.ticks])
        )
        return account.balance + worst <= self.overdraft

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
        forgone = max(trial.plain_rate, 0.0) * trial.cost if math.isfinite(trial.plain_rate) else 0.0
        decrease = trial.decrease if math.isfinite(trial.decrease) else 0.0
        balance = max(account.balance + (forgone - decrease) / trial.scale, -_LARGEST_CREDIT)
        if decrease > max(forgone, 2.0 * trial.jump):
            grown = min(2 * account.vectors, _MOST_VECTORS) if decrease > 2.0 * forgone else account.vectors
            return _Account(balance, grown, self.pause, 0)
        failures = account.failures + 1
        return _Account(balance, max(account.vectors // 2, 2), self.pause * 2**failures, failures)

    def __str__(self) -> str:
        return f"while the account of trials allows it: at most {self.overdraft:g} of the loss"


@dataclass(frozen=True)
class Horizon(Schedule):
    """Trials that are judged late and may use a small share of all cost: the default for momentum.

    After a move the momentum still points where it pointed. So a trial is judged only when plain steps have cost twice
    what it cost, by the decrease since before it; and trials may use at most ``share`` of the whole cost.

    Args:
        share: of all gradient equivalents that trials may use.
        start: gradient equivalents before the first trial.
        vectors: size of the Krylov space.

    Example:
        >>> print(Horizon())
        at most 0.05 of all cost, judged by what follows
    """

    share: float = 0.05
    start: float = 40.0
    vectors: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number("share", self.share, above=0.0, at_most=1.0)
        checks.number("start", self.start, at_least=0.0)
        checks.whole("vectors", self.vectors, at_least=1)

    @property
    def watches(self) -> bool:
        return True

    def due(self, tick: int, history: History) -> bool:
        now = history.ticks[-1]
        if now.cost < self.start:
            return False
        spent = sum(trial.cost for trial in history.trials) + predicted_cost(self.vectors, history)
        if spent > self.share * now.cost:
            return False
        failures = 0
        for trial in reversed(history.trials):
            if self._paid(trial, history):
                break
            failures += 1
        last = history.trials[-1] if history.trials else None
        if last is None:
            return math.isfinite(history.plain_rate(5))
        return now.cost >= last.cost_before + 3.0 * last.cost * 2**failures

    @staticmethod
    def _paid(trial: Trial, history: History) -> bool:
        """Judged at the first tick after plain steps of twice the cost; not paid as long as there is none."""
        horizon = trial.cost_before + 3.0 * trial.cost
        later = next((tick for tick in history.ticks if tick.cost >= horizon), None)
        if later is None:
            return False
        forgone = max(trial.plain_rate, 0.0) * (later.cost - trial.cost_before)
        return trial.value - later.value > max(forgone, 2.0 * trial.jump)

    def limits(self, history: History) -> Limits:
        forgone = max(history.plain_rate(5), 0.0) * predicted_cost(self.vectors, history)
        return Limits(self.vectors, forgone)

    def __str__(self) -> str:
        return f"at most {self.share:g} of all cost, judged by what follows"


def predicted_cost(vectors: int, history: History) -> float:
    """Of a trial with so many Krylov vectors: the products, two evaluations of the move, a check."""
    return history.product_cost * vectors + 2.5


def _too_early(tick: int, history: History, wait: int) -> bool:
    last = history.last_teleport
    return last is not None and tick - last < wait
