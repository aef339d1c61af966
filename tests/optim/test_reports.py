"""What a teleporter says of a run: its summary, its warnings, the log, the help."""

from __future__ import annotations

import inspect
import json
import logging
import pydoc
import warnings

import pytest
import torch
from torch import Tensor, nn

from levelport.optim import At, Batches, Every, Teleported, Teleporter


def problem() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)), torch.randn(64, 5), torch.randn(64, 1)


def test_summary_counts_what_hooks_saw() -> None:
    model, x, y = problem()
    optimizer = Teleported(torch.optim.SGD(model.parameters(), lr=0.05), Every(5, start=2))
    kinds: list[str] = []
    costs: list[float] = []
    optimizer.register_teleport_hook(lambda result: kinds.append(result.kind))
    optimizer.register_teleport_hook(lambda result: costs.append(result.cost.gradient_equivalents))
    for _ in range(30):
        optimizer.step(lambda: nn.functional.mse_loss(model(x), y))
    teleporter = optimizer.teleporter
    assert len(kinds) == 6
    moved = sum(kind != "none" for kind in kinds)
    assert teleporter.spent == pytest.approx(30.0 + moved + sum(costs))  # a gradient again after every move
    text = teleporter.summary()
    assert "every 5 steps from step 2, 30 steps" in text
    assert "tried      6 teleports" in text
    assert f"made       {kinds.count('teleport')} teleports, {kinds.count('descent')} descents; 0 undone" in text
    assert f"{sum(costs):g} of {teleporter.spent:g} gradient equivalents" in text
    assert "declined" not in text


def test_the_mean_of_batches_is_charged_as_all_of_them() -> None:
    """A callback that chose four batches teleports on four times what a step sees: look and teleport cost as much."""
    spent = []
    for pieces in (1, 4):
        model, x, y = problem()
        model, x, y = model.double(), x.double(), y.double()
        pairs = list(zip(x.chunk(pieces), y.chunk(pieces), strict=True))
        loss = Batches(lambda x, y, model=model: nn.functional.mse_loss(model(x), y), pairs).mean
        teleporter = Teleporter(torch.optim.SGD(model.parameters(), lr=0.05), At(0))
        result = teleporter.maybe(loss)
        assert result is not None
        assert result.moved
        assert teleporter.policy.history.unit == pieces
        assert teleporter.policy.cost == pieces * result.cost.gradient_equivalents
        spent.append(teleporter.spent - 1.0)  # the step
    assert spent[1] == pytest.approx(4.0 * spent[0])


def test_undone_moves_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    model, x, y = problem()
    teleporter = Teleporter(torch.optim.SGD(model.parameters(), lr=0.01), At(10))

    def run() -> None:
        for number in range(14):
            teleporter.maybe(lambda: nn.functional.mse_loss(model(x), y))
            teleporter.optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            teleporter.optimizer.param_groups[0]["lr"] = 30.0 if number == 12 else 0.01
            teleporter.optimizer.step()

    with caplog.at_level(logging.WARNING, "levelport"), pytest.warns(UserWarning, match="a teleport was undone"):
        run()
    assert teleporter.undone == 1
    assert teleporter.spent > 14.0  # the steps alone; the look at what to blame adds to it
    assert "1 undone" in teleporter.summary()
    assert [record.name for record in caplog.records] == ["levelport"]
    assert "a teleport was undone" in caplog.text


def test_declined_steps_warn_once_and_are_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    weight, steps = nn.Parameter(torch.ones(2)), 0
    optimizer = Teleported(torch.optim.SGD([weight], lr=1e-3))

    def loss() -> Tensor:
        return weight.square().sum() + 1.0 * (steps % 2)

    with caplog.at_level(logging.WARNING, "levelport"), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for steps in range(401):  # noqa: B007
            optimizer.step(loss)
    (warning,) = seen
    for words in ("no teleport in 200 steps", "losses jump by", "the limit is 4 %", "teleport_on=", "Every(50)"):
        assert words in str(warning.message)
    assert warning.filename == __file__
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "no teleport in 200 steps",
        "no teleport in 400 steps",
    ]
    assert "declined   for 401 steps: losses jump by" in optimizer.teleporter.summary()


def test_declined_steps_warn_where_batches_are_watched() -> None:
    """Their loss is looked at every fortieth step only."""
    model, x, y = problem()
    batches = Batches(lambda x, y: nn.functional.mse_loss(model(x), y), list(zip(x.chunk(4), y.chunk(4), strict=True)))
    optimizer = Teleported(torch.optim.SGD(model.parameters(), lr=0.05), teleport_on=batches)
    told: list[int] = []
    optimizer.register_teleport_hook(lambda result: None, on_decline=lambda declined, why: told.append(declined))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(201):
            optimizer.step(lambda: nn.functional.mse_loss(model(x), y))
    assert told == [200]
    assert ["no teleport in 200 steps: a trial might delay" in str(warning.message) for warning in seen] == [True]
    assert optimizer.teleporter.spent == 201.0 + 6 * 2.0


def test_state_of_a_policy_is_plain_numbers() -> None:
    model, x, y = problem()
    teleporter = Teleporter(torch.optim.SGD(model.parameters(), lr=0.05), Every(5))
    for _ in range(7):
        teleporter.maybe(lambda: nn.functional.mse_loss(model(x), y))
    assert teleporter.policy.monitor.watching
    state = teleporter.policy.state_dict()
    resumed = Teleporter(teleporter.optimizer, Every(5))
    resumed.policy.load_state_dict(json.loads(json.dumps(state)), teleporter.policy.monitor.back)
    assert resumed.policy.state_dict() == state
    assert resumed.policy.monitor.watching


@pytest.mark.parametrize("kind", [Teleported, Teleporter])
def test_help_documents_every_argument(kind: type) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    assert text.index("Args:") < text.index("Methods defined here")
    assert [
        name for name in inspect.signature(Teleported).parameters if f"{name}:" not in (Teleported.__doc__ or "")
    ] == []
    named = [name.strip() for name in text.split("see :class:`~levelport.Teleported`")[0].replace(":", ",").split(",")]
    if kind is Teleporter:
        assert {"solver", "momentum", "teleport_on", "noise", "first_step", "distribute"} <= set(named)
