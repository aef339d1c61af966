"""Tables, goals and the page, from runs made up so that the right answer is known."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer import Typer
from typer.testing import CliRunner

from levelport_lab.bench import tables
from levelport_lab.bench.competitors import ALONE, LBFGS, NEWTON_CG, OURS
from levelport_lab.bench.findings import logistic_goals, network_goals
from levelport_lab.bench.growth import SERIES, GrowthSpec, HvpSpec, slope
from levelport_lab.bench.instances import ProblemName
from levelport_lab.bench.optimality import _end_of_ray
from levelport_lab.bench.page import write_pages
from levelport_lab.bench.races import RaceSpec
from levelport_lab.bench.suites import SUITES
from levelport_lab.choices import Tier
from levelport_lab.cli.bench import bench_command
from levelport_lab.engine.spec import Run
from levelport_lab.engine.store import Store
from levelport_lab.problems.quadratics import Quadratic


def made_up(costs: list[float], values: list[float], f_star: float = 0.0) -> Run:
    names = ("values", "gradients", "hvps", "gradient_equivalents", "seconds", "evaluation_seconds", "ended_by_itself")
    facts = dict.fromkeys(names, 0.0) | {"f_start": values[0], "f_star": f_star, "dimension": 2.0}
    curve = np.array(costs)
    return Run(
        final_value=values[-1],
        facts=facts,
        curves={"gradient_equivalents": curve, "value": np.array(values), "seconds": curve / 100.0},
    )


def store_with(tmp_path: Path, runs: dict[tuple[ProblemName, str, float], Run]) -> Store:
    store = Store(tmp_path)
    for (name, competitor, budget), run in runs.items():
        store.put(RaceSpec(name, competitor, budget), [run], 1.0, {})
    return store


def test_a_race_becomes_a_row(tmp_path: Path) -> None:
    name = ProblemName("function", "booth")
    run = made_up([1.0, 50.0, 200.0], [10.0, 0.05, 1e-8])
    (_, row), *rest = tables.races(store_with(tmp_path, {(name, OURS, 500.0): run}).look().results.values()).iterrows()
    assert not rest
    assert [row["cost_0.01"], row["cost_0.0001"], row["cost_1e-06"]] == [50.0, 200.0, 200.0]
    assert math.isinf(row["cost_1e-10"])
    assert [row["loss_100"], row["loss_300"]] == [0.05, 1e-8]
    assert math.isnan(row["loss_1000"])  # beyond the budget nothing is known


def test_the_optimum_of_a_network_is_the_lowest_value_seen(tmp_path: Path) -> None:
    name = ProblemName("network", "mlp-relu-5/blood", 1e-4)
    runs = {
        (name, OURS, 100.0): made_up([1.0, 9.0], [1.0, 0.3], f_star=math.nan),
        (name, ALONE, 100.0): made_up([1.0, 9.0], [1.0, 0.2], f_star=math.nan),
    }
    assert set(tables.races(store_with(tmp_path, runs).look().results.values())["f_star"]) == {0.2}


def test_ratios_count_failures_on_either_side() -> None:
    ours = pd.Series([10.0, 10.0, math.inf, math.inf, 30.0])
    theirs = pd.Series([20.0, math.inf, 10.0, math.inf, 10.0])
    assert tables.ratio_quartiles(ours, theirs) == (0.0, 0.5, 3.0)  # of 0, ½, 3, ∞; neither is left out


def test_the_worst_budget_is_found_between_records() -> None:
    ours = made_up([1.0, 120.0, 400.0], [9.0, 3.0, 1.0])
    theirs = made_up([1.0, 150.0, 300.0], [8.0, 2.5, 2.0])
    # From 100: 9/8; from 120: 3/8; from 150: 3/2.5; from 300: 3/2; from 400: 1/2.
    assert tables.worst_ratio(ours, theirs, since=100.0, until=1000.0) == (1.5, 300.0)
    assert tables.worst_ratio(ours, theirs, since=100.0, until=200.0) == (1.2, 150.0)


def test_network_goals_see_both_sides(tmp_path: Path) -> None:
    good, bad = (ProblemName("network", f"mlp-relu-{size}/blood", 1e-4) for size in (5, 6))
    runs = {
        (good, OURS, 1000.0): made_up([1.0, 90.0], [1.0, 0.1], math.nan),
        (good, ALONE, 1000.0): made_up([1.0, 90.0], [1.0, 0.2], math.nan),
        (bad, OURS, 1000.0): made_up([1.0, 500.0], [1.0, 0.1], math.nan),
        (bad, ALONE, 1000.0): made_up([1.0, 90.0], [1.0, 0.2], math.nan),
    }
    found = network_goals(tables.network_pairs(store_with(tmp_path, runs).look().results.values(), OURS, ALONE))
    never_above, at_1000, at_3000 = found
    assert (never_above.holds, at_1000.holds, at_3000.holds) == (False, True, None)
    assert "above on 1 of 2" in never_above.measured
    assert "5.000 times" in never_above.measured


def test_logistic_goals_compare_at_every_budget(tmp_path: Path) -> None:
    runs = {}
    costs = {OURS: (130.0, 150.0), ALONE: (110.0, math.inf), LBFGS: (400.0, 100.0), NEWTON_CG: (200.0, 300.0)}
    for number, data in enumerate(("blood", "pima")):
        name = ProblemName("logistic", f"logreg/{data}", 1e-3)
        for competitor, spent in costs.items():
            end = [1.0, 1e-12] if math.isfinite(spent[number]) else [1.0, 0.5]
            runs[name, competitor, 5000.0] = made_up([1.0, min(spent[number], 9.0e3)], end)
    goals = logistic_goals(tables.races(store_with(tmp_path, runs).look().results.values()))
    met = {goal.statement: goal.holds for goal in goals}
    assert met["τ = 1e-10: solves at least as many as GD-Armijo at every budget from 100 on"] is False  # at 110
    assert met["τ = 1e-10: solves all in the end"] is True
    assert met["τ = 1e-10: median cost at most 1 times that of SciPy Newton-CG"] is True
    assert met["where L-BFGS-B needs more than 300: at most its own cost"] is True


def test_slopes() -> None:
    assert slope([1.0, 10.0, 100.0], [3.0, 30.0, 300.0]) == pytest.approx(1.0)
    assert slope([1.0, 4.0], [1.0, 2.0]) == pytest.approx(0.5)
    assert math.isnan(slope([1.0, 4.0], [1.0, math.inf]))


def test_series_are_told_apart_by_their_shapes() -> None:
    """A shape that belongs to another series is not drawn in this one, though it has the same fixed values."""
    shapes = [shape for series in SERIES.values() for shape in series]
    frame = pd.DataFrame(shapes, columns=["samples", "features", "condition"])
    for column, series in SERIES.items():
        found = tables.varying(frame, column)
        assert sorted(map(tuple, found.to_numpy().tolist())) == sorted(series)
        assert found[column].is_monotonic_increasing
    assert GrowthSpec(*shapes[0], OURS).key


def test_a_ray_ends_on_the_level() -> None:
    quadratic = Quadratic.random(torch.tensor([2.0, 0.5], dtype=torch.float64), seed=0)
    direction = quadratic.eigenvectors[:, 0]
    # ½ · 2 t² = 9 at t = 3.
    end = _end_of_ray(quadratic, quadratic.minimiser, direction, 9.0)
    torch.testing.assert_close(end, quadratic.minimiser + 3.0 * direction)
    assert quadratic.at(end).value <= 9.0


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("tier", ["quick", "full"])
def test_every_suite_has_tasks_with_keys_of_their_own(name: str, tier: Tier) -> None:
    specs = SUITES[name](tier)
    assert specs
    assert len({spec.key for spec in specs}) == len(specs)
    assert all(spec.rough_seconds > 0.0 for spec in specs)


def test_the_page_is_made_of_what_is_there(tmp_path: Path) -> None:
    runs = {}
    for problem in ("booth", "huber"):
        for competitor in (OURS, ALONE):
            name = ProblemName("function", problem)
            runs[name, competitor, 100.0] = RaceSpec(name, competitor, 100.0).run()[0]
    written = write_pages(store_with(tmp_path / "store", runs), tmp_path / "report")
    page = (tmp_path / "report" / "benchmark.md").read_text()
    assert all(path.stat().st_size > 0 for path in written)
    table = pd.read_csv(tmp_path / "report" / "benchmark.csv").set_index(["problem", "competitor"])
    cost = table.loc[("booth", OURS), "cost_1e-06"]
    assert re.search(rf"\| booth \| [\d.-]+ \| {cost:g} \|", page)
    assert "| Networks | not measured | not run |" in page


def test_command_line_refuses_with_a_suggestion(tmp_path: Path) -> None:
    app = Typer()
    app.command()(bench_command)
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    misspelt = runner.invoke(app, ["logistik", "--out", str(tmp_path)])
    assert misspelt.exit_code == 2
    assert "logistic" in misspelt.output
    tier = runner.invoke(app, ["logistic", "--tier", "huge", "--out", str(tmp_path)])
    assert tier.exit_code == 2
    assert "'quick', 'full'" in tier.output
    empty = runner.invoke(app, ["--no-run", "--out", str(tmp_path), "--report", str(tmp_path)])
    assert empty.exit_code == 1
    assert "there are no results" in empty.output
    absent = runner.invoke(app, ["hvp", "--no-run", "--out", str(tmp_path / "a"), "--report", str(tmp_path / "b")])
    assert absent.exit_code == 1
    assert "there are no results of hvp" in absent.output
    assert list(tmp_path.iterdir()) == []  # who only looks makes no directories


def test_failed_tasks_are_named_though_there_is_nothing_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SUITES, "hvp", lambda tier: [HvpSpec("logreg/no-such-data")])
    app = Typer()
    app.command()(bench_command)
    done = CliRunner().invoke(app, ["hvp", "--out", str(tmp_path / "a"), "--report", str(tmp_path / "b")])
    assert done.exit_code == 1
    assert "failed: " in done.output
    assert "There is no data set 'no-such-data'" in done.output
    assert "there are no results of hvp" in done.output
