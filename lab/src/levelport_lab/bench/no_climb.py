"""Two controls for the teleports of :class:`~levelport.solvers.Krylov`: what is its climb worth?

* :class:`NoClimb` leaves it out: w + s in place of w + s + a v, a truncated Newton step.
* :class:`RandomClimb` goes as far in a random direction.

Neither is a teleport to a larger gradient; the difference from the default is what the climb is worth.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from levelport.numerics.lanczos import KrylovModel
from levelport.solvers import Krylov
from levelport.vectors import norm


@dataclass(frozen=True)
class NoClimb(Krylov):
    """Descend to the bottom of the model and stay there."""

    def _height(self, model: KrylovModel, decrease: float) -> float:
        return 0.0


@dataclass(frozen=True)
class RandomClimb(Krylov):
    """A random move of the same length from the bottom of the model."""

    _generator: torch.Generator = field(
        default_factory=lambda: torch.Generator().manual_seed(0), init=False, repr=False, compare=False
    )

    def _direction(self, model: KrylovModel, descent: Tensor) -> Tensor:
        direction = torch.randn(descent.shape, generator=self._generator, dtype=descent.dtype)
        return direction / norm(direction)
