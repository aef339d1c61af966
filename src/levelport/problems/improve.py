"""Better values of network problems: offered by anyone who has a point, or looked for by L-BFGS."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelport.problems import best_known
from levelport.problems.benchmark_problem import Problem
from levelport.problems.best_known import BestKnown


def offer(problem: Problem, x: Tensor, how: str, *, table: Path | None = None) -> bool:
    """Write f(x), evaluated here in float64, into the table of best-known values if it beats what is there.

    Says whether it did. ``how`` tells the reader of the table where ``x`` came from.
    """
    exact = replace(problem, dtype=torch.float64)
    value = exact.objective().at(x.detach().to(torch.float64).cpu()).value
    return best_known.record(problem.name, problem.reg, problem.seed, BestKnown(value, how), table=table)


def improve(problem: Problem, *, starts: int = 3, iterations: int = 2000) -> tuple[Tensor, BestKnown]:
    """The best of ``starts`` runs of SciPy's L-BFGS-B, the first from the problem's own start.

    The other runs keep the problem's split and take the start of the seeds that follow.
    """
    from scipy.optimize import minimize

    problem = replace(problem, dtype=torch.float64)
    objective = problem.objective()
    best_x, best = problem.initial_point(), BestKnown(np.inf, "")

    def value_and_gradient(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        point = objective.at(torch.from_numpy(w.copy()))
        gradient = point.gradient.numpy()
        return point.value, gradient

    for start in range(starts):
        seed = problem.seed + start
        begin = replace(problem, seed=seed).initial_point().numpy()
        options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 20, "ftol": 1e-15, "gtol": 1e-9}
        run = minimize(value_and_gradient, begin, jac=True, method="L-BFGS-B", options=options)
        x = torch.from_numpy(run.x)
        value = problem.objective().at(x).value
        if value < best.value:
            how = f"SciPy L-BFGS-B, {run.nit} iterations from the start of seed {seed}, gradient norm "
            best_x, best = x, BestKnown(value, how + f"{np.linalg.norm(run.jac):.1e}")
    return best_x, best
