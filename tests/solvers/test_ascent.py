"""The ascent's path: how far from the level it may lie, and what happens where it cannot come back."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import levelport.lab.bench.zoo_practice
import levelport.lab.bench.zoo_run  # noqa: F401  (both enter their species)
from levelport import teleport
from levelport.lab.bench.zoo import everyone
from levelport.objective import Point
from levelport.solvers import ascent
from levelport.solvers.certificate import Certificate


def nudged(x: Tensor, seed: int) -> Tensor:
    """x, or a point 5 % of its length away."""
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed), dtype=x.dtype)
    return x + noise * (0.05 * float(x.norm()) / math.sqrt(x.numel())) if seed else x


@pytest.mark.parametrize(
    ("name", "seed"),
    [("attention block@0", 0), ("practice tanh breast-cancer 200@0", 1), ("layer norm network@50", 0)],
)
def test_the_path_is_no_higher_above_the_level_than_valleys_are_deep(name: str, seed: int) -> None:
    """Far above the level a classifier's loss is nearly linear, and a parabola along the normal believes in a way down
    that is not there. The first of these paths went up to f = 327, where the level is 1.5; the second led nowhere.
    """
    animal = everyone()[name]
    start = animal.objective().at(nudged(animal.start(), seed), curvature=True)
    depth = 0.5 * start.gradient_norm**2 / Certificate.at(start).curvature
    highest = -math.inf

    def see(row: object, point: Point) -> None:
        nonlocal highest
        highest = max(highest, point.value)

    result = teleport(animal.objective(), start.x, max_hvps=50, callback=see)
    assert result.value_start < highest <= result.value_start + 2.0 * depth
    assert result.gradient_norm > 5.0 * result.gradient_norm_start


def test_after_a_broken_promise_the_path_keeps_nearer_to_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ascent that believes in valleys a hundred times as deep fails on an attention block at 38 times its gradient.
    It must not fail in the same way again and again.
    """
    monkeypatch.setattr(ascent, "_LEFT_OF_DEPTH", 100.0)
    animal = everyone()["attention block@0"]
    result = teleport(animal.objective(), animal.start(), max_hvps=50)
    assert result.gradient_norm > 100.0 * result.gradient_norm_start
