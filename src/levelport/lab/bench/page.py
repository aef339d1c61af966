"""The pages of the benchmark with their tables and pictures, from whatever the store holds.

``benchmark.md`` is the benchmark at equal cost; ``solvers.md`` and ``attribution.md`` are the small pages of the suites
of these names. What is measured is in the tables; the prose says how it was measured.
"""

from __future__ import annotations

import platform
from pathlib import Path

import pandas as pd
import torch

from levelport.lab.bench import cost_table, goals, pictures, sections, solvers_page, tables
from levelport.lab.bench import page_text as text
from levelport.lab.bench.competitors import ALONE, COMPETITORS, OURS
from levelport.lab.bench.suites import HELD_OUT
from levelport.lab.bench.summary import sentences
from levelport.lab.engine.store import Store
from levelport.lab.pictures import save, small_print
from levelport.problems.atomic import write_text

ORDER = list(COMPETITORS)
Frames = dict[str, pd.DataFrame]


class NothingToReportError(ValueError):
    """The store is empty."""


def write_pages(store: Store, directory: Path) -> list[Path]:
    """Write the pages for which there are results to ``directory``; the files written."""
    results = list(store.look().results.values())
    races = tables.races(results)
    frames = {
        "solvers": tables.solvers(results),
        "benchmark": races,
        "benchmark-networks": tables.network_pairs(results, OURS, ALONE),
        "benchmark-optimality": tables.optimalities(results),
        "benchmark-seconds": tables.timings(results),
        "benchmark-overhead": tables.overheads(results),
        "benchmark-memory": tables.flat(results, "memory"),
        "benchmark-growth": tables.flat(results, "growth"),
        "benchmark-teleport-cost": tables.flat(results, "teleport-cost"),
        "benchmark-hvp": tables.flat(results, "hvp"),
    }
    written = []
    for name, frame in frames.items():
        if not frame.empty:
            written.append(directory / f"{name}.csv")
            write_text(written[-1], frame.to_csv(index=False, float_format="%.8g" if name == "solvers" else "%.5g"))
    pages = {}
    if not frames["solvers"].empty:
        pages["solvers.md"] = solvers_page.page(frames["solvers"], _versions())
    if not races.empty and (races["suite"] == "all samples").any():
        pages["attribution.md"] = cost_table.page(races)
    if any(not frame.empty for name, frame in frames.items() if name.startswith("benchmark")):
        written += _draw(frames, directory)
        pages["benchmark.md"] = page(frames)
    if not pages:
        raise NothingToReportError(f"there are no results in {store.root}; run 'levelport bench logistic' first.")
    for name, content in pages.items():
        written.append(directory / name)
        write_text(written[-1], content)
    return written


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


def page(frames: Frames) -> str:
    """The benchmark at equal cost as Markdown."""
    races = frames["benchmark"]
    logistic, held_out = _logistic(races), _logistic(races, HELD_OUT)
    found = [
        *goals.logistic_goals(logistic),
        *goals.network_goals(frames["benchmark-networks"]),
        *goals.optimality_goals(frames["benchmark-optimality"]),
        *goals.overhead_goals(frames["benchmark-overhead"], frames["benchmark-memory"]),
    ]
    parts = [text.HEAD, "## Where teleports pay, and where they do not\n"]
    parts += [*(f"* {line}" for line in sentences(frames)), "", "## Goals\n", sections.goals(found)]
    if not frames["benchmark-optimality"].empty:
        parts.append(sections.optimality_misses(frames["benchmark-optimality"]))
    if not logistic.empty:
        parts += ["## Logistic problems\n", text.LOGISTIC, "![profiles](benchmark-logistic.png)\n"]
        parts += [sections.standings(logistic, ORDER), text.HARD, sections.hard_problems(logistic)]
    if not held_out.empty:
        parts += ["### Splits on which nothing was tuned\n", text.HELD_OUT]
        parts += [sections.standings(held_out, ORDER), text.HARD, sections.hard_problems(held_out)]
    for suite, title in (("quadratic", "Quadratics"), ("function", "Test functions")):
        rows = races if races.empty else races[races["suite"] == suite]
        if not rows.empty:
            parts += [f"## {title}\n", text.FAMILIES[suite], sections.problem_by_problem(rows, 1e-6, ORDER)]
    parts += _networks(frames)
    for name, title, words, make in (
        ("benchmark-seconds", "Seconds", text.SECONDS, sections.seconds),
        ("benchmark-overhead", "Overhead of the methods' own code", text.OVERHEAD, sections.overhead),
        ("benchmark-memory", "Peak memory", text.MEMORY, sections.memory),
        ("benchmark-growth", "Growth", text.GROWTH, sections.growth),
        ("benchmark-teleport-cost", "Cost of one teleport", text.TELEPORT_COST, sections.teleport_cost),
        ("benchmark-hvp", "Hessian-vector products in closed form", text.HVP, sections.hvp),
    ):
        if not frames[name].empty:
            parts += [f"## {title}\n", words, make(frames[name])]
    parts.append(f"Measured with {_versions()}, float64 (the large network in float32). {len(races)} races.\n")
    return "\n".join(parts)


def _logistic(races: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    return races if races.empty else races[(races["suite"] == "logistic") & (races["seed"] == seed)]


def _networks(frames: Frames) -> list[str]:
    races, pairs = frames["benchmark"], frames["benchmark-networks"]
    if pairs.empty:
        return []
    count = races[races["suite"] == "network"].groupby("competitor")["budget"].agg(["count", "max"])
    ran = "; ".join(f"{name}: {int(row['count'])} (budget up to {row['max']:g})" for name, row in count.iterrows())
    return [
        "## Networks\n",
        text.NETWORKS,
        f"Networks run per method: {ran}.\n",
        "![networks](benchmark-networks.png)\n",
        sections.network_losses(races),
        "### What certified teleports do for GD, L-BFGS, momentum and Adam\n",
        text.VISITS,
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
