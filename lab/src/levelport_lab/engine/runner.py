"""Running a study: what is missing is computed, stored as it arrives, and shown while it goes on."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

from levelport_lab.engine.backends import Backend
from levelport_lab.engine.progress import Progress
from levelport_lab.engine.spec import RunSpec, RunStatus
from levelport_lab.engine.store import Found, Store, TaskResult


@dataclass(frozen=True)
class Plan:
    """The tasks that a start would run, from a look at the store.

    Attributes:
        specs: all tasks, each once.
        found: what the store holds of them.
        todo: what is missing, failed tasks included.
    """

    specs: tuple[RunSpec, ...]
    found: Found
    todo: tuple[RunSpec, ...]

    @classmethod
    def of(cls, specs: Sequence[RunSpec], store: Store) -> Plan:
        """Compare what is wanted with what is there."""
        unique = {spec.key: spec for spec in specs}
        found = store.look(unique)
        failed = set(found.failed)
        todo = tuple(spec for key, spec in unique.items() if key not in found.results or key in failed)
        return cls(tuple(unique.values()), found, todo)

    def rough_seconds(self, jobs: int) -> float:
        """A rough forecast of the time that is left, corrected by how long stored tasks of this plan really took."""
        forecast = {spec.key: spec.rough_seconds for spec in self.specs}
        known = [(result.seconds, forecast[key]) for key, result in self.found.results.items() if not result.failed]
        correction = sum(real for real, _ in known) / sum(rough for _, rough in known) if len(known) >= 5 else 1.0
        return correction * sum(spec.rough_seconds for spec in self.todo) / jobs

    def sentences(self, jobs: int) -> list[str]:
        """Return the sentences to show before it starts."""
        there = len(self.specs) - len(self.todo)
        said = self.found.sentences()
        if self.found.failed:
            said.append(f"{len(self.found.failed)} task(s) failed last time and will run again.")
        line = f"{len(self.specs)} tasks, {there} already there, {len(self.todo)} to run"
        if self.todo:
            line += f", roughly {in_words(self.rough_seconds(jobs))} on {jobs} process{'es' if jobs > 1 else ''}"
        return [*said, line + "."]


@dataclass
class SweepResult:
    """The result of a start; ``failures`` maps a reason to the labels of the tasks that failed for it."""

    results: dict[str, TaskResult]
    computed: int = 0
    failures: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0


def run_plan(plan: Plan, store: Store, backend: Backend, progress: Progress | None = None) -> SweepResult:
    """Compute what is missing and return everything.

    Results are written one by one as they arrive: an interruption at any moment costs at most the tasks in flight.
    """
    shown = progress or Progress()
    sweep = SweepResult(results=dict(plan.found.results))
    began = time.perf_counter()
    with shown.running(plan.todo):
        for task, found_runs, seconds, environment in backend.compute(_not_yet_there(plan, store, shown)):
            parts = list(task.parts(found_runs))
            for spec, runs in parts:
                store.put(spec, runs, seconds / len(parts), environment)
                sweep.computed += 1
                shown.finished(spec, failed=any(run.status is RunStatus.FAILED for run in runs))
    labels = {spec.key: spec.label for spec in plan.todo}
    found = store.look(labels)
    sweep.results.update(found.results)
    for key in found.failed:  # also what another process has computed meanwhile
        reason = next(run.message for run in found.results[key].runs if run.status is RunStatus.FAILED)
        sweep.failures.setdefault(reason, []).append(labels[key])
    if found.damaged:
        sweep.failures["a damaged shard was set aside"] = found.damaged
    sweep.seconds = time.perf_counter() - began
    return sweep


def failure_sentences(failures: Mapping[str, Sequence[str]]) -> list[str]:
    """A sentence per reason, the most frequent first: a missing data set fails hundreds of tasks."""
    ordered = sorted(failures.items(), key=lambda entry: -len(entry[1]))
    return [
        f"failed: {labels[0]}{f' and {len(labels) - 1} more' if len(labels) > 1 else ''}: {reason}"
        for reason, labels in ordered
    ]


def _not_yet_there(plan: Plan, store: Store, shown: Progress) -> Iterator[RunSpec]:
    """The tasks to do, leaving out what another process has finished meanwhile; a family's as one.

    The order differs from process to process, so that two on the same store share the work instead of doubling it.
    """
    failed = set(plan.found.failed)
    families: dict[str, list[RunSpec]] = {}
    for spec in plan.todo:
        families.setdefault(spec.family or spec.key, []).append(spec)
    todo = list(families.values())
    random.Random(os.getpid()).shuffle(todo)
    for family in todo:
        there = [spec.key not in failed and store.has(spec.key) for spec in family]
        for spec in compress(family, there):
            shown.finished(spec, failed=False)
        left = [spec for spec, done in zip(family, there, strict=True) if not done]
        if left:
            yield left[0] if left[0].family is None else left[0].bundle(left)


def in_words(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
