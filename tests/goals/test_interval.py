"""``interval`` against closed forms, dense profiles and R."""

from __future__ import annotations

import math

import pytest
import torch
from likelihoods import Likelihood, double_exponential, hill, logistic, peaks, poisson, profile_end
from torch import Tensor

import levelport
from levelport import ObjectiveError
from levelport.goals import EndStatus

RISE = 1.920729410347062  # half the 95 % quantile of χ² with one degree of freedom


def test_normal_mean_closed_form() -> None:
    data = torch.tensor([1.0, 2.0, 4.0, 3.0], dtype=torch.float64)
    result = levelport.interval(lambda m: 0.5 * (data - m).square().sum(), data.mean().reshape(1), confidence=0.95)
    half = 1.959963984540054 / math.sqrt(len(data))
    assert float(result.lower) == pytest.approx(2.5 - half, abs=2e-4)
    assert float(result.upper) == pytest.approx(2.5 + half, abs=2e-4)
    assert float(result.wald_upper) == pytest.approx(2.5 + half, abs=1e-9)
    assert result.success


def test_exponential_rate_closed_form() -> None:
    """n (r x̄ - log r) rises by ``rise`` where u - log u - 1 = rise/n with u = r x̄."""
    total = 6.0
    result = levelport.interval(lambda r: total * r[0] - 5.0 * r[0].log(), torch.tensor([5.0 / total]), rise=RISE)
    for end, value in zip(result.ends[0], (result.lower, result.upper), strict=True):
        u = float(value) * total / 5.0
        assert u - math.log(u) - 1.0 == pytest.approx(RISE / 5.0, rel=2e-3)
        assert end.status is EndStatus.CERTIFIED


@pytest.mark.parametrize("problem", [hill(3), double_exponential(3), poisson(3), logistic(3)], ids=lambda p: p.name)
def test_ends_match_dense_profiles(problem: Likelihood) -> None:
    x = problem.minimizer()
    result = levelport.interval(problem.fun, x, rise=RISE)
    assert result.success
    for index in range(0, x.numel(), 2):
        for sign, value in ((-1.0, result.lower[index]), (1.0, result.upper[index])):
            truth = profile_end(problem.fun, x, index, sign, RISE)
            assert abs(float(value) - truth) <= 1e-3 * abs(truth - float(x[index]))
    assert all(end.value <= result.value + RISE for both in result.ends for end in both)


def test_cost_of_regular_ends() -> None:
    """Three and a half gradients per end on separate peaks, where MINOS with gradients takes about a hundred."""
    problem = peaks(3)
    result = levelport.interval(problem.fun, problem.minimizer(), rise=RISE)
    assert (result.cost - result.setup).gradient_equivalents <= 5.0 * 24


def test_matches_confint_of_r() -> None:
    """Dobson's randomized trial, glm.D93 in R: counts by three outcomes and three treatments.

    R interpolates its profile with a spline, which costs it the fourth digit.
    """
    counts = torch.tensor([18, 17, 15, 20, 10, 20, 25, 13, 12], dtype=torch.float64)
    outcome, treatment = torch.arange(3).repeat(3), torch.arange(3).repeat_interleave(3)
    X = torch.stack([torch.ones(9), *(outcome == 1, outcome == 2), *(treatment == 1, treatment == 2)], dim=1).double()
    confint = torch.tensor(
        [
            [2.6958215, 3.36655581],
            [-0.8577018, -0.06255840],
            [-0.6753696, 0.08244089],
            [-0.3932548, 0.39325483],
            [-0.3932548, 0.39325483],
        ],
        dtype=torch.float64,
    )

    def nll(w: Tensor) -> Tensor:
        return (X @ w).exp().sum() - counts @ (X @ w)

    result = levelport.interval(nll, torch.zeros(5, dtype=torch.float64), confidence=0.95, refine=True)
    assert result.success
    half = 0.5 * (confint[:, 1] - confint[:, 0])
    assert float(((result.lower - confint[:, 0]) / half).abs().max()) <= 1e-3
    assert float(((result.upper - confint[:, 1]) / half).abs().max()) <= 1e-3


def test_structures_and_names() -> None:
    x = {"a": torch.zeros(2, dtype=torch.float64), "b": torch.zeros((), dtype=torch.float64)}
    result = levelport.interval(lambda v: (v["a"] ** 2).sum() + v["b"] ** 2, x, rise=1.0)
    assert result.names == ("a[0]", "a[1]", "b")
    assert result.upper["a"].shape == (2,)
    assert float(result.upper["b"]) == pytest.approx(1.0, abs=1e-3)
    assert "certified" in str(result)


def test_positions_from_an_iterator() -> None:
    x = torch.zeros(3, dtype=torch.float64)
    result = levelport.interval(lambda v: (v**2).sum(), x, iter([2, 0]), rise=1.0)  # type: ignore[arg-type]
    assert result.names == ("x[2]", "x[0]")
    with pytest.raises(ValueError, match=r"or a list of positions.*not \[\]"):
        levelport.interval(lambda v: (v**2).sum(), x, [], rise=1.0)


def test_vector_quantity_and_frame() -> None:
    pytest.importorskip("pandas")
    x = torch.zeros(3, dtype=torch.float64)
    result = levelport.interval(
        lambda v: (v**2).sum(), x, lambda v: torch.stack([v.sum(), v[0] - v[1]]), rise=1.0, names=["sum", "difference"]
    )
    assert torch.allclose(result.upper, torch.tensor([3.0, 2.0], dtype=torch.float64).sqrt(), rtol=1e-3)
    assert list(result.to_frame().index) == ["sum", "difference"]


def test_scalar_quantity_is_a_float() -> None:
    result = levelport.interval(lambda v: (v**2).sum(), torch.zeros(2), lambda v: v[0].exp(), rise=1.0)
    assert isinstance(result.upper, float)
    assert result.upper == pytest.approx(math.e, rel=2e-3)


@pytest.mark.parametrize("given", [{}, {"rise": 1.0, "confidence": 0.9}])
def test_rise_or_confidence_is_required(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="exactly one of rise and confidence"):
        levelport.interval(lambda v: (v**2).sum(), torch.zeros(2), **given)  # type: ignore[arg-type]


def test_not_a_minimizer_is_an_error() -> None:
    with pytest.raises(ObjectiveError, match=r"not a minimizer.*refine=True"):
        levelport.interval(lambda v: (v**2).sum(), torch.ones(2), rise=1.0)
    with pytest.raises(ObjectiveError, match="negative eigenvalue"):
        levelport.interval(lambda v: v[0] ** 2 - v[1] ** 2, torch.zeros(2), rise=1.0)


def test_refine_minimizes_first() -> None:
    result = levelport.interval(lambda v: ((v - 3.0) ** 2).sum(), torch.ones(2), rise=1.0, refine=True)
    assert torch.allclose(result.x, torch.full((2,), 3.0))
    assert torch.allclose(result.upper, torch.full((2,), 4.0, dtype=torch.float64), atol=1e-3)


def test_non_finite_start_is_a_status() -> None:
    result = levelport.interval(lambda v: v.log().sum(), -torch.ones(2), rise=1.0)
    assert {end.status for both in result.ends for end in both} == {EndStatus.FAILED}
    assert str(result).count("failed: at x f = nan") == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_separable_data_are_noted(dtype: torch.dtype) -> None:
    """Every sample is on its right side: f falls to zero at infinity, and is no mean."""
    X = torch.tensor([[1.0, -2.0], [1.0, -1.0], [1.0, 0.5], [1.0, 1.0]], dtype=dtype)
    y = torch.tensor([-1.0, -1.0, 1.0, 1.0], dtype=dtype)

    def nll(w: Tensor) -> Tensor:
        return -torch.nn.functional.logsigmoid(y * (X @ w)).sum()

    result = levelport.interval(nll, torch.zeros(2, dtype=dtype), confidence=0.95, refine=True)
    assert EndStatus.UNBOUNDED in {end.status for both in result.ends for end in both}
    assert "no finite minimizer, as for separable data" in result.notes[0]
    assert not any("is f a mean?" in note for note in result.notes)


def test_mean_in_place_of_sum_is_noted() -> None:
    data = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = levelport.interval(lambda m: 0.5 * (data - m).square().mean(), data.mean().reshape(1), confidence=0.95)
    assert "is f a mean?" in result.notes[0]


@pytest.mark.parametrize(("total", "rise"), [(2.359687843315966, 100.0), (2.3397, 95.1), (2.48 / 3.0, 33.3)])
def test_end_where_f_is_linear_to_the_last_digits(total: float, rise: float) -> None:
    """The pair of such a step has a curvature of 1e-14, and B⁻¹g lost the digits of the gain that was left."""
    minimizer = math.log(total)
    level = total - total * minimizer + rise
    result = levelport.interval(
        lambda x: (x.exp() - total * x).sum(), torch.tensor([minimizer], dtype=torch.float64), rise=rise
    )
    low, high = -1e4, minimizer
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if math.exp(middle) - total * middle > level else (low, middle)
    assert float(result.lower) == pytest.approx(high, abs=2e-3 * (minimizer - high))


def test_bad_arguments_are_named() -> None:
    x = torch.zeros(2, dtype=torch.float64)
    cases = [
        ({"names": 3}, "names must be a list of 2"),
        ({"refine": "no"}, "refine must be True or False"),
        ({"bounds": [(-1.0, 1.0), ("a", 2.0)]}, "bounds must be a pair"),
    ]
    for how, words in cases:
        with pytest.raises(ValueError, match=words):
            levelport.interval(lambda v: v.square().sum(), x, rise=1.0, **how)  # type: ignore[arg-type]


def test_random_quantity_is_an_error() -> None:
    def noisy(v: Tensor) -> Tensor:
        return torch.stack([v[0], v[1] + torch.rand((), dtype=v.dtype)])

    x = torch.zeros(2, dtype=torch.float64)
    for verb, how in ((levelport.interval, {"rise": 1.0}), (levelport.profile, {"rises": [1.0]})):
        with pytest.raises(ObjectiveError, match="the quantity is not deterministic"):
            verb(lambda v: v.square().sum(), x, noisy, **how)
