"""The suites that have pages of their own, in miniature: from a specification to the page."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path

import pandas as pd
import pytest
import torch

from levelport.cli.bench import bench_command
from levelport.lab.bench import cost_table, safety, solvers
from levelport.lab.bench.competitors import OURS
from levelport.lab.bench.growth import HvpSpec
from levelport.lab.bench.instances import ProblemName
from levelport.lab.bench.page import write_pages
from levelport.lab.bench.races import RaceSpec
from levelport.lab.bench.safety import EqualCostSpec, TwinsSpec
from levelport.lab.bench.solvers import CONTESTANTS, Case, SolversSpec
from levelport.lab.bench.suites import SUITES
from levelport.lab.engine.spec import RunSpec
from levelport.lab.engine.store import Store
from levelport.problems.quadratics import Quadratic


def stored(tmp_path: Path, *specs: RunSpec) -> Store:
    store = Store(tmp_path / "store")
    for spec in specs:
        store.put(spec, spec.run(), 1.0, {})
    return store


def small_case() -> Case:
    quadratic = Quadratic.random(torch.logspace(0, -1, 6, dtype=torch.float64), seed=3)
    x = torch.ones(6, dtype=torch.float64)
    return Case("a small quadratic", quadratic, x, quadratic.largest_gradient_norm(x))


def large_case() -> Case:
    """Too large for SciPy's dense matrices."""
    quadratic = Quadratic.random(torch.linspace(1.0, 2.0, 501, dtype=torch.float64), seed=3)
    return Case("a large quadratic", quadratic, torch.zeros(501, dtype=torch.float64))


def test_solvers_become_a_table_and_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers, "CASES", (small_case, large_case))
    monkeypatch.setattr(solvers, "HVP_LADDER", (6, 15))
    monkeypatch.setattr(solvers, "CONTESTANTS", CONTESTANTS[:4])  # trust-constr takes its time
    store = stored(tmp_path, SolversSpec(0, rounds=2), SolversSpec(1, rounds=1))
    written = write_pages(store, tmp_path / "report")
    assert {path.name for path in written} == {"solvers.csv", "solvers.md"}
    table = pd.read_csv(tmp_path / "report" / "solvers.csv").set_index(["problem", "solver"])
    assert len(table) == 8
    ours = table.loc[("a small quadratic", "auto")]
    assert ours["share_of_best"] == pytest.approx(1.0, abs=1e-6)
    assert ours["gradient_norm_200_hvps"] == pytest.approx(small_case().known_maximum, rel=1e-6)
    assert ours["timed_runs"] == 2
    assert ours["cost_within_1_percent"] <= ours["gradient_equivalents"]
    assert math.isnan(table.loc[("a large quadratic", "SciPy SLSQP")]["gradient_equivalents"])
    page = (tmp_path / "report" / "solvers.md").read_text()
    assert "SciPy SLSQP above 500 variables" in page
    assert "| SciPy SLSQP | not run: too many variables |" in page
    assert "Within 1 % of the best gradient norm: 2 of 2 problems" in page


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
