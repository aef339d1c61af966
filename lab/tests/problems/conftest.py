"""A cache of its own for every test here, and the optional directory with the reference data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from levelport_lab.problems import datasets, optima
from levelport_lab.problems.catalogue import UCI

REFERENCE = Path(__file__).resolve().parents[3] / "../shared/data"
"""A sibling of the checkout with ``uci/`` and ``mnist/``, where there is one."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nothing leaks from the user's cache into a test, or back."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("LEVELPORT_CACHE", str(cache))
    monkeypatch.delenv("LEVELPORT_DATA", raising=False)
    _forget()
    yield cache
    _forget()


def _forget() -> None:
    datasets.load_data.cache_clear()
    optima.optimum.cache_clear()


@pytest.fixture(scope="session")
def reference() -> Path:
    """The directory with the reference data; the test is skipped where it is absent."""
    if not (REFERENCE / "uci").is_dir():
        pytest.skip("the directory with the reference data is not beside the checkout")
    return REFERENCE


@pytest.fixture
def all_sets(reference: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All twenty sets and MNIST at hand."""
    monkeypatch.setenv("LEVELPORT_DATA", str(reference))
    return reference


@pytest.fixture
def sets_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the twenty sets that can be loaded: all with the reference data, the embedded ones without."""
    complete = (REFERENCE / "uci").is_dir()
    if complete:
        monkeypatch.setenv("LEVELPORT_DATA", str(REFERENCE))
    return [name for name, entry in UCI.items() if complete or entry.embedded]


@pytest.fixture
def set_here(sets_here: list[str], request: pytest.FixtureRequest) -> str:
    """The set that the test asks for by an indirect parameter, where it is here."""
    name = str(request.param)
    if name not in sets_here:
        pytest.skip(f"{name} is not embedded, and the reference data are not beside the checkout")
    return name
