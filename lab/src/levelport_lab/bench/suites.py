"""What there is to run, suite by suite, in two sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

from levelport.checks import unknown_name
from levelport_lab.bench import cost_table, equal_cost, families, families_training, instances, safety
from levelport_lab.bench.competitors import (
    ADAMW,
    ALONE,
    CORE,
    LBFGS,
    LBFGS_60,
    NEWTON_CG,
    NEWTON_CG_DIFFERENCES,
    NO_CLIMB,
    OTHERS,
    OUR_LBFGS,
    OURS,
    OURS_EXACT,
    RANDOM_CLIMB,
    TORCH,
    names,
)
from levelport_lab.bench.families import Place
from levelport_lab.bench.families_loop import Optimizer
from levelport_lab.bench.families_training import Schedule
from levelport_lab.bench.growth import SERIES, GrowthSpec, HvpSpec, TeleportCostSpec, TimedSolver
from levelport_lab.bench.instances import ProblemName
from levelport_lab.bench.optimality import OptimalitySpec
from levelport_lab.bench.own_cost import MemorySpec, OverheadSpec
from levelport_lab.bench.races import RaceSpec, TimingSpec
from levelport_lab.bench.zoo_run import zoo_specs
from levelport_lab.choices import Tier
from levelport_lab.engine.spec import RunSpec

CONVEX_BUDGET = 5000.0
"""Gradient equivalents on logistic problems, quadratics and test functions."""

MEMORY_COST = 80.0
"""Gradient equivalents of a run whose memory is measured."""

SMALL_SETS = 12
SPLITS = {0: "first", 1: "second", 2: "third"}
"""Of the data into training and test samples, by seed. Settings were chosen on the first, one threshold after a look at
the second; the third was fixed beforehand and not run until then."""
RIVALS = (OURS, NO_CLIMB, LBFGS, NEWTON_CG, NEWTON_CG_DIFFERENCES)

VISITS = {
    "L-BFGS-B from a teleported start": LBFGS,
    "L-BFGS-B + teleport every 50": LBFGS,
    "momentum + teleport every 50": "momentum",
    **{f"{name} + default teleports": name for name in TORCH},
    "AdamW 1e-2 + teleport every 50": ADAMW,
}
"""Optimizers that a teleport visits, and the same without."""


def _logistic(tier: Tier) -> list[RunSpec]:
    everyone = names((*CORE, *OTHERS)) if tier == "full" else names(CORE)
    return [RaceSpec(problem, name, CONVEX_BUDGET) for problem in instances.logistic() for name in everyone]


def _held_out(tier: Tier) -> list[RunSpec]:
    """The second and the third split of every data set."""
    seeds, sets = list(SPLITS)[1:], 20 if tier == "full" else 6
    problems = [replace(problem, seed=seed) for seed in seeds for problem in instances.logistic(sets)]
    controls = (RANDOM_CLIMB, OURS_EXACT, LBFGS_60, OUR_LBFGS)
    return [RaceSpec(p, name, CONVEX_BUDGET) for p in problems for name in (*RIVALS, *controls)]


def _functions(tier: Tier) -> list[RunSpec]:
    everyone = names((*CORE, *OTHERS)) if tier == "full" else names(CORE)
    problems = (*instances.quadratics(), *instances.functions())
    return [RaceSpec(problem, name, CONVEX_BUDGET) for problem in problems for name in everyone]


def _networks(tier: Tier) -> list[RunSpec]:
    """Full: the main three everywhere and for long, rivals at one penalty, more seeds, digits. Quick: one penalty."""
    sets = instances.smallest_sets(SMALL_SETS)
    middle = instances.networks(sets, regs=(1e-4,))
    if tier != "full":
        return [RaceSpec(p, name, 1000.0) for p in middle for name in (ALONE, OURS, NO_CLIMB, LBFGS, ADAMW)]
    main, rivals = (ALONE, OURS, LBFGS), (NO_CLIMB, LBFGS_60, ADAMW, "AdamW 1e-3")
    long = [(p, name) for p in (*instances.networks(sets), *instances.digits()) for name in main]
    short = [(p, name) for p in (*middle, *instances.digits()) for name in rivals]
    short += [(p, name) for p in instances.networks(sets, regs=(1e-4,), seeds=(1, 2)) for name in main]
    races: list[RunSpec] = [RaceSpec(p, name, 3000.0) for p, name in long]
    return races + [RaceSpec(p, name, 1000.0) for p, name in short]


def _visits(tier: Tier) -> list[RunSpec]:
    sets, budget = instances.smallest_sets(SMALL_SETS if tier == "full" else 6), 1000.0 if tier == "full" else 300.0
    problems = instances.networks(sets, regs=(1e-4,))
    everyone = dict.fromkeys((*VISITS, *VISITS.values()))
    return [RaceSpec(problem, name, budget) for problem in problems for name in everyone]


def _optimality(tier: Tier) -> list[RunSpec]:
    regs = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6) if tier == "full" else (1e-2, 1e-4, 1e-6)
    problems = [problem for problem in instances.logistic() if problem.reg in regs]
    return [OptimalitySpec(problem, steps) for problem in problems for steps in (5, 50)]


def _timing(tier: Tier) -> list[RunSpec]:
    sets, rounds = (20, 5) if tier == "full" else (SMALL_SETS, 3)
    problems = [problem for problem in instances.logistic(sets) if problem.reg in (1e-3, 1e-6)]
    return [TimingSpec(p, (*RIVALS, ALONE), rounds=rounds, max_cost=1000.0) for p in problems]


def _overhead(tier: Tier) -> list[RunSpec]:
    magic = [ProblemName("logistic", "logreg/magic", reg) for reg in (1e-3, 1e-6)]
    wide = [ProblemName("logistic", "logreg/spambase", 1e-3)]
    small: list[RunSpec] = [OverheadSpec(p, (OURS, LBFGS, NEWTON_CG, ALONE), rounds=11) for p in (*magic, *wide)]
    large: list[RunSpec] = [
        OverheadSpec("large network", (OURS, LBFGS, ALONE), rounds=1, max_cost=100.0),
        OverheadSpec("large network", (OURS, ALONE), rounds=1, max_cost=60.0, copies=7),
    ]
    return [*small, *large]


def _memory(tier: Tier) -> list[RunSpec]:
    everyone = (OURS, ALONE, LBFGS, ADAMW, "momentum + teleport every 50") if tier == "full" else (OURS, ALONE)
    return [MemorySpec(name, MEMORY_COST) for name in everyone]


def _growth(tier: Tier) -> list[RunSpec]:
    shapes = dict.fromkeys(shape for series in SERIES.values() for shape in series)
    races: list[RunSpec] = [GrowthSpec(*shape, name) for shape in shapes for name in (*RIVALS, ALONE)]
    teleports: list[RunSpec] = []
    for solver in get_args(TimedSolver):
        teleports += [TeleportCostSpec("samples", size, solver) for size in (4000, 16000, 64000, 256000)]
        teleports += [TeleportCostSpec("parameters", size, solver) for size in (10**4, 10**5, 10**6)]
    return races + teleports


def _families(tier: Tier) -> list[RunSpec]:
    """Quick: full batches on two small sets. Full: a linear network, MNIST with mini-batches, ten fresh seeds."""
    blood, cancer, pima = (Place(f"mlp-relu-100-100/{data}") for data in ("blood", "breast-cancer", "pima"))
    linear = Place("mlp-linear-50-50/breast-cancer")
    if tier != "full":
        moves = families.specs((blood, cancer, pima, linear), (0, 1))
        return moves + families_training.specs((blood, cancer), max_cost=60.0, tuning=1, fresh=range(100, 103))
    moves = families.specs((blood, cancer, pima, linear, Place("mlp-relu-64/mnist-first-1000")), (0, 1))
    images = Place("mlp-relu-32/mnist-first-500")
    for place, batch in ((cancer, None), (images, 125), (linear, None)):
        moves += families_training.specs((place,), batches=(batch,), max_cost=60.0, tuning=1, fresh=range(200, 210))
    ahead: dict[Optimizer, tuple[tuple[str, Schedule], ...]] = {
        "Adam": (("rescaling 2", "ours"), ("balance", "ours"), ("balance, one sweep", "authors")),
        "momentum": (("balance, one sweep", "authors"),),
    }
    for optimizer, arms in ahead.items():
        moves += families_training.confirmations(images, optimizer, 125, arms, max_cost=60.0)
    return moves


SUITES: dict[str, Callable[[Tier], list[RunSpec]]] = {
    "solvers": lambda tier: zoo_specs(),
    "attribution": lambda tier: [*cost_table.specs()],
    "logistic": _logistic,
    "held-out": _held_out,
    "functions": _functions,
    "optimality": _optimality,
    "overhead": _overhead,
    "growth": _growth,
    "hvp": lambda tier: [HvpSpec("logreg/magic")],
    "timing": _timing,
    "memory": _memory,
    "networks": _networks,
    "visits": _visits,
    "safety": lambda tier: [*safety.specs(), *equal_cost.specs()] if tier == "full" else safety.specs(range(100, 105)),
    "families": _families,
}
"""The suites by name, in the order in which they run."""


def suite_named(name: str) -> Callable[[Tier], list[RunSpec]]:
    """The suite called ``name``, or an error with a suggestion."""
    if name not in SUITES:
        raise unknown_name("suite", name, SUITES)
    return SUITES[name]
