"""Solvers of the teleportation problem against each other and against SciPy. Minutes, not a test.

    python -m levelport.lab.bench.subproblem [--out docs/results]

Every solver gets the same functions, starts, derivatives and budgets, and every result passes through
:func:`levelport.teleport`: the point returned is feasible, and the gradients spent on making it so are counted. Runs
are interleaved, so that a machine that slows down slows down everyone. Writes subproblem.csv and subproblem.md.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from levelport.lab.bench.solver_comparison import CONTESTANTS, Contestant, Instance, logistic_instance
from levelport.lab.bench.subproblem_report import report
from levelport.problems import problem
from levelport.problems.quadratics import Quadratic
from levelport.solvers import TeleportResult

BUDGETS = (10, 25, 50, 200)
"""Hessian-vector products; the last one decides who reaches most."""

LADDER = (6, 8, 12, 15, 20, 30, 35, 40, 60, 75, 100, 150)
"""More budgets, for solvers that take seconds or less, to find out when each of them gets near the best."""

ROUNDS = 5
SLOW = 4.0  # seconds; such a run is timed once and climbs no ladder


def instances() -> Iterator[tuple[Callable[[], Instance], float]]:
    """How to make each problem, and the largest gradient norm if it is known in closed form, else NaN."""
    for condition in (1e2, 1e6):
        spectrum = torch.logspace(0.0, -math.log10(condition), 200, dtype=torch.float64)
        quadratic = Quadratic.random(spectrum, seed=0)
        generator = torch.Generator().manual_seed(1)
        x = quadratic.minimiser + torch.randn(200, generator=generator, dtype=torch.float64)
        instance = Instance(f"quadratic, condition {condition:g}", quadratic, x)
        yield (lambda instance=instance: instance), quadratic.largest_gradient_norm(x)  # type: ignore[misc]
    for data, reg in (
        ("breast-cancer-wisconsin", 1e-6),
        ("breast-cancer-wisconsin", 1e-3),
        ("synthetic-logistic-20000x50-1e4", 1e-6),
    ):
        yield (lambda data=data, reg=reg: logistic_instance(data, reg)), math.nan  # type: ignore[misc]
    for name, reg in (("mlp-relu-100-100/digits", 1e-2), ("mlp-softplus-50/digits", 1.8)):
        yield (lambda name=name, reg=reg: _network(name, reg)), math.nan  # type: ignore[misc]


def _network(name: str, reg: float) -> Instance:
    named = problem(name, reg=reg)
    return Instance(f"{name}, reg {reg:g}", named.objective(), named.initial_point())


@dataclass
class Entry:
    """All runs of one solver on one problem."""

    contestant: Contestant
    results: dict[int, TeleportResult]
    seconds: list[float]

    @property
    def last(self) -> TeleportResult:
        return self.results[BUDGETS[-1]]

    def cost_to(self, gradient_norm: float) -> float:
        """Least cost of a run that reached ``gradient_norm``; infinite if none did."""
        return min(
            (r.cost.gradient_equivalents for r in self.results.values() if r.gradient_norm >= gradient_norm),
            default=math.inf,
        )


def measure(instance: Instance) -> list[Entry]:
    """Rounds of all solvers in turn with the largest budget, then once with each smaller one."""
    entries = [Entry(c, {}, []) for c in CONTESTANTS if instance.objective.dimension <= c.max_dimension]
    for _ in range(ROUNDS):
        for entry in entries:
            if entry.seconds and entry.seconds[0] > SLOW:
                continue
            result = instance.solve(entry.contestant, BUDGETS[-1])
            entry.results[BUDGETS[-1]] = result
            entry.seconds.append(result.cost.seconds)
    for entry in entries:
        quick = entry.seconds[0] <= SLOW
        for budget in (*BUDGETS[:-1], *(LADDER if quick else ())):
            entry.results[budget] = instance.solve(entry.contestant, budget)
    return entries


def rows(instance: Instance, entries: list[Entry], known: float) -> Iterator[dict[str, object]]:
    """One row per solver for the table."""
    best = max([entry.last.gradient_norm for entry in entries] + ([known] if math.isfinite(known) else []))
    for contestant in CONTESTANTS:
        entry = next((e for e in entries if e.contestant is contestant), None)
        row: dict[str, object] = {
            "problem": instance.name,
            "dimension": instance.objective.dimension,
            "solver": contestant.name,
            "known_maximum": known,
        }
        if entry is not None:
            result, cost = entry.last, entry.last.cost
            row |= {
                "gradient_norm_start": result.gradient_norm_start,
                **{f"gradient_norm_{b}_hvps": entry.results[b].gradient_norm for b in BUDGETS},
                "share_of_best": result.gradient_norm / best,
                "status": result.status.name.lower(),
                "violation": result.violation / abs(result.value_start),
                "violation_last_iterate": result.trace[-1].violation / abs(result.value_start),
                "values": cost.values,
                "gradients": cost.gradients,
                "hvps": cost.hvps,
                "gradient_equivalents": cost.gradient_equivalents,
                "cost_within_1_percent": entry.cost_to(0.99 * best),
                "seconds": statistics.median(entry.seconds),
                "seconds_min": min(entry.seconds),
                "seconds_max": max(entry.seconds),
                "timed_runs": len(entry.seconds),
            }
        yield row


def main() -> None:
    """Run everything and write the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="directory for the report")
    out: Path = parser.parse_args().out
    torch.set_num_threads(1)
    began = time.perf_counter()
    table: list[dict[str, object]] = []
    for make, known in instances():
        instance = make()
        since = time.perf_counter()
        table += rows(instance, measure(instance), known)
        print(f"{instance.name}: {time.perf_counter() - since:.0f} s", flush=True)
    frame = pd.DataFrame(table)
    out.mkdir(parents=True, exist_ok=True)
    frame.to_csv(out / "subproblem.csv", index=False, float_format="%.8g")
    import scipy

    environment = (
        f"Python {platform.python_version()}, torch {torch.__version__}, SciPy {scipy.__version__}, "
        f"{platform.machine()}, one thread, {time.perf_counter() - began:.0f} s in all"
    )
    (out / "subproblem.md").write_text(report(frame, environment), encoding="utf-8")
    print(f"written: {out / 'subproblem.csv'}, {out / 'subproblem.md'}")


if __name__ == "__main__":
    main()
