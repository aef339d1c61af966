"""Writing a solver.

A solver is a class with one method. This one throws darts: random points around the start, brought below the level by
halving the throw. The monitor keeps the best feasible point, and the guarantee is checked outside, so that even a silly
solver cannot return a wrong answer. Left, what it gains beside the default; right, what the best gradient step from
there leaves of f, beside the same step without a teleport.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure

import levelport
from levelport.solvers import Monitor, Outcome, TeleportProblem


@dataclass(frozen=True)
class Darts(levelport.Solver):
    """Random points in a ball around the start."""

    throws: int = 100
    length: float = 1.0

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        generator = torch.Generator().manual_seed(0)
        for _ in range(self.throws):
            throw = self.length * torch.randn(problem.start.x.shape, generator=generator, dtype=problem.start.x.dtype)
            point = problem.objective.at(problem.start.x + throw)
            while not problem.feasible(point.value):
                throw = 0.5 * throw
                point = problem.objective.at(problem.start.x + throw)
            monitor.offer(point)
        return Outcome(monitor.best, levelport.TeleportStatus.BUDGET_SPENT, f"{self.throws} darts")


def main() -> Figure:
    dimensions = [2, 4, 8, 16, 32, 64]
    gains: dict[str, list[float]] = {"darts": [], "auto": []}
    ends: dict[str, list[float]] = {"no teleport": [], "darts": [], "auto": []}
    for d in dimensions:
        weights = torch.logspace(0, 2, d, dtype=torch.float64)

        def quadratic(x: torch.Tensor, weights: torch.Tensor = weights) -> torch.Tensor:
            return 0.5 * (weights * x * x).sum()

        start = torch.ones(d, dtype=torch.float64)
        for name, solver in (("darts", Darts()), ("auto", "auto")):
            result = levelport.teleport(quadratic, start, solver)
            gains[name].append(result.gain)
            ends[name].append(after_a_step(quadratic, result.x, weights))
        ends["no teleport"].append(after_a_step(quadratic, start, weights))
    picture = Figure(figsize=(9, 4), layout="constrained")
    longer, lower = picture.subplots(1, 2)
    for axes, curves in ((longer, gains), (lower, ends)):
        for name, values in curves.items():
            axes.plot(dimensions, values, marker="o", label=name)
        axes.set(xscale="log", xlabel="dimension")
        axes.set_xticks(dimensions, labels=[str(d) for d in dimensions])
        axes.minorticks_off()
        axes.legend()
    longer.set_ylabel("gain of the gradient norm")
    lower.set(ylabel="f after the best gradient step / f before", yscale="log", ylim=(1e-10, 2.0))
    print("gains of 100 darts:", [round(gain, 2) for gain in gains["darts"]])
    return picture


def after_a_step(f: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, weights: torch.Tensor) -> float:
    """What the exact line search along the gradient leaves of f; rounding counts as 1e-9."""
    gradient = weights * x
    step = float(gradient @ gradient) / float(gradient @ (weights * gradient))
    return max(float(f(x - step * gradient) / f(x)), 1e-9)
