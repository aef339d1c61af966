"""Batches as data loaders make them, and sentences for what only looks like batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from levelport import Batches, Every, ObjectiveError, Teleported, Teleporter
from levelport.objectives.parameters import ParametersObjective

X = torch.arange(10.0, dtype=torch.float64)
Y = torch.ones(10, dtype=torch.float64)


def loss(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).square().mean()


def by_name(batch: dict[str, Tensor]) -> Tensor:
    return loss(batch["x"], batch["y"])


def nested(inputs: dict[str, Tensor], y: Tensor) -> Tensor:
    return loss(inputs["x"], y)


def in_a_list(inputs: list[Any], y: Tensor) -> Tensor:
    return loss(inputs[0]["x"], y)


def by_numpy(x: Any, y: Any) -> Tensor:
    return loss(torch.as_tensor(x), torch.as_tensor(y))


def with_scale(scale: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return loss(scale * x, y)


WHOLE = float(loss(X, Y))
PARTS = [(X[:7], Y[:7]), (X[7:], Y[7:])]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Batches(loss, PARTS),
        lambda: Batches(loss, [list(part) for part in PARTS]),
        lambda: Batches(by_name, [{"x": x, "y": y} for x, y in PARTS]),
        lambda: Batches(by_name, [{"id": 3, "scale": torch.ones(()), "x": x, "y": y} for x, y in PARTS]),
        lambda: Batches(nested, [({"x": x, "mask": x}, y) for x, y in PARTS]),
        lambda: Batches(in_a_list, [([{"x": x}, "a", "b"], y) for x, y in PARTS]),
        lambda: Batches(with_scale, [(torch.ones(()), x, y) for x, y in PARTS]),
        lambda: Batches(by_numpy, [(x.numpy(), y.numpy()) for x, y in PARTS]),
        lambda: Batches(loss, DataLoader(TensorDataset(X, Y), batch_size=7, shuffle=True)),
        lambda: Batches(loss, iter(DataLoader(TensorDataset(X, Y), batch_size=7))),
        lambda: Batches(loss, (part for part in PARTS)),
        lambda: Batches(loss, [(X[:0], Y[:0]), *PARTS]),
        lambda: Batches(loss, PARTS, weights=torch.tensor([14.0, 6.0])),
        lambda: Batches(loss, [*PARTS, (9 * X, Y)], weights=[7, 3, 0]),
    ],
)
def test_the_mean_is_that_over_all_samples(make: Callable[[], Batches]) -> None:
    batches = make()
    for _ in range(2):  # what comes from a loader or a generator is there every time
        assert float(batches.mean()) == pytest.approx(WHOLE, rel=1e-12)
        assert sum(share for share, _ in batches.terms()) == pytest.approx(1.0)


def test_one_batch_needs_no_tensor_to_be_weighed_by() -> None:
    assert float(Batches(lambda: X.mean(), [()]).mean()) == float(X.mean())
    assert float(Batches(lambda text: X.mean() * len(text), ["ab"]).mean()) == 2 * float(X.mean())
    assert float(Batches(lambda text: X.mean() * len(text), ["ab", "abcd"], weights=[1, 1]).mean()) == 3 * 4.5


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Batches(loss, []), "batches is empty"),
        (lambda: Batches(loss, iter([])), "batches is empty"),
        (lambda: Batches(loss, (X, Y)), r"batch 0 of batches is a Tensor.*\[\(inputs, targets\)\]"),
        (lambda: Batches(loss, [X, Y]), r"\[\(inputs,\), \.\.\.\]"),
        (lambda: Batches(loss, [np.ones(3)]), "batch 0 of batches is a ndarray"),
        (lambda: Batches(loss, X), "batches must be a list of batches, not a Tensor"),
        (lambda: Batches(loss, {"x": X, "y": Y}), r"not a dict.*\[batch\]"),
        (lambda: Batches(loss, None), "not a NoneType"),  # type: ignore[arg-type]
        (lambda: Batches(PARTS, loss), "loss must be a function"),  # type: ignore[arg-type]
        (lambda: Batches(loss, PARTS, unused=(X, Y)), "batch 0 of unused is a Tensor"),
        (lambda: Batches(loss, PARTS, unused=[(), ()]), "batch 0 of unused holds no tensor"),
        (lambda: Batches(loss, [PARTS[0], ()]), "batch 1 of batches holds no tensor.*weights="),
        (lambda: Batches(loss, [({}, "a"), PARTS[0]]), "batch 0 of batches holds no tensor"),
        (lambda: Batches(loss, [(X[:0], Y[:0])] * 2), "no batch of batches holds a sample"),
        (lambda: Batches(loss, PARTS, weights=[1.0]), "1 entries for 2 batches"),
        (lambda: Batches(loss, PARTS[:1], weights=[0.0]), "all 0.*positive"),
        (lambda: Batches(loss, PARTS, weights=[2.0, -1.0]), r"at least 0, not -1\.0"),
        (lambda: Batches(loss, PARTS, weights=[1.0, math.nan]), "not nan"),
        (lambda: Batches(loss, PARTS, weights=[1.0, math.inf]), "not inf"),
        (lambda: Batches(loss, PARTS, weights=[1.0, None]), "not None"),  # type: ignore[list-item]
    ],
)
def test_what_only_looks_like_batches(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("misuse", [(X, Y), [(X, Y)], DataLoader(TensorDataset(X, Y))])
@pytest.mark.parametrize("make", [Teleported, Teleporter])
def test_data_in_place_of_a_loss_are_refused_before_the_run(make: Any, misuse: Any) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    with pytest.raises(ObjectiveError, match=r"teleport_on must be a callable.*Batches\(loss, \[\(x, y\)\]\)"):
        make(optimizer, Every(5, start=5), teleport_on=misuse)


def test_a_teleport_on_dicts_is_the_one_on_all_samples() -> None:
    weight = nn.Parameter(torch.tensor([0.5, -1.0], dtype=torch.float64))

    def by_dict(batch: dict[str, Tensor]) -> Tensor:
        return (torch.stack([batch["x"], batch["x"] ** 2], dim=1) @ weight - batch["y"]).square().mean()

    whole = ParametersObjective([weight], lambda: by_dict({"x": X, "y": Y}))
    parts = ParametersObjective([weight], Batches(by_dict, [{"x": x, "y": y} for x, y in PARTS]))
    at = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert parts.at(at).value == pytest.approx(whole.at(at).value, rel=1e-12)
    torch.testing.assert_close(parts.at(at).gradient, whole.at(at).gradient)


def test_derivative_check_on_one_batch_is_charged() -> None:
    """A parameter that no derivative reaches is moved once, on one batch, to see whether the loss changes with it."""
    used, unused = (torch.ones(1, dtype=torch.float64, requires_grad=True) for _ in range(2))
    costs = []
    for parameters in ([used], [used, unused]):
        objective = ParametersObjective(parameters, Batches(lambda x, y: with_scale(used, x, y), PARTS))
        assert torch.isfinite(objective.at(objective.current()).gradient).all()
        costs.append((objective.cost.values, objective.cost.gradients))
    assert costs == [(0, 1), (1, 1)]
