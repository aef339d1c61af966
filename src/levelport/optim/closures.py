"""The loss of one step, as optimizers want it: evaluated once for good, and then as often as they like.

Optimizers here take a *loss-only* callable, ``lambda: loss_fn(model(x), y)``: values, gradients and Hessian-vector
products all follow from it. :class:`StepLoss` is also a closure in torch's sense (it puts gradients into ``.grad``
and returns the loss), so every torch optimizer takes it as it is. A *standard* closure, which calls ``backward()`` by
itself, is good for steps, but nothing can be teleported on it. :class:`FlatOptimizer` is the base class of the torch
optimizers here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from levelport.objective import ObjectiveError
from levelport.objectives.batches import Batches, Loss
from levelport.objectives.function import OTHER_MODEL, SPARSE_GRADIENT, as_scalar_loss, differentiable
from levelport.objectives.isolation import RandomState, grad_mode, isolated, restoring
from levelport.objectives.parameters import set_aside
from levelport.vectors import norm

_FRAMEWORKS = (
    "Where a framework makes the closure, or gradients are accumulated or scaled, let a levelport.Teleporter teleport "
    "between the steps: teleporter.maybe(loss); for Lightning, Transformers, Ignite and skorch levelport.integrations "
    "has callbacks."
)

RIGHT_FORM = (
    "the closure called backward(). Pass a loss-only callable, from which gradients and Hessian-vector products are "
    "derived:\n\n    loss = optimizer.step(lambda: loss_fn(model(x), y))\n\n"
    f"with no zero_grad() and no backward() inside. {_FRAMEWORKS}"
)
"""For ``step``."""

MAYBE_FORM = (
    "the loss called backward(). Pass a loss-only callable:\n\n"
    "    teleporter.maybe(lambda: loss_fn(model(x), y))\n\n"
    "with no zero_grad() and no backward() inside; your loop computes the gradients of the step after it, as before."
)
"""For ``Teleporter.maybe``."""

NEEDS_LOSS = (
    "a teleport is due and needs the loss as a loss-only callable, lambda: loss_fn(model(x), y), but this closure "
    f"calls backward(). Pass such a loss, or teleport_on=. {_FRAMEWORKS}"
)
"""Where a teleport is due on a closure with a backward."""


class StepLoss:
    """A loss-only callable, bound to the parameters that it depends on, for the duration of one step.

    The first evaluation is the real one: it moves BatchNorm statistics and random generators as ordinary training
    does. Every later one leaves no trace and sees the same random numbers as the first.

    Args:
        loss: computes and returns the loss.
        parameters: whose ``.grad`` is set; that of frozen ones among them is cleared, as ``zero_grad()`` would.
        after_backward: called when gradients are in ``.grad``, for instance to clip them.
        either: also accept a standard closure, which calls ``backward()`` by itself.
        may_move: find out whether such a closure adds to gradients of before, which a move would make wrong.
        advice: the error where such a closure is not accepted.
        random: whether later evaluations may need the random numbers of the first; remembering where they start takes
            a twentieth of a small step.

    Attributes:
        standard: whether the closure called ``backward()`` by itself; known after the first evaluation.
        accumulates: whether it added to gradients that were there before.
        cost: gradient equivalents of the evaluations so far.
    """

    def __init__(
        self,
        loss: Callable[[], Tensor],
        parameters: Iterable[Tensor],
        *,
        after_backward: Callable[[], object] | None = None,
        either: bool = False,
        may_move: bool = False,
        advice: str = RIGHT_FORM,
        random: bool = True,
    ) -> None:
        where = "teleporter.maybe" if advice is MAYBE_FORM else "optimizer.step"
        if not callable(loss):
            raise TypeError(
                f"the loss must be a callable that returns it, not a {type(loss).__name__}: "
                f"{where}(lambda: loss_fn(model(x), y))."
            )
        self.raw = loss
        self._holders = list(parameters)  # a layer frozen on the way still holds its last gradient
        moving = next((p for p in self._holders if p.requires_grad), None)
        if moving is None:
            raise ObjectiveError("no parameter has requires_grad=True, so there is nothing to optimize.")
        self._after_backward = after_backward
        self._either = either
        self._may_move = may_move
        self._advice = advice
        self._device = moving.device
        self.random_state = RandomState.capture(self._device) if random else None
        self.cost = 0.0
        self.standard = False
        self.accumulates = False
        self._evaluated = False
        self._unused: Tensor | None = None
        self._unused_at: list[int] = []

    def __call__(self) -> Tensor:
        """A closure in torch's sense. The gradient of :meth:`evaluate_first` is used before a new one is made.

        Unless the parameters have moved since: sharpness-aware optimizers ask for the gradient elsewhere.
        """
        loss, self._unused = self._unused, None
        if loss is not None and self._unused_at == self._versions():
            return loss
        return self._backward()

    def evaluate_first(self) -> Tensor:
        """Loss and gradients at the parameters as they are; the next call gets them for free."""
        self._unused = self._backward()
        return self._unused

    def settle(self, moved: bool) -> None:
        """After a teleport: where it ``moved`` the parameters, what :meth:`evaluate_first` found no longer holds."""
        if moved:
            self._unused = None
            self._clear_gradients()  # a closure that zeroes nothing would add to those of the point that was left
        else:  # they may have been away and back
            self._unused_at = self._versions()

    def _versions(self) -> list[int]:
        return [p._version for p in self._holders if p.requires_grad]

    def value(self) -> float:
        """The loss alone, without graph and without trace; NaN or inf where it is undefined.

        A loss that differentiates inside, as those of differential equations do, gets its graph all the same.
        """
        self.cost += 0.5
        torch.clear_autocast_cache()  # an autocast block around the step keeps copies of weights that were stepped from
        try:
            with set_aside("grad", self._holders):
                try:
                    value = self._value_in(grad_mode(False))
                except RuntimeError as error:
                    if "does not require grad" not in str(error):
                        raise
                    value = self._value_in(differentiable())
                if any(p.grad is not None for p in self._holders):
                    raise TypeError(self._advice)
        finally:
            torch.clear_autocast_cache()  # in older versions of torch the copies made here have no graph
        return value

    def _value_in(self, graphs: AbstractContextManager[object]) -> float:
        with isolated(self._device, replay=self._replayed()), graphs:
            return float(as_scalar_loss(self.raw()).detach())

    def _replayed(self) -> RandomState:
        if self.random_state is None:  # the loss has no random numbers, as far as its caller knows
            self.random_state = RandomState.capture(self._device)
        return self.random_state

    def _backward(self) -> Tensor:
        """Loss and gradients; the first time for good, later without a trace."""
        self.cost += 1.0
        torch.clear_autocast_cache()  # of the weights that the last step was taken from
        if self._evaluated:
            with isolated(self._device, replay=self._replayed()):
                loss = self._loss_and_gradients()
        else:
            loss = self._loss_and_gradients()
            self._evaluated = True
        if self._after_backward is not None:
            self._after_backward()
        return loss

    def _loss_and_gradients(self) -> Tensor:
        """Loss and gradients, made by the closure itself or from its loss; an error in the loss keeps the old ones."""
        before = [p.grad for p in self._holders]
        with differentiable():
            try:
                loss = self._run_either(before) if self._either else self._run()
                if not (self.standard or loss.requires_grad):
                    raise ObjectiveError(f"{OTHER_MODEL} The loss has no graph.")
            except BaseException:
                for p, gradient in zip(self._holders, before, strict=True):
                    p.grad = gradient
                raise
            before.clear()  # the new ones take their place in memory
            if not self.standard:
                loss.backward()  # not autograd.grad: hooks on parameters and DistributedDataParallel need it
                if all(p.grad is None for p in self._holders):
                    raise ObjectiveError(OTHER_MODEL)
        return loss.detach()

    def _run(self) -> Tensor:
        """The loss of a closure that must not call ``backward()``."""
        self._clear_gradients()
        loss = as_scalar_loss(self.raw())
        for p in self._holders:  # any() takes twice as long
            if p.grad is not None:
                raise TypeError(self._advice)
        return loss

    def _run_either(self, before: list[Tensor | None]) -> Tensor:
        """The loss of a closure of either kind; says in ``standard`` and ``accumulates`` which it was."""
        versions = [_version(gradient) for gradient in before]
        looking: AbstractContextManager[dict[Tensor, Tensor]] = nullcontext({})
        if self._may_move:
            looking = _looking([p for p in self._holders if p.requires_grad and p.grad is not None])
        with looking as found:
            loss = self.raw()
        touched = [
            (p.grad, p.grad is old, p)
            for p, old, version in zip(self._holders, before, versions, strict=True)
            if p.grad is not None and (p.grad is not old or _version(old) != version)
        ]
        if touched:
            made = any(not kept for _, kept, _ in touched)
            # Gradients kept and written to. Where no backward() came by, they may just have been set to zero.
            self.accumulates = any(found[p] if p in found else gradient.any() for gradient, kept, p in touched if kept)
            self.standard = self.standard or made or self.accumulates or bool(found)
        if not self.standard:
            self._clear_gradients()
        return as_scalar_loss(loss)

    def _clear_gradients(self) -> None:
        for p in self._holders:
            p.grad = None


def value_of(loss: Loss | Batches, parameters: Iterable[Tensor]) -> float:
    """What is teleported on, at the parameters, without a trace."""
    terms = loss.terms() if isinstance(loss, Batches) else [(1.0, loss)]
    return sum(weight * StepLoss(term, parameters, advice=NEEDS_LOSS).value() for weight, term in terms)


@contextmanager
def _looking(parameters: Iterable[Tensor]) -> Iterator[dict[Tensor, Tensor]]:
    """Collects whether ``backward()`` adds to anything but zeros in ``.grad``, where it first comes to each parameter.

    Only a hook can tell: afterwards a gradient that was zeroed in place and one that was added to look the same.
    """
    found: dict[Tensor, Tensor] = {}

    def look(p: Tensor, _: Tensor) -> None:
        if p.grad is not None and p not in found:
            found[p] = p.grad.any()

    handles: list[RemovableHandle] = []

    def remove() -> None:
        for handle in handles:
            handle.remove()

    with restoring(remove):
        handles.extend(p.register_hook(partial(look, p)) for p in parameters)
        yield found


def _version(tensor: Tensor | None) -> int:
    """Changes with every write; tensors of inference mode do not count theirs."""
    return -1 if tensor is None or tensor.is_inference() else tensor._version


class FlatOptimizer(torch.optim.Optimizer):
    """An optimizer whose step depends on the gradient of all groups together.

    Closures return the loss as a tensor, as everywhere in torch's documentation. Torch's stubs say ``float``; that is
    why overrides of ``step``, and calls of it with a closure, are exempt from the type check.
    """

    def all_parameters(self) -> list[Tensor]:
        """Those of all groups, frozen ones as well: what ``zero_grad()`` clears."""
        return [p for group in self.param_groups for p in group["params"]]

    @staticmethod
    def moving(group: dict[str, Any]) -> list[tuple[Tensor, Tensor]]:
        """The parameters of ``group`` that a step moves, with their gradients: frozen ones may hold an old one."""
        return [(p, p.grad) for p in group["params"] if p.requires_grad and p.grad is not None]

    def gradient_norm(self) -> float:
        """‖g‖ over everything that moves."""
        gradients = [gradient for group in self.param_groups for _, gradient in self.moving(group)]
        if any(gradient.layout != torch.strided for gradient in gradients):
            raise ObjectiveError(SPARSE_GRADIENT)
        norms = [norm(gradient) for gradient in gradients]
        return float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0

    def loss_of(self, closure: Callable[[], Tensor] | None, *, either: bool = False) -> StepLoss:
        """The loss of a step; ``closure`` itself if a wrapper has already made it a StepLoss."""
        if closure is None:
            raise TypeError(
                f"{type(self).__name__}.step needs the loss: call optimizer.step(lambda: loss_fn(model(x), y))."
            )
        return closure if isinstance(closure, StepLoss) else StepLoss(closure, self.all_parameters(), either=either)
