"""L-BFGS: an approximate inverse Hessian from a few past steps, on top of any initial matrix.

Nocedal and Wright, "Numerical Optimization", algorithm 7.4. Scalars stay on the device: applying the matrix reads
nothing back to the host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

InitialMatrix = Callable[[Tensor], Tensor]
"""A symmetric positive definite map, right up to a factor."""


class QuasiNewton:
    """B⁻¹ ≈ ∇²F⁻¹ from pairs (s, y) of steps and gradient changes of a function F to be minimised.

    ``initial`` may carry curvature known beforehand; its factor is set by the newest pair, so that sᵀB s = sᵀy there.
    """

    def __init__(self, memory: int, initial: InitialMatrix | None = None) -> None:
        self._pairs: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=memory)
        self._initial: InitialMatrix | None = initial

    def __len__(self) -> int:
        return len(self._pairs)

    @property
    def informed(self) -> bool:
        """Whether the length of a step can be trusted: there is a pair to scale it by."""
        return len(self._pairs) > 0

    def update(self, s: Tensor, y: Tensor) -> bool:
        """Remember a pair unless it contradicts positive curvature; whether it was kept."""
        products = torch.stack([torch.dot(s, y), torch.dot(s, s), torch.dot(y, y)])
        sy, ss, yy = products.tolist()
        if not sy > 1e-8 * (ss * yy) ** 0.5:
            return False
        self._pairs.append((s, y, products[0]))
        return True

    def forget(self) -> None:
        """Drop all pairs and the initial matrix: both described another region."""
        self._pairs.clear()
        self._initial = None

    def apply(self, v: Tensor) -> Tensor:
        """B⁻¹ v, a new vector."""
        q = v.clone()
        weights: list[Tensor] = []
        for s, y, sy in reversed(self._pairs):
            weight = torch.dot(s, q) / sy
            q.sub_(weight * y)
            weights.append(weight)
        q = self._apply_initial(q)
        for (s, y, sy), weight in zip(self._pairs, reversed(weights), strict=True):
            q.add_((weight - torch.dot(y, q) / sy) * s)
        return q

    def _apply_initial(self, q: Tensor) -> Tensor:
        if not self._pairs:
            return q if self._initial is None else self._initial(q)
        _, y, sy = self._pairs[-1]
        if self._initial is None:
            return q.mul_(sy / torch.dot(y, y))
        return self._initial(q).mul_(sy / torch.dot(y, self._initial(y)))
