"""Every bound against brute force in the plane: python tools/check_bounds.py [PROBLEMS].

Random logistic problems in the plane, teleports by a search over all directions (tests/theory), runs of ten iterations
with three schedules. Prints, for each bound, how often it was checked, how often it failed, how often it said more than
δ_K ≤ δ_0, and the median of bound/measured where it did.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from levelport_lab.theory import certify, descend, rates, rates_stable
from levelport_lab.theory.rates_stable import newton_steps
from levelport_lab.theory.steps import explicit_form, measured_form, recursion

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab" / "tests" / "theory"))
from theory_problems import Case, logistic_case  # type: ignore[import-not-found]

K = 10
SCHEDULES = (frozenset(range(1, K, 2)), frozenset(range(K)), frozenset({2, 3, 4, 7, 8}))


def bounds(case: Case, schedule: frozenset[int]) -> list[tuple[str, list[float], list[float], float]]:
    """Label, bound, measured gaps and rounding, for the runs with Armijo steps, fixed steps and Newton steps."""
    constants, stability = case.constants, case.constants.stability
    assert stability is not None
    L, mu, R, gap = constants.L.value, constants.mu.value, constants.radius.value, constants.initial_gap
    run = case.run(K, schedule)
    curves = {
        "strongly convex, Armijo": rates.strongly_convex(gap, [1 / L] * K, L, mu),
        "convex, Armijo: 2LR²/K": rates.convex(K, rates.armijo_gain(L), R),
        "Armijo, measured gaps": rates_stable.armijo_measured(run.gaps, schedule, L, R, stability),
        "Armijo, explicit": rates_stable.armijo_explicit(K, schedule, L, R, stability),
        "Armijo, recursion": rates_stable.armijo_sharp(K, schedule, L, R, stability, gap, mu),
    }
    found = [(label, curve, run.gaps, run.rounding) for label, curve in curves.items()]
    for one in certify(case.objective, run, constants):
        if run.gaps[one.k] > 1e6 * run.rounding:
            noise = run.rounding / run.gaps[one.k]
            found.append(("certificate, proved", [one.proved], [one.measured], noise))
            found.append(("certificate, pairs", [one.pair], [one.measured], noise))
    step = 1 / (L * stability.upper)
    fixed = case.run(K, schedule, steps=(step, step))
    known = {k: lam for k, lam in fixed.curvatures.items() if fixed.gaps[k] > 1e4 * case.rounding and lam > 0.0}
    steps = rates_stable.fixed_steps(K, known, L, R, stability, step)
    found += [
        ("fixed, measured gaps", measured_form(steps, fixed.gaps), fixed.gaps, fixed.rounding),
        ("fixed, explicit", explicit_form(steps), fixed.gaps, fixed.rounding),
        (
            "fixed, strongly convex",
            rates.strongly_convex_sharp(gap, fixed.steps, L, mu),
            fixed.gaps,
            fixed.rounding,
        ),
    ]
    x, value = constants.minimum.x, constants.minimum.value
    newton = descend(case.objective, case.start, K, minimum=value, minimizer=x, schedule=schedule, newton=True)
    curve = recursion(newton_steps(K, schedule, L, R, stability, mu), gap)
    return [*found, ("Newton steps, recursion", curve, newton.gaps, newton.rounding)]


def main() -> None:
    """Count and print."""
    problems = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    rng = np.random.default_rng(0)
    checks: dict[str, int] = defaultdict(int)
    broken: dict[str, int] = defaultdict(int)
    ratios: dict[str, list[float]] = defaultdict(list)
    for seed in range(problems):
        n, penalty = int(rng.integers(10, 60)), 10 ** rng.uniform(-3, -0.5)
        case = logistic_case("", n, penalty, seed, nearness=rng.uniform(0.02, 1.0), squeeze=rng.uniform(0.2, 1.0))
        for schedule in SCHEDULES:
            for label, curve, gaps, rounding in bounds(case, schedule):
                single = label.startswith("certificate")
                slack = 1e-7 if single else 0.0  # brute-force teleports are good to about eight digits
                for k in range(0 if single else 1, len(curve)):
                    checks[label] += 1
                    broken[label] += not gaps[k] <= curve[k] * (1 + 1e-9) + rounding + slack
                    ceiling = 1.0 if single else case.constants.initial_gap
                    if curve[k] < ceiling * (1 - 1e-12) and gaps[k] > 1e3 * rounding:
                        ratios[label].append(curve[k] / gaps[k])
    print(f"{problems} problems, {sum(checks.values())} checks, {sum(broken.values())} violations")
    print(f"{'bound':32}{'checks':>8}{'broken':>8}{'tell':>8}{'median':>11}")
    for label, count in checks.items():
        median = f"{statistics.median(ratios[label]):11.3g}" if ratios[label] else f"{'-':>11}"
        print(f"{label:32}{count:8}{broken[label]:8}{len(ratios[label]):8}{median}")


if __name__ == "__main__":
    main()
