"""The comparison itself: ``python -m levelport_lab.bench.minimizers.study FILE GROUP...`` adds missing rows to a CSV.

Groups: development, reported (functions and models), networks, logistic (the main arms on three splits of 120
problems), logistic-others (the other arms on the first split). A row is one run: gradient equivalents and processor
seconds until (f - f*)/(f0 - f*) is at most 1e-3, 1e-6 and 1e-10, infinite if never; for networks the loss after 300 and
1000 gradient equivalents.
"""

from __future__ import annotations

import csv
import math
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from levelport.objective import Objective
from levelport.objectives import FunctionObjective
from levelport_lab.bench import instances
from levelport_lab.bench.metered import Metered
from levelport_lab.bench.minimizers.arms import ARMS, MAIN, NETWORK_ARMS
from levelport_lab.bench.minimizers.catalogue import PROBLEMS
from levelport_lab.bench.minimizers.optima import optima

ACCURACIES = (1e-3, 1e-6, 1e-10)
LOSSES = (300, 1000)
BUDGET, NETWORK_BUDGET = 5000.0, 1000.0
GROUPS = ("development", "reported", "networks", "logistic", "logistic-others")
COLUMNS = (
    "group",
    "half",
    "problem",
    "dimension",
    "arm",
    *(f"cost_{tau:g}" for tau in ACCURACIES),
    *(f"seconds_{tau:g}" for tau in ACCURACIES),
    *(f"loss_{cost}" for cost in LOSSES),
    "ended_by_itself",
)


@dataclass(frozen=True)
class Task:
    """A problem ready to run, and the arms that run on it."""

    group: str
    half: str
    name: str
    objective: Objective
    x0: Tensor
    f_star: float
    arms: tuple[str, ...]


def tasks(group: str) -> Iterator[Task]:
    """The problems of a group, one after the other."""
    if group.startswith("logistic"):
        arms = MAIN if group == "logistic" else tuple(ARMS)
        for seed in range(3 if group == "logistic" else 1):
            for name in instances.logistic():
                built = replace(name, seed=seed).build()
                yield Task("logistic", f"split {seed}", str(name), built.objective, built.x0, built.f_star, arms)
        return
    for problem in sorted(PROBLEMS.values(), key=lambda each: each.half, reverse=True):
        network = problem.group == "network"
        if network == (group == "networks") and group in ("networks", problem.half):
            loss, x0 = problem.make()
            f_star = math.nan if network else optima()[problem.name]
            objective = FunctionObjective(loss, like=x0)
            arms = NETWORK_ARMS if network else tuple(ARMS)
            yield Task(problem.group, problem.half, problem.name, objective, x0, f_star, arms)


def run(task: Task, arm: str) -> dict[str, object]:
    """One arm on one problem, as a row."""
    f0 = task.objective.at(task.x0).value
    known = math.isfinite(task.f_star)
    target = task.f_star + ACCURACIES[-1] * (f0 - task.f_star) if known else -math.inf
    metered = Metered(
        task.objective, target=target, max_cost=BUDGET if known else NETWORK_BUDGET, clock=time.process_time
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ARMS[arm](metered, task.x0.clone())
    except Exception:  # TorchScript hides the type of the instrument's own exception
        if not metered.done:
            raise
    best = metered.best_so_far()
    row: dict[str, object] = {
        "group": task.group,
        "half": task.half,
        "problem": task.name,
        "dimension": len(task.x0),
        "arm": arm,
        "ended_by_itself": int(not metered.done),
    }
    for tau in ACCURACIES if known else ():
        reached = np.flatnonzero(best["value"] <= task.f_star + tau * (f0 - task.f_star))
        for name in ("cost", "seconds"):
            curve = best["gradient_equivalents" if name == "cost" else name]
            row[f"{name}_{tau:g}"] = f"{curve[reached[0]]:.6g}" if len(reached) else "inf"
    for cost in () if known else LOSSES:
        row[f"loss_{cost}"] = repr(float(best["value"][best["gradient_equivalents"] <= cost][-1]))
    return row


def main(path: Path, groups: list[str]) -> None:
    """Add what is missing."""
    torch.set_num_threads(1)
    done: set[tuple[str, ...]] = set()
    if path.exists():
        with path.open() as lines:
            done = {(row["half"], row["problem"], row["arm"]) for row in csv.DictReader(lines)}
    with path.open("a", newline="") as lines:
        writer = csv.DictWriter(lines, COLUMNS)
        if not done:
            writer.writeheader()
        for main_arms in (True, False):  # first those that matter most
            for task in (task for group in groups for task in tasks(group)):
                for arm in task.arms:
                    if (arm in MAIN) == main_arms and (task.half, task.name, arm) not in done:
                        writer.writerow(run(task, arm))
                        lines.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(GROUPS))
