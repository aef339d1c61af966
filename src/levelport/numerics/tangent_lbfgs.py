"""L-BFGS in a tangent space, with its inner products on the host: one read from the device per step.

The two-loop recursion (Nocedal and Wright, "Numerical Optimization", algorithm 7.4) never leaves the span of the pairs
and of the vector r it is applied to. So it can run on coefficients, once the inner products in that span are known:

    α_i = (⟨s_i, r⟩ - Σ_{j>i} ⟨s_i, y_j⟩ α_j)/⟨s_i, y_i⟩,            newest first,     q = r - Σ α_j y_j,
    δ_i = α_i - (γ⟨y_i, q⟩ + Σ_{j<i} ⟨y_i, s_j⟩ δ_j)/⟨s_i, y_i⟩,    oldest first,     d = γ q + Σ δ_j s_j,

The newest pair bounds γ, which scales the step where no pair has been: ⟨s, y⟩/⟨y, y⟩ ≤ γ ≤ ⟨s, s⟩/⟨s, y⟩, the two step
sizes of Barzilai and Borwein. Textbooks take the shorter one.

The products with a unit normal n give the part of d in the tangent space as well, its slope ⟨d, r⟩ and its length. A
step brings four new vectors, s, y, r and n. Their products with everything that is kept are one product of matrices and
one read; d is one product of a matrix and a vector.

Products are summed over pieces of a few thousand numbers, and these sums in float64: in float32 the sum over a million
numbers has four digits, which differences of products would lose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

import torch
from torch import Tensor

from levelport.numerics.lbfgs import tells_curvature

_PIECE = 4096
_NEW = 4  # rows of the newest step: s, y, r, n


class Direction(NamedTuple):
    """A vector d with its slope ⟨d, r⟩ and its length, and the γ it was made with."""

    vector: Tensor
    slope: float
    length: float
    scale: float


class _Vectors:
    """Rows of one matrix: s, y, r and n of the newest step, then the pairs that are kept, by slots."""

    def __init__(self, memory: int, like: Tensor) -> None:
        size = like.numel()
        pieces = -(-size // _PIECE)
        rows = like.new_empty(_NEW + 2 * memory, pieces, -(-size // pieces))
        flat = rows.view(len(rows), -1)
        flat[:, size:] = 0.0
        self.newest = flat[:_NEW, :size].unbind()
        self._rows = rows.transpose(0, 1)
        self._flat = flat
        self._first, self._new_pair, self._new = flat[0], flat[:2], self._rows[:, :_NEW].transpose(1, 2)
        self._views: dict[int, tuple[Tensor, Tensor]] = {}
        self._exact = torch.float32 if like.device.type == "mps" else torch.float64

    def _in_use(self, count: int) -> tuple[Tensor, Tensor]:
        """The first ``count`` slots with s, y, r and n, in pieces; with r and n alone, as columns."""
        if count not in self._views:
            end = _NEW + 2 * count
            self._views[count] = self._rows[:, :end], self._flat[2:end].T
        return self._views[count]

    def products(self, count: int) -> Tensor:
        """Of the vectors in use with the newest ones, row by row."""
        by_piece = torch.bmm(self._in_use(count)[0], self._new)
        return (by_piece if len(by_piece) == 1 else by_piece.sum(0, dtype=self._exact)).view(-1)

    def combine(self, count: int, coefficients: list[float]) -> Tensor:
        """A combination of r, n and the pairs, written where the next s will be."""
        torch.mv(self._in_use(count)[1], self._flat.new_tensor(coefficients), out=self._first)
        return self.newest[0]

    def keep(self, slot: int) -> None:
        """Copy s and y."""
        first = _NEW + 2 * slot
        self._flat[first : first + 2].copy_(self._new_pair)


class TangentQuasiNewton:
    """B⁻¹ ≈ ∇²F⁻¹ from up to ``memory`` pairs (s, y) of steps and gradient changes of a function F to be minimised.

    For every step: write s, y, r and n into :attr:`newest`, read :meth:`products` from the device, :meth:`learn` them,
    and take the :meth:`direction`, which lies where the next s will.

    Args:
        like: a vector of the same kind.
    """

    def __init__(self, memory: int, like: Tensor) -> None:
        self._memory = memory
        self._vectors = _Vectors(memory, like)
        self.newest = self._vectors.newest
        # Where the pairs are, and their products; oldest first.
        self._slots: list[int] = []
        self._ss: list[list[float]] = []
        self._sy: list[list[float]] = []
        self._ys: list[list[float]] = []
        self._yy: list[list[float]] = []
        # Products with the newest r and n.
        self._rr = self._rn = math.nan
        self._sr: list[float] = []
        self._sn: list[float] = []
        self._yr: list[float] = []
        self._yn: list[float] = []

    @property
    def informed(self) -> bool:
        """Whether there is a pair."""
        return bool(self._slots)

    def products(self) -> Tensor:
        """What :meth:`learn` wants to know: products of all vectors with the newest ones."""
        return self._vectors.products(len(self._slots))

    def learn(self, products: Sequence[float], *, pair: bool = True) -> bool:
        """Take note of the products; whether s and y were a ``pair`` that tells curvature, and are kept."""
        ss, sy, sr, sn, _, yy, yr, yn, _, _, self._rr, self._rn = products[:12]
        # Per pair: the products of its s with the new s, y, r and n, and then those of its y.
        old = [products[16 + 8 * slot : 24 + 8 * slot] for slot in self._slots]
        keep = pair and tells_curvature(sy, ss, yy)
        if keep:
            slot = len(self._slots)
            if slot == self._memory:
                slot = self._drop_oldest()
                del old[0]
            self._slots.append(slot)
            self._vectors.keep(slot)
            old_s_new_y, old_y_new_s = [row[1] for row in old], [row[4] for row in old]
            _border(self._ss, [row[0] for row in old], [row[0] for row in old], ss)
            _border(self._sy, old_s_new_y, old_y_new_s, sy)
            _border(self._ys, old_y_new_s, old_s_new_y, sy)
            _border(self._yy, [row[5] for row in old], [row[5] for row in old], yy)
            old.append([0.0, 0.0, sr, sn, 0.0, 0.0, yr, yn])
        self._sr, self._sn = [row[2] for row in old], [row[3] for row in old]
        self._yr, self._yn = [row[6] for row in old], [row[7] for row in old]
        return keep

    def forget(self) -> None:
        """Drop all pairs: they described another region."""
        for kept in (self._slots, self._ss, self._sy, self._ys, self._yy):
            kept.clear()

    def direction(self, scale: float = 0.0, *, tangent: bool = True) -> Direction:
        """d = B⁻¹ r, or its part orthogonal to n, for the newest r and n; there must be a pair.

        γ is ``scale``, as far as the newest pair allows.
        """
        D = [row[i] for i, row in enumerate(self._sy)]
        count, gamma = len(D), max(D[-1] / self._yy[-1][-1], min(scale, self._ss[-1][-1] / D[-1]))
        alpha, delta = [0.0] * count, [0.0] * count
        for i in reversed(range(count)):  # coefficients that come later are still 0
            alpha[i] = (self._sr[i] - _dot(self._sy[i], alpha)) / D[i]
        sq = [number - _dot(row, alpha) for number, row in zip(self._sr, self._sy, strict=True)]
        yq = [number - _dot(row, alpha) for number, row in zip(self._yr, self._yy, strict=True)]
        for i in range(count):
            delta[i] = alpha[i] - (gamma * yq[i] + _dot(self._ys[i], delta)) / D[i]
        rq = self._rr - _dot(alpha, self._yr)
        qq = rq - _dot(alpha, yq)
        square = gamma * (gamma * qq + 2.0 * _dot(delta, sq)) + _dot(delta, [_dot(row, delta) for row in self._ss])
        slope = gamma * rq + _dot(delta, self._sr)
        along = gamma * (self._rn - _dot(alpha, self._yn)) + _dot(delta, self._sn) if tangent else 0.0
        square, slope = square - along * along, slope - along * self._rn
        coefficients = [gamma, -along] + [0.0] * (2 * count)
        for slot, a, b in zip(self._slots, delta, alpha, strict=True):
            coefficients[2 + 2 * slot], coefficients[3 + 2 * slot] = a, -gamma * b
        vector = self._vectors.combine(count, coefficients)
        return Direction(vector, slope, math.sqrt(square) if square > 0.0 else math.nan, gamma)

    def _drop_oldest(self) -> int:
        for table in (self._ss, self._sy, self._ys, self._yy):
            del table[0]
            for row in table:
                del row[0]
        return self._slots.pop(0)


def _border(table: list[list[float]], column: list[float], row: list[float], corner: float) -> None:
    """Add a column and a row to a square table."""
    for above, number in zip(table, column, strict=True):
        above.append(number)
    table.append([*row, corner])


def _dot(a: list[float], b: list[float]) -> float:
    return sum(map(mul, a, b))
