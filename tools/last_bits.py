"""How far teleports from starts that differ in their last bits end apart: docs/results/last-bits.{csv,md}.

    python tools/last_bits.py now
    PYTHONPATH=/an/older/tree/src python tools/last_bits.py before

Ten networks of the zoo; each start x becomes x·(1 + 1e-15 ξ) with ξ standard normal, thirty times. *Spread* is the
largest minus the smallest gradient norm returned, relative to the largest, at 50 Hessian-vector products. The label
names the code that was measured; rows of other labels stay as they are, and the page shows all labels side by side.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import torch

import levelport_lab.bench.zoo_networks  # noqa: F401  (enters its species)
from levelport import teleport
from levelport.solvers import Auto
from levelport_lab.bench.zoo import everyone

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
DRAWS = 30
GOAL = 1e-6
RESULTS = Path(__file__).parents[1] / "docs" / "results"

HEAD = """# Last bits

Written by `python tools/last_bits.py now`; numbers in `last-bits.csv`. Teleports with 50 Hessian-vector products from
{draws} starts that differ by 1e-15 relative: what they return should not differ visibly. Spread: largest minus smallest
gradient norm, relative. The goal is {goal:g} and one status for all; {missed}.
*before* is the solver with the Krylov predictor and the race between basins.

"""


def measured(name: str) -> dict[str, object]:
    """Spread and statuses on one network."""
    animal = everyone()[name]
    objective, x = animal.objective(), animal.start()
    generator = torch.Generator().manual_seed(0)
    results = []
    for _ in range(DRAWS):
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype)
        results.append(teleport(objective, x * (1.0 + 1e-15 * noise), Auto(max_hvps=50)))
    norms = [result.gradient_norm for result in results]
    statuses = Counter(result.status.name.lower() for result in results)
    said = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    return {"problem": name, "spread": 1.0 - min(norms) / max(norms), "statuses": said}


def page(table: pd.DataFrame) -> str:
    """Both labels side by side, and which networks miss the goal today."""
    now = table[table["label"] == "now"]
    late = now[(now["spread"] > GOAL) | now["statuses"].str.contains(",")]["problem"].tolist()
    missed = f"missed today on {', '.join(late)}" if late else "met today on all"
    lines = [HEAD.format(draws=DRAWS, goal=GOAL, missed=missed)]
    labels = [label for label in ("before", "now") if label in set(table["label"])]
    lines.append(f"| network | {' | '.join(f'spread {label} | statuses {label}' for label in labels)} |\n")
    lines.append("| --- |" + " ---: | --- |" * len(labels) + "\n")
    for name in NETWORKS:
        cells = []
        for label in labels:
            row = table[(table["label"] == label) & (table["problem"] == name)].iloc[0]
            cells.append(f"{row['spread']:.1e} | {row['statuses']}")
        lines.append(f"| {name} | {' | '.join(cells)} |\n")
    return "".join(lines)


def main(label: str) -> None:
    """Measure, keep the rows of other labels, write both files."""
    torch.set_num_threads(1)
    kept = RESULTS / "last-bits.csv"
    table = pd.DataFrame([{"label": label, **measured(name)} for name in NETWORKS])
    if kept.exists():
        before = pd.read_csv(kept)
        table = pd.concat([before[before["label"] != label], table], ignore_index=True)
    kept.write_text(table.to_csv(index=False, float_format="%.3g"), encoding="utf-8")
    (RESULTS / "last-bits.md").write_text(page(table), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
