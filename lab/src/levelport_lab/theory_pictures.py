"""Bounds beside measurements as a picture: gaps and bounds over iterations, and the certificate of every teleport."""

from __future__ import annotations

import math
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from levelport_lab.pictures import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, new_figure
from levelport_lab.theory.bounds import Audit

_LOOKS = {
    "GD: 2L‖w₀-w*‖²/K": (GREY, "--"),
    "GD, Armijo: L‖w₀-w*‖²/2K": (BLACK, "--"),
    "teleports: 2LR²/K": (PURPLE, "-"),
    "strongly convex: (1-μ/L)ᴷ δ₀": (GREEN, "-"),
    "teleports, measured gaps": (ORANGE, "-"),
    "teleports, explicit": (BLUE, "--"),
    "teleports, recursion": (BLUE, "-"),
    "Newton steps, recursion": (SKY, "-."),
}


def draw_gaps(found: Audit, axes: Axes) -> None:
    """Thick lines: measured, with dots at teleports. Thin: guarantees. Dotted: bounds with a caveat.

    Bounds are drawn where they say more than δ_K ≤ δ_0, and are not 0, which no logarithm shows; measurements where
    they are more than rounding. The legend names vacuous bounds, without a line; a bound of which zeros leave no line
    it does not name.
    """
    descent, teleported, newton = found.descent, found.teleported, found.newton
    for label, run, colour, width in (
        ("measured: GD", descent, BLACK, 2.2),
        ("measured: GD with teleports", teleported, RED, 2.8),
        ("measured: GD with Newton steps", newton, SKY, 1.4),
    ):
        gaps, gone = _until_rounding([g if run.resolved(k) else 0.0 for k, g in enumerate(run.gaps)], run.rounding)
        axes.plot(range(len(gaps)), gaps, color=colour, linewidth=width, label=label + gone)
        if run is teleported:
            dots = [k for k in sorted(found.schedule) if k < len(gaps)]
            axes.plot(dots, [gaps[k] for k in dots], "o", color=colour, markersize=4)
    for bound in found.bounds:
        colour, style = _LOOKS.get(bound.label, (GREY, "-"))
        says = [None if found.vacuous(bound, k) else value for k, value in enumerate(bound.rate)]
        vacuous = all(value is None for value in says)
        rate, gone = _until_rounding([value or math.nan for value in says], descent.rounding)
        if not vacuous and not any(math.isfinite(a) and math.isfinite(b) for a, b in pairwise(rate)):
            continue
        remark = " (vacuous)" if vacuous else " (no guarantee)" if bound.caveats else gone
        style = "none" if vacuous else ":" if bound.caveats else style
        axes.plot(range(len(rate)), rate, linestyle=style, color=colour, linewidth=1.2, label=bound.label + remark)
    axes.axhline(found.constants.initial_gap, color=GREY, linewidth=0.6)
    axes.axhline(descent.rounding, color=GREY, linewidth=0.6, linestyle=":")
    wide = axes.get_yaxis_transform()
    axes.text(0.99, descent.rounding, "rounding", fontsize=6, color=GREY, ha="right", va="bottom", transform=wide)
    axes.set_yscale("log")
    axes.set_ylim(0.3 * descent.rounding, 3.0 * found.constants.initial_gap)
    axes.set_xlabel("iteration K")
    axes.set_ylabel("f(w_K) - f*")
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _until_rounding(values: list[float], rounding: float) -> tuple[list[float], str]:
    """The values down to the first that is no more than rounding, drawn there, and words for the legend."""
    end = next((k for k, value in enumerate(values) if value <= rounding), None)
    if end is None:
        return values, ""
    return [*values[:end], rounding, *[math.nan] * (len(values) - end - 1)], f" (rounding from K = {end} on)"


def draw_certificates(found: Audit, axes: Axes) -> None:
    """The three factors of every step after a teleport: proved, from the two pairs, measured."""
    steps = [one.k for one in found.certificates]
    for label, name, colour, marker in (
        ("proved from positions", "proved", BLUE, "^"),
        ("from the two pairs", "pair", ORANGE, "s"),
        ("measured", "measured", RED, "o"),
    ):
        values = [getattr(one, name) for one in found.certificates]
        shown = [value if value > 0.0 else math.nan for value in values]
        axes.plot(steps, shown, marker=marker, linestyle=":", color=colour, label=label)
    trivial = 1.0 - found.constants.mu.value / found.constants.L.value
    if 0.0 < trivial < 1.0:
        axes.axhline(trivial, color=GREY, linewidth=0.8, linestyle="--", label="1 - μ/L, any step")
    axes.set_yscale("log")
    axes.set_xticks(steps)
    axes.set_xlabel("iteration k of the teleport")
    axes.set_ylabel("factor on f - f* at the next step")
    axes.legend(fontsize=7, frameon=False, loc="lower left")


def audit_picture(found: Audit, title: str) -> Figure:
    """Draw both panels, that of certificates where there are two to compare."""
    if len(found.certificates) > 1:
        figure, [[certificates, gaps]] = new_figure(1, 2, width=5.0, height=3.6)
        draw_certificates(found, certificates)
    else:
        figure, [[gaps]] = new_figure(1, 1, width=8.0, height=3.6)
    draw_gaps(found, gaps)
    figure.suptitle(title, fontsize=10)
    return figure
