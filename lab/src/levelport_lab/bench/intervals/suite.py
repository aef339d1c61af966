"""Specifications of the interval comparison: every tool on every problem that it can handle."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

import levelport
from levelport.objectives import FunctionObjective
from levelport_lab.bench.intervals.arms import ARMS, RISE
from levelport_lab.bench.intervals.held_out import admitted, lowest_minimum
from levelport_lab.bench.intervals.likelihoods import Likelihood, likelihoods
from levelport_lab.choices import Tier
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.problems.minimum import find_minimum

_ALL_ENTRIES = 15  # largest dimension with all ends
_GRADIENT = 1e-5  # norm at a minimizer in many dimensions
_SAMPLED = {"regular": 5, "curved": 15, "held out": 3, "large": 2, "network": 5}


@dataclass(frozen=True)
class IntervalSpec(RunSpec):
    """One tool on one problem; a run per end."""

    kind: ClassVar[str] = "interval"
    problem: str
    tool: str

    @property
    def label(self) -> str:
        return f"{self.tool} on {self.problem}"

    @property
    def rough_seconds(self) -> float:
        d = len(likelihoods()[self.problem].truth)
        return 0.02 * d if self.tool in ("levelport", "Wald") else 0.3 * d

    def run(self) -> list[Run]:
        problem = likelihoods()[self.problem]
        x = minimizer(problem)
        if problem.kind == "held out" and not admitted(problem, x, RISE):
            return [Run(setting=-1.0, facts={"excluded": 1.0})]
        answer = ARMS[self.tool](problem, x, entries(problem))
        shared = {"setup": answer.setup, "setup_seconds": answer.setup_seconds, "dimension": float(len(x))}
        return [
            Run(
                setting=float(end.index),
                final_value=end.bound,
                facts={
                    "side": float(end.side),
                    "estimate": float(x[end.index]),
                    "claimed": float(end.claimed),
                    "cost": end.cost,
                    "seconds": end.seconds,
                    **shared,
                },
            )
            for end in answer.ends
        ]


def minimizer(problem: Likelihood) -> Tensor:
    """The maximum-likelihood estimate: by Newton's method, in many dimensions by :func:`levelport.minimize`."""
    if problem.kind == "held out":
        return lowest_minimum(problem)
    if problem.kind == "large":
        return levelport.minimize(problem.fun, problem.truth, tol=_GRADIENT).x
    return find_minimum(FunctionObjective(problem.fun, like=problem.truth), problem.truth).x


def entries(problem: Likelihood) -> list[int]:
    """The entries whose intervals are asked for: all in few dimensions, else (or held out) some drawn by the name."""
    d = len(problem.truth)
    if d <= _ALL_ENTRIES and problem.kind != "held out":
        return list(range(d))
    seed = int.from_bytes(hashlib.sha256(problem.name.encode()).digest()[:4], "big")
    drawn = torch.randperm(d, generator=torch.Generator().manual_seed(seed))[: _SAMPLED[problem.kind]]
    return sorted(drawn.tolist())


def able(tool: str, problem: Likelihood) -> bool:
    """Return True if a tool is run on a problem: dense ones in few dimensions, lmfit on least squares.

    lmfit takes a minute per end of the curved kinds, so it is not run on those held out.
    """
    d = len(problem.truth)
    if tool in ("truth", "levelport"):
        return True
    if tool == "all profiles":
        return problem.kind in ("curved", "held out")
    if problem.kind == "held out":
        return tool in ("MINOS, gradients", "SLSQP")
    if tool == "lmfit":
        return problem.residuals is not None
    return d <= {"trust-constr": 60, "MINOS": 60, "pyPESTO": 15}.get(tool, 200)


def interval_specs(tier: Tier, seed: int = 0) -> list[RunSpec]:
    """Everything; the quick tier leaves out large problems and the slow tools."""
    slow = () if tier == "full" else ("MINOS", "trust-constr", "lmfit", "pyPESTO")
    return [
        IntervalSpec(problem.name, tool)
        for problem in likelihoods().values()
        for tool in ARMS
        if able(tool, problem) and tool not in slow and (tier == "full" or problem.kind != "large")
    ]
