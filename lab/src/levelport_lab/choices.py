"""What a user can choose from, in one place that imports nothing: the command line offers what the laboratory knows."""

from __future__ import annotations

from typing import Literal

Tier = Literal["smoke", "quick", "full"]
"""How much to run: seconds, minutes, or all of it."""

SolverName = Literal["published", "ours"]
"""Whose teleports: the paper's algorithm, or the library's default."""

HalfName = Literal["stochastic", "deterministic"]
"""The halves of a performance profile."""

Protocol = Literal["text", "released"]
"""How the paper's experiments are run and scored: as its text says, or as its authors' released scripts do."""

Reference = Literal["exact", "released"]
"""Which f* decides what is solved: certified (for networks the best value seen), or the authors' own numbers."""

BackendName = Literal["loky", "dask", "ray"]
"""Where runs are computed: processes here, or a cluster."""
