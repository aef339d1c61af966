"""What the user gives as the function to work on, as an objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from levelport.objective import Objective, ObjectiveError
from levelport.objectives.function import AutogradObjective
from levelport.objectives.structure import Structure, Variables


def as_objective(fun: Callable[[Any], Tensor] | Objective, x: Variables) -> tuple[Objective, Structure, Tensor]:
    """The objective, the structure of ``x``, and ``x`` as a flat vector (a copy)."""
    structure = Structure(x)
    if isinstance(fun, Objective):
        if not isinstance(x, Tensor) or x.numel() != fun.dimension:
            size = x.numel() if isinstance(x, Tensor) else "a container"
            raise ObjectiveError(f"this objective takes a flat vector of {fun.dimension} entries, not {size}.")
        if x.dtype != fun.dtype or x.device != fun.device:
            raise ObjectiveError(
                f"x is {x.dtype} on {x.device}, but the objective works in {fun.dtype} on {fun.device}. "
                f"Convert it: x.to({fun.dtype})."
            )
        return fun, structure, structure.flatten(x)
    if not callable(fun):
        raise ObjectiveError(f"fun must be a function of x or an Objective, not {type(fun).__name__}.")
    return AutogradObjective(fun, like=x), structure, structure.flatten(x)
