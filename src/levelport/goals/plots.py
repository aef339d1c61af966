"""Pictures of results, by matplotlib: one call, one labelled picture. Needs the extra ``levelport[plot]``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from levelport.goals.result import IntervalResult

_SURE, _UNSURE, _WALD = "tab:blue", "tab:orange", "0.6"


def axes(ax: Any, *, height: float = 4.0) -> Any:
    """``ax``, or new axes."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'levelport[plot]'.") from error
    figure: Figure = plt.figure(figsize=(6.4, height), layout="constrained")
    return figure.add_subplot()


def plot_interval(result: IntervalResult[Any], ax: Any = None) -> Any:
    """Forest plot: the interval of every quantity with the Wald interval beside it.

    Intervals are drawn around the estimate in units of the Wald interval's half width, where that is known, so that
    quantities of any size can be compared.
    """
    rows = result.rows()
    ax = axes(ax, height=1.2 + 0.3 * len(rows))
    seen: set[str] = set()
    for position, row in enumerate(rows):
        half = 0.5 * (row["wald_upper"] - row["wald_lower"])
        unit = half if math.isfinite(half) and half > 0.0 else 1.0
        lower, upper = ((row[key] - row["estimate"]) / unit for key in ("lower", "upper"))
        sure = {row["lower_status"], row["upper_status"]} <= {"certified", "at_bound"}
        kind = "likelihood interval" if sure else "not certified"
        ends = [
            max(lower, -_EDGE) if not math.isnan(lower) else 0.0,
            min(upper, _EDGE) if not math.isnan(upper) else 0.0,
        ]
        ax.plot(ends, [position, position], color=_SURE if sure else _UNSURE, lw=2.5, label=_once(kind, seen))
        ax.plot([0.0], [position], "|", color="black", ms=8, label=_once("estimate", seen))
        for end, value in zip(ends, (lower, upper), strict=True):
            if math.isinf(value):
                ax.plot([end], [position], ">" if value > 0 else "<", color=_UNSURE, label=_once("unbounded", seen))
        if unit == half:
            ax.plot([-1.0, 1.0], [position + 0.2] * 2, color=_WALD, lw=1.5, label=_once("Wald interval", seen))
    ax.set_yticks(range(len(rows)), [row["name"] for row in rows])
    ax.invert_yaxis()
    ax.set_xlabel("distance from the estimate in half widths of the Wald interval")
    what = f"{100.0 * result.confidence:g} % confidence" if result.confidence is not None else f"rise {result.rise:.4g}"
    ax.set_title(f"Intervals, {what}")
    ax.legend(fontsize="small")
    return ax


_EDGE = 5.0  # half widths at which the picture ends


def _once(label: str, seen: set[str]) -> str | None:
    """The label at its first use, None afterwards, so that the legend has it once."""
    if label in seen:
        return None
    seen.add(label)
    return label
