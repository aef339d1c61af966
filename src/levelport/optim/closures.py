"""The loss of one step, as optimizers want it: evaluated once for good, and then as often as they like.

Optimizers here take a *loss-only* callable, ``lambda: loss_fn(model(x), y)``: values, gradients and Hessian-vector
products all follow from it. :class:`StepLoss` is also a closure in torch's sense (it puts gradients into ``.grad``
and returns the loss), so every torch optimizer takes it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from levelport.objective import Cost, Ledger, ObjectiveError
from levelport.objectives.function import as_scalar_loss, differentiable
from levelport.objectives.isolation import RandomState, isolated

RIGHT_FORM = (
    "the closure called backward(). Pass a loss-only callable, from which gradients and Hessian-vector products are "
    "derived:\n\n    loss = optimizer.step(lambda: loss_fn(model(x), y))\n\n"
    "with no zero_grad() and no backward() inside. For accumulated or scaled gradients call step() without a closure "
    "and teleport by hand: Teleported(..., schedule=Never()) and optimizer.teleport(loss)."
)


class StepLoss:
    """A loss-only callable, bound to the parameters that it depends on, for the duration of one step.

    The first evaluation is the real one: it moves BatchNorm statistics and random generators as ordinary training
    does. Every later one leaves no trace and sees the same random numbers as the first.

    Args:
        loss: computes and returns the loss.
        parameters: whose ``.grad`` is set.
        after_backward: called when gradients are in ``.grad``, for instance to clip them.
        either: also accept a standard closure, which calls ``backward()`` by itself.
    """

    def __init__(
        self,
        loss: Callable[[], Tensor],
        parameters: Iterable[Tensor],
        *,
        after_backward: Callable[[], object] | None = None,
        either: bool = False,
    ) -> None:
        if not callable(loss):
            raise TypeError(
                f"the closure must be a callable that returns the loss, not a {type(loss).__name__}: "
                "optimizer.step(lambda: loss_fn(model(x), y))."
            )
        self.raw = loss
        self._parameters = [p for p in parameters if p.requires_grad]
        if not self._parameters:
            raise ObjectiveError("no parameter has requires_grad=True, so there is nothing to optimise.")
        self._after_backward = after_backward
        self._either = either
        self._device = self._parameters[0].device
        self.random_state = RandomState.capture(self._device)
        self.ledger = Ledger()
        self._evaluated = False
        self._unused: Tensor | None = None

    @classmethod
    def of(cls, closure: Callable[[], Tensor], parameters: Iterable[Tensor], *, either: bool = False) -> StepLoss:
        """``closure`` itself if a wrapper has already made it a StepLoss."""
        return closure if isinstance(closure, StepLoss) else cls(closure, parameters, either=either)

    def __call__(self) -> Tensor:
        """A closure in torch's sense. The gradient of :meth:`evaluate_first` is used before a new one is made."""
        if self._unused is not None:
            loss, self._unused = self._unused, None
            return loss
        return self._backward()

    def evaluate_first(self) -> Tensor:
        """Loss and gradients at the parameters as they are; the next call gets them for free."""
        self._unused = self._backward()
        return self._unused

    def forget(self) -> None:
        """The parameters have moved: what :meth:`evaluate_first` found no longer holds."""
        self._unused = None

    def value(self) -> float:
        """The loss alone, without graph and without trace; NaN or inf where it is undefined."""
        self.ledger.values += 1
        with isolated(self._device, replay=self.random_state), torch.no_grad():
            return float(as_scalar_loss(self.raw()))

    def charge(self, cost: Cost) -> None:
        """Add what an optimizer spent on the same loss by other means."""
        self.ledger.values += cost.values
        self.ledger.gradients += cost.gradients
        self.ledger.hvps += cost.hvps

    def _backward(self) -> Tensor:
        """Loss and gradients; the first time for good, later without a trace."""
        self.ledger.gradients += 1
        if self._evaluated:
            with isolated(self._device, replay=self.random_state):
                loss = self._loss_and_gradients()
        else:
            loss = self._loss_and_gradients()
            self._evaluated = True
        if self._after_backward is not None:
            self._after_backward()
        return loss

    def _loss_and_gradients(self) -> Tensor:
        before = [p.grad for p in self._parameters]
        for p in self._parameters:
            p.grad = None
        try:
            with differentiable():
                loss = self.raw()
                if any(p.grad is not None for p in self._parameters):
                    if not self._either:
                        raise TypeError(RIGHT_FORM)
                    return as_scalar_loss(loss).detach()
                scalar = as_scalar_loss(loss)
            if not scalar.requires_grad:
                raise ObjectiveError(
                    "the loss does not depend on the parameters of this optimizer: it has no graph. Compute it from "
                    "the live parameters, with no detach() and no torch.no_grad() inside."
                )
            # backward, not autograd.grad: hooks on parameters and DistributedDataParallel need it.
            with differentiable():
                scalar.backward()
        except BaseException:
            for p, gradient in zip(self._parameters, before, strict=True):
                p.grad = gradient
            raise
        return scalar.detach()
