"""How far teleports from starts that differ in their last bits end apart (docs/results/development.md).

    python tools/last_bits.py

Ten networks; each start x becomes x·(1 + 1e-15 ξ) with ξ standard normal, thirty times. *Spread* is the largest minus
the smallest gradient norm returned, relative to the largest, at 50 Hessian-vector products.
"""

from __future__ import annotations

from collections import Counter

import torch

from development_models import DEVELOPMENT
from levelport import Auto, teleport
from levelport_lab.bench.report import Table
from levelport_lab.problems.teleport_cases import all_cases

NETWORKS = (
    "deep linear@5",
    "tanh ionosphere@5",
    "tanh deep regression@5",
    "softplus pima@50",
    "softplus digits@5",
    "gelu sonar@5",
    "sigmoid autoencoder@5",
    "silu convolutions@50",
    "attention block@5",
    "physics informed@5",
)
CASES = all_cases() | all_cases(DEVELOPMENT)
DRAWS = 30
GOAL = 1e-6


def measured(name: str) -> list[str]:
    """Return the name, the spread and the statuses of one network."""
    case = CASES[name]
    objective, x = case.objective(), case.start()
    generator = torch.Generator().manual_seed(0)
    results = []
    for _ in range(DRAWS):
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype)
        results.append(teleport(objective, x * (1.0 + 1e-15 * noise), Auto(max_hvps=50)))
    norms = [result.gradient_norm for result in results]
    statuses = Counter(result.status.name.lower() for result in results)
    said = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    return [name, f"{1.0 - min(norms) / max(norms):.1e}", said]


def main() -> None:
    """Measure, and print a row for each network."""
    torch.set_num_threads(1)
    rows = [measured(name) for name in NETWORKS]
    print(Table("last bits", ["network", "spread", "statuses"], rows).text())
    missed = sum(float(spread) > GOAL or "," in statuses for _, spread, statuses in rows)
    print(f"{missed} of {len(rows)} miss a spread of {GOAL:g} or end with different statuses.")


if __name__ == "__main__":
    main()
