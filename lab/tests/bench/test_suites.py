"""The suites that have pages of their own, in miniature: from a specification to the page."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path

import pandas as pd
import pytest

from levelport_lab.bench import cost_table, equal_cost, safety
from levelport_lab.bench import page as benchmark_page
from levelport_lab.bench.competitors import ALONE, OURS
from levelport_lab.bench.equal_cost import EqualCostSpec, tuned_inside
from levelport_lab.bench.growth import HvpSpec
from levelport_lab.bench.instances import ProblemName
from levelport_lab.bench.page import FullerPageError, NothingToReportError, write_pages
from levelport_lab.bench.races import RaceSpec
from levelport_lab.bench.safety import TwinsSpec
from levelport_lab.bench.suites import SUITES
from levelport_lab.cli.bench import bench_command
from levelport_lab.engine.spec import RunSpec
from levelport_lab.engine.store import Store


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


def test_safety_becomes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "STEPS", 30)
    network = equal_cost.GROUPS["confirmation"][-1]
    store = stored(
        tmp_path,
        TwinsSpec("tanh", "momentum 0.02", 0),
        TwinsSpec("tanh", "momentum 0.02", 1),
        EqualCostSpec(network, "SGD", budget=120.0),
        EqualCostSpec(network, OURS, budget=120.0),
    )
    written = write_pages(store, tmp_path / "report")
    assert {path.name for path in written} == {"safety.csv", "safety-equal-cost.csv", "safety.md"}
    table = pd.read_csv(tmp_path / "report" / "safety.csv")
    assert list(table["schedule"].value_counts()) == [2, 2]
    assert (table["finite"] == 1).all()
    assert table[table["schedule"] == "every 20"]["teleports"].min() > 0
    sgd, ours = pd.read_csv(tmp_path / "report" / "safety-equal-cost.csv").to_dict("records")
    assert sgd["worst"] >= sgd["last"] > 0.0
    assert min(sgd["worse_below"], sgd["worse_above"]) > 1.0
    assert ours["optimizer"] == OURS
    assert ours["worst"] <= 1.05
    page = (tmp_path / "report" / "safety.md").read_text()
    assert "all 4 runs are finite and safe" in page
    assert "minimize against GD-Armijo, confirmation" in page
    assert "Networks run: development 0, confirmation 1, fresh 0" in page


def test_a_page_from_a_partial_store_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [RaceSpec(ProblemName("quadratic", "condition 1e2"), name, 200.0) for name in (OURS, ALONE)]
    store = stored(tmp_path, *specs)
    write_pages(store, tmp_path / "report")
    page = (tmp_path / "report" / "benchmark.md").read_text()
    assert "This page is not complete" in page
    assert "| logistic | 0 of " in page
    monkeypatch.setattr(benchmark_page, "PARTS", ("functions",))
    monkeypatch.setitem(SUITES, "functions", lambda tier: list(specs))
    write_pages(store, tmp_path / "report")
    page = (tmp_path / "report" / "benchmark.md").read_text()
    assert "This page is not complete" not in page
    assert "| functions | 2 of 2 | 2 of 2 |" in page


def files_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_only_the_pages_of_the_suites_asked_for_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "STEPS", 10)
    problem = ProblemName("all samples", cost_table.DATA, 1e-3)
    product, report = HvpSpec("logreg/titanic", repeats=3), tmp_path / "report"
    monkeypatch.setitem(SUITES, "hvp", lambda tier: [product])
    store = stored(tmp_path, product, RaceSpec(problem, OURS, 40.0), TwinsSpec("tanh", "momentum 0.02", 0))
    written = write_pages(store, report, ["safety"])
    assert {path.name for path in written} == set(files_in(report)) == {"safety.csv", "safety.md"}
    assert [path.name for path in write_pages(store, report, ["attribution"])] == ["attribution.md"]
    assert {path.name for path in write_pages(store, report, ["hvp"])} == {"benchmark-hvp.csv", "benchmark.md"}
    assert len(write_pages(store, report)) == len(files_in(report)) == 5


@pytest.mark.parametrize("suite", ["logistic", "attribution", "safety", "families", "solvers"])
def test_a_suite_without_results_is_an_error_and_nothing_is_written(suite: str, tmp_path: Path) -> None:
    """The first shares its page with a suite that has some."""
    store = stored(tmp_path, HvpSpec("logreg/titanic", repeats=3))
    with pytest.raises(NothingToReportError, match=f"there are no results of {suite} in"):
        write_pages(store, tmp_path / "report", [suite])
    assert not (tmp_path / "report").exists()


def test_a_fuller_page_is_not_replaced(tmp_path: Path) -> None:
    """A store with one suite, or a part of one, does not cut what another store has told."""
    report = tmp_path / "report"
    races = [RaceSpec(ProblemName("function", "booth"), name, 50.0) for name in (OURS, ALONE)]
    small = [RaceSpec(ProblemName("all samples", cost_table.DATA, reg), OURS, 20.0) for reg in (1e-6, 1e-3)]
    write_pages(stored(tmp_path / "whole", *races, *small), report)
    before = files_in(report)
    for name, specs, lost in (
        ("other", [HvpSpec("logreg/titanic", repeats=3)], r"benchmark\.csv has 2 rows and would have 0"),
        ("part", races[:1], r"benchmark\.csv has 2 rows and would have 1"),
        ("small", small[:1], r"attribution\.md has 6 rows and would have 5"),
    ):
        with pytest.raises(FullerPageError, match=lost):
            write_pages(stored(tmp_path / name, *specs), report)
    assert files_in(report) == before
    write_pages(stored(tmp_path / "whole", *races, *small), report)  # as much as before is no loss


def test_step_sizes_are_tuned_inside_the_grid() -> None:
    """A valley in log lr, from either side; beyond a step size everything diverges."""
    for guess in (1e-4, 10.0):
        lr, below, above = tuned_inside(lambda lr: 1.0 + math.log10(lr / 0.05) ** 2 if lr < 0.4 else math.nan, guess)
        assert 0.05 / math.sqrt(10.0) < lr < 0.05 * math.sqrt(10.0)
        assert min(below, above) > 1.0


def test_help_names_every_suite() -> None:
    listed = (inspect.getsource(bench_command).split('help="')[1]).split("; all by default")[0]
    assert set(re.findall(r"[a-z][a-z-]+", listed)) == set(SUITES)
