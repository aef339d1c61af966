"""Random functions and arguments against levelport's guarantees, for every entry point: ``make fuzz``.

A case is a few lines of Python, written by a random generator from its number alone. They are run, and what comes back
is held against the guarantees: no exception but a sentence for a wrong argument; f(x⁺) ≤ f(x) and ‖∇f(x⁺)‖ ≥ ‖∇f(x)‖ at
the very point returned, evaluated again from outside; finite points, budgets and radii kept, inputs left alone. A
violation prints those lines, ready to be pasted into a test.

    python tools/fuzz.py --cases 10000 --seed 0 --jobs 2
    python tools/fuzz.py --only 4711          # one case, its lines and what came of it
"""

from __future__ import annotations

import argparse
import math
import random
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import levelport
from levelport.optim import (
    LBFGS,
    Armijo,
    ArmijoSGD,
    FixedStep,
    Momentum,
    Newton,
    Normalized,
    Polyak,
    PolyakSGD,
)
from levelport.solvers import SQP, Auto

SECONDS = 60
"""A case that takes longer hangs."""

NAMES: dict[str, Any] = {name: getattr(levelport, name) for name in levelport.__all__ if name != "problem"}
NAMES |= {"torch": torch, "nn": nn, "math": math, "SQP": SQP, "Auto": Auto}
NAMES |= {
    rule.__name__: rule
    for rule in (ArmijoSGD, PolyakSGD, LBFGS, Armijo, FixedStep, Momentum, Newton, Normalized, Polyak)
}

DOORS = ["teleport", "minimize", "Teleported", "Teleporter"]

SMOOTH = [
    "u.square().sum()",
    "(u**4).sum()",
    "(u**3).sum() + u.sum()",
    "(u**4 - 3 * u**2).sum() + u[0]",
    "(1 - u[0]) ** 2 + 100 * (u[1:] - u[:-1] ** 2).square().sum()",
    "u.sin().sum() + 0.1 * u.square().sum()",
    "(u.sin() * u.cos().roll(1)).sum()",
    "u.exp().sum()",
    "(u.exp() + (-u).exp()).sum()",
    "torch.logsumexp(u, 0)",
    "torch.nn.functional.softplus(u).sum()",
    "(1 + u.square()).log().sum()",
    "u.square().sum().add(1e-3).sqrt()",
    "u.tanh().sum()",
    "u.prod() + u.square().sum()",
    "u.sum()",
    "0 * u.sum()",
    "(u * torch.logspace(0, 6, u.numel(), dtype=u.dtype) * u).sum()",
    "-u.square().sum() + 0.1 * (u**4).sum()",
    "(-u.square().sum()).exp()",
    "u[0] ** 2 + 0 * u.sum()",
    "torch.sigmoid(u).sum()",
    "u.erf().sum() + 0.01 * u.square().sum()",
    "(u - u.mean()).square().sum() + u.mean()",
]
ROUGH = [
    "u.abs().sum()",
    "u.relu().square().sum() - u.sum()",
    "u.max() + 0.1 * u.square().sum()",
    "torch.where(u > 0.5, u.square(), u).sum()",
    "u.log().sum()",
    "u.sqrt().sum()",
    "(1 / u).sum()",
    "u.tan().sum()",
    "u.norm()",
    "(u**2.5).sum()",
    "u.floor().sum() + u.square().sum()",
    "(u + (1e8 * u) ** 3).sum()",
    "torch.where(u.square().sum() > 4, torch.full_like(u, math.nan), u.square()).sum()",
    "torch.where(u.square().sum() > 4, torch.full_like(u, math.inf), u**4).sum()",
    "(1e3 * u).sin().sum() + u.square().sum()",
    "(u * 1e200).sum() + (u * 1e-200).square().sum()",
    "torch.lgamma(u).sum()",
    "u.abs().pow(0.5).sum()",
    "(1e9 + u).square().sum()",
]
CUT = ["u.detach().square().sum()", "(u > 0).sum()", "(u > 0).all()", "u.sum().item()", "torch.stack([u, u])"]
"""No objectives: refused at every door."""

WRONG = {
    "teleport": [
        "solver=Auto(max_hvps=0)",
        "solver=Krylov(max_hvps=2.5)",
        "solver=SQP(tol=math.nan)",
        "solver=Auto(tol=2.0)",
        "solver=Krylov(radius=-1.0)",
        "solver=Auto(radius='far')",
        "solver=Auto(target_gain=0.5)",
        "solver=SQP(max_seconds=-1)",
        "solver=Auto(target_alignment=None)",
        "solver='atuo'",
        "solver=Auto",
        "solver=None",
        "level_set='yes'",
        "callback=3",
    ],
    "minimize": [
        "method='amrijo'",
        "method=None",
        "method=Armijo",
        "gtol='a'",
        "gtol=-1.0",
        "max_iterations=1.5",
        "max_cost=0",
        "schedule='auto'",
        "schedule=Every",
        "solver=3",
        "tol=-1",
        "callback='x'",
    ],
    "Teleported": ["solver='sqp '", "solver=Krylov(tol=0)", "momentum='keeep'", "noise=1", "schedule=3"],
}


@dataclass(frozen=True)
class Case:
    """Lines that leave ``f``, ``x`` and ``result`` behind, and what to expect of them."""

    number: int
    source: str
    door: str
    refused: bool
    method: str = ""
    solver: str = "auto"
    level_set: bool = False
    max_hvps: int | None = None
    radius: float | None = None


def generate(number: int, seed: int = 0, door: str | None = None) -> Case:
    """The case of that number."""
    rng = random.Random(f"{seed}/{number}")
    drawn = rng.choices(DOORS, [5, 4, 2, 1])[0]
    door = door or drawn
    double = rng.random() < 0.7
    dtype = "torch.float64" if double else "torch.float32"
    refused = False
    pool = rng.choices([SMOOTH, ROUGH, CUT], [60, 36, 4])[0]
    expression = rng.choice(pool)
    if pool is CUT:
        refused = True
    elif rng.random() < 0.3:
        # Not minus itself: the derivatives of a function that is zero are rounding errors, nothing more.
        another = rng.choice([other for other in SMOOTH if other != expression])
        expression = f"{expression} + {rng.choice([0.1, -1.0, 10.0])!r} * ({another})"
    outer, inner = _scales(rng, double)
    shift = rng.choice([0.0, 0.0, 1.0, -0.5, 1e-8])
    dimension = rng.choice([1, 2, 2, 3, 5])
    if "u[1:]" in expression:
        dimension = max(dimension, 2)
    entries = [_entry(rng) * inner for _ in range(dimension)]
    layout = (
        rng.choice(["tensor", "tensor", "list", "dict", "matrix"]) if door in ("teleport", "minimize") else "tensor"
    )
    scaled = f"{expression}" if pool is CUT else f"{outer!r} * ({expression})"
    gather = {"list": "torch.cat(x)", "dict": "torch.cat([x['a'], x['b']])"}.get(layout, "x.reshape(-1)")
    lines = [
        "def f(x):",
        f"    u = {gather} / {inner!r} - {shift!r}",
        f"    return {scaled}",
        _variables(layout, entries, dtype),
    ]
    arguments, facts = _arguments(rng, door)
    if rng.random() < 0.03:
        arguments = [a for a in arguments if "=" in a]
        wrong = rng.choice(WRONG["Teleported" if door == "Teleporter" else door])
        taken = wrong.split("=")[0]
        arguments = [a for a in arguments if not a.startswith(f"{taken}=")] + [wrong]
        refused = True
    context = rng.choices(
        [
            "",
            "with torch.no_grad():",
            "with torch.inference_mode():",
            "with torch.autocast('cpu', dtype=torch.bfloat16):",
        ],
        [7, 1, 1, 1],
    )[0]
    call = _call(door, arguments, rng, dtype)
    lines += [context, *(f"    {line}" for line in call)] if context else call
    return Case(number, "\n".join(lines) + "\n", door, refused, **facts)


def _scales(rng: random.Random, double: bool) -> tuple[float, float]:
    """Of f and of x: mostly ordinary ones, sometimes at the edge of what the numbers can hold."""
    if rng.random() < 0.6:
        return 1.0, 1.0
    edge = 150 if double else 30
    outer = rng.choice([-edge, -edge // 2, -8, 0, 8, edge // 2, edge])
    inner = rng.choice([0, 0, -edge, -6, 6, edge] if outer == 0 or rng.random() < 0.3 else [0, -3, 3])
    return 10.0**outer, 10.0**inner


def _entry(rng: random.Random) -> float:
    if rng.random() < 0.01:
        return rng.choice([math.nan, math.inf, -math.inf])
    return rng.choice([0.0, 1.0, -1.0, rng.gauss(0, 1), rng.gauss(0, 1), rng.gauss(0, 1), rng.gauss(0, 10)])


def _variables(layout: str, entries: list[float], dtype: str) -> str:
    def tensor(part: list[float]) -> str:
        listed = ", ".join(
            f"math.{v}" if math.isnan(v) or v == math.inf else "-math.inf" if v < -1e308 else repr(v) for v in part
        )
        return f"torch.tensor([{listed}], dtype={dtype})"

    half = len(entries) // 2
    if layout == "list":
        return f"x = [{tensor(entries[:half])}, {tensor(entries[half:])}]"
    if layout == "dict":
        return f"x = {{'a': {tensor(entries[:half])}, 'b': {tensor(entries[half:])}}}"
    return f"x = {tensor(entries)}" + (".reshape(1, -1)" if layout == "matrix" else "")


def _arguments(rng: random.Random, door: str) -> tuple[list[str], dict[str, Any]]:
    facts: dict[str, Any] = {}
    arguments = []
    solver = rng.choice(["Auto", "Auto", "Krylov", "Krylov", "SQP", "Auto"])
    facts["solver"] = solver
    facts["max_hvps"] = rng.choice([1, 2, 3, 5, 10, 10, 20])
    limits = [f"max_hvps={facts['max_hvps']}"]
    if solver == "Auto" and rng.random() < 0.3:
        limits.append("memory=1")
    if solver == "Auto" and rng.random() < 0.1:
        limits.append("starts=2")
    if rng.random() < 0.2:
        facts["radius"] = rng.choice([1e-200, 1e-8, 0.1, 1.0, 1e6, 1e300])
        limits.append(f"radius={facts['radius']!r}")
    if rng.random() < 0.2:
        limits.append(f"tol={rng.choice([1e-14, 1e-3, 0.5])!r}")
    if rng.random() < 0.1:
        limits.append(f"target_gain={rng.choice([1.0001, 2.0, 1e300])!r}")
    if rng.random() < 0.1:
        limits.append("target_alignment=0.9")
    arguments.append(f"solver={solver}({', '.join(limits)})")
    if door == "teleport":
        if rng.random() < 0.2 and solver != "Krylov":  # which keeps to the sub-level set
            facts["level_set"] = True
            arguments.append("level_set=True")
        return arguments, facts
    arguments.append(f"schedule={_schedule(rng)}")
    if door == "minimize":
        facts["method"] = rng.choice(
            [
                "'auto'",
                "'auto'",
                "'armijo'",
                "'newton-cg'",
                "LBFGS()",
                "FixedStep(0.1)",
                "Momentum(0.1)",
                "Normalized(0.1)",
                "Polyak(max_step=1.0)",
                "Armijo(c=0.1)",
                "Newton(max_hvps=3)",
            ]
        )
        arguments += [f"method={facts['method']}", f"max_iterations={rng.choice([0, 1, 3, 6])}"]
        if rng.random() < 0.1:
            arguments.append(f"gtol={rng.choice([0.0, 0.5, 1e-12])!r}")
        if rng.random() < 0.1:
            arguments.append(f"max_cost={rng.choice([0.5, 10.0, 30.0])!r}")
    return arguments, facts


def _schedule(rng: random.Random) -> str:
    return rng.choice(
        [
            "Never()",
            "Every(1)",
            "Every(2, start=1)",
            "At(0)",
            "At([1, 3])",
            "At([0, 1])",
            "WhileAffordable(share=10.0)",
        ]
    )


def _call(door: str, arguments: list[str], rng: random.Random, dtype: str) -> list[str]:
    listed = ", ".join(arguments)
    if door in ("teleport", "minimize"):
        return [f"result = {door}(f, x, {listed})"]
    optimizer = rng.choice(
        [
            "torch.optim.SGD([p], lr=0.01)",
            "torch.optim.SGD([p], lr=0.01, momentum=0.9)",
            "torch.optim.SGD([p], lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)",
            "torch.optim.Adam([p], lr=0.01)",
            "torch.optim.AdamW([p], lr=0.01, amsgrad=True)",
            "torch.optim.RMSprop([p], lr=0.01, centered=True)",
            "torch.optim.Adagrad([p], lr=0.01)",
            "torch.optim.Rprop([p], lr=0.01)",
            "torch.optim.LBFGS([p], max_iter=2)",
            "ArmijoSGD([p])",
            "PolyakSGD([p], lr=1.0)",
        ]
    )
    if rng.random() < 0.2:
        listed += f", first_step={rng.choice(['included', 'optimizer'])!r}"
    if rng.random() < 0.2 and "Adagrad" not in optimizer and "momentum=" not in listed:
        listed += ", momentum='reset'"
    lines = ["with torch.inference_mode(False):", "    p = nn.Parameter(x.clone())"]
    if door == "Teleported":
        return [
            *lines,
            f"optimizer = Teleported({optimizer}, {listed})",
            "for _ in range(3):",
            "    optimizer.step(lambda: f(p))",
            "result = optimizer.last_teleport",
        ]
    return [
        *lines,
        f"teleporter = Teleporter({optimizer}, {listed})",
        "for _ in range(3):",
        "    teleporter.maybe(lambda: f(p))",
        "result = teleporter.last_teleport",
    ]


class Violation(Exception):
    """A violated guarantee."""


def run(case: Case) -> str | None:
    """What is wrong, or None."""
    names = dict(NAMES)
    torch.manual_seed(case.number)
    try:
        exec(compile(case.source, f"case {case.number}", "exec"), names)
    except (ValueError, TypeError) as error:
        message = str(error)
        if case.refused and len(message) > 25 and message.rstrip().endswith((".", ")")):
            return None
        return "refused without need or without a sentence:\n" + traceback.format_exc(limit=-6)
    except Exception:
        return "raised:\n" + traceback.format_exc(limit=-6)
    if case.refused:
        result = names["result"]
        if result is None or _hopeless(result):  # no teleport was due, or nothing could be found out
            return None
        return f"not refused: {result}"
    try:
        check(case, names)
    except Violation as violation:
        return f"{violation}\n{names['result']}"
    return None


def _hopeless(result: Any) -> bool:
    """A start without a value: nothing else about the function could be found out."""
    return result.status.name == "NON_FINITE_START"


def check(case: Case, names: dict[str, Any]) -> None:
    """Raise :class:`Violation` if the result violates a guarantee."""
    fresh = dict(NAMES)
    exec("\n".join(line for line in case.source.splitlines()[:4]), fresh)
    start, f = fresh["x"], fresh["f"]
    if not _same(start, names["x"]):
        raise Violation("the input was modified")
    result = names["result"]
    if case.door in ("Teleported", "Teleporter"):
        parameter = names["p"]
        if parameter.dtype != start.dtype or parameter.shape != start.shape:
            raise Violation("the parameter changed its kind")
        if case.door == "Teleporter" and math.isfinite(before := _evaluate(f, start)[0]):  # which takes no steps
            after = _evaluate(f, parameter.detach())[0]
            if not after <= before + 3.0 * (1e-6 * abs(before) if case.solver == "SQP" else 0.0):
                raise Violation(f"the loss went from {before!r} to {after!r}")
            if bool(torch.isfinite(start).all()) and not bool(torch.isfinite(parameter).all()):
                raise Violation("a parameter that is not finite")
        if result is not None:
            _check_step(case, result, start)
        return
    if type(result.x) is not type(start) or not _same_kind(result.x, start):
        raise Violation("the structure of x changed")
    value, size = _evaluate(f, result.x)
    if not (value == result.value or (math.isnan(value) and math.isnan(result.value))):
        raise Violation(f"f at the point returned is {value!r}, not {result.value!r}")
    if not math.isclose(size, result.gradient_norm, rel_tol=1e-5) and math.isfinite(size):
        raise Violation(f"the gradient norm at the point returned is {size!r}, not {result.gradient_norm!r}")
    before, size_before = _evaluate(f, start)
    finite = all(bool(torch.isfinite(leaf).all()) for leaf in _leaves(start))
    if finite and math.isfinite(before) and math.isfinite(size_before):
        if result.status.name == "NON_FINITE_START" and "Hessian" not in getattr(result, "detail", ""):
            raise Violation(f"the start is finite: {before!r}, {size_before!r}")
        if not all(bool(torch.isfinite(leaf).all()) for leaf in _leaves(result.x)):
            raise Violation("a point that is not finite")
        if not math.isfinite(result.value):
            raise Violation("a value that is not finite")
    if case.door == "teleport":
        _check_teleport(case, result, start)
        if case.radius is not None and _distance(result.x, start) > case.radius * (1 + 1e-6):
            raise Violation(f"{_distance(result.x, start)!r} away, radius {case.radius!r}")
    elif math.isfinite(before):
        monotone = case.method in ("'auto'", "'armijo'", "'newton-cg'", "Armijo(c=0.1)", "Newton(max_hvps=3)")
        if monotone and case.solver != "SQP" and result.value > before + 1e-6 * abs(before):
            raise Violation(f"a descent method went up from {before!r} to {result.value!r}")


def _check_step(case: Case, step: Any, start: Any) -> None:
    """Check the guarantees of an optimizer's teleport, then those of the teleport itself."""
    if math.isfinite(step.value_start) and not step.value_after <= step.value_start + _slack(
        case, step.teleport, start
    ):
        raise Violation(f"the move took the loss from {step.value_start!r} to {step.value_after!r}")
    if step.moved and step.refused:
        raise Violation(f"moved although refused: {step.refused}")
    _check_teleport(case, step.teleport, start)


def _check_teleport(case: Case, result: Any, start: Any) -> None:
    if result.status.name in ("NON_FINITE_START", "STATIONARY_START"):
        return
    slack = _slack(case, result, start)
    if not result.value <= result.value_start + slack:
        raise Violation(f"the value rose from {result.value_start!r} to {result.value!r}")
    if case.level_set and abs(result.value - result.value_start) > slack:
        raise Violation(f"off the level: {result.value_start!r} became {result.value!r}")
    if not result.gradient_norm >= result.gradient_norm_start:
        raise Violation(f"the gradient shrank from {result.gradient_norm_start!r} to {result.gradient_norm!r}")
    if case.max_hvps is not None and result.cost.hvps > case.max_hvps:
        raise Violation(f"{result.cost.hvps} products, budget {case.max_hvps}")


def _slack(case: Case, result: Any, start: Any) -> float:
    """By how much f may rise: SQP keeps the level to a tolerance, and on the level set x has a resolution."""
    single = "torch.float32" in case.source
    smallest = max(abs(result.value_start), 1.2e-38 if single else 2.3e-308)
    slack = 1e-6 * smallest if case.solver == "SQP" else 0.0
    if case.level_set:
        length = math.hypot(*(float(entry) for leaf in _leaves(start) for entry in leaf.double().reshape(-1)))
        resolution = 4.0 * (1.2e-7 if single else 2.3e-16) * result.gradient_norm_start * length
        slack = max(slack, (1.2e-5 if single else 1e-9) * smallest, resolution)
    return slack


def _leaves(x: Any) -> list[Tensor]:
    return [x] if isinstance(x, Tensor) else list(x.values()) if isinstance(x, dict) else list(x)


def _same(one: Any, other: Any) -> bool:
    return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(_leaves(one), _leaves(other), strict=True))


def _same_kind(one: Any, other: Any) -> bool:
    return all(a.dtype == b.dtype and a.shape == b.shape for a, b in zip(_leaves(one), _leaves(other), strict=True))


def _evaluate(f: Any, x: Any) -> tuple[float, float]:
    """f and ‖∇f‖ from outside."""
    leaves = [leaf.clone().detach().requires_grad_() for leaf in _leaves(x)]
    value = f(
        leaves[0] if isinstance(x, Tensor) else dict(zip(x, leaves, strict=True)) if isinstance(x, dict) else leaves
    )
    if not value.requires_grad:
        return float(value), 0.0
    gradients = torch.autograd.grad(value, leaves, allow_unused=True)
    entries = [float(entry) for part in gradients if part is not None for entry in part.reshape(-1)]
    return float(value), math.nan if any(math.isnan(entry) for entry in entries) else math.hypot(*entries)


def _distance(one: Any, other: Any) -> float:
    pairs = zip(_leaves(one), _leaves(other), strict=True)
    return math.hypot(*(float(entry) for a, b in pairs for entry in (a.double() - b.double()).reshape(-1)))


def campaign(numbers: Iterable[int], seed: int, door: str | None = None) -> tuple[Counter[str], list[tuple[Case, str]]]:
    """Run the cases: how many of each kind, and what went wrong."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    wrong = []

    def hang(_signal: int, _frame: object) -> None:
        raise RuntimeError(f"no end after {SECONDS} s of processor time")

    signal.signal(signal.SIGPROF, hang)
    for number in numbers:
        case = generate(number, seed, door)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        found = run(case)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        counts[case.door] += 1
        counts["refused"] += case.refused
        if found is not None:
            wrong.append((case, found))
    return counts, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--door", choices=DOORS, help="this one alone, instead of all four")
    parser.add_argument("--only", type=int, help="run this case alone and print its lines")
    options = parser.parse_args()
    if options.only is not None:
        case = generate(options.only, options.seed, options.door)
        print(case.source)
        _, wrong = campaign([options.only], options.seed, options.door)
        print(wrong[0][1] if wrong else "no violation")
        return
    began = time.perf_counter()
    size = 100
    ranges = [
        range(start, min(start + size, options.first + options.cases))
        for start in range(options.first, options.first + options.cases, size)
    ]
    counts: Counter[str] = Counter()
    wrong = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for some, found in pool.map(campaign, ranges, [options.seed] * len(ranges), [options.door] * len(ranges)):
            counts += some
            for case, problem in found:
                print(f"# case {case.number} (seed {options.seed})\n{case.source}\n# {problem}\n{'-' * 80}", flush=True)
            wrong += found
    seconds = time.perf_counter() - began
    doors = ", ".join(f"{counts[door]} {door}" for door in DOORS)
    refused = counts["refused"]
    print(f"{options.cases} cases ({doors}; {refused} to be refused) in {seconds:.0f} s: {len(wrong)} violations")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
