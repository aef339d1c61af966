"""Parts of the default solver, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from levelport.solvers import Auto
from levelport.solvers.auto import _SLOWEST, _limit


@pytest.mark.parametrize(
    ("dimension", "pairs"), [(2, 30), (279_620, 30), (279_621, 29), (500_000, 16), (838_860, 10), (10**9, 10)]
)
def test_the_pairs_hold_at_most_sixteen_million_numbers(dimension: int, pairs: int) -> None:
    """Two vectors each; but never fewer than ten pairs, nor more than thirty."""
    assert Auto().pairs(dimension) == pairs
    assert pairs == 10 or 2 * pairs * dimension <= 2**24
    assert Auto(memory=3).pairs(dimension) == 3


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.7])
def test_geometrically_shrinking_growth_is_followed_to_its_end(ratio: float) -> None:
    heights = [5.0 - ratio**lap for lap in range(6)]
    for laps in range(3, 7):
        assert _limit(heights[:laps]) == pytest.approx(5.0)


def test_growth_that_does_not_shrink_has_a_cautious_end() -> None:
    """At most the slowest decay that is believed in; with two heights nothing is known of it."""
    forecast = 2.0 + _SLOWEST / (1.0 - _SLOWEST)
    for heights in ([1.0, 2.0], [0.0, 1.0, 2.0], [0.5, 1.0, 2.0], [1.0, 1.0, 2.0]):
        assert _limit(heights) == pytest.approx(forecast)
