"""Objectives by automatic differentiation.

The gradient is one backward pass. An HVP is one more backward pass *through the graph of that gradient*,

    ∇²f(x) v = ∇ₓ ⟨∇f(x), v⟩,

which costs about 1.5 gradients once the graph exists, against 4 to 6 for ``torch.autograd.functional.hvp``
and 4 for an eager ``torch.func.jvp`` of the gradient. The graph belongs to its point and dies with it: only
``torch.autograd.grad`` is ever called, never ``backward``, so no ``.grad`` is touched and nothing leaks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from levelport.objective import Ledger, Objective, ObjectiveError, Point
from levelport.objectives.isolation import twice_differentiable
from levelport.objectives.structure import Structure, Variables, X


class GraphPoint(Point):
    """A point whose derivatives come from autograd graphs that it owns.

    ``forward`` maps the flat x to (loss, leaves): a 0-d tensor with a graph, and the tensors to differentiate
    by. ``penalty`` adds penalty·‖x‖² in closed form, outside the graph.
    """

    def __init__(
        self,
        x: Tensor,
        ledger: Ledger,
        forward: Callable[[Tensor], tuple[Tensor, list[Tensor]]],
        *,
        curvature: bool = False,
        penalty: float = 0.0,
    ) -> None:
        super().__init__(x, ledger)
        self._forward = forward
        self._curvature = curvature
        self._penalty = penalty
        self._graph: tuple[Tensor, list[Tensor]] | None = None
        self._differentiable_gradient: Tensor | None = None
        self._released = False

    def release(self) -> None:
        self._released = self._released or self._graph is not None
        self._graph = self._differentiable_gradient = None

    def _run_forward(self) -> tuple[Tensor, list[Tensor]]:
        if self._graph is None:
            if self._released:
                self._ledger.values += 1
            with torch.enable_grad(), twice_differentiable(self.x.device):
                self._graph = self._forward(self.x)
        return self._graph

    @property
    def connected(self) -> bool:
        """Whether autograd sees a way from the loss back to x."""
        return self._run_forward()[0].requires_grad

    def _penalised(self, loss: Tensor) -> float:
        if self._penalty:
            return float(loss.detach() + self._penalty * torch.dot(self.x, self.x))
        return float(loss.detach())

    def _evaluate_value(self) -> float:
        return self._penalised(self._run_forward()[0])

    def _evaluate_gradient(self) -> tuple[float, Tensor]:
        loss, leaves = self._run_forward()
        gradient = _flat_gradient(loss, leaves, create_graph=self._curvature)
        if self._curvature:
            self._differentiable_gradient = gradient
            gradient = gradient.detach()
        if self._penalty:
            gradient = gradient + 2.0 * self._penalty * self.x
        value = self._value if self._value is not None else self._penalised(loss)
        return value, gradient

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        loss, leaves = self._run_forward()
        if self._differentiable_gradient is None:
            self._differentiable_gradient = _flat_gradient(loss, leaves, create_graph=True)
        product = _second_backward(self._differentiable_gradient, leaves, v)
        return product + 2.0 * self._penalty * v if self._penalty else product


def _flat_gradient(loss: Tensor, leaves: list[Tensor], *, create_graph: bool) -> Tensor:
    if not loss.requires_grad:  # constant in x
        return torch.cat([torch.zeros_like(leaf).reshape(-1) for leaf in leaves])
    # The caller may be inside torch.no_grad(); the flat gradient needs its graph all the same, or HVPs would vanish.
    with torch.set_grad_enabled(create_graph):
        with _NamedFailures():
            parts = torch.autograd.grad(
                loss, leaves, retain_graph=True, create_graph=create_graph, materialize_grads=True
            )
        return torch.cat([part.reshape(-1) for part in parts])


def _second_backward(gradient: Tensor, leaves: list[Tensor], v: Tensor) -> Tensor:
    if not gradient.requires_grad:  # f is affine around x
        return torch.zeros_like(v)
    with _NamedFailures():
        parts = torch.autograd.grad(gradient, leaves, v, retain_graph=True, materialize_grads=True)
    return torch.cat([part.reshape(-1) for part in parts])


class _NamedFailures:
    """Turns autograd's complaints about missing second derivatives into an error with a remedy."""

    signs = ("not implemented", "differentiate twice", "does not support", "once_differentiable")

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, RuntimeError) and any(sign in str(error) for sign in self.signs):
            raise ObjectiveError(
                f"an operation of the loss has no second derivative: {str(error).splitlines()[0]} "
                "Replace it by one that has; for fused attention run the loss under "
                "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)."
            ) from error


def as_scalar_loss(loss: object) -> Tensor:
    """``loss`` as a 0-d tensor, or an error that says what came instead."""
    if not isinstance(loss, Tensor):
        raise ObjectiveError(
            f"the loss returned a {type(loss).__name__}, not a tensor. Return the 0-d loss tensor itself: "
            "no .item(), no .backward(), no detach()."
        )
    if loss.numel() != 1:
        raise ObjectiveError(
            f"the loss returned a tensor of shape {tuple(loss.shape)}; it must be a scalar. "
            "Reduce it, for example with .mean() or .sum()."
        )
    if loss.is_complex():
        raise ObjectiveError("the loss is complex; it must be a real scalar, for example loss.abs().")
    return loss.reshape(())


class FunctionObjective(Objective):
    """f given as a Python function of one tensor, or of a list or dict of tensors.

    Example:
        >>> objective = FunctionObjective(lambda x: (x**4).sum(), like=torch.ones(3))
        >>> objective.at(torch.ones(3)).gradient
        tensor([4., 4., 4.])
    """

    def __init__(self, fun: Callable[[Any], Tensor], like: Variables) -> None:
        super().__init__()
        self.fun = fun
        self.structure = Structure(like)
        self.dimension = self.structure.dimension
        self.dtype = self.structure.dtype
        self.device = self.structure.device

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        return GraphPoint(x, self.ledger, self._forward, curvature=curvature)

    def verify_deterministic(self, point: Point) -> None:
        super().verify_deterministic(point)
        self._verify_connected(point)

    def _verify_connected(self, point: Point) -> None:
        """Raise :class:`ObjectiveError` if the loss changes with x but has no graph. Without a graph: one value."""
        if not isinstance(point, GraphPoint) or point.connected:
            return
        elsewhere = self.at(point.x + torch.finfo(self.dtype).eps ** 0.25 * (1.0 + point.x.abs())).value
        if elsewhere != point.value and elsewhere == elsewhere:
            raise ObjectiveError(
                "the loss depends on x, but no derivative reaches x: it was computed on detached data or under "
                "torch.no_grad(). Compute it from x itself, without .detach(), .data, .item() or NumPy."
            )

    def _forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        leaves = [leaf.requires_grad_() for leaf in self.structure.leaves(x.detach())]
        return as_scalar_loss(self.fun(self.structure.assemble(leaves))), leaves


def as_objective(fun: Callable[[Any], Tensor] | Objective, x: X) -> tuple[Objective, Structure[X], Tensor]:
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
    return FunctionObjective(fun, like=x), structure, structure.flatten(x)
