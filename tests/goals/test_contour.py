"""``contour`` and ``profile`` against closed forms and ``interval``, and their pictures."""

from __future__ import annotations

import math

import pytest
import torch
from likelihoods import hill
from torch import Tensor

import levelport
from levelport.goals import EndStatus

DTYPE = torch.float64


def ellipse(v: Tensor) -> Tensor:
    return v[0] ** 2 + v[0] * v[1] + v[1] ** 2 + 0.5 * (v[2] - v[0]) ** 2


def banana(v: Tensor) -> Tensor:
    return v[0] ** 2 + (3.0 * (v[1] - v[0] ** 2)) ** 2 + v[2] ** 2


def test_contour_of_an_ellipse() -> None:
    result = levelport.contour(ellipse, torch.zeros(3, dtype=DTYPE), (0, 1), rise=2.0, points=16)
    assert result.success
    assert [a * a + a * b + b * b for a, b in result.points] == pytest.approx([2.0] * 16, rel=2e-3)


def test_contour_that_is_not_convex() -> None:
    result = levelport.contour(banana, torch.zeros(3, dtype=DTYPE), (0, 1), rise=1.0, points=24)
    values = [a * a + (3.0 * (b - a * a)) ** 2 for a, b in result.points]
    assert result.success
    assert values == pytest.approx([1.0] * 24, rel=5e-3)


def test_contour_is_free_of_units() -> None:
    units = torch.tensor([1e-6, 1e5, 1.0], dtype=DTYPE)
    zero = torch.zeros(3, dtype=DTYPE)
    plain = levelport.contour(ellipse, zero, (0, 1), rise=2.0, points=8)
    scaled = levelport.contour(lambda v: 1e4 * ellipse(v / units), zero, (0, 1), rise=2e4, points=8)
    for (a, b), (c, d) in zip(plain.points, scaled.points, strict=True):
        assert (c / 1e-6, d / 1e5) == pytest.approx((a, b), rel=1e-3, abs=1e-3)


def test_joint_confidence_uses_two_degrees_of_freedom() -> None:
    result = levelport.contour(ellipse, torch.zeros(3, dtype=DTYPE), (0, 1), confidence=0.95, points=3)
    assert result.rise == pytest.approx(-math.log(0.05))


def test_profile_agrees_with_intervals() -> None:
    problem = hill(1)
    x = problem.minimizer()
    rises = [0.5, 1.0, 2.0, 4.0]
    result = levelport.profile(problem.fun, x, [3], rises=rises)
    assert result.success
    for index, rise in enumerate(rises):
        alone = levelport.interval(problem.fun, x, [3], rise=rise, tol=1e-5)
        half = 0.5 * float(alone.upper - alone.lower)
        assert abs(result.upper[0][index] - float(alone.upper)) <= 1e-3 * half
        assert abs(result.lower[0][index] - float(alone.lower)) <= 1e-3 * half
    assert all(
        end.value <= result.value + rise for rise, both in zip(rises, result.ends[0], strict=True) for end in both
    )


def test_numerical_trouble_at_the_minimizer_is_a_status() -> None:
    def undefined(w: Tensor) -> Tensor:
        return (w * w).sum() + (w[0] - 5.0).sqrt()

    def kinked(w: Tensor) -> Tensor:  # infinite curvature at 0
        return w[0].abs() ** 1.5 + w[1] ** 2

    x = torch.zeros(2, dtype=DTYPE)
    for f in (undefined, kinked):
        region = levelport.contour(f, x, (0, 1), rise=1.0, points=3)
        curve = levelport.profile(f, x, rises=[1.0, 2.0])
        assert {end.status for result in (region, curve) for end in result.every_end()} == {EndStatus.FAILED}
        assert all(math.isnan(value) for point in region.points for value in point)
        assert "x" in curve.ends[0][0][0].message


def test_pictures_are_labelled() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    problem = hill(1)
    x = problem.minimizer()
    forest = levelport.interval(problem.fun, x, confidence=0.95).plot()
    curve = levelport.profile(problem.fun, x, [0], rises=[0.5, 1.92], names=["bottom"]).plot()
    region = levelport.contour(problem.fun, x, (0, 1), confidence=0.95, points=8).plot()
    assert [tick.get_text() for tick in forest.get_yticklabels()] == ["x[0]", "x[1]", "x[2]", "x[3]"]
    assert curve.get_xlabel() == "bottom"
    assert "95 % confidence" in region.get_title()
    assert "Wald interval" in [text.get_text() for text in forest.get_legend().get_texts()]
    plt.close("all")


def test_bad_arguments_are_named() -> None:
    x = torch.zeros(3, dtype=DTYPE)
    with pytest.raises(ValueError, match="two different entries"):
        levelport.contour(ellipse, x, (1, 1), rise=1.0)
    with pytest.raises(ValueError, match="at most 1000"):
        levelport.contour(lambda v: v.square().sum(), torch.zeros(1001, dtype=DTYPE), (0, 1), rise=1.0)
    with pytest.raises(ValueError, match="every rise must be positive"):
        levelport.profile(ellipse, x, rises=[1.0, -1.0])
    with pytest.raises(ValueError, match="rise must be finite"):
        levelport.contour(ellipse, x, (0, 1), rise=math.inf)
    with pytest.raises(ValueError, match="every rise must be finite"):
        levelport.profile(ellipse, x, rises=[1.0, math.inf])
    for names in (["a", "a"], ["a", "point"], ["status", "a"]):
        with pytest.raises(ValueError, match="names must differ"):
            levelport.contour(ellipse, x, (0, 1), rise=1.0, names=names)
    with pytest.raises(ValueError, match="entry 7"):
        levelport.interval(ellipse, x, [7], rise=1.0)


def test_pictures_say_what_they_cannot_show() -> None:
    """No line across directions without a boundary, and an arrow where an interval leaves the picture."""
    pytest.importorskip("matplotlib").use("agg")
    import matplotlib.pyplot as plt

    def cross(v: Tensor) -> Tensor:
        return (v**2 / (1.0 + v**2)).sum()

    zero = torch.zeros(2, dtype=DTYPE)
    line = levelport.contour(cross, zero, (0, 1), rise=1.2, points=24).plot().lines[0]
    distances = torch.tensor(line.get_xydata()).norm(dim=1)
    assert distances.isnan().sum() == 5  # the four arms, the first of them at both ends
    steep = levelport.interval(lambda v: (v**2).sum(), zero, lambda v: torch.exp(9.0 * v[0]), rise=1.0)
    assert "beyond the picture" in steep.plot().get_legend_handles_labels()[1]
    units = torch.tensor([1.0, 1e3], dtype=DTYPE)
    beside = levelport.interval(lambda v: (v / units).sum(), zero, rise=1.0, bounds=(0.0, None)).plot()  # no Wald width
    assert beside.get_xlabel() == "distance from the estimate in half widths"
    assert [line.get_xdata()[1] for line in beside.lines if len(line.get_xdata()) == 2] == pytest.approx([1.0, 1.0])
    plt.close("all")
