"""The suites intervals and improve: problems, the counting instrument, and tables from a few runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from levelport_lab.bench import improving
from levelport_lab.bench.improving import ImproveSpec, Meter, Spent, convex_task
from levelport_lab.bench.improving_results import improve_rows, improve_tables
from levelport_lab.bench.intervals import suite
from levelport_lab.bench.intervals.arms import RISE, Counted
from levelport_lab.bench.intervals.held_out import admitted, lowest_minimum
from levelport_lab.bench.intervals.likelihoods import Likelihood, likelihoods
from levelport_lab.bench.intervals.results import interval_rows, interval_tables, scored
from levelport_lab.bench.intervals.suite import IntervalSpec, entries, minimizer
from levelport_lab.bench.intervals.truth import profile_end
from levelport_lab.engine.backends import Backend
from levelport_lab.engine.progress import Progress
from levelport_lab.engine.runner import Plan, run_plan
from levelport_lab.engine.spec import RunSpec
from levelport_lab.engine.store import Store, TaskResult


def computed(specs: list[RunSpec], out: Path) -> list[TaskResult]:
    store = Store(out)
    assert not run_plan(Plan.of(specs, store), store, Backend(jobs=1), Progress()).failures
    return list(store.look().results.values())


def test_truth_of_an_exponential_rate() -> None:
    """n log-likelihood of a rate: the ends solve n (λ/λ̂ - 1 - log(λ/λ̂)) = rise."""
    data = torch.tensor([1.2, 0.4, 2.1, 0.9], dtype=torch.float64)
    fun = lambda w: (torch.exp(w[0]) * data - w[0]).sum() + (w[1] - w[0]).square()  # noqa: E731
    best = -data.mean().log()
    for sign in (-1.0, 1.0):
        end = profile_end(fun, torch.stack([best, best]), 0, sign, RISE)
        ratio = np.exp(float(end[0] - best))
        assert 4.0 * (ratio - 1.0 - np.log(ratio)) == pytest.approx(RISE, rel=1e-6)


def test_value_and_gradient_at_one_point_cost_one() -> None:
    counted = Counted(lambda x: x.square().sum())
    x = np.array([1.0, 2.0])
    counted.value(x)
    counted.gradient(x)
    counted.value(x)
    assert counted.cost == 1.0
    counted.gradient(x + 1.0)
    assert counted.cost == 2.0


def test_meter_stops_at_its_budget() -> None:
    task = convex_task("blood", "squared norm")
    meter = Meter(task, budget=3.0)
    fun = meter.counted(task.fun)
    for step in range(6):
        fun(task.start + 1e-3 * step)
    with pytest.raises(Spent):
        fun(task.start)
    assert meter.cost == 3.0


def test_meter_records_feasible_points_only() -> None:
    task = convex_task("blood", "squared norm")
    meter = Meter(task, budget=10.0)
    fun = meter.counted(task.fun)
    fun(0.0 * task.start)  # the smallest norm, far above the level
    assert meter.records == []
    fun(task.start)
    assert meter.records == [(1.0, pytest.approx(float(task.goal(task.start))))]


def test_problems_have_minima() -> None:
    known = (problem for problem in likelihoods().values() if problem.kind != "held out")
    small = [problem for problem in known if len(problem.truth) <= 12]
    assert len(small) >= 12
    for problem in small:
        x = minimizer(problem).requires_grad_()
        (gradient,) = torch.autograd.grad(problem.fun(x), x)
        assert float(gradient.norm()) < 1e-3
        assert entries(problem) == list(range(len(problem.truth)))


def test_interval_tables_from_a_part_of_the_runs(tmp_path: Path) -> None:
    tools = ("truth", "levelport", "Wald", "SLSQP")
    rows = interval_rows(computed([IntervalSpec("Gompertz growth 0", tool) for tool in tools], tmp_path))
    ends = scored(rows).set_index("tool")
    assert ends.loc["levelport", "error"].max() < 1e-3
    assert ends.loc["SLSQP", "error"].max() < 1e-3
    assert ends.loc["Wald", "error"].max() > 1e-2
    names = [table.name for table in interval_tables(rows)]
    assert names == ["cost per end", "accuracy", "curved ends"]


def test_ends_without_bound_are_confirmed_by_profiles(tmp_path: Path) -> None:
    """Far out the response depends on x₁ + x₂ alone; of a double exponential a line stays, which x₂ and x₄ share."""
    specs = [IntervalSpec("two compartments 0", tool) for tool in ("truth", "all profiles", "levelport")]
    specs += [IntervalSpec("double exponential, poor 0", tool) for tool in ("truth", "all profiles")]
    rows = interval_rows(computed(specs, tmp_path))
    assert interval_tables(rows)[-1].rows == [["two compartments", "6", "4", "0", "0", "2 of 2"]]
    ends = rows.set_index(["problem", "tool", "entry", "side"])["bound"]
    line = ends["double exponential, poor 0"]
    assert line["truth"][3, -1] == -np.inf
    assert line["truth"][2, 1] < 2.0
    assert line["all profiles"][2, 1] == np.inf


@pytest.mark.parametrize("index", range(5))
def test_stable_coordinates_are_the_same_likelihood(index: int) -> None:
    problem = likelihoods()["double exponential, poor 0"]
    assert problem.stable is not None
    fun, there, back = problem.stable(index)
    x = problem.truth + 0.1
    z = there(x)
    assert float(fun(z)) == pytest.approx(float(problem.fun(x)), rel=1e-12)
    assert float(z[index]) == float(x[index])
    assert back(z).tolist() == pytest.approx(x.tolist(), rel=1e-12)


def test_two_compartments_as_one_exponential() -> None:
    """The formula without the difference of nearly equal numbers is the same where that has its digits."""
    problem = likelihoods()["two compartments 0"]
    t, x = torch.linspace(0.2, 4.0, 14, dtype=torch.float64), problem.truth + 0.2
    assert problem.residuals is not None
    at = lambda v: v[2].exp() * (torch.exp(-v[0].exp() * t) - torch.exp(-(v[0].exp() + v[1].exp()) * t))  # noqa: E731
    moved = (at(x) - at(problem.truth)) / 0.02
    assert torch.allclose(problem.residuals(x) - problem.residuals(problem.truth), moved, rtol=1e-9, atol=1e-9)


def test_excluded_problems_have_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "admitted", lambda *_: False)
    monkeypatch.setattr(suite, "lowest_minimum", lambda problem: problem.truth)
    results = computed([IntervalSpec("two compartments 100", "levelport")], tmp_path)
    assert interval_rows(results).empty


def test_improve_is_feasible_and_reaches_the_best(tmp_path: Path) -> None:
    specs: list[RunSpec] = [ImproveSpec("titanic", "squared norm", 0, tool) for tool in ("levelport", "SLSQP")]
    rows = improve_rows(computed(specs, tmp_path)).set_index("tool")
    assert np.isfinite(rows["cost"]).all()
    (table,) = improve_tables(rows.reset_index())
    assert [row[1] for row in table.rows] == ["1/1", "1/1"]


def test_networks_start_trained() -> None:
    task = improving.network_task("second task", 0)
    assert float(task.fun(task.start)) < 0.9
    assert task.level == pytest.approx(1.01 * float(task.fun(task.start)))


def test_lmfit_needs_residuals() -> None:
    from levelport_lab.bench.intervals.suite import able

    problem = Likelihood("x", lambda x: x.square().sum(), torch.zeros(2))
    assert not able("lmfit", problem)


def test_held_out_problems_need_a_minimizer() -> None:
    problem = likelihoods()["double exponential, poor 100"]
    x = lowest_minimum(problem)
    assert admitted(problem, x, RISE)
    assert float(problem.fun(x)) <= float(problem.fun(problem.truth))
    assert not admitted(problem, x + 0.01, RISE)
    assert not admitted(replace(problem, fun=lambda v: (v**4).sum()), torch.zeros_like(x), RISE)
    assert not admitted(replace(problem, fun=lambda v: v[0] ** 2 - v[1:].square().sum()), torch.zeros_like(x), RISE)
