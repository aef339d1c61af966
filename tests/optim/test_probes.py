"""The default of minimize: L-BFGS with a long memory, probes, and budgets that bind."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from levelport import LinearObjective, minimize
from levelport.numerics.lanczos import KrylovModel
from levelport.objectives import FunctionObjective
from levelport.optim import LBFGS, Armijo, Every, Never
from levelport.optim.probes import Probes
from levelport.optim.result import MinimizeStatus
from levelport.optim.schedules import History
from levelport.solvers import Krylov


def ill_conditioned(decades: float = 3.0, size: int = 60) -> LinearObjective:
    """Logistic regression on correlated features, so that L-BFGS takes a few hundred steps."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(400, size, generator=generator, dtype=torch.float64)
    X = X * torch.logspace(0.0, -decades, size, dtype=torch.float64)
    y = torch.sign(X @ torch.randn(size, generator=generator, dtype=torch.float64))
    return LinearObjective.logistic(X, y, penalty=1e-7)


def origin(objective: LinearObjective) -> Tensor:
    return torch.zeros(objective.dimension, dtype=torch.float64)


def quartic(x: Tensor) -> Tensor:
    return (torch.arange(1, len(x) + 1, dtype=x.dtype) * x.square()).sum() + (x**4).sum()


@pytest.mark.parametrize("vectors", [3, 6])
def test_ritz_pairs_are_hessian_products(vectors: int) -> None:
    x = torch.linspace(-1.0, 1.0, 6, dtype=torch.float64)
    model = KrylovModel(FunctionObjective(quartic, x).at(x), vectors)
    while not model.exhausted and model.extend():
        pass
    V, HV = model.ritz_pairs()
    H = torch.autograd.functional.hessian(quartic, x)
    assert V.shape == (vectors, 6)
    torch.testing.assert_close(HV, V @ H, rtol=0.0, atol=1e-10)
    torch.testing.assert_close((V * HV).sum(1), model.ritz_values, rtol=1e-10, atol=0.0)


def test_learned_pairs_invert_a_quadratic() -> None:
    """With all eigenpairs of a quadratic in its memory, the first L-BFGS step ends at the minimum."""
    scales = torch.logspace(0.0, 4.0, 8, dtype=torch.float64)
    objective = FunctionObjective(lambda x: 0.5 * (scales * (x - 1.0).square()).sum(), torch.zeros(8).double())
    rule, eye = LBFGS(), torch.eye(8, dtype=torch.float64)
    state = rule.learn(objective, None, (eye, torch.diag(scales)))
    step = rule.advance(objective, objective.at(torch.zeros(8, dtype=torch.float64)), state, None)
    assert step.point is not None
    torch.testing.assert_close(step.point.x, torch.ones(8, dtype=torch.float64), rtol=0.0, atol=1e-10)


def test_short_memory_keeps_half_of_its_pairs() -> None:
    objective = FunctionObjective(quartic, torch.ones(6).double())
    pairs = torch.eye(6, dtype=torch.float64), torch.diag(torch.arange(1.0, 7.0, dtype=torch.float64))
    assert len(LBFGS(memory=4).learn(objective, None, pairs)) == 2


def test_default_probes_where_a_run_is_long() -> None:
    objective = ill_conditioned()
    result = minimize(objective, origin(objective), gtol=1e-7)
    assert result.success
    first = next(row for row in result.trace if row.kind in ("teleport", "descent", "stay"))
    assert first.cost > 80.0
    plain = minimize(objective, origin(objective), "lbfgs", gtol=1e-7)
    assert plain.success
    assert plain.cost.hvps == 0
    assert plain.value == pytest.approx(result.value, rel=1e-6)


def test_named_methods_do_not_teleport() -> None:
    x = torch.full((5,), 2.0, dtype=torch.float64)
    for method in ("lbfgs", "armijo", "newton-cg", LBFGS(), Armijo(c=0.1)):
        assert not {"teleport", "stay", "descent"} & {row.kind for row in minimize(quartic, x, method).trace}
    assert minimize(quartic, x, Armijo(c=0.1), schedule=Every(1)).teleports > 0


def history_of(*probes: tuple[float, float, float]) -> History:
    """Plain steps that lower f by 1 per gradient equivalent, and probes at a cost, of a cost, with a decrease."""
    history, cost, value, tick = History(), 0.0, 0.0, 0
    for at, price, decrease in probes:
        while cost < at:
            history.observe(tick, value, cost)
            tick, cost, value = tick + 1, cost + 1.0, value - 1.0
        history.observe(tick, value, cost)
        history.teleported(price)
        tick, cost, value = tick + 1, cost + price, value - decrease
    history.observe(tick, value, cost)
    return history


@pytest.mark.parametrize(("decrease", "pause"), [(41.0, 40.0), (39.0, 160.0)])
def test_pause_halves_if_a_probe_pays_else_doubles(decrease: float, pause: float) -> None:
    history, schedule = history_of((80.0, 40.0, decrease)), Probes()
    assert not schedule.due(1000, history)
    history.observe(1000, 0.0, 120.0 + pause - 0.5)
    assert not schedule.due(1000, history)
    history.observe(1001, 0.0, 120.0 + pause)
    assert schedule.due(1001, history)


def test_a_probe_costs_at_most_a_quarter_of_what_was_spent() -> None:
    history = History()
    for cost, vectors in ((1.0, 1), (80.0, 20), (1e4, 64)):
        history.observe(int(cost), 0.0, cost)
        assert Probes().limit(Krylov(max_hvps=1000), history).max_hvps == vectors + 1


@pytest.mark.parametrize("max_cost", [30.0, 82.0, 95.0, 120.0, 180.0])
@pytest.mark.parametrize("every_step", [False, True])
def test_max_cost_binds_inside_a_probe(max_cost: float, every_step: bool) -> None:
    objective = ill_conditioned(5.0, 200)
    schedule = Every(1) if every_step else None
    result = minimize(objective, origin(objective), schedule=schedule, gtol=0.0, max_cost=max_cost)
    assert result.status is MinimizeStatus.MAX_COST
    assert max_cost <= result.cost.gradient_equivalents <= max_cost + 3.0


def test_max_seconds_binds_inside_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every product advances the clock by a second; a model may not go on after the deadline."""
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    objective = ill_conditioned(5.0, 200)
    take = KrylovModel.extend

    def slow(self: KrylovModel) -> bool:
        clock[0] += 1.0
        return take(self)

    monkeypatch.setattr(KrylovModel, "extend", slow)
    result = minimize(
        objective, origin(objective), Armijo(c=0.1), schedule=Every(1), gtol=0.0, max_seconds=7.5, max_cost=500.0
    )
    assert result.status is MinimizeStatus.MAX_SECONDS
    assert clock[0] == 8.0


def test_a_run_at_the_rounding_floor_ends() -> None:
    """f = 1 + tiny quadratic: its gradient never falls to gtol, its values no longer change."""
    scales = torch.logspace(0.0, 6.0, 30, dtype=torch.float64)
    result = minimize(lambda x: 1e8 + (scales * x.square()).sum().sqrt().square(), torch.ones(30).double(), gtol=0.0)
    assert result.status in (MinimizeStatus.ROUNDING_FLOOR, MinimizeStatus.NO_STEP)
    assert result.cost.gradient_equivalents < 500.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("method", ["auto", "lbfgs"])
def test_functions_that_fall_without_bound(dtype: torch.dtype, method: str) -> None:
    result = minimize(lambda x: -(x.square().sum()) + x.sum(), torch.ones(4, dtype=dtype), method, gtol=0.0)
    assert result.status is MinimizeStatus.UNBOUNDED
    assert not result.success
    assert math.isfinite(result.value)


def test_large_memory_bounds_its_bytes() -> None:
    for d, dtype in ((5000, torch.float64), (10**6, torch.float32)):
        pairs = LBFGS().pairs(d, dtype)
        assert pairs <= 400
        assert pairs * 2 * d * dtype.itemsize <= 2**28


def test_probes_and_never_agree_on_short_runs() -> None:
    x = torch.full((5,), 2.0, dtype=torch.float64)
    assert minimize(quartic, x).cost.gradients == minimize(quartic, x, schedule=Never()).cost.gradients
