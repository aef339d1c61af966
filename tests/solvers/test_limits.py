"""Budgets are never exceeded, targets stop early, the radius is never left."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
import torch
from tests.cases import Case, all_cases, network_loss, network_start
from tests.functions import FUNCTIONS

from levelport import SQP, Auto, Point, Solver, TeleportStatus, teleport
from levelport.solvers import TraceRow, solver_named

CASES = all_cases()
SOLVERS: list[Solver] = [Auto(), Auto(memory=3), SQP(), SQP(final="last")]


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_hvp_budget_is_never_exceeded(case: Case, solver: Solver) -> None:
    for level_set in (False, True):
        for budget in (1, 2, 3, 6, 13, 22):
            result = teleport(case.fun, case.start, replace(solver_named(solver), max_hvps=budget), level_set=level_set)
            assert result.cost.hvps <= budget


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_radius_is_never_left(case: Case, solver: Solver) -> None:
    for radius in (1e-3, 0.3, 3.0):
        result = teleport(case.fun, case.start, replace(solver_named(solver), radius=radius))
        assert isinstance(result.x, torch.Tensor)
        distance = float(torch.linalg.vector_norm(result.x - case.start))
        assert distance <= radius * (1 + 1e-12)
        if result.status is TeleportStatus.TRUST_RADIUS:
            assert result.gain > 1.0 or isinstance(solver, SQP)


def test_small_radius_is_used_up_and_reported() -> None:
    """Booth from (7.5, -4): the solution is 7.1 away, and the gradient grows all the way."""
    booth = CASES[0]
    gains = []
    for radius in (0.1, 0.5, 2.0):
        result = teleport(booth.fun, booth.start, Auto(radius=radius))
        assert result.status is TeleportStatus.TRUST_RADIUS
        assert f"radius {radius:.3g}" in result.message
        gains.append(result.gain)
    assert 1.0 < gains[0] < gains[1] < gains[2]


def test_a_trial_beyond_the_radius_is_shortened() -> None:
    """Goldstein-Price bends so much that a first trial leaves the radius; against a grid of the disk."""
    case = next(case for case in CASES if case.name == "goldstein-price")
    result = teleport(case.fun, case.start, Auto(radius=0.1))
    sides = torch.linspace(-0.1, 0.1, 81, dtype=torch.float64)
    disk = case.start + torch.cartesian_prod(sides, sides)[torch.cartesian_prod(sides, sides).norm(dim=1) <= 0.1]
    disk = disk.requires_grad_()
    values = torch.stack([case.fun(x) for x in disk])
    (gradients,) = torch.autograd.grad(values.sum(), disk)
    most = float(gradients.norm(dim=1)[values <= result.value_start].max())
    assert result.status is TeleportStatus.TRUST_RADIUS
    assert result.gradient_norm >= 0.95 * most


def test_network_without_penalty_ends_at_the_derived_radius() -> None:
    """‖∇f‖ of a ReLU network has no maximum on the level set: weights can move between the layers without end."""
    start = network_start()
    result = teleport(network_loss(torch.relu), start, Auto(max_hvps=600))
    assert result.status in (TeleportStatus.TRUST_RADIUS, TeleportStatus.STALLED)
    assert result.gain > 5.0
    assert isinstance(result.x, torch.Tensor)
    small = teleport(network_loss(torch.relu), start, Auto(max_hvps=600, radius=1.0))
    assert small.status is TeleportStatus.TRUST_RADIUS


@pytest.mark.parametrize("name", ["auto", "sqp"])
def test_target_gain_stops_early(name: str) -> None:
    case = next(case for case in CASES if case.name == "logistic")
    full = teleport(case.fun, case.start, name)
    wanted = 1.0 + 0.3 * (full.gain - 1.0)
    result = teleport(case.fun, case.start, replace(solver_named(name), target_gain=wanted))
    assert result.status is TeleportStatus.TARGET_REACHED
    assert result.success
    assert result.gain >= wanted
    assert result.cost.hvps < full.cost.hvps


@pytest.mark.parametrize("name", ["auto", "sqp"])
def test_target_alignment_stops_early(name: str) -> None:
    case = next(case for case in CASES if case.name == "logistic")
    start = teleport(case.fun, case.start, replace(solver_named(name), max_hvps=1))
    full = teleport(case.fun, case.start, name)
    wanted = start.alignment + 0.5 * (full.alignment - start.alignment)
    result = teleport(case.fun, case.start, replace(solver_named(name), target_alignment=wanted))
    assert result.status is TeleportStatus.TARGET_REACHED
    assert result.alignment >= wanted
    assert result.cost.hvps < full.cost.hvps


@pytest.mark.parametrize("level_set", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_target_is_reached_where_it_is_said_to_be(case: Case, level_set: bool) -> None:
    """The ascent sees its target beside the level; the point returned must have it on the level."""
    full = teleport(case.fun, case.start, level_set=level_set)
    for part in (0.1, 0.5, 0.9, 0.999, 1.0 - 1e-9):
        wanted = 1.0 + part * (full.gain - 1.0)
        if wanted == 1.0:
            continue
        result = teleport(case.fun, case.start, Auto(target_gain=wanted), level_set=level_set)
        assert result.cost.hvps <= full.cost.hvps + (part > 0.999)  # there may be one more landing at the maximum
        if result.status is TeleportStatus.TARGET_REACHED:
            assert result.gain >= wanted * (1 - 1e-15)
        if part <= 0.9:
            assert result.gain >= wanted * (1 - 1e-15)
            assert result.cost.gradient_equivalents <= full.cost.gradient_equivalents


@pytest.mark.parametrize("name", ["auto", "sqp"])
def test_callback_sees_every_row_and_can_stop(name: str) -> None:
    case = next(case for case in CASES if case.name == "softplus network")
    rows: list[TraceRow] = []

    def stop_at_third(row: TraceRow, point: Point) -> bool:
        assert row.value == point.value
        assert row.gradient_norm == point.gradient_norm
        rows.append(row)
        return len(rows) == 3

    result = teleport(case.fun, case.start, name, callback=stop_at_third)
    assert result.status is TeleportStatus.STOPPED
    assert not result.success
    assert len(rows) <= 4  # two ascents may be under way when the callback stops one
    assert tuple(rows) == result.trace
    assert result.gain >= 1.0


@pytest.mark.parametrize("name", ["auto", "sqp"])
def test_clock_stops_a_slow_function(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that takes 5 s per evaluation, by a clock of its own, is stopped within a few evaluations."""
    case = next(case for case in CASES if case.name == "softplus network")
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def slow(w: torch.Tensor) -> torch.Tensor:
        now[0] += 5.0
        return case.fun(w)  # type: ignore[operator]

    result = teleport(slow, case.start, replace(solver_named(name), max_seconds=100.0, max_hvps=10_000, tol=1e-12))
    assert result.status is TeleportStatus.BUDGET_SPENT
    assert 100.0 <= now[0] <= 100.0 + 6 * 5.0
    assert math.isfinite(result.gain)


@pytest.mark.parametrize("solver", [Auto(), SQP()], ids=["auto", "sqp"])
@pytest.mark.parametrize("name", ["booth", "rosenbrock", "beale", "goldstein-price"])
def test_each_gradient_and_product_is_one_backward_pass(name: str, solver: Solver) -> None:
    """Products differentiate the gradient that is known at their point, and that is what they are charged for."""
    f, start = FUNCTIONS[name]
    passes = 0

    def count(gradient: torch.Tensor) -> None:
        nonlocal passes
        passes += 1

    def watched(x: torch.Tensor) -> torch.Tensor:
        if x.requires_grad:
            x.register_hook(count)
        return f(x)

    cost = teleport(watched, torch.tensor(start, dtype=torch.float64), solver).cost
    assert passes == cost.gradients + cost.hvps > 3


def test_trace_is_in_order() -> None:
    for case in CASES:
        result = teleport(case.fun, case.start)
        assert [row.iteration for row in result.trace] == list(range(len(result.trace)))
        spent = [row.cost.gradient_equivalents for row in result.trace]
        assert spent == sorted(spent)
        if spent:
            assert spent[-1] <= result.cost.gradient_equivalents


def test_landing_off_a_kkt_point_is_not_repeated_for_free() -> None:
    """The second landing of a converged ascent found another point, whose certificate was one product too many."""

    def f(u: torch.Tensor) -> torch.Tensor:
        return u.relu().square().sum() - u.sum()

    start = [-0.33061273985054873, -0.9315209062035272, -1.0, 0.12008096862097989, -1.0814292530592668]
    result = teleport(f, torch.tensor(start, dtype=torch.float64), solver=Auto(memory=1, max_hvps=3))
    assert result.cost.hvps <= 3
    assert result.gradient_norm > result.gradient_norm_start


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("radius", [None, 1e4, 1e8])
@pytest.mark.parametrize("factors", [2, 3])
def test_a_gradient_that_grows_without_bound_is_never_converged(factors: int, radius: float | None, seed: int) -> None:
    """On a level set of (Π xᵢ - 1)² the gradient grows with the distance, and the angle of H g to g vanishes."""
    start = torch.randn(factors, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    result = teleport(lambda x: (x.prod() - 1.0) ** 2, start, Auto(radius=radius))
    assert result.status in (TeleportStatus.TRUST_RADIUS, TeleportStatus.BUDGET_SPENT, TeleportStatus.STALLED)
    if result.status is TeleportStatus.TRUST_RADIUS:
        named = float(result.detail.removeprefix("radius ").split(";")[0])
        assert ("pass radius=" in result.message) == (radius is None)
        assert isinstance(result.x, torch.Tensor)
        assert float(torch.linalg.vector_norm(result.x - start)) <= 1.01 * named


@pytest.mark.parametrize("level_set", [False, True])
@pytest.mark.parametrize("solver", [Auto(), Auto(starts=2), SQP(), SQP(mode="released", final="last")], ids=str)
@pytest.mark.parametrize("name", ["goldstein-price", "rosenbrock", "beale", "himmelblau"])
def test_rows_are_those_of_their_points(name: str, solver: Solver, level_set: bool) -> None:
    """Against the dense Hessian; costs are those of all passes up to the row."""
    f, start = FUNCTIONS[name]
    x0 = torch.tensor(start, dtype=torch.float64) + 0.1
    passes, rows = [0], list[TraceRow]()

    def watched(x: torch.Tensor) -> torch.Tensor:
        passes[0] += 1
        return f(x)

    def look(row: TraceRow, point: Point) -> None:
        assert passes[0] == row.cost.nfev + 1  # that of the start is not the solver's
        x = point.x.clone().requires_grad_()
        value = f(x)
        (g,) = torch.autograd.grad(value, x)
        hg = torch.autograd.functional.hessian(f, point.x) @ g
        square = float(g @ g)
        along = float(g @ hg) / square
        excess = float(value.detach() - f(x0))
        assert row.value == pytest.approx(float(value.detach()))
        assert row.gradient_norm == pytest.approx(square**0.5)
        assert row.curvature == pytest.approx(along, rel=1e-6, abs=1e-6 * float(hg.norm() / g.norm()))
        assert row.kkt_residual == pytest.approx(float((hg - along * g).norm()) / square, rel=1e-5, abs=1e-9)
        assert row.alignment == pytest.approx(along * square**0.5 / float(hg.norm()), abs=1e-7)
        assert row.violation == pytest.approx(abs(excess) if level_set else max(0.0, excess), abs=1e-9 * abs(row.value))
        rows.append(row)

    result = teleport(watched, x0, solver, level_set=level_set, callback=look)
    assert tuple(rows) == result.trace
    assert [row.iteration for row in rows] == list(range(len(rows))) != []
    assert rows[0].cost.hvps <= 1
    assert rows[-1].cost.gradient_equivalents <= result.cost.gradient_equivalents
