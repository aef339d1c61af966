"""Lightning: automatic and manual optimization, precision, accumulation, clipping, resume bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("lightning", reason="lightning is not installed: make integrations")

import lightning.pytorch as pl
from torch.utils.data import DataLoader, TensorDataset

from levelport.integrations.lightning import TeleportCallback
from levelport.optim import At, Every, Never, Teleported
from levelport.solvers import Auto, Krylov
from levelport.symmetries import Rescaling

BATCHES = 8


class Module(pl.LightningModule):
    """A small network with dropout and BatchNorm that logs its loss."""

    def __init__(self, automatic: bool = True, adam: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = automatic
        self.adam = adam
        self.net = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.1 if automatic else 0.0), nn.Linear(8, 1)
        )
        self.logged: list[float] = []

    def loss(self, batch: Any) -> Tensor:
        x, y = batch
        loss: Tensor = (self.net(x) - y).square().mean()  # mse_loss has no bfloat16 on the CPU in older torch
        return loss

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            optimizer.step()
            return None
        loss = self.loss(batch)
        self.log("loss", loss)
        return {"loss": loss}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self.adam:
            return torch.optim.Adam(self.parameters(), lr=0.01)
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def loader() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(8 * BATCHES, 4, generator=generator)
    return DataLoader(TensorDataset(x, x.square().sum(dim=1, keepdim=True)), batch_size=8)


def fit(module: pl.LightningModule, *callbacks: Any, path: Path, resume: Any = None, **options: Any) -> pl.Trainer:
    options.setdefault("max_epochs", 1)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=path,
        enable_checkpointing=False,
        callbacks=list(callbacks),
        **options,
    )
    trainer.fit(module, loader(), ckpt_path=resume)
    return trainer


OPTIONS = {
    "plain": {},
    "16-mixed": {"precision": "16-mixed"},
    "bf16-mixed": {"precision": "bf16-mixed"},
    "64-true": {"precision": "64-true"},
    "accumulation": {"accumulate_grad_batches": 2},
    "clipping by norm": {"gradient_clip_val": 0.1},
    "clipping by value": {"gradient_clip_val": 0.1, "gradient_clip_algorithm": "value"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_callback_teleports_and_a_teleport_is_no_step(options: dict[str, Any], tmp_path: Path) -> None:
    found: list[Any] = []
    module = Module()
    callback = TeleportCallback(Every(3, start=1), solver=Auto(max_hvps=4), on_teleport=found.append)
    trainer = fit(module, callback, path=tmp_path, **options)
    steps = BATCHES // options.get("accumulate_grad_batches", 1)
    assert trainer.global_step == steps
    assert callback.teleporter is not None
    assert callback.teleporter.iteration == steps
    assert 1 <= len(found) <= len(range(1, steps, 3))  # a move that was undone is not tried again at once
    assert all(result.teleport.violation == 0.0 and result.gain >= 1.0 for result in found)
    assert any(result.gain > 1.0 for result in found)
    assert int(module.net[1].num_batches_tracked) == BATCHES  # trial points leave no trace


def test_without_a_teleport_training_is_what_it_was_bit_for_bit(tmp_path: Path) -> None:
    plain, watched = Module(), Module()
    torch.manual_seed(5)
    fit(plain, path=tmp_path)
    torch.manual_seed(5)
    fit(watched, TeleportCallback(Every(3, start=100)), path=tmp_path)
    for a, b in zip(plain.state_dict().values(), watched.state_dict().values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("adam", [False, True], ids=["sgd", "adam"])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_training_resumes_bit_for_bit(adam: bool, accumulation: int, tmp_path: Path) -> None:
    """Four epochs at once, and two and two: the parameters agree to the last bit, and so do the counts."""
    options = {"accumulate_grad_batches": accumulation}

    def run(epochs: int, resume: Any = None) -> tuple[Module, TeleportCallback, pl.Trainer]:
        module, callback = Module(adam=adam), TeleportCallback(Every(3, start=1), solver=Krylov(max_hvps=3))
        module.net[3].p = 0.0
        trainer = fit(module, callback, path=tmp_path, resume=resume, max_epochs=epochs, **options)
        return module, callback, trainer

    whole, counted, _ = run(4)
    _, _, trainer = run(2)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed, recounted, _ = run(4, tmp_path / "half.ckpt")
    for (name, a), b in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert counted.teleporter is not None
    assert recounted.teleporter is not None
    assert counted.teleporter.state_dict()["spent"] == recounted.teleporter.state_dict()["spent"]


def test_manual_optimization_teleports_on_the_loss_it_is_given(tmp_path: Path) -> None:
    found: list[Any] = []
    callback = TeleportCallback(
        Every(4), solver=Krylov(max_hvps=3), loss=lambda module, batch: module.loss(batch), on_teleport=found.append
    )
    trainer = fit(Module(automatic=False), callback, path=tmp_path)
    assert trainer.global_step == BATCHES
    assert 1 <= len(found) <= 2
    with pytest.raises(ValueError, match="with manual optimization"):
        fit(Module(automatic=False), TeleportCallback(Every(4)), path=tmp_path)


class Chain(Module):
    """Without BatchNorm, so that its hidden units may be rescaled."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def test_symmetries_move_inside_the_callback(tmp_path: Path) -> None:
    """f is the same to the bit after a rescaling by powers of two, and the gradient larger."""
    found: list[Any] = []
    module = Chain()
    how: dict[str, Any] = {"solver": Rescaling(module.net), "on_teleport": found.append}
    trainer = fit(module, TeleportCallback(Every(3, start=1), **how), path=tmp_path)
    assert trainer.global_step == BATCHES
    assert 1 <= len(found) <= 3
    assert all(result.teleport.value == result.value_start and result.gain > 1.0 for result in found)


def test_metrics_in_the_module_are_not_updated_behind_its_back(tmp_path: Path) -> None:
    from torchmetrics import MeanMetric

    module = Module()
    module.seen = MeanMetric()
    with pytest.raises(ValueError, match="metrics \\(seen\\)"):
        fit(module, TeleportCallback(Every(4)), path=tmp_path)


class Wrapped(Module):
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return Teleported(torch.optim.SGD(self.parameters(), lr=0.05), Never())


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_teleported_optimizer_steps_in_automatic_optimization(options: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(5)
    trainer = fit(module := Wrapped(), path=tmp_path, **options)
    assert trainer.global_step == BATCHES // options.get("accumulate_grad_batches", 1)

    class Bare(Module):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.05)

    torch.manual_seed(5)
    fit(bare := Bare(), path=tmp_path, **options)
    for a, b in zip(bare.state_dict().values(), module.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_teleported_optimizer_is_told_of_the_callback_at_once(tmp_path: Path) -> None:
    """Lightning's closures call backward(), so that they are refused before the first step and not at the hundredth."""

    class Later(Module):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return Teleported(torch.optim.SGD(self.parameters(), lr=0.05), Every(50, start=100))

    with pytest.raises(TypeError, match=r"levelport\.integrations has callbacks"):
        fit(Later(), path=tmp_path)


def test_wrong_arguments_are_refused_when_the_callback_is_made() -> None:
    with pytest.raises(ValueError, match="max_hvps"):
        TeleportCallback(Every(3), solver=Krylov(max_hvps=0))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"on_teleport": 3}, "on_teleport must be a function of result, not int"),
        ({"loss": 3}, "loss must be a function of module, batch, not int"),
        ({"optimizer": -1}, "optimizer must be at least 0, not -1"),
    ],
)
def test_what_is_no_function_and_no_number_is_refused_there_too(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TeleportCallback(Every(3), **arguments)


class WithoutIndex(Module):
    def training_step(self, batch: Any) -> Any:  # type: ignore[override]
        return self.loss(batch)


def test_training_step_needs_no_index_of_the_batch(tmp_path: Path) -> None:
    callback = TeleportCallback(Every(4), solver=Krylov(max_hvps=3))
    fit(WithoutIndex(), callback, path=tmp_path)
    assert callback.teleporter is not None
    assert callback.teleporter.iteration == BATCHES


class Skipping(Module):
    """Leaves out every other batch, the first among them, as Lightning allows."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None if batch_idx % 2 == 0 else self.loss(batch)


@pytest.mark.filterwarnings("ignore:.*returned .None.")
def test_a_skipped_batch_has_no_teleport_and_counts_as_a_step(tmp_path: Path) -> None:
    found: list[Any] = []
    callback = TeleportCallback(Every(1), solver=Krylov(max_hvps=3), on_teleport=found.append)
    trainer = fit(Skipping(), callback, path=tmp_path)
    assert callback.teleporter is not None
    assert callback.teleporter.iteration == trainer.global_step == BATCHES
    assert 1 <= len(found) <= BATCHES // 2


class Guarding(Module):
    """Gives up on a loss above that of the batch where training is, as guards against overflow do."""

    def __init__(self) -> None:
        super().__init__()
        self.net[3].p = 0.0
        self.guarded, self.batch, self.level = 0, -1, torch.zeros(())

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        if batch_idx != self.batch:
            self.batch, self.level = batch_idx, loss.detach()
        if loss.detach() > self.level:
            self.guarded += 1
            return None
        return loss


def test_guard_that_stops_a_trial_point_keeps_the_teleport(tmp_path: Path) -> None:
    found: list[Any] = []
    module = Guarding()
    fit(module, TeleportCallback(At(1), solver=Auto(max_hvps=10), on_teleport=found.append), path=tmp_path)
    assert module.guarded > 0
    (result,) = found
    assert result.gain > 1.0
    assert result.teleport.value <= result.value_start


class Counting(Module):
    """Keeps buffers of its own in ``training_step``, which no module's call goes through."""

    def __init__(self) -> None:
        super().__init__()
        self.net[3].p = 0.0
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("mean", torch.ones(()))
        self.net.register_buffer("same", self.mean)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seen += 1
        self.mean.mul_(0.5).add_(0.5 * batch[1].mean())  # the derivative of the loss needs it as it is now
        assert self.net.same is self.mean
        return self.loss(batch) / self.mean


def test_buffers_of_the_lightning_module_see_no_trial_points(tmp_path: Path) -> None:
    found: list[Any] = []
    plain, module = Counting(), Counting()
    mean = module.mean
    fit(plain, path=tmp_path)
    fit(module, TeleportCallback(Every(3, start=1), solver=Krylov(max_hvps=3), on_teleport=found.append), path=tmp_path)
    assert found
    assert (float(module.seen), float(module.mean)) == (BATCHES, float(plain.mean))
    assert module.mean is module.net.same is mean
    assert int(module.net[1].num_batches_tracked) == BATCHES


class TwoOptimizers(Module):
    def __init__(self) -> None:
        super().__init__(automatic=False)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.optimizers()[batch_idx % 2].zero_grad()
        self.manual_backward(self.loss(batch))
        self.optimizers()[batch_idx % 2].step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), lr=0.01) for part in (self.net[0], self.net[4])]


def test_every_optimizer_may_have_a_callback(tmp_path: Path) -> None:
    def callback(optimizer: int | None) -> TeleportCallback:
        return TeleportCallback(Every(4), loss=lambda module, batch: module.loss(batch), optimizer=optimizer)

    both = [callback(0), callback(1)]
    trainer = fit(TwoOptimizers(), *both, path=tmp_path)
    assert [one.teleporter.optimizer for one in both if one.teleporter] == trainer.optimizers
    trainer.save_checkpoint(tmp_path / "both.ckpt")
    assert len(torch.load(tmp_path / "both.ckpt", weights_only=True)["callbacks"]) == 2
    with pytest.raises(ValueError, match="returns 2 optimizers; say whose"):
        fit(TwoOptimizers(), callback(None), path=tmp_path)
    with pytest.raises(ValueError, match="optimizer=2 counts from 0, and configure_optimizers returns 2"):
        fit(TwoOptimizers(), callback(2), path=tmp_path)


def test_a_second_fit_counts_from_its_first_step(tmp_path: Path) -> None:
    callback = TeleportCallback(Every(3), solver=Krylov(max_hvps=3))
    for steps in (1, 4):
        fit(Module(), callback, path=tmp_path, max_steps=steps)
        assert callback.teleporter is not None
        assert callback.teleporter.iteration == steps


def test_half_precision_parameters_teleport_and_stay_half(tmp_path: Path) -> None:
    found: list[Any] = []
    callback = TeleportCallback(Every(3), solver=Krylov(max_hvps=3), on_teleport=found.append)
    fit(module := Module(), callback, path=tmp_path, precision="bf16-true")
    assert found
    for result in found:
        assert result.gain >= 1.0
        assert result.value_after <= result.value_start
    for p in module.parameters():
        assert p.dtype is torch.bfloat16
        assert torch.isfinite(p).all()


def test_fabric_needs_the_teleporter_alone() -> None:
    from lightning.fabric import Fabric

    from levelport import Teleporter

    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05))
    teleporter = Teleporter(optimizer, Every(4), solver=Krylov(max_hvps=3))
    gains = []
    for x, y in fabric.setup_dataloaders(loader()):
        result = teleporter.maybe(lambda x=x, y=y: nn.functional.mse_loss(model.module(x), y))
        gains += [] if result is None else [result.gain]
        optimizer.zero_grad()
        fabric.backward(nn.functional.mse_loss(model(x), y))
        optimizer.step()
    assert 1 <= len(gains) <= 2
    assert max(gains) > 1.0
    with pytest.raises(ValueError, match=r"the one inside it, model\.module"):
        teleporter.teleport(lambda: model(torch.ones(2, 4)).square().mean())
