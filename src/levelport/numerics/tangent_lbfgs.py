"""L-BFGS in a tangent space, with a diagonal to begin with, and its inner products on the host.

The two-loop recursion (Nocedal and Wright, "Numerical Optimization", algorithm 7.4) never leaves the span of the pairs
and of the vector r it is applied to, but for the matrix H₀ in its middle. So it can run on coefficients, once the inner
products in that span are known:

    α_i = (⟨s_i, r⟩ - Σ_{j>i} ⟨s_i, y_j⟩ α_j)/⟨s_i, y_i⟩,            newest first,     p = H₀ (r - Σ α_j y_j),
    δ_i = α_i - (⟨y_i, p⟩ + Σ_{j<i} ⟨y_i, s_j⟩ δ_j)/⟨s_i, y_i⟩,      oldest first,     d = p + Σ δ_j s_j,

H₀ acts where no pair has been. Textbooks take γ times the identity, where γ is ⟨s, y⟩/⟨y, y⟩ of the newest pair, the
shorter one of the two step sizes of Barzilai and Borwein; the longer one is ⟨s, s⟩/⟨s, y⟩. Here it is γ W with a
diagonal W, because the entries of a network's parameters differ in scale: W_ii² is the ratio of the running means of
s_i²/‖s‖² and y_i²/‖y‖², that is, the geometric mean of both step sizes in one entry, within a factor ten of 1. And γ is
the longer step size, with lengths as W measures them: ⟨s, W⁻¹ s⟩/⟨s, y⟩. A direction that is too long can be cut back
by whoever searches along it.

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
_NEW = 4  # rows of the newest step: r, s, y, n
_KEPT = 0.9  # of the running sums of s² and y², per pair
_LEAST = 1e-6  # of their mean entry, which is added to them: entries that have not moved
_WIDEST = 10.0  # the largest entry of W, and the inverse of the smallest


class Direction(NamedTuple):
    """A vector d with its slope ⟨d, r⟩ and its length."""

    vector: Tensor
    slope: float
    length: float


class _Vectors:
    """Rows of one matrix: r, s, y and n of the newest step in the middle, the y that are kept before, the s after them.

        … y_1 y_0 | r | s y n | s_0 s_1 …

    The slots in use lie around the middle, so that r with all y_j are neighbours, and p, in the place of y, with n and
    all s_j: a sum over them is one product with a matrix.
    """

    def __init__(self, memory: int, like: Tensor) -> None:
        size = like.numel()
        pieces = -(-size // _PIECE)
        rows = like.new_empty(_NEW + 2 * memory, pieces, -(-size // pieces))
        flat = rows.view(len(rows), -1)
        flat[:, size:] = 0.0
        self._size, self._middle = size, memory
        self._flat, self._rows = flat, rows.transpose(0, 1)
        new = self._rows[:, memory : memory + _NEW]
        self._new, self._new_pair = new, new[:, 1:3]
        self._pair = flat[memory + 1 : memory + 3, :size]
        r, s, y, n = flat[memory : memory + _NEW, :size].unbind()
        self.newest = s, y, r, n
        self._views: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self._exact = torch.float32 if like.device.type == "mps" else torch.float64
        self._squares = like.new_zeros(2, size)  # running sums of s² and y², of unit vectors
        self._weight = 0.0  # what the entries of either add up to

    def _in_use(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """As columns: all vectors while ``count`` slots are in use, in pieces; y_j and r; and p, n and s_j."""
        if count not in self._views:
            middle, first, end = self._middle, self._middle - count, self._middle + _NEW + count
            self._views[count] = (
                self._rows[:, first:end].transpose(1, 2),
                self._flat[first : middle + 1, : self._size].T,
                self._flat[middle + 2 : end, : self._size].T,
            )
        return self._views[count]

    def products(self, count: int) -> Tensor:
        """Of r, s, y and n, each with all vectors in use."""
        return self._summed(torch.bmm(self._new, self._in_use(count)[0]))

    def _summed(self, by_piece: Tensor) -> Tensor:
        return (by_piece if len(by_piece) == 1 else by_piece.sum(0, dtype=self._exact)).view(-1)

    def project(self) -> None:
        """Take the parts along n out of s and y."""
        n = self.newest[3]
        self._pair.addr_(torch.mv(self._pair, n), n, alpha=-1.0)

    def keep(self, slot: int, length: float, change: float) -> None:
        """Copy s and y, whose norms these are; then they are done with and become what the running sums take in."""
        s, y = self.newest[:2]
        self.step(slot).copy_(s)
        self.change(slot).copy_(y)
        s.div_(length)
        y.div_(change)
        self._squares.mul_(_KEPT).addcmul_(self._pair, self._pair)
        self._weight = _KEPT * self._weight + 1.0

    def step(self, slot: int) -> Tensor:
        """s of a pair."""
        return self._flat[self._middle + _NEW + slot, : self._size]

    def change(self, slot: int) -> Tensor:
        """y of a pair."""
        return self._flat[self._middle - 1 - slot, : self._size]

    def forget(self) -> None:
        """Drop the running sums: they are of another region."""
        self._squares.zero_()
        self._weight = 0.0

    def inner(self, alpha: list[float], newest: int) -> Tensor:
        """Write W (r - Σ α_j y_j) where y was and W⁻¹ s of the newest pair where s was; their products with all."""
        vectors, changes, _ = self._in_use(len(alpha))
        factors = self._flat.new_tensor([*(-number for number in reversed(alpha)), 1.0])
        s, p = self.newest[:2]
        torch.mv(changes, factors, out=p)
        weights = self._weights()
        p.mul_(weights)
        torch.div(self.step(newest), weights, out=s)
        return self._summed(torch.bmm(self._new_pair, vectors))

    def _weights(self) -> Tensor:
        """The diagonal of W."""
        least = max(_LEAST * self._weight / self._size, torch.finfo(self._squares.dtype).tiny)
        step, change = (self._squares + least).unbind()
        return step.div_(change).sqrt_().clamp_(1.0 / _WIDEST, _WIDEST)

    def combine(self, scale: float, delta: list[float], along: float) -> Tensor:
        """scale·p + Σ δ_j s_j - along·n, written where the next s will be."""
        factors = self._flat.new_tensor([scale, -along, *delta])
        return torch.mv(self._in_use(len(delta))[2], factors, out=self.newest[0])


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

    def project(self) -> None:
        """Take the parts along n out of s and y: what the tangent space at the newest point sees of them."""
        self._vectors.project()

    def learn(self, products: Sequence[float], *, pair: bool = True) -> bool:
        """Take note of the products; whether s and y were a ``pair`` that tells curvature, and are kept."""
        middle = len(self._slots)
        size = 2 * middle + _NEW
        by_r, by_s, by_y, by_n = (products[i * size : (i + 1) * size] for i in range(_NEW))
        steps = [middle + _NEW + slot for slot in self._slots]
        changes = [middle - 1 - slot for slot in self._slots]
        r, s, y = range(middle, middle + 3)
        self._rn = by_n[r]
        keep = pair and tells_curvature(by_s[y], by_s[s], by_y[y])
        if keep:
            slot = middle
            if slot == self._memory:
                slot = self._drop_oldest()
                del steps[0], changes[0]
            self._slots.append(slot)
            self._vectors.keep(slot, math.sqrt(by_s[s]), math.sqrt(by_y[y]))
            old_s_new_y, old_y_new_s = [by_y[i] for i in steps], [by_s[i] for i in changes]
            _border(self._ss, [by_s[i] for i in steps], [by_s[i] for i in steps], by_s[s])
            _border(self._sy, old_s_new_y, old_y_new_s, by_s[y])
            _border(self._ys, old_y_new_s, old_s_new_y, by_s[y])
            steps.append(s)
        self._sr, self._sn = [by_r[i] for i in steps], [by_n[i] for i in steps]
        return keep

    def forget(self) -> None:
        """Drop all pairs: they described another region."""
        for kept in (self._slots, self._ss, self._sy, self._ys):
            kept.clear()
        self._vectors.forget()

    def direction(self, *, tangent: bool = True) -> Direction:
        """d = B⁻¹ r, or its part orthogonal to n, for the newest r and n; there must be a pair."""
        D = [row[i] for i, row in enumerate(self._sy)]
        count, newest = len(D), self._slots[-1]
        alpha, delta = [0.0] * count, [0.0] * count
        for i in reversed(range(count)):  # coefficients that come later are still 0
            alpha[i] = (self._sr[i] - _dot(self._sy[i], alpha)) / D[i]
        by_slot = [0.0] * count
        for slot, number in zip(self._slots, alpha, strict=True):
            by_slot[slot] = number
        products = self._vectors.inner(by_slot, newest).tolist()
        gamma, by_p = products[count + _NEW + newest] / D[-1], products[2 * count + _NEW :]
        pr, _, pp, pn = by_p[count : count + _NEW]
        ps = [by_p[count + _NEW + slot] for slot in self._slots]
        py = [by_p[count - 1 - slot] for slot in self._slots]
        for i in range(count):
            delta[i] = alpha[i] - (gamma * py[i] + _dot(self._ys[i], delta)) / D[i]
        square = gamma * (gamma * pp + 2.0 * _dot(delta, ps)) + _dot(delta, [_dot(row, delta) for row in self._ss])
        slope = gamma * pr + _dot(delta, self._sr)
        along = gamma * pn + _dot(delta, self._sn) if tangent else 0.0
        square, slope = square - along * along, slope - along * self._rn
        for slot, number in zip(self._slots, delta, strict=True):
            by_slot[slot] = number
        vector = self._vectors.combine(gamma, by_slot, along)
        return Direction(vector, slope, math.sqrt(square) if square > 0.0 else math.nan)

    def _drop_oldest(self) -> int:
        for table in (self._ss, self._sy, self._ys):
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
