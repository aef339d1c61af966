"""The trust region: a ball around the start that no returned point leaves."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from levelport.objective import norm

INSIDE = 0.95
"""The part of the radius that steps may use; the rest is room for the way back onto the level."""


def distance_to_sphere(offset: Tensor, direction: Tensor, radius: float | None) -> float:
    """The largest a with ‖offset + a·direction‖ ≤ INSIDE·radius for a unit direction; 0 outside, heading out.

    From outside, a direction that heads inwards may be followed to where it is as far out as it began.
    """
    if radius is None or math.isinf(radius):
        return math.inf
    if radius == 0.0:  # derived from lengths that underflowed
        return 0.0
    along, distance = torch.stack([torch.dot(offset, direction).to(norm(offset)), norm(offset)]).tolist()
    # In units of the radius, so that no square leaves the range.
    along, distance = along / radius, distance / radius
    inside = INSIDE * INSIDE - distance * distance
    if inside <= 0.0:
        return 0.0 if along >= 0.0 else -2.0 * along * radius
    return radius * (math.sqrt(along * along + inside) - along)
