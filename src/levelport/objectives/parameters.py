"""A loss over live parameters: what a training loop already has, seen as a function on ℝᵈ.

The loss is a callable without arguments that reads its parameters wherever they live, so evaluating it at x means
writing x into them. A write makes every graph built before it useless. Therefore only the point evaluated last
owns a graph; an older one that is asked for a product builds its graph again, and the ledger says so. Version counters
of the parameters tell a point whether anyone, another objective over the same parameters included, has written since.

Nothing else moves: ``.grad`` is never touched, buffers of modules are copies while the loss runs, autocast is off.
Hooks that change gradients (``parameter.register_hook``) are off as well: f has the derivatives of the loss itself, and
entries that a hook holds fixed in steps move like all others.
After use, :meth:`ParametersObjective.load` puts the parameters where they belong.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from levelport.objective import Ledger, Objective, ObjectiveError, Point, SumPoint
from levelport.objectives.batches import Batches, Loss, check_loss
from levelport.objectives.function import (
    CALLED_BACKWARD,
    LOSS,
    OTHER_MODEL,
    DerivativeCheck,
    GraphPoint,
    as_scalar_loss,
    differentiable,
    explained,
)
from levelport.objectives.isolation import RandomState, isolated, restoring
from levelport.objectives.structure import Structure, check_leaves, check_separate


class ParametersObjective(Objective):
    """f(w) for parameters w that live in modules, and a loss that reads them there.

    Args:
        parameters: those with ``requires_grad``; the others stay as they are. A parameter given twice counts once.
        loss: a loss-only callable, or :class:`Batches`.
        noise: "refuse" makes :func:`levelport.teleport` raise if two evaluations differ (dropout);
            "replay" starts the generators from the same state in every evaluation.
        random_state: the state to replay; None takes the present one.
        name: what messages call f.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        loss: Loss | Batches,
        *,
        noise: Literal["refuse", "replay"] = "refuse",
        random_state: RandomState | None = None,
        name: str = LOSS,
    ) -> None:
        super().__init__()
        self.name = name
        self.parameters = list(dict.fromkeys(p for p in parameters if p.requires_grad))
        if not self.parameters:
            raise ObjectiveError("no parameter has requires_grad=True, so there is nothing to move.")
        if any(parameter.is_inference() for parameter in self.parameters):
            raise ObjectiveError(
                "a parameter was made inside torch.inference_mode(), which autograd cannot work with. Build the model "
                "outside; teleporting inside is fine."
            )
        if not callable(loss):
            check_loss(name, loss)
        if noise not in ("refuse", "replay"):
            raise ValueError(f"noise must be 'refuse' or 'replay', not {noise!r}.")
        check_leaves(self.parameters, "the parameters")
        self.structure = Structure(self.parameters)
        check_separate(self.parameters)
        self.dimension, self.dtype, self.device = self.structure.dimension, self.structure.dtype, self.structure.device
        self.terms = loss.terms() if isinstance(loss, Batches) else [(1.0, loss)]
        self._replay = (random_state or RandomState.capture(self.device)) if noise == "replay" else None
        self._hooked = [parameter for parameter in self.parameters if parameter._backward_hooks]
        self._derivative_check = DerivativeCheck(self.ledger, name, unrelated=OTHER_MODEL.replace(LOSS, name))
        self._owner: weakref.ref[_ParameterPoint] | None = None

    def current(self) -> Tensor:
        """The parameters as a flat vector (a copy)."""
        return self.structure.flatten(self.parameters)

    def load(self, x: Tensor) -> None:
        """Write the flat vector ``x`` into the parameters, outside any graph."""
        owner = self._owner() if self._owner is not None else None
        if owner is not None:
            owner.drop_graph()
        self._owner = None
        for parameter, value in zip(self.parameters, self.structure.leaves(x.detach()), strict=True):
            parameter.detach().copy_(value)
        torch.clear_autocast_cache()  # copies in half precision of what the parameters were

    def versions(self) -> list[int]:
        """Numbers that change with every write to the parameters."""
        return [parameter._version for parameter in self.parameters]

    def at(self, x: Tensor, *, curvature: bool = False) -> Point:
        if len(self.terms) == 1:
            return _ParameterPoint(x, self, self.terms[0][1], self.ledger, curvature=curvature)
        return SumPoint(x, self.ledger, partial(self._batches, x))

    def _batches(self, x: Tensor, curvature: bool) -> Iterator[tuple[float, Point]]:
        for weight, loss in self.terms:
            yield weight, _ParameterPoint(x, self, loss, Ledger(), curvature=curvature)

    def isolated(self) -> AbstractContextManager[object]:
        """Context of the loss and of its backward pass, in which checkpointed modules run again."""
        return isolated(self.device, replay=self._replay, full_precision=True)

    def _evaluate(self, loss: Loss) -> tuple[Tensor, list[Tensor]]:
        """The loss with its graph, at the parameters as they are, and the parameters."""
        name = self._derivative_check.name
        with set_aside("grad", self.parameters):
            with self.isolated(), differentiable(), explained(derivative=False, name=name):
                result = as_scalar_loss(loss(), name)
            if any(parameter.grad is not None for parameter in self.parameters):
                raise ObjectiveError(CALLED_BACKWARD)
        if result.dtype in (torch.float16, torch.bfloat16) and result.dtype != self.dtype:
            raise ObjectiveError(
                f"{name} came back in {result.dtype} although the parameters are {self.dtype}: it switches autocast "
                "on by itself. Teleport on a loss without autocast."
            )
        return result, self.parameters


@contextmanager
def set_aside(attribute: str, parameters: list[Tensor]) -> Iterator[None]:
    """Set ``attribute`` of the parameters to None, and afterwards to what it was."""
    before = [getattr(parameter, attribute) for parameter in parameters]

    def restore() -> None:
        for parameter, kept in zip(parameters, before, strict=True):
            setattr(parameter, attribute, kept)

    with restoring(restore):
        for parameter in parameters:
            setattr(parameter, attribute, None)
        yield


class _ParameterPoint(GraphPoint):
    """A point of one loss of a :class:`ParametersObjective`. Its graph lives until the parameters are written to."""

    def __init__(
        self, x: Tensor, objective: ParametersObjective, loss: Loss, ledger: Ledger, *, curvature: bool
    ) -> None:
        check = objective._derivative_check
        super().__init__(x, ledger, lambda x: objective._evaluate(loss), check, curvature=curvature)
        self._objective = objective
        self._compute = loss
        self._written: list[int] = []  # versions of the parameters when x was written into them

    def release(self) -> None:
        """Does nothing: the next write releases the graph."""

    def drop_graph(self) -> None:
        """The parameters are about to change."""
        self._graph = self._differentiable_gradient = None

    def _occupy(self) -> None:
        """Bring the parameters to x."""
        owner = self._objective._owner
        if owner is None or owner() is not self or self._written != self._objective.versions():
            self._objective.load(self.x)
            self.drop_graph()
            self._objective._owner = weakref.ref(self)
            self._written = self._objective.versions()

    def _run_forward(self) -> tuple[Tensor, list[Tensor]]:
        self._occupy()
        return super()._run_forward()

    def _evaluate_forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return self._forward(x)  # in contexts of its own

    @contextmanager
    def _differentiating(self) -> Iterator[None]:
        # Hooks that clip or mask gradients for the steps would make ∇f the gradient of no function.
        hooked = self._objective._hooked
        with self._objective.isolated(), set_aside("_backward_hooks", hooked) if hooked else nullcontext():
            yield

    def _evaluate_gradient(self) -> tuple[float | Tensor, Tensor]:
        self._occupy()
        if self._value is not None and self._graph is None:
            self._ledger.values += 1  # the forward pass of the value was lost to a write
        return super()._evaluate_gradient()

    def _value_elsewhere(self, x: Tensor) -> float:
        return _ParameterPoint(x, self._objective, self._compute, Ledger(), curvature=False).value

    def _evaluate_hvp(self, v: Tensor) -> Tensor:
        self._occupy()
        if self._gradient is not None and self._graph is None:
            self._ledger.gradients += 1  # its graph was lost to a write
        return super()._evaluate_hvp(v)
