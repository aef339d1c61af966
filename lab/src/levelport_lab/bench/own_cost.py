"""What a competitor's own code costs beyond the evaluations it asks for: processor time and memory.

    overhead = (all processor time - processor time inside evaluations) / processor time inside evaluations.

Processor time of the thread, not the wall clock: on a shared machine the wall clock measures the others as well. On an
idle machine the two agree. The instrument's own few microseconds per evaluation count as overhead.

Peak memory is that of a process of its own, because the peak of the resident set only ever grows, in vectors of the
parameters' size. What is subtracted is the peak of a process that evaluates one gradient and one Hessian-vector product
at the same point and nothing else: that is the gradient graph, the network and the data.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch

from levelport_lab.bench.competitors import competitor_named
from levelport_lab.bench.instances import Instance, ProblemName
from levelport_lab.bench.metered import Metered
from levelport_lab.bench.races import finest_target
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.problems.registry import problem

LARGE = "mlp-relu-1000-900/digits"
"""A network with about a million parameters, which evaluates in milliseconds all the same."""

BASELINE = "one gradient and one HVP"


def large_network(copies: int = 1) -> Instance:
    """The network called :data:`LARGE`, in float32.

    With several copies of the data f stays the same and so does every run; only the evaluations become dearer.
    """
    named = problem(LARGE, reg=1e-4, dtype=torch.float32)
    rows = list(range(len(named.train))) * copies
    return Instance(named.objective(rows), named.initial_point(), math.nan, 0.1, 0.0)


@dataclass(frozen=True)
class OverheadSpec(RunSpec):
    """Competitors in turn on one problem; the setting of a run is the competitor's number.

    ``where`` is a logistic problem, run to the finest accuracy, or "large network", run until ``max_cost``.
    """

    kind: ClassVar[str] = "overhead"
    revision: ClassVar[int] = 2
    where: ProblemName | Literal["large network"]
    competitors: tuple[str, ...]
    rounds: int
    max_cost: float = 1000.0
    copies: int = 1

    @property
    def label(self) -> str:
        return f"overhead on {self.where}"

    @property
    def rough_seconds(self) -> float:
        large = 0.1 * self.copies * self.max_cost
        return self.rounds * len(self.competitors) * (large if self.where == "large network" else 0.1)

    def run(self) -> list[Run]:
        if isinstance(self.where, ProblemName):
            instance = self.where.build()
            target = finest_target(self.where, instance)
        else:
            instance, target = large_network(self.copies), -math.inf
        runs = []
        for _ in range(self.rounds):
            for number, name in enumerate(self.competitors):
                objective = Metered(instance.objective, target=target, max_cost=self.max_cost, clock=time.thread_time)
                began = time.thread_time()
                competitor_named(name).run(objective, instance)
                total, inside = time.thread_time() - began, objective.evaluation_seconds
                facts = {
                    "total_seconds": total,
                    "evaluation_seconds": inside,
                    "overhead": (total - inside) / inside,
                    "gradient_equivalents": objective.cost.gradient_equivalents,
                    "dimension": float(objective.dimension),
                }
                runs.append(Run(setting=float(number), facts=facts, chosen=number == 0))
        return runs


@dataclass(frozen=True)
class MemorySpec(RunSpec):
    """The peak of one competitor."""

    kind: ClassVar[str] = "memory"
    revision: ClassVar[int] = 2
    competitor: str
    max_cost: float

    @property
    def label(self) -> str:
        return f"memory of {self.competitor}"

    @property
    def rough_seconds(self) -> float:
        return 0.5 * self.max_cost + 10.0

    def run(self) -> list[Run]:
        baseline, peak = (_in_a_process(name, self.max_cost) for name in (BASELINE, self.competitor))
        vectors = (peak["peak_bytes"] - baseline["peak_bytes"]) / peak["vector_bytes"]
        facts = {
            "vectors_beyond_gradient_graph": vectors,
            "peak_bytes": peak["peak_bytes"],
            "baseline_bytes": baseline["peak_bytes"],
            "vector_bytes": peak["vector_bytes"],
            "gradient_equivalents": peak["gradient_equivalents"],
        }
        return [Run(facts=facts)]


def _in_a_process(name: str, max_cost: float) -> dict[str, float]:
    code = f"from levelport_lab.bench.own_cost import print_peak; print_peak({name!r}, {max_cost!r})"
    command = [sys.executable, "-c", code]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise RuntimeError(f"the process that measures {name} failed: {finished.stderr.strip().splitlines()[-1]}")
    facts: dict[str, float] = json.loads(finished.stdout)
    return facts


def print_peak(name: str, max_cost: float) -> None:
    """Run ``name`` in this process and print its peak so far."""
    torch.set_num_threads(1)
    instance = large_network()
    objective = Metered(instance.objective, max_cost=max_cost)
    if name == BASELINE:
        point = objective.at(instance.x0, curvature=True)
        point.hvp(point.gradient)
    else:
        competitor_named(name).run(objective, instance)
    facts = {
        "peak_bytes": peak_of_this_process(),
        "vector_bytes": float(instance.x0.numel() * instance.x0.element_size()),
        "gradient_equivalents": objective.cost.gradient_equivalents,
    }
    print(json.dumps(facts))


def peak_of_this_process() -> float:
    """The largest resident set so far, in bytes.

    On Linux from /proc: the figure of ``getrusage`` there includes the parent's memory at the moment of the fork.
    """
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024.0 * float(peak.split()[1])
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
