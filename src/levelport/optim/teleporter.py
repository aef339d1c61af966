"""``Teleporter``: teleports the parameters of an optimizer and never steps.

It is what every training loop has room for, whoever owns the step: a plain loop, a callback of a framework, a wrapper
such as :class:`~levelport.Teleported`. The schedule counts calls of :meth:`Teleporter.maybe`, one per step.

By default a move is the teleport *and* the first step from there, checked (:mod:`levelport.optim.transaction`), so that
the optimizer goes on at no higher a loss and with a gradient of ordinary size; and it is undone if the next losses rise
above the level that was left (:mod:`levelport.optim.undo`). ``first_step="optimizer"`` leaves the parameters at the
teleported point itself.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from levelport import checks
from levelport.objective import Cost, NotDeterministicError, Objective, Point
from levelport.objectives.batches import Batches, Loss, check_loss
from levelport.objectives.distributed import agreed, data_parallel
from levelport.objectives.isolation import RandomState
from levelport.objectives.metric import InMetric
from levelport.objectives.parameters import ParametersObjective
from levelport.optim import defaults
from levelport.optim.armijo import ArmijoSGD
from levelport.optim.closures import RIGHT_FORM, StepLoss
from levelport.optim.history import History
from levelport.optim.moving import moving, part_for, stepping, trainable, whole_with
from levelport.optim.newton_cg import NewtonCG
from levelport.optim.schedules import Schedule
from levelport.optim.second_moments import check_metric, optimizer_metric
from levelport.optim.suitable import check_optimizer, check_parameters, check_schedule, innermost
from levelport.optim.transaction import Landing, Stride, check_unused, land
from levelport.optim.undo import KEPT, Guard, OptimizerBack, tell_of_steps
from levelport.solvers import Move, Solver, State, TeleportResult, move_from, solver_named

Hook = Callable[[TeleportResult], object]
"""Called with the result of every teleport."""


_REPLAY = "Or pass noise='replay', with which every evaluation of a teleport sees the same random numbers."


class Teleporter:
    """Moves the parameters of an optimizer to where the gradient is larger, at no higher a loss.

    Args:
        optimizer: whose parameters move. It is never asked to step.
        schedule: when :meth:`maybe` teleports; :class:`~levelport.Never` leaves it to calls of :meth:`teleport`. None
            chooses by the kind of the optimizer: :class:`~levelport.optim.LossAccount` for gradient methods,
            :class:`~levelport.optim.Horizon` for momentum, ``Never`` for all others.
        solver: how to teleport: "krylov", "auto", "sqp", or one with limits of its own, ``Auto(max_hvps=10)``.
        momentum: at a teleport, "keep" the optimizer's state (momentum buffers, second moments), or "reset" it.
        teleport_on: what teleports work on, if not the loss of the step: a full-batch loss, or :class:`Batches`. A move
            on part of the data may raise the loss on the rest: it is measured on ``Batches.unused``, or on the step's
            own batch, and the move shortened or refused; the result says so.
        metric: the norm in which gradients are measured, see :func:`levelport.teleport`: a flat tensor of weights, or
            "optimizer" for what Adam and its relatives divide by. None is the ordinary norm.
        noise: "refuse" raises if two evaluations at one point differ (dropout), "replay" repeats the random numbers.
            A schedule that watches, as the defaults do, is nobody's order to teleport at this step: there "refuse"
            leaves the trial out, warns once, and training goes on.
        first_step: "included" makes the teleport and a checked gradient step of size 1/λ from it one move; "optimizer"
            leaves the first step to the optimizer, Algorithm 1 of the paper. None takes "optimizer" for
            :class:`~levelport.optim.ArmijoSGD` and :class:`~levelport.optim.NewtonCG`, whose line searches are safe
            there, and "included" for all others.
        steps_per_epoch: needed by schedules in epochs.
        distribute: wraps the objective of a teleport, for instance
            ``functools.partial(DistributedObjective, samples=len(shard))``. None averages over the ranks of the default
            process group, if there is one, as DistributedDataParallel does, so that ranks never drift apart.

    Attributes:
        last_teleport: the :class:`TeleportResult` of the last teleport, None before the first.
        iteration: steps counted so far.
        teleports: teleports made, with their first step.
        descents: other moves made: no teleport was worth it, and the bottom of the solver's model was taken as an
            ordinary step down.
        moves, undone: both together, and those among them that were taken back.
        moved: whether the last call changed the parameters, by a move or by taking one back: gradients evaluated before
            it are out of date. ``last_teleport.moved`` says whether the last teleport did.

    A parameter group whose learning rate is exactly 0 at the time of a teleport stands still, as it does in steps.
    Where all groups have 0 (the first step of a warm-up) that freezes nothing: a teleport that was asked for moves all
    of them, and a schedule that watches makes no trial. ``requires_grad=False`` freezes in any case.

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
        schedule: Schedule | None = None,
        *,
        solver: str | Solver = defaults.SOLVER,
        momentum: Literal["keep", "reset"] = "keep",
        teleport_on: Loss | Batches | None = None,
        metric: Tensor | Literal["optimizer"] | None = None,
        noise: Literal["refuse", "replay"] = "refuse",
        first_step: Literal["included", "optimizer"] | None = None,
        steps_per_epoch: int | None = None,
        distribute: Callable[[Objective], Objective] | None = None,
    ) -> None:
        check_optimizer(optimizer)
        if schedule is None:
            schedule = defaults.schedule_for(innermost(optimizer)) if distribute is None else defaults.RANKS_SCHEDULE
        check_schedule(schedule, steps_per_epoch, distributed=distribute is not None)
        checks.one_of("momentum", momentum, ("keep", "reset"))
        checks.one_of("noise", noise, ("refuse", "replay"))
        if distribute is not None:
            checks.function("distribute", distribute, of="objective")
        if momentum == "reset" and isinstance(innermost(optimizer), torch.optim.Adagrad):
            raise ValueError("momentum='reset' does not work with Adagrad, which makes its state only once.")
        self.optimizer = optimizer
        check_parameters(self.parameters())
        self.schedule = schedule
        self.solver = solver_named(solver)
        self.momentum = momentum
        if teleport_on is not None:
            check_loss("teleport_on", teleport_on)
        self.teleport_on = teleport_on
        check_metric(metric, innermost(optimizer), self.parameters())
        self.metric = metric
        self._weighed = self.parameters() if isinstance(metric, Tensor) else []  # whose weights these are
        self.noise = noise
        self.steps_per_epoch = steps_per_epoch
        self.last_teleport: TeleportResult | None = None
        self.iteration = 0
        self.history = History()
        self._solver_state: State = {}
        self.history.product_cost = self.solver.product_cost(self.parameters()[0].dtype)
        if first_step is not None:
            checks.one_of("first_step", first_step, ("included", "optimizer"))
        searches = isinstance(innermost(optimizer), (ArmijoSGD, NewtonCG))
        self.first_step = first_step or ("optimizer" if searches else "included")
        self.teleports, self.descents, self.moved = 0, 0, False
        self._guard: Guard[OptimizerBack] = Guard(noisy=True)
        self._looked = False  # at the loss before the step to come
        tell_of_steps(optimizer, self._stepped)
        self._distribute = distribute
        self._warned = False  # that the loss is noisy
        self._spent = 0.0  # gradient equivalents since the start
        self._losses: list[float] = []  # since the last tick
        self._hooks: OrderedDict[int, Hook] = OrderedDict()

    def parameters(self) -> list[Tensor]:
        """The parameters that may move: those with ``requires_grad``, of all groups."""
        return trainable(self.optimizer)

    def maybe(self, loss: Loss) -> TeleportResult | None:
        """Count a step, and teleport if the schedule says so. Call it once before every step of the optimizer.

        Args:
            loss: a loss-only callable, ``lambda: loss_fn(model(x), y)``; no ``backward()`` inside.

        Returns:
            The result of the teleport, None if none was due.

        The loss is evaluated once where somebody asks for it: a schedule that watches, or the watch over a move. That
        one needs the losses of 20 steps before a teleport that is planned, to know how far they jump by themselves.
        The first call evaluates it, too, so that a loss of the wrong form is refused there and not hundreds of steps
        later.
        """
        if self.schedule.watches_gradient:
            raise ValueError(
                f"the schedule ({self.schedule}) needs the gradient of every step, which maybe() does not know. Use "
                "WhenStalled(measure='progress'), or let levelport.Teleported take the steps."
            )
        value = None
        first = self.iteration == 0 and self.left and bool(self.parameters())
        if self.schedule.watches or self.watching or self._soon or first:
            value = StepLoss(loss, self.parameters()).value()
            self.charge(0.5)
        self.charge(1.0)  # what a plain step costs
        return self.teleport_if_due(loss, value, math.nan)

    def teleport_if_due(
        self, loss: Loss | None, value: float | None, gradient_norm: float, *, random_state: RandomState | None = None
    ) -> TeleportResult | None:
        """The same for a caller who knows the loss and ‖∇f‖ at the parameters, and charges its steps itself.

        ``value`` may be None where neither schedule nor watch asks for it, ``loss`` None for closures with a backward.
        """
        self.moved, self._looked = False, True
        if value is None:
            value = math.nan
        elif self._distribute is None:
            device = next(p.device for group in self.optimizer.param_groups for p in group["params"])
            value = agreed(value, device)
        back = self._guard.back
        if back is not None and not back.leads_to(self.parameters()):
            self._guard.let_go()  # layers were frozen or added: the point that was left is not one of this run any more
        if (back := self._guard.look(value)) is not None:
            back.restore(self.optimizer)
            self.moved = True
            self.iteration += 1
            return None
        due = self._due(value, gradient_norm)
        self.iteration += 1
        if self.schedule.watches and not stepping(self.optimizer):
            due = False  # without steps there is nothing to compare a trial with
        if not self._guard.grants(due, value):
            return None
        target, other = (loss, None) if self.teleport_on is None else (self.teleport_on, loss)
        if target is None:
            raise TypeError(RIGHT_FORM)
        spent = self._spent
        try:
            result = self._teleport(target, random_state, level=value, due=True, unused=other)
        except NotDeterministicError as error:
            if not self.schedule.watches:
                raise
            self._warn_of_noise(error)
            self.history.teleported(self._spent - spent)  # a trial that brought nothing: the next one waits longer
            return None
        if self.schedule.watches:
            self.history.teleported(result.cost.gradient_equivalents)
        return result

    def _warn_of_noise(self, error: NotDeterministicError) -> None:
        """Once: nobody asked for a teleport at this very step, so training must not end with it."""
        if not self._warned:
            self._warned = True
            message = f"training goes on, but a teleport was left out, since {error} (Said once.)"
            warnings.warn(message, stacklevel=_users_level())

    def count(self) -> None:
        """Count a step whose loss nobody knows; an error if the schedule asks for it there."""
        if self.schedule.watches or self.planned:
            raise TypeError(
                f"the schedule ({self.schedule}) needs the loss: call step(lambda: loss_fn(model(x), y)). If gradients "
                "come from elsewhere (a GradScaler, accumulation), use schedule=Never() and call teleport(loss) "
                "between steps."
            )
        self.iteration += 1

    @property
    def planned(self) -> bool:
        """Whether a schedule that is fixed in advance has a teleport before the next step."""
        return self.schedule.planned(self.iteration, self.steps_per_epoch)

    @property
    def left(self) -> bool:
        """Whether the schedule may still ask for a teleport, before the next step or a later one."""
        return self.schedule.left(self.iteration, self.steps_per_epoch)

    @property
    def _soon(self) -> bool:
        """Whether a move that will be watched is planned for one of the next steps."""
        steps = range(self.iteration, self.iteration + KEPT)
        return self._can_undo and any(self.schedule.planned(step, self.steps_per_epoch) for step in steps)

    @property
    def _can_undo(self) -> bool:
        """Ranks see different losses and would decide differently, so that they do not watch."""
        return self.first_step == "included" and self._distribute is None

    @property
    def watching(self) -> bool:
        """Whether a move may still be undone, so that the loss before the next step is asked for."""
        return self._guard.watching

    def let_go(self) -> None:
        """Watch the last move no longer: the parameters are not where it, and steps from there, have led.

        For whoever loads others, such as a checkpoint without a state of the teleporter.
        """
        self._guard.let_go()

    @property
    def moves(self) -> int:
        """Teleports and descents that were made."""
        return self.teleports + self.descents

    @property
    def undone(self) -> int:
        """Moves that were taken back."""
        return self._guard.undone

    def teleport(self, loss: Loss | Batches, *, random_state: RandomState | None = None) -> TeleportResult:
        """Teleport now, on ``loss``. Gradients in ``.grad``, buffers and random generators stay as they are.

        Args:
            loss: a loss-only callable, or :class:`Batches`; need not be the loss of the steps.
            random_state: with noise="replay", where random numbers start; None is the present state.

        Returns:
            The result; its ``x`` is the flat vector of the teleported parameters. Its ``moved`` says whether the move
            was made; ``message`` says why not, or that it was a mere descent. If it was, the parameters are at ``x``,
            or where the first step from there led, see ``first_step``, and ``value_after`` is the loss there.
        """
        return self._teleport(loss, random_state, level=math.nan, due=False)

    def _allowed(self, due: bool) -> Solver:
        """The solver, within what the schedule allows a teleport that it asked for."""
        limits = self.schedule.limits(self.history) if due else None
        return self.solver if limits is None else limits.of(self.solver)

    def _teleport(
        self,
        loss: Loss | Batches,
        random_state: RandomState | None,
        *,
        level: float,
        due: bool,
        unused: Loss | None = None,
    ) -> TeleportResult:
        self.moved = False
        inner = ParametersObjective(moving(self.optimizer), loss, noise=self.noise, random_state=random_state)
        start, generators = inner.current(), RandomState.capture(inner.device)
        end = start
        try:
            objective = data_parallel(inner, start) if self._distribute is None else self._distribute(inner)
            before = objective.at(start, curvature=True)
            move, landing = self._move(objective, before, due)
            result = self._completed(move.result, landing, objective.cost)
            other = self._unused(loss, unused)
            if other is not None and landing.point.x is not start:
                checked = check_unused(objective, other, before, landing)
                landing = checked.landing
                result = checked.completed(result, objective.cost + other.cost)
            end = landing.point.x
        except NotDeterministicError as error:
            self.charge(inner.cost.gradient_equivalents)
            if self.noise == "replay":  # what differs are other random numbers than torch's
                raise
            raise NotDeterministicError(f"{error} {_REPLAY}") from None
        finally:
            inner.load(end)
            generators.restore()
        self.moved = end is not start
        descent = self.moved and move.lower is not None
        self.descents += descent
        self.teleports += self.moved and not descent
        result = replace(result, moved=self.moved, detail=_told(result.detail, landing.refused, descent=descent))
        if self.moved and self._can_undo:
            left = whole_with(inner.parameters, start, self.parameters())
            self._guard.watch(level, OptimizerBack.to(left, self.parameters(), self.optimizer))
        self._guard.forget()
        self.last_teleport = result
        self.charge(result.cost.gradient_equivalents)
        if self.momentum == "reset" and self.moved:
            self.optimizer.state.clear()
        for hook in list(self._hooks.values()):
            hook(result)
        return result

    def _move(self, objective: Objective, before: Point, due: bool) -> tuple[Move, Landing]:
        """The teleport and where its first step leads, in the metric that was asked for."""
        weights, solver = self.metric_now(), self._allowed(due)
        if weights is None:
            move = move_from(before, objective, solver, self._solver_state, certify=False)
            self._solver_state = move.state
            return move, self._land(objective, before, move, Stride.of(innermost(self.optimizer)))
        weighted = InMetric(objective, weights)
        seen = weighted.around(before)
        move = move_from(seen, weighted, solver, self._solver_state, certify=False)
        self._solver_state = move.state
        landing = self._land(weighted, seen, move, Stride())
        point = weighted.underneath(landing.point)
        result = replace(move.result, x=weighted.underneath(move.point).x)
        return replace(move, result=result), replace(landing, point=point)

    def _land(self, objective: Objective, before: Point, move: Move, stride: Stride) -> Landing:
        takes = self.first_step == "included"
        return land(objective, before, move, stride) if takes else Landing(move.lower or move.point)

    def metric_now(self) -> Tensor | None:
        """The weights of the metric as they stand, flat, for the parameters that move; None for the ordinary norm."""
        if self.metric is None:
            return None
        if not isinstance(self.metric, Tensor):
            return optimizer_metric(self.optimizer, moving(self.optimizer))
        now = moving(self.optimizer)
        if not {id(p) for p in self._weighed}.issuperset(id(p) for p in now):
            raise ValueError(
                "metric has weights for the parameters that moved when the Teleporter was made; others have joined "
                "them since. Make a new one, with weights for all."
            )
        return part_for(now, self._weighed, self.metric)

    def _unused(self, loss: Loss | Batches, step_loss: Loss | None) -> Objective | None:
        """The loss on samples that a teleport on ``loss`` does not use, as far as there is one."""
        other: Loss | Batches | None = step_loss
        if isinstance(loss, Batches) and loss.unused:
            other = Batches(loss.loss, loss.unused)
        if other is None or self._distribute is not None:
            return None
        inner = ParametersObjective(moving(self.optimizer), other, noise=self.noise)
        return data_parallel(inner, inner.current())

    def _completed(self, result: TeleportResult, landing: Landing, spent: Cost) -> TeleportResult:
        """The result of the whole move, its first step included."""
        if self.first_step != "included":
            return result
        cost = replace(spent, seconds=result.cost.seconds)
        return replace(result, first_step=landing.step, value_after=landing.point.value, cost=cost)

    def register_teleport_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(result)`` after every teleport, for instance to log it; ``handle.remove()`` ends that."""
        checks.function("hook", hook, of="result")
        handle = RemovableHandle(self._hooks)
        self._hooks[handle.id] = hook
        return handle

    @property
    def spent(self) -> float:
        """Gradient equivalents of the run so far: steps, looks at the loss, and teleports."""
        return self._spent

    def charge(self, gradient_equivalents: float) -> None:
        """Add what was spent, for schedules that weigh cost against progress."""
        self._spent += gradient_equivalents

    def _due(self, value: float, gradient_norm: float) -> bool:
        """Tell the history what is new, and ask the schedule."""
        schedule, tick = self.schedule, self.schedule.tick(self.iteration, self.steps_per_epoch)
        if schedule.watches:
            self._losses.append(value)
        if tick is None:
            return False
        if schedule.watches:
            mean = sum(self._losses) / len(self._losses)
            self._losses = []
            self.history.observe(tick, mean, gradient_norm, self._spent)
        return schedule.due(tick, self.history)

    def _stepped(self) -> None:
        """The optimizer has taken a step, whoever asked it to."""
        if not self._looked:
            self._guard.unseen()
        self._looked = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        tell_of_steps(self.optimizer, self._stepped)  # torch drops an optimizer's hooks when it is copied

    def state_dict(self) -> dict[str, Any]:
        """Where schedule and solver stand, and the way back from the last move; the optimizer has its own."""
        return {
            "iteration": self.iteration,
            "spent": self._spent,
            "losses": list(self._losses),
            "history": self.history.state_dict(),
            "teleports": self.teleports,
            "descents": self.descents,
            "solver": dict(self._solver_state),
            "guard": self._guard.state_dict(),
            "back": None if (back := self._guard.back) is None else back.state_dict(self.optimizer),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resume. ``last_teleport`` is None until the next teleport."""
        self.iteration = state_dict["iteration"]
        self._spent = state_dict["spent"]
        self._losses = list(state_dict["losses"])
        self.history.load_state_dict(state_dict["history"])
        self.teleports = state_dict["teleports"]
        self.descents = state_dict["descents"]
        back = None if state_dict["back"] is None else OptimizerBack.of(state_dict["back"], self.optimizer)
        self._guard.load_state_dict(state_dict["guard"], back)
        self.last_teleport = None
        self._solver_state = dict(state_dict["solver"])

    def __repr__(self) -> str:
        return f"Teleporter({self.schedule}, solver={self.solver}, momentum={self.momentum!r})"


def _users_level() -> int:
    """The ``stacklevel`` of the first caller outside of levelport and of torch, which wraps an optimizer's step."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("levelport", "torch"):
        level, frame = level + 1, frame.f_back
    return level


def _told(detail: str, refused: str, *, descent: bool) -> str:
    """What the optimizer made of a teleport, after what the solver says of it."""
    told = [detail]
    if refused:
        told.append(f"not made: {refused}")
    if descent:
        told.append("no teleport: the bottom of the model was taken as an ordinary step down")
    return "; ".join(filter(None, told))
