"""The traps of real training loops: each leaves the model as an ordinary step would, or is refused by name."""

from __future__ import annotations

import gc
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from levelport import ObjectiveError
from levelport.objectives.batches import Batches
from levelport.objectives.isolation import isolated
from levelport.objectives.parameters import ParametersObjective
from levelport.optim import ArmijoSGD, At, Every, Never, PolyakSGD, Teleported, Teleporter
from levelport.solvers import Auto, Krylov

X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randn(24, 1, generator=torch.Generator().manual_seed(1))


def batch_norm_network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))


def dropout_network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 1))


def loss_of(network: nn.Module) -> Any:
    return lambda: nn.functional.mse_loss(network(X), Y)


def statistics(network: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in network.named_buffers()}


def test_a_teleport_by_hand_moves_parameters_and_nothing_else() -> None:
    network = batch_norm_network()
    optimizer = Teleported(
        torch.optim.SGD(network.parameters(), lr=0.1), Never(), solver=Auto(max_hvps=5), first_step="optimizer"
    )
    for p in network.parameters():
        p.grad = torch.full_like(p, 3.0)
    gradients = [p.grad for p in network.parameters()]
    buffers = list(network.buffers())
    before, random = statistics(network), torch.get_rng_state()
    result = optimizer.teleport(loss_of(network))
    assert result.gain > 1.0
    flat = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
    assert torch.equal(flat, result.teleport.x)
    for p, gradient in zip(network.parameters(), gradients, strict=True):
        assert p.grad is gradient
        assert torch.equal(gradient, torch.full_like(p, 3.0))
    assert all(now is then for now, then in zip(network.buffers(), buffers, strict=True))
    assert all(torch.equal(value, before[name]) for name, value in statistics(network).items())
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: Teleported(torch.optim.SGD(p, lr=0.1), Every(1), solver=Krylov(max_hvps=5)),
        lambda p: Teleported(ArmijoSGD(p), Every(1), solver=Krylov(max_hvps=5)),
        lambda p: Teleported(torch.optim.LBFGS(p, max_iter=3), Every(1), solver=Krylov(max_hvps=5)),
        lambda p: ArmijoSGD(p),
        lambda p: PolyakSGD(p),
    ],
    ids=["teleported-sgd", "teleported-armijo", "teleported-lbfgs", "armijo", "polyak"],
)
def test_batch_norm_statistics_move_once_per_step(make: Any) -> None:
    network, reference = batch_norm_network(), batch_norm_network()
    make(network.parameters()).step(loss_of(network))
    loss_of(reference)()  # one evaluation of the loss at the same point
    for name, value in statistics(network).items():
        assert torch.equal(value, statistics(reference)[name]), name


def test_batch_norm_in_the_loss_is_the_training_one() -> None:
    network = batch_norm_network()
    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.1), Never(), solver=Krylov(max_hvps=5))
    with torch.no_grad():
        expected = loss_of(network)().item()
    assert optimizer.teleport(loss_of(network)).value_start == pytest.approx(expected, rel=1e-6)


def test_dropout_is_refused_with_a_remedy_and_without_a_trace() -> None:
    network = dropout_network()
    before = [p.detach().clone() for p in network.parameters()]
    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.1), Never())
    random = torch.get_rng_state()
    with pytest.raises(ObjectiveError, match=r"not deterministic.*module.eval\(\).*noise='replay'"):
        optimizer.teleport(loss_of(network))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(p, q) for p, q in zip(network.parameters(), before, strict=True))


def hum(network: nn.Module) -> Any:
    """A loss with noise that is too weak for the jumps of the losses to show it, as with dropout of p = 0.001."""
    return lambda: nn.functional.mse_loss(network(X.double()), Y.double()) * (1.0 + 2e-3 * torch.rand(()))


@pytest.mark.parametrize("name", ["Teleported", "Teleporter"])
def test_no_unrequested_teleport_ends_a_run(name: str) -> None:
    """The default schedule leaves out what it cannot do on a noisy loss; it warns once, and steps go on."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    sgd = torch.optim.SGD(network.parameters(), lr=0.01)
    optimizer, loss = Teleported(sgd), hum(network)
    teleporter = optimizer.teleporter

    def train() -> None:
        for _ in range(150):
            if name == "Teleported":
                optimizer.step(loss)
                continue
            teleporter.maybe(loss)
            sgd.zero_grad()
            loss().backward()
            sgd.step()

    with pytest.warns(UserWarning, match="training goes on.*not deterministic.*noise='replay'") as seen:
        train()
    assert [warning.filename for warning in seen] == [__file__]  # once, and at the user's line
    assert (teleporter.iteration, teleporter.teleports, teleporter.moved) == (150, 0, False)
    trials = teleporter.policy.history.trials
    assert 1 < len(trials) < 5  # what the attempts cost is on the account, and the next ones wait longer
    assert all(trial.cost <= 4.0 for trial in trials)


def test_requested_teleport_is_refused_on_a_noisy_loss() -> None:
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.01), At(2))
    for _ in range(2):
        optimizer.step(hum(network))
    with pytest.raises(ObjectiveError, match="noise='replay'"):
        optimizer.step(hum(network))


def test_dropout_can_be_replayed() -> None:
    network = dropout_network().double()
    optimizer = Teleported(
        torch.optim.SGD(network.parameters(), lr=0.01), Every(1), noise="replay", solver=Krylov(max_hvps=8)
    )

    def loss() -> Tensor:
        return nn.functional.mse_loss(network(X.double()), Y.double())

    torch.manual_seed(5)
    state = torch.get_rng_state()
    value = optimizer.step(loss)
    after_step = torch.get_rng_state()
    assert optimizer.last_teleport is not None
    assert value is not None
    # The teleport saw the mask of the step: its start is the loss of the step.
    assert optimizer.last_teleport.value_start == value.item()
    assert optimizer.last_teleport.gain > 1.0
    # And the generator went on as if the loss had been evaluated once.
    torch.set_rng_state(state)
    loss()
    assert torch.equal(torch.get_rng_state(), after_step)


def test_armijo_trials_see_the_mask_of_the_step() -> None:
    network = dropout_network().double()

    def loss() -> Tensor:
        return nn.functional.mse_loss(network(X.double()), Y.double())

    optimizer = ArmijoSGD(network.parameters(), c=0.5)
    torch.manual_seed(11)
    state = torch.get_rng_state()
    before = optimizer.step(loss).item()
    squared = sum(float(p.grad.square().sum()) for p in network.parameters() if p.grad is not None)
    torch.set_rng_state(state)
    with torch.no_grad():
        after = loss().item()
    size = optimizer.param_groups[0]["step_size"]
    assert after <= before - 0.5 * size * squared
    assert size > 0


class Recorder(nn.Module):
    """Remembers in which precision its products were made."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.seen: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        out = torch.tanh(self.linear(x))
        self.seen.append(out.dtype)
        return out.float()


@pytest.mark.parametrize("inside", [False, True], ids=["autocast-around", "autocast-inside"])
def test_autocast_is_off_in_teleports_but_not_in_steps(inside: bool) -> None:
    network = Recorder()
    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.1), Every(1), solver=Krylov(max_hvps=5))

    def loss() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside or torch.is_autocast_enabled("cpu")):
            return nn.functional.mse_loss(network(X), Y)

    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not inside):
        optimizer.step(loss)
        assert torch.is_autocast_enabled("cpu") != inside
    step_evaluations = {0, len(network.seen) - 1}  # before the teleport, and at the point that it found
    for position, dtype in enumerate(network.seen):
        assert dtype is (torch.bfloat16 if position in step_evaluations else torch.float32), position


def test_a_loss_in_half_precision_is_refused() -> None:
    weight = nn.Parameter(torch.randn(4, 1))

    def loss() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (X @ weight).sum()

    with pytest.raises(ObjectiveError, match="autocast"):
        _ = ParametersObjective([weight], loss).at(torch.zeros(4)).value


def test_gradient_scaling_goes_without_closures() -> None:
    network = nn.Linear(4, 1)
    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.1), Never(), solver=Krylov(max_hvps=5))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    before = network.weight.detach().clone()
    scaler.scale(loss_of(network)()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(before, network.weight)
    optimizer.teleport(loss_of(network))  # outside the scaler
    with pytest.raises(TypeError, match=r"schedule=Never\(\)"):
        Teleported(torch.optim.SGD(network.parameters(), lr=0.1), Every(5)).step()


def test_gradients_can_be_clipped() -> None:
    network = nn.Linear(4, 1)
    optimizer = Teleported(
        torch.optim.SGD(network.parameters(), lr=1.0),
        Every(1),
        solver=Krylov(max_hvps=5),
        after_backward=lambda: nn.utils.clip_grad_norm_(network.parameters(), 1e-3),
    )
    optimizer.step(loss_of(network))
    assert optimizer.last_teleport is not None
    assert optimizer.last_teleport.teleport.gradient_norm > 1e-2  # the teleport sees the true gradient
    landed = optimizer.last_teleport.teleport.x
    assert isinstance(landed, Tensor)
    moved = torch.cat([p.detach().reshape(-1) for p in network.parameters()]) - landed
    assert float(moved.norm()) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("bad", ["complex", "sparse"])
def test_unsuitable_parameters_are_rejected_by_name(bad: str) -> None:
    if bad == "complex":
        parameter = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    else:
        parameter = nn.Parameter(torch.zeros(3).to_sparse())
    with pytest.raises(ObjectiveError, match=bad):
        Teleported(torch.optim.SGD([parameter], lr=0.1))


def test_parameters_that_make_no_vector_are_named_before_the_run() -> None:
    single, double = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2).double())
    with pytest.raises(ObjectiveError, match="one dtype"):
        Teleported(torch.optim.SGD([single, double], lr=0.1), Every(50, start=50))
    with pytest.raises(ObjectiveError, match="nothing to teleport"):
        Teleporter(torch.optim.SGD([nn.Parameter(torch.ones(2), requires_grad=False)], lr=0.1), Every(1))


def test_frozen_parameters_may_be_of_any_kind() -> None:
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    frozen = [nn.Parameter(torch.ones(2, dtype=kind), requires_grad=False) for kind in (torch.int8, torch.float64)]
    teleporter = Teleporter(torch.optim.SGD([*frozen, weight, nn.Parameter(torch.ones(0))], lr=1e-3), Every(1))
    assert teleporter.maybe(lambda: (torch.tensor([1.0, 10.0]) * weight.square()).sum()) is not None
    assert teleporter.moved
    assert all(bool((p == 1).all()) for p in frozen)


def test_model_frozen_on_the_way_counts_until_a_teleport_is_near() -> None:
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    teleporter = Teleporter(torch.optim.SGD([weight], lr=1e-3), At(30))
    weight.requires_grad_(False)
    for _ in range(5):
        assert teleporter.maybe(lambda: weight.square().sum()) is None
    teleporter.iteration = 30
    with pytest.raises(ObjectiveError, match="requires_grad=True"):
        teleporter.maybe(lambda: weight.square().sum())


def test_sparse_gradients_are_rejected_with_a_remedy() -> None:
    embedding = nn.Embedding(5, 3, sparse=True)
    optimizer = Teleported(torch.optim.SGD(embedding.parameters(), lr=0.1), Never())
    with pytest.raises(ObjectiveError, match="sparse=False"):
        optimizer.teleport(lambda: embedding(torch.tensor([1, 2])).square().sum())


def test_fused_attention_is_named_with_a_remedy() -> None:
    weight = nn.Parameter(torch.randn(1, 1, 4, 8))

    def loss() -> Tensor:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            return nn.functional.scaled_dot_product_attention(weight, weight, weight).square().sum()

    optimizer = Teleported(torch.optim.SGD([weight], lr=0.1), Never())
    with pytest.raises(ObjectiveError, match=r"SDPBackend\.MATH"):
        optimizer.teleport(loss)


def test_error_in_the_loss_leaves_the_parameters() -> None:
    network = nn.Linear(4, 1)
    before = [p.detach().clone() for p in network.parameters()]
    calls = 0

    def loss() -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise ArithmeticError("out of luck")
        return loss_of(network)()

    with pytest.raises(ArithmeticError, match="out of luck"):
        Teleported(torch.optim.SGD(network.parameters(), lr=0.1), Never(), solver="auto").teleport(loss)
    assert calls == 5
    assert all(torch.equal(p, q) for p, q in zip(network.parameters(), before, strict=True))


def test_a_nan_at_a_trial_point_is_a_rejected_trial() -> None:
    # log is undefined beyond w = 1, and the search starts far beyond it.
    weight = nn.Parameter(torch.tensor([0.5], dtype=torch.float64))

    def loss() -> Tensor:
        return -torch.log(weight).sum() - torch.log(1.0 - weight).sum() + weight.sum()

    optimizer = ArmijoSGD([weight], c=0.1, initial=100.0)
    for _ in range(30):
        optimizer.step(loss)
        assert 0.0 < weight.item() < 1.0
    assert weight.item() == pytest.approx((3 - math.sqrt(5)) / 2, rel=1e-4)  # 1 - 1/w + 1/(1-w) = 0
    teleported = Teleported(torch.optim.SGD([weight], lr=1e-3), Never())
    result = teleported.teleport(loss)
    assert math.isfinite(result.teleport.value)
    assert 0.0 < weight.item() < 1.0


def test_graphs_do_not_pile_up() -> None:
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.01), Every(1), solver=Krylov(max_hvps=4))

    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())

    optimizer.step(loss_of(network))
    before = tensors()
    for _ in range(5):
        loss = optimizer.step(loss_of(network))
        assert loss is not None
        assert not loss.requires_grad
        assert all(p.grad is not None and p.grad.grad_fn is None for p in network.parameters())
    assert tensors() <= before + 2


def test_relu_networks_do_not_fail() -> None:
    torch.manual_seed(2)
    network = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 1)).double()

    def loss() -> Tensor:
        return nn.functional.mse_loss(network(X.double()), Y.double())

    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=1e-3), Every(1), solver=Krylov(max_hvps=10))
    for _ in range(3):
        optimizer.step(loss)
        assert optimizer.last_teleport is not None
        assert optimizer.last_teleport.teleport.value <= optimizer.last_teleport.value_start
        assert optimizer.last_teleport.teleport.gradient_norm >= optimizer.last_teleport.teleport.gradient_norm_start


def test_a_constant_loss_is_named() -> None:
    network = nn.Linear(4, 1)
    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.1), Never())
    with pytest.raises(ObjectiveError, match="does not depend on the parameters"):
        optimizer.step(lambda: loss_of(network)().detach())
    with pytest.raises(ObjectiveError, match=r"no \.item"):
        optimizer.step(lambda: loss_of(network)().item())
    for p in network.parameters():
        p.requires_grad_(False)
    with pytest.raises(ObjectiveError, match="requires_grad"):
        optimizer.step(loss_of(network))


def test_a_module_called_twice_keeps_its_copy_within_one_loss() -> None:
    norm = nn.BatchNorm1d(4)
    copy = nn.BatchNorm1d(4)
    with isolated(torch.device("cpu")):
        norm(X)
        norm(X)
        inside = norm.running_mean.clone()
    copy(X)
    copy(X)
    assert torch.equal(inside, copy.running_mean)
    assert torch.equal(norm.running_mean, torch.zeros(4))
    assert norm.num_batches_tracked.item() == 0


def test_a_stale_point_evaluates_itself_again_and_says_so() -> None:
    weight = nn.Parameter(torch.ones(3, dtype=torch.float64))
    objective = ParametersObjective([weight], lambda: (weight**4).sum())
    old = objective.at(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), curvature=True)
    v = torch.ones(3, dtype=torch.float64)
    assert old.gradient.tolist() == pytest.approx([4.0, 32.0, 108.0], rel=1e-14)
    new = objective.at(torch.zeros(3, dtype=torch.float64))
    assert new.value == 0.0
    assert objective.cost.gradients == 1
    assert old.hvp(v).tolist() == pytest.approx([12.0, 48.0, 108.0], rel=1e-14)
    assert objective.cost.gradients == 2  # its graph had to be built again
    assert objective.cost.hvps == 1
    assert old.hvp(v).tolist() == pytest.approx([12.0, 48.0, 108.0], rel=1e-14)
    assert objective.cost.gradients == 2
    # A gradient after a value shares the forward pass, unless a write came between.
    values = objective.cost.values
    assert new.gradient.tolist() == [0.0, 0.0, 0.0]
    assert objective.cost.values == values
    assert objective.cost.gradients == 3
    fresh = objective.at(2 * v)
    assert fresh.value == 48.0
    assert fresh.gradient.tolist() == pytest.approx([32.0] * 3, rel=1e-14)
    assert objective.cost.values == values


def test_batches_are_weighted_by_their_samples() -> None:
    weight = nn.Parameter(torch.randn(4, 1, dtype=torch.float64))
    x, y = X.double(), Y.double()

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(torch.tanh(x @ weight), y)

    whole = ParametersObjective([weight], lambda: loss(x, y))
    parts = ParametersObjective([weight], Batches(loss, [(x[:5], y[:5]), (x[5:], y[5:])]))
    at, v = torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    left, right = whole.at(at), parts.at(at)
    assert left.value == pytest.approx(right.value, rel=1e-14)
    torch.testing.assert_close(left.gradient, right.gradient, rtol=1e-12, atol=0)
    torch.testing.assert_close(left.hvp(v), right.hvp(v), rtol=1e-12, atol=1e-15)
    assert parts.cost == whole.cost.__class__(1, 1, 1)  # nothing is shared between batches: both are charged
    with pytest.raises(ValueError, match="batches is empty"):
        Batches(loss, [])


def test_closure_of_another_model_is_told() -> None:
    ours, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    x = torch.ones(4, 2)
    optimizer = Teleported(torch.optim.SGD(ours.parameters(), lr=0.1), Every(1))
    with pytest.raises(ObjectiveError, match="another model"):
        optimizer.step(lambda: other(x).square().mean())
    sgd = torch.optim.SGD(ours.parameters(), lr=0.1)
    fixed = Teleported(sgd, Every(1), teleport_on=lambda: other(x).square().mean())
    with pytest.raises(ObjectiveError, match="another model"):
        fixed.step(lambda: ours(x).square().mean())
    batches = Batches(lambda x: other(x).square().mean(), [(x,), (x,)])
    with pytest.raises(ObjectiveError, match="another model"):
        fixed.teleport(batches)


def test_the_log_counts_steps_as_schedules_do(caplog: pytest.LogCaptureFixture) -> None:
    network = nn.Linear(4, 1)
    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.01), At([0, 2]))
    with caplog.at_level("INFO", logger="levelport"):
        for _ in range(3):
            optimizer.step(loss_of(network))
        optimizer.teleport(loss_of(network))
    told = [record.message.partition(":")[0] for record in caplog.records]
    assert told == [f"teleport before step {step}" for step in (0, 2, 3)]


def test_what_is_no_optimizer_is_told() -> None:
    network = nn.Linear(4, 1)
    for wrong, name in (
        (torch.optim.SGD, "the class SGD"),
        (network.parameters(), "a generator"),
        (network, "a Linear"),
    ):
        with pytest.raises(TypeError, match=name + r".*torch\.optim\.SGD\(model\.parameters\(\)"):
            Teleported(wrong, Every(5))  # type: ignore[arg-type]
