"""Loops of one's own and small frameworks: Accelerate, Ignite, skorch, TensorBoard, Weights & Biases."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from levelport import Every, Teleporter
from levelport.integrations.deferred import DeferredTeleporter
from levelport.integrations.loggers import log_to_tensorboard, log_to_wandb, scalars
from levelport.optim import WhileAffordable
from levelport.solvers import Auto
from levelport.symmetries import Rescaling

HOW: dict[str, Any] = {"solver": Auto(max_hvps=4)}


def data() -> TensorDataset:
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x.square().sum(dim=1, keepdim=True))


def network(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))


def flat(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerate_needs_the_teleporter_alone(precision: str, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed: make integrations")
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)

    def run(epochs: int, resume: Path | None = None) -> tuple[Tensor, list[float], Any]:
        accelerator = accelerate.Accelerator(cpu=True, mixed_precision=precision, gradient_accumulation_steps=2)
        net = network()
        bare = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
        model, optimizer, batches = accelerator.prepare(net, bare, DataLoader(data(), batch_size=4))
        teleporter = Teleporter(optimizer, Every(3, start=1), **HOW)
        accelerator.register_for_checkpointing(teleporter)
        if resume is not None:
            accelerator.load_state(str(resume))
        gains = []
        for _ in range(epochs):
            for index, (x, y) in enumerate(batches):
                if index % 2 == 0:
                    result = teleporter.maybe(lambda x=x, y=y: nn.functional.mse_loss(model(x), y))
                    gains += [] if result is None else [result.gain]
                with accelerator.accumulate(model):
                    accelerator.backward(nn.functional.mse_loss(model(x), y))
                    optimizer.step()
                    optimizer.zero_grad()
        return flat(net), gains, accelerator

    whole, gains, _ = run(4)
    assert 1 <= len(gains) <= 5  # a move that was undone is not tried again at once
    assert max(gains) > 1.0
    _, _, accelerator = run(2)
    accelerator.save_state(str(tmp_path))
    resumed, _, _ = run(2, tmp_path)
    assert torch.equal(whole, resumed)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_ignite_teleports_when_a_step_begins(accumulation: int) -> None:
    pytest.importorskip("ignite", reason="pytorch-ignite is not installed: make integrations")
    from ignite.engine import create_supervised_trainer

    from levelport.integrations.ignite import attach_teleports

    net, found = network(dropout=0.1), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    trainer = create_supervised_trainer(
        net, optimizer, nn.functional.mse_loss, gradient_accumulation_steps=accumulation
    )
    teleporter = attach_teleports(
        trainer,
        optimizer,
        lambda batch: nn.functional.mse_loss(net(batch[0]), batch[1]),
        Every(3),
        accumulation=accumulation,
        on_teleport=found.append,
        **HOW,
    )
    trainer.run(DataLoader(data(), batch_size=4), max_epochs=2)
    assert teleporter.iteration == 16 // accumulation
    assert 1 <= len(found) <= len(range(0, 16 // accumulation, 3))  # fewer where a move was undone
    assert max(result.gain for result in found) > 1.0


def test_skorch_teleports_on_the_loss_of_the_net() -> None:
    pytest.importorskip("skorch", reason="skorch is not installed: make integrations")
    from skorch import NeuralNetRegressor

    from levelport.integrations.skorch import Teleports

    found: list[Any] = []
    x, y = data().tensors
    net = NeuralNetRegressor(
        network,
        module__dropout=0.1,
        optimizer=torch.optim.SGD,
        lr=0.02,
        max_epochs=2,
        batch_size=8,
        train_split=None,
        iterator_train__shuffle=False,
        verbose=0,
        callbacks=[("teleports", Teleports(Every(3), found.append, HOW))],
    )
    net.fit(x.numpy(), y.numpy())
    assert 1 <= len(found) <= 3
    assert max(result.gain for result in found) > 1.0
    teleporter = dict(net.callbacks_)["teleports"].teleporter
    assert teleporter.iteration == 8
    net.partial_fit(x.numpy(), y.numpy())
    assert teleporter.iteration == 16


def test_skorch_goes_on_after_pickling() -> None:
    """Schedule, watch and parameters are those of a net that was never put away, to the last bit."""
    pytest.importorskip("skorch", reason="skorch is not installed: make integrations")
    from skorch import NeuralNetRegressor

    from levelport.integrations.skorch import Teleports

    x, y = (part.numpy() for part in data().tensors)
    net = NeuralNetRegressor(
        network,
        optimizer=torch.optim.SGD,
        lr=0.02,
        max_epochs=1,
        batch_size=8,
        train_split=None,
        iterator_train__shuffle=False,
        verbose=0,
        callbacks=[("teleports", Teleports(Every(3), None, HOW))],
    ).fit(x, y)
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(net))))
    states = []
    for one in (net, again):
        one.partial_fit(x, y)
        teleporter = dict(one.callbacks_)["teleports"].teleporter
        assert teleporter.optimizer is one.optimizer_
        states.append((teleporter.iteration, teleporter.teleports, teleporter.state_dict()["spent"]))
    assert states[0] == states[1]
    assert states[0][0] == 8
    assert torch.equal(flat(net.module_), flat(again.module_))


def test_skorch_clones_teleports_and_sets_their_arguments() -> None:
    pytest.importorskip("skorch", reason="skorch is not installed: make integrations")
    from sklearn.base import clone
    from skorch import NeuralNetRegressor

    from levelport.integrations.skorch import Teleports

    copied = clone(Teleports(Every(50), None, HOW))
    assert (copied.schedule, copied.how) == (Every(50), HOW)

    def planned(net: Any) -> Any:
        return dict(net.callbacks_)["teleports"].teleporter.schedule

    x, y = (part.numpy() for part in data().tensors)
    net = NeuralNetRegressor(
        network, max_epochs=1, train_split=None, verbose=0, callbacks=[("teleports", Teleports(Every(50), None, HOW))]
    )
    net = clone(net).set_params(callbacks__teleports__schedule=Every(3)).fit(x, y)
    assert planned(net) == Every(3)
    net.set_params(callbacks__teleports__schedule=Every(4)).partial_fit(x, y)  # initializes callbacks, then sets
    assert planned(net) == Every(4)
    assert planned(clone(net).fit(x, y)) == Every(4)


def test_skorch_teleports_after_a_validation_in_training_mode() -> None:
    pytest.importorskip("skorch", reason="skorch is not installed: make integrations")
    from skorch import NeuralNetRegressor

    from levelport.integrations.skorch import Teleports

    modes: list[tuple[bool, bool]] = []

    class Net(NeuralNetRegressor):  # type: ignore[misc, unused-ignore]  # Any where not installed
        def get_loss(self, *args: Any, training: bool = False, **kwargs: Any) -> Any:
            if training:
                modes.append((self.module_.training, self.criterion_.training))
            return super().get_loss(*args, training=training, **kwargs)

    x, y = (part.numpy() for part in data().tensors)
    Net(network, max_epochs=2, verbose=0, callbacks=[("teleports", Teleports(Every(1), None, HOW))]).fit(x, y)
    assert set(modes) == {(True, True)}


def test_symmetries_move_inside_ignite() -> None:
    pytest.importorskip("ignite", reason="pytorch-ignite is not installed: make integrations")
    from ignite.engine import create_supervised_trainer

    from levelport.integrations.ignite import attach_teleports

    torch.manual_seed(0)
    net, found = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    trainer = create_supervised_trainer(net, optimizer, nn.functional.mse_loss)
    loss = lambda batch: nn.functional.mse_loss(net(batch[0]), batch[1])  # noqa: E731
    attach_teleports(trainer, optimizer, loss, Every(5), solver=Rescaling(net), on_teleport=found.append)
    trainer.run(DataLoader(data(), batch_size=4), max_epochs=1)
    assert 1 <= len(found) <= 2
    assert all(result.teleport.value == result.value_start and result.gain > 1.0 for result in found)


def one_teleport(listen: Any) -> Any:
    net, (x, y) = network(), data().tensors
    teleporter = Teleporter(torch.optim.SGD(net.parameters(), lr=0.02), Every(2), **HOW)
    handle = listen(teleporter)
    for _ in range(2):
        teleporter.maybe(lambda: nn.functional.mse_loss(net(x), y))
    handle.remove()
    teleporter.teleport(lambda: nn.functional.mse_loss(net(x), y))
    return teleporter


def test_tensorboard_gets_a_point_per_teleport(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: make integrations")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        one_teleport(lambda teleporter: log_to_tensorboard(teleporter, writer))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Scalars("teleport/gain")] == [1]
    assert events.Scalars("teleport/gain")[0].value >= 1.0


def test_weights_and_biases_gets_a_line_per_teleport_offline(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed: make integrations")
    with wandb.init(mode="offline", dir=str(tmp_path), project="levelport") as run:
        one_teleport(lambda teleporter: log_to_wandb(teleporter, run))
        run.log({"loss": 1.0})
        assert run.summary["teleport/gain"] >= 1.0
        assert run.summary["teleport/step"] == 1
    assert list(tmp_path.rglob("*.wandb"))


def test_what_is_logged_are_plain_numbers() -> None:
    result = one_teleport(lambda teleporter: teleporter.register_teleport_hook(lambda result: None)).last_teleport
    assert all(isinstance(value, float) for value in scalars(result).values())


def test_callback_without_a_schedule_takes_that_of_the_optimizer() -> None:
    """Which is not known when the callback is made; where it has none, the error says so when training begins."""
    weight = nn.Parameter(torch.ones(2))
    planned = DeferredTeleporter(None, None, {})
    assert isinstance(planned.begin(torch.optim.SGD([weight], lr=0.1)).schedule, WhileAffordable)
    with pytest.raises(ValueError, match=r"schedule: Adam has no default.*Every\(50\).*Never\(\)"):
        planned.begin(torch.optim.Adam([weight]))


def test_copy_of_a_plan_goes_on_with_the_optimizer_given() -> None:
    weight = nn.Parameter(torch.ones(2))
    planned = DeferredTeleporter(Every(5), None, {})
    planned.begin(torch.optim.SGD([weight], lr=0.1)).maybe(lambda: weight.square().sum())
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    copied = copy.deepcopy(copy.deepcopy(planned))
    assert copied.teleporter is None
    assert copied.begin(optimizer).iteration == 1
    assert copied.begin(optimizer).optimizer is optimizer


def test_callback_refuses_what_is_no_function() -> None:
    with pytest.raises(ValueError, match="on_teleport must be a function of result, not int"):
        DeferredTeleporter(Every(5), 3, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"options": {"maxiter": 100.0}}, "maxiter must be a whole number, not 100.0"),
        ({"options": {"gtol": -1}}, "gtol must not be negative, not -1"),
        ({"tol": -1}, "^tol must not be negative, not -1"),
    ],
)
def test_scipy_is_told_of_its_own_names(options: dict[str, Any], words: str) -> None:
    optimize = pytest.importorskip("scipy.optimize", reason="scipy is not installed")
    from levelport.integrations.scipy import scipy_method

    with pytest.raises(ValueError, match=words):
        optimize.minimize(optimize.rosen, [0.0, 1.0], jac=optimize.rosen_der, method=scipy_method, **options)


def test_loggers_record_declined_steps() -> None:
    """Losses that jump by half: the adaptive schedule never tries, and says so every 200 steps."""
    weight = nn.Parameter(torch.ones(2))
    teleporter = Teleporter(torch.optim.SGD([weight], lr=1e-3))
    scalars_seen: list[tuple[str, int]] = []
    lines: list[dict[str, Any]] = []

    class Writer:
        def add_scalar(self, name: str, value: float, step: int) -> None:
            scalars_seen.append((name, int(value)))

        def add_text(self, name: str, text: str, step: int) -> None:
            assert "losses jump" in text

    class Run:
        def log(self, line: dict[str, Any], commit: bool) -> None:
            lines.append(line)

    handles = [log_to_tensorboard(teleporter, Writer()), log_to_wandb(teleporter, Run())]

    def steps(count: int) -> None:
        for number in range(count):
            teleporter.maybe(lambda k=number: weight.square().sum() + 1.0 * (k % 2))  # type: ignore[misc]

    with pytest.warns(UserWarning, match="no teleport in 200 steps"):
        steps(401)
    assert scalars_seen == [("teleport/declined", 200), ("teleport/declined", 400)]
    assert [line["teleport/declined"] for line in lines] == [200, 400]
    for handle in handles:
        handle.remove()
    steps(400)
    assert len(lines) == 2
