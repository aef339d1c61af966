"""One contract for every optimizer and every wrapper: what a PyTorch user may rely on."""

from __future__ import annotations

import copy
import io
import math
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from levelport.optim import (
    ArmijoSGD,
    At,
    Batches,
    Every,
    Never,
    PolyakSGD,
    Schedule,
    Teleported,
    Teleporter,
    WhileAffordable,
    minimize,
)
from levelport.solvers import SQP, Krylov

Make = Callable[[Any], torch.optim.Optimizer]

INNER: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "sgd-momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.02),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.02),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.005),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=3),
    "polyak": lambda p: PolyakSGD(p, lr=0.2),
    "armijo": lambda p: ArmijoSGD(p, lr=10.0),
}
# LBFGS takes a single group.
GROUPED = [name for name in INNER if name != "lbfgs"]
OWN = ["polyak", "armijo"]

WRAPPERS: dict[str, Callable[[torch.optim.Optimizer], torch.optim.Optimizer]] = {
    "plain": lambda inner: inner,
    "teleported": lambda inner: Teleported(inner, Every(3, start=1), solver=Krylov(max_hvps=6)),
    "teleported-reset": lambda inner: Teleported(inner, Every(3, start=1), solver=Krylov(max_hvps=6), momentum="reset"),
    "teleported-sqp": lambda inner: Teleported(inner, Every(3, start=1), solver=SQP(max_hvps=6)),
    "teleported-adaptive": lambda inner: Teleported(
        inner, WhileAffordable(rise=1e9, share=1e9, pause=2), solver=Krylov(max_hvps=6)
    ),
}


class Network(nn.Module):
    """A small network with everything that trips optimizers up: frozen, unused and tied parameters."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6, dtype=dtype)
        self.second = nn.Linear(6, 6, dtype=dtype)
        self.tied = nn.Linear(6, 6, dtype=dtype)
        self.tied.weight = self.second.weight
        self.last = nn.Linear(6, 1, dtype=dtype)
        self.unused = nn.Linear(3, 3, dtype=dtype)
        self.first.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.second(torch.tanh(self.first(x))))
        return self.last(torch.tanh(self.tied(hidden)))


def setting(dtype: torch.dtype = torch.float64) -> tuple[Network, Callable[[], Tensor]]:
    torch.manual_seed(3)
    network = Network(dtype)
    x, y = torch.randn(40, 4, dtype=dtype), torch.randn(40, 1, dtype=dtype)
    return network, lambda: nn.functional.mse_loss(network(x), y)


def usual_closure(
    optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor], *, set_to_none: bool = True
) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        optimizer.zero_grad(set_to_none)
        value = loss()
        value.backward()
        return value

    return closure


def step(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Any:
    """One step in the form that the optimizer takes."""
    own = isinstance(optimizer, (Teleported, PolyakSGD, ArmijoSGD))
    return optimizer.step(loss if own else usual_closure(optimizer, loss))


def parameters_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def assert_identical(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    for name, value in left.items():
        assert torch.equal(value, right[name]), name


every_combination = pytest.mark.parametrize("wrapper", WRAPPERS)
every_inner = pytest.mark.parametrize("inner", INNER)


@every_combination
@every_inner
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_steps_return_the_loss_before_them_and_descend(inner: str, wrapper: str, dtype: torch.dtype) -> None:
    network, loss = setting(dtype)
    optimizer = WRAPPERS[wrapper](INNER[inner](network.parameters()))
    before = parameters_of(network)
    first = loss().item()
    for _ in range(8):
        present = loss().item()
        returned = step(optimizer, loss)
        assert returned.item() == present
    assert isinstance(optimizer, torch.optim.Optimizer)
    if wrapper == "plain" or inner == "armijo":
        assert loss().item() < first
    else:  # a step of fixed size from a steep point may overshoot
        assert math.isfinite(loss().item())
    after = parameters_of(network)
    assert after["first.weight"].dtype is dtype
    for name in ("first.bias", "unused.weight", "unused.bias"):
        assert torch.equal(before[name], after[name]), name
    assert network.tied.weight is network.second.weight
    assert not torch.equal(before["second.weight"], after["second.weight"])
    if isinstance(optimizer, Teleported):
        assert optimizer.last_teleport is not None
        assert optimizer.last_teleport.teleport.value <= optimizer.last_teleport.value_start * (1 + 1e-6)
        assert optimizer.last_teleport.gain >= 1.0
        assert optimizer.last_teleport.cost.hvps <= 6 + 1


@every_combination
@every_inner
def test_resumes_bit_for_bit_in_the_middle_of_a_schedule(inner: str, wrapper: str) -> None:
    network, loss = setting()
    optimizer = WRAPPERS[wrapper](INNER[inner](network.parameters()))
    for _ in range(3):
        step(optimizer, loss)
    stored = io.BytesIO()
    torch.save({"network": network.state_dict(), "optimizer": optimizer.state_dict()}, stored)
    for _ in range(4):
        step(optimizer, loss)
    expected = parameters_of(network)

    network, loss = setting()
    optimizer = WRAPPERS[wrapper](INNER[inner](network.parameters()))
    stored.seek(0)
    checkpoint = torch.load(stored, weights_only=True)  # no pickled objects, no tensor as a key
    network.load_state_dict(checkpoint["network"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    for _ in range(4):
        step(optimizer, loss)
    assert_identical(expected, parameters_of(network))


@every_inner
def test_without_teleports_the_wrapper_changes_nothing(inner: str) -> None:
    results = []
    for wrapped in (False, True):
        network, loss = setting()
        optimizer = INNER[inner](network.parameters())
        for _ in range(5):
            step(Teleported(optimizer, Never()) if wrapped else optimizer, loss)
        results.append(parameters_of(network))
    assert_identical(*results)


@every_combination
@every_inner
def test_learning_rate_schedulers_drive_it(inner: str, wrapper: str) -> None:
    network, loss = setting()
    optimizer = WRAPPERS[wrapper](INNER[inner](network.parameters()))
    initial = optimizer.param_groups[0]["lr"]
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    for _ in range(4):
        step(optimizer, loss)
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(initial / 4)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    plateau.step(1.0)
    plateau.step(2.0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(initial / 40)


@pytest.mark.parametrize("wrapper", [name for name in WRAPPERS if name != "plain"])
@pytest.mark.parametrize("inner", GROUPED)
def test_groups_are_shared_with_the_wrapped_optimizer(inner: str, wrapper: str) -> None:
    network, loss = setting()
    groups = [{"params": [network.first.weight]}, {"params": [network.second.weight, network.last.weight]}]
    inside = INNER[inner](groups)
    optimizer = WRAPPERS[wrapper](inside)
    assert optimizer.param_groups is inside.param_groups
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.param_groups is inside.param_groups
    assert optimizer.state is inside.state
    inside.load_state_dict(inside.state_dict())  # behind the wrapper's back
    assert optimizer.param_groups is inside.param_groups
    optimizer.add_param_group({"params": [network.second.bias]})
    assert optimizer.param_groups is inside.param_groups
    assert len(inside.param_groups) == 3
    before = parameters_of(network)
    step(optimizer, loss)
    step(optimizer, loss)
    after = parameters_of(network)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"first.weight", "second.weight", "last.weight", "second.bias"}


@pytest.mark.parametrize("inner", ["sgd", "polyak", "armijo"])
def test_each_group_has_its_own_learning_rate(inner: str) -> None:
    network, loss = setting()
    tiny = 1e-12
    groups = [{"params": [network.first.weight]}, {"params": [network.second.weight], "lr": tiny}]
    optimizer = INNER[inner](groups)
    before = parameters_of(network)
    step(optimizer, loss)
    after = parameters_of(network)
    assert float((after["first.weight"] - before["first.weight"]).norm()) > 1e-4
    assert 0.0 < float((after["second.weight"] - before["second.weight"]).norm()) < 1e-10


@every_inner
def test_closure_with_backward_is_told_the_right_form(inner: str) -> None:
    network, loss = setting()
    optimizer = Teleported(INNER[inner](network.parameters()), Every(3), solver=Krylov(max_hvps=6))
    before = parameters_of(network)
    network.first.weight.grad = torch.full_like(network.first.weight, 7.0)
    with pytest.raises(TypeError, match=r"optimizer.step\(lambda: loss_fn\(model\(x\), y\)\)"):
        optimizer.step(usual_closure(optimizer, loss))
    assert_identical(before, parameters_of(network))
    assert torch.equal(network.first.weight.grad, torch.full_like(network.first.weight, 7.0))


@pytest.mark.parametrize("schedule", [None, At(9), Every(50, start=40), WhileAffordable()], ids=str)
@pytest.mark.parametrize("name", ["Teleported", "Teleporter"])
def test_closure_with_backward_is_refused_at_the_first_step(name: str, schedule: Any) -> None:
    network, loss = setting()
    sgd = torch.optim.SGD(network.parameters(), lr=0.05)
    before = parameters_of(network)
    network.first.weight.grad = torch.full_like(network.first.weight, 7.0)
    wrapped = Teleported(sgd, schedule)
    ask: Any = wrapped.step if name == "Teleported" else wrapped.teleporter.maybe
    form = "optimizer.step" if name == "Teleported" else "teleporter.maybe"
    with pytest.raises(TypeError, match=rf"{form}\(lambda: loss_fn\(model\(x\), y\)\)"):
        ask(usual_closure(sgd, loss, set_to_none=name == "Teleported"))
    assert_identical(before, parameters_of(network))
    assert torch.equal(network.first.weight.grad, torch.full_like(network.first.weight, 7.0))


def test_planned_teleport_costs_one_value_at_the_first_step() -> None:
    network, loss = setting()
    teleporter, evaluations = Teleporter(torch.optim.SGD(network.parameters(), lr=0.05), Every(50, start=100)), []
    for _ in range(3):
        teleporter.maybe(lambda: (evaluations.append(1), loss())[1])
    assert len(evaluations) == 1
    Teleporter(torch.optim.SGD(network.parameters(), lr=0.05), Never()).maybe(lambda: pytest.fail("evaluated"))


def test_a_loss_that_differentiates_inside_is_a_loss() -> None:
    """A penalty on a derivative, as in physics-informed networks, needs its graph also where only a value is asked."""
    network, _ = setting()
    x = torch.linspace(-1, 1, 20, dtype=torch.float64).reshape(5, 4).requires_grad_()

    def loss() -> Tensor:
        out = network(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return (slope - 1.0).square().mean()

    teleporter = Teleporter(torch.optim.SGD(network.parameters(), lr=0.05), At(1))
    assert teleporter.maybe(loss) is None
    assert teleporter.maybe(loss) is not None
    assert all(p.grad is None for p in network.parameters())


def test_a_standard_closure_is_as_good_where_no_teleport_is_left() -> None:
    """The same steps bit for bit, also with gradients accumulated before, as Lightning does."""
    for accumulated in (False, True):
        results = []
        for teleports in (False, True):
            network, loss = setting()
            bare = torch.optim.Adam(network.parameters(), lr=0.05)
            optimizer = Teleported(bare, Never()) if teleports else bare
            for _ in range(3):
                if accumulated:
                    optimizer.zero_grad()
                    loss().backward()
                    optimizer.step(lambda loss=loss: (value := loss(), value.backward())[0])
                else:
                    optimizer.step(usual_closure(optimizer, loss))
            results.append(parameters_of(network))
        assert_identical(*results)


def test_standard_closures_teleport_on_a_loss_of_their_own() -> None:
    """However they clear gradients: set to None, zeroed in place, or zeroed before the step."""
    results = []
    for form in ("loss-only", "none", "in-place", "outside"):
        network, loss = setting()
        optimizer = Teleported(
            torch.optim.SGD(network.parameters(), lr=0.05), Every(2), solver=Krylov(max_hvps=6), teleport_on=loss
        )
        closure = {
            "loss-only": loss,
            "none": usual_closure(optimizer, loss),
            "in-place": usual_closure(optimizer, loss, set_to_none=False),
            "outside": lambda loss=loss: (value := loss(), value.backward())[0],
        }[form]
        for number in range(3):
            optimizer.zero_grad(set_to_none=number == 0 or form != "outside")
            if form == "in-place":
                loss().backward()  # there is something to zero
            optimizer.step(closure)
        assert optimizer.teleporter.moves == 2
        results.append(parameters_of(network))
    for other in results[1:]:
        assert_identical(results[0], other)


def test_a_loss_only_closure_may_zero_gradients_in_place() -> None:
    """Nothing but zeros was written, so the gradient is still to be made."""
    results = []
    for zeroes in (False, True):
        network, loss = setting()
        optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.05), Never())
        for _ in range(3):
            optimizer.step(lambda o=optimizer, f=loss, z=zeroes: (z and o.zero_grad(set_to_none=False), f())[1])
        results.append(parameters_of(network))
    assert_identical(*results)


@pytest.mark.parametrize("schedule", [At(0), WhileAffordable()], ids=["fixed", "watching"])
def test_gradients_accumulated_before_a_teleport_are_refused(schedule: Any) -> None:
    """Before anything moves or counts."""
    network, loss = setting()
    optimizer = Teleported(
        torch.optim.SGD(network.parameters(), lr=0.05), schedule, solver=Krylov(max_hvps=6), teleport_on=loss
    )
    before = parameters_of(network)
    loss().backward()
    with pytest.raises(TypeError, match="belong to the point that was left"):
        optimizer.step(lambda: (value := loss(), value.backward())[0])
    assert_identical(before, parameters_of(network))
    assert optimizer.iteration == optimizer.teleporter.teleports == len(optimizer.teleporter.policy.history.steps) == 0


def test_teleport_without_a_move_costs_no_second_gradient() -> None:
    weight = nn.Parameter(torch.tensor([1.0, 1.0], dtype=torch.float64))
    optimizer = Teleported(torch.optim.SGD([weight], lr=0.1), At(1), solver="auto")
    evaluations = []

    def loss() -> Tensor:
        evaluations[-1] += 1
        return weight.square().sum()  # the gradient is as large everywhere on the level set

    for _ in range(2):
        evaluations.append(0)
        optimizer.step(loss)
    result = optimizer.last_teleport
    assert result is not None
    assert not optimizer.teleporter.moved
    assert evaluations == [1, 1 + result.teleport.nfev]


def test_stored_gradients_serve_until_a_teleport_is_due() -> None:
    network, loss = setting()
    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.05), Every(3, start=2), solver=Krylov(max_hvps=6))
    for _ in range(2):
        loss().backward()
        assert optimizer.step() is None
    with pytest.raises(TypeError, match="needs the loss"):
        optimizer.step()
    assert optimizer.iteration == 2


def test_a_later_group_of_another_dtype_is_named() -> None:
    network, loss = setting()
    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.1), At(1))
    optimizer.step(loss)
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2, dtype=torch.float32))]})
    with pytest.raises(ValueError, match=r"tensor 8 of the parameters is torch\.float32"):
        optimizer.step(loss)


@pytest.mark.parametrize("schedule", [None, Every(3)])
def test_first_group_may_be_empty(schedule: Schedule | None) -> None:
    runs = []
    for first in ([], [{"params": []}]):
        network, loss = setting()
        optimizer = Teleported(torch.optim.SGD([*first, {"params": network.parameters()}], lr=0.1), schedule)
        runs.append([float(optimizer.step(loss)) for _ in range(5)])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("inner", GROUPED)  # torch's LBFGS moves it by its memory, wrapped or not
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "teleported"])
def test_a_layer_frozen_on_the_way_stands_still(inner: str, wrapped: bool) -> None:
    """Its last gradient must not go on moving it; zero_grad() is not needed with loss-only closures."""
    network, loss = setting()
    optimizer = INNER[inner](network.parameters())
    optimizer = Teleported(optimizer, Never()) if wrapped else optimizer
    for _ in range(2):
        step(optimizer, loss)
    network.first.requires_grad_(False)
    before = parameters_of(network)
    for _ in range(3):
        step(optimizer, loss)
    after = parameters_of(network)
    assert torch.equal(after["first.weight"], before["first.weight"])
    assert not torch.equal(after["last.weight"], before["last.weight"])


class Sharp(torch.optim.Optimizer):
    """Sharpness-aware SGD: asks for the gradient a little uphill of the point."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure: Any) -> Any:
        with torch.enable_grad():
            loss = closure()
        ps = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        steps = [0.1 * p.grad for p in ps]
        for p, step in zip(ps, steps, strict=True):
            p.add_(step)
        with torch.enable_grad():
            closure()
        for p, step in zip(ps, steps, strict=True):
            p.sub_(step).sub_(p.grad, alpha=0.05)
        return loss


def test_optimizer_that_moves_first_gets_the_gradient_there() -> None:
    results = []
    for wrap in (False, True):
        network, loss = setting()
        bare = Sharp(network.parameters())
        optimizer = Teleported(bare, Never()) if wrap else bare
        for _ in range(3):
            optimizer.step(loss if wrap else usual_closure(optimizer, loss))
        results.append(parameters_of(network))
    assert_identical(*results)


def test_methods_of_the_wrapped_optimizer_stay_visible() -> None:
    network, _ = setting()
    bare = torch.optim.SGD(network.parameters(), lr=0.1)
    bare.eval = lambda: "evaluating"  # type: ignore[attr-defined]
    optimizer = Teleported(bare)
    assert optimizer.eval() == "evaluating"
    assert not hasattr(optimizer, "nothing_of_the_kind")
    assert not hasattr(copy.copy(optimizer), "nothing_of_the_kind")


@pytest.mark.parametrize("inner", ["polyak"])
def test_first_order_optimizers_take_standard_closures_too(inner: str) -> None:
    results = []
    for standard in (False, True):
        network, loss = setting()
        optimizer = INNER[inner](network.parameters())
        for _ in range(3):
            optimizer.step(usual_closure(optimizer, loss) if standard else loss)
        results.append(parameters_of(network))
    assert_identical(*results)


@pytest.mark.parametrize("inner", ["polyak", "armijo"])
def test_optimizers_that_need_the_loss_say_so(inner: str) -> None:
    network, _ = setting()
    with pytest.raises(TypeError, match="needs the loss"):
        INNER[inner](network.parameters()).step()


@every_combination
@pytest.mark.parametrize("inner", ["sgd-momentum", "adam", "armijo"])
def test_copies_go_their_own_way(inner: str, wrapper: str) -> None:
    network, _ = setting()
    x, y = torch.ones(5, 4, dtype=torch.float64), torch.zeros(5, 1, dtype=torch.float64)
    optimizer = WRAPPERS[wrapper](INNER[inner](network.parameters()))
    step(optimizer, lambda: nn.functional.mse_loss(network(x), y))
    copied_network, copied = copy.deepcopy((network, optimizer))
    before = parameters_of(network)
    for _ in range(3):
        step(copied, lambda: nn.functional.mse_loss(copied_network(x), y))
    assert_identical(before, parameters_of(network))
    for _ in range(3):
        step(optimizer, lambda: nn.functional.mse_loss(network(x), y))
    assert_identical(parameters_of(copied_network), parameters_of(network))


def test_teleports_happen_where_the_schedule_says() -> None:
    network, loss = setting()
    optimizer = Teleported(torch.optim.SGD(network.parameters(), lr=0.05), Every(3, start=1), solver=Krylov(max_hvps=4))
    seen: list[int] = []
    handle = optimizer.register_teleport_hook(lambda result: seen.append(optimizer.iteration - 1))
    for _ in range(8):
        optimizer.step(loss)
    assert seen == [1, 4, 7]
    handle.remove()
    for _ in range(3):
        optimizer.step(loss)
    assert seen == [1, 4, 7]


def test_the_teleport_can_work_on_another_loss_than_the_step() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1, dtype=torch.float64)
    x, y = torch.randn(30, 3, dtype=torch.float64), torch.randn(30, 1, dtype=torch.float64)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(model(x), y)

    batches = Batches(loss, [(x[:20], y[:20]), (x[20:], y[20:])])
    start = copy.deepcopy(model.state_dict())
    results = []
    for target in (batches, lambda: loss(x, y)):
        model.load_state_dict(start)
        optimizer = Teleported(
            torch.optim.SGD(model.parameters(), lr=0.01), Every(1), solver="auto", teleport_on=target
        )
        optimizer.step(lambda: loss(x[:4], y[:4]))
        assert optimizer.last_teleport is not None
        results.append(optimizer.last_teleport)
    assert results[0].value_start == pytest.approx(results[1].value_start, rel=1e-13)
    assert results[0].teleport.gradient_norm == pytest.approx(results[1].teleport.gradient_norm, rel=1e-9)
    assert results[0].gain > 1.01


@pytest.mark.parametrize("policy", ["keep", "reset"])
@pytest.mark.parametrize("inner", ["sgd-momentum", "adam"])
def test_momentum_at_a_teleport_is_a_choice(inner: str, policy: Any) -> None:
    network, loss = setting()
    optimizer = Teleported(INNER[inner](network.parameters()), Never(), momentum=policy, solver=Krylov(max_hvps=4))
    optimizer.step(loss)
    held = {p: dict(state) for p, state in optimizer.state.items()}
    assert held
    optimizer.teleport(loss)
    assert bool(optimizer.state) == (policy == "keep")
    optimizer.step(loss)
    assert set(optimizer.state) == set(held)
    if inner == "adam":
        steps = {int(state["step"]) for state in optimizer.state.values()}
        assert steps == ({2} if policy == "keep" else {1})


def test_adagrad_keeps_its_state() -> None:
    network, _ = setting()
    with pytest.raises(ValueError, match="Adagrad"):
        Teleported(torch.optim.Adagrad(network.parameters()), momentum="reset")


def test_an_optimizer_that_climbs_is_refused() -> None:
    """A move never raises the loss; from 100 exp(-q/8) = 27 one went down to 2.5, and the run had to climb again."""
    weight = nn.Parameter(torch.tensor([2.0, 2.0], dtype=torch.float64))
    groups = [{"params": [weight]}, {"params": [nn.Parameter(torch.ones(1).double())], "maximize": True}]
    for optimizer in (torch.optim.SGD([weight], lr=0.01, maximize=True), torch.optim.Adam(groups)):
        with pytest.raises(ValueError, match="minimize -loss"):
            Teleported(optimizer, At(2))
        with pytest.raises(ValueError, match="minimize -loss"):
            Teleporter(optimizer, Never())
    Teleported(torch.optim.SGD([weight], lr=0.01, maximize=False), At(2))


def test_bad_arguments_are_named() -> None:
    network, _ = setting()
    sgd = torch.optim.SGD(network.parameters(), lr=0.1)
    with pytest.raises(TypeError, match="schedule"):
        Teleported(sgd, 50)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="optimizer must be"):
        Teleported(network, Never())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Did you mean 'auto'"):
        Teleported(sgd, solver="autp")
    with pytest.raises(ValueError, match="would decide differently"):
        Teleported(sgd, WhileAffordable(), distribute=lambda objective: objective)
    with pytest.raises(ValueError, match="weights must be a list"):
        Batches(lambda x: x, [1], weights=2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="teleports already"):
        Teleported(Teleported(sgd))
    for make in (ArmijoSGD, PolyakSGD):
        with pytest.raises(ValueError, match=r"must be positive"):
            make(network.parameters(), lr=-1.0)


def test_checkpoint_has_torchs_shape_and_a_bare_one_loads() -> None:
    network, loss = setting()
    optimizer = Teleported(torch.optim.Adam(network.parameters(), lr=0.01), Every(2), solver=Krylov(max_hvps=3))
    for _ in range(3):
        optimizer.step(loss)
    saved = optimizer.state_dict()
    assert set(saved) == {"state", "param_groups", "levelport"}
    bare = torch.optim.Adam(network.parameters(), lr=0.5)
    bare.load_state_dict({key: saved[key] for key in ("state", "param_groups")})
    assert bare.param_groups[0]["lr"] == 0.01
    again = Teleported(torch.optim.Adam(network.parameters(), lr=0.5), Every(2), solver=Krylov(max_hvps=3))
    again.load_state_dict(bare.state_dict())
    assert again.param_groups[0]["lr"] == 0.01
    assert again.iteration == 0
    again.load_state_dict(saved)
    assert again.iteration == 3


def test_a_teleporter_never_steps() -> None:
    network, loss = setting()
    sgd = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    teleporter = Teleporter(sgd, Every(3, start=1), solver=Krylov(max_hvps=4))
    before, gains = [p.detach().clone() for p in network.parameters()], []
    for _ in range(5):
        value = float(loss().detach())
        result = teleporter.maybe(loss)
        gains.append(None if result is None else result.gain)
        assert float(loss().detach()) <= value
        assert not sgd.state
        assert all(p.grad is None for p in network.parameters())
    assert [gain is not None for gain in gains] == [False, True, False, False, True]
    assert max(gain for gain in gains if gain is not None) > 1.0
    assert any(not torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))
    resumed = Teleporter(sgd, Every(3, start=1), solver=Krylov(max_hvps=4))
    resumed.load_state_dict(teleporter.state_dict())
    assert resumed.iteration == 5


class Wrapped(torch.optim.Optimizer):
    """As Accelerate's: an optimizer whose class says nothing of how it steps."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.param_groups, self.state, self.defaults = optimizer.param_groups, optimizer.state, optimizer.defaults

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        self.optimizer.step()


def test_an_optimizer_is_recognised_inside_its_wrapper() -> None:
    weights = [torch.nn.Parameter(torch.ones(3))]
    inside = torch.optim.SGD(weights, lr=0.1)
    assert Teleporter(Wrapped(inside)).schedule == Teleporter(inside).schedule
    with pytest.raises(ValueError, match="SGD with momentum has no default schedule"):
        Teleporter(Wrapped(torch.optim.SGD(weights, lr=0.1, momentum=0.9)))
    lookahead = type("Lookahead", (Wrapped,), {})
    with pytest.raises(TypeError, match="Lookahead"):
        Teleporter(Wrapped(lookahead(torch.optim.SGD(weights, lr=0.1))))


def test_results_are_printed_for_people() -> None:
    weights = torch.nn.Parameter(torch.tensor([2.0, 1.0], dtype=torch.float64))
    teleporter = Teleporter(torch.optim.SGD([weights], lr=0.01), Every(1))
    result = teleporter.maybe(lambda: weights[0] ** 2 + 10.0 * weights[1] ** 2)
    assert result is not None
    text = str(result)
    assert text.startswith(f"{result.status.name}: ")
    assert f"{result.gain:.4g} times" in text
    assert (result.kind == "descent") is ("step down" in text)
    assert "tensor" not in text
    assert teleporter.spent == pytest.approx(result.cost.gradient_equivalents + 1.5)
    run = minimize(lambda x: (x**2).sum(), torch.ones(900, dtype=torch.float64))
    assert "900" not in str(run)
    assert f"after {run.iterations} steps" in str(run)
    assert str(run.cost).startswith(f"{run.cost.gradient_equivalents:g} gradient equivalents")


class _WithAStateOfItsOwn(torch.optim.SGD):
    """State under a key that is no parameter, which torch's checkpoints allow."""

    def step(self, closure: Any = None) -> Any:
        self.state["global"]["steps"] = 1
        return super().step(closure)


def _small() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
    x, y = torch.randn(64, 5), torch.randn(64, 1)
    return model, lambda copy=model: nn.functional.mse_loss(copy(x), y)


def test_checkpoint_keeps_state_of_no_parameter_during_a_watch() -> None:
    model, loss = _small()
    optimizer = Teleported(_WithAStateOfItsOwn(model.parameters(), lr=0.05), Every(5))
    for _ in range(7):
        optimizer.step(loss)
    assert optimizer.teleporter.policy.monitor.watching
    saved = optimizer.state_dict()
    assert saved["levelport"]["back"]["state"]["global"] == {"steps": 1}
    optimizer.load_state_dict(saved)
    back = optimizer.teleporter.policy.monitor.back
    assert back is not None
    assert back.state["global"] == {"steps": 1}


def test_copy_under_a_scheduler_steps_alone_and_pickles() -> None:
    model, loss = _small()
    optimizer = Teleported(torch.optim.SGD(model.parameters(), lr=0.05), Every(5))
    torch.optim.lr_scheduler.StepLR(optimizer, 10)
    optimizer.register_teleport_hook(lambda result: None)  # what belongs to this object alone is no obstacle
    optimizer.step(loss)
    other, copied = copy.deepcopy((model, optimizer))
    before = [p.detach().clone() for p in model.parameters()]
    was = float(loss(other).detach())
    for _ in range(3):
        copied.step(lambda: loss(other))
    assert (optimizer.iteration, copied.iteration) == (1, 4)
    assert all(torch.equal(p, kept) for p, kept in zip(model.parameters(), before, strict=True))
    assert float(loss(other).detach()) < was
    assert pickle.loads(pickle.dumps(optimizer)).iteration == 1


def test_weights_of_a_bare_checkpoint_stay_during_a_watch() -> None:
    model, loss = _small()
    inner = torch.optim.SGD(model.parameters(), lr=0.05)
    weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(inner.state_dict())
    optimizer = Teleported(inner, Every(100, start=20))
    for _ in range(25):
        optimizer.step(loss)
    assert optimizer.teleporter.policy.monitor.watching
    model.load_state_dict(weights)
    optimizer.load_state_dict(state)
    optimizer.step(loss)
    now = float(loss().detach())
    assert optimizer.teleporter.undone == 0
    model.load_state_dict(weights)
    alone = torch.optim.SGD(model.parameters(), lr=0.05)
    alone.zero_grad()
    loss().backward()
    alone.step()
    assert now == float(loss().detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_search_at_a_minimum_keeps_steps_that_no_value_tells(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    X, y = torch.randn(64, 5, dtype=dtype), torch.sign(torch.randn(64, dtype=dtype))
    weight, calls = nn.Parameter(torch.zeros(5, dtype=dtype)), 0

    def loss() -> Tensor:
        nonlocal calls
        calls += 1
        return nn.functional.softplus(-y * (X @ weight)).mean()

    optimizer = ArmijoSGD([weight])
    for _ in range(150):
        optimizer.step(loss)
    calls = 0
    for _ in range(20):
        optimizer.step(loss)
    assert calls <= 20 * 40  # down to 1e-30 by factors of 0.8 it would be 300 a step


@pytest.mark.parametrize("lost", [("iteration",), ("policy",), ("policy", "monitor"), ("policy", "monitor", "skip")])
def test_incomplete_checkpoints_get_a_sentence(lost: tuple[str, ...]) -> None:
    weight = nn.Parameter(torch.ones(2))
    teleporter = Teleporter(torch.optim.SGD([weight], lr=0.1), Every(3))
    for _ in range(4):
        teleporter.maybe(lambda: weight.square().sum())
    whole = teleporter.state_dict()
    broken = copy.deepcopy(whole)
    inside = broken
    for key in lost[:-1]:
        inside = inside[key]
    del inside[lost[-1]]
    with pytest.raises(ValueError, match=rf"checkpoint is incomplete.*{lost[-1]}"):
        teleporter.load_state_dict(broken)
    assert teleporter.iteration == 4
    assert teleporter.policy.state_dict() == whole["policy"]


def test_step_hooks_run_once_per_step() -> None:
    """A wrapper is no second optimizer: hooks of all optimizers, too, see one step."""
    model, loss = _small()
    optimizer = Teleported(torch.optim.SGD(model.parameters(), lr=0.05), Every(5))
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    handle = optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    everywhere = register_optimizer_step_post_hook(lambda *_: seen.append("any"))
    try:
        optimizer.step(loss)
        assert seen == ["before", "after", "any"]
        handle.remove()
        optimizer.step(loss)
    finally:
        everywhere.remove()
    assert seen[3:] == ["before", "any"]


@pytest.mark.parametrize("schedule", [Never(), Every(1)])
def test_hooks_before_a_step_may_clip_gradients(schedule: Schedule) -> None:
    """Also where a teleport has moved the parameters, so that the gradient is a new one."""
    model, loss = _small()
    optimizer = Teleported(torch.optim.SGD(model.parameters(), lr=0.05), schedule)
    starts: list[Tensor] = []

    def clip(*_: object) -> None:
        starts.append(nn.utils.parameters_to_vector(model.parameters()).detach())
        nn.utils.clip_grad_norm_(model.parameters(), 0.02)

    optimizer.register_step_pre_hook(clip)
    optimizer.step(loss)
    assert optimizer.teleporter.moved is (schedule != Never())
    step = nn.utils.parameters_to_vector(model.parameters()).detach() - starts[0]
    assert float(step.norm()) == pytest.approx(1e-3, rel=0.1)


def test_old_gradients_are_gone_before_new_ones_are_made() -> None:
    """Both together would double their memory."""
    model, loss = _small()
    optimizer = Teleported(torch.optim.SGD(model.parameters(), lr=0.05), Every(100, start=100))
    optimizer.step(loss)
    weight: Tensor = model[0].weight  # type: ignore[index, assignment]
    assert weight.grad is not None
    old, alive = weakref.ref(weight.grad), []
    weight.register_hook(lambda _: alive.append(old() is not None))
    optimizer.step(loss)
    assert alive == [False]
