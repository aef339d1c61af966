"""Bounds and measurements on problems at hand, the picture, and the two commands."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from theory_problems import Case, cases
from typer.testing import CliRunner

from levelport import LinearObjective
from levelport_lab.cli.theory import _better_bound, diagnose_command, theory_command
from levelport_lab.pictures import save
from levelport_lab.theory.bounds import HORIZON, Audit, audit, warm_start
from levelport_lab.theory.constants import Constant, Kind
from levelport_lab.theory_pictures import audit_picture, draw_certificates, draw_gaps

app = typer.Typer()
app.command("theory")(theory_command)
app.command("diagnose")(diagnose_command)
cli = CliRunner()


@pytest.fixture(scope="module")
def logistic() -> Audit:
    """Thirteen parameters, teleports by the default solver."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(120, 13, generator=generator, dtype=torch.float64) * torch.logspace(0, -1, 13, dtype=torch.float64)
    y = torch.where(X[:, 0] + torch.randn(120, generator=generator, dtype=torch.float64) > 0, 1.0, -1.0).double()
    objective = LinearObjective.logistic(X, y, penalty=1e-3)
    return audit(objective, warm_start(objective, torch.zeros(13, dtype=torch.float64), 20), 12)


def test_all_guarantees_hold_with_the_librarys_own_solver(logistic: Audit) -> None:
    assert logistic.violations() == []
    assert logistic.worst_alignment > 1 - 1e-6
    labels = {bound.label for bound in logistic.bounds if not bound.caveats}
    assert {"teleports, measured gaps", "teleports, explicit", "teleports, recursion", "GD: 2L‖w₀-w*‖²/K"} <= labels


def test_teleports_do_what_the_theory_says_they_do(logistic: Audit) -> None:
    assert logistic.teleported.final_gap < 1e-3 * logistic.descent.final_gap
    assert logistic.constants.initial_gap < logistic.payoff_gap


@pytest.mark.parametrize("case", cases()[1:7], ids=lambda case: case.name)
def test_quadratics_use_the_exact_teleport(case: Case) -> None:
    found = audit(case.objective, case.start, 8)
    assert found.violations() == []
    assert found.teleported.gaps[2] <= 1e-12 * found.constants.initial_gap
    assert math.isinf(found.payoff_gap)
    assert found.break_even == 2


def test_a_broken_guarantee_would_be_reported(logistic: Audit) -> None:
    broken = [replace(bound, rate=[1e-3 * value for value in bound.rate]) for bound in logistic.bounds]
    found = replace(logistic, bounds=tuple(broken)).violations()
    assert "strongly convex: (1-μ/L)ᴷ δ₀" in found
    assert not any("sampled" in label for label in found)  # no guarantee, hence nothing to break


def test_picture_shows_measurements_and_every_bound(logistic: Audit, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    draw_gaps(logistic, axes)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[:2] == ["measured: GD", "measured: GD with teleports (rounding from K = 6 on)"]
    assert logistic.teleported.resolved(5)
    assert not logistic.teleported.resolved(6)
    assert len(labels) == 3 + len(logistic.bounds)
    assert any("vacuous" in label for label in labels)
    assert axes.get_yscale() == "log"
    axes = Figure().add_subplot()
    draw_certificates(logistic, axes)
    assert [len(line.get_xdata()) for line in axes.get_lines()[:3]] == [len(logistic.certificates)] * 3
    save(audit_picture(logistic, "a run"), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_non_convex_functions_are_refused() -> None:
    result = cli.invoke(app, ["theory", "goldstein-price"])
    assert result.exit_code == 2
    assert "negative curvature" in result.output


def test_bounds_are_compared_for_the_same_steps(logistic: Audit) -> None:
    """Brute force over K: the best bound for alternating teleports against the best one for plain descent."""
    constants = logistic.constants
    stability = constants.stability
    assert stability is not None
    L, R, mu, gap, horizon = constants.L.value, constants.radius.value, constants.mu.value, constants.initial_gap, 2000
    ours, theirs = 1 / gap, 1 / gap
    led = []
    for k in range(horizon):
        ours = max(ours + 1 / (2 * L * R**2), ours / (1 - mu / L), ours * stability.growth if k % 2 else 0.0)
        theirs = max(theirs + 1 / (2 * L * constants.distance**2), theirs / (1 - mu / L))
        led.append(ours > max(theirs, 2 * (k + 1) / (L * constants.distance**2)))
    behind = [k for k, leads in enumerate(led) if not leads]
    assert logistic.break_even == (behind[-1] + 2 if behind else 1)


def test_strong_convexity_may_beat_any_teleport() -> None:
    """A strong penalty and a far start: 1 - μ/L beats the proved 1 - μ̃/L̃, and the audit says so."""
    generator = torch.Generator().manual_seed(1)
    X = 3 * torch.randn(60, 3, generator=generator, dtype=torch.float64)
    y = torch.where(torch.rand(60, generator=generator) < 0.5, 1.0, -1.0).double()
    objective = LinearObjective.logistic(X, y, penalty=0.05)
    found = audit(objective, torch.full((3,), 4.0, dtype=torch.float64), 6)
    stability = found.constants.stability
    assert stability is not None
    assert found.constants.mu.value / found.constants.L.value > stability.lower / stability.upper
    assert found.break_even == math.inf
    assert found.payoff_gap == 0.0
    assert found.violations() == []
    trivial = next(bound for bound in found.bounds if bound.label.startswith("strongly convex"))
    sharp = next(bound for bound in found.bounds if bound.label == "teleports, recursion")
    assert all(a <= b * (1 + 1e-12) for a, b in zip(sharp.rate, trivial.rate, strict=True))


def with_constants(found: Audit, mu: float, upper: float, lower: float) -> Audit:
    """The same audit, had the problem these constants."""
    constants = replace(
        found.constants,
        mu=Constant(mu, Kind.LOWER, ""),
        stability_upper=Constant(upper, Kind.UPPER, ""),
        stability_lower=Constant(lower, Kind.LOWER, ""),
    )
    return replace(found, constants=constants)


@pytest.mark.parametrize(("share", "never"), [(0.0, False), (0.5, False), (0.99, False), (1.0, True), (3.0, True)])
def test_never_is_said_only_where_contraction_wins(logistic: Audit, share: float, never: bool) -> None:
    """μ/L = share·μ̃/L̃: below 1, teleports lead in the end, be it late."""
    ratio = 1e-4
    found = with_constants(logistic, share * ratio * logistic.constants.L.value, 1e3, 1e3 * ratio)
    assert found.outdone == never
    assert (found.break_even == math.inf) == never
    assert ("never has the better guarantee" in _better_bound(found)) == never


def test_a_lead_that_comes_late_is_not_called_never(logistic: Audit) -> None:
    """Without strong convexity a teleport multiplies, and a gradient step adds: 2.5 L̃/μ̃ is late, but a number."""
    found = with_constants(logistic, 0.0, 3e6, 1.0)
    assert found.break_even is None
    text = _better_bound(found)
    assert "never" not in text
    assert str(HORIZON) in text


def test_too_few_iterations_are_refused() -> None:
    with pytest.raises(ValueError, match="iterations must be at least 2"):
        audit(cases()[0].objective, cases()[0].start, 1)


def test_theory_command_prints_constants_bounds_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "quadratic.png"
    result = cli.invoke(app, ["theory", "quadratic/100", "--iterations", "8", "--plot", str(picture)])
    assert result.exit_code == 0, result.output
    assert "exact: largest eigenvalue" in result.output
    assert "measured: GD with teleports" in result.output
    assert picture.exists()


def test_theory_command_on_a_named_problem() -> None:
    result = cli.invoke(app, ["theory", "logreg/blood", "--reg", "0.01", "--warmup", "3", "--iterations", "6"])
    assert result.exit_code == 0, result.output
    assert "upper bound: range of curvature" in result.output
    assert "Caveat" not in result.output
    assert "vacuous" in result.output
    assert "BROKEN" not in result.output
    assert "-e-" not in result.output  # no negative gap is printed as a number
    assert "proved from positions" in result.output


def test_booth_is_an_observed_quadratic() -> None:
    result = cli.invoke(app, ["theory", "booth", "--iterations", "4"])
    assert result.exit_code == 0, result.output
    assert "looks quadratic" in result.output
    assert "rest on an observation" in result.output


@pytest.mark.parametrize("command", ["theory", "diagnose"])
@pytest.mark.parametrize(
    ("name", "hint"), [("boot", "booth"), ("quadratic/x", "quadratic/1e4"), ("logreg/blod", "blood")]
)
def test_misspelt_names_get_a_suggestion(command: str, name: str, hint: str) -> None:
    result = cli.invoke(app, [command, name])
    assert result.exit_code == 2
    assert hint in result.output


def test_diagnose_command_speaks_in_sentences() -> None:
    result = cli.invoke(app, ["diagnose", "quadratic/100"])
    assert result.exit_code == 0, result.output
    assert "A teleport pays here" in result.output
    assert "0.00° from the Newton direction" in result.output
