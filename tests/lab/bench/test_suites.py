"""The suites that have pages of their own, in miniature: from a specification to the page."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pandas as pd
import pytest

from levelport.cli.bench import bench_command
from levelport.lab.bench import cost_table, safety
from levelport.lab.bench.competitors import OURS
from levelport.lab.bench.growth import HvpSpec
from levelport.lab.bench.instances import ProblemName
from levelport.lab.bench.page import write_pages
from levelport.lab.bench.races import RaceSpec
from levelport.lab.bench.safety import EqualCostSpec, TwinsSpec
from levelport.lab.bench.suites import SUITES
from levelport.lab.engine.spec import RunSpec
from levelport.lab.engine.store import Store


def stored(tmp_path: Path, *specs: RunSpec) -> Store:
    store = Store(tmp_path / "store")
    for spec in specs:
        store.put(spec, spec.run(), 1.0, {})
    return store


def test_attribution_becomes_a_page(tmp_path: Path) -> None:
    problem = ProblemName("all samples", cost_table.DATA, 1e-3)
    store = stored(tmp_path, RaceSpec(problem, OURS, 40.0), RaceSpec(problem, cost_table.MAIN[0], 40.0))
    written = write_pages(store, tmp_path / "report")
    assert [path.name for path in written] == ["attribution.md"]  # and no page of a benchmark that was not run
    page = (tmp_path / "report" / "attribution.md").read_text()
    assert f"| {OURS} |" in page
    assert f"| {cost_table.MAIN[0]} | not reached | not reached | not reached |" in page


def test_products_in_closed_form_are_those_of_autograd(tmp_path: Path) -> None:
    store = stored(tmp_path, HvpSpec("logreg/titanic", repeats=3))
    (run,) = next(iter(store.look().results.values())).runs
    assert run.facts["difference"] < 1e-12
    write_pages(store, tmp_path / "report")
    assert "| logreg/titanic (1761 × 4) |" in (tmp_path / "report" / "benchmark.md").read_text()


def test_safety_becomes_two_sections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "STEPS", 30)
    network = ProblemName("network", "mlp-softplus-5/blood", 1e-3)
    store = stored(
        tmp_path,
        TwinsSpec("tanh", "momentum 0.02", 0),
        TwinsSpec("tanh", "momentum 0.02", 1),
        EqualCostSpec(network, "SGD", budget=120.0),
    )
    write_pages(store, tmp_path / "report")
    table = pd.read_csv(tmp_path / "report" / "benchmark-safety.csv").set_index("schedule")
    assert list(table["runs"]) == [2, 2]
    assert (table["finite"] == 2).all()
    assert table.loc["every 20", "teleports"] > 0
    (row,) = pd.read_csv(tmp_path / "report" / "benchmark-safety-equal-cost.csv").to_dict("records")
    assert row["worst"] >= row["last"] > 0.0
    page = (tmp_path / "report" / "benchmark.md").read_text()
    assert "Does a teleport ever hurt" in page
    assert "The same at equal cost" in page


def test_help_names_every_suite() -> None:
    listed = (inspect.getsource(bench_command).split('help="')[1]).split("; all by default")[0]
    assert set(re.findall(r"[a-z][a-z-]+", listed)) == set(SUITES)
