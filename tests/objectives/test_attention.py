"""Attention teleports as it is: its fused kernels have no second derivative, so a solve does without them.

The oracle is attention written out in products and a softmax, at the same parameters.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import levelport
from levelport.objectives import ModuleObjective
from levelport.optim import Every, Never, Teleported, Teleporter
from levelport.solvers import Krylov

TOKENS, WIDTH = 5, 8


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1) @ v


class Attend(nn.Module):
    def __init__(self, attention: Callable[..., Tensor]) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(*self.project(x).unsqueeze(1).chunk(3, dim=-1)).mean(dim=(1, 2))


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    shape = (4, TOKENS, WIDTH)
    return torch.randn(shape, generator=generator), torch.randn((4, WIDTH), generator=generator)


def by_parameters(model: nn.Module) -> levelport.TeleportResult:
    x, y = data()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return (
        Teleporter(optimizer, Never(), solver=Krylov(max_hvps=6))
        .teleport(lambda: (model(x) - y).square().mean())
        .teleport
    )


def by_module(model: nn.Module) -> levelport.TeleportResult:
    objective = ModuleObjective(model, nn.functional.mse_loss, *data())
    return levelport.teleport(objective, objective.initial_point(), levelport.Auto(max_hvps=6))


def by_function(model: nn.Module) -> levelport.TeleportResult:
    x, y = data()

    def loss(w: dict[str, Tensor]) -> Tensor:
        return (torch.func.functional_call(model, w, (x,)) - y).square().mean()

    start = {name: p.detach() for name, p in model.named_parameters()}
    return levelport.teleport(loss, start, levelport.Auto(max_hvps=6))


@pytest.mark.parametrize("door", [by_parameters, by_module, by_function])
def test_fused_attention_teleports_as_attention_written_out(
    door: Callable[[nn.Module], levelport.TeleportResult],
) -> None:
    fused, plain = door(Attend(scaled_dot_product_attention)), door(Attend(written_out))
    assert fused.gain > 1.01
    assert fused.gain == pytest.approx(plain.gain, rel=1e-3)
    assert fused.value == pytest.approx(plain.value, rel=1e-4)
    assert fused.cost.hvps == plain.cost.hvps


class Mixing(nn.Module):
    """What ``nn.MultiheadAttention(need_weights=False)`` calls is the fused kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    "make",
    [Mixing, lambda: nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)],
    ids=["MultiheadAttention", "TransformerEncoderLayer"],
)
def test_torchs_own_attention_teleports(make: Callable[[], nn.Module], training: bool) -> None:
    torch.manual_seed(0)
    layer = make().train(training)
    x, y = data()
    optimizer = Teleported(torch.optim.Adam(layer.parameters(), lr=1e-3), Every(2), solver=Krylov(max_hvps=5))
    for _ in range(3):
        optimizer.step(lambda: (layer(x).mean(dim=1) - y).square().mean())
    assert optimizer.last_teleport is not None
    assert optimizer.last_teleport.gain > 1.0
    assert optimizer.last_teleport.teleport.violation == 0.0


def test_training_keeps_its_own_kernels() -> None:
    """The math path is a solve's alone: the step before it, and the one after, choose theirs as ever."""
    x, _ = data()
    model, seen = Attend(scaled_dot_product_attention), []

    def loss() -> Tensor:
        seen.append(torch.backends.cuda.flash_sdp_enabled())
        return model(x).square().mean()

    optimizer = Teleported(torch.optim.SGD(model.parameters(), lr=0.1), Every(1), solver=Krylov(max_hvps=3))
    optimizer.step(loss)
    assert seen[0] is True
    assert seen[-1] is True
    assert False in seen
    assert torch.backends.cuda.flash_sdp_enabled()


@pytest.mark.skipif(not hasattr(torch.compiler, "set_stance"), reason="torch before 2.6 cannot pause its compiler")
def test_compiled_module_teleports_as_the_original() -> None:
    x, y = data()
    ends = []
    for compiled in (False, True):
        model = Attend(written_out)
        called = torch.compile(model, backend="aot_eager") if compiled else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = lambda called=called: (called(x) - y).square().mean()  # noqa: E731
        loss().backward()  # compiles
        result = Teleporter(optimizer, Never(), solver=Krylov(max_hvps=6)).teleport(loss)
        ends.append(result.teleport.x)
    assert torch.equal(*ends)


@pytest.mark.skipif(not hasattr(torch.compiler, "set_stance"), reason="torch before 2.6 cannot pause its compiler")
@pytest.mark.filterwarnings("ignore")  # torch warns of its own compiler
def test_compiled_steps_teleport_but_not_compiled_loops() -> None:
    x, y = data()

    def run(compiled: bool, whole: bool = False) -> list[float]:
        model = Attend(written_out)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        if compiled:
            sgd.step = torch.compile(sgd.step, backend="eager")  # type: ignore[method-assign]
        optimizer = Teleported(sgd, Every(2), solver=Krylov(max_hvps=4))
        step = lambda: optimizer.step(lambda: (model(x) - y).square().mean())  # noqa: E731
        step = torch.compile(step, backend="eager") if whole else step
        return [float(step()) for _ in range(4)]

    assert run(True) == run(False)
    with pytest.raises(levelport.ObjectiveError, match="Compile the model, or its optimizer's step"):
        run(False, whole=True)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bags_get_advice_of_their_own(mode: str) -> None:
    bag = nn.EmbeddingBag(10, 4, mode=mode)
    teleporter = Teleporter(torch.optim.SGD(bag.parameters(), lr=0.1), Never())
    with pytest.raises(levelport.ObjectiveError, match=r"EmbeddingBag has no second derivative. Use nn\.Embedding"):
        teleporter.teleport(lambda: bag(torch.arange(10).view(2, 5)).square().mean())
