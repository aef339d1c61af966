"""Tables of the benchmark, from runs made up so that the right answer is known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from levelport_lab.bench import tables
from levelport_lab.bench.competitors import ALONE, LBFGS, OURS
from levelport_lab.bench.instances import ProblemName
from levelport_lab.bench.races import RaceSpec
from levelport_lab.bench.report import Table, as_csv, merged, with_tables
from levelport_lab.bench.suites import SUITES
from levelport_lab.engine.spec import Run
from levelport_lab.engine.store import Store

RESULTS = Path(__file__).parents[3] / "docs" / "results"


def made_up(costs: list[float], values: list[float], f_star: float = 0.0) -> Run:
    facts = {"f_start": values[0], "f_star": f_star, "ended_by_itself": 0.0}
    curves = {"gradient_equivalents": np.array(costs), "value": np.array(values)}
    return Run(final_value=values[-1], facts=facts, curves=curves)


def rows_of(tmp_path: Path, suite: str, runs: dict[tuple[ProblemName, str, float], Run]) -> pd.DataFrame:
    store = Store(tmp_path)
    for (name, competitor, budget), run in runs.items():
        store.put(RaceSpec(name, competitor, budget), [run], 1.0, {})
    return SUITES[suite].rows(store.look().results.values())


def test_race_becomes_a_row(tmp_path: Path) -> None:
    name = ProblemName("function", "booth")
    run = made_up([1.0, 50.0, 200.0], [10.0, 0.05, 1e-8])
    longer = made_up([1.0, 50.0, 300.0], [10.0, 0.05, 1e-8])
    (row,) = rows_of(tmp_path, "functions", {(name, OURS, 500.0): run, (name, OURS, 900.0): longer}).to_dict("records")
    assert [row["cost_0.01"], row["cost_0.0001"], row["cost_1e-06"]] == [50.0, 300.0, 300.0]  # of the longest run
    assert math.isinf(row["cost_1e-10"])


def test_losses_beyond_the_budget_are_unknown(tmp_path: Path) -> None:
    name = ProblemName("network", "mlp-relu-5/blood", 1e-4)
    runs = {(name, OURS, 500.0): made_up([1.0, 50.0, 200.0], [10.0, 0.05, 1e-8], math.nan)}
    (row,) = rows_of(tmp_path, "networks", runs).to_dict("records")
    assert [row["loss_100"], row["loss_300"]] == [0.05, 1e-8]
    assert math.isnan(row["loss_1000"])


def test_ratios_count_failures_on_either_side() -> None:
    ours = [10.0, 10.0, math.inf, math.inf, 30.0]
    theirs = [20.0, math.inf, 10.0, math.inf, 10.0]
    wide = pd.DataFrame({OURS: ours, LBFGS: theirs})
    assert tables.quartiles(wide, LBFGS) == "0.50 (0.00 to 3.00)"  # of 0, ½, 3, ∞; neither is left out
    assert tables.median_ratio(wide, LBFGS) == "0.50"
    assert tables.quartiles(pd.DataFrame({OURS: [1.0, 2.0], LBFGS: [1.0, 1.0]}), LBFGS) == "1.50 (1.25 to 1.75)"
    assert tables.quartiles(pd.DataFrame({OURS: [math.inf], LBFGS: [math.inf]}), LBFGS) == "-"
    assert tables.quartiles(wide, ALONE) == tables.median_ratio(wide, OURS) == "-"


def test_logistic_standings(tmp_path: Path) -> None:
    costs = {OURS: (130.0, 150.0), ALONE: (110.0, math.inf), LBFGS: (400.0, 100.0)}
    runs = {}
    for number, data in enumerate(("blood", "pima")):
        for seed in (0, 1):
            name = ProblemName("logistic", f"logreg/{data}", 1e-3, seed)
            for competitor, spent in costs.items():
                end = [1.0, 1e-12] if math.isfinite(spent[number]) else [1.0, 0.5]
                if competitor != ALONE or seed == 0:
                    runs[name, competitor, 5000.0] = made_up([1.0, min(spent[number], 9.0e3)], end)
    (standings,) = tables.logistic_tables(rows_of(tmp_path, "logistic", runs))
    assert standings.header[-2:] == ["1 hard", "other splits"]
    assert standings.rows == [
        [ALONE, "1/2", "-", "0.00 (0.00 to 1.18)", "1.18", "-"],
        [OURS, "2/2", "140", "-", "-", "-"],
        [LBFGS, "2/2", "250", "0.91 (0.62 to 1.21)", "0.33", "0.91"],
    ]


@pytest.mark.parametrize("competitor", [OURS, ALONE, LBFGS])
@pytest.mark.parametrize("suite", ["logistic", "functions", "networks"])
def test_one_race_alone_makes_tables(suite: str, competitor: str, tmp_path: Path) -> None:
    """An interrupted run leaves any part of the races; any competitor may be missing."""
    family = {"logistic": "logistic", "functions": "function", "networks": "network"}[suite]
    name = ProblemName(family, "any", 1e-3)  # type: ignore[arg-type]
    rows = rows_of(tmp_path, suite, {(name, competitor, 1000.0): made_up([1.0, 400.0], [1.0, 1e-12])})
    for table in SUITES[suite].tables(rows):
        assert all(len(row) == len(table.header) for row in table.rows)


def test_csv_keeps_rows_that_the_store_lacks(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    old = pd.DataFrame({"problem": ["a", "b"], "cost": [1.0, math.inf]})
    path.write_text(as_csv(old))
    new = merged(pd.DataFrame({"problem": ["c", "b"], "cost": [3.0, 2.0]}), path, ["problem"])
    assert new.to_dict("list") == {"problem": ["a", "b", "c"], "cost": [1.0, 2.0, 3.0]}


def test_tables_are_set_into_the_page() -> None:
    page = "# Title\n\nBefore.\n\n<!-- table one -->\nold\n<!-- end -->\n\nAfter.\n"
    one, two = Table("one", ["a", "b"], [["x", "1"]]), Table("two", ["a"], [])
    text = with_tables(page, [one, two])
    assert text.startswith(
        "# Title\n\nBefore.\n\n<!-- table one -->\n| a | b |\n| --- | ---: |\n| x | 1 |\n<!-- end -->"
    )
    assert "After." in text
    assert text.index("After.") < text.index("<!-- table two -->")
    assert with_tables(text, [one, two]) == text


def test_table_as_text_is_aligned() -> None:
    text = Table("t", ["name", "cost"], [["a", "1"], ["longer", "22.5"]]).text()
    assert text.splitlines() == ["t", "name    cost", "a          1", "longer  22.5"]


@pytest.mark.parametrize("suite", SUITES)
def test_documented_tables_are_those_of_the_csv(suite: str) -> None:
    """The tables of docs/results follow from the CSV files beside them."""
    numbers, page = RESULTS / f"{suite}.csv", RESULTS / f"{SUITES[suite].page}.md"
    if not numbers.exists():
        pytest.skip("the documentation is not part of this copy")
    text = page.read_text(encoding="utf-8")
    for table in SUITES[suite].tables(pd.read_csv(numbers, keep_default_na=False, na_values=[""])):
        assert f"<!-- table {table.name} -->\n{table.markdown()}\n<!-- end -->" in text
