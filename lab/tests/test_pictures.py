"""Labels of pictures do not lie on each other, whatever a study draws."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import matplotlib as mpl
import pytest

from levelport_lab.cli.theory import _named
from levelport_lab.pictures import keep_labels_apart, new_figure, save
from levelport_lab.theory.bounds import audit
from levelport_lab.theory_pictures import draw_gaps


def overlaps(axis: mpl.axis.Axis) -> int:
    labels = [*axis.get_ticklabels(), *axis.get_ticklabels(minor=True)]
    boxes = [label.get_window_extent() for label in labels if label.get_visible() and label.get_text()]
    return sum(a.overlaps(b) for a, b in combinations(boxes, 2))


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_labels_that_would_touch_are_thinned_out(scale: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    figure, [[panel]] = new_figure(1, 1, width=1.6, height=1.2)
    panel.plot([100.0, 350.0], [100.0, 350.0])
    panel.set(xscale=scale, yscale=scale)
    if scale == "linear":
        panel.set_xticks(range(100, 351, 10), labels=[f"number {n}" for n in range(100, 351, 10)])
    figure.draw_without_rendering()
    assert overlaps(panel.xaxis) > 0  # the test would test nothing
    save(figure, tmp_path / "picture.png")
    figure.draw_without_rendering()
    assert overlaps(panel.xaxis) == overlaps(panel.yaxis) == 0


def test_labels_with_room_stay() -> None:
    figure, [[panel]] = new_figure(1, 1, width=4.0, height=3.0)
    panel.plot([0.0, 1.0], [0.0, 1.0])
    figure.draw_without_rendering()
    before = [label.get_visible() for label in panel.get_xticklabels()]
    keep_labels_apart(figure)
    assert [label.get_visible() for label in panel.get_xticklabels()] == before


def test_legend_of_the_theory_names_drawn_lines_only() -> None:
    """On Booth, a quadratic, the bounds of teleports are 0 from the first teleport on."""
    objective, start = _named("booth", None, 0)
    found = audit(objective, start, 12)
    _, [[panel]] = new_figure(1, 1)
    draw_gaps(found, panel)
    handles, labels = panel.get_legend_handles_labels()
    zero = [bound.label for bound in found.bounds if bound.rate[-1] == 0.0]
    assert zero  # the test would test nothing
    assert not [label for label in labels if label.startswith(tuple(zero))]
    assert any(label.startswith("strongly convex") for label in labels)
    for handle, label in zip(handles, labels, strict=True):
        heights = [math.isfinite(y) and y > 0.0 for y in handle.get_ydata()]
        assert any(map(all, pairwise(heights))) or label.endswith("(vacuous)")
