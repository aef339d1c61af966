"""The comparison of minimizers: problems, arms, one run, and the tables of its page."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import pandas as pd
import pytest
import torch

from levelport.objectives import FunctionObjective
from levelport.solvers import move_from
from levelport_lab.bench.minimizers import page, study
from levelport_lab.bench.minimizers.arms import ARMS, MEMORY, OURS, RandomDirections
from levelport_lab.bench.minimizers.optima import optima
from levelport_lab.bench.minimizers.problems import PROBLEMS
from levelport_lab.bench.report import with_tables
from levelport_lab.engine.spec import Run
from levelport_lab.engine.store import Store

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"


def test_halves_are_those_of_the_first_commit() -> None:
    assert sum(problem.group != "network" for problem in PROBLEMS.values()) == 33
    assert all(hashlib.sha256(name.encode()).digest()[0] & 1 for name in PROBLEMS)
    development = pytest.importorskip("development_minimizers", reason="tools/ is not part of this copy").DEVELOPMENT
    assert sum(problem.group != "network" for problem in development.values()) == 24
    assert not any(hashlib.sha256(name.encode()).digest()[0] & 1 for name in development)


def test_problems_of_the_other_half_become_no_rows(tmp_path: Path) -> None:
    """Stores of before have them; they are not logistic problems of the first split."""
    store, run = Store(tmp_path), [Run(facts={"dimension": 12.0})]
    for name in ("poisson 100", "huber 300", "logreg/blood"):
        store.put(study.MinimizerSpec(name, OURS), run, 1.0, {})
    rows = study.minimizer_rows(store.look().results.values())
    assert set(zip(rows["half"], rows["problem"], strict=True)) == {
        ("reported", "huber 300"),
        ("split 0", "logreg/blood"),
    }


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems_are_smooth_and_start_above_their_optimum(name: str) -> None:
    problem = PROBLEMS[name]
    loss, x0 = problem.make()
    assert 10 <= len(x0) <= 5000
    point = FunctionObjective(loss, like=x0).at(x0)
    assert point.finite
    assert point.gradient_norm > 0.0
    assert bool(torch.isfinite(point.hvp(point.normal)).all())
    if problem.group != "network":
        assert optima()[name] < point.value


def test_a_run_costs_more_for_more_digits() -> None:
    facts = study.MinimizerSpec("gaussian mixture 33", OURS).run()[0].facts
    costs = [facts[f"cost_{tau:g}"] for tau in study.ACCURACIES]
    assert 0.0 < costs[0] < costs[1] < costs[2] < 100.0
    assert facts["ended_by_itself"] == 0


def test_specs_name_the_rows_of_the_csv() -> None:
    if not (RESULTS / "minimizers.csv").exists():
        pytest.skip("the documentation is not part of this copy")
    rows = pd.read_csv(RESULTS / "minimizers.csv")
    known = {(spec.group, spec.half, spec.name, spec.arm) for spec in study.specs()}
    assert set(zip(rows["group"], rows["half"], rows["problem"], rows["arm"], strict=True)) <= known


def test_random_directions_are_pairs_of_the_hessian() -> None:
    loss, x0 = PROBLEMS["gaussian mixture 33"].make()
    objective = FunctionObjective(loss, like=x0)
    move = move_from(objective.at(x0), objective, RandomDirections(max_vectors=4))
    assert move.point.x is x0 or torch.equal(move.point.x, x0)
    assert move.model is not None
    V, HV = move.model.ritz_pairs()
    torch.testing.assert_close(V @ V.T, torch.eye(len(V), dtype=torch.float64), atol=1e-10, rtol=0.0)
    exact = torch.stack([objective.at(x0).hvp(v) for v in V])
    torch.testing.assert_close(HV, exact, atol=1e-8, rtol=1e-8)


def test_ratios_leave_out_what_did_not_run() -> None:
    rows = pd.DataFrame(
        [("a", OURS, 10.0), ("a", MEMORY, 20.0), ("b", OURS, math.inf), ("b", MEMORY, 5.0), ("c", OURS, 1.0)],
        columns=["problem", "arm", "cost_1e-10"],
    ).assign(half="split 0")
    assert page.ratios(rows, OURS, MEMORY).droplevel("half").to_dict() == {"a": 0.5, "b": math.inf}
    assert set(page.longer(rows, MEMORY, 5.0)["problem"]) == {"a"}


def test_documented_tables_follow_from_the_csv() -> None:
    if not (RESULTS / "minimizers.csv").exists():
        pytest.skip("the documentation is not part of this copy")
    text = (RESULTS / "minimizers.md").read_text(encoding="utf-8")
    rows = pd.read_csv(RESULTS / "minimizers.csv")
    assert set(rows["arm"]) <= set(ARMS)
    assert with_tables(text, page.tables(rows)) == text
