"""The optimizers of the paper, stepping all members of a grid at once.

The rows w_j of a matrix W are the iterates of one method with different settings s_j (a step size, or the constant of
the Armijo condition). With f_j and g_j at w_j, one step of each method is

    sgd          w_j ← w_j - s_j g_j
    momentum     b_j ← β b_j + (1 - μ) g_j (b_j = g_j at first),   w_j ← w_j - s_j b_j,   β = μ = 0.9
    polyak       w_j ← w_j - min(s_j, (f_j - f*)/‖g_j‖²) g_j,      f* = 0
    normalized   w_j ← w_j - s_j g_j/‖g_j‖
    armijo       w_j ← w_j - η_j g_j,  η_j the largest found with f(w_j - η g_j) ≤ f_j - s_j η ‖g_j‖²

The Armijo search starts from the last step and grows it by 1.25 while the condition holds, or shrinks it by 0.8 until
it does. A member that finds no such step (f is minimal up to rounding) stays where it is. The *capped* search is the
one of the authors' released code: at most 100 trials each way, and then the step 1e-8, whatever f is there.

:mod:`levelport.optim` has the same methods for one iterate at a time; the tests compare the two.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

Ray = Callable[[Tensor, Tensor], Tensor]
"""Steps η (one per member) to the values f(w_j - η_j g_j), for the members that the second argument marks."""

STEP_SIZES = (1000.0, 100.0, 10.0, 5.0, 2.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4)
"""The paper's grid."""

ARMIJO_CONSTANTS = (0.001, 0.01, 0.1, 0.5)


class Method(str, Enum):
    """A method by name; the value is what specifications hold."""

    SGD = "sgd"
    MOMENTUM = "momentum"
    POLYAK = "polyak"
    ARMIJO = "armijo"
    NORMALIZED = "normalized"

    @property
    def label(self) -> str:
        """The paper's abbreviation."""
        return _LABELS[self]

    @property
    def settings(self) -> tuple[float, ...]:
        """The grid of the paper: Armijo constants or step sizes."""
        return ARMIJO_CONSTANTS if self is Method.ARMIJO else STEP_SIZES

    def rule(self, settings: Tensor, *, capped: bool = False) -> BatchedRule:
        """A fresh step rule for members with these settings; ``capped`` matters to the line search alone."""
        return _CappedArmijo(settings) if capped and self is Method.ARMIJO else _RULES[self](settings)


_LABELS = {
    Method.SGD: "SGD",
    Method.MOMENTUM: "SGD-M",
    Method.POLYAK: "SPS",
    Method.ARMIJO: "SGD-LS",
    Method.NORMALIZED: "Norm. SGD",
}


@dataclass(frozen=True)
class BatchedStep:
    """Where the members go, and what that cost.

    Attributes:
        W: the new iterates.
        values: how many values each member spent on the search.
        evaluated: 1 where f is already known at the new iterate, so that its gradient shares that forward pass.
    """

    W: Tensor
    values: Tensor
    evaluated: Tensor


class BatchedRule(ABC):
    """Moves the members; may remember what it needs from step to step."""

    searches: bool = False
    """True if the rule evaluates f along the ray."""

    def __init__(self, settings: Tensor) -> None:
        self.settings = settings

    @abstractmethod
    def step(self, W: Tensor, f: Tensor, g: Tensor, ray: Ray) -> BatchedStep:
        """One step of every member."""

    def _free(self, W: Tensor) -> BatchedStep:
        nothing = torch.zeros(len(W), dtype=torch.int64)
        return BatchedStep(W, nothing, nothing)


class _Gradient(BatchedRule):
    def step(self, W: Tensor, f: Tensor, g: Tensor, ray: Ray) -> BatchedStep:
        return self._free(W - self.settings[:, None] * g)


class _Momentum(BatchedRule):
    momentum = 0.9
    dampening = 0.9

    def __init__(self, settings: Tensor) -> None:
        super().__init__(settings)
        self._buffer: Tensor | None = None

    def step(self, W: Tensor, f: Tensor, g: Tensor, ray: Ray) -> BatchedStep:
        if self._buffer is None:
            self._buffer = g.clone()
        else:
            self._buffer.mul_(self.momentum).add_(g, alpha=1.0 - self.dampening)
        return self._free(W - self.settings[:, None] * self._buffer)


class _Polyak(BatchedRule):
    def step(self, W: Tensor, f: Tensor, g: Tensor, ray: Ray) -> BatchedStep:
        size = g.square().sum(dim=1)
        # A vanishing gradient makes the quotient infinite or undefined; the step is zero all the same.
        step = torch.where(size > 0, torch.minimum(self.settings, f / size), 0.0)
        return self._free(W - step[:, None] * g)


class _Normalized(BatchedRule):
    def step(self, W: Tensor, f: Tensor, g: Tensor, ray: Ray) -> BatchedStep:
        norm = torch.linalg.vector_norm(g, dim=1)
        step = torch.where(norm > 0, self.settings / norm, 0.0)
        return self._free(W - step[:, None] * g)


class _Armijo(BatchedRule):
    searches = True
    grow = 1.25
    shrink = 0.8
    largest = 1e6
    smallest = 1e-30
    trials = sys.maxsize
    """Each way."""
    last_resort = 0.0
    """The step where no step is good enough."""

    def __init__(self, settings: Tensor) -> None:
        super().__init__(settings)
        self._last = torch.ones_like(settings)
        self._hopeless = (torch.full_like(settings, torch.nan), torch.full_like(settings, torch.nan))

    def step(self, W: Tensor, f: Tensor, g: Tensor, ray: Ray) -> BatchedStep:
        size = g.square().sum(dim=1)
        eta, accepted = self._last.clone(), torch.zeros_like(self._last)
        values = torch.zeros(len(W), dtype=torch.int64)
        # Without a gradient (a minimum, or a member that is out) there is no ray to search along; and where a search
        # has found nothing, one that begins with the same step would find nothing again.
        active = (size > 0) & ~((f == self._hopeless[0]) & (size == self._hopeless[1]))
        searched, shrinking, trial = active, torch.zeros_like(active), 0
        while trial <= self.trials and bool(active.any()):
            values.add_(active)
            # A trial that is not a number fails the comparison, as it should.
            holds = ray(eta, active) <= f - self.settings * eta * size
            if trial == 0:
                shrinking = active & ~holds
            # The released loop tests a 100th growth and does not take it.
            taken = active & holds & (shrinking if trial == self.trials else True)
            accepted = torch.where(taken, eta, accepted)
            # Growing ends at the first failure, shrinking at the first success, both at their bounds.
            active = active & (holds ^ shrinking) & torch.where(shrinking, eta > self.smallest, eta < self.largest)
            other = torch.where(shrinking, eta * self.shrink, (eta * self.grow).clamp(max=self.largest))
            eta, trial = torch.where(active, other, eta), trial + 1
        failed = accepted == 0.0
        first = self.last_resort or self._last  # where the search after a failure begins
        again = failed & (~searched | (self._last == first))
        self._hopeless = (torch.where(again, f, torch.nan), torch.where(again, size, torch.nan))
        self._last = torch.where(failed, first, accepted)
        steps = torch.where(failed, self.last_resort, accepted)
        return BatchedStep(W - steps[:, None] * g, values, (~failed).long())


class _CappedArmijo(_Armijo):
    """The search of the released code."""

    largest = math.inf
    smallest = 0.0
    trials = 100
    last_resort = 1e-8


_RULES: dict[Method, type[BatchedRule]] = {
    Method.SGD: _Gradient,
    Method.MOMENTUM: _Momentum,
    Method.POLYAK: _Polyak,
    Method.ARMIJO: _Armijo,
    Method.NORMALIZED: _Normalized,
}
