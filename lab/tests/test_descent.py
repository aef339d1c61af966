from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from levelport.objective import Objective, Point
from levelport.optim import Armijo, At, FixedStep, Momentum, Never, Normalized, Polyak, minimize
from levelport.optim.step_rule import StepRule
from levelport.solvers import solver_named
from levelport_lab.engine.backends import Backend
from levelport_lab.engine.runner import Plan, run_plan
from levelport_lab.engine.spec import Run, RunStatus
from levelport_lab.engine.store import Store
from levelport_lab.paper import descent
from levelport_lab.paper.batched import batched
from levelport_lab.paper.descent import Arm, Batches, Descent
from levelport_lab.paper.member_points import row_norms
from levelport_lab.paper.methods import Method
from levelport_lab.paper.teleports import TeleportPlan
from levelport_lab.paper.training import Cohort, Training, authors_start
from levelport_lab.problems import problem

RULES = {
    Method.SGD: FixedStep,
    Method.MOMENTUM: Momentum,
    Method.POLYAK: Polyak,
    Method.NORMALIZED: Normalized,
}
SETTINGS = {Method.ARMIJO: (0.01, 0.1, 0.5)}
PROBLEMS = {"logreg/titanic": 1e-3, "mlp-relu-6-5/titanic": 1e-2, "mlp-softplus-7/digits": 1e-2}


def one_by_one(name: str, method: Method, setting: float, ticks: int, plan: TeleportPlan | None) -> Run:
    """The same run by ``levelport.minimize``; rows as the batched run records them."""
    named = problem(name, reg=PROBLEMS[name])
    rule: StepRule = Armijo(c=setting, use_curvature=False) if method is Method.ARMIJO else RULES[method](setting)
    result = minimize(
        named.objective(),
        named.initial_point(),
        rule,
        schedule=At(plan.at) if plan is not None else Never(),
        solver=replace(
            solver_named("auto" if plan is None else plan.teleporter()),
            max_hvps=1 if plan is None else plan.limit + (plan.solver != "ours"),
        ),
        first_step="method",
        gtol=0.0,
        max_iterations=ticks,
    )
    last_of_iteration = {row.iteration: row for row in result.trace}
    rows = [last_of_iteration[tick] for tick in range(ticks + 1)]
    assert isinstance(result.x, torch.Tensor)
    return Run(
        final_value=result.value,
        facts={"accuracy": named.test_accuracy(result.x), "squared_norm": float(result.x @ result.x)},
        curves={
            "value": np.array([row.value for row in rows]),
            "gradient_norm": np.array([row.gradient_norm for row in rows]),
            "gradient_equivalents": np.array([row.cost for row in rows]),
        },
    )


@pytest.mark.parametrize("solver", [None, "text", "text-restart", "released", "ours"])
@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("name", PROBLEMS)
def test_batched_equals_one_by_one(name: str, method: Method, solver: str | None) -> None:
    """Values, gradient norms, costs and accuracy of a whole grid, against separate runs of ``minimize``."""
    plan = TeleportPlan(solver, (2, 5), limit=4) if solver is not None else None  # type: ignore[arg-type]
    settings = SETTINGS.get(method, (1.0, 0.1, 0.01))
    if method is Method.POLYAK:
        settings = (1000.0, *settings)  # never reached, so that the Polyak step itself is compared
    ticks = 8
    members = batched(problem(name, reg=PROBLEMS[name]))
    (runs,) = Descent(members, [Arm(method, settings, PROBLEMS[name], plan)]).run(ticks)
    for run in runs:
        assert run.status is RunStatus.OK
        expected = one_by_one(name, method, run.setting, ticks, plan)
        np.testing.assert_allclose(run.curves["value"], expected.curves["value"], rtol=1e-10)
        # Near the minimum a gradient is a difference of numbers of its first size, and so are its rounding errors.
        rounding = 1e-10 * float(expected.curves["gradient_norm"][0])
        np.testing.assert_allclose(
            run.curves["gradient_norm"], expected.curves["gradient_norm"], rtol=1e-8, atol=rounding
        )
        # Our solver branches on comparisons that the last bit of a batched product may turn.
        slack = 0.1 if solver == "ours" else 0.0
        costs = expected.curves["gradient_equivalents"]
        if solver in (
            "text",
            "text-restart",
            "released",
        ):  # a teleport by the library has a certificate, for one product
            costs = costs - 2.0 * np.array([0, 0, 1, 1, 1, 2, 2, 2, 2])
        np.testing.assert_allclose(run.curves["gradient_equivalents"], costs, rtol=slack)
        assert run.final_value == run.curves["value"][-1]
        penalty = PROBLEMS[name] * expected.facts["squared_norm"]
        assert run.curves["value"][-1] - run.curves["loss"][-1] == pytest.approx(penalty, rel=1e-9)
        assert run.facts["final_loss"] == run.curves["loss"][-1]
        assert run.curves["test_accuracy"][-1] == pytest.approx(expected.facts["accuracy"], abs=1e-12)
        assert len(run.curves["value"]) == ticks + 1
        assert run.facts["teleports"] == (2 if plan is not None else 0)


@pytest.mark.parametrize("batch", [None, 64])
@pytest.mark.parametrize("name", ["logreg/titanic", "mlp-relu-6-5/titanic"])
def test_cohort_equals_its_tasks_one_by_one(name: str, batch: int | None) -> None:
    """Every method, two penalties, without teleports, with one at the start and with two on the way, after the last."""
    plans = [None, *(TeleportPlan("released", at, limit=4) for at in ((0,), (2, 6)))]
    tasks = [
        Training(name, reg, method, SETTINGS.get(method, (1.0, 0.1)), 6, batch=batch, plan=plan, protocol="released")
        for plan in plans
        for reg in (1e-2, 1e-3)
        for method in Method
    ]
    assert len({task.family for task in tasks}) == 1
    cohort = Cohort(tuple(tasks))
    for (task, runs), expected in zip(cohort.parts(cohort.run()), tasks, strict=True):
        assert task == expected
        for run, alone in zip(runs, expected.run(), strict=True):
            assert (run.setting, run.chosen, run.status) == (alone.setting, alone.chosen, alone.status)
            assert run.facts["teleports"] == alone.facts["teleports"] == len(expected.plan.at if expected.plan else ())
            for curve in ("value", "loss", "gradient_equivalents"):
                np.testing.assert_allclose(run.curves[curve], alone.curves[curve], rtol=1e-8)


def test_family_runs_together_and_is_stored_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    run = Cohort.run

    def counted(cohort: Cohort) -> list[Run]:
        sizes.append(len(cohort.tasks))
        return run(cohort)

    monkeypatch.setattr(Cohort, "run", counted)
    tasks = [Training("logreg/titanic", reg, Method.SGD, (1.0, 0.1), 2) for reg in (1e-1, 1e-2, 1e-3)]
    apart = replace(tasks[0], timed="chosen")
    store = Store(tmp_path)
    run_plan(Plan.of(tasks[:1], store), store, Backend())
    sweep = run_plan(Plan.of([*tasks, apart], store), store, Backend())
    assert (sizes[0], sorted(sizes[1:]), sweep.computed) == (1, [1, 2], 3)
    for task in tasks:
        found = sweep.results[task.key].runs
        assert [one.final_value for one in found] == pytest.approx([one.final_value for one in task.run()], rel=1e-12)


def test_failure_of_a_cohort_is_the_failure_of_each_task() -> None:
    tasks = [Training("logreg/titanic", reg, Method.SGD, (1.0, 0.1), 1) for reg in (1e-2, 1e-3)]
    failure = [Run.failure("memory ran out")]
    assert list(Cohort(tuple(tasks)).parts(failure)) == [(task, failure) for task in tasks]


@pytest.mark.parametrize("solver", ["text", "released", "ours"])
def test_a_teleport_before_the_first_step_is_made_once_for_all(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And every member is charged for it, as one that runs alone."""
    plan = TeleportPlan(solver, (0, 3), limit=4)  # type: ignore[arg-type]
    members = batched(problem("mlp-relu-6-5/titanic", reg=1e-3))
    teleported: list[int] = []
    place, name = (TeleportPlan, "apply") if solver == "ours" else (descent, "teleport_together")
    teleport = getattr(place, name)

    def counted(*given: object, **more: object) -> object:
        points = next(one for one in given if isinstance(one, torch.Tensor))
        teleported.append(points.numel() // members.problem.dimension)
        return teleport(*given, **more)

    monkeypatch.setattr(place, name, counted)
    arm = Arm(Method.SGD, (0.3, 0.1, 0.03), 1e-3, plan)
    (runs,) = Descent(members, [arm]).run(5)
    assert teleported == ([1, 1, 1, 1] if solver == "ours" else [1, 3])
    for run in runs:
        ((alone,),) = Descent(members, [replace(arm, settings=(run.setting,))]).run(5)
        # Up to the second teleport, whose searches may turn on a last bit.
        np.testing.assert_allclose(run.curves["value"][:3], alone.curves["value"][:3], rtol=1e-9)
        np.testing.assert_array_equal(run.curves["gradient_equivalents"][:3], alone.curves["gradient_equivalents"][:3])
        assert run.facts["teleports"] == 2


@pytest.mark.parametrize("name", PROBLEMS)
def test_mini_batches_equal_separate_steps_on_their_rows(name: str) -> None:
    """One epoch against a loop of plain torch steps over ``problem.objective(batch)``."""
    named = problem(name, reg=PROBLEMS[name])
    batches = Batches(64, seed=3)
    (runs,) = Descent(batched(named), [Arm(Method.SGD, (0.5, 0.05), PROBLEMS[name])], batches).run(2)
    for run in runs:
        x = named.initial_point()
        for epoch in range(2):
            for rows in batches.epoch(epoch, len(named.train)):
                x = x - run.setting * named.objective(rows).at(x).gradient
        assert run.final_value == pytest.approx(named.objective().at(x).value, rel=1e-10)
        # Two epochs are two full gradients, whatever the size of the last batch.
        assert run.curves["gradient_equivalents"][-1] == pytest.approx(2.0)


def test_released_start_is_the_one_of_manual_seed() -> None:
    """Bit for bit what ``torch.manual_seed(1234567 + repeat)`` and the constructors give in float32."""
    torch.manual_seed(1234567 + 2)
    layers = torch.nn.Linear(3, 6), torch.nn.Linear(6, 1)
    expected = torch.cat([p.detach().reshape(-1) for layer in layers for p in layer.parameters()])
    named = problem("mlp-relu-6/titanic", seed=2, dtype=torch.float32)
    assert torch.equal(authors_start(named), expected)
    assert torch.equal(authors_start(replace(named, dtype=torch.float64)), expected.double())


@pytest.mark.parametrize("name", ["logreg/titanic", "mlp-relu-6-5/titanic"])
def test_released_search_equals_a_plain_loop(name: str) -> None:
    """Growing, then shrinking, at most 100 times each; 1e-8 where the cap is hit."""
    spec = Training(name, 1e-3, Method.ARMIJO, (0.01, 0.5), 40, protocol="released")
    named = spec.named_problem()
    objective = named.objective()
    for run in spec.run():
        x, step, values = authors_start(named), 1.0, []
        for _ in range(41):
            point = objective.at(x)
            values.append(point.value)
            ray = partial(armijo_holds, objective, point, run.setting)
            trials = 0
            while ray(step) and trials < 100:
                step, trials = step * 1.25, trials + 1
            step, trials = step * 0.8, 0
            while not ray(step) and trials < 100:
                step, trials = step * 0.8, trials + 1
            step = 1e-8 if trials == 100 else step
            x = x - step * point.gradient
        np.testing.assert_allclose(run.curves["value"], values, rtol=1e-9)


def armijo_holds(objective: Objective, point: Point, c: float, step: float) -> bool:
    decrease = c * step * float(point.gradient @ point.gradient)
    return objective.at(point.x - step * point.gradient).value <= point.value - decrease


def test_released_search_takes_its_last_resort() -> None:
    """Where no step is good enough it takes 1e-8, and the next search begins there."""
    rule = Method.ARMIJO.rule(torch.tensor([0.5], dtype=torch.float64), capped=True)
    W, f, g = torch.ones(1, 1), torch.ones(1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    step = rule.step(W.double(), f, g, lambda eta, wanted: torch.full_like(eta, 2.0))
    assert (1.0 - step.W).item() == pytest.approx(1e-8, rel=1e-6)
    assert step.values.item() == 101
    asked: list[float] = []
    rule.step(W.double(), f + 1.0, g, lambda eta, wanted: (asked.append(eta.item()), f + 1.0 - eta)[1])
    assert asked[0] == 1e-8
    assert len(asked) == 101


def test_batches_partition_and_differ_between_epochs_and_seeds() -> None:
    orders = [torch.cat(list(Batches(64, seed).epoch(epoch, 200))) for seed in (0, 1) for epoch in (0, 1)]
    for order in orders:
        assert sorted(order.tolist()) == list(range(200))
    assert len({tuple(order.tolist()) for order in orders}) == 4
    assert [len(rows) for rows in Batches(64, 0).epoch(0, 200)] == [64, 64, 64, 8]


def test_diverging_member_leaves_the_others_alone() -> None:
    named = problem("logreg/titanic", reg=10.0)  # 2·reg = 20: a step of 100 explodes
    ((alone,),) = Descent(batched(named), [Arm(Method.SGD, (0.01,), 10.0)]).run(400)
    ((wild, tame),) = Descent(batched(named), [Arm(Method.SGD, (100.0, 0.01), 10.0)]).run(400)
    assert wild.status is RunStatus.DIVERGED
    assert wild.final_value == math.inf
    assert 0 < len(wild.curves["value"]) < 401
    np.testing.assert_allclose(tame.curves["value"], alone.curves["value"], rtol=1e-13)


def test_a_search_that_found_nothing_is_not_repeated() -> None:
    """A ray along which f only rises: the first step searches down to the smallest step, the second does not."""
    rule = Method.ARMIJO.rule(torch.tensor([0.5, 0.5], dtype=torch.float64))
    W, f, g = torch.zeros(2, 3, dtype=torch.float64), torch.ones(2, dtype=torch.float64), torch.ones(2, 3).double()
    trials: list[float] = []

    def ray(steps: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        trials.append(float(steps[0]))
        return torch.stack([f[0] + 1.0, f[1] - 2.0 * steps[1]])

    first = rule.step(W, f, g, ray)
    assert first.values[0] > 300
    assert min(trials) < 1e-29
    assert first.evaluated.tolist() == [0, 1]
    assert torch.equal(first.W[0], W[0])
    second = rule.step(W, f, g, ray)
    assert second.values[0] == 0


def test_training_keeps_all_curves_of_the_best_setting_only() -> None:
    spec = Training("logreg/titanic", 1e-3, Method.SGD, (100.0, 1.0, 0.01), 10)
    runs = spec.run()
    values = [run.final_value for run in runs]
    (chosen,) = [run for run in runs if run.chosen]
    assert chosen.final_value == min(values)
    assert ["gradient_norm" in run.curves for run in runs] == [run.chosen for run in runs]
    assert all(len(run.curves["loss"]) == 11 for run in runs)  # enough to score every setting by either protocol


def test_accuracies_found_at_the_end_are_those_of_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Training("mlp-softplus-6/digits", 1e-3, Method.SGD, (10.0, 1.0, 0.01), 8)
    at_once = spec.run()
    monkeypatch.setattr(Descent, "defers_accuracies", property(lambda self: True))
    for run, expected in zip(spec.run(), at_once, strict=True):
        assert run.curves.keys() == expected.curves.keys()
        for name in ("loss", "test_accuracy"):
            if name in run.curves:
                np.testing.assert_array_equal(run.curves[name], expected.curves[name])


def test_flushing_subnormal_numbers_changes_no_outcome() -> None:
    """A step of 10 kills every unit; the penalty then shrinks the weights by 0.8 per step, past 1e-38 after 400."""
    spec = Training("mlp-relu-6-5/titanic", 1e-2, Method.SGD, (10.0, 0.1), 600, precision="float32")
    members = batched(spec.named_problem())
    kept = Descent(members, [spec.arm])
    for run, expected in zip(spec.run(), *kept.run(spec.ticks), strict=True):
        for name in ("value", "loss", "gradient_equivalents"):
            np.testing.assert_array_equal(run.curves[name], expected.curves[name])
    smallest = torch.finfo(torch.float32).tiny
    assert bool(((kept.W != 0.0) & (kept.W.abs() < smallest)).any())  # so the case is one where it matters


def test_training_flushes_for_its_own_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush")
    torch.set_flush_denormal(False)
    halves: list[float] = []

    def half_of_the_smallest() -> float:
        return float(torch.tensor(torch.finfo(torch.float32).tiny) / 2.0)

    def watched(descent: Descent, ticks: int) -> list[list[Run]]:
        halves.append(half_of_the_smallest())
        raise RuntimeError("seen")

    monkeypatch.setattr(Descent, "run", watched)
    with pytest.raises(RuntimeError, match="seen"):
        Training("logreg/titanic", 1e-3, Method.SGD, (1.0,), 1).run()
    assert halves == [0.0]
    assert half_of_the_smallest() > 0.0


def test_timed_training_repeats_the_chosen_run_alone() -> None:
    plain = Training("logreg/titanic", 1e-3, Method.SGD, (1.0, 0.01), 10)
    timed = Training("logreg/titanic", 1e-3, Method.SGD, (1.0, 0.01), 10, timed="chosen")
    (a,) = [run for run in plain.run() if run.chosen]
    (b,) = [run for run in timed.run() if run.chosen]
    assert a.setting == b.setting
    np.testing.assert_allclose(a.curves["value"], b.curves["value"], rtol=1e-12)
    assert np.all(np.diff(b.curves["seconds"]) > 0)


def test_every_setting_can_be_timed_alone() -> None:
    spec = Training("logreg/titanic", 1e-3, Method.SGD, (1.0, 0.01), 10, timed="every")
    together = Training("logreg/titanic", 1e-3, Method.SGD, (1.0, 0.01), 10).run()
    for alone, run in zip(spec.run(), together, strict=True):
        np.testing.assert_allclose(alone.curves["value"], run.curves["value"], rtol=1e-12)
        assert np.all(np.diff(alone.curves["seconds"]) > 0)


def test_settings_that_are_timed_alone_are_forecast_one_by_one() -> None:
    grid = (10.0, 1.0, 0.1, 0.01)
    plan = TeleportPlan("text", (5, 15))
    together = Training("logreg/titanic", 1e-3, Method.SGD, grid, 20, plan=plan)
    single = replace(together, settings=grid[:1]).rough_seconds
    assert replace(together, timed="every").rough_seconds == pytest.approx(len(grid) * single)
    assert replace(together, timed="chosen").rough_seconds == pytest.approx(together.rough_seconds + single)
    assert single < together.rough_seconds < len(grid) * single


def test_a_member_that_diverges_stops_alone() -> None:
    """2·reg = 2: with a step of 2 the weights grow threefold per step; a step of 0.01 is tame."""
    named = problem("logreg/titanic", reg=1.0)
    arm = Arm(Method.SGD, (2.0, 0.01), 1.0)
    (free,) = Descent(batched(named), [arm]).run(30)
    ((wild, tame),) = Descent(batched(named), [replace(arm, admissible=10.0)]).run(30)
    losses = wild.curves["loss"]
    assert losses[-1] >= 10.0 * losses[0] > losses[:-1].max()
    assert wild.status is RunStatus.DIVERGED
    np.testing.assert_array_equal(losses, free[0].curves["loss"][: len(losses)])
    np.testing.assert_allclose(tame.curves["loss"], free[1].curves["loss"], rtol=1e-13)


def test_the_last_batch_can_be_dropped() -> None:
    assert [len(rows) for rows in Batches(64, 0, drop_last=True).epoch(0, 200)] == [64, 64, 64]
    assert [len(rows) for rows in Batches(64, 0, drop_last=True).epoch(0, 40)] == [40]


def test_lengths_of_rows_whose_squares_leave_the_range() -> None:
    rows = torch.tensor([[3.0, 4.0], [3e30, 4e30], [3e-30, 4e-30], [0.0, 0.0], [torch.inf, 1.0]])
    np.testing.assert_allclose(row_norms(rows), [5.0, 5e30, 5e-30, 0.0, math.inf], rtol=1e-6)
    assert row_norms(rows[:1]).dtype == np.float64


@pytest.mark.parametrize("name", ["mlp-relu-6-5/titanic", "mlp-softplus-7/digits", "mlp-softplus-5-4-3/blood"])
def test_networks_in_closed_form_are_those_of_autograd(name: str) -> None:
    """Value, gradient and Hessian-vector product."""
    named = problem(name, reg=1e-2)
    generator = torch.Generator().manual_seed(0)
    x = named.initial_point() + 0.3 * torch.randn(named.dimension, generator=generator, dtype=torch.float64)
    v = torch.randn(named.dimension, generator=generator, dtype=torch.float64)
    a, b = batched(named).points(x[None], x.new_tensor([named.reg])), named.objective().at(x, curvature=True)
    assert a.values[0] == pytest.approx(b.value, rel=1e-13)
    torch.testing.assert_close(a.gradients[0], b.gradient, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(a.hvps(v[None])[0], b.hvp(v), rtol=1e-10, atol=1e-12)
