"""Figure 7: success against the strength of regularisation, from the runs of Figure 4."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from levelport.lab.paper.methods import Method
from levelport.lab.paper.profile_grid import HALF_NAMES, HalfName, Variant
from levelport.lab.paper.profile_studies import NetworkProfile
from levelport.lab.paper.profiles import Axis
from levelport.lab.paper.study import NOT_RUN, Results, Setup, Verdict
from levelport.lab.paper.teleports import SOLVER_TITLES, SolverName
from levelport.lab.pictures import (
    METHOD_COLOURS,
    WITH_TELEPORTS,
    WITHOUT_TELEPORTS,
    legend_below,
    method_legend,
    new_figure,
)


class Regularisation(NetworkProfile):
    """Figure 7: the runs of Figure 4, seen by penalty."""

    name = "fig7"
    title = "Success against the strength of regularisation, ReLU networks"

    def by_reg(self, name: HalfName, setup: Setup, results: Results) -> dict[Variant, dict[float, float]]:
        """Share of data sets solved, per variant and penalty."""
        scores = self.scores(name, setup, results)
        shares: dict[Variant, dict[float, float]] = {}
        for variant in dict.fromkeys(score.variant for score in scores):
            for reg in sorted({score.reg for score in scores}):
                costs = [s.spent(Axis.ITERATIONS) for s in scores if s.variant == variant and s.reg == reg]
                shares.setdefault(variant, {})[reg] = float(np.mean(np.isfinite(costs)))
        return shares

    def pictures(self, setup: Setup, results: Results) -> dict[str, Figure]:
        halves = {name: self.by_reg(name, setup, results) for name in HALF_NAMES}
        shown = [name for name in HALF_NAMES if halves[name]]
        if not shown:
            return {}
        figure, panels = new_figure(len(setup.solvers), len(shown), width=3.4)
        for row, solver in zip(panels, setup.solvers, strict=True):
            for panel, name in zip(row, shown, strict=True):
                shown_here = [(v, shares) for v, shares in halves[name].items() if v.solver in (None, solver)]
                for number, (variant, shares) in enumerate(shown_here):
                    # Many methods solve the same share: each a little to the right of the one before.
                    regs = [reg * 1.02**number for reg in shares]
                    style = WITH_TELEPORTS if variant.solver else WITHOUT_TELEPORTS
                    colour = METHOD_COLOURS[variant.method]
                    panel.plot(regs, list(shares.values()), color=colour, linestyle=style, marker="o", ms=2.5)
                panel.set_xscale("log")
                panel.set_ylim(-0.03, 1.03)
                panel.set_xlabel("regularisation strength")
                panel.set_ylabel("data sets solved")
                panel.set_title(f"{name}, {SOLVER_TITLES[solver]}")
        legend_below(figure, method_legend(list(Method)))
        return {self.name: figure}

    def table(self, setup: Setup, results: Results) -> pd.DataFrame:
        rows = [
            {
                "half": name,
                "method": variant.method.value,
                "teleports": variant.solver or "none",
                "reg": reg,
                "solved": share,
            }
            for name in HALF_NAMES
            for variant, shares in self.by_reg(name, setup, results).items()
            for reg, share in shares.items()
        ]
        return pd.DataFrame(rows)

    def digest(self, table: pd.DataFrame) -> pd.DataFrame:
        """Penalties side by side."""
        if table.empty:
            return table
        wide = table.pivot_table(index=["half", "method", "teleports"], columns="reg", values="solved", sort=False)
        wide.columns = pd.Index([f"reg {reg:g}" for reg in wide.columns])
        return wide.reset_index()

    def statement(self, half: HalfName) -> str:
        return f"All {half} methods solve more network problems when the regularisation is large."

    def check(self, half: HalfName, solver: SolverName, setup: Setup, results: Results) -> Verdict:
        shares = self.by_reg(half, setup, results)
        if not shares or any(len(by) < 2 for by in shares.values()):
            return NOT_RUN
        relevant = {variant: by for variant, by in shares.items() if variant.solver in (None, solver)}
        changes = [by[max(by)] - by[min(by)] for by in relevant.values()]
        regs = next(iter(relevant.values()))
        grown = sum(change >= 0 for change in changes)
        words = f"{grown} of {len(changes)} solve at least as many at {max(regs):g} as at {min(regs):g}"
        return Verdict(grown == len(changes), words)
