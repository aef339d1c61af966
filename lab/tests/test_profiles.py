from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelport_lab.engine.spec import Run
from levelport_lab.paper.profiles import RELEASED, TEXT, Axis, Band, Profile, spent_until_solved, told_apart


def run_with(values: list[float], cost: list[float] | None = None) -> Run:
    costs = np.array(cost if cost is not None else range(len(values)), dtype=np.float64)
    curves = {"value": np.array(values), "gradient_equivalents": costs, "seconds": costs / 10}
    return Run(final_value=values[-1], curves=curves)


def test_solved_at_the_first_record_below_the_threshold() -> None:
    run = run_with([10.0, 4.0, 2.0, 2.5, 1.0], cost=[1.0, 5.0, 9.0, 30.0, 31.0])
    # f* = 1, f0 = 10: a gap of 0.15 · 9 = 1.35 is first reached at the third record.
    assert spent_until_solved(run, 10.0, 1.0, 0.15, Axis.ITERATIONS) == 2
    assert spent_until_solved(run, 10.0, 1.0, 0.15, Axis.COST) == 9.0
    assert spent_until_solved(run, 10.0, 1.0, 0.15, Axis.SECONDS) == pytest.approx(0.9)
    assert spent_until_solved(run, 10.0, 1.0, 0.0, Axis.ITERATIONS) == 4
    assert spent_until_solved(run, 10.0, 0.5, 0.01, Axis.ITERATIONS) == np.inf


def test_run_without_curves_solved_nothing() -> None:
    assert spent_until_solved(Run(), 2.0, 1.0, 0.1, Axis.COST) == np.inf


def test_start_at_the_optimum_is_an_error() -> None:
    with pytest.raises(ValueError, match="not above the optimal value"):
        spent_until_solved(run_with([1.0]), 1.0, 1.0, 0.1, Axis.COST)


@given(st.lists(st.one_of(st.integers(0, 30).map(float), st.just(np.inf)), min_size=1, max_size=20), st.floats(0, 40))
def test_profile_is_the_share_of_costs_not_above(costs: list[float], spent: float) -> None:
    profile = Profile.of(costs)
    assert profile.at(spent) == pytest.approx(np.mean([cost <= spent for cost in costs]))
    assert profile.solved == pytest.approx(np.mean(np.isfinite(costs)))
    assert np.all(np.diff(profile.shares) > 0)


@pytest.mark.parametrize("restarts", [1, 3, 5, 7, 9, 11, 20])
def test_band_is_sorted_order(restarts: int) -> None:
    """The middle one of an odd number; quartiles that a quarter of the restarts do not exceed, or are not below."""
    order = np.random.default_rng(restarts).permutation(restarts)
    band = Band.of([np.array([float(place), -float(place)]) for place in order])
    if restarts % 2:
        np.testing.assert_array_equal(band.median, [restarts // 2, -(restarts // 2)])
    for quantile, curve in ((0.25, band.lower), (0.5, band.median), (0.75, band.upper)):
        assert np.mean(order <= curve[0]) >= quantile
        assert np.mean(order < curve[0]) < quantile


def test_run_that_ended_early_counts_as_infinite() -> None:
    band = Band.of([np.array([1.0]), np.array([2.0, 2.0]), np.array([3.0, 3.0])])
    np.testing.assert_array_equal(band.median, [2.0, 3.0])
    assert not np.isnan(band.upper).any()


def graded(losses: list[float], *, chosen: bool = False) -> Run:
    records = np.arange(len(losses), dtype=np.float64)
    curves = {"value": np.array(losses) + 0.5, "loss": np.array(losses), "seconds": records}
    return Run(setting=losses[-1], chosen=chosen, curves={**curves, "gradient_equivalents": records})


def test_text_takes_the_lowest_end_released_the_fastest() -> None:
    """f* = 0, τ = 0.1: the second setting solves after one step and ends higher."""
    slow, fast = graded([1.0, 0.5, 0.05, 0.0], chosen=True), graded([1.0, 0.1, 0.08, 0.08])
    for scoring, expected in ((TEXT, slow), (RELEASED, fast)):
        assert scoring.representative([slow, fast], 1.0, 0.0, 0.1, Axis.ITERATIONS) is expected
    assert RELEASED.spent(fast, 1.0, 0.0, 0.1, Axis.ITERATIONS) == 1.0
    # No method solves it: the lowest end stands for the method.
    assert RELEASED.representative([slow, fast], 1.0, -1.0, 0.1, Axis.ITERATIONS) is slow


def test_released_scores_the_loss_without_its_penalty() -> None:
    run = graded([1.0, 0.05])
    assert TEXT.spent(run, 1.5, 0.0, 0.1, Axis.ITERATIONS) == np.inf  # f has a penalty of 0.5 on top
    assert RELEASED.spent(run, 1.0, 0.0, 0.1, Axis.ITERATIONS) == 1.0


@pytest.mark.parametrize(("peak", "solved"), [(9.9, True), (10.0, False)])
def test_released_does_not_count_runs_that_grew_tenfold(peak: float, solved: bool) -> None:
    run = graded([1.0, peak, 0.0])
    assert np.isfinite(RELEASED.spent(run, 1.0, 0.0, 0.1, Axis.ITERATIONS)) == solved


def test_a_loss_that_is_lost_in_its_penalty_is_no_optimum() -> None:
    """A run that diverges: f and the penalty are 1e26, and their difference is a rounding error of either sign."""
    value = np.array([0.7, 0.9, 1e26, 2e26, 3e26])
    loss = np.array([0.6, 0.5, -5e18, 4e18, 0.0])
    told = told_apart(value, loss)
    np.testing.assert_array_equal(told, [0.6, 0.5, 1e26, 2e26, 3e26])
    run = Run(curves={"value": value, "loss": told})
    assert RELEASED.spent(run, 0.6, 0.0, 0.95, Axis.ITERATIONS) == np.inf
    kept = Run(curves={"value": value[:2], "loss": told[:2]})
    assert RELEASED.spent(kept, 0.6, 0.0, 0.9, Axis.ITERATIONS) == 1.0
