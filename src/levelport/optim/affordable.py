"""The adaptive schedule for training: teleports while trials cannot cost more than a small share of the loss.

A trial that does not pay has cost evaluations that plain steps could have used: it leaves the run as far behind as that
cost. The account is kept in this unit, gradient equivalents of delay,

    d ← max(d + C - D/r, -C),        C the cost of a trial, D the decrease of f that it brought,

r the decrease of f per gradient equivalent of the plain steps before it. A run that is d behind has a loss that is
higher by R d/f, R the rate of plain steps *now*: a delay costs much where progress is fast, and nothing where it has
stopped. So a trial is made only where

    R (d + C) + J ≤ 0.04 f,          R the fastest recent stretch, C all that the trial can cost, J the largest jump,

f standing for the decrease since the start where it may be negative. But R may grow: a delay that costs nothing on a
plateau costs much when the loss falls by a few percent per gradient afterwards, and no past loss tells of that. So the
delay is bounded as well, by a tenth of all cost t,

    d + C ≤ 0.1 t,

whatever the losses do later. A trial that paid earns the next one, no more. The size k of the Krylov space follows
success: doubled where a trial paid twice, halved where it did not pay.

Losses of mini-batches jump, and so do those of a step size that is too long. J is the largest rise from one loss to the
next among the last hundred: where losses jump by more than the account may lose, the effect of a trial cannot be told,
and none is made. Below that a trial counts as paid only if its decrease exceeds what plain steps would have bought and
twice the jump. So noise makes teleports rarer, never more frequent. With ``teleport_on`` the losses are those of that
fixed sample, which hardly jump.

C is known before a trial from what the solver says its products cost (:meth:`~levelport.Solver.product_cost`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

from levelport import checks
from levelport.optim.schedules import History, Schedule, Trial, jump_of
from levelport.solvers import Solver

_MOST_VECTORS = 64
_AMONG = 4  # times the pause: ticks among which the fastest stretch is looked for
_JUMPS = 100  # ticks among which the largest jump is looked for
_STANDSTILL = 1e-4  # of the loss per gradient equivalent: slower steps count as this fast where decreases become delays
_EVALUATIONS = 5.0  # of a trial besides its products, at most: two climbs, the bottom, the step and its check


@dataclass(frozen=True)
class _Account:
    """The state after the trials so far: the delay, the next size, ticks to wait and failures in a row."""

    delay: float
    vectors: int
    wait: int
    failures: int


@dataclass(frozen=True)
class WhileAffordable(Schedule):
    """Teleports while unsuccessful trials cost at most an estimated 4 % of the loss: the default of plain SGD.

    Args:
        rise: the relative rise of the loss that trials may cause, if the run goes on as fast as before.
        share: of the cost of the run that trials may delay it by; the first one waits until it can afford that.
        pause: steps between trials that pay; doubled after every failure.
        vectors: size of the first Krylov space; for other solvers, the products of the first trial.

    Example:
        >>> print(WhileAffordable())
        while trials can raise the loss by at most 4 %
    """

    rise: float = 0.04
    share: float = 0.1
    pause: int = 5
    vectors: int = 4

    watches = True

    def __post_init__(self) -> None:
        checks.number("rise", self.rise, above=0.0)
        checks.number("share", self.share, above=0.0)
        checks.whole("pause", self.pause, at_least=1)
        checks.whole("vectors", self.vectors, at_least=1)

    def due(self, step: int, history: History) -> bool:
        if step % self.pause:  # now and then is enough, and costs less
            return False
        limit, later = self.rise * history.scale, history.values[-1]
        for earlier in islice(reversed(history.values), 1, _JUMPS):  # among noisy losses the newest will do
            if later - earlier > limit:
                return False
            later = earlier
        return not self._obstacle(history)

    def declines_because(self, history: History) -> str:
        if not self._jump(history) <= self.rise * history.scale:
            jumps = 100.0 * self._jump(history) / history.scale
            return f"losses jump by {jumps:.3g} % from step to step, and the limit is {100.0 * self.rise:g} %"
        return self._obstacle(history)

    def _obstacle(self, history: History) -> str:
        """Why the account allows no trial at the last tick; empty where it does."""
        account = self._account(history)
        if history.trials and history.steps[-1] - history.trials[-1].index < account.wait:
            return f"{account.failures} trials in a row did not pay" if account.failures else "the last trial is recent"
        if (delay := self._delay(account, history)) > self.share:
            return f"a trial might delay the run by {100.0 * delay:.3g} %, and the limit is {100.0 * self.share:g} %"
        if (stake := self._at_stake(account, history)) <= self.rise:
            return ""
        return f"a trial might raise the loss by {100.0 * stake:.3g} %, and the limit is {100.0 * self.rise:g} %"

    @staticmethod
    def _jump(history: History) -> float:
        """The largest rise from one loss to the next among the last ones."""
        return jump_of(history.values[-_JUMPS:])

    @staticmethod
    def _delay(account: _Account, history: History) -> float:
        """How far behind the run may be after a trial, as a share of its cost."""
        behind = account.delay + largest_cost(account.vectors, history)
        return max(behind, 0.0) / max(history.costs[-1], 1e-300)

    def _at_stake(self, account: _Account, history: History) -> float:
        """The share of the loss that a trial may cost; infinite where no rate is known."""
        rate = history.fastest_rate(self.pause, _AMONG * self.pause)
        if not math.isfinite(rate):
            return math.inf
        delay = self._delay(account, history) * history.costs[-1]
        return max(rate, 0.0) * delay / history.scale + self._jump(history) / history.scale

    def limit(self, solver: Solver, history: History) -> Solver:
        vectors = self._account(history).vectors
        forgone = max(history.plain_rate(self.pause), 0.0) * predicted_cost(vectors, history)
        return solver.within(vectors + 1, forgone)  # solvers keep one product in reserve for a certificate

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
        return f"while trials can raise the loss by at most {100.0 * self.rise:g} %"


def largest_cost(vectors: int, history: History) -> float:
    """Return the largest cost of a trial with so many Krylov vectors in which nothing is repeated."""
    return history.unit * (history.product_cost * vectors + _EVALUATIONS)


def predicted_cost(vectors: int, history: History) -> float:
    """Of a trial with so many Krylov vectors: the products, two evaluations of the move, a check."""
    return history.unit * (history.product_cost * vectors + 2.5)
