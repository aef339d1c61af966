"""Pictures of results, by matplotlib: one call, one labeled picture. Needs the extra ``levelport[plot]``."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levelport.goals.result import ContourResult, IntervalResult, ProfileResult

_SURE, _UNSURE, _WALD = "tab:blue", "tab:orange", "0.6"


def axes(ax: Any, *, height: float = 4.0) -> Any:
    """``ax``, or new axes."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'levelport[plot]'.") from error
    return plt.figure(figsize=(6.4, height), layout="constrained").add_subplot()


def plot_interval(result: IntervalResult[Any], ax: Any = None) -> Any:
    """Forest plot: the interval of every quantity with the Wald interval beside it.

    Quantities of comparable size share one axis in their own units. Others are drawn around their estimates in units of
    the Wald interval's half width, or where that is not known, as beside a bound, of their own.
    """
    rows = result.rows()
    ax = axes(ax, height=1.5 + 0.3 * len(rows))
    halves = [_half(row) for row in rows]
    known = [half for half in halves if not math.isnan(half)]
    own_units = bool(known) and len(known) == len(rows) and max(known) <= _COMPARABLE * min(known)
    for position, (row, half) in enumerate(zip(rows, halves, strict=True)):
        scale = 1.0 if math.isnan(half) else half
        origin, unit = (0.0, 1.0) if own_units else (row["estimate"], scale)
        center, reach = (row["estimate"] - origin) / unit, _EDGE * scale / unit
        lower, upper = ((row[key] - origin) / unit for key in ("lower", "upper"))
        sure = {row["lower_status"], row["upper_status"]} <= {"certified", "at_bound"}
        kind = "likelihood interval" if sure else "not certified"
        ends = [
            max(lower, center - reach) if not math.isnan(lower) else center,
            min(upper, center + reach) if not math.isnan(upper) else center,
        ]
        ax.plot(ends, [position, position], color=_SURE if sure else _UNSURE, lw=2.5, label=kind)
        ax.plot([center], [position], "|", color="black", ms=8, label="estimate")
        for end, value in zip(ends, (lower, upper), strict=True):
            if end != value and not math.isnan(value):
                color, told = (_UNSURE, "unbounded") if math.isinf(value) else ("black", "beyond the picture")
                ax.plot([end], [position], ">" if value > end else "<", color=color, label=told)
        if math.isfinite(row["wald_upper"]):
            wald = [(row[key] - origin) / unit for key in ("wald_lower", "wald_upper")]
            ax.plot(wald, [position + 0.2] * 2, color=_WALD, lw=1.5, label="Wald interval")
    if own_units and ax.get_xlim()[0] < 0.0 < ax.get_xlim()[1]:
        ax.axvline(0.0, color="black", lw=0.6)
    ax.set_yticks(range(len(rows)), [row["name"] for row in rows])
    ax.invert_yaxis()
    whose = " of the Wald interval" if all(math.isfinite(row["wald_upper"]) for row in rows) else ""
    ax.set_xlabel("value" if own_units else f"distance from the estimate in half widths{whose}")
    ax.set_title(f"Intervals, {_level(result)}")
    handles: dict[str, Any] = {}  # each label at its first use
    for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
        handles.setdefault(label, handle)
    ax.legend(handles.values(), handles, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def _half(row: dict[str, Any]) -> float:
    """Half the width of the Wald interval, or the longer side of the other where it is not known; NaN without both."""
    for keys in (("wald_lower", "wald_upper"), ("lower", "upper")):
        sides = [abs(row[key] - row["estimate"]) for key in keys]
        if known := [side for side in sides if 0.0 < side < math.inf]:
            return max(known)
    return math.nan


def plot_profile(result: ProfileResult[Any], name: str | None = None, ax: Any = None) -> Any:
    """The profile of one quantity: rise over value, with the Wald parabola of the smallest rise beside it."""
    if name is None:
        name = result.names[0]
    if name not in result.names:
        raise ValueError(f"there is no quantity {name!r} in this profile; choose from {', '.join(result.names)}.")
    index = result.names.index(name)
    ax = axes(ax)
    estimate, ends = result.estimates[index], result.ends[index]
    for side in (0, 1):
        points = [(0.0, estimate, True)]  # √rise, value, certified
        points += [
            (math.sqrt(r), both[side].bound, both[side].success) for r, both in zip(result.rises, ends, strict=True)
        ]
        points = [point for point in points if math.isfinite(point[1])]
        # Values are nearly linear in √rise, rises are not linear in values.
        fine = [
            (s + (t - s) * k / 10.0, a + (b - a) * k / 10.0)
            for (s, a, _), (t, b, _) in pairwise(points)
            for k in range(11)
        ]
        ax.plot([v for _, v in fine], [s * s for s, _ in fine], "-", color=_SURE, label=None if side else "profile")
        for root, value, sure in points[1:]:
            ax.plot([value], [root * root], "o", ms=4, color=_SURE if sure else _UNSURE)
    half = 0.5 * (ends[0][1].wald - ends[0][0].wald)
    if math.isfinite(half) and half > 0.0:
        reach = half * math.sqrt(result.rises[-1] / result.rises[0])
        values = [estimate + reach * (k / 50.0 - 1.0) for k in range(101)]
        parabola = [result.rises[0] * ((v - estimate) / half) ** 2 for v in values]
        ax.plot(values, parabola, "--", color=_WALD, label="Wald parabola")
    ax.set_xlabel(name)
    ax.set_ylabel("rise of f above its minimum")
    ax.set_title(f"Profile of {name}")
    ax.legend(fontsize="small")
    return ax


def plot_contour(result: ContourResult[Any], ax: Any = None) -> Any:
    """The boundary of the region of two quantities, with gaps where there is none."""
    ax = axes(ax, height=4.8)
    closed = [p if all(map(math.isfinite, p)) else (math.nan, math.nan) for p in (*result.points, result.points[0])]
    ax.plot([a for a, _ in closed], [b for _, b in closed], "-", color=_SURE, label="region")
    ax.plot(*([value] for value in result.estimate), "+", color="black", label="estimate")
    unsure = [p for p, end in zip(result.points, result.ends, strict=True) if not end.success and math.isfinite(p[0])]
    if unsure:
        ax.plot([a for a, _ in unsure], [b for _, b in unsure], "o", ms=4, color=_UNSURE, label="not certified")
    ax.set_xlabel(result.names[0])
    ax.set_ylabel(result.names[1])
    ax.set_title(f"{result.names[0]} and {result.names[1]}, {_level(result)}")
    ax.legend(fontsize="small")
    return ax


_EDGE = 5.0  # half widths at which the picture ends
_COMPARABLE = 30.0  # ratio of half widths up to which quantities share an axis


def _level(result: IntervalResult[Any] | ContourResult[Any]) -> str:
    return f"{100.0 * result.confidence:g} % confidence" if result.confidence is not None else f"rise {result.rise:.4g}"
