"""``Teleporter``: teleports the parameters of an optimizer and never steps.

It fits into every training loop, whatever calls the step: a plain loop, a callback of a framework, a wrapper such as
:class:`~levelport.Teleported`. The schedule counts calls of :meth:`Teleporter.maybe`, one per step. What is decided is
decided by :mod:`levelport.optim.policy`; here x lives in the parameters of an optimizer.
"""

from __future__ import annotations

import logging
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
from levelport.objective import NotDeterministicError, Objective, Point
from levelport.objectives.batches import Batches, Loss, check_loss
from levelport.objectives.distributed import agreed, data_parallel
from levelport.objectives.isolation import RandomState, finish, recover
from levelport.objectives.metric import InMetric
from levelport.objectives.parameters import ParametersObjective
from levelport.optim.armijo import ArmijoSGD
from levelport.optim.closures import MAYBE_FORM, NEEDS_LOSS, StepLoss
from levelport.optim.first_step import UNLIMITED, StabilityLimit, check_unused
from levelport.optim.policy import KEPT, Taken, TeleportPolicy
from levelport.optim.result import TeleportStep
from levelport.optim.schedules import Schedule
from levelport.optim.torch_optimizer import (
    OptimizerSnapshot,
    check_metric,
    check_optimizer,
    check_parameters,
    check_schedule,
    innermost,
    moving,
    optimizer_metric,
    schedule_for,
    stepping,
    tell_of_steps,
    trainable,
    whole_with,
)
from levelport.solvers import Solver, solver_named

Hook = Callable[[TeleportStep], object]
"""Called with what became of every teleport."""

DeclineHook = Callable[[int, str], object]
"""Called with the number of steps that an adaptive schedule has declined in a row, and why."""

LOG = logging.getLogger("levelport")
LOG.addHandler(logging.NullHandler())  # silent unless the user configures logging

_REPLAY = "Or pass noise='replay', with which every evaluation of a teleport sees the same random numbers."
SILENT_STEPS = 200  # steps without a trial after which an adaptive schedule says why, again and again
_SHARE = 0.05  # of the cost of steps that evaluations of teleport_on for an adaptive schedule may add


class Teleporter:
    """Moves the parameters of an optimizer to where the gradient is larger, at no higher a loss.

    By default a move is the teleport *and* the first step from there, checked (:mod:`levelport.optim.first_step`), so
    that the optimizer goes on at no higher a loss and with a gradient of ordinary size; and it is undone, with a
    warning, if the next losses rise above the level that was left (:mod:`levelport.optim.policy`).

    Args:
        optimizer: whose parameters move. It is never asked to step.
        schedule: when :meth:`maybe` teleports; :class:`~levelport.Never` leaves it to calls of :meth:`teleport`. None
            is :class:`~levelport.optim.WhileAffordable` for SGD without momentum, ``ArmijoSGD`` and ``PolyakSGD``;
            other optimizers need a schedule, because none was found that helps them.
        solver: how to teleport: "krylov", "auto", "sqp", or one with limits of its own, ``Auto(max_hvps=10)``.
        momentum: at a teleport, "keep" the optimizer's state (momentum buffers, second moments), or "reset" it.
        teleport_on: what teleports work on, if not the loss of the step: a full-batch loss, or :class:`Batches`. An
            adaptive schedule then judges by that loss, evaluated now and then, so that noise of batches does not
            matter; for what it costs, each batch of ``Batches`` counts as one batch of a step. A move on part of the
            data may raise the loss on the rest: it is measured on ``Batches.unused``, or on the step's own batch, and
            the move shortened or refused; the result says so.
        metric: the norm in which gradients are measured, see :func:`levelport.teleport`: a flat tensor of weights, or
            "optimizer" for what Adam and its relatives divide by. None is the ordinary norm.
        noise: "refuse" raises if two evaluations at one point differ (dropout), "replay" repeats the random numbers.
            An adaptive schedule does not require a teleport at this step, so there "refuse" only warns, once.
        first_step: "included" makes the teleport and a checked gradient step of size 1/λ from it one move; "optimizer"
            leaves the first step to the optimizer, Algorithm 1 of the paper. None takes "optimizer" for
            :class:`~levelport.optim.ArmijoSGD`, whose line search is safe there, and "included" for all others.
        distribute: wraps the objective of a teleport, for instance
            ``functools.partial(DistributedObjective, samples=len(shard))``; needs a schedule. None averages over the
            ranks of the default process group, if there is one, as DistributedDataParallel does, so that ranks never
            drift apart.

    Attributes:
        last_teleport: the :class:`TeleportStep` of the last teleport, None before the first.
        iteration: steps counted so far.
        spent: gradient equivalents of the run so far: steps, evaluations of the loss, and teleports.
        moved: whether the last call changed the parameters, by a move or by undoing one: gradients evaluated before it
            are out of date.
        policy: the :class:`~levelport.optim.policy.TeleportPolicy`, with the history and the counts.

    A parameter group whose learning rate is exactly 0 at the time of a teleport stands still, as it does in steps.
    Where all groups have 0 (the first step of a warm-up) that freezes nothing: a teleport that was asked for moves all
    of them, and an adaptive schedule makes no trial. ``requires_grad=False`` freezes in any case.

    Threads may teleport different models at the same time; a model must not be used by two threads at once.

    Example:
        >>> from levelport.optim import Every
        >>> model = torch.nn.Linear(2, 1)
        >>> x, y = torch.ones(4, 2), torch.zeros(4, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> teleporter = Teleporter(optimizer, Every(50))
        >>> loss = lambda: torch.nn.functional.mse_loss(model(x), y)
        >>> result = teleporter.maybe(loss)      # before every step
        >>> result.moved
        True
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule | None = None,
        *,
        solver: str | Solver = "krylov",
        momentum: Literal["keep", "reset"] = "keep",
        teleport_on: Loss | Batches | None = None,
        metric: Tensor | Literal["optimizer"] | None = None,
        noise: Literal["refuse", "replay"] = "refuse",
        first_step: Literal["included", "optimizer"] | None = None,
        distribute: Callable[[Objective], Objective] | None = None,
    ) -> None:
        check_optimizer(optimizer)
        if schedule is None:
            schedule = schedule_for(optimizer, distributed=distribute is not None)
        check_schedule(schedule, distributed=distribute is not None)
        checks.one_of("momentum", momentum, ("keep", "reset"))
        checks.one_of("noise", noise, ("refuse", "replay"))
        if distribute is not None:
            checks.function("distribute", distribute, of="objective")
        if momentum == "reset" and isinstance(innermost(optimizer), torch.optim.Adagrad):
            raise ValueError("momentum='reset' does not work with Adagrad, which makes its state only once.")
        if teleport_on is not None:
            check_loss("teleport_on", teleport_on)
        if first_step is not None:
            checks.one_of("first_step", first_step, ("included", "optimizer"))
        self.optimizer = optimizer
        check_parameters(self.parameters())
        check_metric(metric, innermost(optimizer), self.parameters())
        self.momentum = momentum
        self.teleport_on = teleport_on
        self.metric = metric
        self.noise = noise
        searches = isinstance(innermost(optimizer), ArmijoSGD)
        included = not searches if first_step is None else first_step == "included"
        self.policy: TeleportPolicy[OptimizerSnapshot] = TeleportPolicy(
            schedule, solver_named(solver), first_step=included, noisy=True, undoes=distribute is None
        )
        self.policy.history.product_cost = self.policy.solver.product_cost(self.parameters()[0].dtype)
        if isinstance(teleport_on, Batches):
            self.policy.history.unit = float(len(teleport_on.batches))
        self.last_teleport: TeleportStep | None = None
        self.iteration, self.spent, self.moved = 0, 0.0, False
        self._weights: dict[Tensor, Tensor] = {}  # of each parameter, where the metric is given
        if isinstance(metric, Tensor):
            parts = metric.split([p.numel() for p in self.parameters()])
            self._weights = dict(zip(self.parameters(), parts, strict=True))
        self._distribute = distribute
        self._looked = False  # at the loss before the step to come
        self._warned: set[str] = set()
        self._hooks: OrderedDict[int, Hook] = OrderedDict()
        self._decline_hooks: OrderedDict[int, DeclineHook] = OrderedDict()
        tell_of_steps(optimizer, self._stepped)

    @property
    def schedule(self) -> Schedule:
        """When teleports take place."""
        return self.policy.schedule

    @property
    def solver(self) -> Solver:
        """The solver that makes the teleports."""
        return self.policy.solver

    @property
    def teleports(self) -> int:
        """Teleports made, with their first step."""
        return self.policy.counts["teleports"]

    @property
    def descents(self) -> int:
        """Other moves made: no teleport was worth it, and the bottom of the solver's model was taken as a step down."""
        return self.policy.counts["descents"]

    @property
    def moves(self) -> int:
        """Both together."""
        return self.teleports + self.descents

    @property
    def undone(self) -> int:
        """Moves that were taken back."""
        return self.policy.monitor.undone

    def parameters(self) -> list[Tensor]:
        """The parameters that may move: those with ``requires_grad``, of all groups."""
        return trainable(self.optimizer)

    def maybe(self, loss: Loss) -> TeleportStep | None:
        """Count a step, and teleport if the schedule says so. Call it once before every step of the optimizer.

        Args:
            loss: a loss-only callable, ``lambda: loss_fn(model(x), y)``; no ``backward()`` inside.

        Returns:
            What became of the teleport, None if none was due.

        The loss is evaluated where it is needed: by an adaptive schedule without ``teleport_on``, while a move may be
        undone, in the 20 steps before a teleport that is fixed in advance, to know how far losses jump by themselves,
        and in the first call, so that a loss of the wrong form is refused at once.
        """
        value = None
        if self.needs_loss or (self.iteration == 0 and self.left and self.parameters()):
            value = StepLoss(loss, self.parameters(), advice=MAYBE_FORM).value()
            self.charge(0.5)
        self.charge(1.0)  # what a plain step costs
        return self.teleport_if_due(loss, value)

    def teleport_if_due(
        self, loss: Loss | None, value: float | None, *, random_state: RandomState | None = None
    ) -> TeleportStep | None:
        """The same for a caller that knows the loss at the parameters and counts the cost of its steps itself.

        ``value`` may be None where :attr:`needs_loss` is False, ``loss`` None for closures with a backward.
        """
        self.moved, self._looked = False, True
        if value is not None and self._distribute is None:
            value = agreed(value, self.optimizer.param_groups[0]["params"][0].device)
        if self._undo_if_risen(loss, value):
            self.iteration += 1
            return None
        due = self._due(loss, value)
        self.iteration += 1
        if not due:
            return None
        target, other = (loss, None) if self.teleport_on is None else (self.teleport_on, loss)
        if target is None:
            raise TypeError(NEEDS_LOSS)
        spent = self.spent
        try:
            return self._teleport(
                target, random_state, level=math.nan if value is None else value, due=True, unused=other
            )
        except NotDeterministicError as error:
            if not self.schedule.watches:
                raise
            # An adaptive schedule does not require a teleport at this step: training goes on.
            self.policy.made(None, False, self.spent - spent)
            self._warn("noise", f"training goes on, but a teleport was left out, since {error} (Said once.)")
            return None

    def count(self) -> None:
        """Count a step whose loss is not known; an error if the schedule asks for it there."""
        if self.may_be_due:
            raise TypeError(
                f"the schedule ({self.schedule}) needs the loss: call step(lambda: loss_fn(model(x), y)). If gradients "
                "come from elsewhere (a GradScaler, accumulation), use schedule=Never() and call teleport(loss) "
                "between steps."
            )
        self.iteration += 1

    @property
    def may_be_due(self) -> bool:
        """True if the schedule may ask for a teleport before the next step."""
        return self.schedule.next(self.iteration) == self.iteration

    @property
    def left(self) -> bool:
        """True if the schedule may still ask for a teleport, before the next step or a later one."""
        return self.schedule.next(self.iteration) is not None

    @property
    def needs_loss(self) -> bool:
        """True if the loss before the next step is needed: by the schedule or by the undo monitor."""
        if self.policy.monitor.watching:
            return True
        if self.schedule.watches:
            return self.teleport_on is None
        coming = self.schedule.next(self.iteration)
        return self.policy.undoes and coming is not None and coming < self.iteration + KEPT

    def _undo_if_risen(self, loss: Loss | None, value: float | None) -> bool:
        """Take the last move back if the loss has risen since, and if that is the move's doing."""
        monitor = self.policy.monitor
        if not monitor.watching or value is None:
            return False
        back = monitor.back
        assert back is not None
        if not back.leads_back(self.parameters()):
            monitor.end()  # layers were frozen, or someone else has written to the parameters
            return False
        if not monitor.rises(value):
            return False
        if loss is not None and not monitor.blames_move(self._value_before(loss, back), value):
            monitor.end()
            return False
        steps = monitor.steps
        finish([lambda: back.restore(self.optimizer)])
        monitor.undo()
        self.moved = True
        self._warn("", f"a teleport was undone: {steps} steps after it the loss is {value:.6g} and rises.")
        return True

    def _value_before(self, loss: Loss, back: OptimizerSnapshot) -> float:
        """This step's loss at the point that was left."""
        objective = ParametersObjective(back.parameters, loss, noise="replay")
        here, generators = objective.current(), RandomState.capture(objective.device)
        try:
            there = objective.at(back.x).value
        finally:
            finish([lambda: objective.load(here), generators.restore])
        self.charge(0.5)
        return agreed(there, objective.device)

    def _due(self, loss: Loss | None, value: float | None) -> bool:
        """Tell the policy what is new, and ask it."""
        schedule, step_value = self.schedule, math.nan if value is None else value
        step: int | None = self.iteration
        if not schedule.watches:
            return self.policy.due(step, step_value, self.spent)
        judged = step_value
        if self.teleport_on is not None:
            if self.iteration % max(1, math.ceil(0.5 * self.policy.history.unit / _SHARE)):
                step = None
            else:
                judged = agreed(self._value_on(self.teleport_on), self.parameters()[0].device)
        due = self.policy.due(step, step_value, self.spent, judged)
        declined = self.policy.declined
        if declined > 0 and declined % SILENT_STEPS == 0:
            why = schedule.declines_because(self.policy.history)
            fixed = ", or teleport_on=Batches(loss, batches)" if self.teleport_on is None else ""
            advice = f"schedule=Every(50){fixed}"
            self._warn("silent", f"no teleport in {declined} steps: {why}. Pass {advice}, to teleport. (Said once.)")
            for hook in list(self._decline_hooks.values()):
                hook(declined, why)
        return due and bool(stepping(self.optimizer))  # without steps there is nothing to compare a trial with

    def _value_on(self, loss: Loss | Batches) -> float:
        """The loss that is teleported on, at the parameters, without a trace."""
        self.charge(0.5 * self.policy.history.unit)
        terms = loss.terms() if isinstance(loss, Batches) else [(1.0, loss)]
        return sum(weight * StepLoss(term, self.parameters(), advice=NEEDS_LOSS).value() for weight, term in terms)

    def teleport(self, loss: Loss | Batches, *, random_state: RandomState | None = None) -> TeleportStep:
        """Teleport now, on ``loss``. Gradients in ``.grad``, buffers and random generators stay as they are.

        Args:
            loss: a loss-only callable, or :class:`Batches`; need not be the loss of the steps.
            random_state: with noise="replay", where random numbers start; None is the present state.

        Returns:
            What became of it: the teleport, whether the move was made and why not.
        """
        return self._teleport(loss, random_state, level=math.nan, due=False)

    def _teleport(
        self,
        loss: Loss | Batches,
        random_state: RandomState | None,
        *,
        level: float,
        due: bool,
        unused: Loss | None = None,
    ) -> TeleportStep:
        recover()
        self.moved = False
        inner = ParametersObjective(moving(self.optimizer), loss, noise=self.noise, random_state=random_state)
        start, generators = inner.current(), RandomState.capture(inner.device)
        end = start
        unit = float(len(loss.batches)) if isinstance(loss, Batches) else 1.0
        try:
            objective = data_parallel(inner, start) if self._distribute is None else self._distribute(inner)
            before = objective.at(start, curvature=True)
            taken = self._move(objective, before, due)
            spent = objective.cost
            other = self._unused(loss, unused)
            if other is not None and taken.step.point is not before:
                taken = replace(taken, step=check_unused(objective, other, before, taken.step))
                spent = objective.cost + other.cost
            end = taken.step.point.x if taken.step.point is not before else start
        except NotDeterministicError as error:
            self.charge(unit * inner.cost.gradient_equivalents)
            if self.noise == "replay":  # what differs are other random numbers than torch's
                raise
            raise NotDeterministicError(f"{error} {_REPLAY}") from None
        finally:
            finish([lambda: inner.load(end), generators.restore])
        self.moved = end is not start
        result = self._result(taken, replace(spent, seconds=taken.move.result.cost.seconds))
        self.charge(unit * result.cost.gradient_equivalents)
        if self.moved:
            left = whole_with(inner.parameters, start, self.parameters())
            self.policy.watch(level, OptimizerSnapshot.to(left, self.parameters(), self.optimizer))
            if self.momentum == "reset":
                self.optimizer.state.clear()
        self.policy.made(taken, self.moved, unit * result.cost.gradient_equivalents, due=due)
        self.last_teleport = result
        LOG.info("teleport at step %d: %s", self.iteration, result.message)
        for hook in list(self._hooks.values()):
            hook(result)
        return result

    def _move(self, objective: Objective, before: Point, due: bool) -> Taken:
        """The teleport and where its first step leads, in the metric that was asked for."""
        weights = self.metric_now()
        if weights is None:
            return self.policy.move(objective, before, StabilityLimit.of(innermost(self.optimizer)), due=due)
        weighted = InMetric(objective, weights)
        around = weighted.around(before)
        taken = self.policy.move(weighted, around, UNLIMITED, due=due)
        result = replace(taken.move.result, x=weighted.underneath(taken.move.point).x)
        end = before if taken.step.point is around else weighted.underneath(taken.step.point)
        return Taken(replace(taken.move, result=result), replace(taken.step, point=end))

    def _result(self, taken: Taken, cost: Any) -> TeleportStep:
        included, step = self.policy.first_step, taken.step
        return TeleportStep(
            teleport=taken.move.result,
            kind="none" if not self.moved else "descent" if taken.descent else "teleport",
            value_after=step.point.value,
            first_step=step.size if included else math.nan,
            refused=step.refused,
            unused_change=step.unused_change,
            share=step.share,
            cost=cost if included or not math.isnan(step.unused_change) else taken.move.result.cost,
        )

    def metric_now(self) -> Tensor | None:
        """The weights of the metric as they stand, flat, for the parameters that move; None for the ordinary norm."""
        if self.metric is None:
            return None
        now = moving(self.optimizer)
        if not isinstance(self.metric, Tensor):
            return optimizer_metric(self.optimizer, now)
        if any(p not in self._weights for p in now):
            raise ValueError(
                "metric has weights for the parameters that moved when the Teleporter was made; others have joined "
                "them since. Make a new one, with weights for all."
            )
        return torch.cat([self._weights[p] for p in now])

    def _unused(self, loss: Loss | Batches, step_loss: Loss | None) -> Objective | None:
        """The loss on samples that a teleport on ``loss`` does not use, as far as there is one."""
        other: Loss | Batches | None = step_loss
        if isinstance(loss, Batches) and loss.unused:
            other = Batches(loss.loss, loss.unused)
        if other is None or self._distribute is not None:
            return None
        inner = ParametersObjective(moving(self.optimizer), other, noise=self.noise)
        return data_parallel(inner, inner.current())

    def register_teleport_hook(self, hook: Hook, *, on_decline: DeclineHook | None = None) -> RemovableHandle:
        """Call ``hook(result)`` after every teleport, for instance to log it; ``handle.remove()`` ends that.

        ``on_decline(steps, why)`` is called whenever an adaptive schedule has declined for another 200 steps in a row.
        """
        checks.function("hook", hook, of="result")
        handle = RemovableHandle(self._hooks, extra_dict=self._decline_hooks)
        self._hooks[handle.id] = hook
        if on_decline is not None:
            checks.function("on_decline", on_decline, of="steps, why")
            self._decline_hooks[handle.id] = on_decline
        return handle

    def charge(self, gradient_equivalents: float) -> None:
        """Add what was spent, for schedules that weigh cost against progress."""
        self.spent += gradient_equivalents

    def summary(self) -> str:
        """Summarize teleports tried, made, declined and undone, and their cost."""
        counts, share = self.policy.counts, self.policy.cost / self.spent if self.spent > 0.0 else 0.0
        lines = [
            f"schedule   {self.schedule}, {self.iteration} steps",
            f"tried      {counts['trials']} teleports",
            f"made       {counts['teleports']} teleports, {counts['descents']} descents; {self.undone} undone",
            f"cost       {self.policy.cost:g} of {self.spent:g} gradient equivalents ({share:.0%})",
        ]
        if self.last_teleport is not None:
            lines.append(f"last       {self.last_teleport.message}")
        if self.schedule.watches and self.policy.history.ticks and self.policy.declined:
            why = self.schedule.declines_because(self.policy.history)
            lines.append(f"declined   for {self.policy.declined} steps: {why}")
        return "\n".join(lines)

    def _warn(self, once: str, message: str) -> None:
        """A warning at the user's own line, and a line in the log; those with a key only once."""
        LOG.warning(message)
        if once not in self._warned:
            self._warned |= {once} - {""}
            warnings.warn(message, stacklevel=_users_level())

    def _stepped(self) -> None:
        """Record that the optimizer has taken a step."""
        if not self._looked:
            self.policy.monitor.unseen()
        self._looked = False
        if self.policy.monitor.back is not None:
            self.policy.monitor.back.follow()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        tell_of_steps(self.optimizer, self._stepped)  # torch drops an optimizer's hooks when it is copied

    def state_dict(self) -> dict[str, Any]:
        """Return the state of schedule, solver and undo monitor; the optimizer has its own."""
        back = self.policy.monitor.back
        return {
            "iteration": self.iteration,
            "spent": self.spent,
            "policy": self.policy.state_dict(),
            "back": None if back is None else back.state_dict(self.optimizer),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resume. ``last_teleport`` is None until the next teleport."""
        monitor, present = self.policy.monitor, self.policy.state_dict()
        back = monitor.back
        try:
            iteration, spent, stored = state_dict["iteration"], state_dict["spent"], state_dict["back"]
            snapshot = None if stored is None else OptimizerSnapshot.of(stored, self.optimizer)
            self.policy.load_state_dict(state_dict["policy"], snapshot)
        except (KeyError, TypeError, IndexError) as error:
            self.policy.load_state_dict(present, back)
            raise ValueError(
                f"the checkpoint is incomplete ({type(error).__name__}: {error}): it is not one of "
                "Teleporter.state_dict(), or of another version of levelport. Load what it has into the optimizer and "
                "let the teleporter start anew."
            ) from error
        self.iteration, self.spent = iteration, spent
        self.last_teleport = None

    def __repr__(self) -> str:
        return f"Teleporter({self.schedule}, solver={self.solver}, momentum={self.momentum!r})"


def _users_level() -> int:
    """The ``stacklevel`` of the first caller outside of levelport and of torch, which wraps an optimizer's step."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("levelport", "torch"):
        level, frame = level + 1, frame.f_back
    return level
