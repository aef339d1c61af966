"""Norms and inner products of flat vectors without loss of range or digits, and reading numbers from the device.

Sums are accumulated in float64 where the device has it: float32 gradients of badly scaled functions overflow when
squared in their own precision, and the float32 sum over a million numbers has four digits. Long float32 vectors are
summed in pieces of a thousand numbers in their own precision, and these sums in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_SQUARE_IN_RANGE = 1e-140, 1e150  # lengths whose square is a normal number in float64
_PIECES_IN_RANGE = 1e-12, 1e18  # the same in float32, whose long vectors are squared in their own precision
_PIECE = 1024
_LONG = 64 * _PIECE  # entries from which converting a float32 vector takes longer than a sum in pieces


def exact_dtype(device: torch.device) -> torch.dtype:
    """The most precise dtype of ``device``: float64, or float32 on MPS."""
    return torch.float32 if device.type == "mps" else torch.float64


def norm(v: Tensor) -> Tensor:
    """‖v‖₂ as a 0-d tensor in the most precise dtype.

    Squares overflow above 1e154 in float64 and vanish below 1e-162. Near there v is scaled by a power of two first.
    """
    if v.dtype != torch.float64 and v.device.type != "mps":
        return torch.linalg.vector_norm(v, dtype=torch.float64)
    size = torch.linalg.vector_norm(v)
    if not _SQUARE_IN_RANGE[0] < float(size) < _SQUARE_IN_RANGE[1] and v.dtype == torch.float64 and v.numel():
        largest = float(v.abs().max())
        if 0.0 < largest < math.inf:
            power = math.frexp(largest)[1]
            size = _times_power(torch.linalg.vector_norm(_times_power(v, -power)), power)
    return size


def inner(a: Tensor, b: Tensor) -> float:
    """⟨a, b⟩, in float64 where it has left the range of their own precision."""
    product = float(torch.dot(a, b))
    if (product == 0.0 or not math.isfinite(product)) and a.dtype != torch.float64 and a.device.type != "mps":
        return float(torch.dot(a.double(), b.double()))
    return product


def dots(rows: Tensor, v: Tensor) -> Tensor:
    """The inner products of ``v`` with each row, in the most precise dtype, on the device."""
    exact, pieces = exact_dtype(v.device), v.numel() // _PIECE
    if v.dtype != torch.float32 or pieces < 2:
        return torch.mv(rows, v).to(exact)
    whole = pieces * _PIECE
    by_piece = torch.bmm(
        rows[:, :whole].view(len(rows), pieces, _PIECE).transpose(0, 1), v[:whole].view(pieces, _PIECE, 1)
    )
    total = by_piece.sum(0, dtype=exact)[:, 0]
    return total if whole == v.numel() else total.add_(torch.mv(rows[:, whole:], v[whole:]))


def all_finite(v: Tensor) -> bool:
    """Return True if v has neither infinities nor NaNs. Its extremes pass on NaNs, and are faster than ``isfinite``."""
    return not v.numel() or all(map(math.isfinite, torch.stack([v.min(), v.max()]).tolist()))


def read(scalars: Sequence[Tensor], lengths_of: Sequence[Tensor] = ()) -> list[float]:
    """The scalars, or flat lists of them, and then ‖v‖₂ of the vectors, in one read: each one waits for the device."""
    device = (lengths_of[0] if lengths_of else scalars[0]).device
    exact = exact_dtype(device)
    # The scalar of a loss may have another dtype than x, or live elsewhere.
    taken = [v if v.dtype == exact and v.device == device else v.to(device, exact) for v in scalars]
    taken += [_quick_norm(v, exact) for v in lengths_of]
    numbers: list[float] = torch.hstack(taken).tolist() if len(taken) > 1 else [taken[0].item()]
    for index, v in enumerate(lengths_of, len(numbers) - len(lengths_of)):
        least, most = _PIECES_IN_RANGE if v.dtype == torch.float32 else _SQUARE_IN_RANGE
        if not least < numbers[index] < most:
            numbers[index] = float(norm(v))
    return numbers


def _quick_norm(v: Tensor, exact: torch.dtype) -> Tensor:
    """‖v‖₂ to the precision of ``exact``, or of float32 vectors; it may leave the range of float32 on the way."""
    if v.dtype != torch.float32 or v.numel() < _LONG:
        return torch.linalg.vector_norm(v, dtype=exact)
    whole = v.numel() // _PIECE * _PIECE
    pieces = torch.linalg.vector_norm(v[:whole].view(-1, _PIECE), dim=1)
    return torch.linalg.vector_norm(torch.hstack([pieces, torch.linalg.vector_norm(v[whole:])]), dtype=exact)


def _times_power(v: Tensor, power: int) -> Tensor:
    """v · 2^power, in two halves: the power itself may lie outside the range."""
    half = power // 2
    return v * 2.0**half * 2.0 ** (power - half)
