"""The suites in miniature: from a specification to the printed table and the page."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
import torch
from click.testing import Result
from typer import Typer
from typer.testing import CliRunner

from levelport_lab.bench import cost_table, equal_cost, safety, suites
from levelport_lab.bench.competitors import ALONE, OURS
from levelport_lab.bench.equal_cost import EqualCostSpec, tuned_inside
from levelport_lab.bench.instances import ProblemName
from levelport_lab.bench.logistic_cases import LOGISTIC_CASES
from levelport_lab.bench.minimizers.arms import MEMORY
from levelport_lab.bench.minimizers.networks import forward, weights, with_derivatives
from levelport_lab.bench.minimizers.study import MinimizerSpec
from levelport_lab.bench.races import RaceSpec
from levelport_lab.bench.safety import SafetySpec
from levelport_lab.bench.solver_runs import OURS as SOLVER
from levelport_lab.bench.solver_runs import Budget, SolverSpec
from levelport_lab.bench.suites import SUITES, NothingToReportError, results, write_report
from levelport_lab.choices import Tier
from levelport_lab.cli.bench import bench_command
from levelport_lab.engine.spec import RunSpec
from levelport_lab.engine.store import Store


def stored(tmp_path: Path, *specs: RunSpec) -> Store:
    store = Store(tmp_path / "store")
    for spec in specs:
        store.put(spec, spec.run(), 1.0, {})
    return store


def replaced(monkeypatch: pytest.MonkeyPatch, name: str, *specs: RunSpec) -> None:
    """Let the suite ``name`` have these tasks only."""
    suite = SUITES[name]
    fields = (suite.rows, suite.key, suite.tables, suite.page, suite.picture, suite.seeded)
    monkeypatch.setitem(SUITES, name, suites.Suite(lambda tier, seed: list(specs), *fields))


def invoke(arguments: Sequence[str]) -> Result:
    app = Typer()
    app.command()(bench_command)
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).invoke(app, list(arguments))


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("tier", ["quick", "full"])
def test_tasks_have_keys_of_their_own(name: str, tier: Tier) -> None:
    specs = SUITES[name].specs(tier, 0)
    assert specs
    assert len({spec.key for spec in specs}) == len(specs)
    assert all(spec.rough_seconds > 0.0 for spec in specs)
    other = {spec.key for spec in SUITES[name].specs(tier, 1)}
    assert other.isdisjoint(spec.key for spec in specs) == SUITES[name].seeded


def test_attribution_is_part_of_logistic(tmp_path: Path) -> None:
    problem = ProblemName("all samples", cost_table.DATA, 1e-3)
    store = stored(tmp_path, RaceSpec(problem, OURS, 40.0), RaceSpec(problem, cost_table.CERTIFIED[0], 40.0))
    (table,) = SUITES["logistic"].tables(results("logistic", store))
    assert table.header == ["cost to 1e-10", "reg 1e-3"]
    assert [cost_table.CERTIFIED[0], "-"] in list(table.rows)


def test_safety_becomes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "STEPS", 30)
    monkeypatch.setattr(equal_cost, "TUNING", 30.0)
    network = equal_cost.GROUPS["other sets"][19]
    store = stored(
        tmp_path,
        SafetySpec("tanh", "SGD 0.1", 0),
        SafetySpec("tanh", "SGD 0.1", 1),
        EqualCostSpec(network, "SGD", budget=120.0),
        EqualCostSpec(network, "ArmijoSGD", budget=120.0),
    )
    written = write_report("safety", results("safety", store), tmp_path)
    assert {path.name for path in written} == {"safety.csv", "safety.md"}
    rows = pd.read_csv(tmp_path / "safety.csv")
    steps, cost = rows[rows["compared at"] == "equal steps"], rows[rows["compared at"] == "equal cost"]
    assert list(steps["schedule"].value_counts()) == [2] * 5
    assert (steps["finite"] == 1).all()
    assert steps[steps["schedule"] == "every 20"]["teleports"].min() > 0
    assert list(cost["optimizer"].value_counts()) == [4, 3]  # the line search has no undo to leave out
    sgd = cost[cost["optimizer"] == "SGD"]
    assert (sgd["worst"] >= sgd["last"]).all()
    assert sgd[["worse_below", "worse_above"]].min().min() > 1.0
    assert cost[cost["schedule"] == "default"]["worst"].max() <= 1.05
    assert cost[cost["schedule"] == equal_cost.ARMS[-1]]["teleports"].max() == 0
    page = (tmp_path / "safety.md").read_text()
    assert "| SGD 0.1, every 20 | 2/2 |" in page
    assert "| ArmijoSGD, other sets | 1 |" in page
    assert "| ArmijoSGD, no account | 1 |" in page


def test_pinn_residual_by_autograd() -> None:
    """The derivatives that the chain rule gives are autograd's."""
    w, read = weights([1, 4, 4, 1], 3)
    t = torch.linspace(0.0, 1.0, 7, dtype=torch.float64)[:, None].requires_grad_()
    u = forward(read(w), t, torch.tanh)
    (du,) = torch.autograd.grad(u.sum(), t, create_graph=True)
    (ddu,) = torch.autograd.grad(du.sum(), t)
    for found, expected in zip(with_derivatives(read(w), t.detach()), (u, du, ddu), strict=True):
        torch.testing.assert_close(found, expected.detach())


def test_report_writes_only_the_suite_asked_for(tmp_path: Path) -> None:
    races = [RaceSpec(ProblemName("function", "booth"), name, 50.0) for name in (OURS, ALONE)]
    network = [RaceSpec(ProblemName("network", "mlp-relu-5/blood", 1e-4), name, 20.0) for name in (OURS, ALONE)]
    store = stored(tmp_path, *races, *network)
    report = tmp_path / "report"
    done = invoke(["functions", "--no-run", "--out", str(store.root), "--report", str(report)])
    assert done.exit_code == 0, done.output
    assert {path.name for path in report.iterdir()} == {"functions.csv", "benchmark.md"}
    done = invoke(["networks", "--no-run", "--out", str(store.root), "--report", str(report)])
    assert done.exit_code == 0, done.output
    page = (report / "benchmark.md").read_text()
    assert page.count("<!-- table ") == 2
    assert (report / "networks.png").stat().st_size > 0


@pytest.mark.parametrize("suite", SUITES)
def test_suite_without_results_is_an_error(suite: str, tmp_path: Path) -> None:
    with pytest.raises(NothingToReportError, match=f"there are no results of {suite} in"):
        results(suite, Store(tmp_path / "store", make=False))


def test_command_ends_with_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, "functions", RaceSpec(ProblemName("function", "booth"), OURS, 50.0))
    done = invoke(["functions", "--out", str(tmp_path / "a")])
    assert done.exit_code == 0
    assert re.search(r"\nbooth +[\d.]+\n\n.*docs/results/benchmark\.md\n$", done.output)


def test_interrupted_run_reports_what_is_there(tmp_path: Path) -> None:
    """One race of 1340, and not one by the methods that others are compared with."""
    store = stored(tmp_path, RaceSpec(ProblemName("logistic", "logreg/blood", 1e-3), ALONE, 5000.0))
    done = invoke(["logistic", "--no-run", "--out", str(store.root), "--report", str(tmp_path / "report")])
    assert done.exit_code == 0, done.output
    assert "logistic: 1 of 1340 tasks have been run." in done.output
    assert re.search(rf"{ALONE} +1/1 ", done.output)
    assert len(pd.read_csv(tmp_path / "report" / "logistic.csv")) == 1


PARTIAL: dict[str, tuple[RunSpec, ...]] = {
    "functions": (RaceSpec(ProblemName("function", "booth"), ALONE, 50.0),),
    "networks": (RaceSpec(ProblemName("network", "mlp-relu-5/blood", 1e-4), ALONE, 20.0),),
    "minimizers": (MinimizerSpec("ordinal 44", MEMORY),),
    "solvers": (SolverSpec(SOLVER, next(iter(LOGISTIC_CASES)), (Budget(10),)),),
    "safety": (SafetySpec("tanh", "SGD 0.1", 0),),
}


@pytest.mark.parametrize("suite", PARTIAL)
def test_one_run_makes_a_report(suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "STEPS", 30)
    store = stored(tmp_path, *PARTIAL[suite])
    done = invoke([suite, "--no-run", "--out", str(store.root), "--report", str(tmp_path / "report")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "report" / f"{suite}.csv").stat().st_size > 0


def test_failures_are_grouped_by_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = ProblemName("logistic", "logreg/no-such-data", 1e-3)
    replaced(monkeypatch, "logistic", *(RaceSpec(problem, name, 50.0) for name in (OURS, ALONE)))
    done = invoke(["logistic", "--out", str(tmp_path / "a")])
    assert done.output.count("There is no data set 'no-such-data'") == 1
    assert "and 1 more: " in done.output


def test_command_refuses_with_a_suggestion(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "a")]
    for arguments, code, said in (
        (["logistik"], 2, "logistic"),
        (["logistic", "--tier", "huge"], 2, "'quick', 'full'"),
        (["logistic", "--seed", "9" * 25], 2, "--seed"),
        (["safety", "--seed", "1"], 2, "safety has no other splits"),
        (["solvers", "--no-run"], 1, "there are no results of solvers"),
    ):
        done = invoke([*arguments, *out])
        assert done.exit_code == code
        assert said in done.output
    assert list(tmp_path.iterdir()) == []  # a command that only looks makes no directories


def test_failed_tasks_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, "logistic", RaceSpec(ProblemName("logistic", "logreg/no-such-data", 1e-3), OURS, 50.0))
    done = invoke(["logistic", "--out", str(tmp_path / "a")])
    assert done.exit_code == 1
    assert "failed: " in done.output
    assert "There is no data set 'no-such-data'" in done.output
    assert "there are no results of logistic" in done.output


def test_step_sizes_are_tuned_inside_the_grid() -> None:
    """A valley in log lr, from either side; beyond a step size everything diverges."""
    for guess in (1e-4, 10.0):
        lr, below, above = tuned_inside(lambda lr: 1.0 + math.log10(lr / 0.05) ** 2 if lr < 0.4 else math.nan, guess)
        assert 0.05 / math.sqrt(10.0) < lr < 0.05 * math.sqrt(10.0)
        assert min(below, above) > 1.0


def test_help_names_every_suite() -> None:
    listed = (inspect.getsource(bench_command).split('help="')[1]).split("; all by default")[0]
    assert set(re.findall(r"[a-z][a-z-]+", listed)) == set(SUITES)
