"""The trust region: a ball around the start that no returned point leaves."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from levelport.vectors import read

INSIDE = 0.95
"""The part of the radius that steps may use; the rest is room for the way back onto the level."""


def distance_to_sphere(offset: Tensor, direction: Tensor, radius: float | None) -> float:
    """The largest a with ‖offset + a·direction‖ ≤ INSIDE·radius for a unit direction; 0 outside, heading out."""
    if radius is None or math.isinf(radius):
        return math.inf
    along, distance = read([torch.dot(offset, direction)], [offset])
    return room(along, distance, radius)


def room(along: float, distance: float, radius: float) -> float:
    """The same from ⟨offset, direction⟩ and ‖offset‖.

    From outside, a direction that heads inwards may be followed to where it is as far out as it began.
    """
    if math.isinf(radius) or radius == 0.0:  # 0: derived from lengths that underflowed
        return radius
    along, distance = along / radius, distance / radius  # so that no square leaves the range
    inside = INSIDE * INSIDE - distance * distance
    if inside <= 0.0:
        return 0.0 if along >= 0.0 else -2.0 * along * radius
    return radius * (math.sqrt(along * along + inside) - along)
