"""Peak memory of a competitor on the network with a million parameters, in vectors of the parameters' size.

Each measurement is a process of its own, because the peak of the resident set only ever grows. What is subtracted is
the peak of a process that evaluates one gradient and one Hessian-vector product at the same point and nothing else:
that is the gradient graph, the network and the data.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from levelport.lab.bench.competitors import competitor_named
from levelport.lab.bench.overhead import large_network
from levelport.lab.bench.watched import Watched
from levelport.lab.engine.spec import Run, RunSpec

BASELINE = "one gradient and one HVP"


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
    command = [sys.executable, "-m", "levelport.lab.bench.memory", name, str(max_cost)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise RuntimeError(f"the process that measures {name} failed: {finished.stderr.strip().splitlines()[-1]}")
    facts: dict[str, float] = json.loads(finished.stdout)
    return facts


def measure(name: str, max_cost: float) -> dict[str, float]:
    """Run ``name`` in this process; its peak so far."""
    import torch

    torch.set_num_threads(1)
    instance = large_network()
    objective = Watched(instance.objective, max_cost=max_cost)
    if name == BASELINE:
        point = objective.at(instance.x0, curvature=True)
        point.hvp(point.gradient)
    else:
        competitor_named(name).run(objective, instance)
    return {
        "peak_bytes": peak_of_this_process(),
        "vector_bytes": float(instance.x0.numel() * instance.x0.element_size()),
        "gradient_equivalents": objective.cost.gradient_equivalents,
    }


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


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], float(sys.argv[2]))))
