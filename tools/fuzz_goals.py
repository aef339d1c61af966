"""Random problems against the guarantees of ``interval`` and ``improve``: feasible, finite points, and no exceptions.

A case is made from its number alone: a function (quadratic, quartic, flat, saturating, multimodal, with walls, with a
domain, not finite beyond a border, curved valleys, likelihoods), units of x, f and the quantity from 1e-8 to 1e8,
float32 or float64, a rise, sometimes bounds. What comes back is evaluated again from outside.

    python tools/fuzz_goals.py --cases 10000 --seed 0
    python tools/fuzz_goals.py --only 4711
"""

from __future__ import annotations

import argparse
import math
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import levelport
from levelport import ObjectiveError
from levelport.goals import EndStatus

Function = Callable[[Tensor], Tensor]


def kinds(rng: random.Random, d: int, dtype: torch.dtype) -> dict[str, tuple[Function, Tensor]]:
    """Functions of d variables without units, each with a minimizer or a point near one."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    zero = torch.zeros(d, dtype=dtype)
    root = normal(d, d)
    spread = torch.logspace(0, -rng.choice([0, 2, 6]), d, dtype=torch.float64).to(dtype)
    H = root.T @ (spread[:, None] * root) + 1e-3 * torch.eye(d, dtype=dtype)
    X = normal(10 * d, d)
    y = 2.0 * (torch.rand(10 * d, generator=generator) < 0.5).to(dtype) - 1.0
    wall = rng.uniform(0.2, 2.0)
    c = normal(d)

    def valley(x: Tensor) -> Tensor:
        bend = (x[1:] - x[:-1] ** 2).square().sum() if d > 1 else zero.sum()
        return (x[0] - 1.0) ** 2 + rng_scale * bend

    rng_scale = rng.choice([1.0, 10.0, 100.0])
    return {
        "quadratic": (lambda x: 0.5 * x @ H @ x, zero),
        "offset quadratic": (lambda x: 1e3 + 0.5 * (x - c) @ H @ (x - c), c),
        "quartic": (lambda x: (x**4).sum(), zero),
        "flat": (lambda x: (x[:1] ** 2).sum(), zero),
        "constant": (lambda x: (0.0 * x).sum() + 1.0, zero),
        "saturating": (lambda x: (x**2 / (1.0 + x**2)).sum(), zero),
        "multimodal": (lambda x: (x**2 / 10.0 + 1.0 - torch.cos(3.0 * x)).sum(), zero),
        "wall": (lambda x: (x**2).sum() + 20.0 * torch.exp(-50.0 * (x[0] - wall) ** 2), zero),
        "wells": (lambda x: ((x**2 - 1.0) ** 2).sum(), zero + 1.0),
        "lower well": (lambda x: ((x**2 - 1.0) ** 2).sum() + 0.3 * x.sum(), zero + 1.0),
        "domain": (lambda x: (x - x.log()).sum(), zero + 1.0),
        "not finite": (lambda x: (x**2).sum() + (wall - x[0]).sqrt() * 0.0, zero),
        "kink": (lambda x: (x.abs() + x**2).sum(), zero),
        "valley": (valley, zero + 1.0),
        "exponential": (lambda x: (x.exp() - x).sum(), zero),
        "logistic": (lambda x: -torch.nn.functional.logsigmoid(y * (X @ x)).sum(), zero),
        "saddle": (lambda x: (x**2).sum() - 3.0 * x[0] ** 2, zero),
        "nan": (lambda x: (x * math.nan).sum(), zero),
        "overflow": (lambda x: (1e3 * x).exp().sum() - (1e3 * x).sum(), zero),
    }


@dataclass
class Case:
    """A problem in units."""

    text: str
    f: Function
    x: Tensor
    quantity: Any
    rise: float
    unit_f: float
    bounds: Any


def make(number: int) -> Case:
    rng = random.Random(number)
    dtype = rng.choice([torch.float32, torch.float64])
    d = rng.choice([1, 1, 2, 3, 5, 8, 12])
    named = kinds(rng, d, dtype)
    kind = rng.choice(sorted(named))
    plain, start = named[kind]
    unit_f = 10.0 ** rng.uniform(-8, 8) if rng.random() < 0.6 else 1.0
    unit_h = 10.0 ** rng.uniform(-8, 8) if rng.random() < 0.6 else 1.0
    units = torch.tensor([10.0 ** rng.uniform(-8, 8) if rng.random() < 0.5 else 1.0 for _ in range(d)], dtype=dtype)
    moved = start + rng.choice([0.0, 0.0, 0.0, 1e-4, 0.3]) * torch.ones(d, dtype=dtype)
    index = rng.randrange(d)
    quantities: dict[str, Any] = {
        "entries": None,
        "one entry": [index],
        "scaled": lambda x: unit_h * (x / units)[index],
        "exp": lambda x: unit_h * torch.exp((x / units)[index]),
        "square": lambda x: unit_h * (x / units).square().sum(),
        "ratio": lambda x: unit_h * (x / units)[0] / (1.5 + (x / units)[-1]),
        "constant": lambda x: 0.0 * x.sum() + unit_h,
        "nan": lambda x: unit_h * (x / units)[0].sqrt(),
        "vector": lambda x: unit_h * torch.stack([(x / units).sum(), torch.sin(3.0 * (x / units)[index])]),
    }
    choice = rng.choice(sorted(quantities))
    rise = unit_f * rng.choice([1e-3, 0.5, 1.92, 10.0])
    bounds: Any = None
    if rng.random() < 0.25:
        low = moved - rng.choice([0.0, 0.1, 1.0, 100.0])
        high = moved + rng.choice([0.1, 1.0, 100.0])
        bounds = (low * units if rng.random() < 0.8 else None, high * units if rng.random() < 0.8 else None)
    text = f"{kind}, d {d}, {dtype}, f × {unit_f:.1e}, h × {unit_h:.1e} ({choice}), rise {rise:.2e}, bounds {bounds}"
    return Case(text, lambda x: unit_f * plain(x / units), moved * units, quantities[choice], rise, unit_f, bounds)


def check_interval(case: Case, rng: random.Random) -> tuple[list[str], list[str]]:
    """Return the violations and the statuses of the ends."""
    bad: list[str] = []
    before = case.x.clone()
    try:
        result = levelport.interval(
            case.f,
            case.x,
            case.quantity,
            rise=case.rise,
            bounds=case.bounds,
            refine=rng.random() < 0.3,
            max_cost=rng.choice([5.0, 50.0, 500.0]),
        )
    except (ObjectiveError, ValueError) as error:
        return ([] if len(str(error)) > 20 else [f"a short message: {error}"]), ["refused"]
    if not torch.equal(before, case.x):
        bad.append("x was changed")
    level = result.value + case.rise
    for estimate, (lower, upper) in zip(result.estimates, result.ends, strict=True):
        for end in (lower, upper):
            if end.status is EndStatus.FAILED:
                continue
            if not bool(torch.isfinite(end.x).all()):
                bad.append(f"{end.name} {end.side}: x is not finite")
            value = float(case.f(end.x))
            if not value <= level:
                bad.append(f"{end.name} {end.side}: f = {value!r} above the level {level!r} ({end.status.name})")
            if value != end.value:
                bad.append(f"{end.name} {end.side}: f is {value!r}, not {end.value!r}")
            if not math.isfinite(end.quantity) or math.isnan(end.bound):
                bad.append(f"{end.name} {end.side}: the quantity is {end.quantity}, the end {end.bound}")
            if case.bounds is not None:
                low, high = case.bounds
                if (low is not None and bool((end.x < low).any())) or (high is not None and bool((end.x > high).any())):
                    bad.append(f"{end.name} {end.side}: x is outside its bounds")
        if lower.bound > estimate or upper.bound < estimate:
            bad.append(f"{lower.name}: estimate {estimate} outside [{lower.bound}, {upper.bound}]")
    return bad, [end.status.name for both in result.ends for end in both]


def check_improve(case: Case, rng: random.Random) -> tuple[list[str], list[str]]:
    """Return the violations and the status."""
    goal = case.quantity if callable(case.quantity) else lambda x: x.square().sum()
    maximize = rng.random() < 0.5
    try:
        result = levelport.improve(
            case.f,
            case.x,
            lambda x: goal(x).reshape(-1)[0],
            rise=rng.choice([0.0, case.rise]),
            maximize=maximize,
            max_cost=rng.choice([5.0, 100.0]),
        )
    except (ObjectiveError, ValueError) as error:
        return ([] if len(str(error)) > 20 else [f"a short message: {error}"]), ["refused"]
    if result.status.name == "NON_FINITE_START":
        return [], [result.status.name]
    bad = []
    value = float(case.f(result.x))
    if not value <= result.level:
        bad.append(f"improve: f = {value!r} above the level {result.level!r}")
    if value != result.value:
        bad.append(f"improve: f is {value!r}, not {result.value!r}")
    if not bool(torch.isfinite(result.x).all()):
        bad.append("improve: x is not finite")
    worse = result.goal < result.goal_start if maximize else result.goal > result.goal_start
    if worse or not math.isfinite(result.goal):
        bad.append(f"improve: the goal went from {result.goal_start} to {result.goal}")
    return bad, [result.status.name]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    numbers = [options.only] if options.only is not None else range(options.seed, options.seed + options.cases)
    counts: Counter[str] = Counter()
    violations, slowest = 0, (0.0, 0)
    for number in numbers:
        case, rng = make(number), random.Random(number + 1)
        if options.only is not None:
            print(case.text)
        began = time.perf_counter()
        for check in (check_interval, check_improve):
            try:
                bad, statuses = check(case, rng)
            except Exception:
                bad, statuses = [traceback.format_exc()], ["raised"]
            counts.update(f"{check.__name__.removeprefix('check_')} {status}" for status in statuses)
            for line in bad:
                violations += 1
                print(f"{number}: {case.text}\n    {line}", flush=True)
        slowest = max(slowest, (time.perf_counter() - began, number))
    print(f"{violations} violations in {len(numbers)} cases; slowest {slowest[0]:.1f} s (case {slowest[1]})")
    for status, count in sorted(counts.items()):
        print(f"    {status:30s} {count}")


if __name__ == "__main__":
    main()
