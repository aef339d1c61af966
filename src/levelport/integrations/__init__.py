"""levelport inside other libraries: one thin module each, to be imported where its framework is installed.

All stand on :class:`levelport.Teleporter`, which never steps. A loop of one's own (plain torch, Fabric, Accelerate)
needs nothing from here: ``Teleporter(optimizer, Every(50)).maybe(loss)`` before every step.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any


def __getattr__(name: str) -> Any:
    """Import the module ``name`` on first use."""
    if name not in {module.name for module in iter_modules(__path__)}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
