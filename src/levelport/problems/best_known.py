"""Best values known of problems that nobody can solve for certain: a small table that only ever improves.

The table that ships with the package is ``best_known.json``; values found on this machine go to a table of the same
form in the cache, and the smaller of the two counts. Each entry says how it was found. To enter a point of your own
use :func:`offer`, which evaluates it; :func:`improve` looks for one by L-BFGS.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelport.problems.atomic import write_text
from levelport.problems.benchmark_problem import Problem
from levelport.problems.storage import cache_directory


@dataclass(frozen=True)
class BestKnown:
    """The value f(x) of some x, and where that x came from."""

    value: float
    how: str


def table_in_package() -> Path:
    """The committed table."""
    return Path(str(resources.files("levelport.problems"))) / "best_known.json"


def table_in_cache() -> Path:
    """The table of this machine."""
    return cache_directory() / "best_known.json"


def table_key(name: str, reg: float, seed: int) -> str:
    """How a problem is called in the tables."""
    short = f"{reg:g}"
    return f"{name} reg={short if float(short) == reg else repr(reg)} seed={seed}"


def read_table(path: Path) -> dict[str, BestKnown]:
    """The entries of a table; empty where there is none or it is damaged."""
    try:
        content = json.loads(path.read_text())
        entries = {key: BestKnown(float(entry["value"]), str(entry["how"])) for key, entry in content.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {key: entry for key, entry in entries.items() if math.isfinite(entry.value)}


def lookup(name: str, reg: float, seed: int) -> BestKnown | None:
    """The better of the package's and this machine's value, or None."""
    key = table_key(name, reg, seed)
    entries = [table[key] for table in map(read_table, (table_in_package(), table_in_cache())) if key in table]
    return min(entries, key=lambda entry: entry.value, default=None)


def record(name: str, reg: float, seed: int, found: BestKnown, *, table: Path | None = None) -> bool:
    """Write ``found`` down if it beats what is known; says whether it did.

    ``table`` is this machine's by default. Whoever maintains the package gives the committed one.
    """
    path = table_in_cache() if table is None else table
    known = lookup(name, reg, seed)
    if not math.isfinite(found.value) or (known is not None and known.value <= found.value):
        return False
    entries = read_table(path) | {table_key(name, reg, seed): found}
    content = {key: asdict(entry) for key, entry in sorted(entries.items())}
    write_text(path, json.dumps(content, indent=1) + "\n")
    return True


def offer(problem: Problem, x: Tensor, how: str, *, table: Path | None = None) -> bool:
    """Write f(x), evaluated here in float64, into the table of best-known values if it beats what is there.

    Says whether it did. ``how`` tells the reader of the table where ``x`` came from.
    """
    exact = replace(problem, dtype=torch.float64)
    value = exact.objective().at(x.detach().to(torch.float64).cpu()).value
    return record(problem.name, problem.reg, problem.seed, BestKnown(value, how), table=table)


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
