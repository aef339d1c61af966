"""What a run is (:class:`RunSpec`) and what it leaves behind (:class:`Run`).

A specification is a frozen dataclass of plain values. Its key is a hash of its canonical JSON, so that the same
experiment has the same key on every machine and in every session; what has been computed is a set of keys, and what is
left to do is a set difference.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Curve = NDArray[np.float64]


class RunStatus(str, Enum):
    """How a run ended."""

    OK = "ok"
    DIVERGED = "diverged"
    FAILED = "failed"


@dataclass(frozen=True)
class Run:
    """One run: a row of the store.

    Attributes:
        setting: what a grid varies (step size, Armijo constant); nan where there is no grid.
        status, message: how it ended, and why if it did not end well.
        final_value: the training loss at the end, by which settings are chosen.
        chosen: whether this is the run that its task keeps the curves of.
        facts: scalars worth keeping, by name.
        curves: series by name; only chosen runs carry them.
    """

    setting: float = math.nan
    status: RunStatus = RunStatus.OK
    message: str = ""
    final_value: float = math.nan
    chosen: bool = True
    facts: dict[str, float] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)

    @classmethod
    def failure(cls, message: str) -> Run:
        """A run that raised."""
        return cls(status=RunStatus.FAILED, message=message)


@dataclass(frozen=True)
class RunSpec(ABC):
    """One task of a study: everything that decides its result, and nothing else.

    Subclasses add fields of plain values (numbers, strings, None, tuples, frozen dataclasses of these) and a ``kind``.
    ``revision`` is raised when the meaning of a kind changes, so that old results are no longer taken for new.
    """

    kind: ClassVar[str]
    revision: ClassVar[int] = 1

    @abstractmethod
    def run(self) -> list[Run]:
        """Do the work. May raise: the runner turns that into a failed run."""

    @property
    @abstractmethod
    def label(self) -> str:
        """A short name for people."""

    @property
    def family(self) -> str | None:
        """Tasks of one family are computed together, as one :meth:`bundle`; None for those that are not."""
        return None

    @classmethod
    def bundle(cls, specs: Sequence[RunSpec]) -> RunSpec:
        """One task for some of a family; its :meth:`parts` are theirs."""
        raise NotImplementedError

    def parts(self, runs: list[Run]) -> Iterator[tuple[RunSpec, list[Run]]]:
        """The tasks that ``runs`` belong to, each with its own."""
        yield self, runs

    @property
    def rough_seconds(self) -> float:
        """A rough forecast on one core, for the time left; being wrong by a factor of a few does no harm."""
        return 1.0

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Names of the data sets that it reads, so that missing ones are known before it starts."""
        return ()

    def canonical_json(self) -> str:
        """Sorted keys, no spaces, shortest floats; the same text for fields equal in value and in type.

        1 and 1.0 are equal in Python and differ here, so that a field has to be given the type that it declares.
        """
        return canonical_text({"kind": self.kind, "revision": self.revision, **_plain(self)})

    @property
    def key(self) -> str:
        """The first 20 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return key_of(self.canonical_json())


def canonical_text(content: dict[str, Any]) -> str:
    """Return ``content`` as JSON with sorted keys, no spaces and shortest floats."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def key_of(canonical: str) -> str:
    """Return the key of a specification's canonical JSON."""
    return hashlib.sha256(canonical.encode()).hexdigest()[:20]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    raise TypeError(
        f"a run specification holds a {type(value).__name__} ({value!r}); use numbers, strings, None, tuples and "
        "frozen dataclasses only, so that its hash means the same everywhere."
    )
