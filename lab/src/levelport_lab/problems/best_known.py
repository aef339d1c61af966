"""Best values known of problems without a certified optimum: a small table that only ever improves.

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
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelport_lab.problems.atomic import write_text
from levelport_lab.problems.benchmark_problem import Problem
from levelport_lab.problems.storage import cache_directory


@dataclass(frozen=True)
class BestKnown:
    """The value f(x) of some x, and where that x came from."""

    value: float
    how: str


def table_in_package() -> Path:
    """The committed table."""
    return Path(str(resources.files("levelport_lab.problems"))) / "best_known.json"


def table_in_cache() -> Path:
    """The table of this machine."""
    return cache_directory() / "best_known.json"


def table_key(name: str, reg: float, seed: int) -> str:
    """How a problem is called in the tables."""
    short = f"{reg:g}"
    return f"{name} reg={short if float(short) == reg else repr(reg)} seed={seed}"


def read_table(path: Path) -> dict[str, BestKnown]:
    """The entries of a table; none where there is no table or it is damaged, and without those that are."""
    try:
        content = _content(path)
    except (OSError, ValueError):
        return {}
    entries = {key: _entry(raw) for key, raw in content.items()}
    return {key: entry for key, entry in entries.items() if entry is not None}


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the table {path} is damaged ({error}); mend it or move it away.") from error
    if not isinstance(content, dict):
        raise ValueError(f"the table {path} is damaged (it holds no names); mend it or move it away.")
    return content


def _entry(raw: Any) -> BestKnown | None:
    try:
        entry = BestKnown(float(raw["value"]), str(raw["how"]))
    except (ValueError, KeyError, TypeError):
        return None
    return entry if math.isfinite(entry.value) else None


def lookup(name: str, reg: float, seed: int) -> BestKnown | None:
    """The better of the package's and this machine's value, or None."""
    key = table_key(name, reg, seed)
    entries = [table[key] for table in map(read_table, (table_in_package(), table_in_cache())) if key in table]
    return min(entries, key=lambda entry: entry.value, default=None)


def record(name: str, reg: float, seed: int, found: BestKnown, *, table: Path | None = None) -> bool:
    """Write ``found`` down if it beats what is known; says whether it did.

    ``table`` is this machine's by default, where only what beats the package's value, too, is worth an entry. Whoever
    maintains the package gives the committed one, and ``found`` is compared with that alone. A table that cannot be
    read is not written to; entries that cannot be read stay as they are.
    """
    path, key = table_in_cache() if table is None else table, table_key(name, reg, seed)
    content = _content(path) if path.exists() else {}
    known = lookup(name, reg, seed) if table is None else _entry(content.get(key))
    if not math.isfinite(found.value) or (known is not None and known.value <= found.value):
        return False
    content[key] = asdict(found)
    write_text(path, json.dumps(dict(sorted(content.items())), indent=1) + "\n")
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
