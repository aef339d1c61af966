"""When a move is taken back, on losses written out by hand."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from levelport.optim import At, Never, Teleporter, WhileAffordable
from levelport.optim.closures import StepLoss
from levelport.optim.policy import TeleportPolicy, UndoMonitor
from levelport.optim.torch_optimizer import OptimizerSnapshot
from levelport.solvers import Krylov


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


@pytest.mark.parametrize("how", ["load_state_dict", "data", "resumed"])
def test_weights_of_others_are_not_rolled_back(how: str) -> None:
    teleporter, model, data = watched_run()
    with torch.no_grad():
        loaded = {name: 10.0 * value for name, value in model.state_dict().items()}
        if how == "resumed":
            teleporter.load_state_dict(teleporter.state_dict())
        if how != "data":
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


class Rules:
    """What the undo monitor does, from all losses of the run: one entry per step, NaN where no loss was seen."""

    def __init__(self, noisy: bool) -> None:
        self.noisy, self.losses, self.trial = noisy, list[float](), 0
        self.level: float | None = None
        self.jump: float | None = None
        self.steps = self.ignored = self.failures = self.undone = 0

    def unbroken(self, begin: int) -> list[float]:
        """The losses from ``begin`` on that no gap parts from now."""
        gaps = [place + 1 for place, loss in enumerate(self.losses) if not math.isfinite(loss)]
        return self.losses[max([begin, *gaps]) :]

    def rise(self) -> float | None:
        """The largest rise from one loss to the next, of twenty at most, five at least, and else since the trial."""
        known = self.unbroken(0)[-20:]
        among = known[-max(len(self.unbroken(self.trial)), 5) :]
        return max(0.0, *(later - earlier for earlier, later in pairwise(among))) if len(known) >= 5 else None

    def watch(self, level: float) -> None:
        self.jump = self.rise() if self.noisy else 0.0
        self.failures = self.failures if self.level is None else 0
        known = self.unbroken(0)
        self.level, self.steps = known[-1] if math.isnan(level) and known else level, 0

    def loss(self, loss: float, due: bool) -> str:
        if self.level is not None:
            if self.jump is None and len(self.unbroken(self.trial)) >= 20:
                self.jump = self.rise()
            self.level = loss if math.isnan(self.level) else self.level
            self.steps += 1
            above = 3.0 * abs(self.level) if self.jump is None else 2.0 * self.jump + 1e-6 * abs(self.level)
            if not loss <= self.level + above:
                self.undone, self.failures, self.level = self.undone + 1, self.failures + 1, None
                self.ignored = 2**self.failures - 1
                return "undone"
            if self.steps >= 50:
                self.failures, self.level = 0, None
        self.losses.append(loss)
        if due and self.ignored:
            self.ignored -= 1
            return ""
        return "teleport" if due else ""

    def unseen(self) -> None:
        self.losses.append(math.nan)
        self.steps += 1
        if self.steps >= 50:
            self.level = None


@pytest.mark.parametrize("noisy", [True, False])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["due", "due", "", "", "", "", "", "unseen"]),
            st.one_of(
                st.floats(0.8, 1.2), st.sampled_from([0.99, 1.0, 1.0 + 1.2e-6, 2.5, 9.0, -1.0, math.inf, math.nan])
            ),
            st.sampled_from(["level", "level", "other", "refused"]),
        ),
        max_size=120,
    ),
    st.sampled_from([1e-4, 1.0, 1e5]),
)
def test_monitor_follows_its_rules(noisy: bool, run: list[tuple[str, float, str]], unit: float) -> None:
    """In any unit of the loss, and with a checkpoint after every step."""
    rules, monitor = Rules(noisy), UndoMonitor[str](noisy=noisy)
    for kind, value, trial in run:
        loss = unit * value
        if kind == "unseen":
            rules.unseen()
        else:
            undone = monitor.rises(loss)
            assert not undone or monitor.undo() == "back"
            teleport = not undone and monitor.allows(kind == "due", loss)
            expected = rules.loss(loss, kind == "due")
            assert (undone, teleport) == (expected == "undone", expected == "teleport")
            if teleport and trial != "refused" and math.isfinite(loss):
                level = loss if trial == "level" else math.nan
                rules.watch(level)
                monitor.watch(level, "back")
            if teleport:
                rules.trial = len(rules.losses)
                monitor.forget()
        monitor.stepped()
        assert (monitor.undone, monitor.watching) == (rules.undone, rules.level is not None)
        if rules.level is not None:
            assert (monitor.level, monitor.steps) == (rules.level, rules.steps)
        stored = json.loads(json.dumps(monitor.state_dict()))
        monitor, back = UndoMonitor[str](noisy=noisy), monitor.back
        monitor.load_state_dict(stored, back)


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e5])
@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [(1.0, 1.5, True), (1.19, 1.5, True), (1.21, 1.5, False), (math.nan, 1.5, False), (math.inf, math.inf, False)],
)
def test_a_rise_where_the_data_are_harder_is_not_the_moves(
    before: float, now: float, expected: bool, unit: float
) -> None:
    """Losses that jumped by 0.1 before the move may jump by 0.2 at the point that was left."""
    monitor: UndoMonitor[str] = UndoMonitor(noisy=True)
    for loss in (1.0, 1.1, 1.0, 1.1, 1.0):
        monitor.allows(False, unit * loss)
    monitor.watch(unit * 1.0, "back")
    assert monitor.rises(unit * now)
    assert monitor.blames_move(unit * before, unit * now) == expected


@pytest.mark.parametrize(("before", "now", "expected"), [(1.0, 5.0, True), (5.0, 5.0, False), (6.0, 5.0, False)])
def test_where_the_noise_is_not_known_both_points_are_compared(before: float, now: float, expected: bool) -> None:
    monitor: UndoMonitor[str] = UndoMonitor(noisy=True)
    monitor.watch(1.0, "back")
    assert monitor.rises(now)
    assert monitor.blames_move(before, now) == expected
    assert monitor.blames_move(2.0, math.nan)


@pytest.mark.parametrize("first_step", [True, False])
@pytest.mark.parametrize("undoes", [True, False])
def test_only_moves_with_their_first_step_are_undone(first_step: bool, undoes: bool) -> None:
    policy: TeleportPolicy[str] = TeleportPolicy(Never(), Krylov(), first_step=first_step, undoes=undoes)
    policy.watch(1.0, "back")
    assert policy.monitor.watching == (first_step and undoes)


def test_way_back_numbers_the_state_as_checkpoints_do() -> None:
    """By the place of the parameter among all, frozen ones as well; and it leads back to every one of them."""
    weights = [nn.Parameter(torch.full((2,), float(n)), requires_grad=n != 1) for n in range(4)]
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.5)

    def step() -> None:
        optimizer.zero_grad()
        sum((n + 1.0) * w.sum() for n, w in enumerate(weights) if n != 2).backward()  # type: ignore[union-attr]
        optimizer.step()

    step()
    back = OptimizerSnapshot.now(optimizer)
    back.follow()
    assert {number: float(entry["momentum_buffer"][0]) for number, entry in back.state.items()} == {0: 1.0, 3: 4.0}
    kept = [w.detach().clone() for w in weights]
    for _ in range(2):
        step()
    OptimizerSnapshot.of(back.state_dict(optimizer), optimizer).restore(optimizer)
    assert all(torch.equal(w, before) for w, before in zip(weights, kept, strict=True))
    assert {float(optimizer.state[w]["momentum_buffer"][0]) for w in (weights[0], weights[3])} == {1.0, 4.0}
    assert len(optimizer.state) == 2


def test_a_loss_is_evaluated_again_only_where_it_must_be() -> None:
    """The first evaluation serves the first call, unless the parameters have moved since or a teleport has."""
    weight, calls = nn.Parameter(torch.ones(2)), [0]

    def loss() -> Tensor:
        calls[0] += 1
        return weight.square().sum()

    def away() -> None:
        with torch.no_grad():
            weight.mul_(2.0)

    for moved, before, after, expected in ((False, 0, 0, 1), (False, 1, 0, 1), (False, 0, 1, 2), (True, 1, 0, 2)):
        calls[0], first = 0, float(weight.detach().square().sum())
        step_loss = StepLoss(loss, [weight])
        step_loss.evaluate_first()
        for _ in range(before):
            away()
        step_loss.settle(moved=moved)
        for _ in range(after):
            away()
        assert float(step_loss()) == pytest.approx(first if expected == 1 else 4.0 * first)
        assert (calls[0], step_loss.cost) == (expected, expected)
        step_loss()
        assert (calls[0], step_loss.cost) == (expected + 1, expected + 1)
