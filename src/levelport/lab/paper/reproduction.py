"""From a study to files: run what is missing, draw, write the numbers, check the claims.

Everything of one figure lies in ``OUT/TIER/FIGURE/``: pictures (PNG and PDF), ``table.csv``, its short form
``digest.csv``, and ``summary.json`` with the verdicts, the cost and the environment, which the report is made of.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from levelport.lab.engine.backends import Backend
from levelport.lab.engine.progress import Progress
from levelport.lab.engine.runner import Outcome, Plan, run_plan
from levelport.lab.engine.store import Store
from levelport.lab.paper.study import Claim, Results, Setup, Study, Tier, Verdict
from levelport.lab.pictures import applied, save


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict."""

    claim: Claim
    verdict: Verdict


@dataclass(frozen=True)
class Reproduced:
    """What came out of one study."""

    study: Study
    outcome: Outcome
    pictures: tuple[Path, ...]
    table: pd.DataFrame
    claims: tuple[Judged, ...]


def judge(study: Study, setup: Setup, results: Results) -> list[Judged]:
    """Every claim of the study with its verdict. The smoke tier checks the code, not the claims: it decides nothing."""
    judged = [Judged(claim, claim.check(setup, results)) for claim in study.claims(setup)]
    if setup.tier is not Tier.SMOKE:
        return judged
    return [
        Judged(entry.claim, Verdict(None, f"the smoke tier decides nothing (it saw: {entry.verdict.measured})"))
        for entry in judged
    ]


def stored_results(study: Study, setup: Setup, store: Store) -> Results:
    """What the store holds of a study, without running anything."""
    return Results(store.look(spec.key for spec in study.specs(setup)).results)


def reproduce(
    study: Study,
    setup: Setup,
    out: Path,
    backend: Backend,
    *,
    say: Callable[[str], None] = lambda line: None,
    progress: Progress | None = None,
) -> Reproduced:
    """Run what is missing of ``study`` and write its files."""
    store = Store(out)
    if study.timed and (backend.jobs > 1 or backend.name != "loky"):
        say("This figure measures time: its runs go one after the other on this machine.")
        backend = Backend()
    plan = Plan.of(study.specs(setup), store)
    for sentence in plan.sentences(backend.jobs):
        say(sentence)
    outcome = run_plan(plan, store, backend, progress)
    results = Results(outcome.results)
    directory = figure_directory(out, setup, study.name)
    with applied():
        pictures = [
            path
            for name, figure in study.pictures(setup, results).items()
            for path in save(figure, directory / f"{name}.png")
        ]
    table = study.table(setup, results)
    judged = judge(study, setup, results)
    write_text(directory / "table.csv", table.to_csv(index=False))
    write_text(directory / "digest.csv", study.digest(table).to_csv(index=False, float_format="%.6g"))
    write_text(directory / "summary.json", json.dumps(_summary(study, setup, outcome, pictures, judged), indent=1))
    return Reproduced(study, outcome, tuple(pictures), table, tuple(judged))


def figure_directory(out: Path, setup: Setup, name: str) -> Path:
    """Where the files of one figure are."""
    return out / setup.tier.value / name


def _summary(
    study: Study, setup: Setup, outcome: Outcome, pictures: list[Path], judged: list[Judged]
) -> dict[str, Any]:
    tasks = list(outcome.results.values())
    statuses = Counter(run.status.value for task in tasks for run in task.runs)
    environments = {json.dumps(task.environment, sort_keys=True) for task in tasks}
    return {
        "figure": study.name,
        "title": study.title,
        "setup": {**asdict(setup), "tier": setup.tier.value},
        "tasks": len(tasks),
        "failed_tasks": sum(task.failed for task in tasks),
        "failures": [run.message for task in tasks for run in task.runs if run.status.value == "failed"][:20],
        "runs": dict(statuses),
        "compute_seconds": sum(task.seconds for task in tasks),
        "pictures": sorted(path.name for path in pictures if path.suffix == ".png"),
        "claims": [
            {
                "name": entry.claim.name,
                "statement": entry.claim.statement,
                "solver": entry.claim.solver,
                "verdict": entry.verdict.words,
                "measured": entry.verdict.measured,
            }
            for entry in judged
        ],
        "environments": [json.loads(environment) for environment in sorted(environments)],
    }


def write_text(path: Path, text: str) -> None:
    """Replace the file in one go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
