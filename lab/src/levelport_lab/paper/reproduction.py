"""From a study to files: run what is missing, draw, write the numbers, check the claims.

Everything of one figure lies in ``OUT/TIER/FIGURE/`` (released protocol: ``FIGURE-released``; with another f* than the
exact one, say, ``FIGURE-released-optima-released``): pictures, ``table.csv``, its short form
``digest.csv``, and ``summary.json`` with the claims, the cost and the environment, which the report is made of.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from levelport_lab.atomic import remove_leftovers, write_text
from levelport_lab.choices import Protocol, Reference, Tier
from levelport_lab.claims import Claim
from levelport_lab.engine.backends import Backend
from levelport_lab.engine.progress import Progress
from levelport_lab.engine.runner import Plan, SweepResult, run_plan
from levelport_lab.engine.spec import RunSpec, RunStatus
from levelport_lab.engine.store import Found, Store
from levelport_lab.paper.study import Results, Setup, Study
from levelport_lab.pictures import save, small_print
from levelport_lab.problems.catalogue import UCI
from levelport_lab.problems.storage import DataError, State, locate


@dataclass(frozen=True)
class Reproduced:
    """The outcome of one study."""

    sweep: SweepResult
    pictures: tuple[Path, ...]
    table: pd.DataFrame
    claims: tuple[Claim, ...]


def checked_claims(study: Study, setup: Setup, results: Results) -> list[Claim]:
    """Every claim of the study. The smoke tier checks the code, not the claims: it decides nothing."""
    claims = study.claims(setup, results)
    if setup.tier != "smoke":
        return claims
    undecided = "the smoke tier decides nothing (it saw: {})"
    return [replace(claim, holds=None, measured=undecided.format(claim.measured)) for claim in claims]


def stored_results(study: Study, setup: Setup, store: Store) -> Found:
    """Return the stored results of a study, without running anything."""
    return store.look(spec.key for spec in study.specs(setup))


def require_data(specs: Sequence[RunSpec], store: Store) -> None:
    """:class:`DataError` names the data sets that are not here and that tasks which have not been computed need.

    Otherwise each of these tasks would start and fail, and the reason would come after the last of them.
    """
    stored = {name: "mnist" if name.startswith("mnist") else name for spec in specs for name in spec.data_sets}
    names = dict.fromkeys(name for name in stored.values() if name in UCI or name == "mnist")
    missing = [name for name in names if locate(name).state in (State.MISSING, State.DAMAGED)]
    affected = [spec for spec in specs if any(stored[name] in missing for name in spec.data_sets)]
    todo = Plan.of(affected, store).todo if affected else ()
    if todo:
        wanted = sorted({stored[name] for spec in todo for name in spec.data_sets} & set(missing))
        raise DataError(
            f"Nothing was started: {len(todo)} task(s) need data sets that are not here, or are damaged: "
            f"{', '.join(wanted)}. Run 'levelport data fetch {' '.join(wanted)}', with '--from DIR' where there is no "
            "network, or set LEVELPORT_DATA to a directory that holds them."
        )


def reproduce(
    study: Study,
    setup: Setup,
    out: Path,
    backend: Backend,
    *,
    echo: Callable[[str], None] = lambda line: None,
    progress: Progress | None = None,
) -> Reproduced:
    """Run what is missing of ``study`` and write its files."""
    store = Store(out)
    if study.timed and (backend.jobs > 1 or backend.name != "loky"):
        echo("This figure measures time: its runs go one after the other on this machine.")
        backend = Backend()
    plan = Plan.of(study.specs(setup), store)
    for sentence in plan.sentences(backend.jobs):
        echo(sentence)
    sweep = run_plan(plan, store, backend, progress)
    results = Results(sweep.results)
    directory = figure_directory(out, setup.tier, study.name, setup.protocol, setup.reference)
    remove_leftovers(directory)
    # Where every task failed there is nothing to draw; Figure 2 has no tasks.
    nothing = bool(sweep.results) and all(task.failed for task in sweep.results.values())
    with small_print():
        pictures = [
            path
            for name, figure in (study.pictures(setup, results) if not nothing else {}).items()
            for path in save(figure, directory / f"{name}.png")
        ]
    table = study.table(setup, results)
    claims = checked_claims(study, setup, results)
    write_text(directory / "table.csv", table.to_csv(index=False))
    write_text(directory / "digest.csv", study.digest(table).to_csv(index=False, float_format="%.6g"))
    summary = Summary.of(study, setup, sweep, pictures, claims)
    write_text(directory / "summary.json", json.dumps(asdict(summary), indent=1))
    return Reproduced(sweep, tuple(pictures), table, tuple(claims))


def figure_directory(
    out: Path, tier: Tier, name: str, protocol: Protocol = "text", reference: Reference = "exact"
) -> Path:
    """Return the directory of one figure."""
    name = name if protocol == "text" else f"{name}-{protocol}"
    return out / tier / (name if reference == "exact" else f"{name}-optima-{reference}")


@dataclass(frozen=True)
class Summary:
    """The contents of ``summary.json``: all that the report says of a figure besides its pictures and its digest."""

    title: str
    setup: dict[str, Any]
    tasks: int
    failed_tasks: int
    failures: list[str]
    runs: dict[str, int]
    compute_seconds: float
    pictures: list[str]
    claims: list[Claim]
    environments: list[dict[str, str]]

    @property
    def restrictions(self) -> str:
        """The options that left something of the figure out, in one order; empty where all of it was asked for."""
        several = {"--set": "sets", "--reg": "regs", "--half": "halves"}
        words = [
            f"{option} {value}"
            for option, name in several.items()
            for value in sorted({str(value) for value in self.setup.get(name, ())})
        ]
        words += [f"--{name} {self.setup[name]}" for name in ("images", "restarts") if self.setup.get(name)]
        solvers = self.setup.get("solvers", ())
        return " ".join([*words, *([f"--solver {solvers[0]}"] if len(solvers) == 1 else [])])

    def extent(self, tier: Tier) -> str:
        """Return how much of the figure was run: results of different extent are not compared."""
        return f"{tier} tier" + (f", restricted by {self.restrictions}" if self.restrictions else "")

    @classmethod
    def of(cls, study: Study, setup: Setup, sweep: SweepResult, pictures: list[Path], claims: list[Claim]) -> Summary:
        """From what has just been run and drawn."""
        tasks = list(sweep.results.values())
        runs = [run for task in tasks for run in task.runs]
        environments = {json.dumps(task.environment, sort_keys=True) for task in tasks}
        return cls(
            title=study.title,
            setup=asdict(setup),
            tasks=len(tasks),
            failed_tasks=sum(task.failed for task in tasks),
            failures=[run.message for run in runs if run.status is RunStatus.FAILED][:20],
            runs=dict(Counter(run.status.value for run in runs)),
            compute_seconds=sum(task.seconds for task in tasks),
            pictures=sorted(path.name for path in pictures),
            claims=claims,
            environments=[json.loads(environment) for environment in sorted(environments)],
        )

    @classmethod
    def read(cls, path: Path) -> Summary:
        """From the file, every entry converted to its type; ValueError names a file that is not such a summary."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                title=str(content["title"]),
                setup=_setup(content["setup"]),
                tasks=int(content["tasks"]),
                failed_tasks=int(content["failed_tasks"]),
                failures=[str(message) for message in content["failures"]],
                runs={str(status): int(count) for status, count in content["runs"].items()},
                compute_seconds=_finite(content["compute_seconds"]),
                pictures=[str(name) for name in content["pictures"]],
                claims=[_claim(entry) for entry in content["claims"]],
                environments=[{str(k): str(v) for k, v in one.items()} for one in content["environments"]],
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(
                f"the file {path} is damaged ({reason}). Make it anew by running its figure again, or remove it."
            ) from error


def _setup(entry: dict[str, Any]) -> dict[str, Any]:
    for name in ("sets", "regs", "halves", "solvers"):
        if not isinstance(entry.get(name, []), list):
            raise ValueError(f"{name} is no list: {entry[name]!r}")
    return dict(entry)


def _finite(number: Any) -> float:
    if not math.isfinite(float(number)):
        raise ValueError(f"a number that is not finite: {number}")
    return float(number)


def _claim(entry: dict[str, Any]) -> Claim:
    if entry["holds"] not in (True, False, None):
        raise ValueError(f"a claim that neither holds nor fails: {entry['holds']!r}")
    texts = {name: str(entry[name]) for name in ("statement", "measured", "name", "solver")}
    return Claim(holds=entry["holds"], **texts)
