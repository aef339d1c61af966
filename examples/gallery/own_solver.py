"""Writing a solver.

A solver is a class with one method. This one tries random points around the start, and halves the distance until f is
no higher. The monitor keeps the best feasible point, and `teleport` checks the guarantee itself, so even a poor solver
cannot return an infeasible point. Left, the gain of the gradient norm; right, the fraction of f that remains after the
best gradient step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure

import levelport
from levelport.solvers import Monitor, Outcome, TeleportProblem

COLOURS = {"no teleport": "0.5", "random": "tab:blue", "auto": "tab:orange"}


@dataclass(frozen=True)
class RandomSearch(levelport.Solver):
    """Random points in a ball around the start."""

    tries: int = 100
    length: float = 1.0

    def solve(self, problem: TeleportProblem, monitor: Monitor) -> Outcome:
        generator = torch.Generator().manual_seed(0)
        for _ in range(self.tries):
            step = self.length * torch.randn(problem.start.x.shape, generator=generator, dtype=problem.start.x.dtype)
            point = problem.objective.at(problem.start.x + step)
            while not problem.feasible(point.value):
                step = 0.5 * step
                point = problem.objective.at(problem.start.x + step)
            monitor.offer(point)
        return Outcome(monitor.best, levelport.TeleportStatus.BUDGET_SPENT, f"{self.tries} points")


def main() -> Figure:
    dimensions = [2, 4, 8, 16, 32, 64]
    gains: dict[str, list[float]] = {"random": [], "auto": []}
    ends: dict[str, list[float]] = {"no teleport": [], "random": [], "auto": []}
    for d in dimensions:
        weights = torch.logspace(0, 2, d, dtype=torch.float64)

        def quadratic(x: torch.Tensor, weights: torch.Tensor = weights) -> torch.Tensor:
            return 0.5 * (weights * x * x).sum()

        start = torch.ones(d, dtype=torch.float64)
        for name, solver in (("random", RandomSearch()), ("auto", "auto")):
            result = levelport.teleport(quadratic, start, solver)
            gains[name].append(result.gain)
            ends[name].append(after_a_step(quadratic, result.x, weights))
        ends["no teleport"].append(after_a_step(quadratic, start, weights))
    picture = Figure(figsize=(9, 4), layout="constrained")
    longer, lower = picture.subplots(1, 2)
    for axes, curves in ((longer, gains), (lower, ends)):
        for name, values in curves.items():
            axes.plot(dimensions, values, marker="o", color=COLOURS[name], label=name)
        axes.set(xscale="log", xlabel="dimension")
        axes.set_xticks(dimensions, labels=[str(d) for d in dimensions])
        axes.minorticks_off()
        axes.legend()
    longer.set_ylabel("gain of the gradient norm")
    lower.set(ylabel="fraction of f after a gradient step", yscale="log", ylim=(1e-10, 2.0))
    print("gains of 100 random points:", [round(gain, 2) for gain in gains["random"]])
    return picture


def after_a_step(f: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, weights: torch.Tensor) -> float:
    """The fraction of f that remains after an exact line search along the gradient, at least 1e-9."""
    gradient = weights * x
    step = float(gradient @ gradient) / float(gradient @ (weights * gradient))
    return max(float(f(x - step * gradient) / f(x)), 1e-9)
