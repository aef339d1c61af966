"""What the page shows, computed without a page: level sets, teleport, certificate, descents at equal cost."""

from __future__ import annotations

import math
from itertools import cycle

import numpy as np
import pytest
import torch

from levelport.optim import Armijo, Never, minimize
from levelport.solvers import teleport
from levelport_lab.play.scene import MAX_COST, SCHEDULES, TYPED, Descent, State, _comparison, names, scene
from levelport_lab.problems.functions import FUNCTIONS, booth

BOOTH = scene(State())


def test_the_teleport_is_the_library_s() -> None:
    """Booth's largest gradient at this level is known: along the eigenvector of 18, ‖∇f‖² = 2·18·f."""
    x0 = torch.tensor([7.5, -4.0], dtype=torch.float64)
    result = teleport(booth, x0)
    assert BOOTH.end == pytest.approx(result.x.tolist(), rel=1e-12)
    gradient = torch.func.grad(booth)(torch.tensor(BOOTH.end, dtype=torch.float64))
    assert float(gradient.norm()) == pytest.approx(math.sqrt(36 * float(booth(x0))), rel=1e-6)
    assert "57.628" in BOOTH.certificate[0]
    assert "not above the start" in BOOTH.certificate[0]
    assert "λ = 18." in BOOTH.certificate[3]


def test_the_rim_lies_at_the_level_and_the_shade_below_it() -> None:
    level = float(booth(torch.tensor(BOOTH.start)))
    on_rim = torch.from_numpy(np.concatenate(BOOTH.rim))
    assert torch.func.vmap(booth)(on_rim).numpy() == pytest.approx(level, rel=0.02)
    middle = np.concatenate(BOOTH.shade[0]).mean(axis=0)
    assert float(booth(torch.from_numpy(middle))) < level
    assert len(BOOTH.contours) > 5


def test_iterates_stay_in_the_sub_level_set() -> None:
    level = float(booth(torch.tensor(BOOTH.start, dtype=torch.float64)))
    for trail in BOOTH.trails:
        assert (torch.func.vmap(booth)(torch.from_numpy(trail)) <= level * (1 + 1e-9)).all()


def test_descents_are_those_of_minimize_up_to_the_same_cost() -> None:
    plain, teleported = BOOTH.descents
    result = minimize(booth, torch.tensor([7.5, -4.0], dtype=torch.float64), Armijo(), schedule=Never())
    assert plain.values == pytest.approx([row.value for row in result.trace][: len(plain.values)], rel=1e-9, abs=1e-12)
    assert (len(plain.leaps), len(teleported.leaps)) == (0, 1)
    assert teleported.leaps[0][1] == pytest.approx(BOOTH.end, abs=1e-6)
    for descent in BOOTH.descents:
        assert descent.costs.max() <= MAX_COST
        assert sum(map(len, descent.legs)) == len(descent.values)


def test_a_loss_is_called_a_loss() -> None:
    lost = scene(State("himmelblau", start=(0.0, 0.0), schedule="before every step"))
    plain, teleported = lost.descents
    level = 1e-6 * plain.values[0]
    assert plain.cost_to(level) < teleported.cost_to(level)  # type: ignore[operator]
    assert lost.comparison[1].endswith("Teleports do not pay here.")
    assert BOOTH.comparison[1].endswith("Teleports pay here.")


def test_different_minima_are_no_gain_in_speed() -> None:
    """(x² - 1)² + x/5 + y² has a low minimum on the left and a high one on the right."""
    (low, high) = (_descent("with teleports", -1.0, [5.0, -0.2]), _descent("without teleports", 1.0, [5.0, 0.2]))
    for pair, lower in (((high, low), "with teleports"), ((low, high), "with teleports")):
        said = " ".join(_comparison(pair, -0.2, proven=True))
        assert "different places" in said
        assert f"f ends lower {lower}." in said
        assert "pay" not in said
        assert "0.2" in said
    together = _comparison((high, _descent("with teleports", 1.0, [5.0, 1.0, 0.2])), -0.2, proven=True)
    assert "where both come to rest, above f* = -0.2" in together[0]
    assert together[1].endswith("1 without, 2 with. Teleports do not pay here.")


def _descent(label: str, end: float, values: list[float]) -> Descent:
    """Made up: a run that rests at (end, 0)."""
    return Descent(label, [np.array([[end, 0.0]])], [], np.arange(float(len(values))), np.array(values), True)


def test_budget_and_radius_are_kept() -> None:
    short = scene(State(max_hvps=2))
    assert "Hessian-vector products: 2)" in short.certificate[-1] or "products: 1)" in short.certificate[-1]
    near = scene(State(radius=0.5))
    assert math.dist(near.start, near.end) <= 0.5 * (1 + 1e-9)


@pytest.mark.parametrize("name", names()[:-1])
def test_every_named_function_has_a_scene(name: str) -> None:
    shown = scene(State(name, start=FUNCTIONS[name].start))
    left, right, bottom, top = shown.window
    assert left <= shown.start[0] <= right
    assert bottom <= shown.start[1] <= top
    assert shown.shade
    assert all(sentence.endswith(".") for sentence in (*shown.certificate, *shown.comparison))


TYPICAL = ["sin(x) + y^2/4", "x*y", "log(x) + y**2", "x", "abs(x) + abs(y)", "1/x", "1e300*x**16", "x - x"]


@pytest.mark.parametrize(("text", "schedule"), list(zip(TYPICAL, cycle(SCHEDULES), strict=False)))
def test_whatever_is_typed_has_a_scene(text: str, schedule: str) -> None:
    """Unbounded, undefined on half of the plane, not smooth, flat, nearly infinite: finite arrays, and sentences."""
    shown = scene(State(TYPED, text, (2.0, 1.0), max_hvps=20, schedule=schedule))
    for descent in shown.descents:
        assert np.isfinite(descent.values).all()
    for line in (*shown.contours, *shown.rim, *shown.trails):
        assert np.isfinite(line).all()
    assert all(sentence.endswith(".") for sentence in (*shown.certificate, *shown.comparison))


def test_typed_rosenbrock_has_a_reference_and_a_verdict() -> None:
    """The minimum is 0, at (1, 1), which neither descent reaches; the page does not know it and finds it."""
    shown = scene(State(TYPED, "(1 - x)**2 + 100*(y - x**2)**2", (2.0, 1.0)))
    plain, teleported = (float(descent.values[-1]) for descent in shown.descents)
    assert min(plain, teleported) > 1e-4
    assert shown.minimum == pytest.approx(0.0, abs=1e-12)
    assert shown.reference == "f - value where a longer run rests"
    lower = "without teleports" if plain < teleported else "with teleports"
    assert shown.comparison[1].endswith(f"Neither gets there. f ends lower {lower}.")


def test_an_unknown_minimum_is_not_pretended_to() -> None:
    shown = scene(State(TYPED, "x*y", (2.0, 1.0), schedule="before every step"))
    assert shown.minimum is None
    plain, teleported = (float(descent.values[-1]) for descent in shown.descents)
    assert shown.floor == min(plain, teleported)
    assert f"f ends lower {'without' if plain < teleported else 'with'} teleports. A longer run" in shown.comparison[1]
    assert "outside the picture" in shown.certificate[0]


@pytest.mark.parametrize(
    ("settings", "fragment"),
    [
        ({"function": "both"}, "Did you mean 'booth'"),
        ({"function": TYPED}, "empty"),
        ({"function": TYPED, "expression": "log(x)", "start": (-1.0, 0.0)}, "Click where it is defined"),
        ({"start": (math.nan, 0.0)}, "finite"),
        ({"max_hvps": 0}, "max_hvps must be at least 1"),
        ({"radius": -1.0}, "radius must be positive"),
        ({"schedule": "now"}, "schedule must be"),
    ],
)
def test_wrong_settings_are_sentences(settings: dict[str, object], fragment: str) -> None:
    with pytest.raises(ValueError, match=r"\.$") as caught:
        scene(State(**settings))  # type: ignore[arg-type]
    assert fragment in str(caught.value)
