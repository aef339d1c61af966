"""``Teleported``: any torch optimizer, with teleports.

One step, if the schedule says so, is Algorithm 1 of the paper:

    w⁺ = teleport(w),     w ← the wrapped optimizer's step from w⁺.

The wrapper owns no parameters and no state of the wrapped optimizer: ``param_groups``, ``state`` and ``defaults`` are
the wrapped one's own objects, so LR schedulers and training frameworks see one optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

from levelport.objective import Objective
from levelport.objectives.isolation import RandomState
from levelport.objectives.parameters import Batches, Loss, ParametersObjective
from levelport.objectives.structure import check_leaves
from levelport.optim import defaults
from levelport.optim.armijo import ArmijoSGD
from levelport.optim.closures import StepLoss
from levelport.optim.history import History
from levelport.optim.jump import Jump
from levelport.optim.polyak import PolyakSGD
from levelport.optim.schedules import Never, Schedule
from levelport.optim.step_rule import newton_step_size
from levelport.optim.torch_base import FlatOptimizer
from levelport.solvers import Teleporter, TeleportResult


class Teleported(FlatOptimizer):
    """An optimizer that teleports before some of its steps.

    Args:
        optimizer: does the steps.
        schedule: when to teleport; :class:`Never` leaves it to calls of :meth:`teleport`.
        solver, max_hvps, tol, radius: how to teleport, see :func:`levelport.teleport`.
        momentum: at a teleport, "keep" the wrapped optimizer's state (momentum buffers, second moments), or "reset" it.
        teleport_on: what the teleport works on, if not the loss of the step: a full-batch loss, or :class:`Batches`.
        noise: "refuse" raises if two evaluations at one point differ (dropout), "replay" repeats the random numbers of
            the step.
        first_step: "curvature" takes the first step after a teleport with lr = 1/λ, λ the curvature along the gradient
            that the teleport reports. :class:`ArmijoSGD` starts its search there in any case.
        steps_per_epoch: needed by schedules in epochs.
        after_backward: called when the gradients of a step are in ``.grad``, for instance to clip them.
        distribute: wraps the objective of a teleport, for instance
            ``functools.partial(DistributedObjective, samples=len(shard))``.

    Attributes:
        last_teleport: the :class:`TeleportResult` of the last teleport, None before the first.
        wrapped: the optimizer.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> x, y = torch.ones(4, 2), torch.zeros(4, 1)
        >>> opt = Teleported(torch.optim.SGD(model.parameters(), lr=0.1), schedule=defaults.SCHEDULE)
        >>> loss = opt.step(lambda: torch.nn.functional.mse_loss(model(x), y))
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule = defaults.SCHEDULE,
        *,
        solver: str | Teleporter = defaults.JUMP.solver,
        max_hvps: int = defaults.JUMP.max_hvps,
        tol: float = defaults.JUMP.tol,
        radius: float | None = None,
        momentum: Literal["keep", "reset"] = "keep",
        teleport_on: Loss | Batches | None = None,
        noise: Literal["refuse", "replay"] = "refuse",
        first_step: Literal["lr", "curvature"] = "lr",
        steps_per_epoch: int | None = None,
        after_backward: Callable[[], object] | None = None,
        distribute: Callable[[Objective], Objective] | None = None,
    ) -> None:
        _check(optimizer, schedule, momentum, noise, first_step, steps_per_epoch)
        if distribute is not None and schedule.watches:
            raise ValueError(
                f"the schedule ({schedule}) looks at the loss of this rank, so ranks would decide differently and wait "
                "for each other. With distribute= use one that is fixed in advance, such as Every(50)."
            )
        for p in (p for group in optimizer.param_groups for p in group["params"] if p.numel()):
            check_leaves([p])
        self._linked = False
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self.wrapped = optimizer
        self._link()
        self.schedule = schedule
        self.momentum = momentum
        self.teleport_on = teleport_on
        self.noise = noise
        self.first_step = first_step
        self.steps_per_epoch = steps_per_epoch
        self.last_teleport: TeleportResult | None = None
        self.iteration = 0
        self.history = History()
        self._jump = Jump(solver=solver, max_hvps=max_hvps, tol=tol, radius=radius)
        self._after_backward = after_backward
        self._distribute = distribute
        self._spent = 0.0  # gradient equivalents since the start
        self._losses: list[float] = []  # since the last tick
        self._newton_step: float | None = None

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

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # type: ignore[override]
        """Teleport if the schedule says so, then let the wrapped optimizer take its step.

        Args:
            closure: a loss-only callable, ``lambda: loss_fn(model(x), y)``; no ``backward()`` inside. May be left out
                (gradients are then those in ``.grad``) where the schedule is :class:`Never`.

        Returns:
            The loss before the teleport and the step.
        """
        if closure is None:
            self._step_on_stored_gradients()
            return None
        step_loss = StepLoss(closure, self.parameters(), after_backward=self._after_backward)
        loss = step_loss.evaluate_first()
        if self._due(loss):
            result = self.teleport(
                closure if self.teleport_on is None else self.teleport_on, random_state=step_loss.random_state
            )
            if self.schedule.watches:
                self.history.teleported(result.cost.gradient_equivalents)
            step_loss.forget()
        with self._first_step_size():
            self.wrapped.step(step_loss)  # type: ignore[arg-type]
        self.iteration += 1
        self._spent += step_loss.ledger.read().gradient_equivalents
        return loss

    def _step_on_stored_gradients(self) -> None:
        if not isinstance(self.schedule, Never):
            raise TypeError(
                f"the schedule ({self.schedule}) needs the loss: call step(lambda: loss_fn(model(x), y)). If gradients "
                "come from elsewhere (a GradScaler, accumulation), use schedule=Never() and call teleport(loss) "
                "between steps."
            )
        with self._first_step_size():
            self.wrapped.step()
        self.iteration += 1

    def teleport(self, loss: Loss | Batches, *, random_state: RandomState | None = None) -> TeleportResult:
        """Teleport now, on ``loss``. Gradients in ``.grad``, buffers and random generators stay as they are.

        Args:
            loss: a loss-only callable, or :class:`Batches`; need not be the loss of the steps.
            random_state: with noise="replay", where random numbers start; None is the present state.

        Returns:
            The result; its ``x`` is the flat vector of all trainable parameters, already written into them.
        """
        inner = ParametersObjective(self.parameters(), loss, noise=self.noise, random_state=random_state)
        start, generators = inner.current(), RandomState.capture(inner.device)
        end = start
        try:
            objective = inner if self._distribute is None else self._distribute(inner)
            result, point = self._jump(objective, objective.at(start, curvature=True))
            end = point.x
        finally:
            inner.load(end)
            generators.restore()
        self.last_teleport = result
        self._spent += result.cost.gradient_equivalents
        self._newton_step = newton_step_size(result.curvature)
        if isinstance(self.wrapped, ArmijoSGD):
            self.wrapped.after_teleport(result.curvature)
        if self.momentum == "reset":
            self.wrapped.state.clear()
        return result

    def _due(self, loss: Tensor) -> bool:
        """Tell the history what is new, and ask the schedule."""
        schedule, tick = self.schedule, self.iteration
        if schedule.watches:
            self._losses.append(float(loss))
        if schedule.unit == "epochs":
            assert self.steps_per_epoch is not None
            if self.iteration % self.steps_per_epoch:
                return False
            tick = self.iteration // self.steps_per_epoch
        if schedule.watches:
            mean = sum(self._losses) / len(self._losses)
            self._losses = []
            self.history.observe(tick, mean, self.gradient_norm(), self._spent)
        return schedule.due(tick, self.history)

    @contextmanager
    def _first_step_size(self) -> Iterator[None]:
        """lr = 1/λ for the one step after a teleport, where that was asked for."""
        size, self._newton_step = self._newton_step, None
        if self.first_step != "curvature" or size is None:
            yield
            return
        usual = [group["lr"] for group in self.param_groups]
        try:
            for group in self.param_groups:
                group["lr"] = size
            yield
        finally:
            for group, lr in zip(self.param_groups, usual, strict=True):
                group["lr"] = lr

    def state_dict(self) -> dict[str, Any]:
        """The wrapped optimizer's state and where the schedule stands; no tensor is a key."""
        return {
            "wrapped": self.wrapped.state_dict(),
            "iteration": self.iteration,
            "spent": self._spent,
            "newton_step": self._newton_step,
            "losses": list(self._losses),
            "history": self.history.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume. ``last_teleport`` is None until the next teleport."""
        if "wrapped" not in state_dict:
            raise ValueError(
                "this state_dict is not one of Teleported. To start from a checkpoint of the optimizer alone, call "
                "teleported.wrapped.load_state_dict(...)."
            )
        self.wrapped.load_state_dict(state_dict["wrapped"])
        self.iteration = state_dict["iteration"]
        self._spent = state_dict["spent"]
        self._newton_step = state_dict["newton_step"]
        self._losses = list(state_dict["losses"])
        self.history.load_state_dict(state_dict["history"])
        self.last_teleport = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._link()  # torch drops an optimizer's hooks when it is copied

    def __repr__(self) -> str:
        return (
            f"Teleported({self.schedule}, solver={self._jump.solver!r}, momentum={self.momentum!r})\n{self.wrapped!r}"
        )


def _check(
    optimizer: object, schedule: object, momentum: str, noise: str, first_step: str, steps_per_epoch: int | None
) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, not a {type(optimizer).__name__}.")
    if isinstance(optimizer, Teleported):
        raise TypeError("this optimizer teleports already; wrap the one inside it.")
    if not isinstance(schedule, Schedule):
        raise TypeError(f"schedule must be a schedule such as Every(50, start=5), not {schedule!r}.")
    for name, value, allowed in (
        ("momentum", momentum, ("keep", "reset")),
        ("noise", noise, ("refuse", "replay")),
        ("first_step", first_step, ("lr", "curvature")),
    ):
        if value not in allowed:
            raise ValueError(f"{name} must be {allowed[0]!r} or {allowed[1]!r}, not {value!r}.")
    if momentum == "reset" and isinstance(optimizer, torch.optim.Adagrad):
        raise ValueError("momentum='reset' does not work with Adagrad, which makes its state only once; use 'keep'.")
    if first_step == "curvature" and not isinstance(optimizer, (torch.optim.SGD, PolyakSGD)):
        raise ValueError(
            f"first_step='curvature' needs steps that are lr times the gradient, as SGD's; those of "
            f"{type(optimizer).__name__} are not."
        )
    if schedule.unit == "epochs" and steps_per_epoch is None:
        raise ValueError(f"the schedule ({schedule}) counts epochs: pass steps_per_epoch=len(loader).")
    if steps_per_epoch is not None and steps_per_epoch < 1:
        raise ValueError(f"steps_per_epoch must be at least 1, not {steps_per_epoch}.")
