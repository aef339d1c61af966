"""A loss that cannot be differentiated is refused at every door by the same sentence; it never looks stationary."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from levelport import Every, Never, ObjectiveError, Teleported, interval, minimize, teleport
from levelport.objectives import ModuleObjective
from levelport.objectives.parameters import ParametersObjective
from levelport.solvers import Auto

Fun = Callable[[Tensor], Any]


def by_teleport(fun: Fun) -> object:
    return teleport(fun, torch.ones(2, dtype=torch.float64))


def by_minimize(fun: Fun) -> object:
    return minimize(fun, torch.ones(2, dtype=torch.float64))


def parameter() -> nn.Parameter:
    with torch.inference_mode(False):
        return nn.Parameter(torch.ones(2, dtype=torch.float64))


def by_teleported(fun: Fun) -> object:
    x = parameter()
    optimizer = Teleported(torch.optim.SGD([x], lr=0.1), schedule=Never(), solver=Auto(max_hvps=50))
    try:
        return optimizer.teleport(lambda: fun(x)).teleport
    except ObjectiveError:
        assert torch.equal(x.detach(), torch.ones(2, dtype=torch.float64))
        raise
    finally:
        assert x.grad is None


def by_step(fun: Fun) -> object:
    x = parameter()
    return Teleported(torch.optim.SGD([x], lr=0.1), schedule=Every(1)).step(lambda: fun(x))


DOORS = [by_teleport, by_minimize, by_teleported, by_step]


def calls_backward(x: Tensor) -> Tensor:
    loss = x.square().sum()
    loss.backward()
    return loss


@contextmanager
def reentrant() -> Iterator[None]:
    with warnings.catch_warnings():  # torch warns of what is tested here
        warnings.simplefilter("ignore")
        yield


def cut_by_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x.square().sum()


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("fun", "words"),
    [
        (lambda x: x.detach().square().sum(), "detach"),
        (cut_by_no_grad, "no_grad"),
        (lambda x: torch.as_tensor(x.detach().numpy() ** 2).sum(), "detach"),
        (lambda x: (x > 0).sum(), "int64"),
        (lambda x: (x > 0).all(), "bool"),
        (calls_backward, r"backward\(\)"),
        (lambda x: x.sum().item(), "float"),
    ],
)
def test_refused_at_every_door(door: Callable[[Fun], object], fun: Fun, words: str) -> None:
    with pytest.raises((ObjectiveError, TypeError), match=words):
        door(fun)


@pytest.mark.parametrize("start", [0.0, 1e-30])
def test_a_cut_loss_of_tiny_variables(start: float) -> None:
    """Steps of ordinary size overflow here, and tell nothing. Found by the fuzzer."""
    with pytest.raises(ObjectiveError, match="no derivative reaches x"):
        teleport(lambda x: (x.detach() / 1e-30 - 1.5).square().sum(), torch.tensor([start]))


@pytest.mark.parametrize("door", [by_teleport, by_minimize, by_teleported])
def test_reentrant_checkpointing_of_x(door: Callable[[Fun], object]) -> None:
    with pytest.raises(ObjectiveError, match="use_reentrant=False"), reentrant():
        door(lambda x: checkpoint(lambda y: (y**4).sum(), x, use_reentrant=True))


class Checkpointed(nn.Module):
    """Reentrant checkpointing of a layer whose input has no graph: its parameters get no derivative."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 3).double(), nn.Linear(3, 1).double()
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        return self.last(checkpoint(lambda y: torch.tanh(self.first(y)), x, use_reentrant=self.reentrant))


@pytest.mark.parametrize("verb", [teleport, minimize])
def test_layers_that_no_derivative_reaches(verb: Callable[..., Any]) -> None:
    """The head is reached, the checkpointed layer is not: 9 of 13 parameters would silently stay where they are."""
    torch.manual_seed(0)
    x, y = torch.randn(8, 2, dtype=torch.float64), torch.randn(8, 1, dtype=torch.float64)
    broken = ModuleObjective(Checkpointed(reentrant=True), nn.functional.mse_loss, x, y)
    with pytest.raises(ObjectiveError, match="9 of the 13"), reentrant():
        verb(broken, broken.initial_point())
    sound = ModuleObjective(Checkpointed(reentrant=False), nn.functional.mse_loss, x, y)
    with pytest.raises(ObjectiveError, match="recomputes activations"):
        verb(sound, sound.initial_point())


def test_checkpointing_of_live_parameters() -> None:
    """The same derivatives as without it, and BatchNorm does not notice that it runs again in the backward pass."""
    torch.manual_seed(0)
    x, y = torch.randn(8, 2, dtype=torch.float64), torch.randn(8, 1, dtype=torch.float64)
    body = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Tanh()).double()
    head = nn.Linear(3, 1).double()
    parameters = [*body.parameters(), *head.parameters()]
    before = {name: buffer.clone() for name, buffer in body.named_buffers()}
    plain = ParametersObjective(parameters, lambda: nn.functional.mse_loss(head(body(x)), y))
    saving = ParametersObjective(
        parameters, lambda: nn.functional.mse_loss(head(checkpoint(body, x, use_reentrant=False)), y)
    )
    w, v = plain.current() + 0.1, torch.randn(plain.dimension, dtype=torch.float64)
    one = plain.at(w)
    gradient, product = one.gradient, one.hvp(v)
    other = saving.at(w)
    torch.testing.assert_close(other.gradient, gradient)
    torch.testing.assert_close(other.hvp(v), product)
    for name, buffer in body.named_buffers():
        assert torch.equal(buffer, before[name])


@pytest.mark.parametrize("verb", [teleport, minimize])
def test_unused_variables_and_constants_are_no_error(verb: Callable[..., Any]) -> None:
    result = verb(lambda x: (x["used"] ** 4).sum() + x["used"][0], {"used": torch.ones(2), "unused": torch.ones(3)})
    assert torch.equal(result.x["unused"], torch.ones(3))
    constant = verb(lambda x: torch.tensor(1.0), torch.ones(2))
    assert torch.equal(constant.x, torch.ones(2))
    assert constant.gradient_norm == 0.0


@pytest.mark.parametrize("verb", [teleport, minimize])
def test_loss_of_a_live_module_in_place_of_x(verb: Callable[..., Any]) -> None:
    """It has a gradient, by other tensors than x."""
    model = nn.Linear(2, 1)
    x = dict(model.named_parameters())
    with pytest.raises(ObjectiveError, match=r"does not depend on x, but on other tensors .*functional_call"):
        verb(lambda _: model(torch.ones(3, 2)).square().mean(), x)
    with pytest.raises(ObjectiveError, match="the quantity does not depend on x"):
        interval(lambda v: v.square().sum(), torch.zeros(2), lambda _: model(torch.ones(2))[0], rise=1.0)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("context", [nullcontext, torch.no_grad, torch.inference_mode])
def test_the_same_result_in_every_context(door: Callable[[Fun], Any], context: Callable[[], Any]) -> None:
    """Also inside inference mode, where torch records no graph and makes tensors that autograd refuses."""

    def fun(x: Tensor) -> Tensor:
        return (x**4).sum() + x[0] * x[1] + x[0]

    outside = door(fun)
    with context():
        inside = door(fun)
    if isinstance(outside, Tensor):
        assert float(inside) == float(outside)
        return
    assert inside.success
    assert torch.equal(inside.x.clone(), outside.x)
    assert inside.gradient_norm == outside.gradient_norm


@pytest.mark.parametrize("door", [by_teleport, by_minimize, by_teleported])
def test_data_made_in_inference_mode(door: Callable[[Fun], object]) -> None:
    with torch.inference_mode():
        data = torch.tensor([1.0, 2.0], dtype=torch.float64)
    with pytest.raises(ObjectiveError, match="inference_mode"):
        door(lambda x: ((x * data) ** 4).sum())


def test_parameters_made_in_inference_mode() -> None:
    with torch.inference_mode():
        x = nn.Parameter(torch.ones(2))
    with pytest.raises(ObjectiveError, match="inference_mode"):
        ParametersObjective([x], lambda: x.square().sum())


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bits(dtype: torch.dtype) -> None:
    with pytest.raises(ObjectiveError, match=r"x\.float\(\)"):
        teleport(lambda x: x.float().sum(), torch.ones(2).to(dtype))
    with pytest.raises(ObjectiveError, match=r"x\.float\(\)"):
        Teleported(torch.optim.SGD([nn.Parameter(torch.ones(2).to(dtype))], lr=0.1))


def test_no_numbers_and_no_whole_tensors() -> None:
    with pytest.raises(ObjectiveError, match="meta device"):
        teleport(lambda x: x.sum(), torch.ones(2, device="meta"))
    with pytest.raises(ObjectiveError, match="meta device"):
        Teleported(torch.optim.SGD(nn.Linear(2, 1, device="meta").parameters(), lr=0.1))

    class Spread(Tensor):  # what distinguishes a DTensor, without a process group
        placements = ()

    with pytest.raises(ObjectiveError, match="DTensor"):
        minimize(lambda x: x.sum(), torch.ones(2).as_subclass(Spread))


def test_a_loss_that_writes_to_x() -> None:
    with pytest.raises(ObjectiveError, match=r"x = x\.clone\(\)"):
        teleport(lambda x: x.mul_(2.0).square().sum(), torch.ones(2))
    with pytest.raises(ObjectiveError, match=r"x = x\.clone\(\)"):
        minimize(lambda x: x[0].mul_(2.0).square().sum(), [torch.ones(2), torch.ones(3)])


def test_compiled_functions_and_their_remedy() -> None:
    """What torch's compiler says about its buffers becomes a sentence. Its message is quoted: nothing compiles here."""

    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.square().sum()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            raise RuntimeError("This backward function was compiled with non-empty donated buffers which requires ...")

    with pytest.raises(ObjectiveError, match="_orig_mod"):
        minimize(Compiled.apply, torch.ones(2))


class Detached(torch.autograd.Function):
    """w², with a backward pass that cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, w: Tensor) -> Tensor:
        ctx.save_for_backward(w)
        return w.square()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (w,) = ctx.saved_tensors
        return gradients[0] * 2.0 * w.detach()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [2, 20, 200])
def test_a_detached_backward_pass_is_found_in_either_precision(n: int, dtype: torch.dtype) -> None:
    weights = torch.logspace(-2, 1, n, dtype=dtype)
    for seed in range(20):
        x = torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=dtype)
        with pytest.raises(ObjectiveError, match="reported as zero"):
            teleport(lambda w: (Detached.apply(w) * weights).sum(), x)


def test_underflow_is_no_detached_backward_pass() -> None:
    """At 1e223 the second derivative of √u is computed as u^(-3/2), which is 0."""
    x = torch.tensor([1e73], dtype=torch.float64)
    result = teleport(lambda w: 1e-75 * (w / 1e-150).pow(0.5).sum(), x)
    assert torch.equal(result.x, x)
    assert "underflow" in result.message


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "fun",
    [
        lambda w: w.sum(),
        lambda w: 0.0 * w.sum() + 3.0,
        lambda w: (w[1:] - w[:-1]).abs().sum(),
        lambda w: w.view(4, 5).sum(dim=1).max(),
        lambda w: (torch.linspace(-3.0, 3.0, 4000, dtype=w.dtype).view(200, 20) @ w).relu().mean(),
        lambda w: (torch.linspace(-3.0, 3.0, 4000, dtype=w.dtype).view(200, 20).sin() @ w - 0.1).abs().mean(),
    ],
    ids=["linear", "constant", "variation", "maximum", "relu", "absolute"],
)
def test_linear_pieces_are_no_detached_backward_pass(fun: Fun, dtype: torch.dtype) -> None:
    for seed in range(20):
        teleport(fun, torch.randn(20, generator=torch.Generator().manual_seed(seed), dtype=dtype), Auto(max_hvps=3))
