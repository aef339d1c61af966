"""minimize: tolerances, budgets, the trace and its cost, callbacks, errors; and SciPy's front end."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

import levelport
from levelport.integrations import scipy as scipy_module
from levelport.integrations.scipy import scipy_method
from levelport.objective import Point
from levelport.objectives import FunctionObjective
from levelport.optim import (
    Armijo,
    At,
    Every,
    FixedStep,
    MinimizeStatus,
    Momentum,
    Never,
    Normalized,
    minimize,
)
from levelport.optim.result import MinimizeRow
from levelport.optim.schedules import History
from levelport.optim.step_rule import Step, StepRule
from levelport.solvers import Auto, Krylov, Solver


def rosenbrock(x: Tensor) -> Tensor:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def vector(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


def test_nothing_but_a_function_and_a_start_is_enough() -> None:
    result = minimize(rosenbrock, vector(-1.2, 1.0, 0.5))
    assert result.success
    torch.testing.assert_close(result.x, torch.ones(3, dtype=torch.float64), rtol=1e-5, atol=1e-5)
    assert result.value == pytest.approx(0.0, abs=1e-10)


def test_the_structure_of_x_is_kept_and_x0_is_not_touched() -> None:
    x0 = {"a": torch.ones(2, 3, dtype=torch.float64), "b": torch.zeros(4, dtype=torch.float64)}
    result = minimize(lambda v: (v["a"] - 2).square().sum() + (v["b"] + 1).square().sum(), x0)
    assert isinstance(result.x, dict)
    assert result.x["a"].shape == (2, 3)
    torch.testing.assert_close(result.x["a"], torch.full((2, 3), 2.0, dtype=torch.float64))
    torch.testing.assert_close(result.x["b"], torch.full((4,), -1.0, dtype=torch.float64))
    assert bool((x0["a"] == 1).all())
    single = minimize(lambda v: (v - 2).square().sum(), torch.ones(2))
    assert isinstance(single.x, Tensor)
    assert single.x.dtype is torch.float32
    assert single.success


class Frugal(At):
    """Teleports with two products."""

    def limit(self, solver: Solver, history: History) -> Solver:
        return solver.within(max_hvps=2)


def test_schedules_limit_the_teleports_of_a_run() -> None:
    limited, free = (
        minimize(rosenbrock, vector(-1.2, 1.0), Armijo(), schedule=schedule, solver=Auto(), max_iterations=1)
        for schedule in (Frugal(0), At(0))
    )
    assert limited.cost.hvps == 2 < free.cost.hvps


def test_the_trace_has_every_point_and_its_cost() -> None:
    objective = FunctionObjective(rosenbrock, like=vector(-1.2, 1.0))
    result = minimize(
        objective, vector(-1.2, 1.0), Armijo(), schedule=At([2, 5]), solver=Auto(max_hvps=5), max_iterations=8, gtol=0.0
    )
    assert result.status is MinimizeStatus.MAX_ITERATIONS
    assert not result.success
    teleported = [row for row in result.trace if row.teleported]
    assert [row.iteration for row in teleported] == [2, 5]
    assert result.teleports == 2
    assert len(result.trace) == 1 + 8 + 2
    costs = [row.cost for row in result.trace]
    assert costs == sorted(costs)
    assert costs[0] == 1.5  # with the second look that tells whether f is deterministic
    assert result.cost.gradient_equivalents == costs[-1] == objective.cost.gradient_equivalents
    for before, after in zip(result.trace, result.trace[1:], strict=False):
        assert after.value <= before.value
        if after.teleported:
            assert after.gradient_norm >= before.gradient_norm
            assert math.isnan(after.step)
    last = result.trace[-1]
    x = torch.as_tensor(result.x).clone().requires_grad_()
    value = rosenbrock(x)
    (gradient,) = torch.autograd.grad(value, x)
    assert last.value == result.value == value.item()
    assert result.gradient_norm == pytest.approx(float(gradient.norm()), rel=1e-12)


def test_a_plain_step_costs_one_gradient() -> None:
    result = minimize(rosenbrock, vector(-1.2, 1.0), FixedStep(1e-4), schedule=Never(), max_iterations=10)
    # One value tells whether f is deterministic.
    assert (result.cost.values, result.cost.gradients, result.cost.hvps) == (1, 11, 0)
    armijo = minimize(rosenbrock, vector(-1.2, 1.0), Armijo(), schedule=Never(), max_iterations=10, gtol=0.0)
    # The accepted trial becomes the next point: its value is part of the gradient there.
    assert armijo.cost.gradients == 11


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"gtol": 1e-3}, MinimizeStatus.GRADIENT_SMALL),
        ({"gtol": 0.0, "gtol_absolute": 0.1}, MinimizeStatus.GRADIENT_SMALL),
        ({"f_target": 3.0}, MinimizeStatus.TARGET_REACHED),
        ({"max_iterations": 3}, MinimizeStatus.MAX_ITERATIONS),
        ({"max_cost": 12.0}, MinimizeStatus.MAX_COST),
        ({"max_seconds": 1e-9}, MinimizeStatus.MAX_SECONDS),
        ({"callback": lambda row, point: row.iteration == 4}, MinimizeStatus.STOPPED),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_every_reason_to_stop(options: dict[str, Any], status: MinimizeStatus) -> None:
    result = minimize(rosenbrock, vector(-1.2, 1.0), Armijo(), schedule=Never(), **options)
    assert result.status is status
    assert result.success == (status in (MinimizeStatus.GRADIENT_SMALL, MinimizeStatus.TARGET_REACHED))
    assert result.message == status.value
    if "gtol" in options:
        limit = max(options["gtol"] * result.trace[0].gradient_norm, options.get("gtol_absolute", 0.0))
        assert result.gradient_norm <= limit < result.trace[-2].gradient_norm
    if "max_iterations" in options:
        assert result.iterations == 3
    if "max_cost" in options:
        assert result.trace[-2].cost < 12.0 <= result.cost.gradient_equivalents
    if "callback" in options:
        assert result.iterations == 4


def test_divergence_ends_at_the_last_finite_point() -> None:
    result = minimize(lambda x: (x**4).sum(), vector(10.0), FixedStep(1.0), schedule=Never())
    assert result.status is MinimizeStatus.DIVERGED
    assert math.isfinite(result.value)
    assert math.isfinite(result.gradient_norm)
    assert "smaller step" in result.message


def test_bad_starts_have_a_status() -> None:
    result = minimize(lambda x: torch.log(x).sum(), vector(-1.0))
    assert result.status is MinimizeStatus.NON_FINITE_START
    stationary = minimize(lambda x: x.square().sum(), vector(0.0, 0.0))
    assert stationary.status is MinimizeStatus.GRADIENT_SMALL
    assert stationary.iterations == 0


@pytest.mark.parametrize("method", ["armijo", "lbfgs", "newton-cg"])
def test_a_start_alone_in_its_domain_has_a_status(method: str) -> None:
    x = vector(1.0, 2.0)
    result = minimize(lambda w: w.square().sum() + torch.where((w == x).all(), 0.0, math.inf), x, method)
    assert result.status is MinimizeStatus.NO_STEP
    assert torch.equal(torch.as_tensor(result.x), x)


@pytest.mark.parametrize("method", ["armijo", "lbfgs", "newton-cg"])
def test_a_function_without_descent_has_a_status(method: str) -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.square().sum()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * vector(-1.0, -1.0)

    result = minimize(lambda x: Wrong.apply(x), vector(1.0, 1.0), method, schedule=Never(), max_iterations=10)
    assert result.status is MinimizeStatus.NO_STEP
    assert result.value <= 2.0


def test_bad_arguments_are_named() -> None:
    x = vector(1.0)

    def f(x: Tensor) -> Tensor:
        return x.square().sum()

    with pytest.raises(ValueError, match="Did you mean 'armijo'"):
        minimize(f, x, "armjio")
    with pytest.raises(ValueError, match=r"levelport\.optim\.Polyak"):
        minimize(f, x, "polyak")
    with pytest.raises(ValueError, match="schedule must be a schedule"):
        minimize(f, x, schedule=50)  # type: ignore[arg-type]
    with pytest.raises(levelport.ObjectiveError, match="scalar"):
        minimize(lambda x: x * torch.ones(2), x)
    for make in (
        lambda: minimize(rosenbrock, vector(0.0, 0.0), metric="optimizer"),
        lambda: minimize(rosenbrock, vector(0.0, 0.0), metric=vector(1.0, 0.0)),
        lambda: minimize(rosenbrock, vector(0.0, 0.0), metric=vector(1.0)),
        lambda: minimize(rosenbrock, vector(0.0, 0.0), solver="autp"),
        lambda: minimize(rosenbrock, vector(0.0, 0.0), method=None),
        lambda: minimize(rosenbrock, vector(0.0, 0.0), method=Armijo),
        lambda: minimize(rosenbrock, vector(0.0, 0.0), solver=levelport.Auto),
    ):
        with pytest.raises(ValueError, match=r"must|no |instance"):
            make()


def booth(w: Tensor) -> Tensor:
    return (w[0] + 2 * w[1] - 7) ** 2 + (2 * w[0] + w[1] - 5) ** 2


@pytest.mark.parametrize("method", ["auto", FixedStep(0.05)])
def test_callback_stops_the_run_at_the_point_it_was_shown(method: Any) -> None:
    seen = []

    def stop(row: MinimizeRow, point: Point) -> bool:
        seen.append((row.kind, point.x.clone()))
        return row.kind in ("teleport", "first step")

    result = minimize(booth, vector(7.5, -4.0), method, schedule=Every(1), callback=stop)
    kind, x = seen[-1]
    assert result.status is MinimizeStatus.STOPPED
    assert kind == ("teleport" if method == "auto" else "first step")
    assert torch.equal(result.x, x)


def test_a_target_that_a_move_reaches_ends_the_run() -> None:
    """Its next step would leave it: f is minimal after a teleport and a Newton step, and the method has one length."""
    limits: dict[str, Any] = {"f_target": 1e-6, "gtol": 0.0, "max_iterations": 6}
    result = minimize(booth, vector(7.5, -4.0), Normalized(0.1), schedule=At(1), **limits)
    assert result.status is MinimizeStatus.TARGET_REACHED
    assert result.value == min(row.value for row in result.trace)


@pytest.mark.parametrize("unit", [1e-15, 1e-12, 1.0, 1e12, 1e20])
@pytest.mark.parametrize("method", ["auto", "lbfgs"])
def test_the_unit_of_x_does_not_decide_whether_there_is_a_step(method: str, unit: float) -> None:
    schedule = Every(1) if method == "auto" else Never()
    result = minimize(lambda w: booth(w / unit), vector(7.5, -4.0) * unit, method, schedule=schedule)
    assert result.success
    assert torch.allclose(result.x / unit, vector(1.0, 3.0), rtol=1e-6)


@pytest.mark.parametrize("budget", [5.0, 20.0, 50.0])
def test_budget_binds_within_a_newton_step(budget: float) -> None:
    """Its system asks for sixty products: eigenvalues over six decades."""
    curvatures = torch.logspace(0, -6, 60, dtype=torch.float64)
    start = torch.ones(60, dtype=torch.float64)
    result = minimize(lambda w: (curvatures * w.square()).sum(), start, "newton-cg", max_cost=budget, gtol=0.0)
    assert result.status is MinimizeStatus.MAX_COST
    assert result.cost.gradient_equivalents <= budget + 3.0


@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_the_unit_of_f_does_not_either(unit: float) -> None:
    result = minimize(lambda w: unit * booth(w), vector(7.5, -4.0))
    assert result.success
    assert torch.allclose(result.x, vector(1.0, 3.0), rtol=1e-6)


def test_importing_the_optimizers_needs_torch_only() -> None:
    code = (
        "import sys, levelport.optim\n"
        "print([name for name in ('scipy', 'sklearn', 'rich', 'pandas', 'matplotlib') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert found.stdout.strip() == "[]"


def valley(x: Tensor, steeper: float = 50.0) -> Tensor:
    """A narrow valley that becomes steeper further up: too steep for a fixed step, with the default."""
    return 0.5 * (x[0] ** 2 + 60.0 * x[1] ** 2) + steeper * x[1] ** 4


def test_a_fixed_step_never_meets_the_enlarged_gradient() -> None:
    start, options = vector(6.0, 0.05), {"schedule": Every(5, start=2), "solver": "auto", "max_iterations": 40}
    refused = minimize(valley, start, FixedStep(0.02), **options)  # type: ignore[arg-type]
    taken = minimize(lambda x: valley(x, 0.1), start, FixedStep(0.02), **options)  # type: ignore[arg-type]
    for result in (refused, taken):
        values = [row.value for row in result.trace]
        assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(values))
    assert refused.teleports == 0
    assert [row.kind for row in refused.trace].count("stay") == 8
    kinds = [row.kind for row in taken.trace]
    assert taken.teleports > 0
    assert all(after == "first step" for before, after in pairwise(kinds) if before == "teleport")
    paper = minimize(valley, start, FixedStep(0.02), first_step="method", **options)  # type: ignore[arg-type]
    assert "first step" not in {row.kind for row in paper.trace}
    assert max(row.value for row in paper.trace) > 2.0 * paper.trace[0].value


@pytest.mark.parametrize("method", [Momentum(0.01, 0.9, 0.0), Armijo()], ids=["momentum", "armijo"])
def test_a_teleport_that_comes_to_nothing_changes_no_step(method: Any) -> None:
    """On a sphere the gradient is as large everywhere on the level set."""
    runs = [
        minimize(
            lambda x: x.square().sum(),
            vector(3.0, 4.0),
            method,
            schedule=schedule,
            solver="auto",
            first_step="method",
            max_iterations=10,
        )
        for schedule in (Never(), Every(1))
    ]
    assert runs[1].teleports == 0
    assert "stay" in {row.kind for row in runs[1].trace}
    plain, stayed = ([(row.value, row.step) for row in run.trace if row.kind == "step"] for run in runs)
    assert stayed == plain


class Drunk(StepRule):
    """Small steps downhill, but its fifth goes astray; its state counts those that were not undone."""

    def __init__(self, astray: float) -> None:
        self.astray, self.steps, self.states = astray, 0, []

    def advance(self, objective: Any, point: Any, state: Any, newton: Any) -> Step:
        self.steps += 1
        self.states.append(state or 0)
        x = point.x + self.astray if self.steps == 5 else point.x - 1e-3 * point.gradient
        return Step(objective.at(x), self.states[-1] + 1, 1e-3)


@pytest.mark.parametrize("astray", [10.0, math.inf], ids=["above-the-level", "not-finite"])
def test_a_move_after_which_f_rises_is_undone(astray: float) -> None:
    rule = Drunk(astray)
    result = minimize(rosenbrock, vector(-1.2, 1.0), rule, schedule=At([3, 7, 9]), max_iterations=10)
    kinds = [row.kind for row in result.trace]
    assert kinds.count("undone") == 1
    back = kinds.index("undone")
    before = max(index for index, row in enumerate(result.trace[:back]) if row.teleported) - 1
    assert result.trace[back].value == result.trace[before].value
    assert rule.states[:6] == [0, 1, 2, 3, 4, 3]  # what the rule remembers goes back as well
    assert result.teleports == 2  # the one that was undone; the request at 7 is ignored; the one at 9
    assert result.value < result.trace[0].value


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"max_iterations": 6}, MinimizeStatus.MAX_ITERATIONS),
        ({"callback": lambda row, point: row.kind == "undone"}, MinimizeStatus.STOPPED),
        ({"max_cost": 10.0}, MinimizeStatus.MAX_COST),
    ],
    ids=["iterations", "callback", "cost"],
)
def test_reasons_to_stop_are_looked_at_after_an_undone_move_too(
    options: dict[str, Any], status: MinimizeStatus
) -> None:
    method = Momentum(1.5e-3, 0.9, 0.0)
    result = minimize(rosenbrock, vector(-0.5, 1.5), method, schedule=At(5), **options)
    assert [row.kind for row in result.trace] == ["start", *["step"] * 5, "descent", "step", "undone"]
    assert result.status is status
    assert result.iterations == 6


@pytest.mark.parametrize(
    "method", [Armijo(c=0.1), FixedStep(1e-4), Momentum(1e-4)], ids=lambda rule: type(rule).__name__
)
def test_a_metric_is_a_change_of_variables(method: Any) -> None:
    weights, x0 = vector(4.0, 0.25, 9.0), vector(-1.2, 1.0, 0.5)
    root, seen = weights.sqrt(), []
    options: dict[str, Any] = {"schedule": Every(4), "max_iterations": 12, "gtol": 0.0}
    ours = minimize(rosenbrock, x0, method, metric=weights, callback=lambda r, p: seen.append(p.x), **options)
    by_hand = minimize(lambda z: rosenbrock(z / root), x0 * root, method, **options)
    assert by_hand.teleports > 0
    torch.testing.assert_close(ours.x, by_hand.x / root, rtol=1e-6, atol=1e-9)
    assert ours.gradient_norm == pytest.approx(by_hand.gradient_norm, rel=1e-4)
    assert ours.value == float(rosenbrock(ours.x))
    assert torch.equal(seen[0], x0)
    assert torch.equal(seen[-1], ours.x)


def test_metric_preconditions_steps_and_keeps_the_structure() -> None:
    weights, x0 = vector(4.0, 0.25, 9.0), vector(-1.2, 1.0, 0.5)
    plain = minimize(rosenbrock, x0, FixedStep(1e-4), schedule=Never(), metric=weights, max_iterations=1)
    gradient = torch.func.grad(rosenbrock)(x0)
    torch.testing.assert_close(plain.x, x0 - 1e-4 * gradient / weights)
    named = minimize(lambda v: rosenbrock(v["x"]), {"x": x0}, metric={"x": weights})
    assert named.success
    assert float((named.x["x"] - 1.0).abs().max()) < 1e-4


class TestSciPy:
    x0 = np.array([-1.2, 1.0, 0.7])

    def test_it_is_a_method_of_scipy(self) -> None:
        result = scipy.optimize.minimize(
            scipy.optimize.rosen,
            self.x0,
            jac=scipy.optimize.rosen_der,
            hessp=scipy.optimize.rosen_hess_prod,
            method=scipy_method,
            tol=1e-8,
            options={"schedule": Every(1)},
        )
        assert result.success
        assert np.abs(result.x - 1.0).max() < 1e-6
        assert np.linalg.norm(result.jac) <= 1e-8
        np.testing.assert_allclose(result.jac, scipy.optimize.rosen_der(result.x), atol=1e-12)
        assert result.fun == scipy.optimize.rosen(result.x)
        assert min(result.nfev, result.njev, result.nhev, result.nit, result.nteleports) > 0

    @pytest.mark.parametrize("options", [{}, {"solver": "krylov"}, {"solver": Krylov(max_vectors=3)}])
    def test_products_that_are_given_are_the_ones_used(self, options: dict[str, Any]) -> None:
        calls = {"jac": 0, "hessp": 0}

        def jac(x: Any) -> Any:
            calls["jac"] += 1
            return scipy.optimize.rosen_der(x)

        def hessp(x: Any, v: Any) -> Any:
            calls["hessp"] += 1
            return scipy.optimize.rosen_hess_prod(x, v)

        result = scipy_method(scipy.optimize.rosen, self.x0, jac=jac, hessp=hessp, schedule=Every(1), **options)
        assert result.success
        assert result.nhev == calls["hessp"] > 0
        assert result.njev == result.ngev == calls["jac"]  # none of them for a difference
        chosen = scipy_method(
            scipy.optimize.rosen,
            self.x0,
            jac=jac,
            hessp=hessp,
            schedule=Every(1),
            solver=Krylov(hvp="difference"),
            maxiter=3,
        )
        assert chosen.nhev == 0

    def test_a_dense_hessian_is_evaluated_once_per_point(self) -> None:
        at: list[tuple[float, ...]] = []

        def hess(x: Any) -> Any:
            at.append(tuple(x))
            dense = scipy.optimize.rosen_hess(x)
            x[:] = 0.0  # a copy of its own
            return dense

        result = scipy_method(scipy.optimize.rosen, self.x0, jac=scipy.optimize.rosen_der, hess=hess, schedule=Every(1))
        assert result.success
        assert result.nhev == len(at) == len(set(at)) > 0

    def test_every_option_of_minimize_is_taken(self) -> None:
        ours = {"fun", "x0", "method", "schedule", "callback", "tol", "gtol", "gtol_absolute", "max_iterations", "jac"}
        assert set(inspect.signature(minimize).parameters) - ours == scipy_module._OPTIONS
        weights = [4.0, 1.0, 2.0]
        plain = scipy_method(
            scipy.optimize.rosen,
            self.x0,
            jac=scipy.optimize.rosen_der,
            descent=FixedStep(1e-4),
            schedule=Never(),
            metric=weights,
            first_step="method",
            maxiter=1,
        )
        step = scipy.optimize.rosen_der(self.x0) / np.array(weights)
        np.testing.assert_allclose(plain.x, self.x0 - 1e-4 * step)
        with pytest.raises(ValueError, match="first_step must be"):
            scipy_method(scipy.optimize.rosen, self.x0, jac=scipy.optimize.rosen_der, first_step="never")

    @pytest.mark.parametrize("jac", [None, scipy.optimize.rosen_der])
    def test_a_metric_goes_with_differences(self, jac: Any) -> None:
        result = scipy_method(scipy.optimize.rosen, self.x0, jac=jac, metric=[4.0, 1.0, 2.0], gtol=1e-4)
        assert result.success, result.message
        assert np.abs(result.x - 1.0).max() < 1e-3

    @pytest.mark.parametrize("jac", [True, scipy.optimize.rosen_der, None])
    def test_a_value_may_be_an_array_of_one_entry(self, jac: Any) -> None:
        def fun(x: Any) -> Any:
            value = np.array([scipy.optimize.rosen(x)])
            return (value, scipy.optimize.rosen_der(x)) if jac is True else value

        result = scipy_method(fun, self.x0, jac=jac, gtol=1e-4)
        assert result.success, result.message
        assert isinstance(result.fun, float)

    def test_value_with_gradient_dense_hessian_and_arguments(self) -> None:
        def both(x: Any, scale: float) -> Any:
            return scale * scipy.optimize.rosen(x), scale * scipy.optimize.rosen_der(x)

        result = scipy.optimize.minimize(
            both,
            self.x0,
            args=(3.0,),
            jac=True,
            hess=lambda x, scale: scale * scipy.optimize.rosen_hess(x),
            method=scipy_method,
            options={"descent": "newton-cg", "schedule": Every(10), "gtol": 1e-6},
        )
        assert result.success
        assert np.abs(result.x - 1.0).max() < 1e-5

    def test_callbacks_in_both_forms(self) -> None:
        seen: list[Any] = []
        options = {"jac": scipy.optimize.rosen_der, "hessp": scipy.optimize.rosen_hess_prod, "method": scipy_method}
        result = scipy.optimize.minimize(
            scipy.optimize.rosen, self.x0, callback=lambda xk: seen.append(xk.copy()) and None, **options
        )
        assert len(seen) == result.nit
        np.testing.assert_array_equal(seen[-1], result.x)

        def stop_at_third(intermediate_result: Any) -> None:
            assert intermediate_result.fun == scipy.optimize.rosen(intermediate_result.x)
            seen.append(None)
            if len(seen) == 3:
                raise StopIteration

        seen.clear()
        result = scipy.optimize.minimize(scipy.optimize.rosen, self.x0, callback=stop_at_third, **options)
        assert result.nit == 3
        assert not result.success
        assert "callback" in result.message

    def test_callback_is_called_once_per_step_despite_teleports(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Steps of a fixed size with a teleport before each: some stay, some are undone, others bring a first step."""
        trace: list[MinimizeRow] = []

        def traced(*args: Any, **options: Any) -> Any:
            result = minimize(*args, **options)
            trace.extend(result.trace)
            return result

        monkeypatch.setattr(scipy_module, "minimize", traced)
        seen: list[float] = []
        result = scipy.optimize.minimize(
            scipy.optimize.rosen,
            self.x0,
            jac=scipy.optimize.rosen_der,
            hessp=scipy.optimize.rosen_hess_prod,
            method=scipy_method,
            callback=lambda intermediate_result: seen.append(intermediate_result.fun),
            options={"descent": FixedStep(2e-3), "schedule": Every(1), "maxiter": 60},
        )
        assert (
            len({"stay", "first step", "undone"} & {row.kind for row in trace}) >= 2
        )  # which ones, rounding may decide
        assert len(seen) == result.nit == 60
        assert seen == [row.value for row in trace if row.kind == "step"]

    def test_bounds_are_refused_and_wrong_options_warned_of(self) -> None:
        with pytest.raises(ValueError, match="bounds"):
            scipy.optimize.minimize(scipy.optimize.rosen, self.x0, method=scipy_method, bounds=[(0, 1)] * 3)
        with pytest.warns(scipy.optimize.OptimizeWarning, match="Unknown solver options: maxitre"):
            scipy.optimize.minimize(
                scipy.optimize.rosen,
                self.x0,
                jac=scipy.optimize.rosen_der,
                method=scipy_method,
                options={"maxitre": 3, "maxiter": 2},
            )

    @pytest.mark.parametrize(
        "jac",
        [scipy.optimize.rosen_der, True, None, "2-point", "3-point"],
        ids=["callable", "True", "None", "2-point", "3-point"],
    )
    def test_fewer_derivatives_are_enough_and_every_call_is_counted(self, jac: Any) -> None:
        calls = {"fun": 0, "jac": 0}

        def fun(x: Any) -> Any:
            calls["fun"] += 1
            value = scipy.optimize.rosen(x)
            return (value, scipy.optimize.rosen_der(x)) if jac is True else value

        def gradient(x: Any) -> Any:
            calls["jac"] += 1
            return scipy.optimize.rosen_der(x)

        given = gradient if callable(jac) else jac
        result = scipy_method(fun, self.x0, jac=given, gtol=1e-4)
        assert result.success, result.message
        assert np.abs(result.x - 1.0).max() < 1e-3
        assert result.nfev == calls["fun"]
        assert result.njev == (calls["fun"] if jac is True else calls["jac"])
        assert result.nhev == 0
        assert {"x", "fun", "jac", "success", "status", "message", "nit"} <= set(result)
        through = scipy.optimize.minimize(fun, self.x0, jac=given, method=scipy_method, options={"gtol": 1e-4})
        np.testing.assert_allclose(through.x, 1.0, atol=1e-3)

    def test_budgets_and_display(self, capsys: pytest.CaptureFixture[str]) -> None:
        result = scipy.optimize.minimize(
            scipy.optimize.rosen,
            self.x0,
            jac=scipy.optimize.rosen_der,
            hessp=scipy.optimize.rosen_hess_prod,
            method=scipy_method,
            options={"maxiter": 2, "disp": True, "max_cost": 1e6},
        )
        assert result.nit == 2
        assert result.status != 0
        assert "maxiter steps were taken" in capsys.readouterr().out


@pytest.mark.parametrize("method", [None, "lbfgs"])
@pytest.mark.parametrize("seed", range(4))
def test_single_precision_ends_where_it_ends(method: str | None, seed: int) -> None:
    """A tolerance of 1e-8 would be left to chance: gradients in float32 have seven digits."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(200, 10, generator=generator)
    labels = torch.sign(inputs[:, 0] + 0.5 * torch.randn(200, generator=generator))

    def loss(w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softplus(-(labels * (inputs @ w))).mean() + 1e-3 * (w @ w)

    how = {} if method is None else {"method": method, "schedule": Never()}
    result = minimize(loss, torch.zeros(10), **how)  # type: ignore[arg-type]
    assert result.success
    assert result.iterations <= 60
    assert minimize(loss, torch.zeros(10), gtol=1e-3, **how).iterations < result.iterations  # type: ignore[arg-type]
