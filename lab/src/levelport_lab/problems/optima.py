"""The optimal value of a problem, with a certified lower bound.

For every linear model: Newton's method to the limit of float64, then the certificate of
:mod:`levelport_lab.problems.certificate`. Without a penalty the infimum of a logistic problem may not be attained;
such problems are recognized (:mod:`levelport_lab.problems.separability`). No optimum is known for networks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from levelport.objectives.linear import LinearObjective, LogisticLoss
from levelport_lab.problems import certificate
from levelport_lab.problems.benchmark_problem import Problem
from levelport_lab.problems.minimum import find_minimum
from levelport_lab.problems.models import LinearModel
from levelport_lab.problems.separability import separable_rows

TOLERANCE = 1e-12
"""The relative accuracy to which an optimum counts as certified."""


class OptimumError(RuntimeError):
    """No optimum is known, or none could be certified; the message says what to do."""


@dataclass(frozen=True)
class Optimum:
    """inf f: the best value known, and one that f never falls below.

    Attributes:
        value: f at ``minimizer``, or the infimum where it is not attained.
        lower_bound: f ≥ this everywhere; proven, rounding included, where ``certified``.
        attained: whether a minimizer exists; None where that is not known.
        how: how the value was found and why the bound holds.
        minimizer: the flat parameters, where there are any to give.
    """

    value: float
    lower_bound: float
    attained: bool | None
    how: str
    minimizer: tuple[float, ...] | None = None

    @property
    def gap(self) -> float:
        """value - lower_bound."""
        return self.value - self.lower_bound

    @property
    def certified(self) -> bool:
        """True if the gap is at most 1e-12 of the value."""
        return self.gap <= TOLERANCE * abs(self.value)

    def point(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """The minimizer as a tensor."""
        if self.minimizer is None:
            raise OptimumError("The infimum is not attained, so there is no point.")
        return torch.tensor(self.minimizer, dtype=dtype)


@lru_cache(maxsize=1024)
def optimum(problem: Problem) -> Optimum:
    """The optimum of ``problem``, computed once in a process: some 20 ms for a logistic regression of the paper."""
    if not isinstance(problem.model, LinearModel):
        raise OptimumError(
            f"{problem.name} is not convex: no optimum is known. Compare with the lowest value of a run."
        )
    # f* belongs to the function, not to the arithmetic.
    objective = replace(problem, dtype=torch.float64).objective()
    assert isinstance(objective, LinearObjective)
    return compute(objective)


def compute(objective: LinearObjective) -> Optimum:
    """The optimum of a linear model.

    Where no proof reaches 1e-12 (the minimizer is so far out that float64 cannot resolve it), the best value is
    returned with the best lower bound there is, and ``certified`` is False.
    """
    found = _newton_optimum(objective)
    if found.certified or objective.penalty > 0 or not isinstance(objective.loss, LogisticLoss):
        return found
    return _unpenalised(objective, objective.loss, found)


def _newton_optimum(objective: LinearObjective) -> Optimum:
    solution = find_minimum(objective)
    evaluation = certificate.evaluate(objective, solution.x)
    gap = certificate.optimality_gap(objective, solution.x, evaluation)
    lower = math.nextafter(evaluation.value - (evaluation.value_error + gap), -math.inf)
    return Optimum(
        value=evaluation.value,
        lower_bound=max(lower, 0.0),
        attained=True if math.isfinite(gap) else None,
        how=f"{solution.steps} Newton steps, gradient norm {evaluation.gradient_norm:.1e}",
        minimizer=tuple(solution.x.tolist()),
    )


def _unpenalised(objective: LinearObjective, loss: LogisticLoss, found: Optimum) -> Optimum:
    """A logistic problem without penalty on which Newton's method alone could not be certified.

    The samples that a direction can satisfy for free contribute nothing to the infimum. The others make up a problem
    that attains its minimum, on the span of their rows (to numerical rank).
    """
    free = torch.from_numpy(separable_rows(objective.X.numpy(), loss.y.numpy()))
    if bool(free.all()):
        return Optimum(0.0, 0.0, attained=False, how="a hyperplane separates the classes, by a linear programme")
    rest = objective.X[~free]
    _, singular, Vt = torch.linalg.svd(rest, full_matrices=False)
    rank = int((singular > 1e-10 * singular[0]).sum())
    reduced = _newton_optimum(LinearObjective.logistic(rest @ Vt[:rank].T, loss.y[~free]))
    if not reduced.certified:
        return replace(found, how=f"{found.how}; float64 does not resolve the minimum well enough for a proof")
    if not bool(free.any()):
        minimizer = tuple((Vt[:rank].T @ reduced.point()).tolist())
        how = f"{reduced.how}, on the {rank}-dimensional span of the samples"
        return replace(reduced, how=how, minimizer=minimizer)
    share = len(rest) / objective.samples
    how = f"{int(free.sum())} of {objective.samples} samples can be satisfied for free; the others by {reduced.how}"
    return Optimum(share * reduced.value, share * reduced.lower_bound, attained=False, how=how)
