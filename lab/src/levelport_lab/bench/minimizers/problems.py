"""The problems of the comparison: smooth functions of 10 to 5000 variables, each defined by a formula and a seed.

Three groups: ``statistical`` models, ``function`` (CUTEst-like test functions, written from their published formulas)
and ``network`` (full batch, smooth activations). All are in float64 and differentiated by autograd.

The method was developed on one half of the problems and is reported on the other. The first byte of the SHA-256 of a
problem's name decides, so that the half is not chosen by hand and a new problem does not move an old one: odd means
reported, and the problem is defined here; even means development, and it is in ``tools/development_minimizers.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from levelport_lab.problems.teleport_cases import draw as draws

__all__ = ["PROBLEMS", "Made", "Problem", "draws", "problem", "zeros"]

Loss = Callable[[Tensor], Tensor]
Made = tuple[Loss, Tensor]
Group = Literal["statistical", "function", "network"]


@dataclass(frozen=True)
class Problem:
    """A function of a flat vector and its start, made on demand."""

    name: str
    group: Group
    make: Callable[[], Made]


PROBLEMS: dict[str, Problem] = {}
"""By name; filled by the modules that define them."""


def problem(
    group: Group, name: str = "", *, registry: dict[str, Problem] = PROBLEMS
) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Enter the decorated function under ``name`` or its own, blanks for underscores."""

    def enter(make: Callable[[], Made]) -> Callable[[], Made]:
        called = (name or make.__name__).replace("_", " ")
        registry[called] = Problem(called, group, make)
        return make

    return enter


def zeros(size: int) -> Tensor:
    """A start at the origin."""
    return torch.zeros(size, dtype=torch.float64)
