"""The laboratory of levelport: named problems, theory, the paper's experiments, benchmarks and the command line.

Names are imported on first use, so that the command line answers ``--help`` without importing torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levelport_lab.problems import problem as problem
    from levelport_lab.theory import diagnose as diagnose

_HOME = {"diagnose": "theory", "problem": "problems"}

__all__ = ["diagnose", "problem"]


def __getattr__(name: str) -> Any:
    """Import ``name`` from its package on first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
