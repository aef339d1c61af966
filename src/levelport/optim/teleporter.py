"""``Teleporter``: teleports the parameters of an optimizer and never steps.

It fits into every training loop, whoever owns the step: a plain loop, a callback of a framework, a wrapper such as
:class:`~levelport.Teleported`. :mod:`levelport.optim.policy` decides; here x lives in the parameters of an optimizer.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from levelport import checks
from levelport.objective import NotDeterministicError, Objective
from levelport.objectives.batches import Batches, Loss, check_loss
from levelport.objectives.distributed import agreed, ranks
from levelport.objectives.isolation import RandomState, recover, restoring
from levelport.objectives.parameters import ParametersObjective
from levelport.optim.armijo import ArmijoSGD
from levelport.optim.closures import MAYBE_FORM, NEEDS_LOSS, StepLoss, value_of
from levelport.optim.first_step import StabilityLimit, TeleportStep
from levelport.optim.policy import KEPT, TeleportPolicy
from levelport.optim.schedules import Schedule
from levelport.optim.torch_optimizer import (
    OptimizerSnapshot,
    check_optimizer,
    checked_schedule,
    innermost,
    make_move,
    moving,
    stepping,
    trainable,
    watch_steps,
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
        schedule: when :meth:`maybe` teleports, in its calls; :class:`~levelport.Never` leaves it to :meth:`teleport`.
            None chooses by the optimizer.
        solver, momentum, teleport_on, noise, first_step, distribute: see :class:`~levelport.Teleported`.

    Attributes:
        last_teleport: the :class:`TeleportStep` of the last teleport, None before the first.
        iteration: steps counted so far.
        spent: gradient equivalents of the run so far: steps, evaluations of the loss, and teleports.
        moved: whether the last call changed the parameters, by a move or by undoing one.
        policy: the :class:`~levelport.optim.policy.TeleportPolicy`.

    A parameter group whose learning rate is exactly 0 at the time of a teleport stands still, as it does in steps.
    Where all groups have 0 (the first step of a warm-up) that freezes nothing: a teleport that was asked for moves all
    of them, and an adaptive schedule makes no trial. ``requires_grad=False`` freezes in any case.

    Threads may teleport different models at the same time; a model must not be used by two threads at once.

    Example:
        >>> from levelport.optim import Every
        >>> model = torch.nn.Linear(2, 1)
        >>> x, y = torch.ones(4, 2), torch.zeros(4, 1)
        >>> teleporter = Teleporter(torch.optim.SGD(model.parameters(), lr=0.1), Every(50))
        >>> result = teleporter.maybe(lambda: torch.nn.functional.mse_loss(model(x), y))  # before every step
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
        noise: Literal["refuse", "replay"] = "refuse",
        first_step: Literal["included", "optimizer"] | None = None,
        distribute: Callable[[Objective], Objective] | None = None,
    ) -> None:
        checks.one_of("momentum", momentum, ("keep", "reset"))
        check_optimizer(optimizer, reset=momentum == "reset")
        schedule = checked_schedule(schedule, optimizer, distributed=distribute is not None)
        checks.one_of("noise", noise, ("refuse", "replay"))
        if distribute is not None:
            checks.function("distribute", distribute, of="objective")
        if teleport_on is not None:
            check_loss("teleport_on", teleport_on)
        if first_step is None:
            first_step = "optimizer" if isinstance(innermost(optimizer), ArmijoSGD) else "included"
        checks.one_of("first_step", first_step, ("included", "optimizer"))
        self.optimizer = optimizer
        self.momentum = momentum
        self.teleport_on = teleport_on
        self.noise = noise
        self.distribute = distribute
        self.policy: TeleportPolicy[OptimizerSnapshot] = TeleportPolicy(
            schedule, solver_named(solver), first_step=first_step == "included", noisy=True, undoes=distribute is None
        )
        self.policy.history.product_cost = self.policy.solver.product_cost(self.parameters()[0].dtype)
        self.policy.history.unit = _unit(teleport_on)
        self.last_teleport: TeleportStep | None = None
        self.iteration, self.spent, self.moved = 0, 0.0, False
        self._warned: set[str] = set()
        self._hooks: OrderedDict[int, tuple[Hook, DeclineHook | None]] = OrderedDict()
        watch_steps(optimizer, self.policy.monitor)

    @property
    def schedule(self) -> Schedule:
        """When teleports take place."""
        return self.policy.schedule

    @property
    def teleports(self) -> int:
        """Teleports made, with their first step."""
        return self.policy.counts["teleports"]

    @property
    def moves(self) -> int:
        """Teleports and descents: where no teleport was worth it, the bottom of the solver's model is a step down."""
        return self.teleports + self.policy.counts["descents"]

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
        recover()
        value = None
        if self.needs_loss or (self.iteration == 0 and self.coming is not None and self.parameters()):
            value = StepLoss(loss, self.parameters(), advice=MAYBE_FORM).value()
            self.spent += 0.5 * _unit(loss)
        self.policy.history.unit = _unit(loss if self.teleport_on is None else self.teleport_on)
        self.spent += 1.0  # what a plain step costs
        return self.teleport_if_due(loss, value)

    def teleport_if_due(
        self, loss: Loss | None, value: float | None, *, random_state: RandomState | None = None
    ) -> TeleportStep | None:
        """The same for a caller who knows the loss at the parameters, and adds to ``spent`` what its steps cost.

        ``value`` may be None where :attr:`needs_loss` is False, ``loss`` None for closures with a backward.
        """
        self.moved = False
        if value is not None and self.distribute is None and ranks() > 1:
            value = agreed(value, self.parameters()[0].device)
        undone = self._undo_if_risen(loss, value)
        due = not undone and self._due(math.nan if value is None else value)
        self.iteration += 1
        if not due:
            return None
        target, other = (loss, None) if self.teleport_on is None else (self.teleport_on, loss)
        if target is None:
            raise TypeError(NEEDS_LOSS)
        spent, level = self.spent, math.nan if value is None else value
        try:
            return self._teleport(target, random_state, level=level, due=True, other=other)
        except NotDeterministicError as error:
            if not self.schedule.watches:
                raise
            # An adaptive schedule does not require a teleport at this step: training goes on.
            self.policy.made(None, False, self.spent - spent)
            self._warn("noise", f"training goes on, but a teleport was left out, since {error} (Said once.)")
            return None

    @property
    def coming(self) -> int | None:
        """The first step from the next one on before which a teleport may take place; None where there is none left."""
        return self.policy.schedule.next(self.iteration)

    @property
    def needs_loss(self) -> bool:
        """Whether the loss before the next step is needed: by the schedule or by the undo monitor."""
        policy = self.policy
        if policy.monitor.back is not None:
            return True
        if policy.schedule.watches:
            return self.teleport_on is None
        coming = self.coming
        return policy.undoes and coming is not None and coming < self.iteration + KEPT

    def _undo_if_risen(self, loss: Loss | None, value: float | None) -> bool:
        """Take the last move back if the loss has risen since, and if that is the move's doing."""
        monitor = self.policy.monitor
        back = monitor.back
        if back is None or value is None:
            return False
        if agreed(float(back.leads_back(self.parameters())), back.x.device) < 1.0:
            monitor.end()  # layers were frozen, or someone else has written to the parameters of a rank
            return False
        if not monitor.rises(value):
            return False
        if loss is not None:
            self.spent += 0.5 * _unit(loss)
            if not monitor.blames_move(back.value_of(loss), value):
                monitor.end()
                return False
        steps, level = monitor.steps, monitor.level
        with restoring(lambda: back.restore(self.optimizer)):
            pass
        monitor.undo()
        self.moved = True
        self._warn("", f"a teleport was undone: the loss rose from {level:.6g} to {value:.6g} within {steps} steps.")
        return True

    def _due(self, value: float) -> bool:
        """Tell the policy what is new, and ask it."""
        policy, step, judged = self.policy, self.iteration, value
        if not policy.schedule.watches:
            return policy.due(step, value, self.spent)
        asked = self.teleport_on is None or step % max(1, math.ceil(0.5 * policy.history.unit / _SHARE)) == 0
        if asked and self.teleport_on is not None:
            self.spent += 0.5 * policy.history.unit
            judged = agreed(value_of(self.teleport_on, self.parameters()), self.parameters()[0].device)
        due = policy.due(step if asked else None, value, self.spent, judged)
        if policy.declined > 0 and policy.declined % SILENT_STEPS == 0 and (why := policy.silence()):
            self._tell_of_silence(why)
        return due and bool(stepping(self.optimizer))  # without steps there is nothing to compare a trial with

    def _tell_of_silence(self, why: str) -> None:
        declined = self.policy.declined
        other = " and, on mini-batches, teleport_on=Batches(loss, batches)" if self.teleport_on is None else ""
        told = f"no teleport in {declined} steps: {why}. Pass schedule=Every(50){other} to teleport. (Said once.)"
        self._warn("silent", told)
        for _, on_decline in list(self._hooks.values()):
            if on_decline is not None:
                on_decline(declined, why)

    def teleport(self, loss: Loss | Batches) -> TeleportStep:
        """Teleport now, on ``loss``. Gradients in ``.grad``, buffers and random generators stay as they are.

        Args:
            loss: a loss-only callable, or :class:`Batches`; need not be the loss of the steps.

        Returns:
            What became of it: the teleport, whether the move was made and why not.
        """
        recover()
        return self._teleport(loss, None, level=math.nan, due=False)

    def _teleport(
        self,
        loss: Loss | Batches,
        random_state: RandomState | None,
        *,
        level: float,
        due: bool,
        other: Loss | Batches | None = None,
    ) -> TeleportStep:
        """Teleport on ``loss`` and make the move; ``other`` is a loss on other samples, on which it must not rise."""
        self.moved = False
        back = OptimizerSnapshot.now(self.optimizer) if self.policy.undoes else None
        unit, limit = _unit(loss), StabilityLimit.of(innermost(self.optimizer))
        parameters = moving(self.optimizer)
        live, unused = ParametersObjective(parameters, loss, noise=self.noise, random_state=random_state), None
        if isinstance(loss, Batches) and loss.unused:
            other = Batches(loss.loss, loss.unused)
        if other is not None and self.distribute is None:
            unused = ParametersObjective(parameters, other, noise=self.noise)
        try:
            taken, self.moved, cost = make_move(self.policy, live, unused, limit, self.distribute, due=due)
        except Exception as error:
            self.spent += unit * live.cost.gradient_equivalents
            if isinstance(error, NotDeterministicError) and self.noise == "refuse":
                raise NotDeterministicError(f"{error} {_REPLAY}") from None
            raise  # with "replay" what differs are other random numbers than torch's
        self.spent += unit * cost.gradient_equivalents
        if self.moved and back is not None:
            back.follow()
            self.policy.watch(level, back)
        if self.moved and self.momentum == "reset":
            self.optimizer.state.clear()
        result = taken.told(self.moved, replace(cost, seconds=taken.move.result.cost.seconds))
        self.policy.made(taken, self.moved, unit * result.cost.gradient_equivalents, due=due)
        self.last_teleport = result
        LOG.info("teleport before step %d: %s", self.iteration - due, result.message)  # steps count from 0
        for hook, _ in list(self._hooks.values()):
            hook(result)
        return result

    def register_teleport_hook(self, hook: Hook, *, on_decline: DeclineHook | None = None) -> RemovableHandle:
        """Call ``hook(result)`` after every teleport, for instance to log it; ``handle.remove()`` ends that.

        ``on_decline(steps, why)`` is called whenever an adaptive schedule has declined for another 200 steps in a row.
        """
        checks.function("hook", hook, of="result")
        if on_decline is not None:
            checks.function("on_decline", on_decline, of="steps, why")
        handle = RemovableHandle(self._hooks)
        self._hooks[handle.id] = hook, on_decline
        return handle

    def summary(self) -> str:
        """What was tried, made, declined and undone, and what it cost."""
        last = "" if self.last_teleport is None else f"\nlast       {self.last_teleport.message}"
        return self.policy.summary(self.iteration, self.spent) + last

    def _warn(self, once: str, message: str) -> None:
        """A warning at the user's own line, and a line in the log; those with a key only once."""
        LOG.warning(message)
        if once not in self._warned:
            self._warned |= {once} - {""}
            checks.warn(message)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_hooks": OrderedDict()}  # as torch's optimizers

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        watch_steps(self.optimizer, self.policy.monitor)  # torch drops an optimizer's hooks when it is copied

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
        return f"Teleporter({self.schedule}, solver={self.policy.solver}, momentum={self.momentum!r})"


def _unit(loss: Loss | Batches | None) -> float:
    """The cost of a gradient of ``loss``, in gradients of steps: the batches of Batches, and of their mean."""
    batches = getattr(loss, "__self__", loss)
    return float(len(batches.batches)) if isinstance(batches, Batches) else 1.0
