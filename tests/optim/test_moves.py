"""What must never happen to a training run: a move that leaves the loss higher, explodes, or cannot be taken back."""

from __future__ import annotations

import copy
import math
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from levelport.optim import At, Batches, Every, Never, Teleported, Teleporter, WhileAffordable
from levelport.optim.affordable import largest_cost
from levelport.optim.first_step import StabilityLimit, Taken
from levelport.optim.schedules import History, Schedule
from levelport.solvers import Krylov


def network(seed: int = 0, activation: type[nn.Module] = nn.Softplus) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(seed)
    x, y = torch.randn(64, 5), torch.randn(64, 1)
    return nn.Sequential(nn.Linear(5, 16), activation(), nn.Linear(16, 1)), x, y


@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.Adam(p, lr=1e-2)])
def test_a_move_never_raises_the_loss(make: Any) -> None:
    model, x, y = network()
    teleporter = Teleporter(make(model.parameters()), Never())

    def loss() -> Tensor:
        return nn.functional.mse_loss(model(x), y)

    for _ in range(5):
        before = loss().item()
        result = teleporter.teleport(loss)
        assert loss().item() == pytest.approx(result.value_after, rel=1e-5)
        assert loss().item() <= before * (1 + 1e-6)
        assert result.teleport.gradient_norm >= result.teleport.gradient_norm_start


def test_a_low_rank_adapter_stays_finite() -> None:
    """A frozen base with two thin factors, lr 0.1: NaN before the first step belonged to the move."""
    torch.manual_seed(0)
    x, y = torch.randn(128, 20), torch.randn(128, 10)
    base = nn.Linear(20, 10).requires_grad_(False)
    down, up = nn.Parameter(0.3 * torch.randn(20, 4)), nn.Parameter(torch.zeros(4, 10))
    for lr in (0.1, 0.5):
        optimizer = Teleported(torch.optim.SGD([down, up], lr=lr), Every(5, start=5))
        losses = [
            float(optimizer.step(lambda: nn.functional.mse_loss(base(x) + x @ down @ up, y)))  # type: ignore[arg-type]
            for _ in range(60)
        ]
        assert all(math.isfinite(loss) for loss in losses)
        assert losses[-1] <= losses[0]


class Reckless(Schedule):
    """Always."""

    def due(self, tick: int, history: History) -> bool:
        return True


def test_rise_above_the_level_is_undone_and_learned_from() -> None:
    weight = nn.Parameter(torch.tensor([1.0, 1.0], dtype=torch.float64))
    sgd = torch.optim.SGD([weight], lr=1e-3, momentum=0.9)
    teleporter = Teleporter(sgd, Reckless())
    scales = torch.tensor([1.0, 10.0], dtype=torch.float64)

    def loss() -> Tensor:
        return (scales * weight.square()).sum()

    loss().backward()
    sgd.step()
    place, state = weight.detach().clone(), copy.deepcopy(sgd.state[weight]["momentum_buffer"])
    assert teleporter.maybe(loss) is not None
    assert teleporter.moved
    weight.grad = torch.full_like(weight, -1e5)  # a step of the optimizer that goes badly wrong
    sgd.step()
    with pytest.warns(UserWarning, match="a teleport was undone: the loss rose from"):
        assert teleporter.maybe(loss) is None
    assert teleporter.undone == 1
    assert torch.equal(weight.detach(), place)
    assert torch.equal(sgd.state[weight]["momentum_buffer"], state)
    assert teleporter.maybe(loss) is None  # the next request is ignored
    assert teleporter.maybe(loss) is not None


@pytest.mark.parametrize("change", ["add", "freeze"])
def test_there_is_no_way_back_to_other_parameters(change: str) -> None:
    """A layer is frozen, or one added, before the loss rises: the move stands, and the frozen layer stays."""
    model, x, y = network()
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    teleporter = Teleporter(sgd, At(0))

    def loss() -> Tensor:
        return nn.functional.mse_loss(model(x), y)

    teleporter.maybe(loss)
    assert teleporter.policy.monitor.watching
    if change == "add":
        sgd.add_param_group({"params": [nn.Parameter(torch.ones(3))]})
    else:
        model[0].requires_grad_(False)  # type: ignore[index]
    saved = teleporter.state_dict()
    with torch.no_grad():
        model[2].weight.add_(100.0)  # type: ignore[index]
    place = [p.detach().clone() for p in model.parameters()]
    resumed = Teleporter(sgd, At(0))
    resumed.load_state_dict(saved)
    for each in (teleporter, resumed):
        assert each.maybe(loss) is None
        assert not each.policy.monitor.watching
        assert each.undone == 0
    assert all(torch.equal(p, then) for p, then in zip(model.parameters(), place, strict=True))


def test_a_move_that_has_stood_is_let_go_of() -> None:
    """The way back is a copy of parameters and state, and watching costs a value per step: neither goes on for ever."""
    model, x, y = network()
    evaluations = 0

    def loss() -> Tensor:
        nonlocal evaluations
        evaluations += 1
        return nn.functional.mse_loss(model(x), y)

    teleporter = Teleporter(torch.optim.SGD(model.parameters(), lr=1e-3), At(0))
    result = teleporter.maybe(loss)
    assert result is not None
    assert teleporter.moved
    for _ in range(60):
        teleporter.optimizer.zero_grad()
        loss().backward()
        teleporter.optimizer.step()
        teleporter.maybe(loss)
    assert teleporter.undone == 0
    assert not teleporter.policy.monitor.watching
    assert teleporter.state_dict()["back"] is None
    evaluations = 0
    assert teleporter.maybe(loss) is None
    assert evaluations == 0


def on_batches(kind: str, seed: int) -> tuple[Teleporter, nn.Module]:
    """Sixty steps on batches of 32, with teleports every ten steps, or by hand on all of the data."""
    torch.manual_seed(seed)
    x = torch.randn(256, 5)
    y = (x @ torch.randn(5, 1)).tanh() + 0.3 * torch.randn(256, 1)
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = Teleported(torch.optim.SGD(model.parameters(), lr=0.05), Never() if kind == "by hand" else Every(10))
    teleporter = optimizer.teleporter
    for step in range(60):
        chosen = torch.randint(0, 256, (32,))

        def loss(chosen: Tensor = chosen) -> Tensor:
            return nn.functional.mse_loss(model(x[chosen]), y[chosen])

        if kind == "by hand" and step in (10, 40):
            optimizer.teleport(lambda: nn.functional.mse_loss(model(x), y))
        if kind == "step":
            optimizer.step(loss)
            continue
        teleporter.maybe(loss)
        optimizer.wrapped.zero_grad()
        loss().backward()
        optimizer.wrapped.step()
    return teleporter, model


def test_batches_do_not_undo_moves_whoever_takes_the_steps() -> None:
    """The watch of ``maybe`` knew no losses before a move and took every rise of a batch for the move's doing."""
    moves = undone = 0
    for seed in range(4):
        wrapped, model = on_batches("step", seed)
        teleporter, reference = on_batches("maybe", seed)
        assert (teleporter.moves, teleporter.undone) == (wrapped.moves, wrapped.undone)
        for p, q in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(p, q)
        moves, undone = moves + teleporter.moves, undone + teleporter.undone
    assert moves >= 20  # of 24
    assert undone <= 4


def test_batch_losses_are_not_compared_with_the_full_loss() -> None:
    """The level of a teleport by hand is one of another loss than the steps'."""
    outcomes = [on_batches("by hand", seed)[0] for seed in range(4)]
    assert sum(teleporter.moves for teleporter in outcomes) == 8
    assert sum(teleporter.undone for teleporter in outcomes) <= 1


@pytest.mark.parametrize("copied", [False, True])
def test_a_watch_ends_where_nobody_looks(copied: bool) -> None:
    """A teleport by hand, a thousand steps, then a batch that is higher by a tenth: the run went back to the start."""
    model, x, y = network()
    teleporter = Teleporter(torch.optim.SGD(model.parameters(), lr=1e-3), Never())

    def loss() -> Tensor:
        return nn.functional.mse_loss(model(x), y)

    teleporter.teleport(loss)
    assert teleporter.moved
    if copied:
        model, teleporter = copy.deepcopy((model, teleporter))
    for _ in range(1000):
        teleporter.optimizer.zero_grad()
        loss().backward()
        teleporter.optimizer.step()
    assert teleporter.state_dict()["back"] is None  # the copy of parameters and state is gone
    place = [p.detach().clone() for p in model.parameters()]
    teleporter.maybe(loss)
    teleporter.maybe(lambda: 1.1 * loss())
    assert teleporter.undone == 0
    assert all(torch.equal(p, then) for p, then in zip(model.parameters(), place, strict=True))


def test_the_optimizer_does_not_keep_a_teleporter_alive() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    gone = weakref.ref(Teleporter(optimizer, Never()))
    assert gone() is None
    optimizer.step()


def test_what_a_step_size_can_bear() -> None:
    weight = nn.Parameter(torch.ones(1))
    assert StabilityLimit.of(torch.optim.SGD([weight], lr=0.1)).curvature == pytest.approx(0.9 * 20.0)
    assert StabilityLimit.of(torch.optim.SGD([weight], lr=0.1, momentum=0.9)).curvature == pytest.approx(0.9 * 38.0)
    assert StabilityLimit.of(torch.optim.Adam([weight])) == StabilityLimit()


@pytest.mark.parametrize("nesterov", [False, True], ids=["heavy ball", "nesterov"])
@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_what_momentum_can_bear_is_where_its_iteration_diverges(momentum: float, nesterov: bool) -> None:
    """On ½ λ p², just below the limit and just above it."""
    weight = nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=momentum, nesterov=nesterov)
    bearable = StabilityLimit.of(optimizer).curvature / 0.9
    for factor, stays in ((0.98, True), (1.02, False)):
        with torch.no_grad():
            weight.fill_(1.0)
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=momentum, nesterov=nesterov)
        for _ in range(2000):
            optimizer.zero_grad()
            (0.5 * factor * bearable * weight.square()).sum().backward()
            optimizer.step()
        assert (abs(weight.item()) < 1.0) is stays


def test_defaults_follow_the_kind_of_the_optimizer() -> None:
    weight = [nn.Parameter(torch.ones(1))]
    assert isinstance(Teleporter(torch.optim.SGD(weight, lr=0.1)).schedule, WhileAffordable)
    for other, name in (
        (torch.optim.SGD(weight, lr=0.1, momentum=0.9), "SGD with momentum"),
        (torch.optim.AdamW(weight), "AdamW"),
        (torch.optim.RMSprop(weight), "RMSprop"),
    ):
        with pytest.raises(ValueError, match=rf"schedule: {name} has no default.*Every\(50\).*Never\(\)"):
            Teleported(other)
    with pytest.raises(ValueError, match=r"schedule: with distribute=.*Every"):
        Teleporter(torch.optim.SGD(weight, lr=0.1), distribute=lambda objective: objective)


@pytest.mark.parametrize("solver", [Krylov(hvp="exact"), "auto", "sqp"], ids=str)
def test_the_account_knows_what_trials_of_other_solvers_cost(solver: Any) -> None:
    """They cost up to ten times as much as those of the default, which the account did not allow for."""
    costs = []
    for seed in range(3):
        model, x, y = network(seed, nn.Tanh)
        model, x, y = model.double(), x.double(), y.double()
        optimizer = Teleported(torch.optim.SGD(model.parameters(), lr=0.05), WhileAffordable(share=1.0), solver=solver)
        history, schedule = optimizer.teleporter.policy.history, optimizer.schedule
        assert isinstance(schedule, WhileAffordable)

        for _ in range(300):
            limited = schedule.limit(Krylov(max_hvps=1000), history) if history.steps else None
            allowed = 0.0 if limited is None else largest_cost(limited.max_hvps - 1, history)
            trials, spent = len(history.trials), optimizer.teleporter.policy.cost
            optimizer.step(lambda m=model, x=x, y=y: nn.functional.mse_loss(m(x), y))
            if len(history.trials) > trials:
                costs.append((optimizer.teleporter.policy.cost - spent, allowed))
    assert costs
    assert all(cost <= 1.1 * bound for cost, bound in costs), costs  # a trial may repeat itself


def test_noise_does_not_fool_the_account() -> None:
    """Losses that jump by 10 % at random and never fall: after the first trials teleports become rare."""
    torch.manual_seed(0)
    model, x, y = network(1, nn.Tanh)
    optimizer = Teleported(torch.optim.SGD(model.parameters(), lr=1e-9))
    for _ in range(400):
        factor = 1.0 + 0.1 * torch.randn(()).item()
        chosen = torch.randint(0, 64, (8,))
        optimizer.step(lambda f=factor, c=chosen: f * nn.functional.mse_loss(model(x[c]), y[c]))  # type: ignore[misc]
    trials = len(optimizer.teleporter.policy.history.trials)
    assert trials <= 12


def bowl(scales: list[float]) -> tuple[nn.Parameter, Any]:
    """A quadratic."""
    weight, curvatures = nn.Parameter(torch.ones(len(scales), dtype=torch.float64)), torch.tensor(scales).double()
    return weight, lambda: 0.5 * (curvatures * weight.square()).sum()


def test_the_reason_of_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, loss = bowl([0.01, 1.0, 100.0])
    monkeypatch.setattr(
        "levelport.optim.policy.take_first_step", lambda f, start, move, *_: Taken(move, start, refused="of a whim")
    )
    result = Teleporter(torch.optim.SGD([weight], lr=1e-3), Never()).teleport(loss)
    assert result.moved is False
    assert "not made: of a whim" in result.message


@pytest.mark.parametrize("solver", ["auto", "krylov"])
def test_a_teleport_that_is_not_made_says_so(solver: str) -> None:
    """The valley below is too narrow for the step size: a gain was found, and no step led there."""
    weight, loss = bowl([0.01, 1.0, 100.0])
    optimizer, seen = Teleported(torch.optim.SGD([weight], lr=0.5), Never(), solver=solver), []
    optimizer.register_teleport_hook(seen.append)
    result = optimizer.teleport(loss)
    assert seen == [result]
    assert result.moved is optimizer.teleporter.moved is False
    assert torch.equal(weight.detach(), torch.ones(3, dtype=torch.float64))
    assert (optimizer.teleporter.teleports, optimizer.teleporter.moves) == (0, 0)
    assert "not made: the valley there is too narrow" in result.message
    assert "stable up to a curvature of 3.6" in result.message


def test_a_descent_in_place_of_a_teleport_says_so() -> None:
    """On a round bowl no gradient on the level is larger, and the bottom of the model is taken as a step."""
    weight, loss = bowl([1.0, 1.0, 1.0])
    teleporter = Teleporter(torch.optim.SGD([weight], lr=0.5), Never())
    result = teleporter.teleport(loss)
    assert result.moved is teleporter.moved is True
    assert result.gain == 1.0
    assert (teleporter.teleports, teleporter.moves) == (0, 1)
    assert "this is the start itself" not in result.message
    assert "a step down to the minimizer of the quadratic model was taken instead" in result.message
    resumed = Teleporter(torch.optim.SGD([weight], lr=0.5), Never())
    resumed.load_state_dict(teleporter.state_dict())
    assert (resumed.teleports, resumed.moves) == (0, 1)


def test_a_teleport_that_is_made_says_nothing_of_the_kind() -> None:
    weight, loss = bowl([0.01, 1.0, 100.0])
    teleporter = Teleporter(torch.optim.SGD([weight], lr=1e-3), Never(), solver="auto")
    result = teleporter.teleport(loss)
    assert result.moved is True
    assert result.gain > 1.0
    assert (teleporter.teleports, teleporter.moves) == (1, 1)
    assert "made:" not in result.message
    assert "step down" not in result.message


@pytest.mark.parametrize("lr", [0.0, torch.tensor(0.0)], ids=["number", "tensor"])
def test_a_group_with_learning_rate_zero_stands_still(lr: Any) -> None:
    still, moving = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    scales = torch.tensor([1.0, 10.0])

    def loss() -> Tensor:
        return (scales * moving.square()).sum() + (scales * (still + 0.1 * moving).square()).sum()

    sgd = torch.optim.SGD([{"params": [still], "lr": lr}, {"params": [moving]}], lr=1e-3)
    teleporter = Teleporter(sgd, Reckless())
    before = loss().item()
    result = teleporter.maybe(loss)
    assert result is not None
    assert result.moved
    assert torch.equal(still.detach(), torch.ones(2))
    assert not torch.equal(moving.detach(), torch.ones(2))
    assert loss().item() <= before
    resumed = Teleporter(sgd, Reckless())
    resumed.load_state_dict(teleporter.state_dict())
    moving.grad = torch.full_like(moving, -1e5)
    sgd.step()  # goes wrong: the way back knows both groups
    assert resumed.maybe(loss) is None
    assert resumed.undone == 1
    assert torch.equal(still.detach(), torch.ones(2))
    assert torch.equal(moving.detach(), torch.ones(2))
    sgd.param_groups[0]["lr"] = 1e-3
    Teleporter(sgd, Never()).teleport(loss)
    assert not torch.equal(still.detach(), torch.ones(2))


def test_a_warm_up_from_zero_freezes_nothing() -> None:
    """All groups at 0: a teleport that was asked for is made, and a schedule that watches waits."""
    weight, loss = bowl([0.01, 1.0, 100.0])
    optimizer = Teleported(torch.optim.SGD([weight], lr=1e-3), At(0))
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 5))
    assert optimizer.param_groups[0]["lr"] == 0.0
    losses = []
    for _ in range(8):
        losses.append(float(optimizer.step(loss)))  # type: ignore[arg-type]
        warm_up.step()
    assert optimizer.teleporter.moves == 1
    assert losses[1] < losses[0]
    watching = Teleported(torch.optim.SGD([weight], lr=0.0), WhileAffordable(share=10.0))
    for _ in range(40):
        watching.step(loss)
    assert not watching.teleporter.policy.history.trials


def partial(unused: bool) -> tuple[nn.Module, Batches, Tensor, Tensor]:
    """Eight samples to teleport on, and many more that disagree with them."""
    model, x, y = network(3, nn.Tanh)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(model(x), y)

    return model, Batches(loss, [(x[:8], y[:8])], unused=[(x[8:], y[8:])] if unused else ()), x, y


def test_move_on_part_of_the_data_spares_the_rest() -> None:
    model, batches, x, y = partial(unused=True)
    teleporter = Teleporter(torch.optim.SGD(model.parameters(), lr=0.05), Never())
    shortened = 0
    for _ in range(6):
        before = nn.functional.mse_loss(model(x[8:]), y[8:]).item()
        result = teleporter.teleport(batches)
        after = nn.functional.mse_loss(model(x[8:]), y[8:]).item()
        assert after <= before * (1 + 1e-6)
        if not math.isnan(result.unused_change):
            assert after - before == pytest.approx(result.unused_change, abs=1e-5)
        shortened += "samples that were not used" in result.message
    assert shortened > 0  # and without the check it would have risen:
    model, batches, x, y = partial(unused=False)
    before = nn.functional.mse_loss(model(x[8:]), y[8:]).item()
    teleporter = Teleporter(torch.optim.SGD(model.parameters(), lr=0.05), Never())
    for _ in range(6):
        teleporter.teleport(batches)
    assert nn.functional.mse_loss(model(x[8:]), y[8:]).item() > before


def test_the_batch_of_the_step_is_a_sample_that_was_not_used() -> None:
    model, batches, x, y = partial(unused=False)
    optimizer = Teleported(torch.optim.SGD(model.parameters(), lr=1e-4), Every(1), teleport_on=batches)
    for _ in range(5):
        before = nn.functional.mse_loss(model(x[8:]), y[8:]).item()
        optimizer.step(lambda: nn.functional.mse_loss(model(x[8:]), y[8:]))
        assert nn.functional.mse_loss(model(x[8:]), y[8:]).item() <= before * (1 + 1e-6)


class FixedLength(torch.optim.Optimizer):
    """Steps of one length."""

    def step(self, closure: Any = None) -> Any:
        loss = closure()
        for p in self.param_groups[0]["params"]:
            p.data.sub_(p.grad, alpha=0.1 / float(p.grad.norm()))
        return loss


def test_fluctuation_near_the_minimum_undoes_nothing() -> None:
    """Steps of one length circle around the minimum: that is no reason to give up all that a teleport has won."""
    w = nn.Parameter(torch.tensor([7.5, -4.0], dtype=torch.float64))
    optimizer = Teleported(FixedLength([w], {}), At(6))
    losses = [float(optimizer.step(lambda: (w[0] + 2 * w[1] - 7) ** 2 + (2 * w[0] + w[1] - 5) ** 2)) for _ in range(30)]
    assert optimizer.teleporter.teleports == 1
    assert max(losses[7:]) < 0.1 < 80.0 < losses[6]


def test_a_move_that_other_samples_refuse_has_no_first_step() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
    x, y = torch.randn(20, 5), torch.randn(20, 1)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(model(x), y)

    teleporter = Teleporter(torch.optim.SGD(model.parameters(), lr=0.05), Never())
    seen = [
        teleporter.teleport(Batches(loss, [(x[k : k + 4], y[k : k + 4])], unused=[(x[k + 4 :], y[k + 4 :])]))
        for k in range(0, 12, 2)
    ]
    assert {result.moved for result in seen} == {False, True}  # both kinds were seen
    for result in (one for one in seen if not one.moved):
        assert result.first_step == 0.0
        assert result.value_after == result.value_start
