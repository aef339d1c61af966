"""``benchmark.md`` with its tables and pictures, from whatever the store holds."""

from __future__ import annotations

import platform
from pathlib import Path

import pandas as pd
import torch

from levelport.lab import pictures as style
from levelport.lab.bench import goals, pictures, sections, tables
from levelport.lab.bench import page_text as text
from levelport.lab.bench.competitors import COMPETITORS
from levelport.lab.bench.parts import ALONE, HELD_OUT, OURS
from levelport.lab.engine.store import Store
from levelport.problems.atomic import write_text

ORDER = list(COMPETITORS)


class NothingToReportError(ValueError):
    """The store is empty."""


def write_page(store: Store, directory: Path) -> list[Path]:
    """Write the report to ``directory``; the files written."""
    results = list(store.look().results.values())
    races = tables.races(results)
    if races.empty:
        raise NothingToReportError(f"there are no races in {store.root}; run 'levelport bench logistic' first.")
    frames = {
        "benchmark": races,
        "benchmark-networks": tables.network_pairs(results, OURS, ALONE),
        "benchmark-subproblem": tables.subproblems(results),
        "benchmark-seconds": tables.timings(results),
        "benchmark-overhead": tables.overheads(results),
        "benchmark-memory": tables.flat(results, "memory"),
        "benchmark-growth": tables.flat(results, "growth"),
        "benchmark-teleport-cost": tables.flat(results, "teleport-cost"),
    }
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, frame in frames.items():
        if not frame.empty:
            written.append(directory / f"{name}.csv")
            frame.to_csv(written[-1], index=False, float_format="%.5g")
    written += _draw(frames, directory)
    written.append(directory / "benchmark.md")
    write_text(written[-1], page(frames))
    return written


def _draw(frames: dict[str, pd.DataFrame], directory: Path) -> list[Path]:
    races, timings = frames["benchmark"], frames["benchmark-seconds"]
    makers = {
        "benchmark-logistic": (_logistic(races), pictures.profiles),
        "benchmark-seconds": (timings, lambda frame: pictures.profiles(frame, "seconds")),
        "benchmark-networks": (frames["benchmark-networks"], pictures.networks),
        "benchmark-growth": (frames["benchmark-growth"], pictures.growth),
    }
    written = []
    for name, (frame, draw) in makers.items():
        if frame.empty:
            continue
        with style.small_print():
            target = directory / f"{name}.png"
            draw(frame).savefig(target, dpi=130)
            written.append(target)
    return written


def page(frames: dict[str, pd.DataFrame]) -> str:
    """The whole report as Markdown."""
    races = frames["benchmark"]
    logistic, held_out = _logistic(races), _logistic(races, HELD_OUT)
    found = [
        *goals.logistic_goals(logistic),
        *goals.network_goals(frames["benchmark-networks"]),
        *goals.subproblem_goals(frames["benchmark-subproblem"]),
        *goals.overhead_goals(frames["benchmark-overhead"], frames["benchmark-memory"]),
    ]
    parts = [text.HEAD, verdict(frames), "## Goals\n", sections.goals(found), text.WHY]
    if not logistic.empty:
        parts += ["## Logistic problems\n", text.LOGISTIC, "![profiles](benchmark-logistic.png)\n"]
        parts += [sections.standings(logistic, ORDER), text.HARD, sections.hard_problems(logistic)]
    if not held_out.empty:
        parts += ["### Splits on which nothing was tuned\n", text.HELD_OUT]
        parts += [sections.standings(held_out, ORDER), text.HARD, sections.hard_problems(held_out)]
    for suite, title in (("quadratic", "Quadratics"), ("function", "Test functions")):
        rows = races[races["suite"] == suite]
        if not rows.empty:
            parts += [f"## {title}\n", text.SUITES[suite], sections.problem_by_problem(rows, 1e-6, ORDER)]
    parts += _networks(frames)
    parts += _costs(frames)
    parts.append(_versions(races))
    return "\n".join(parts)


def _logistic(races: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    return races[(races["suite"] == "logistic") & (races["seed"] == seed)]


def _networks(frames: dict[str, pd.DataFrame]) -> list[str]:
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


def _costs(frames: dict[str, pd.DataFrame]) -> list[str]:
    parts = []
    for name, title, words, make in (
        ("benchmark-seconds", "Seconds", text.SECONDS, sections.seconds),
        ("benchmark-overhead", "Overhead of the methods' own code", text.OVERHEAD, sections.overhead),
        ("benchmark-memory", "Peak memory", text.MEMORY, sections.memory),
        ("benchmark-growth", "Growth", text.GROWTH, sections.growth),
        ("benchmark-teleport-cost", "Cost of one teleport", text.TELEPORT_COST, sections.teleport_cost),
    ):
        if not frames[name].empty:
            parts += [f"## {title}\n", words, make(frames[name])]
    return parts


def verdict(frames: dict[str, pd.DataFrame]) -> str:
    """Where we win and where we lose, in sentences made from the tables."""
    from levelport.lab.bench.verdict import sentences

    return (
        "## Where teleports pay, and where they do not\n\n"
        + "\n".join(f"* {line}" for line in sentences(frames))
        + "\n"
    )


def _versions(races: pd.DataFrame) -> str:
    import numpy
    import scipy

    import levelport

    return (
        f"Measured with levelport {levelport.__version__}, Python {platform.python_version()}, torch "
        f"{torch.__version__}, SciPy {scipy.__version__}, NumPy {numpy.__version__}, {platform.machine()}, one thread, "
        f"float64 (the large network in float32). {len(races)} races.\n"
    )
