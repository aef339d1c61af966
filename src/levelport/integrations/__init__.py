"""levelport inside other libraries: one thin module each, to be imported where its framework is installed.

All stand on :class:`levelport.Teleporter`, which never steps. A loop of one's own (plain torch, Fabric, Accelerate)
needs nothing from here: ``Teleporter(optimizer, Every(50)).maybe(loss)`` before every step.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

_MODULES = (
    "ignite",
    "iminuit",
    "lightning",
    "lmfit",
    "loggers",
    "scipy",
    "skorch",
    "statsmodels",
    "transformers",
)


def __getattr__(name: str) -> Any:
    """Import the module ``name`` on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
