"""The quantities of an interval: entries of x, or the entries of a function of x, each as a goal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic

import torch
from torch import Tensor

from levelport import checks
from levelport.goals.goal import LinearGoal
from levelport.objective import Cost, Objective, ObjectiveError
from levelport.objectives.function import FunctionObjective, differentiable, explained
from levelport.objectives.structure import Structure, X

_QUANTITY = "the quantity"  # in messages

Quantity = Callable[[Any], Tensor] | Sequence[int] | None
"""A function of x, or positions of entries of flat x, or None for all of them."""


class Quantities(Generic[X]):
    """One goal per entry of ``quantity(x)``, or per entry of x that is named, or of all of x.

    Attributes:
        names: given, or made of the structure: "x[3]", "slope[0]" for a dict, "q" for a scalar quantity.
        goals: one objective of flat x each.
    """

    def __init__(
        self, x: X, quantity: Quantity, names: Sequence[str] | None = None, *, called: str = "quantity"
    ) -> None:
        self._structure = Structure(x)
        flat = self._structure.flatten(x)
        if callable(quantity):
            self._shape: torch.Size | None = _evaluated(quantity, self._structure, flat).shape
            count = self._shape.numel()
            self.names = ["q"] if not self._shape else [f"q[{index}]" for index in range(count)]
            self.goals: list[Objective] = [_component(quantity, index, x) for index in range(count)]
        else:
            entries = _entries(x)
            positions = range(len(entries)) if quantity is None else _positions(quantity, len(entries), called)
            self._shape = None if quantity is None else torch.Size([len(positions)])
            self.names = [entries[index] for index in positions]
            self.goals = [LinearGoal.entry(index, flat) for index in positions]
        if names is not None:
            if not isinstance(names, Iterable) or isinstance(names, str) or len(names) != len(self.names):
                raise ValueError(f"names must be a list of {len(self.names)} names, one per quantity, not {names!r}.")
            self.names = [str(name) for name in names]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def cost(self) -> Cost:
        """Evaluations of all goals so far."""
        return sum((goal.cost for goal in self.goals), Cost())

    def shaped(self, values: list[float]) -> Any:
        """A float for a scalar quantity, a tensor for others, the structure of x for its entries."""
        exact = torch.float32 if self._structure.device.type == "mps" else torch.float64
        flat = torch.tensor(values, dtype=exact, device=self._structure.device)
        if self._shape is None:
            return self._structure.unflatten(flat)
        return flat.view(self._shape) if self._shape else values[0]


def _positions(quantity: Any, entries: int, called: str) -> list[int]:
    positions = list(quantity) if isinstance(quantity, Iterable) and not isinstance(quantity, str) else []
    if not positions:
        raise ValueError(
            f"quantity must be a function of x, or a list of positions in x, such as [0, 2], not {quantity!r}."
        )
    for index in positions:
        checks.whole(f"every position in {called}", index)
        if index >= entries:
            raise ValueError(f"{called} asks for entry {index}, but x has entries 0 to {entries - 1}.")
    return positions


def _evaluated(quantity: Callable[[Any], Tensor], structure: Structure[X], flat: Tensor) -> Tensor:
    leaves = [leaf.detach().requires_grad_() for leaf in structure.leaves(flat)]
    with differentiable(), explained(derivative=False, name=_QUANTITY):  # with a graph NumPy refuses at once
        value = quantity(structure.assemble(leaves))
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.numel() == 0:
        what = f"a tensor of {value.dtype} and shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value)
        raise ObjectiveError(
            f"quantity must return a real tensor of at least one entry that depends smoothly on x, not {what}. Compute "
            "it from x by torch operations, without .item(), float() or NumPy."
        )
    return value


def _component(quantity: Callable[[Any], Tensor], index: int, like: Any) -> FunctionObjective:
    return FunctionObjective(lambda x: quantity(x).reshape(-1)[index], like=like, name=_QUANTITY)


def _entries(x: Any) -> list[str]:
    """Names of the entries of x: x[0], or key[0] in a dict, or the key alone where it has one entry."""
    if isinstance(x, Tensor):
        parts = [("x", x)]
    elif isinstance(x, Mapping):
        parts = [(str(key), leaf) for key, leaf in x.items()]
    else:
        parts = [(f"x{number}", leaf) for number, leaf in enumerate(x)]
    return [name if leaf.numel() == 1 else f"{name}[{index}]" for name, leaf in parts for index in range(leaf.numel())]
