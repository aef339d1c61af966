"""``Teleporter``: teleports the parameters of an optimizer and never steps.

It is what every training loop has room for, whoever owns the step: a plain loop, a callback of a framework, a wrapper
such as :class:`~levelport.Teleported`. The schedule counts calls of :meth:`Teleporter.maybe`, one per step.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from levelport import checks
from levelport.objective import Objective
from levelport.objectives.isolation import RandomState
from levelport.objectives.parameters import Batches, Loss, ParametersObjective
from levelport.objectives.structure import check_leaves
from levelport.optim import defaults
from levelport.optim.closures import StepLoss
from levelport.optim.history import History
from levelport.optim.schedules import Schedule
from levelport.solvers import Settings, Solver, TeleportResult, teleport_from

Hook = Callable[[TeleportResult], object]
"""Called with the result of every teleport."""


class Teleporter:
    """Moves the parameters of an optimizer to where the gradient is larger, at no higher a loss.

    Args:
        optimizer: whose parameters move. It is never asked to step.
        schedule: when :meth:`maybe` teleports; :class:`~levelport.Never` leaves it to calls of :meth:`teleport`.
        solver, max_hvps, tol, radius, target_gain: how to teleport, see :func:`levelport.teleport`.
        momentum: at a teleport, "keep" the optimizer's state (momentum buffers, second moments), or "reset" it.
        teleport_on: what teleports work on, if not the loss of the step: a full-batch loss, or :class:`Batches`.
        noise: "refuse" raises if two evaluations at one point differ (dropout), "replay" repeats the random numbers.
        steps_per_epoch: needed by schedules in epochs.
        distribute: wraps the objective of a teleport, for instance
            ``functools.partial(DistributedObjective, samples=len(shard))``.

    Attributes:
        last_teleport: the :class:`TeleportResult` of the last teleport, None before the first.
        iteration: steps counted so far.

    Example:
        >>> from levelport.optim import Every
        >>> model = torch.nn.Linear(2, 1)
        >>> x, y = torch.ones(4, 2), torch.zeros(4, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> teleporter = Teleporter(optimizer, Every(50))
        >>> loss = lambda: torch.nn.functional.mse_loss(model(x), y)
        >>> result = teleporter.maybe(loss)      # before every step
        >>> result.violation
        0.0
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule = defaults.SCHEDULE,
        *,
        solver: str | Solver = defaults.TELEPORTS.solver,
        max_hvps: int = defaults.TELEPORTS.max_hvps,
        tol: float = defaults.TELEPORTS.tol,
        radius: float | None = None,
        target_gain: float = math.inf,
        momentum: Literal["keep", "reset"] = "keep",
        teleport_on: Loss | Batches | None = None,
        noise: Literal["refuse", "replay"] = "refuse",
        steps_per_epoch: int | None = None,
        distribute: Callable[[Objective], Objective] | None = None,
    ) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizer must be a torch.optim.Optimizer, not a {type(optimizer).__name__}.")
        if not isinstance(schedule, Schedule):
            raise TypeError(f"schedule must be a schedule such as Every(50, start=5), not {schedule!r}.")
        checks.one_of("momentum", momentum, ("keep", "reset"))
        checks.one_of("noise", noise, ("refuse", "replay"))
        if momentum == "reset" and isinstance(optimizer, torch.optim.Adagrad):
            raise ValueError(
                "momentum='reset' does not work with Adagrad, which makes its state only once; use 'keep'."
            )
        if schedule.unit == "epochs" and steps_per_epoch is None:
            raise ValueError(f"the schedule ({schedule}) counts epochs: pass steps_per_epoch=len(loader).")
        if steps_per_epoch is not None:
            checks.whole("steps_per_epoch", steps_per_epoch, at_least=1)
        if distribute is not None and schedule.watches:
            raise ValueError(
                f"the schedule ({schedule}) looks at the loss of this rank, so ranks would decide differently and wait "
                "for each other. With distribute= use one that is fixed in advance, such as Every(50)."
            )
        for p in (p for group in optimizer.param_groups for p in group["params"] if p.numel()):
            check_leaves([p])
        self.optimizer = optimizer
        self.schedule = schedule
        self.settings = Settings(solver=solver, max_hvps=max_hvps, tol=tol, radius=radius, target_gain=target_gain)
        self.momentum = momentum
        self.teleport_on = teleport_on
        self.noise = noise
        self.steps_per_epoch = steps_per_epoch
        self.last_teleport: TeleportResult | None = None
        self.iteration = 0
        self.history = History()
        self._solver = self.settings.begin()
        self._distribute = distribute
        self._spent = 0.0  # gradient equivalents since the start
        self._losses: list[float] = []  # since the last tick
        self._hooks: OrderedDict[int, Hook] = OrderedDict()

    def parameters(self) -> list[Tensor]:
        """The parameters that move: those with ``requires_grad``, of all groups."""
        return [p for group in self.optimizer.param_groups for p in group["params"] if p.requires_grad]

    def maybe(self, loss: Loss) -> TeleportResult | None:
        """Count a step, and teleport if the schedule says so. Call it once before every step of the optimizer.

        Args:
            loss: a loss-only callable, ``lambda: loss_fn(model(x), y)``; no ``backward()`` inside.

        Returns:
            The result of the teleport, None if none was due.
        """
        value = StepLoss(loss, self.parameters()).value() if self.schedule.watches else math.nan
        self.charge(1.0)  # what a plain step costs
        return self.teleport_if_due(loss, value, math.nan)

    def teleport_if_due(
        self, loss: Loss, value: float, gradient_norm: float, *, random_state: RandomState | None = None
    ) -> TeleportResult | None:
        """The same for a caller who knows the loss and ‖∇f‖ at the parameters, and charges its steps itself."""
        due = self._due(value, gradient_norm)
        self.iteration += 1
        if not due:
            return None
        result = self.teleport(loss if self.teleport_on is None else self.teleport_on, random_state=random_state)
        if self.schedule.watches:
            self.history.teleported(result.cost.gradient_equivalents)
        return result

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
            result, point = teleport_from(objective.at(start, curvature=True), objective, self._solver, self.settings)
            end = point.x
        finally:
            inner.load(end)
            generators.restore()
        self.last_teleport = result
        self.charge(result.cost.gradient_equivalents)
        if self.momentum == "reset":
            self.optimizer.state.clear()
        for hook in list(self._hooks.values()):
            hook(result)
        return result

    def register_teleport_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(result)`` after every teleport, for instance to log it; ``handle.remove()`` ends that."""
        handle = RemovableHandle(self._hooks)
        self._hooks[handle.id] = hook
        return handle

    def charge(self, gradient_equivalents: float) -> None:
        """Add what was spent, for schedules that weigh cost against progress."""
        self._spent += gradient_equivalents

    def _due(self, value: float, gradient_norm: float) -> bool:
        """Tell the history what is new, and ask the schedule."""
        schedule, tick = self.schedule, self.iteration
        if schedule.watches:
            self._losses.append(value)
        if schedule.unit == "epochs":
            assert self.steps_per_epoch is not None
            if self.iteration % self.steps_per_epoch:
                return False
            tick = self.iteration // self.steps_per_epoch
        if schedule.watches:
            mean = sum(self._losses) / len(self._losses)
            self._losses = []
            self.history.observe(tick, mean, gradient_norm, self._spent)
        return schedule.due(tick, self.history)

    def state_dict(self) -> dict[str, Any]:
        """Where the schedule stands, in plain numbers; the optimizer has a ``state_dict`` of its own."""
        return {
            "iteration": self.iteration,
            "spent": self._spent,
            "losses": list(self._losses),
            "history": self.history.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resume. ``last_teleport`` is None until the next teleport."""
        self.iteration = state_dict["iteration"]
        self._spent = state_dict["spent"]
        self._losses = list(state_dict["losses"])
        self.history.load_state_dict(state_dict["history"])
        self.last_teleport = None
        self._solver = self.settings.begin()

    def __repr__(self) -> str:
        return f"Teleporter({self.schedule}, solver={self.settings.solver!r}, momentum={self.momentum!r})"
