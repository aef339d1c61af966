"""Between what users call x (a tensor, a list or a dict of tensors) and flat vectors in ℝᵈ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeAlias, cast

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from typing_extensions import TypeVar  # torch depends on it; defaults of type variables came with Python 3.13

from levelport.objective import ObjectiveError

Variables: TypeAlias = Tensor | Sequence[Tensor] | Mapping[str, Tensor]
"""What a loss may be a function of."""

X = TypeVar("X", bound=Variables, default=Tensor)
"""The users' own kind of variables: what goes in as a tensor, a list or a dict comes out as one."""


class Structure(Generic[X]):
    """The shape of the user's variables: flattens them and builds them again."""

    def __init__(self, like: X) -> None:
        self._kind = Tensor if isinstance(like, Tensor) else tuple if isinstance(like, tuple) else list
        self._keys = list(like) if isinstance(like, Mapping) else None
        if not isinstance(like, Tensor | Mapping | Sequence):
            raise ObjectiveError(
                f"x must be a tensor, or a list or dict of tensors, not {type(like).__name__}. {_advice(like)}"
            )
        leaves = tensors(like)
        check_leaves(leaves, alone=isinstance(like, Tensor))
        self.shapes = [leaf.shape for leaf in leaves]
        self.sizes = [leaf.numel() for leaf in leaves]
        self.dtype, self.device = leaves[0].dtype, leaves[0].device
        self.dimension = sum(self.sizes)

    def flatten(self, variables: Variables) -> Tensor:
        """A new flat vector with the entries of ``variables``, outside any graph."""
        return torch.cat([leaf.detach().reshape(-1) for leaf in tensors(variables)])

    def flatten_like(self, name: str, variables: Any) -> Tensor:
        """``variables`` in the structure of x as a flat vector in the order of x; ``name`` is for errors."""
        if self._keys is not None and isinstance(variables, Mapping):
            if set(variables) != set(self._keys):
                raise ObjectiveError(f"{name} must have the keys of x, {self._keys}, not {list(variables)}.")
            variables = {key: variables[key] for key in self._keys}
        x = self.assemble([torch.empty(shape, device="meta") for shape in self.shapes])
        if (wanted := _shapes(x)) != (given := _shapes(variables)):
            raise ObjectiveError(f"{name} must have one entry for each of x, in the shapes {wanted}, not {given}.")
        parts = tensors(variables)
        if any(part.is_complex() or part.layout != torch.strided for part in parts):
            raise ObjectiveError(f"{name} must hold real numbers in dense tensors.")
        return torch.cat([part.detach().to(dtype=self.dtype, device=self.device).reshape(-1) for part in parts])

    def leaves(self, x: Tensor) -> list[Tensor]:
        """Views of ``x`` in the users' shapes."""
        return [part.view(shape) for part, shape in zip(x.split_with_sizes(self.sizes), self.shapes, strict=True)]

    def unflatten(self, x: Tensor) -> X:
        """Views of ``x`` in the users' container."""
        return self.assemble(self.leaves(x))

    def assemble(self, leaves: list[Tensor]) -> X:
        """The users' container around ``leaves``."""
        # A Mapping comes back as a dict, a Sequence as a list or tuple.
        if self._keys is not None:
            return cast(X, dict(zip(self._keys, leaves, strict=True)))
        return cast(X, leaves[0] if self._kind is Tensor else tuple(leaves) if self._kind is tuple else leaves)


def tensors(variables: Variables) -> list[Tensor]:
    """The tensors of the user's variables, one after the other."""
    if isinstance(variables, Tensor):
        return [variables]
    return list(variables.values() if isinstance(variables, Mapping) else variables)


def _shapes(variables: object) -> object:
    """The structure of a tensor, or of a list or dict of tensors."""
    if isinstance(variables, Tensor):
        return tuple(variables.shape)
    if isinstance(variables, Mapping):
        return {key: _shapes(entry) for key, entry in variables.items()}
    if isinstance(variables, Sequence) and not isinstance(variables, str):
        return [_shapes(entry) for entry in variables]
    return type(variables).__name__


def _advice(x: object) -> str:
    """What to pass in place of ``x``, which is no variables."""
    if isinstance(x, Iterator):
        return (
            "model.parameters() is used up after one pass: pass list(model.parameters()), or let "
            "levelport.ModuleObjective or levelport.Teleporter work on the model itself."
        )
    if isinstance(x, torch.nn.Module):
        return (
            "Pass dict(module.named_parameters()) and evaluate the module by torch.func.functional_call, or let "
            "levelport.ModuleObjective or levelport.Teleporter work on it."
        )
    if callable(x):
        return "The function is the first argument and x the second."
    if hasattr(x, "__array_interface__"):
        return (
            "Pass torch.as_tensor(x), and a function in NumPy as levelport.NumpyObjective(fun, jac, dimension=x.size)."
        )
    return "Convert it first, for example with torch.as_tensor(x)."


def _remedy(whole: str, leaf: object) -> str:
    """What to do about a ``leaf`` of ``whole`` that is no tensor."""
    if isinstance(leaf, int | float):
        return f"Numbers go into one tensor: torch.tensor({whole})."
    return "Use torch.as_tensor."


def check_leaves(leaves: list[Tensor], whole: str = "x", *, alone: bool = False) -> None:
    """Raise where ``leaves`` cannot be the variables of a smooth real function on one device.

    ``whole`` is what callers know them as, "x" or "the optimizer's parameters"; ``alone`` if it is the one leaf itself.
    """
    if not leaves:
        raise ObjectiveError(f"there is no tensor in {whole}, so there is nothing to move. Pass at least one tensor.")
    for position, leaf in enumerate(leaves):
        where = whole if alone else f"tensor {position} of {whole}"
        if not isinstance(leaf, Tensor):
            raise ObjectiveError(f"{where} is a {type(leaf).__name__}, not a tensor. {_remedy(whole, leaf)}")
        if hasattr(leaf, "placements"):
            raise ObjectiveError(
                f"{where} is a DTensor, spread over several processes. Teleport on whole tensors (full_tensor()), with "
                "the samples spread instead: levelport.DistributedObjective."
            )
        if is_lazy(leaf):
            raise ObjectiveError(
                f"{where} is a lazy parameter and has no shape yet. Run the module once on a batch, module(inputs), "
                "before its parameters are used."
            )
        if torch._C._functorch.peek_interpreter_stack() is not None:  # x may be an ordinary tensor there
            raise ObjectiveError(
                f"{where} is inside a transform of torch.func (vmap, grad or jvp), where no number can be read. Call "
                "levelport in a loop over the samples, or outside of the transform."
            )
        if leaf.is_meta:
            raise ObjectiveError(f"{where} is on the meta device and holds no numbers. Call module.to_empty() first.")
        if leaf.layout != torch.strided:
            raise ObjectiveError(f"{where} is sparse; teleporting needs dense tensors. Call .to_dense() first.")
        if leaf.is_complex():
            raise ObjectiveError(f"{where} is complex; use torch.view_as_real to get real variables.")
        if not leaf.is_floating_point():
            raise ObjectiveError(f"{where} has the dtype {leaf.dtype}; use a floating-point tensor: x.double().")
        if leaf.dtype.itemsize == 1:
            raise ObjectiveError(
                f"{where} has the dtype {leaf.dtype}, in which neighboring numbers differ by 12 % and sums are not "
                "defined. Teleport on a copy in higher precision: x.float()."
            )
        if leaf.dtype != leaves[0].dtype or leaf.device != leaves[0].device:
            raise ObjectiveError(
                f"{where} is {leaf.dtype} on {leaf.device}, but the first is {leaves[0].dtype} on "
                f"{leaves[0].device}. Bring all variables to one dtype and one device."
            )
    if sum(leaf.numel() for leaf in leaves) == 0:
        raise ObjectiveError(
            f"there are no entries in {whole}, so there is nothing to move. Pass a tensor of at least one entry."
        )


def check_separate(parameters: list[Tensor]) -> None:
    """Raise where two of the live ``parameters`` share memory: a write to one would move the other, unnoticed.

    One flat vector has an entry for each of them, and no parameters can be where it says: f would be evaluated at
    another point. Views of one buffer that do not overlap, as flattened parameters are, hold entries of their own.
    """
    buffers: dict[int, list[int]] = {}
    for number, parameter in enumerate(parameters):
        if parameter.numel() > 0:
            buffers.setdefault(parameter.untyped_storage().data_ptr(), []).append(number)
    for address, numbers in buffers.items():
        if address == 0 or len(numbers) == 1:
            continue
        first = parameters[numbers[0]]
        owners = torch.full((first.untyped_storage().nbytes() // first.itemsize,), -1, dtype=torch.int32, device="cpu")
        for number in numbers:
            parameter = parameters[number]
            entries = owners.as_strided(parameter.shape, parameter.stride(), parameter.storage_offset())
            if (other := int(entries.max())) >= 0:
                raise ObjectiveError(
                    f"parameters {other} and {number}, of shapes {tuple(parameters[other].shape)} and "
                    f"{tuple(parameter.shape)}, are two objects that share memory, so that they cannot move "
                    "independently. Tie them as one nn.Parameter (second.weight = first.weight), or give each its own "
                    "memory (.detach().clone())."
                )
            entries.fill_(number)


def check_not_foreign(module: object) -> None:
    """Raise for modules whose backward pass a framework takes over, in hooks that know first derivatives alone."""
    name = type(module).__name__
    if name.startswith(("FullyShardedDataParallel", "FSDP")):
        raise ObjectiveError(
            "the loss calls a module that FSDP has sharded, whose second derivatives do not reach the shards. Teleport "
            "before sharding, or replicate the model by DistributedDataParallel, with which teleports work."
        )
    if name == "_FabricModule":
        raise ObjectiveError(
            "the loss calls a module that Fabric has set up, which allows no derivatives but those of fabric.backward. "
            "Call the one inside it, model.module: it has the same parameters."
        )
