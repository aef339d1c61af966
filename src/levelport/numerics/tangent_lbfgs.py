"""L-BFGS in a tangent space, with a diagonal to begin with, and its inner products on the host.

The two-loop recursion (Nocedal and Wright, "Numerical Optimization", algorithm 7.4) never leaves the span of the pairs
and of the vector r it is applied to, but for the matrix H₀ in its middle. So it can run on coefficients, once the inner
products in that span are known:

    α_i = (⟨s_i, r⟩ - Σ_{j>i} ⟨s_i, y_j⟩ α_j)/⟨s_i, y_i⟩,            newest first,     p = H₀ (r - Σ α_j y_j),
    δ_i = α_i - (⟨y_i, p⟩ + Σ_{j<i} ⟨y_i, s_j⟩ δ_j)/⟨s_i, y_i⟩,      oldest first,     d = p + Σ δ_j s_j,

H₀ acts where no pair has been. Textbooks take γ times the identity, with γ bounded by the newest pair,
⟨s, y⟩/⟨y, y⟩ ≤ γ ≤ ⟨s, s⟩/⟨s, y⟩, the two step sizes of Barzilai and Borwein. Here it is γ W with a diagonal W, because
the entries of a network's parameters differ in scale: W_ii² is the ratio of the running means of s_i²/‖s‖² and
y_i²/‖y‖², that is, the geometric mean of both step sizes in one entry. W has the geometric mean 1 and entries within a
factor ten of it, and γ is divided by ⟨y, W y⟩/⟨y, y⟩, so that the newest pair sees the same scale.

The products with a unit normal n give the part of d in the tangent space as well, its slope ⟨d, r⟩ and its length. A
step brings four new vectors, s, y, r and n, and then p. Their products with everything that is kept are two products of
matrices and two reads from the device.

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
_KEPT = 0.9  # of the running means of s² and y², per pair
_LEAST = 1e-6  # of their own mean, which is added to them: entries that have not moved
_WIDEST = 10.0  # the largest entry of W, and the inverse of the smallest


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
        self._direction, self._inner, self._ascent, self._normal = flat[:_NEW].unbind()
        self._new_pair, self._new = flat[:2], self._rows[:, :_NEW].transpose(1, 2)
        self._views: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self._exact = torch.float32 if like.device.type == "mps" else torch.float64
        self._squares = like.new_zeros(2, size)  # running means of s² and y², of unit vectors

    def _in_use(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The first ``count`` slots with s, y, r and n, in pieces; their s alone, and their y, as columns."""
        if count not in self._views:
            end = _NEW + 2 * count
            self._views[count] = self._rows[:, :end], self._flat[_NEW:end:2].T, self._flat[_NEW + 1 : end : 2].T
        return self._views[count]

    def products(self, count: int) -> Tensor:
        """Of the vectors in use with the newest ones, row by row."""
        return self._summed(torch.bmm(self._in_use(count)[0], self._new))

    def _summed(self, by_piece: Tensor) -> Tensor:
        return (by_piece if len(by_piece) == 1 else by_piece.sum(0, dtype=self._exact)).view(-1)

    def keep(self, slot: int, length: float, change: float) -> None:
        """Copy s and y, whose norms these are; then they are done with and become what the running means take in."""
        first = _NEW + 2 * slot
        self._flat[first : first + 2].copy_(self._new_pair)
        s, y = self.newest[:2]
        self._squares.mul_(_KEPT)
        self._squares[0].addcmul_(s.div_(length), s)
        self._squares[1].addcmul_(y.div_(change), y)

    def forget(self) -> None:
        """The running means of another region."""
        self._squares.zero_()

    def inner(self, count: int, alpha: list[float], newest: int) -> Tensor:
        """Write W (r - Σ α_j y_j) where y was; its products with the vectors in use, and the newest pair's ⟨y, W y⟩."""
        rows, _, changes = self._in_use(count)
        torch.addmv(self._ascent, changes, self._flat.new_tensor(alpha), alpha=-1.0, out=self._inner)
        weights = self._weights()
        p, y = self.newest[1], self._flat[_NEW + 1 + 2 * newest, : len(weights)]
        p.mul_(weights)
        seen = torch.dot(torch.mul(weights, y, out=weights), y)
        products = self._summed(torch.bmm(rows, self._rows[:, 1:2].transpose(1, 2)))
        return torch.cat([products, seen.to(products.dtype).view(1)])

    def _weights(self) -> Tensor:
        """The diagonal of W."""
        least = self._squares.mean(1, keepdim=True).mul_(_LEAST).clamp_min_(torch.finfo(self._squares.dtype).tiny)
        means = self._squares + least
        weights = torch.div(means[0], means[1], out=means[0]).sqrt_()
        return weights.div_(torch.log(weights).mean().exp_()).clamp_(1.0 / _WIDEST, _WIDEST)

    def combine(self, count: int, scale: float, delta: list[float], along: float) -> Tensor:
        """scale·p + Σ δ_j s_j - along·n, written where the next s will be."""
        # As tensors: a factor beta= or alpha= must not exceed the range of the dtype.
        factors = self._flat.new_tensor([*delta, scale, -along])
        torch.addmv(self._inner.mul_(factors[-2]), self._in_use(count)[1], factors[:-2], out=self._direction)
        self._direction.addcmul_(self._normal, factors[-1])
        return self.newest[0]


class TangentQuasiNewton:
    """B⁻¹ ≈ ∇²F⁻¹ from up to ``memory`` pairs (s, y) of steps and gradient changes of a function F to be minimised.

    For every step: write s, y, r and n into :attr:`newest`, read :meth:`products` from the device, :meth:`learn` them,
    which uses s and y up, and take the :meth:`direction`, which lies where the next s will.

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
        self._rn = math.nan
        self._sr: list[float] = []
        self._sn: list[float] = []

    @property
    def informed(self) -> bool:
        """Whether there is a pair."""
        return bool(self._slots)

    def products(self) -> Tensor:
        """What :meth:`learn` wants to know: products of all vectors with the newest ones."""
        return self._vectors.products(len(self._slots))

    def learn(self, products: Sequence[float], *, pair: bool = True) -> bool:
        """Take note of the products; whether s and y were a ``pair`` that tells curvature, and are kept."""
        ss, sy, sr, sn, _, yy, *_, self._rn = products[:12]
        # Per pair: the products of its s with the new s, y, r and n, and then those of its y.
        old = [products[16 + 8 * slot : 24 + 8 * slot] for slot in self._slots]
        keep = pair and tells_curvature(sy, ss, yy)
        if keep:
            slot = len(self._slots)
            if slot == self._memory:
                slot = self._drop_oldest()
                del old[0]
            self._slots.append(slot)
            self._vectors.keep(slot, math.sqrt(ss), math.sqrt(yy))
            old_s_new_y, old_y_new_s = [row[1] for row in old], [row[4] for row in old]
            _border(self._ss, [row[0] for row in old], [row[0] for row in old], ss)
            _border(self._sy, old_s_new_y, old_y_new_s, sy)
            _border(self._ys, old_y_new_s, old_s_new_y, sy)
            _border(self._yy, [row[5] for row in old], [row[5] for row in old], yy)
            old.append([0.0, 0.0, sr, sn])
        self._sr, self._sn = [row[2] for row in old], [row[3] for row in old]
        return keep

    def forget(self) -> None:
        """Drop all pairs: they described another region."""
        for kept in (self._slots, self._ss, self._sy, self._ys, self._yy):
            kept.clear()
        self._vectors.forget()

    def direction(self, scale: float = 0.0, *, tangent: bool = True) -> Direction:
        """d = B⁻¹ r, or its part orthogonal to n, for the newest r and n; there must be a pair.

        γ is ``scale``, as far as the newest pair allows.
        """
        D = [row[i] for i, row in enumerate(self._sy)]
        count, yy = len(D), self._yy[-1][-1]
        alpha, delta = [0.0] * count, [0.0] * count
        for i in reversed(range(count)):  # coefficients that come later are still 0
            alpha[i] = (self._sr[i] - _dot(self._sy[i], alpha)) / D[i]
        by_slot = [0.0] * count
        for slot, number in zip(self._slots, alpha, strict=True):
            by_slot[slot] = number
        _, pp, pr, pn, *pairs, weighted = self._vectors.inner(count, by_slot, self._slots[-1]).tolist()
        asked = max(D[-1] / yy, min(scale, self._ss[-1][-1] / D[-1]))
        gamma = asked * (yy / weighted) if weighted > 0.0 else math.nan
        ps, py = [pairs[2 * slot] for slot in self._slots], [pairs[2 * slot + 1] for slot in self._slots]
        for i in range(count):
            delta[i] = alpha[i] - (gamma * py[i] + _dot(self._ys[i], delta)) / D[i]
        square = gamma * (gamma * pp + 2.0 * _dot(delta, ps)) + _dot(delta, [_dot(row, delta) for row in self._ss])
        slope = gamma * pr + _dot(delta, self._sr)
        along = gamma * pn + _dot(delta, self._sn) if tangent else 0.0
        square, slope = square - along * along, slope - along * self._rn
        for slot, number in zip(self._slots, delta, strict=True):
            by_slot[slot] = number
        vector = self._vectors.combine(count, gamma, by_slot, along)
        return Direction(vector, slope, math.sqrt(square) if square > 0.0 else math.nan, asked)

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
