"""The optimal value of a problem, with a certified lower bound.

For every linear model: Newton's method to the limit of float64, then the certificate of
:mod:`levelport_lab.problems.certificate`, kept in the cache. Without a penalty the infimum of a logistic problem
may not be attained; such problems are recognized (:mod:`levelport_lab.problems.separability`). No optimum is known for
networks.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from levelport.objectives.linear import LinearObjective, LogisticLoss
from levelport_lab.problems import certificate
from levelport_lab.problems.atomic import write_text
from levelport_lab.problems.benchmark_problem import Problem
from levelport_lab.problems.minimum import find_minimum
from levelport_lab.problems.models import LinearModel
from levelport_lab.problems.separability import separable_rows
from levelport_lab.problems.storage import cache_directory

TOLERANCE = 1e-12
"""The relative accuracy to which an optimum counts as certified."""

_FORMAT = 1


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
            raise OptimumError("The infimum is not attained, or its minimizer was not kept, so there is no point.")
        return torch.tensor(self.minimizer, dtype=dtype)


def optimum(problem: Problem, *, refresh: bool = False) -> Optimum:
    """The optimum of ``problem``: from memory, from the cache, or computed now. ``refresh`` computes it anew."""
    problem = replace(problem, dtype=torch.float64)  # f* belongs to the function, not to the arithmetic
    if not isinstance(problem.model, LinearModel):
        raise OptimumError(
            f"{problem.name} is not convex: no optimum is known. Compare with the lowest value of a run."
        )
    if refresh:
        _remembered.cache_clear()
    return _remembered(problem, refresh)


@lru_cache(maxsize=1024)
def _remembered(problem: Problem, refresh: bool) -> Optimum:
    path = cache_file(problem)
    stored = None if refresh else _read(path, problem)
    if stored is not None:
        return stored
    objective = problem.objective()
    assert isinstance(objective, LinearObjective)
    computed = compute(objective)
    try:
        _write(path, problem, computed)
    except OSError as error:
        warnings.warn(f"The optimum of {problem} could not be kept in {path}: {error}.", stacklevel=4)
    return computed


def compute(objective: LinearObjective) -> Optimum:
    """The optimum of a linear model, without any cache.

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


def cache_file(problem: Problem) -> Path:
    """Return the file of the optimum of a convex problem."""
    key = _key(problem)
    readable = re.sub(r"[^a-z0-9.]+", "-", key.lower())
    return cache_directory() / "optima" / f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"


def _key(problem: Problem) -> str:
    return f"{problem.name} reg={problem.reg!r} seed={problem.seed} format={_FORMAT}"


def _checksum(record: object) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _write(path: Path, problem: Problem, found: Optimum) -> None:
    record = {"key": _key(problem), **asdict(found)}
    write_text(path, json.dumps({"sha256": _checksum(record), "record": record}))


def _read(path: Path, problem: Problem) -> Optimum | None:
    """The stored optimum, or None where there is none that is whole and belongs to ``problem``."""
    try:
        content = json.loads(path.read_text())
        record = content["record"]
        if content["sha256"] != _checksum(record) or record.pop("key") != _key(problem):
            return None
        minimizer = record.pop("minimizer")
        return Optimum(**record, minimizer=None if minimizer is None else tuple(minimizer))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
