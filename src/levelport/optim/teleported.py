"""``Teleported``: any torch optimizer, with teleports.

One step, if the schedule says so, is

    w⁺ = teleport(w),     w ← w⁺ - ∇f(w⁺)/λ, checked,     w ← the wrapped optimizer's step,

at no higher a loss up to there. With ``first_step="optimizer"`` the middle one is left out: Algorithm 1 of the paper,
and what line searches get in any case. The teleports are a :class:`~levelport.Teleporter`'s. The wrapper owns no
parameters and no state of the wrapped optimizer: ``param_groups``, ``state`` and ``defaults`` are the wrapped one's own
objects, so LR schedulers and training frameworks see one optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from levelport import checks
from levelport.objective import Objective
from levelport.objectives.batches import Batches, Loss
from levelport.objectives.isolation import recover
from levelport.optim.armijo import ArmijoSGD
from levelport.optim.closures import FlatOptimizer, StepLoss
from levelport.optim.first_step import TeleportStep
from levelport.optim.schedules import Schedule
from levelport.optim.teleporter import DeclineHook, Hook, Teleporter
from levelport.solvers import Solver

_OURS = "levelport"
"""The one key of ours in a ``state_dict`` that otherwise is the wrapped optimizer's."""

_ACCUMULATED = (
    "gradients were accumulated before a teleport, so they belong to the point that was left. Teleport before the "
    "first of the batches, by levelport.Teleporter or a callback of levelport.integrations."
)

_NEEDS_CLOSURE = (
    "call step(lambda: loss_fn(model(x), y)). If gradients come from elsewhere (a GradScaler, accumulation), use "
    "schedule=Never() and call teleport(loss) between steps."
)

_DIFFERENTIATING = ("adahessian", "sophia", "sophiah")
"""Optimizers of other packages whose steps need gradients with a graph."""


class Teleported(FlatOptimizer):
    """An optimizer that teleports before some of its steps.

    Args:
        optimizer: takes the steps.
        schedule: when to teleport, in steps: ``Every(50)``, ``At([0, 100])``, ``Never()``. None is
            :class:`~levelport.optim.WhileAffordable` for SGD without momentum, ``ArmijoSGD`` and ``PolyakSGD``; other
            optimizers need a schedule, because none was found that helps them. Trials without success delay a run by at
            most a tenth of its cost; SGD near its limit of stability may lose more than that in the loss.
        solver: how to teleport: "krylov" (brief), "auto", "sqp", or one with limits, ``Krylov(max_hvps=10)``.
        momentum: at a teleport, "keep" the optimizer's state (momentum buffers, second moments), or "reset" it.
        teleport_on: what to teleport on, if not the loss of the step: a loss over a fixed sample, or
            :class:`~levelport.Batches`, each batch of which costs as much as one of a step. An adaptive schedule then
            judges by that loss, evaluated now and then. Where the loss would rise on ``Batches.unused``, or on the
            step's own batch, the move is shortened or refused, and the result says so.
        noise: "refuse" raises if two evaluations at one point differ (dropout), "replay" repeats the random numbers.
            An adaptive schedule does not require a teleport at this step, so there "refuse" only warns, once.
        first_step: "included" makes the teleport and a checked gradient step of size 1/λ from it one move; "optimizer"
            leaves the first step to the optimizer, as Algorithm 1 of the paper does. None takes "optimizer" for
            ``ArmijoSGD``, whose line search is safe there, and "included" for all others.
        after_backward: called when the gradients of a step are in ``.grad``, for instance to clip them.
        distribute: wraps the objective of a teleport, for instance
            ``functools.partial(DistributedObjective, samples=len(shard))``; needs a schedule. None averages over the
            ranks of the default process group, if there is one, as DistributedDataParallel does.

    ``optimizer.teleporter.summary()`` tells what was tried.

    Attributes:
        last_teleport: the :class:`~levelport.optim.TeleportStep` of the last teleport, None before the first.
        wrapped: the optimizer.
        teleporter: the :class:`~levelport.Teleporter`.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> x, y = torch.ones(4, 2), torch.zeros(4, 1)
        >>> opt = Teleported(torch.optim.SGD(model.parameters(), lr=0.1))
        >>> loss = opt.step(lambda: torch.nn.functional.mse_loss(model(x), y))
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule | None = None,
        *,
        solver: str | Solver = "krylov",
        momentum: Literal["keep", "reset"] = "keep",
        teleport_on: Loss | Batches | None = None,
        noise: Literal["refuse", "replay"] = "refuse",
        first_step: Literal["included", "optimizer"] | None = None,
        after_backward: Callable[[], object] | None = None,
        distribute: Callable[[Objective], Objective] | None = None,
    ) -> None:
        if isinstance(optimizer, Teleported):
            raise TypeError("this optimizer teleports already; wrap the one inside it.")
        if type(optimizer).__name__.lower() in _DIFFERENTIATING:
            raise TypeError(
                f"{type(optimizer).__name__} differentiates gradients itself, after backward(create_graph=True). Leave "
                "the steps to your loop and let levelport.Teleporter teleport: teleporter.maybe(loss) before each."
            )
        if after_backward is not None:
            checks.function("after_backward", after_backward)
        self.teleporter = Teleporter(
            optimizer,
            schedule,
            solver=solver,
            momentum=momentum,
            teleport_on=teleport_on,
            noise=noise,
            first_step=first_step,
            distribute=distribute,
        )
        self._linked = False
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self.wrapped = optimizer
        self._link()
        self._after_backward = after_backward
        kind = type(optimizer)
        self._evaluates_once = kind.__module__.startswith("torch.optim.") and kind is not torch.optim.LBFGS

    def _link(self) -> None:
        """Share the objects of the wrapped optimizer, also when its ``load_state_dict`` replaces them."""
        self._share()
        self.wrapped.register_load_state_dict_post_hook(lambda _: self._share())

    def _share(self) -> None:
        self.param_groups = self.wrapped.param_groups
        self.state = self.wrapped.state
        self.defaults = self.wrapped.defaults
        self._linked = True

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the wrapped optimizer, and with it to this one."""
        if self._linked:
            self.wrapped.add_param_group(param_group)
        else:  # torch's constructor registers the groups that exist already
            super().add_param_group(param_group)

    @property
    def schedule(self) -> Schedule:
        """When teleports take place."""
        return self.teleporter.schedule

    @property
    def iteration(self) -> int:
        """Steps taken."""
        return self.teleporter.iteration

    @property
    def last_teleport(self) -> TeleportStep | None:
        """The last teleport, None before the first and after a resume."""
        return self.teleporter.last_teleport

    @overload  # type: ignore[override]  # torch's own signature has closures that return float
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], Tensor]) -> Tensor: ...

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Teleport if the schedule says so, then let the wrapped optimizer take its step.

        Args:
            closure: a loss-only callable, ``lambda: loss_fn(model(x), y)``; no ``backward()`` inside. Where the
                schedule has no teleport left, or ``teleport_on`` says on what, a standard closure that calls
                ``backward()`` is as good; elsewhere it is refused at the first step, not when a teleport is due. May
                be left out (gradients are then those in ``.grad``) where no teleport is due on a loss of the step.

        Returns:
            The loss before the teleport and the step.
        """
        teleporter, coming = self.teleporter, self.teleporter.coming
        may_be_due = coming == teleporter.iteration
        if closure is None:
            if may_be_due:
                raise TypeError(f"the schedule ({self.schedule}) needs the loss: {_NEEDS_CLOSURE}")
            teleporter.iteration += 1
            self.wrapped.step()
            return None
        recover()
        on_other = teleporter.teleport_on is not None
        step_loss = StepLoss(
            closure,
            self.all_parameters(),
            after_backward=self._after_backward,
            either=(on_other or coming is None) and not isinstance(self.wrapped, ArmijoSGD),  # which needs the loss
            may_move=may_be_due or teleporter.policy.monitor.watching,
            random=teleporter.noise == "replay" or not self._evaluates_once,
        )
        loss = step_loss.evaluate_first()
        if step_loss.accumulates and on_other and may_be_due:
            raise TypeError(_ACCUMULATED)  # before anything moves
        if teleporter.iteration == 0 and self.schedule.watches:
            self.gradient_norm()  # sparse gradients are refused now, not at the first trial
        teleporter.moved = False
        needs_loss = teleporter.needs_loss
        if needs_loss or may_be_due:
            own = None if step_loss.standard else closure
            value = float(loss) if needs_loss else None
            result = teleporter.teleport_if_due(own, value, random_state=step_loss.random_state)
            if result is not None:
                self._prepare_first_step(result)
            if teleporter.moved and step_loss.accumulates:  # a move was undone
                raise TypeError(_ACCUMULATED)
        else:
            teleporter.iteration += 1
        if self._evaluates_once:  # its hooks see the gradients, and a compiled step sees no closure
            if teleporter.moved:
                step_loss.settle(moved=True)
                step_loss()
            self.wrapped.step()
        else:
            step_loss.settle(teleporter.moved)
            self.wrapped.step(step_loss)  # type: ignore[arg-type]  # returns a tensor, where torch says float
        teleporter.spent += step_loss.cost
        return loss

    # torch would run hooks and a range of the profiler around this step, and again around the wrapped optimizer's.
    step.hooked = True  # type: ignore[attr-defined]

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Register it on the wrapped optimizer, whose step it is."""
        return self.wrapped.register_step_pre_hook(hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Register it on the wrapped optimizer, whose step it is."""
        return self.wrapped.register_step_post_hook(hook)

    def teleport(self, loss: Loss | Batches) -> TeleportStep:
        """Teleport now, on ``loss``; see :meth:`levelport.Teleporter.teleport`."""
        result = self.teleporter.teleport(loss)
        self._prepare_first_step(result)
        return result

    def register_teleport_hook(self, hook: Hook, *, on_decline: DeclineHook | None = None) -> RemovableHandle:
        """Call ``hook(result)`` after every teleport; see :meth:`levelport.Teleporter.register_teleport_hook`."""
        return self.teleporter.register_teleport_hook(hook, on_decline=on_decline)

    def _prepare_first_step(self, result: TeleportStep) -> None:
        # Where no teleport was made, or a lower point taken instead of one, the next step is an ordinary one.
        if result.kind == "teleport" and isinstance(self.wrapped, ArmijoSGD) and math.isnan(result.first_step):
            self.wrapped.after_teleport(result.teleport.curvature)

    def state_dict(self) -> dict[str, Any]:
        """The wrapped optimizer's, in torch's shape, and ours under the one key "levelport"."""
        return {**self.wrapped.state_dict(), _OURS: self.teleporter.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume. A checkpoint of the bare optimizer loads as well, and leaves the schedule as it is."""
        self.wrapped.load_state_dict({key: value for key, value in state_dict.items() if key != _OURS})
        if _OURS in state_dict:
            self.teleporter.load_state_dict(state_dict[_OURS])
        else:
            self.teleporter.policy.monitor.end()

    def __getstate__(self) -> dict[str, Any]:
        """All but what belongs to this object alone: hooks, and the ``step`` that an LR scheduler has put into it."""
        mine = self.__dict__.items()
        return {name: value for name, value in mine if name != "step" and not name.startswith("_optimizer_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._link()  # torch drops an optimizer's hooks when it is copied

    def __getattr__(self, name: str) -> Any:
        """Look up what only the wrapped optimizer has, such as ``train()`` and ``eval()`` of schedule-free ones."""
        wrapped = self.__dict__.get("wrapped")
        if wrapped is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(wrapped, name)

    def __repr__(self) -> str:
        return f"Teleported({self.teleporter})\n{self.wrapped!r}"
