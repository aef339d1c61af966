"""Gradients so small that products of their squares are zero."""

from __future__ import annotations

import pytest
import torch

from levelport.goals.goal import sine_of_opposition
from levelport.goals.pairs import Pairs
from levelport.goals.wald import _tilted


@pytest.mark.parametrize("size", [1e-200, 1e-100, 1.0, 1e100])
def test_angle_of_tiny_and_huge_gradients(size: float) -> None:
    """Products of tiny squares underflow: here ⟨p, p⟩ ⟨g, g⟩ is 1e-400 or 1e-800."""
    p, g = torch.tensor([3.0, 4.0], dtype=torch.float64), torch.tensor([-4.0, -3.0], dtype=torch.float64)
    pp, gg, pg = (float(a @ b) * size for a, b in ((p, p), (g, g), (p, g)))
    assert sine_of_opposition(pg, pp, gg) == pytest.approx(7.0 / 25.0)
    assert sine_of_opposition(-pg, pp, gg) == 1.0


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_first_step_is_turned_in_any_unit(size: float) -> None:
    """Found by a random problem in one variable at a bound, where the first step has no length."""
    p, d = torch.tensor([0.0, size], dtype=torch.float64), torch.tensor([0.0, -2.0], dtype=torch.float64)
    turned = _tilted(d, p)
    assert float(turned.norm()) == pytest.approx(2.0)
    assert float(turned[0]) != 0.0
    assert torch.equal(_tilted(0.0 * d, p), 0.0 * d)
    assert torch.equal(_tilted(d[1:], p[1:]), d[1:])
    cosines = torch.cos(torch.arange(1, 9, dtype=torch.float64))
    alike = size * cosines.sign() * cosines.abs().clamp_min(0.4)
    assert torch.equal(_tilted(alike, alike), alike)


def test_pairs_refuse_what_has_no_scale() -> None:
    pairs = Pairs(scale=1.0)
    s = torch.full((2,), 1e-170, dtype=torch.float64)
    assert not pairs.learn(s, s)
    assert not pairs.learn(s, -s, damp=True)
    assert not pairs.learn(1e170 * s, s)
