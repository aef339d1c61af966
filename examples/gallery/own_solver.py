"""Writing a solver.

A solver is a class with one method. This one throws darts: random points around the start, brought below the level by
halving the throw. The monitor keeps the best feasible point, and the guarantee is checked outside, so that even a silly
solver cannot return a wrong answer. It is compared with the default at the same number of evaluations.
"""

from __future__ import annotations

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
    for d in dimensions:
        weights = torch.logspace(0, 2, d, dtype=torch.float64)

        def quadratic(x: torch.Tensor, weights: torch.Tensor = weights) -> torch.Tensor:
            return 0.5 * (weights * x * x).sum()

        start = torch.ones(d, dtype=torch.float64)
        for name, solver in (("darts", Darts()), ("auto", "auto")):
            gains[name].append(levelport.teleport(quadratic, start, solver).gain)
    picture = Figure(figsize=(6, 4), layout="constrained")
    axes = picture.subplots()
    for name, values in gains.items():
        axes.plot(dimensions, values, marker="o", label=name)
    axes.set(xscale="log", xlabel="dimension", ylabel="gain of the gradient norm")
    axes.set_xticks(dimensions, labels=[str(d) for d in dimensions])
    axes.minorticks_off()
    axes.legend()
    print("gains of 100 darts:", [round(gain, 2) for gain in gains["darts"]])
    return picture
