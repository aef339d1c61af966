"""Is f coercive? Teleportation is well posed only if sub-level sets are bounded; rays and rescalings can refute it.

No finite number of rays proves that they are bounded, except for convex f in the directions tried: there a ray that
rises once rises for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from levelport.objective import Objective
from levelport.objectives.structure import Structure
from levelport_lab.problems.spectrum import extremes

DISTANCE = 1e6
"""How far the rays go, in units of max(1, ‖x‖)."""


@dataclass(frozen=True)
class Coercivity:
    """The behavior of f along rays from x and rescalings of x.

    Attributes:
        rays: how many were followed.
        staying: names of the rays along which f was still at most f(x) at the end.
        rescaling: the layers whose opposite scaling leaves f as it is, or None.
    """

    rays: int
    staying: tuple[str, ...]
    rescaling: str | None

    @property
    def refuted(self) -> bool:
        """True if an unbounded part of the sub-level set was found."""
        return bool(self.staying) or self.rescaling is not None

    def sentence(self) -> str:
        """The finding in words."""
        if self.rescaling is not None:
            return (
                f"f is not coercive: scaling {self.rescaling} leaves it unchanged, so its level sets are unbounded and "
                "the teleportation problem has no solution. Add a penalty on the weights."
            )
        if self.staying:
            return (
                f"f does not rise along {len(self.staying)} of {self.rays} rays ({', '.join(self.staying[:3])}), "
                f"followed over {DISTANCE:g} lengths of x: the sub-level set looks unbounded, and teleports may "
                "run away. Add a penalty."
            )
        return f"f rises above its level along all {self.rays} rays tried, so nothing speaks against coercivity."


def probe_coercivity(objective: Objective, x: Tensor, *, seed: int = 0) -> Coercivity:
    """Follow rays from ``x``: ± gradient, ± the flattest direction, ± x itself, and random ones."""
    point = objective.at(x, curvature=True)
    level, scale = point.value, max(1.0, float(torch.linalg.vector_norm(x)))
    directions: list[tuple[str, Tensor]] = [("the gradient", point.gradient), ("x itself", x)]
    directions.append(("the flattest direction", extremes(point, max_products=30).lowest_vector))
    generator = torch.Generator().manual_seed(seed)
    for index in range(10):
        direction = torch.randn(x.numel(), generator=generator, dtype=torch.float64).to(x)
        directions.append((f"random direction {index + 1}", direction))
    staying, rays = [], 0
    for name, direction in directions:
        size = float(torch.linalg.vector_norm(direction))
        if size == 0.0:
            continue
        for sign, word in ((1.0, "+"), (-1.0, "-")):
            rays += 1
            end = objective.at(x + sign * DISTANCE * scale / size * direction).value
            # Not a number, or infinite, is certainly not below the level.
            if math.isfinite(end) and end <= level + 1e-12 * abs(level) + 1e-300:
                staying.append(word + name)
    return Coercivity(rays, tuple(staying), _neutral_rescaling(objective, x, level))


def _neutral_rescaling(objective: Objective, x: Tensor, level: float) -> str | None:
    """Layers i, …, j - 1 scaled by a thousand and layer j by its inverse, if that leaves f alone (ReLU networks)."""
    structure = getattr(objective, "structure", None)
    if not isinstance(structure, Structure) or len(structure.sizes) < 2:
        return None
    parts = x.split(structure.sizes)
    for i in range(len(parts) - 1):
        for j in range(i + 1, min(i + 3, len(parts))):
            for scale in (1e3, 1e-3):
                scaled = [p * scale if i <= k < j else p / scale if k == j else p for k, p in enumerate(parts)]
                moved = torch.cat(scaled)
                if float((moved - x).norm()) < 0.1 * max(1.0, float(x.norm())):
                    continue  # these tensors are next to zero: f had no chance to change
                value = objective.at(moved).value
                if abs(value - level) <= 1e-6 * max(abs(level), 1e-300):
                    return f"tensors {i} to {j - 1} up and tensor {j} down" if j > i + 1 else f"tensor {i} against {j}"
    return None
