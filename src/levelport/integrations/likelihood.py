"""A NumPy likelihood as an objective, with differences in place of derivatives that are not given.

Differences need a length for every parameter. It is found from f itself: the step that raises f by between a hundredth
of the rise and the rise. Gradients are central differences over a thousandth of that length, Hessian-vector products
central differences of gradients over a hundredth, so neither depends on units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from levelport.goals import IntervalResult, interval
from levelport.objectives.numpy import NumpyObjective, products

Array = NDArray[np.float64]

_GRADIENT, _PRODUCT = 1e-3, 1e-2  # steps of differences, relative to the lengths
_ADJUSTMENTS = 40
_FALLBACK = 1e-4  # relative length for a parameter along which f does not change


class Likelihood:
    """f with its derivatives on float64 arrays.

    Args:
        fun: f(x).
        x: the minimizer.
        rise: what differences are scaled by.
        jac: the gradient, or None for differences.
        hess: the Hessian as a matrix, or None for differences of gradients.
        limits: a row (lower, upper) per parameter, infinite where there is none; differences keep to them.
    """

    def __init__(
        self,
        fun: Callable[[Array], float],
        x: Array,
        rise: float,
        *,
        jac: Callable[[Array], Any] | None = None,
        hess: Callable[[Array], Any] | None = None,
        limits: Array | None = None,
    ) -> None:
        self.x = np.array(x, dtype=np.float64)
        self._fun, self._jac = fun, jac
        free = np.tile([-math.inf, math.inf], (self.x.size, 1))
        self._lower, self._upper = np.asarray(free if limits is None else limits, dtype=np.float64).T
        self._product = None if hess is None else products(lambda x: np.asarray(hess(x), dtype=np.float64))
        self.lengths = np.ones_like(self.x) if jac is not None and hess is not None else self._find_lengths(rise)

    def interval(
        self, quantity: Any, known: Sequence[str], names: Sequence[str] | None, **options: Any
    ) -> IntervalResult[torch.Tensor]:
        """:func:`levelport.interval` within the bounds; parameters may be given by their names, ``known``."""
        if isinstance(quantity, str | int):
            quantity = [quantity]
        if quantity is not None and not callable(quantity):
            quantity = [_position(entry, known) for entry in quantity]
        if names is None and not callable(quantity):
            names = known if quantity is None else [known[index] for index in quantity]
        sides = self._lower, self._upper
        if np.isfinite(sides).any():
            options["bounds"] = [torch.from_numpy(side.copy()) for side in sides]
        objective = NumpyObjective(self.value, self.gradient, self.product, self.x.size)
        return interval(objective, torch.from_numpy(self.x.copy()), quantity, names=names, **options)

    def value(self, x: Array) -> float:
        """f(x)."""
        return float(self._fun(x))

    def gradient(self, x: Array) -> Array:
        """∇f(x)."""
        if self._jac is not None:
            return np.asarray(self._jac(x), dtype=np.float64).reshape(-1)
        gradient = np.empty_like(x)
        for index, length in enumerate(self.lengths):
            ahead, behind = x.copy(), x.copy()
            ahead[index] = min(x[index] + _GRADIENT * length, self._upper[index])
            behind[index] = max(x[index] - _GRADIENT * length, self._lower[index])
            gradient[index] = (self.value(ahead) - self.value(behind)) / (ahead[index] - behind[index])
        return gradient

    def product(self, x: Array, v: Array) -> Array:
        """∇²f(x) v."""
        if self._product is not None:
            return np.asarray(self._product(x, v), dtype=np.float64)
        size = float(np.max(np.abs(v / self.lengths)))
        if size == 0.0:
            return np.zeros_like(v)
        step = _PRODUCT / size
        ahead = np.clip(x + step * v, self._lower, self._upper)
        behind = np.clip(x - step * v, self._lower, self._upper)
        return (self.gradient(ahead) - self.gradient(behind)) / (2.0 * step)

    def _find_lengths(self, rise: float) -> Array:
        base = self.value(self.x)
        lengths = 1e-2 * np.abs(self.x)
        lengths[lengths == 0.0] = 1e-2
        for index in range(self.x.size):
            for _ in range(_ADJUSTMENTS):
                climbs = []
                for sign in (-1.0, 1.0):
                    moved = self.x.copy()
                    moved[index] = np.clip(moved[index] + sign * lengths[index], self._lower[index], self._upper[index])
                    climbs.append(self.value(moved) - base)
                climb = max(climbs) if all(map(math.isfinite, climbs)) else math.inf
                if 0.01 * rise <= climb <= rise:
                    break
                lengths[index] *= 3.0 if climb < 0.01 * rise else 1.0 / 3.0
            else:
                lengths[index] = _FALLBACK * max(1.0, abs(self.x[index]))
        return lengths


def _position(entry: Any, known: Sequence[str]) -> int:
    if entry in range(len(known)):
        return int(entry)
    if entry not in known:
        raise ValueError(f"there is no free parameter {entry!r}; there are {', '.join(known)}.")
    return list(known).index(entry)
