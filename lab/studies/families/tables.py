"""The tables of the study of the families: moves, training runs, and which arms paid."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from moves import FamilyMoveSpec, Place
from training import DIVERGED, NONE, FamilyTrainingSpec

from levelport_lab.engine.store import TaskResult


def _of(results: Iterable[TaskResult], spec: type[FamilyMoveSpec] | type[FamilyTrainingSpec]) -> list[TaskResult]:
    wanted = (spec.kind, spec.revision)
    return [r for r in results if (r.spec["kind"], r.spec["revision"]) == wanted and not r.failed]


def moves(results: Iterable[TaskResult]) -> pd.DataFrame:
    """A row per move."""
    rows = [
        {
            "place": result.spec["place"]["network"],
            "kind": Place(**result.spec["place"]).kind,
            "seed": result.spec["seed"],
            "steps": result.spec["steps"],
            "family": result.spec["families"][int(run.setting)],
            **run.facts,
        }
        for result in _of(results, FamilyMoveSpec)
        for run in result.runs
    ]
    return pd.DataFrame(rows).sort_values(["place", "steps", "seed"], ignore_index=True) if rows else pd.DataFrame()


def training(results: Iterable[TaskResult], spec: type[FamilyTrainingSpec] = FamilyTrainingSpec) -> pd.DataFrame:
    """A row per fresh run, with the loss of the same optimizer alone at equal cost and at equal processor time."""
    arms = _of(results, spec)
    alone = {_where(arm.spec): arm for arm in arms if arm.spec["family"] == NONE}
    rows = []
    for arm in arms:
        plain = alone.get(_where(arm.spec))
        if plain is None:
            continue
        baseline = {run.facts["seed"]: run for run in plain.runs if run.facts["fresh"]}
        for run in (run for run in arm.runs if run.facts["fresh"]):
            other = baseline[run.facts["seed"]]
            seconds = min(run.facts["seconds"], other.facts["seconds"])
            rows.append(
                {
                    "place": arm.spec["place"]["network"],
                    "kind": Place(**arm.spec["place"]).kind,
                    "batch": arm.spec["batch"] or 0,
                    "optimizer": arm.spec["optimizer"],
                    "family": arm.spec["family"],
                    "schedule": arm.spec["schedule"],
                    "seed": int(run.facts["seed"]),
                    "step_size": run.setting,
                    "interior": min(run.facts["interior"], other.facts["interior"]),
                    "moves": run.facts["moves"],
                    "loss": run.final_value,
                    "alone": other.final_value,
                    "ratio": _ratio(run.final_value, other.final_value),
                    "lead": 1.0 - _ratio(run.final_value, other.final_value),  # has digits where the ratio is near 1
                    "ratio_at_equal_seconds": _ratio(_at(run.curves, seconds), _at(other.curves, seconds)),
                    "test_accuracy": run.facts["test_accuracy"],
                    "test_accuracy_alone": other.facts["test_accuracy"],
                    "seconds": run.facts["seconds"],
                    "budget": arm.spec["max_cost"],
                }
            )
    order = ["place", "batch", "optimizer", "schedule", "family", "seed"]
    return pd.DataFrame(rows).sort_values(order, ignore_index=True) if rows else pd.DataFrame()


def _where(spec: dict[str, Any]) -> tuple[Any, ...]:
    return (spec["place"]["network"], spec["optimizer"], spec["batch"], spec["max_cost"], *spec["fresh"])


def _ratio(ours: float, theirs: float) -> float:
    if ours >= DIVERGED:
        return math.inf if theirs < DIVERGED else 1.0
    return ours / theirs


def _at(curves: dict[str, Any], seconds: float) -> float:
    index = int(np.searchsorted(curves["seconds"], seconds, side="right"))
    return float(curves["value"][max(index - 1, 0)])
