"""Figure 3: solving one teleportation problem for a network, iteration by iteration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from levelport.solvers import teleport
from levelport_lab.choices import SolverName
from levelport_lab.claims import Claim
from levelport_lab.engine.spec import Run, RunSpec
from levelport_lab.paper.network import NetworkObjective
from levelport_lab.paper.study import Results, Setup, Study
from levelport_lab.paper.teleports import SOLVER_TITLES, PlannedSolver, TeleportPlan, planned_solver
from levelport_lab.pictures import BLUE, ORANGE, legend_below, new_figure
from levelport_lab.problems import problem

SOLVER_COLOURS = {"published": BLUE, "ours": ORANGE}


@dataclass(frozen=True)
class OneTeleport(RunSpec):
    """One teleport from the initial point, with its trace."""

    kind: ClassVar[str] = "one-teleport"
    revision: ClassVar[int] = 2
    problem: str
    reg: float
    solver: PlannedSolver
    limit: int
    rho: float = 1.0
    seed: int = 0

    @property
    def label(self) -> str:
        return f"{self.problem} reg {self.reg:g}, {self.solver} solver"

    @property
    def data_sets(self) -> tuple[str, ...]:
        return (self.problem.partition("/")[2],)

    @property
    def rough_seconds(self) -> float:
        named = problem(self.problem)
        return self.limit * (1e-3 + 4 * 4e-10 * named.info.samples * named.dimension)

    def run(self) -> list[Run]:
        # Float32, as the data are: 60000 images of 784 pixels in float64 double memory and time for nothing.
        named = problem(self.problem, reg=self.reg, seed=self.seed, dtype=torch.float32)
        plan = TeleportPlan(self.solver, (0,), limit=self.limit, rho=self.rho)
        objective = NetworkObjective(named)
        result = teleport(
            objective,
            named.initial_point(),
            replace(plan.teleporter(), max_hvps=self.limit + 1, tol=1e-3),
        )
        rows = result.trace
        curves = {
            "gradient_norm": [row.gradient_norm for row in rows],
            "kkt_residual": [row.kkt_residual for row in rows],
            "violation": [row.violation for row in rows],
            "value": [row.value for row in rows],
            "hvps": [row.cost.hvps for row in rows],
            "gradient_equivalents": [row.cost.gradient_equivalents for row in rows],
            "seconds": [row.cost.seconds for row in rows],
        }
        facts = {
            "gain": result.gain,
            "start": result.gradient_norm_start,
            "end": result.gradient_norm,
            "value_start": result.value_start,
            "violation": result.violation,
            "kkt_residual": result.kkt_residual,
            "gradient_equivalents": result.cost.gradient_equivalents,
            "seconds": result.cost.seconds,
        }
        series = {name: np.array(curve, dtype=np.float64) for name, curve in curves.items()}
        return [Run(message=result.message, final_value=result.value, facts=facts, curves=series)]


class SolvingTeleports(Study):
    """Figure 3."""

    name = "fig3"
    title = "Solving the teleportation problem for a softplus network: gradient norm, KKT residual, violation"

    def spec(self, setup: Setup, solver: SolverName) -> OneTeleport:
        """The paper's network on MNIST; on scikit-learn's digits where a tier must do without.

        250 iterations: the released scripts allow 1000, and draw 250.
        """
        planned = planned_solver(solver, setup.protocol)
        if setup.tier == "full":
            return OneTeleport(f"mlp-softplus-50/{setup.mnist}", 1.8, planned, limit=250)
        units, limit = (50, 250) if setup.tier == "quick" else (8, 20)
        return OneTeleport(f"mlp-softplus-{units}/digits", 1.8, planned, limit=limit)

    def specs(self, setup: Setup) -> list[RunSpec]:
        return [self.spec(setup, solver) for solver in setup.solvers]

    def pictures(self, setup: Setup, results: Results) -> dict[str, Figure]:
        quantities = (
            ("gradient_norm", "gradient norm"),
            ("kkt_residual", "KKT residual"),
            ("violation", "violation"),
        )
        figure, (row,) = new_figure(1, 3, width=2.6)
        for solver in setup.solvers:
            run = results.best(self.spec(setup, solver))
            if run is None:
                continue
            colour = SOLVER_COLOURS[solver]
            for panel, (name, title) in zip(row, quantities, strict=True):
                # The default solver may leave one climb for another: in order of cost the curve can step back.
                panel.plot(run.curves["hvps"], np.maximum(run.curves[name], 1e-12), color=colour)
                panel.set_yscale("log")
                panel.set_xlabel("Hessian-vector products")
                panel.set_title(title)
        legend_below(figure, [(SOLVER_TITLES[solver], {"color": SOLVER_COLOURS[solver]}) for solver in setup.solvers])
        return {self.name: figure}

    def table(self, setup: Setup, results: Results) -> pd.DataFrame:
        rows = []
        for solver in setup.solvers:
            spec = self.spec(setup, solver)
            run = results.best(spec)
            if run is not None:
                rows.append({"problem": spec.problem, "solver": solver, "ended": run.message, **run.facts})
        return pd.DataFrame(rows)

    def claims(self, setup: Setup, results: Results) -> list[Claim]:
        claims = []
        for solver in setup.solvers:
            spec = self.spec(setup, solver)

            def hundredfold(spec: OneTeleport = spec) -> tuple[bool, str]:
                facts = results.needed(spec).facts
                words = f"{facts['start']:.4g} → {facts['end']:.4g}, × {facts['gain']:.3g} (squared, as the released "
                words += f"script draws it, × {facts['gain'] ** 2:.3g})"
                return facts["gain"] >= 100, f"{spec.problem}: {words}"

            def kkt(spec: OneTeleport = spec) -> tuple[bool, str]:
                run = results.needed(spec)
                facts = run.facts
                squared, violation = facts["kkt_residual"] ** 2, facts["violation"]
                words = f"KKT residual² {squared:.1e}, violation {violation:.1e} of f = {facts['value_start']:.4g}"
                return squared <= 1e-6 and violation <= 1e-6, f"{words}, after {len(run.curves['value'])} rows"

            grows = "Teleporting grows the gradient norm of the network by two orders of magnitude."
            ends = "It ends at an approximate KKT point (1e-6, 1e-6)."
            claims += [
                Claim.checked(f"mnist-hundredfold-{solver}", grows, hundredfold, solver),
                Claim.checked(f"mnist-kkt-{solver}", ends, kkt, solver),
            ]
        return claims
