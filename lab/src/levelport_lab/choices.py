"""The choices of the command line, in one place that imports nothing."""

from __future__ import annotations

from typing import Literal

Tier = Literal["smoke", "quick", "full"]
"""The size of a run: seconds, minutes, or all of it."""

SolverName = Literal["published", "ours"]
"""Whose teleports: the paper's algorithm, or the library's default."""

HalfName = Literal["stochastic", "deterministic"]
"""The halves of a performance profile."""

Protocol = Literal["text", "released"]
"""Runs and scores as the paper's text says, or as its authors' released scripts do."""

Reference = Literal["exact", "released"]
"""Which f* decides what is solved: certified (for networks the best value seen), or the authors' own numbers."""

BackendName = Literal["loky", "dask", "ray"]
"""The place where runs are computed: processes here, or a cluster."""
