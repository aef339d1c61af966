"""Results on disk: one parquet shard per task, written so that no moment is a bad one to pull the plug.

* A shard is there in full or not at all (:mod:`levelport_lab.atomic`).
* Its name is the key of the specification. Two processes that compute the same task write the same name: the second
  rename replaces the first, and nothing is counted twice. Files under other names are not read.
* A shard carries, in its metadata, the SHA-256 of all its other bytes, which is compared before anything else looks at
  them.
* A shard whose content is damaged, or belongs to another name, is moved to ``damaged/`` and reported; its task counts
  as not done. One that the system does not let us read (rights, open files, memory, the disk) may be whole: it stays,
  and the trouble is an error.
* What a shard would unpack to is bounded before it is read: a damaged or malicious one does not fill the memory.
* A failed run is a row like any other, with a status and a message. Its task is done again at the next start.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from levelport_lab.atomic import remove_leftovers, replacing
from levelport_lab.engine.spec import Run, RunSpec, RunStatus, canonical_text, key_of

SCHEMA = pa.schema(
    [
        ("setting", pa.float64()),
        ("status", pa.string()),
        ("message", pa.string()),
        ("final_value", pa.float64()),
        ("chosen", pa.bool_()),
        ("facts", pa.map_(pa.string(), pa.float64())),
        ("curves", pa.map_(pa.string(), pa.list_(pa.float64()))),
    ]
)

MOST_BYTES = 256 * 2**20
"""The most that a shard may unpack to; the largest of the paper's tasks has less than a hundredth of it."""

_NAME = re.compile(r"[0-9a-f]{20}\.parquet")
_SAID = re.compile(rb'"sha256": "([0-9a-f]{64})"')


class StoreError(OSError):
    """Results cannot be written or the store cannot be used; the message says what is safe and what to do."""


@dataclass(frozen=True)
class TaskResult:
    """The stored result of one task."""

    key: str
    spec: dict[str, Any]
    runs: tuple[Run, ...]
    seconds: float
    environment: dict[str, str]

    @property
    def failed(self) -> bool:
        """True if any of its runs raised."""
        return any(run.status is RunStatus.FAILED for run in self.runs)

    @property
    def best(self) -> Run:
        """The chosen run."""
        return next((run for run in self.runs if run.chosen), self.runs[0])


@dataclass
class Found:
    """The contents of a store: results by key, and everything out of the ordinary."""

    results: dict[str, TaskResult] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    leftovers: int = 0

    @property
    def done(self) -> list[str]:
        """Keys of the tasks without failed runs."""
        return [key for key, result in self.results.items() if not result.failed]

    @property
    def failed(self) -> list[str]:
        """Keys of the tasks with failed runs."""
        return [key for key, result in self.results.items() if result.failed]

    def sentences(self) -> list[str]:
        """Return the sentences to show; empty if nothing is wrong."""
        said = [f"A damaged shard was set aside and its task will run again: {line}" for line in self.damaged]
        if self.leftovers:
            said.append(f"{self.leftovers} unfinished file(s) of interrupted processes were removed.")
        return said


class Store:
    """A directory of shards. Safe to share between processes on one file system.

    It is made if it is not there; with ``make=False``, for readers, a missing one is an empty one.
    """

    def __init__(self, root: Path, *, make: bool = True) -> None:
        self.root = root
        self.shards = root / "shards"
        self.damaged = root / "damaged"
        if not make:
            return
        try:
            self.shards.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"the results directory {root} cannot be made ({error.strerror}); choose another with --out."
            ) from error

    def path(self, key: str) -> Path:
        """Return the path of the shard of a task."""
        return self.shards / f"{key}.parquet"

    def has(self, key: str) -> bool:
        """Return True if a shard of that name is there; a cheap look while others may be writing."""
        return self.path(key).exists()

    def put(self, spec: RunSpec, runs: Iterable[Run], seconds: float, environment: dict[str, str]) -> None:
        """Write the runs of one task, all or nothing."""
        rows = [_row(run) for run in runs]
        about = {
            "key": spec.key,
            "spec": json.loads(spec.canonical_json()),
            "seconds": seconds,
            "environment": environment,
            "sha256": "0" * 64,
        }
        table = pa.Table.from_pylist(rows, schema=SCHEMA.with_metadata({"levelport": json.dumps(about)}))
        try:
            with replacing(self.path(spec.key)) as temporary:
                pq.write_table(table, temporary, compression="zstd")
                _sign(temporary)
        except OSError as error:
            raise StoreError(
                f"a result could not be written to {self.shards} ({error.strerror or error}). Everything written "
                "before is safe: make room or choose another directory with --out, and start the same command again."
            ) from error

    def look(self, keys: Iterable[str] | None = None) -> Found:
        """Read the shards of ``keys`` (all if None), set damaged ones aside, and report."""
        found = Found(leftovers=remove_leftovers(self.shards))
        wanted = None if keys is None else set(keys)
        for path in sorted(self.shards.glob("*.parquet")):
            if not is_shard(path.name) or (wanted is not None and path.stem not in wanted):
                continue
            result = self._read(path, found)
            if result is not None:
                found.results[result.key] = result
        return found

    def _read(self, path: Path, found: Found) -> TaskResult | None:
        try:
            about, rows = _unpacked(path)
            if about["key"] != path.stem:
                raise ValueError(f"its content belongs to the task {about['key']}")
            runs = tuple(_run(row) for row in rows)
            return TaskResult(about["key"], about["spec"], runs, about["seconds"], about["environment"])
        except FileNotFoundError:
            return None  # another process has just set it aside
        except MemoryError as error:
            raise StoreError(f"memory ran out while {path} was read; nothing was moved.") from error
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the system's trouble, not the file's
                raise StoreError(
                    f"{path} cannot be read ({os.strerror(error.errno)}); nothing was moved. Mend that and start the "
                    "same command again."
                ) from error
            self.damaged.mkdir(exist_ok=True)
            aside = self.damaged / f"{path.stem}-{uuid.uuid4().hex[:8]}.parquet"
            with contextlib.suppress(FileNotFoundError):
                os.replace(path, aside)
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                found.damaged.append(f"{path.name} ({reason}); now {aside}")
            return None


def is_shard(name: str) -> bool:
    """Return True if a file's name is a key with the suffix of a shard."""
    return _NAME.fullmatch(name) is not None


def _unpacked(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what a shard says and its rows; raise ValueError if it is too large or not what was written."""
    content = path.read_bytes()
    place = _place(content)
    if content[slice(*place)].decode() != _checksum(content, place):
        raise ValueError("its checksum is wrong")
    _check_size(path)
    table = pq.read_table(path, partitioning=None)
    about = json.loads(table.schema.metadata[b"levelport"])
    if key_of(canonical_text(about["spec"])) != about["key"]:
        raise ValueError("its specification does not belong to its key")
    if not table.num_rows:
        raise ValueError("it holds no run")
    return about, table.to_pylist()


def _check_size(path: Path) -> None:
    """Raise ValueError if a shard would unpack to more than :data:`MOST_BYTES`; only its footer is read.

    pyarrow aborts the process on some damaged footers: for files whose bytes have been checked.
    """
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
        columns = [group.column(index) for group in groups for index in range(group.num_columns)]
        # Repeated values may be stored once, so that their number says more than the size of the pages.
        size = sum(max(column.total_uncompressed_size, 8 * column.num_values) for column in columns)
    if size > MOST_BYTES:
        raise ValueError(f"it would unpack to {size} bytes; no task has more than {MOST_BYTES}")


def _sign(path: Path) -> None:
    """Put the checksum of the file in place of the zeros in its metadata."""
    content = path.read_bytes()
    place = _place(content)
    path.write_bytes(content[: place[0]] + _checksum(content, place).encode() + content[place[1] :])


def _place(content: bytes) -> tuple[int, int]:
    """Return where in a shard the checksum begins and ends; metadata come last."""
    places = [match.span(1) for match in _SAID.finditer(content)]
    if not places:
        raise ValueError("it has no checksum")
    return places[-1]


def _checksum(content: bytes, place: tuple[int, int]) -> str:
    """Return the SHA-256 of a file's bytes without those where the checksum itself stands."""
    return hashlib.sha256(content[: place[0]] + content[place[1] :]).hexdigest()


def _row(run: Run) -> dict[str, Any]:
    return {
        "setting": run.setting,
        "status": run.status.value,
        "message": run.message,
        "final_value": run.final_value,
        "chosen": run.chosen,
        "facts": sorted(run.facts.items()),
        "curves": [(name, np.asarray(run.curves[name], dtype=np.float64)) for name in sorted(run.curves)],
    }


def _run(row: dict[str, Any]) -> Run:
    return Run(
        setting=row["setting"],
        status=RunStatus(row["status"]),
        message=row["message"],
        final_value=row["final_value"],
        chosen=row["chosen"],
        facts=dict(row["facts"]),
        curves={name: np.asarray(curve, dtype=np.float64) for name, curve in row["curves"]},
    )
