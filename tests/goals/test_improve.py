"""``improve`` against closed forms, with modules and live parameters."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import levelport
from levelport import ModuleObjective, ObjectiveError
from levelport.goals import Distance, ImproveStatus, Norm
from levelport.goals.result import ImproveRow
from levelport.objectives.parameters import ParametersObjective


def product(w: Tensor) -> Tensor:
    return (w[0] * w[1] - 1.0) ** 2


def test_smallest_norm_on_a_hyperbola() -> None:
    """w₀w₁ ≥ 1 - √rise has its smallest norm at equal entries: 2 (1 - √rise)."""
    result = levelport.improve(product, torch.tensor([4.0, 0.25], dtype=torch.float64), Norm(), rise=1e-4)
    assert result.status is ImproveStatus.CERTIFIED
    assert result.goal == pytest.approx(1.98, rel=1e-6)
    assert result.price == pytest.approx(1.0 / 1e-2, rel=1e-3)
    assert all(row.value <= result.level for row in result.trace)
    goals = [row.goal for row in result.trace]
    assert goals == sorted(goals, reverse=True)


def test_maximize_on_a_ball() -> None:
    x = torch.tensor([4.0, 0.25])
    result = levelport.improve(lambda v: (v**2).sum(), x, lambda v: v.sum(), maximize=True)
    assert result.success
    assert result.goal == pytest.approx((2.0 * 16.0625) ** 0.5, rel=1e-5)


def test_interior_stationary_point() -> None:
    result = levelport.improve(lambda v: (v**2).sum(), torch.tensor([4.0, 0.25]), Distance(torch.ones(2)))
    assert result.status is ImproveStatus.INTERIOR
    assert result.price == 0.0


@pytest.mark.parametrize("rise", [1.0, 1e6])
@pytest.mark.parametrize("x", [1e-3, 1.0])
def test_linear_goal_finds_a_far_level_at_little_cost(x: float, rise: float) -> None:
    """Its gradient never changes, so nothing tells how long a step should be before the level is met."""
    start = torch.full((3,), x, dtype=torch.float64)
    result = levelport.improve(lambda v: v.square().sum(), start, lambda v: v[0] + 2.0 * v[1], rise=rise)
    assert result.status is ImproveStatus.CERTIFIED
    assert result.goal == pytest.approx(-math.sqrt(5.0 * result.level), rel=2e-5)  # tol, of angle and slack each
    assert result.cost.gradient_equivalents < 300.0


def test_no_level_at_all_returns_finite_values() -> None:
    result = levelport.improve(lambda v: v.square().sum(), torch.ones(1), lambda v: v.sum(), rise=math.inf)
    assert math.isfinite(result.value)
    assert result.goal < -1e18


def test_distance_goes_by_the_keys_of_x() -> None:
    x = {"a": torch.zeros(1), "b": torch.zeros(2)}
    result = levelport.improve(
        lambda v: v["a"].square().sum() + v["b"].square().sum(),
        x,
        Distance({"b": torch.ones(2), "a": torch.full((1,), 3.0)}),
        rise=100.0,
    )
    assert torch.allclose(result.x["a"], torch.full((1,), 3.0))
    assert torch.allclose(result.x["b"], torch.ones(2))


def test_distance_goes_by_the_names_of_parameters() -> None:
    module = nn.Linear(2, 2)
    other = {"bias": torch.ones(2), "weight": torch.zeros(2, 2)}  # in another order
    result = levelport.improve(
        lambda: sum(p.square().sum() for p in module.parameters()), module, Distance(other), rise=9.0
    )
    assert result.status is ImproveStatus.INTERIOR
    for name, parameter in module.named_parameters():
        assert torch.allclose(parameter, other[name], atol=1e-3)


@pytest.mark.parametrize("keys", ["a", "ac"])
def test_distance_needs_the_keys_of_x(keys: str) -> None:
    other = Distance({key: torch.ones(1) for key in keys})
    with pytest.raises(ValueError, match=r"must have the keys of x, \['a', 'b'\]"):
        other({"a": torch.ones(1), "b": torch.ones(1)})


@pytest.mark.parametrize("seed", [15, 118, 148, 166, 184])
def test_goal_across_the_level_is_reached(seed: int) -> None:
    """Where the gradients are nearly at right angles, the price is nearly 0, and steps were not pulled back."""
    rng = torch.Generator().manual_seed(seed)
    d = int(torch.randint(2, 7, (1,), generator=rng))
    X = torch.randn(40, d, generator=rng, dtype=torch.float64)
    y = (torch.rand(40, generator=rng, dtype=torch.float64) < 0.5).to(X)
    torch.randn(d, generator=rng, dtype=torch.float64)
    start = 0.3 * torch.randn(d, generator=rng, dtype=torch.float64)

    def f(w: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(X @ w, y, reduction="sum")

    result = levelport.improve(f, start, Norm())
    assert result.success
    assert result.cost.gradient_equivalents <= 60.0


def test_callback_and_iterations_end_the_search() -> None:
    x, rows = torch.tensor([4.0, 0.25], dtype=torch.float64), list[ImproveRow]()
    stopped = levelport.improve(product, x, Norm(), rise=1e-4, callback=lambda row: rows.append(row) or row.goal < 10.0)
    short = levelport.improve(product, x, Norm(), rise=1e-4, max_iterations=2)
    for result in (stopped, short):
        assert result.status is ImproveStatus.BUDGET
        assert "max_iterations or the callback" in str(result)
        assert 1.98 < result.goal < result.goal_start
    assert [row.goal < 10.0 for row in rows] == [False] * (len(rows) - 1) + [True]
    assert rows[-1].goal == stopped.goal
    assert len(short.trace) <= 3


def test_nothing_to_gain_returns_the_start() -> None:
    x = torch.tensor([4.0, 0.25])
    result = levelport.improve(lambda v: (v**2).sum(), x, lambda v: (v**2).sum(), maximize=True)
    assert torch.equal(result.x, x)
    assert result.value <= result.level


def test_module_objective_leaves_the_module_alone() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    inputs, targets = torch.randn(40, 3), torch.randn(40, 1)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    objective = ModuleObjective(module, nn.functional.mse_loss, inputs, targets)
    result = levelport.improve(objective, objective.initial_point(), Norm(), rise=0.01, max_cost=100)
    assert result.goal < result.goal_start
    assert result.value <= result.level
    assert objective.at(result.x).value == result.value
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def live_problem() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    inputs = torch.randn(40, 3)
    return module, inputs, inputs.sum(1, keepdim=True).sin()


def test_live_parameters_and_a_goal_over_them() -> None:
    module, inputs, targets = live_problem()
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    buffers = [buffer.clone() for buffer in module.buffers()]

    def loss() -> Tensor:
        return nn.functional.mse_loss(module(inputs), targets)

    def other() -> Tensor:
        return module(inputs[:10]).square().mean()

    result = levelport.improve(loss, module, other, rise=0.01, max_cost=200)
    assert result.goal < 0.9 * result.goal_start
    assert all(torch.equal(a, b) for a, b in zip(module.buffers(), buffers, strict=True))
    assert all(bool((parameter.grad == 1.0).all()) for parameter in module.parameters())
    with torch.no_grad():
        assert float(loss()) == pytest.approx(result.value, rel=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), result.x, strict=True))
    assert all(row.value <= result.level for row in result.trace)


def test_goal_and_loss_agree_with_flat_vectors() -> None:
    """Live parameters and ModuleObjective are the same problem."""
    module, inputs, targets = live_problem()
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    inputs, targets = inputs.double(), targets.double()
    flat = ModuleObjective(module, nn.functional.mse_loss, inputs, targets)
    other = ModuleObjective(module, nn.functional.l1_loss, inputs[:5], targets[:5])
    expected = levelport.improve(flat, flat.initial_point(), other, rise=0.01, max_cost=150)
    result = levelport.improve(
        lambda: nn.functional.mse_loss(module(inputs), targets),
        module,
        lambda: nn.functional.l1_loss(module(inputs[:5]), targets[:5]),
        rise=0.01,
        max_cost=150,
    )
    assert [row.goal for row in result.trace[:20]] == pytest.approx([row.goal for row in expected.trace[:20]], rel=1e-6)


def test_unused_batches_keep_within_the_rise() -> None:
    module, inputs, targets = live_problem()
    module = nn.Linear(3, 1)

    def loss(a: Tensor, b: Tensor) -> Tensor:
        return nn.functional.mse_loss(module(a), b)

    batches = levelport.Batches(loss, [(inputs[:5], targets[:5])], unused=[(inputs[5:], targets[5:])])
    with torch.no_grad():
        before = float(loss(inputs[5:], targets[5:]))
    result = levelport.improve(batches, module, Norm(), rise=0.02)
    with torch.no_grad():
        change = float(loss(inputs[5:], targets[5:])) - before
    assert change <= 0.02
    assert change == pytest.approx(result.unused_change, abs=1e-6)
    assert result.goal <= result.goal_start


def test_shortened_move_is_not_certified() -> None:
    """The unused batches pull the other way, so the KKT conditions do not hold where the move ends."""
    module = nn.Linear(1, 1, bias=False)

    def loss(target: Tensor) -> Tensor:
        return (module.weight - target).square().sum()

    with torch.no_grad():
        module.weight.fill_(1.0)
    batches = levelport.Batches(loss, [(torch.zeros(1),)], unused=[(torch.ones(1),)])
    result = levelport.improve(batches, module, Norm(), rise=0.1)
    assert result.status is ImproveStatus.UNUSED_ROSE
    assert not result.success
    assert 0.0 < result.unused_change <= 0.1
    assert math.isnan(result.angle)
    assert math.isnan(result.price)
    assert "of its length" in result.message


def test_interrupts_while_parameters_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    module, inputs, _ = live_problem()
    before = [parameter.clone() for parameter in module.parameters()]
    calls, interrupted, load = 0, 0, ParametersObjective.load

    def slow() -> Tensor:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise KeyboardInterrupt
        return module(inputs).square().mean()

    def impatient(self: ParametersObjective, x: Tensor) -> None:
        nonlocal interrupted
        if calls > 3 and not interrupted:
            interrupted += 1
            raise KeyboardInterrupt
        load(self, x)

    monkeypatch.setattr(ParametersObjective, "load", impatient)
    with pytest.raises(KeyboardInterrupt):
        levelport.improve(slow, module, Norm(), rise=0.1)
    assert interrupted == 1
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), before, strict=True))


def test_error_in_the_loss_puts_parameters_back() -> None:
    module, inputs, _ = live_problem()
    before = [parameter.clone() for parameter in module.parameters()]
    calls = 0

    def failing() -> Tensor:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise RuntimeError("out of memory")
        return module(inputs).square().mean()

    with pytest.raises(RuntimeError, match="out of memory"):
        levelport.improve(failing, module, Norm(), rise=0.1)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), before, strict=True))


def test_bad_arguments_are_named() -> None:
    x = torch.ones(2)
    with pytest.raises(ValueError, match="rise must not be negative"):
        levelport.improve(product, x, Norm(), rise=-1.0)
    with pytest.raises(ValueError, match="maximize must be True or False"):
        levelport.improve(product, x, Norm(), maximize="no")  # type: ignore[arg-type]
    with pytest.raises(ObjectiveError, match="the goal is not deterministic"):
        levelport.improve(product, x, lambda v: v.sum() + torch.rand(()))
    with pytest.raises(ValueError, match="goal must be a function"):
        levelport.improve(product, x, 3.0)  # type: ignore[arg-type]
    with pytest.raises(ObjectiveError, match="pass the module itself"):
        levelport.improve(levelport.Batches(lambda a: a.sum(), [(x,)]), x, Norm())


def test_errors_of_a_goal_over_a_module_name_the_goal() -> None:
    model = nn.Linear(2, 1)
    constant = torch.ones(2, requires_grad=True)
    for goal, words in (
        (lambda: constant.sum(), "the goal does not depend"),
        (lambda: 1.0, "the goal returned a float"),
    ):
        with pytest.raises(ObjectiveError, match=words):
            levelport.improve(lambda: model.weight.square().sum(), model, goal)
    with pytest.raises(ValueError, match="goal is the class Norm"):
        levelport.improve(lambda: model.weight.square().sum(), model, Norm)  # type: ignore[arg-type]


def test_non_finite_start_is_a_status() -> None:
    result = levelport.improve(lambda v: v.log().sum(), -torch.ones(2), Norm())
    assert result.status is ImproveStatus.NON_FINITE_START
    assert math.isnan(result.angle)
    assert math.isnan(result.price)
