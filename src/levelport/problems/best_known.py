"""Best values known of problems that nobody can solve for certain: a small table that only ever improves.

The table that ships with the package is ``best_known.json``; values found on this machine go to a table of the same
form in the cache, and the smaller of the two counts. Each entry says how it was found. To enter a point of your own
use :func:`levelport.problems.improve.offer`, which evaluates it.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

from levelport.problems.atomic import replacing
from levelport.problems.storage import cache_directory


@dataclass(frozen=True)
class BestKnown:
    """The value f(x) of some x, and where that x came from."""

    value: float
    how: str


def table_in_package() -> Path:
    """The committed table."""
    return Path(str(resources.files("levelport.problems"))) / "best_known.json"


def table_in_cache() -> Path:
    """The table of this machine."""
    return cache_directory() / "best_known.json"


def table_key(name: str, reg: float, seed: int) -> str:
    """How a problem is called in the tables."""
    return f"{name} reg={reg:g} seed={seed}"


def read_table(path: Path) -> dict[str, BestKnown]:
    """The entries of a table; empty where there is none or it is damaged."""
    try:
        content = json.loads(path.read_text())
        entries = {key: BestKnown(float(entry["value"]), str(entry["how"])) for key, entry in content.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {key: entry for key, entry in entries.items() if math.isfinite(entry.value)}


def lookup(name: str, reg: float, seed: int) -> BestKnown | None:
    """The better of the package's and this machine's value, or None."""
    key = table_key(name, reg, seed)
    entries = [table[key] for table in map(read_table, (table_in_package(), table_in_cache())) if key in table]
    return min(entries, key=lambda entry: entry.value, default=None)


def record(name: str, reg: float, seed: int, found: BestKnown, *, table: Path | None = None) -> bool:
    """Write ``found`` down if it beats what is known; says whether it did.

    ``table`` is this machine's by default. Whoever maintains the package gives the committed one.
    """
    path = table_in_cache() if table is None else table
    known = lookup(name, reg, seed)
    if not math.isfinite(found.value) or (known is not None and known.value <= found.value):
        return False
    entries = read_table(path) | {table_key(name, reg, seed): found}
    with replacing(path) as temporary:
        content = {key: asdict(entry) for key, entry in sorted(entries.items())}
        temporary.write_text(json.dumps(content, indent=1) + "\n")
    return True
