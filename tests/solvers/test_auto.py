"""Parts of the default solver, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from levelport.solvers import Auto


@pytest.mark.parametrize(
    ("dimension", "pairs"), [(2, 30), (279_620, 30), (279_621, 29), (500_000, 16), (838_860, 10), (10**9, 10)]
)
def test_the_pairs_hold_at_most_sixteen_million_numbers(dimension: int, pairs: int) -> None:
    """Two vectors each; but never fewer than ten pairs, nor more than thirty."""
    assert Auto().pairs(dimension) == pairs
    assert pairs == 10 or 2 * pairs * dimension <= 2**24
    assert Auto(memory=3).pairs(dimension) == 3
