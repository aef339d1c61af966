"""The figures that lie on disk, as the report shows them."""

from __future__ import annotations

import base64
import csv
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import get_args

from levelport_lab.choices import Protocol, Reference, Tier
from levelport_lab.claims import Claim
from levelport_lab.paper.registry import STUDIES
from levelport_lab.paper.reproduction import Summary, figure_directory
from levelport_lab.paper.teleports import SOLVER_TITLES


@dataclass(frozen=True)
class Table:
    """Texts in columns."""

    header: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Picture:
    """A picture as a data address, and the sentence under it."""

    source: str
    caption: str


@dataclass(frozen=True)
class Section:
    """One figure as it was found on disk."""

    name: str
    tier: Tier
    protocol: Protocol
    reference: Reference
    directory: Path
    summary: Summary

    @property
    def number(self) -> str:
        """8 of fig8, and how it was run and scored where that is not the text's way with the exact f*."""
        words = [self.name.removeprefix("fig")]
        words += ["released protocol"] if self.protocol == "released" else []
        return ", ".join([*words, *([f"f* {self.reference}"] if self.reference != "exact" else [])])

    @property
    def anchor(self) -> str:
        """For links within the page: protocol and f* are in the directory's name."""
        return self.directory.name

    @property
    def extent(self) -> str:
        """Return how much of the figure was run."""
        return self.summary.extent(self.tier)

    @property
    def failures(self) -> list[str]:
        """Return what went wrong; a failed task without a message of its own is counted."""
        silent = self.summary.failed_tasks - len(self.summary.failures)
        return [*self.summary.failures, *([f"{silent} more failed tasks"] if silent > 0 else [])]

    def pictures(self) -> list[Path]:
        """The pictures that are there; a name that leads out of the directory is passed over."""
        inside = self.directory.resolve()
        paths = [self.directory / name for name in self.summary.pictures]
        return [path for path in paths if path.resolve().parent == inside and path.is_file()]

    def shown(self) -> list[Picture]:
        """The pictures themselves, each with its caption."""
        return [
            Picture(f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode('ascii')}", self.caption(path))
            for path in self.pictures()
        ]

    def caption(self, path: Path) -> str:
        """Return what distinguishes this picture from the others of its figure, from its file's name.

        A name is FIGURE[-KIND][-SOLVER]: fig9-shared-first-loss-ours is Figure 9 scored with the shared first loss,
        with our solver's teleports.
        """
        rest = path.stem.removeprefix(self.name).strip("-")
        words = [f"Figure {self.number}: {self.summary.title}"]
        for solver, title in SOLVER_TITLES.items():
            if rest == solver or rest.endswith(f"-{solver}"):
                rest = rest.removesuffix(solver).strip("-")
                words.append(f"teleports by the {title}" if solver == "published" else f"teleports by {title}")
        if rest:
            words.insert(1, rest.replace("-", " "))
        return "; ".join([*words, self.extent]) + "."

    def claims(self, holds: bool | None) -> list[Claim]:
        """Those with this outcome."""
        return [claim for claim in self.summary.claims if claim.holds is holds]

    def digest(self) -> Table | None:
        """The figure's numbers in short, where they were written."""
        path = self.directory / "digest.csv"
        if not path.exists():
            return None
        try:
            with path.open(newline="", encoding="utf-8", errors="replace") as file:
                header, *rows = [row for row in csv.reader(file) if row] or [[]]
        except csv.Error as error:
            raise ValueError(
                f"the file {path} is damaged ({error}). Make it anew by running its figure again."
            ) from error
        return Table([name.replace("_", " ") for name in header], rows) if rows else None


def find_sections(out: Path) -> list[Section]:
    """The figures under ``out`` in their order, by protocol and f*, each from the largest tier that is there."""
    tiers: tuple[Tier, ...] = ("full", "quick", "smoke")
    found = []
    for name, protocol, reference in product(STUDIES, get_args(Protocol), get_args(Reference)):
        for tier in tiers:
            directory = figure_directory(out, tier, name, protocol, reference)
            if (directory / "summary.json").exists():
                summary = Summary.read(directory / "summary.json")
                found.append(Section(name, tier, protocol, reference, directory, summary))
                break
    return found
