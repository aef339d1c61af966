"""Figure 7: success against the strength of regularization."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from levelport_lab.choices import HalfName
from levelport_lab.claims import NotRunError
from levelport_lab.paper.methods import Method
from levelport_lab.paper.profile_grid import HALF_NAMES, Variant
from levelport_lab.paper.profile_studies import Case, Check, NetworkProfile
from levelport_lab.paper.profiles import Axis
from levelport_lab.paper.study import METHOD_COLOURS, Results, Setup, method_legend
from levelport_lab.paper.teleports import SOLVER_TITLES
from levelport_lab.pictures import WITH_TELEPORTS, WITHOUT_TELEPORTS, legend_below, new_figure


class Regularisation(NetworkProfile):
    """Figure 7: the runs of Figure 4, seen by penalty."""

    name = "fig7"
    title = "Success against the strength of regularization, ReLU networks"
    statement = "All {half} methods solve more network problems when the regularization is large."
    ceiling = False

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
                panel.set_xlabel("regularization strength")
                panel.set_ylabel("data sets solved")
                panel.set_title(f"{name}, {SOLVER_TITLES[solver]}")
        legend_below(figure, method_legend())
        return {self.name: figure}

    def table(self, setup: Setup, results: Results) -> pd.DataFrame:
        rows = [
            {
                "half": name,
                "method": variant.method.value,
                "teleports": variant.solver or "none",
                **{f"reg {reg:g}": share for reg, share in shares.items()},
            }
            for name in HALF_NAMES
            for variant, shares in self.by_reg(name, setup, results).items()
        ]
        return pd.DataFrame(rows)

    def digest(self, table: pd.DataFrame) -> pd.DataFrame:
        return table

    def statements(self, half: HalfName) -> list[tuple[str, str, Check]]:
        moderate = "{half} teleports gain more problems at moderate penalties than at the largest and the smallest."
        extremes = "At the largest and at the smallest penalty {half} SGD-M solves fewer problems with teleports."
        return [
            (self.name, self.statement, self.check),
            (f"{self.name}-moderate", moderate, self.check_moderate),
            (f"{self.name}-extremes", extremes, self.check_extremes),
        ]

    def _by_reg(self, case: Case, least: int) -> dict[Variant, dict[float, float]]:
        case.results.require(self.specs_of(case.half, case.setup))
        shares = self.by_reg(case.half, case.setup, case.results)
        if not shares or any(len(by) < least for by in shares.values()):
            raise NotRunError
        return {variant: by for variant, by in shares.items() if variant.solver in (None, case.solver)}

    def _gains(self, case: Case) -> dict[Method, dict[float, float]]:
        """By method and penalty, the share of data sets gained by teleports; penalties ascend."""
        shares, limit = self._by_reg(case, 3), max(self.limits(case.setup))
        pairs = {method: (shares[Variant(method)], shares[Variant(method, case.solver, limit)]) for method in Method}
        return {method: {reg: after[reg] - before[reg] for reg in before} for method, (before, after) in pairs.items()}

    def check_moderate(self, case: Case) -> tuple[bool, str]:
        """Mean over methods; moderate penalties are all but the largest and the smallest."""
        gains = self._gains(case)
        regs = list(gains[Method.SGD])
        means = {reg: float(np.mean([by[reg] for by in gains.values()])) for reg in regs}
        moderate = float(np.mean([means[reg] for reg in regs[1:-1]]))
        words = ", ".join(f"{reg:g}: {mean:+.0%}" for reg, mean in means.items())
        return moderate > max(means[regs[0]], means[regs[-1]]), f"mean gain by penalty {words}"

    def check_extremes(self, case: Case) -> tuple[bool, str]:
        gains = self._gains(case)[Method.MOMENTUM]
        words = ", ".join(f"{reg:g}: {gain:+.0%}" for reg, gain in gains.items())
        return gains[min(gains)] < 0 and gains[max(gains)] < 0, f"SGD-M gains {words}"

    def check(self, case: Case) -> tuple[bool, str]:
        relevant = self._by_reg(case, 2)
        changes = [by[max(by)] - by[min(by)] for by in relevant.values()]
        regs = next(iter(relevant.values()))
        grown = sum(change >= 0 for change in changes)
        words = f"{grown} of {len(changes)} solve at least as many at {max(regs):g} as at {min(regs):g}"
        return grown == len(changes), words
