"""The pages of the benchmark with their tables and pictures, from whatever the store holds.

``benchmark.md`` is the benchmark at equal cost; ``solvers-zoo.md``, ``attribution.md`` and ``safety.md`` are the small
pages of the suites ``solvers``, ``attribution`` and ``safety``. What is measured is in the tables; the prose says how
it was measured, and a page says how much of it was run.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import torch

from levelport_lab.bench import (
    cost_table,
    families_page,
    families_tables,
    findings,
    pictures,
    safety_page,
    sections,
    tables,
)
from levelport_lab.bench.competitors import ALONE, COMPETITORS, MEMORY, OURS, PERIOD
from levelport_lab.bench.families_training import FamilyConfirmationSpec
from levelport_lab.bench.findings import HARD
from levelport_lab.bench.growth import ACCURACY, REG
from levelport_lab.bench.markdown import table
from levelport_lab.bench.own_cost import LARGE
from levelport_lab.bench.races import accuracy
from levelport_lab.bench.suites import CONVEX_BUDGET, MEMORY_COST, SMALL_SETS, SPLITS, SUITES
from levelport_lab.bench.zoo_page import write_zoo, zoo_table
from levelport_lab.engine.store import Store, TaskResult
from levelport_lab.pages import folded
from levelport_lab.pictures import save, small_print
from levelport_lab.problems.atomic import write_text
from levelport_lab.problems.registry import problem

ORDER = list(COMPETITORS)
PARTS = (
    "logistic",
    "held-out",
    "functions",
    "optimality",
    "overhead",
    "growth",
    "hvp",
    "timing",
    "memory",
    "networks",
    "visits",
)
"""The suites that ``benchmark.md`` is made of."""
Frames = dict[str, pd.DataFrame]


class NothingToReportError(ValueError):
    """The store has no results, or none of a suite that was asked for."""


class FullerPageError(ValueError):
    """A page in the directory has more results than the one that would replace it."""


def write_pages(store: Store, directory: Path, suites: Sequence[str] | None = None) -> list[Path]:
    """Write the pages of ``suites``, by default all that have results, to ``directory``; the files written.

    Nothing is written if a suite that was asked for has no results, or if a page in ``directory`` has more of them than
    the one that would replace it. The page of ``solvers`` alone is made of the results of both.
    """
    found = store.look().results
    results = list(found.values())
    covered, asked = coverage(found), {_page_of(suite) for suite in suites or SUITES}
    frames = _frames(results)
    small_table = frames.pop("attribution")
    if suites:
        _need_results(suites, {**frames, "attribution": small_table, "solvers": zoo_table(results)}, covered, store)
    frames = {name: frame for name, frame in frames.items() if _page_of(name) in asked}
    pages = {}
    if "attribution" in asked and not small_table.empty:
        pages["attribution.md"] = cost_table.page(small_table)
    if "safety" in asked and not all(frames[name].empty for name in ("safety", "safety-equal-cost")):
        pages["safety.md"] = safety_page.page(frames["safety"], frames["safety-equal-cost"], _versions())
    names = ("families-moves", "families-training", "families-confirmation")
    moved, trained, again = (frames.get(name, pd.DataFrame()) for name in names)
    if not (moved.empty and trained.empty and again.empty):
        took = families_tables.seconds(results)
        pages["families.md"] = families_page.page(moved, trained, again, _versions(), took)
    if any(not frame.empty for name, frame in frames.items() if name.startswith("benchmark")):
        pages["benchmark.md"] = page(frames, covered)
    _keep_fuller_pages(pages, frames, directory, store)
    written = write_zoo(results, directory) if "solvers" in asked else []
    if not pages and not written:
        raise NothingToReportError(f"there are no results in {store.root}; run 'levelport bench logistic' first.")
    for name, frame in frames.items():
        if not frame.empty:
            written.append(directory / f"{name}.csv")
            write_text(written[-1], frame.to_csv(index=False, float_format="%.5g"))
    if not trained.empty:
        with small_print():
            written += save(families_page.picture(trained), directory / "families.png")
    if "benchmark.md" in pages:
        written += _draw(frames, directory)
    for name, content in pages.items():
        written.append(directory / name)
        write_text(written[-1], content)
    return written


def _frames(results: list[TaskResult]) -> Frames:
    """All tables by the name of their file; ``attribution`` has none."""
    races = tables.races(results)
    small_table = races["family"] == "all samples"  # has a page of its own and is no part of the benchmark
    return {
        "attribution": races[small_table],
        "benchmark": races[~small_table],
        "benchmark-networks": tables.network_pairs(results, OURS, ALONE),
        "benchmark-optimality": tables.optimalities(results),
        "benchmark-seconds": tables.timings(results),
        "benchmark-overhead": tables.overheads(results),
        "benchmark-memory": tables.flat(results, "memory"),
        "benchmark-growth": tables.flat(results, "growth"),
        "benchmark-teleport-cost": tables.flat(results, "teleport-cost"),
        "benchmark-hvp": tables.flat(results, "hvp"),
        "safety": tables.safety(results),
        "safety-equal-cost": tables.safety_at_equal_cost(results),
        "families-moves": families_tables.moves(results),
        "families-training": families_tables.training(results),
        "families-confirmation": families_tables.training(results, FamilyConfirmationSpec),
    }


def _page_of(name: str) -> str:
    """The page that a suite or a table belongs to."""
    first = name.partition("-")[0]
    return first if first in ("solvers", "attribution", "safety", "families") else "benchmark"


def _need_results(suites: Sequence[str], frames: Frames, covered: pd.DataFrame, store: Store) -> None:
    """Every suite asked for has results: tasks of its own where it shares a page, something to tell where not."""
    ran = {row["suite"]: row["quick_run"] + row["full_run"] > 0 for _, row in covered.iterrows()}
    told = {_page_of(name) for name, frame in frames.items() if not frame.empty}
    lacking = [suite for suite in dict.fromkeys(suites) if not ran.get(suite, suite in told)]
    if lacking:
        raise NothingToReportError(
            f"there are no results of {', '.join(lacking)} in {store.root}, and nothing was written; run 'levelport "
            f"bench {' '.join(lacking)} --out {store.root}' first."
        )


def _keep_fuller_pages(pages: dict[str, str], frames: Frames, directory: Path, store: Store) -> None:
    """Refuse to replace a page by one with less in it: the store may hold a small part of what that page tells."""
    sizes = {f"{name}.csv": len(frame) for name, frame in frames.items() if f"{_page_of(name)}.md" in pages}
    there = {name: len(pd.read_csv(directory / name)) for name in sizes if (directory / name).exists()}
    old = directory / "attribution.md"  # has no table beside it
    if old.name in pages and old.exists():
        sizes[old.name], there[old.name] = _rows(pages[old.name]), _rows(old.read_text(encoding="utf-8"))
    fuller = [
        f"{name} has {rows} rows and would have {sizes[name]}" for name, rows in there.items() if rows > sizes[name]
    ]
    if fuller:
        raise FullerPageError(
            f"{directory} tells of more results than {store.root} holds, and nothing was written: {'; '.join(fuller)}. "
            "Choose another directory with --report, run what is missing, or remove these files first."
        )


def _rows(markdown: str) -> int:
    return sum(line.startswith("|") for line in markdown.splitlines())


def _draw(frames: Frames, directory: Path) -> list[Path]:
    timings = frames["benchmark-seconds"]
    makers = {
        "benchmark-logistic": (_logistic(frames["benchmark"]), pictures.profiles),
        "benchmark-seconds": (timings, lambda frame: pictures.profiles(frame, "seconds")),
        "benchmark-networks": (frames["benchmark-networks"], pictures.networks),
        "benchmark-growth": (frames["benchmark-growth"], pictures.growth),
    }
    with small_print():
        drawn = [
            save(draw(frame), directory / f"{name}.png") for name, (frame, draw) in makers.items() if not frame.empty
        ]
    return [path for paths in drawn for path in paths]


def coverage(found: Mapping[str, TaskResult]) -> pd.DataFrame:
    """How many tasks of each suite of the benchmark were found, as they are defined now, in either size."""
    there = {key for key, result in found.items() if not result.failed}
    rows = []
    for name in PARTS:
        row: dict[str, str | int] = {"suite": name}
        for tier in ("quick", "full"):
            keys = {spec.key for spec in SUITES[name](tier)}
            row |= {f"{tier}_run": len(keys & there), f"{tier}_all": len(keys)}
        rows.append(row)
    return pd.DataFrame(rows)


def _warning(covered: pd.DataFrame) -> str:
    """Nothing, or that it is less than the quick tier."""
    lacking = covered[covered["quick_run"] < covered["quick_all"]]["suite"].tolist()
    if not lacking:
        return ""
    return (
        '!!! warning "This page is not complete"\n'
        f"    Of the suites {', '.join(lacking)} not even the quick tier has been run in full.\n"
        "    Figures below come from what was run, which a table below counts.\n"
    )


def _said_of(covered: pd.DataFrame) -> str:
    """What was run, suite by suite."""
    rows = [
        [str(row["suite"]), f"{row['quick_run']} of {row['quick_all']}", f"{row['full_run']} of {row['full_all']}"]
        for _, row in covered.iterrows()
    ]
    return table(["suite", "of the quick tier", "of the full tier"], rows)


def page(frames: Frames, covered: pd.DataFrame) -> str:
    """The benchmark at equal cost as Markdown."""
    races = frames["benchmark"]
    logistic = _logistic(races)
    found = [
        *findings.logistic_goals(logistic),
        *findings.network_goals(frames["benchmark-networks"]),
        *findings.optimality_goals(frames["benchmark-optimality"]),
        *findings.overhead_goals(frames["benchmark-overhead"], frames["benchmark-memory"]),
    ]
    parts = ["# Benchmark at equal cost\n", findings.opening(frames), _warning(covered)]
    parts += [folded("How it was measured", _HEAD), folded("What was run", _said_of(covered))]
    parts.append("## Where teleports pay, and where they do not\n")
    parts += [*(f"* {line}" for line in findings.sentences(frames)), "", "## Goals\n", sections.goals(found)]
    if not frames["benchmark-optimality"].empty:
        parts.append(sections.optimality_misses(frames["benchmark-optimality"]))
    if not logistic.empty:
        parts += ["## Logistic problems\n", _LOGISTIC, "![profiles](benchmark-logistic.png)\n"]
        parts += [sections.standings(logistic, ORDER), _HARD, sections.hard_problems(logistic)]
    for seed, name in list(SPLITS.items())[1:]:
        split = _logistic(races, seed)
        if not split.empty:
            parts += [f"### The {name} split\n", _SPLIT[name]]
            parts += [sections.standings(split, ORDER), _HARD, sections.hard_problems(split)]
    for family, title in (("quadratic", "Quadratics"), ("function", "Test functions")):
        rows = races[races["family"] == family]
        if not rows.empty:
            parts += [f"## {title}\n", _FAMILIES[family], sections.problem_by_problem(rows, 1e-6, ORDER)]
    parts += _networks(frames)
    for name, title, words, make in (
        ("benchmark-seconds", "Seconds", _SECONDS, sections.seconds),
        ("benchmark-overhead", "Overhead of the methods' own code", _OVERHEAD, sections.overhead),
        ("benchmark-memory", "Peak memory", _MEMORY, sections.memory),
        ("benchmark-growth", "Growth", _GROWTH, sections.growth),
        ("benchmark-teleport-cost", "Cost of one teleport", _TELEPORT_COST, sections.teleport_cost),
        ("benchmark-hvp", "Hessian-vector products in closed form", _HVP, sections.hvp),
    ):
        if not frames[name].empty:
            parts += [f"## {title}\n", words, make(frames[name])]
    parts.append(f"Measured with {_versions()}, float64 (the large network in float32). {len(races)} races.\n")
    return "\n".join(parts)


def _logistic(races: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    return races[(races["family"] == "logistic") & (races["seed"] == seed)]


def _networks(frames: Frames) -> list[str]:
    races, pairs = frames["benchmark"], frames["benchmark-networks"]
    if pairs.empty:
        return []
    count = races[races["family"] == "network"].groupby("competitor")["budget"].agg(["count", "max"])
    ran = "; ".join(f"{name}: {int(row['count'])} (budget up to {row['max']:g})" for name, row in count.iterrows())
    return [
        "## Networks\n",
        _NETWORKS,
        f"Networks run per method: {ran}.\n",
        "![networks](benchmark-networks.png)\n",
        sections.network_losses(races),
        "### What certified teleports do for GD, L-BFGS, momentum and Adam\n",
        _VISITS,
        sections.visits(races),
    ]


def _versions() -> str:
    import numpy
    import scipy

    import levelport

    return (
        f"levelport {levelport.__version__}, Python {platform.python_version()}, torch {torch.__version__}, SciPy "
        f"{scipy.__version__}, NumPy {numpy.__version__}, {platform.machine()}, one thread"
    )


# How things were measured, in front of each table: settings, no results.

_HEAD = f"""Written by `levelport bench --report docs/results`; every number is in the CSV files beside this page.

Every method sees f through the same instrument, which counts (value ½, gradient 1, Hessian-vector product 2; value and
gradient at one point share their forward pass), records the value whenever a gradient has been evaluated, and stops
the run. *Cost* is in these gradient equivalents. *levelport.minimize* is our default for functions by autograd in
float64: gradient descent with the Armijo line search, before every step a teleport by a Krylov model, whose products
are differences of gradients, one gradient each. *Exact products*, two gradients each, are the default in float32 and
for `LinearObjective` and its like, where they are cheap by the clock. SciPy's Newton-CG takes part with either kind
as well: what differences save is no merit of teleports. *GD-Armijo* is the same method without teleports.
*Published teleports* are the paper's: its SQP with its settings, every 50 steps from step 5, at most 50 HVPs. Two
controls have our loop with half a teleport: *the same without the climb* descends by the model of the default teleport
and skips the climb to a larger gradient, *the same with a random climb* goes as far in a random direction. Stopping
rules of the rivals are switched off; nothing is tuned per problem. L-BFGS methods keep {MEMORY} pairs, SciPy's default,
unless the name says sixty; ours keeps up to sixty. Momentum has the step 1/L (0.1 on networks, 1e-3 on test functions)
and 0.9; Polyak's step knows f* (0 on networks).
"""

_LOGISTIC = f"""The twenty UCI sets with six penalties, first split, from w = 0, with certified optima; at most
{CONVEX_BUDGET:g} gradient equivalents. *Ours/this* compares problem by problem: below 1 we are cheaper; 0 counts where
only we got there, ∞ where only they did.
"""

_SPLIT = {
    "second": "The same problems with another split into training and test data. One constant was chosen after a look\n"
    "at them, by the first split: the growth of the gradient, √2, below which a climb is left out.\n",
    "third": "A split that was fixed beforehand and not run before all constants stood.\n",
}

_HARD = f"""The problems on which L-BFGS-B needs more than {HARD:g} gradient equivalents for 1e-10, cost to 1e-10:
"""

_FAMILIES = {
    "quadratic": "200 variables, eigenvalues evenly spaced in the logarithm, from 0; cost to 1e-6 (budget "
    f"{CONVEX_BUDGET:g}).\n",
    "function": f"From their usual starts; cost to 1e-6 of the global minimum (budget {CONVEX_BUDGET:g}). A dash: "
    "never.\n",
}

_NETWORKS = f"""Two hidden layers of a hundred, full batch, the {SMALL_SETS} smallest UCI sets, usual initialisation,
seed 0; the full tier has for reg 1e-4 also the seeds 1 and 2 (other splits and initialisations), and one hidden layer
of fifty on the digits, three seeds. The picture shows the loss with teleports relative to the loss of GD-Armijo after
the same number of gradient equivalents.
"""

_VISITS = f"""Optimizers with teleports and without. *Default teleports*: `Teleported` with no schedule named. The
others are by `Auto()` with at most ten HVPs, once at the start or every {PERIOD} steps (SciPy's L-BFGS-B is
restarted from the teleported point, so that it loses its pairs; AdamW and momentum keep their state). ReLU and softplus
networks, reg 1e-4, medians with quartiles over networks; below 1 the teleports help.
"""

_SECONDS = """Logistic problems on the smaller sets (reg 1e-3 and 1e-6), interleaved rounds, median; ratios problem by
problem. The machine was shared with other work, so only the ratios mean something.

![seconds](benchmark-seconds.png)
"""

_OVERHEAD = """Processor time outside evaluations relative to the time inside, rounds interleaved between methods.
"""

_MEMORY = f"""A network with {problem(LARGE).dimension} parameters ({LARGE}) in float32, {MEMORY_COST:g} gradient
equivalents, each method in a process of its own; the peak of a process that evaluates one gradient and one HVP is
subtracted.
"""

_GROWTH = f"""Synthetic logistic problems, reg {accuracy(REG)}: gradient equivalents until {accuracy(ACCURACY)}, slope
of the logarithms.

![growth](benchmark-growth.png)
"""

_TELEPORT_COST = """Processor time of one iteration with a teleport. *Default* is what `minimize` does by itself;
*auto* spends ten HVPs. Samples: logistic, 50 features. Parameters: a separable quadratic by automatic differentiation.
A slope of 1 is linear; the last column divides by the evaluations that the teleports happened to need.
"""

_HVP = """Logistic regression: the median time of one product at a point whose gradient is known. The automatic one goes
through the graph of that gradient.
"""
