"""When a move is taken back, on losses written out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from levelport.optim import At, Teleporter, WhileAffordable
from levelport.optim.policy import UndoMonitor


def first_undone(losses: list[float], level: float = 1.0) -> int | None:
    """At which of the losses after a move the way back is taken, where losses do not jump by themselves."""
    monitor: UndoMonitor[str] = UndoMonitor()
    monitor.watch(level, "back")
    return next((number for number, loss in enumerate(losses) if monitor.rises(loss)), None)


@pytest.mark.parametrize("above", [1.001, 9.0, math.inf, math.nan])
def test_for_fifty_steps_a_loss_above_the_level_undoes(above: float) -> None:
    """After that a rise is no longer held against the move."""
    for number in (0, 1, 20, 49, 50, 51):
        losses = [0.999] * number + [above]
        assert first_undone(losses) == (number if number < 50 else None)


def test_no_climb_below_the_level_undoes() -> None:
    """The way back would lead higher."""
    assert first_undone([0.5, 0.1, 0.999, 1e-9, 1.0]) is None


def test_before_the_noise_is_known_only_a_sharp_rise_undoes() -> None:
    for sharp in (4.5, math.inf, math.nan):
        monitor: UndoMonitor[str] = UndoMonitor(noisy=True)
        monitor.watch(1.0, "back")
        assert not monitor.rises(3.5)
        assert monitor.rises(sharp)


@pytest.mark.parametrize(("after", "expected"), [([0.9, 1.1], False), ([2.0], True)])
def test_the_noise_is_learnt_from_the_losses_after_a_move(after: list[float], expected: bool) -> None:
    """Twenty of them; those that go up and down around the level stand, those that stay above it do not."""
    monitor: UndoMonitor[str] = UndoMonitor(noisy=True)
    monitor.watch(1.0, "back")
    seen = [after[step % len(after)] for step in range(21)]
    found = []
    for value in seen:
        found.append(monitor.rises(value))
        monitor.allows(False, value)
    assert found == [False] * 20 + [expected]


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_wishes_are_not_granted_after_failures_in_a_row(failures: int) -> None:
    monitor: UndoMonitor[str] = UndoMonitor()
    for _ in range(failures):
        monitor.watch(1.0, "back")
        assert monitor.rises(2.0)
        assert monitor.undo() == "back"
    allowed = [monitor.allows(True, 1.0) for _ in range(10)]
    assert allowed.index(True) == 2**failures - 1


def test_a_loss_that_nobody_knows_ends_the_row() -> None:
    """Jumps across the gap would be no jumps of the run."""
    for known, undone in ((4, 15.5), (5, 5.1)):  # without enough losses only a sharp rise counts
        monitor: UndoMonitor[str] = UndoMonitor(noisy=True)
        for value in (1.0, 1.1, 1.0, 1.1, 1.0, math.nan, *[5.0] * known):
            monitor.allows(False, value)
        monitor.watch(5.0, "back")
        assert not monitor.rises(5.0)
        assert monitor.rises(undone) == (known == 5)


def test_move_on_another_loss_is_compared_with_the_last_loss() -> None:
    monitor: UndoMonitor[str] = UndoMonitor()
    monitor.allows(False, 3.0)
    monitor.watch(math.nan, "back")
    assert not monitor.rises(2.9)
    assert monitor.rises(3.1)


def test_step_with_a_shown_loss_is_not_an_unseen_one() -> None:
    """Unseen steps would end the row of losses, from which the noise of the run is learnt."""
    weight = nn.Parameter(torch.ones(1))
    teleporter = Teleporter(torch.optim.SGD([weight], lr=1e-3), WhileAffordable())

    def loss() -> Tensor:
        return weight.square().sum()

    def known(shown: bool) -> int:
        for _ in range(7):
            if shown:
                teleporter.maybe(loss)
            teleporter.optimizer.zero_grad()
            loss().backward()
            teleporter.optimizer.step()
        return len(teleporter.state_dict()["policy"]["monitor"]["recent"])

    assert known(shown=True) == 7
    assert known(shown=False) == 0


def watched_run(seed: int = 0) -> tuple[Teleporter, nn.Module, dict[str, Tensor]]:
    """A network after a move that is watched, and its data."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
    data = {"x": torch.randn(64, 5), "y": torch.randn(64, 1)}
    teleporter = Teleporter(torch.optim.SGD(model.parameters(), lr=0.01), At(10))
    for _ in range(14):
        step(teleporter, model, data)
    assert teleporter.moves == 1
    assert teleporter.policy.monitor.watching
    return teleporter, model, data


def step(teleporter: Teleporter, model: nn.Module, data: dict[str, Tensor]) -> None:
    def loss() -> Tensor:
        return nn.functional.mse_loss(model(data["x"]), data["y"])

    teleporter.maybe(loss)
    teleporter.optimizer.zero_grad()
    loss().backward()
    teleporter.optimizer.step()


@pytest.mark.parametrize("how", ["load_state_dict", "data"])
def test_weights_of_others_are_not_rolled_back(how: str) -> None:
    teleporter, model, data = watched_run()
    with torch.no_grad():
        loaded = {name: 10.0 * value for name, value in model.state_dict().items()}
        if how == "load_state_dict":
            model.load_state_dict(loaded)
        else:
            for name, parameter in model.named_parameters():
                parameter.data.copy_(loaded[name])
    size = sum(float(p.detach().norm()) for p in model.parameters())
    teleporter.optimizer.param_groups[0]["lr"] = 1e-6
    step(teleporter, model, data)
    assert teleporter.undone == 0
    assert sum(float(p.detach().norm()) for p in model.parameters()) == pytest.approx(size, rel=1e-2)


def test_harder_data_do_not_roll_steps_back() -> None:
    teleporter, model, data = watched_run()
    data["y"] = 5.0 * data["y"]
    before = [p.detach().clone() for p in model.parameters()]
    teleporter.optimizer.param_groups[0]["lr"] = 1e-6
    step(teleporter, model, data)
    assert teleporter.undone == 0
    assert all(torch.allclose(p, old, atol=1e-3) for p, old in zip(model.parameters(), before, strict=True))


def test_steps_that_go_wrong_are_rolled_back_with_a_warning() -> None:
    teleporter, model, data = watched_run()
    back = teleporter.policy.monitor.back
    assert back is not None
    teleporter.optimizer.param_groups[0]["lr"] = 30.0
    step(teleporter, model, data)
    teleporter.optimizer.param_groups[0]["lr"] = 0.0
    with pytest.warns(UserWarning, match="a teleport was undone"):
        step(teleporter, model, data)
    assert teleporter.undone == 1
    assert torch.equal(nn.utils.parameters_to_vector(model.parameters()), back.x)
