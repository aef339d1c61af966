"""Objectives by automatic differentiation.

The gradient is one backward pass. An HVP is one more backward pass *through the graph of that gradient*,

    ∇²f(x) v = ∇ₓ ⟨∇f(x), v⟩,

which costs about 1.5 gradients once the graph exists, against 4 to 6 for ``torch.autograd.functional.hvp``
and 4 for an eager ``torch.func.jvp`` of the gradient. The graph belongs to its point and dies with it: only
``torch.autograd.grad`` is ever called, never ``backward``, so no ``.grad`` is touched and nothing leaks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from levelport.objective import Ledger, NotDeterministicError, Objective, ObjectiveError, Point
from levelport.objectives.isolation import isolated, recover, twice_differentiable
from levelport.objectives.structure import Structure, Variables, X

CALLED_BACKWARD = (
    "the loss called backward(). Return the loss itself, as in lambda: loss_fn(model(x), y): gradients and "
    "Hessian-vector products are derived from it."
)

LOSS = "the loss"
"""What messages call f."""

OTHER_MODEL = (
    "the loss does not depend on the parameters that should move. Compute it from the live parameters, with no "
    "detach() and no torch.no_grad() inside; or it calls another model than the one that has these parameters."
)

_OTHER_TENSORS = (
    "{} does not depend on x, but on other tensors that require gradients, such as the parameters of a module. Compute "
    "it from x, for a module by torch.func.functional_call(module, x, inputs)."
)

SPARSE_GRADIENT = (
    "a parameter has a sparse gradient, which has no second derivative. Use nn.Embedding(..., sparse=False)."
)

_IN_FORWARD = (
    (
        ("Inference tensors cannot be saved", "on inference tensor", "to inference tensor"),
        "the loss uses a tensor that was made inside torch.inference_mode(), which autograd cannot work with. Make the "
        "data and the model outside, or pass copies: tensor.clone() outside of inference mode.",
    ),
    (
        ("leaf Variable that requires grad is being used in an in-place", "is being modified inplace"),
        "the loss changes x in place. Let it work on a copy: x = x.clone().",
    ),
    (
        ("Can't call numpy() on Tensor",),
        "the loss passes x to NumPy, which keeps no derivatives. Use torch's functions, torch.exp for np.exp, or wrap "
        "a function in NumPy: levelport.NumpyObjective(fun, jac, dimension=n).",
    ),
    (
        ("'numpy.ndarray' and 'Tensor'", "'Tensor' and 'numpy.ndarray'", "must be Tensor, not numpy.ndarray"),
        "the loss combines a NumPy array with x, which is a tensor: {message} Convert the data once, "
        "data = torch.as_tensor(data), or wrap a function in NumPy: levelport.NumpyObjective(fun, jac, dimension=n).",
    ),
    (
        ("must have the same dtype", "to have the same dtype"),
        "the loss combines tensors of different dtypes: {message} Convert the data, or start from an x of their dtype.",
    ),
)
"""(what torch's message contains, the sentence), for the loss itself."""

_IN_BACKWARD = (
    (
        ("donated buffers", "aot_autograd"),
        "the loss runs through torch.compile, whose backward pass cannot be differentiated again. Use the module as it "
        "was before compiling in this loss: compiled._orig_mod is the same module with the same parameters.",
    ),
    (
        ("incompatible with .grad()",),
        "the loss uses reentrant activation checkpointing, which hides derivatives. Pass use_reentrant=False to "
        "torch.utils.checkpoint.checkpoint.",
    ),
    (
        ("through the graph a second time", "saved intermediate values"),
        "the graph of the loss is gone: the loss calls backward() itself, or it uses a tensor that was computed before "
        "it and is freed. Compute everything from the parameters inside the loss and return it.",
    ),
    (
        ("modified by an inplace operation",),
        "the loss changes a tensor in place that its derivative needs, or was computed before it is asked for. Replace "
        "operations such as x += 1 or x.relu_() by x = x + 1 or x.relu(), and compute the loss anew in every call.",
    ),
    (("sparse",), SPARSE_GRADIENT),
    (
        ("_embedding_bag",),
        "nn.EmbeddingBag has no second derivative. Use nn.Embedding and reduce its output, for instance by "
        ".mean(dim=1): the weights are the same.",
    ),
    (
        ("scaled_dot_product", "flash_attention"),
        "the loss chooses a fused kernel of attention by itself, and that has no second derivative: {message} Leave "
        "the choice out, or make it torch.nn.attention.SDPBackend.MATH.",
    ),
    (
        ("not implemented", "differentiate twice", "does not support", "once_differentiable"),
        "an operation of the loss has no second derivative: {message} Replace it by one that has.",
    ),
)
"""The same for derivatives."""


@contextmanager
def explained(*, derivative: bool, name: str = LOSS) -> Iterator[None]:
    """Turns torch's complaints about the loss, or about its derivatives, into errors with a remedy."""
    try:
        yield
    except ObjectiveError:
        raise
    except (RuntimeError, TypeError) as error:
        message = str(error)
        for signs, sentence in (*_IN_FORWARD, *(_IN_BACKWARD if derivative else ())):
            if any(sign in message for sign in signs):
                told = sentence.replace(LOSS, name, 1).format(message=message.splitlines()[0].rstrip(".") + ".")
                raise ObjectiveError(told) from error
        raise


class DerivativeCheck:
    """Checks, once per objective, that derivatives reach everything the loss depends on.

    Where autograd finds no way from the loss back to some entries of x, either the loss does not depend on them, and
    their derivative is zero, or the way is cut: by ``detach()``, ``torch.no_grad()``, NumPy or reentrant
    checkpointing. Moving those entries tells the two apart. Without this a cut loss looks like a stationary one.

    Each evaluation is charged to ``ledger`` as a value of f, also where it is one of a part of f alone.

    Args:
        ledger: of the objective.
        name: what messages call f.
        unrelated: the error where f depends on no entry at all; empty where f may be constant, without a graph.
    """

    def __init__(self, ledger: Ledger, name: str = LOSS, *, unrelated: str = "") -> None:
        self.done = False
        self.name = name
        self._ledger = ledger
        self._unrelated = unrelated

    def verify(self, x: Tensor, loss: Tensor, silent: Tensor, evaluate: Callable[[Tensor], float]) -> None:
        """Raise :class:`ObjectiveError` if ``evaluate`` changes with the ``silent`` entries of ``x`` (a mask)."""
        value = float(loss.detach())
        if self.done or not math.isfinite(value):
            return
        size = torch.finfo(x.dtype).eps ** 0.25 * (1.0 + x.abs())
        shorter = (torch.full_like(x, torch.finfo(x.dtype).tiny ** share) for share in (0.25, 0.5, 0.75))
        for step in (size, -size, *shorter):  # some of them may leave the domain of f
            self._ledger.values += 1
            elsewhere = evaluate(torch.where(silent, x + step, x))
            # A parallel sum may change in its last bits by itself.
            slack = 1e2 * torch.finfo(x.dtype).eps * abs(value)
            if math.isfinite(elsewhere) and abs(elsewhere - value) > slack:
                self._ledger.values += 1
                again = evaluate(x)
                if math.isfinite(again) and abs(again - value) > slack:
                    raise NotDeterministicError.between(value, again, self.name)
                which = "x" if bool(silent.all()) else f"{int(silent.sum())} of the {x.numel()} entries of x"
                raise ObjectiveError(
                    f"{self.name} depends on x, but no derivative reaches {which}: it is computed on detached data, "
                    "under torch.no_grad() or through reentrant checkpointing. Compute it from x itself, without "
                    ".detach(), .data, .item() or NumPy, checkpoint with use_reentrant=False, and set "
                    "requires_grad=False on parameters that shall stay as they are."
                )
            if math.isfinite(elsewhere):
                if (self._unrelated or loss.requires_grad) and bool(silent.all()):
                    raise ObjectiveError(self._unrelated or _OTHER_TENSORS.format(self.name))
                break
        self.done = True


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
        check: DerivativeCheck,
        *,
        curvature: bool = False,
        penalty: float = 0.0,
    ) -> None:
        super().__init__(x, ledger)
        self._forward = forward
        self._derivative_check = check
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
            self._graph = self._evaluate_forward(self.x)
        return self._graph

    def _evaluate_forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        with differentiable(), twice_differentiable(x.device), self._explained():
            loss, leaves = self._forward(x.clone() if x.is_inference() else x.detach())
        if any(leaf.grad is not None for leaf in leaves):
            raise ObjectiveError(CALLED_BACKWARD)
        return loss, leaves

    def _explained(self) -> AbstractContextManager[None]:
        """Context of a forward pass."""
        return explained(derivative=False, name=self._derivative_check.name)

    def _differentiating(self) -> AbstractContextManager[None]:
        """Context of a backward pass."""
        return nullcontext()

    def _penalised(self, loss: Tensor) -> Tensor:
        if self._penalty:
            return loss.detach() + self._penalty * torch.dot(self.x, self.x)
        return loss.detach()

    def _evaluate_value(self) -> Tensor:
        return self._penalised(self._run_forward()[0])

    def _evaluate_gradient(self) -> tuple[float | Tensor, Tensor]:
        loss, leaves = self._run_forward()
        with self._differentiating():
            gradient, silent = flat_gradient(loss, leaves, create_graph=self._curvature)
        if self._curvature:
            self._differentiable_gradient = gradient
            gradient = gradient.detach()
        if silent is not None and not self._derivative_check.done:
            self._derivative_check.verify(self.x, loss, silent, self._value_elsewhere)
        if self._penalty:
            gradient = gradient + 2.0 * self._penalty * self.x
        value = self._value if self._value is not None else self._penalised(loss)
        return value, gradient

    def _value_elsewhere(self, x: Tensor) -> float:
        """Return the loss without penalty at another x."""
        return float(self._evaluate_forward(x)[0].detach())

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        loss, leaves = self._run_forward()
        if self._differentiable_gradient is None:
            with self._differentiating():
                self._differentiable_gradient, _ = flat_gradient(loss, leaves, create_graph=True)
        with self._differentiating():
            product = second_backward(self._differentiable_gradient, leaves, v)
        return product + 2.0 * self._penalty * v if self._penalty else product


def differentiable() -> AbstractContextManager[object]:
    """Graphs are recorded in here, whatever the caller is inside of: no_grad or inference mode."""
    if torch.is_inference_mode_enabled():
        return torch.inference_mode(False)  # switches gradients on as well
    return nullcontext() if torch.is_grad_enabled() else torch.enable_grad()


def flat_gradient(loss: Tensor, leaves: list[Tensor], *, create_graph: bool) -> tuple[Tensor, Tensor | None]:
    """The gradient as a flat vector, and the mask of the entries that no derivative reaches (None: all are)."""
    # The caller may be inside torch.no_grad(); the flat gradient needs its graph all the same, or HVPs would vanish.
    with differentiable(), explained(derivative=True):
        parts: tuple[Tensor | None, ...] = (None,) * len(leaves)
        if loss.requires_grad:
            parts = torch.autograd.grad(loss, leaves, retain_graph=True, create_graph=create_graph, allow_unused=True)
        found = [torch.zeros_like(leaf) if part is None else part for part, leaf in zip(parts, leaves, strict=True)]
        gradient = torch.cat([part.reshape(-1) for part in found])
    if all(part is not None for part in parts):
        return gradient, None
    silent = [torch.full_like(leaf, part is None, dtype=torch.bool) for part, leaf in zip(parts, leaves, strict=True)]
    return gradient, torch.cat([mask.reshape(-1) for mask in silent])


def second_backward(gradient: Tensor, leaves: list[Tensor], v: Tensor) -> Tensor:
    """∇ₓ ⟨gradient, v⟩ as a flat vector."""
    if not gradient.requires_grad:  # f is affine around x
        return torch.zeros_like(v)
    with differentiable(), explained(derivative=True):
        v = v.clone() if v.is_inference() else v
        # The same bits as with v as grad_outputs, for which torch imports sympy at the first call: 0.5 s.
        along = torch.dot(gradient, v)
        parts = torch.autograd.grad(along, leaves, retain_graph=True, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])


def as_scalar_loss(loss: object, name: str = LOSS) -> Tensor:
    """``loss`` as a 0-d tensor, or an error that says what came instead."""
    if not isinstance(loss, Tensor):
        if isinstance(loss, Mapping) or hasattr(loss, "loss"):
            raise ObjectiveError(
                f"{name} returned a {type(loss).__name__}, not a tensor. Of the output of a model return the loss in "
                'it: output.loss or output["loss"].'
            )
        raise ObjectiveError(
            f"{name} returned a {type(loss).__name__}, not a tensor. Return the 0-d tensor itself: "
            "no .item(), no .backward(), no detach()."
        )
    if loss.numel() != 1:
        raise ObjectiveError(
            f"{name} returned a tensor of shape {tuple(loss.shape)}; it must be a scalar. "
            "Reduce it, for example with .mean() or .sum()."
        )
    if loss.is_complex():
        raise ObjectiveError(f"{name} is complex; it must be a real scalar, for example loss.abs().")
    if not loss.is_floating_point():
        raise ObjectiveError(
            f"{name} has the dtype {loss.dtype}: a number of that kind has no derivative. Return a floating-point "
            "scalar that depends smoothly on x."
        )
    return loss if loss.ndim == 0 else loss.reshape(())  # a view would cost a node of the graph


class FunctionObjective(Objective):
    """f given as a Python function of one tensor, or of a list or dict of tensors.

    Where its first evaluation calls a module, modules work on copies of their buffers, so that evaluations leave
    BatchNorm statistics as they are; not so in a backward pass that runs checkpointed modules again.

    Example:
        >>> objective = FunctionObjective(lambda x: (x**4).sum(), like=torch.ones(3))
        >>> objective.at(torch.ones(3)).gradient.round(decimals=3)
        tensor([4., 4., 4.])
    """

    def __init__(self, fun: Callable[[Any], Tensor], like: Variables, *, name: str = LOSS) -> None:
        super().__init__()
        self.fun, self.name = fun, name
        self._derivative_check = DerivativeCheck(self.ledger, name)
        self._calls_modules = True  # until an evaluation calls none: watching for calls takes as long as a small loss
        self.structure = Structure(like)
        self.dimension, self.dtype, self.device = self.structure.dimension, self.structure.dtype, self.structure.device

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        return GraphPoint(x, self.ledger, self._forward, self._derivative_check, curvature=curvature)

    def _forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        leaves = [leaf.requires_grad_() for leaf in self.structure.leaves(x)]
        variables = self.structure.assemble(leaves)
        if not self._calls_modules:
            return as_scalar_loss(self.fun(variables), self._derivative_check.name), leaves
        with isolated(self.device, full_precision=True) as copies:
            loss = as_scalar_loss(self.fun(variables), self._derivative_check.name)
        self._calls_modules = bool(copies.modules)
        return loss, leaves


def as_objective(fun: Callable[[Any], Tensor] | Objective, x: X) -> tuple[Objective, Structure[X], Tensor]:
    """The objective, the structure of ``x``, and ``x`` as a flat vector (a copy); where functions of x begin."""
    recover()
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
