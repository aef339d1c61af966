"""Families of teleportation compared: a frozen study.

    python lab/studies/families/study.py --out results/families       # hours; a second start resumes

It writes ``moves.csv`` (one move of each family from the same points) and ``training.csv`` (training runs with moves)
beside this file. What they show is in docs/results/families.md. The committed numbers were measured with the library at
commit c4456e4; nothing imports this folder, and it is not kept up with changes of the library. Check out 6b16cd5 to
run it: the library has since dropped families that never paid (null space, linear group, activation group, random
basis, rescaling for the decrease).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from loop import Optimizer
from moves import Place
from moves import specs as move_specs
from tables import moves, training
from training import FamilyConfirmationSpec, Schedule, confirmations
from training import specs as training_specs

from levelport_lab.engine.backends import Backend
from levelport_lab.engine.runner import Plan, run_plan
from levelport_lab.engine.spec import RunSpec
from levelport_lab.engine.store import Store

HERE = Path(__file__).parent

AHEAD: dict[Optimizer, tuple[tuple[str, Schedule], ...]] = {
    "Adam": (("rescaling 2", "ours"), ("balance", "ours"), ("balance, one sweep", "authors")),
    "momentum": (("balance, one sweep", "authors"),),
}
"""Arms that were ahead of the optimizer alone and are run once more, on other seeds."""


def specs() -> list[RunSpec]:
    """Return all tasks: a linear network, ReLU networks on UCI sets, MNIST with mini-batches, ten fresh seeds."""
    blood, cancer, pima = (Place(f"mlp-relu-100-100/{data}") for data in ("blood", "breast-cancer", "pima"))
    linear, images = Place("mlp-linear-50-50/breast-cancer"), Place("mlp-relu-32/mnist-first-500")
    found = move_specs((blood, cancer, pima, linear, Place("mlp-relu-64/mnist-first-1000")), (0, 1))
    for place, batch in ((cancer, None), (images, 125), (linear, None)):
        found += training_specs((place,), batches=(batch,), max_cost=60.0, tuning=1, fresh=range(200, 210))
    for optimizer, arms in AHEAD.items():
        found += confirmations(images, optimizer, 125, arms, max_cost=60.0)
    return found


def main() -> None:
    """Run what is missing and write both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("results/families"))
    store = Store(parser.parse_args().out)
    results = list(run_plan(Plan.of(specs(), store), store, Backend(jobs=1)).results.values())
    trained = [
        training(results).assign(confirmation=0),
        training(results, FamilyConfirmationSpec).assign(confirmation=1),
    ]
    moves(results).to_csv(HERE / "moves.csv", index=False, float_format="%.5g")
    pd.concat(trained).to_csv(HERE / "training.csv", index=False, float_format="%.5g")


if __name__ == "__main__":
    main()
