"""A statement and what was measured about it: the paper's conclusions and our own goals are both of this kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

NOT_THERE = "the runs that it needs are not there"
"""What is measured where nothing ran."""


class NotRunError(Exception):
    """The runs that a claim needs are not there or failed, so that nothing can be said about it.

    What it says, if anything, is what is lacking.
    """


@dataclass(frozen=True)
class Claim:
    """A statement, and what the runs say about it.

    Attributes:
        statement: what is claimed, in our words.
        holds: whether the runs bear it out; None where they say nothing.
        measured: the figures that decide.
        name: short and unique, where a claim is looked up.
        solver: whose teleports it was checked with; empty where that does not matter.
    """

    statement: str
    holds: bool | None
    measured: str
    name: str = ""
    solver: str = ""

    @classmethod
    def checked(cls, name: str, statement: str, check: Callable[[], tuple[bool, str]], solver: str = "") -> Claim:
        """Ask ``check`` whether it holds and what was measured; runs that are missing or failed leave it open."""
        try:
            holds, measured = check()
        except NotRunError as lacking:
            return cls(statement, None, str(lacking) or NOT_THERE, name, solver)
        return cls(statement, bool(holds), measured, name, solver)

    @property
    def missing(self) -> bool:
        """True if it is open because nothing ran; other open claims have runs that decide nothing."""
        return self.holds is None and NOT_THERE in self.measured

    @property
    def outcome(self) -> str:
        """Return what was found, as a sentence."""
        return "not decided" if self.holds is None and not self.missing else in_words(self.holds)


def in_words(holds: bool | None) -> str:
    """``holds`` for people."""
    return {True: "holds", False: "does not hold", None: "not run"}[holds]
