"""The layers of a module in a row, and what stands between them: found by tracing, or declared.

A hidden unit between two layers may be rescaled, x ↦ c x with c > 0 on the way in and 1/c on the way out, where
everything in between is positively homogeneous and keeps units apart: φ(c x) = c φ(x). ReLU, leaky ReLU, dropout,
pooling over positions and flattening are; tanh, softplus and every kind of normalization are not.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import fx, nn

Layer: TypeAlias = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_HOMOGENEOUS = (nn.Identity, nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_POOLS = ("MaxPool", "AvgPool", "AdaptiveMaxPool", "AdaptiveAvgPool")
_FUNCTIONS = {torch.relu, F.relu, F.leaky_relu, F.dropout, torch.nn.functional.relu_}
_FUNCTION_POOLS = {f"{kind}_pool{n}d": n for kind in ("max", "avg", "adaptive_max", "adaptive_avg") for n in (1, 2, 3)}
_METHODS = {"relu", "relu_", "contiguous"}


class UnsupportedModuleError(ValueError):
    """The module lacks the symmetry asked for; the message names the layer and the remedy."""


@dataclass(frozen=True)
class Chain:
    """Layers in the order in which data pass them, and their names in the module."""

    names: tuple[str, ...]
    layers: tuple[Layer, ...]

    def width(self, junction: int) -> int:
        """Hidden units between layers ``junction`` and ``junction + 1``: outputs, or channels of a convolution."""
        before = self.layers[junction]
        return before.out_features if isinstance(before, nn.Linear) else before.out_channels


def chain_of(module: nn.Module, layers: Sequence[str] | None = None) -> Chain:
    """Return the layers of ``module`` in a row.

    Args:
        layers: names of consecutive layers, for modules that cannot be traced. The caller guarantees that only
            positively homogeneous operations stand between them and that nothing else uses their parameters. None
            traces the module.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not a {type(module).__name__}.")
    if isinstance(layers, str) or (layers is not None and len(set(layers)) < len(layers)):
        raise ValueError(f"layers must be a list of different names, not {layers!r}.")
    found = _traced(module) if layers is None else tuple(layers)
    if len(found) < 2:
        raise UnsupportedModuleError(
            f"the module has {len(found)} layer(s) of the kinds Linear and Conv in a row, and hidden units need two: "
            "one before them and one after."
        )
    known = dict(module.named_modules())
    missing = [name for name in found if name not in known]
    if missing:
        raise UnsupportedModuleError(f"the module has no layer {missing[0]!r}; its layers are {', '.join(known)}.")
    chain = Chain(found, tuple(_supported(name, known[name]) for name in found))
    _check_parameters(module, chain)
    for junction in range(len(found) - 1):
        _check_widths(chain, junction)
    return chain


def _supported(name: str, layer: nn.Module) -> Layer:
    if not isinstance(layer, _LAYERS) or (not isinstance(layer, nn.Linear) and layer.transposed):
        raise UnsupportedModuleError(f"layer {_called(name, layer)} is neither Linear nor Conv, so it has no units.")
    return layer


def _check_parameters(module: nn.Module, chain: Chain) -> None:
    """Raise unless every layer owns its trainable parameters, and no other layer has them."""
    owners: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        owners.setdefault(id(parameter), []).append(name)
    for name, layer in zip(chain.names, chain.layers, strict=True):
        for kind in ("weight", "bias"):
            parameter = getattr(layer, kind)
            if parameter is None:
                continue
            if not isinstance(parameter, nn.Parameter) or id(parameter) not in owners:
                raise UnsupportedModuleError(
                    f"the {kind} of layer {name!r} is computed from other parameters (a parametrization), which do not "
                    "move with it. Remove the parametrization first."
                )
            if len(owners[id(parameter)]) > 1:
                raise UnsupportedModuleError(
                    f"the {kind} of layer {name!r} is shared: {' and '.join(owners[id(parameter)])} are one parameter, "
                    "so it cannot be moved in one place alone."
                )
            if not parameter.requires_grad:
                raise UnsupportedModuleError(
                    f"the {kind} of layer {name!r} is frozen, and the units next to it move with it. Set "
                    "requires_grad=True, or leave the layer out (by layers=, where the solver takes them)."
                )


def _check_widths(chain: Chain, junction: int) -> None:
    before, after = chain.layers[junction], chain.layers[junction + 1]
    width = chain.width(junction)
    taken = after.in_features if isinstance(after, nn.Linear) else after.in_channels
    flattened = isinstance(after, nn.Linear) and not isinstance(before, nn.Linear)
    if taken != width and not (flattened and taken % width == 0):
        raise UnsupportedModuleError(
            f"layer {chain.names[junction]!r} has {width} outputs and layer {chain.names[junction + 1]!r} takes "
            f"{taken}; they are no neighbors."
        )


def _traced(module: nn.Module) -> tuple[str, ...]:
    try:
        graph = fx.symbolic_trace(module).graph
    except Exception as error:  # tracing runs the users' own code, which may raise anything
        raise UnsupportedModuleError(
            f"the module cannot be traced ({type(error).__name__}: {error}). Declare its layers in the order in which "
            "data pass them, for example layers=['0', '2', '4']."
        ) from error
    known = dict(module.named_modules())
    weighted = [n for n in graph.nodes if n.op == "call_module" and isinstance(known[str(n.target)], _LAYERS)]
    names = tuple(str(node.target) for node in weighted)
    for name in names:
        if names.count(name) > 1:
            raise UnsupportedModuleError(
                f"layer {name!r} is called {names.count(name)} times, so its units are shared."
            )
    fetched = {str(node.target) for node in graph.nodes if node.op == "get_attr"}  # by forward itself
    for name in names:
        for kind in ("weight", "bias"):
            if f"{name}.{kind}" in fetched:
                raise UnsupportedModuleError(
                    f"the {kind} of layer {name!r} is used outside the layer too, so it cannot be scaled in one place "
                    "alone."
                )
    for layer, following in pairwise(weighted):
        _check_between(layer, following, known)
    return names


def _check_between(node: fx.Node, end: fx.Node, known: dict[str, nn.Module]) -> None:
    """Raise for the first operation from one layer to the next that has no symmetry."""
    before, after = (_supported(str(layer.target), known[str(layer.target)]) for layer in (node, end))
    if isinstance(before, nn.Linear) and not isinstance(after, nn.Linear):
        raise UnsupportedModuleError(
            f"the convolution {_called_target(end, known)} follows the Linear layer {str(node.target)!r}, whose units "
            "are the last dimension and not the channels, so they cannot be rescaled there. Where something in between "
            "turns units into channels, declare the layers by layers=."
        )
    positions = 0 if isinstance(before, nn.Linear) else len(before.kernel_size)  # dimensions beside the units
    flat = False
    while True:
        if len(node.users) != 1:
            raise UnsupportedModuleError(
                f"the output of {_named(node, known)} is used {len(node.users)} times (a residual connection, a "
                "reshape by its own size, or the like); only layers in a row are supported. Where that is harmless, "
                "declare the layers by layers=."
            )
        node = next(iter(node.users))
        if node is end:
            break
        kind = _kind(node, known, positions, flat)
        if kind == "no":
            raise UnsupportedModuleError(
                f"{_named(node, known)} between layers {_called_target(end, known)} and the one before it is not "
                "positively homogeneous unit by unit (ReLU, leaky ReLU, dropout, pooling and nn.Flatten are), so the "
                "units there cannot be rescaled. Those of other layers in a row can: name them by layers=."
            )
        flat = flat or kind == "flatten"
    if positions and isinstance(after, nn.Linear) and not flat:
        raise UnsupportedModuleError(
            f"layer {_called_target(end, known)} follows a convolution without nn.Flatten, so it mixes positions, not "
            "channels."
        )


def _kind(node: fx.Node, known: dict[str, nn.Module], positions: int, flat: bool) -> str:
    """ "flatten", "homogeneous" or "no"."""
    if node.op == "call_module":
        module = known[str(node.target)]
        name = type(module).__name__
        if isinstance(module, nn.Flatten):
            return "flatten" if (module.start_dim, module.end_dim) == (1, -1) else "no"
        pool = name[:-2] in _POOLS and name[-2:] == f"{positions}d" and not flat
        return "homogeneous" if isinstance(module, _HOMOGENEOUS) or pool else "no"
    if node.op == "call_function":
        if node.target is torch.flatten:
            return _flattening(node)
        called = getattr(node.target, "__name__", "")
        named = next((n for n in _FUNCTION_POOLS if getattr(F, n) is node.target), called)
        pool = _FUNCTION_POOLS.get(named) == positions and positions > 0 and not flat
        return "homogeneous" if node.target in _FUNCTIONS or pool else "no"
    if node.op == "call_method":
        if node.target == "flatten":
            return _flattening(node)
        return "homogeneous" if node.target in _METHODS else "no"
    return "no"


def _flattening(node: fx.Node) -> str:
    """ "flatten" where a call of flatten makes one dimension of all but the first."""
    given = {**dict(zip(("start_dim", "end_dim"), node.args[1:], strict=False)), **node.kwargs}
    return "flatten" if (given.get("start_dim", 0), given.get("end_dim", -1)) == (1, -1) else "no"


def _called(name: str, module: nn.Module) -> str:
    return f"{name!r} ({type(module).__name__})"


def _called_target(node: fx.Node, known: dict[str, nn.Module]) -> str:
    return _called(str(node.target), known[str(node.target)])


def _named(node: fx.Node, known: dict[str, nn.Module]) -> str:
    if node.op == "call_module":
        return f"layer {_called_target(node, known)}"
    if node.op == "output":
        return "the output of the module"
    target = node.target
    return f"the operation {target if isinstance(target, str) else getattr(target, '__name__', inspect.unwrap(target))}"
