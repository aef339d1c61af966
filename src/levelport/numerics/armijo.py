"""The Armijo line search as the paper runs it (Armijo, 1966): f(x + η d) ≤ f(x) + c η ⟨∇f(x), d⟩.

Each search starts from a given step size. While that is good enough it grows; as soon as it is not, it shrinks until it
is again. So the step taken is always close to the largest acceptable one. A trial where f is not a finite number is not
acceptable.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

T = TypeVar("T")

_SMALLEST = 1e-30  # step size that is tried
_ROUNDING = 8.0  # units in the last place of f that sums over samples may be off by
_LAST_DIGIT = 0.5  # of them that no value shows


def armijo_search(
    attempt: Callable[[float], T | None],
    start: float,
    *,
    grow: float = 1.25,
    shrink: float = 0.8,
    max_step: float = math.inf,
    hopeless: Callable[[float], bool] = lambda size: False,
) -> tuple[float, T] | None:
    """The largest acceptable step size near ``start`` and its trial, or None if there is none down to 1e-30.

    Args:
        attempt: what a step size leads to if it is acceptable, None if it is not.
        start: the first trial.
        grow: factor while trials are acceptable; 1 takes the first acceptable trial.
        shrink: factor while they are not.
        hopeless: whether no step of this size or a shorter one can be acceptable.
    """
    max_step = min(max_step, sys.float_info.max)  # from infinity no factor leads back
    size, best = min(start, max_step), None
    while (trial := attempt(size)) is not None:
        best = size, trial
        if grow == 1.0 or size >= max_step:
            return best
        size = min(size * grow, max_step)
    # Down again, but no further than the largest step size that is known to be acceptable.
    floor = best[0] * (1.0 + 4.0 * sys.float_info.epsilon) if best is not None else _SMALLEST
    while (size := size * shrink) > floor and not hopeless(size):
        if (trial := attempt(size)) is not None:
            return size, trial
    return best


@dataclass(frozen=True)
class Decrease:
    """The Armijo condition at a point with value f, and how far to trust it.

    Where the decrease that is asked for is lost in the rounding error of f, comparing values decides nothing.
    """

    value: float
    c: float
    rounding: float

    @classmethod
    def at(cls, value: float, c: float, dtype: torch.dtype) -> Decrease:
        return cls(value, c, _ROUNDING * torch.finfo(dtype).eps * abs(value))

    def holds(self, trial: float, first_order: float, *, forgive: bool = False) -> bool:
        """f(trial) ≤ f - c · first_order, up to rounding errors if ``forgive``; never where f is not finite.

        Without forgiveness the decrease asked for must be large enough to show in f.
        """
        bound = self.value - self.c * first_order
        if forgive:
            return math.isfinite(trial) and trial <= bound + self.rounding
        return math.isfinite(trial) and trial <= bound < self.value

    def cannot_show(self, first_order: float) -> bool:
        """True if the decrease asked for is less than half of the last digit of f, so that no value can tell it."""
        return self.c * first_order < _LAST_DIGIT / _ROUNDING * self.rounding

    def is_noise(self, trial: float, first_order: float) -> bool:
        """Return True if both the decrease asked for and the one found are below the rounding error."""
        return max(first_order, abs(trial - self.value)) <= self.rounding
