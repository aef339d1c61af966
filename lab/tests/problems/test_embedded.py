"""What ships inside the package: the right values, small, attributed, and not touched by an import."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import levelport_lab
from levelport_lab.problems import storage
from levelport_lab.problems.catalogue import UCI

EMBEDDED = [name for name, entry in UCI.items() if entry.embedded]
PACKAGE = Path(levelport_lab.__file__).parent


def test_at_least_ten_sets_are_embedded() -> None:
    files = {path.stem for path in (PACKAGE / "problems/embedded").glob("*.npz")}
    assert files == set(EMBEDDED)
    assert len(files) >= 10


@pytest.mark.parametrize("name", UCI)
def test_catalogue_agrees_with_the_reference(name: str, reference: Path) -> None:
    with np.load(reference / "uci" / f"{name}.npz") as stored:
        X, y = stored["X"], stored["y"]
    entry = UCI[name]
    assert (entry.samples, entry.features) == X.shape
    assert (entry.negatives, entry.positives) == ((y == -1).sum(), (y == 1).sum())


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_values_equal_the_reference(name: str, reference: Path) -> None:
    X, y = storage.load(name)
    with np.load(reference / "uci" / f"{name}.npz") as stored:
        np.testing.assert_array_equal(X, stored["X"])
        np.testing.assert_array_equal(y, stored["y"])


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_features_are_standardised(name: str) -> None:
    X, y = storage.load(name)
    assert X.shape == (UCI[name].samples, UCI[name].features)
    # Six significant digits of values up to s leave an error of at most s·5e-6 in a mean.
    slack = 5e-6 * np.abs(X).max()
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=slack)
    np.testing.assert_allclose(X.std(axis=0, ddof=1), 1, atol=2 * slack)
    assert set(np.unique(y)) == {-1, 1}


def test_every_embedded_set_is_attributed() -> None:
    notes = (resources.files("levelport_lab.problems.embedded") / "README.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip() for line in notes.splitlines() if line.startswith("| ")}
    assert set(EMBEDDED) <= rows


def test_package_is_below_six_megabytes() -> None:
    size = sum(path.stat().st_size for path in PACKAGE.rglob("*") if path.suffix in {".py", ".npz", ".md", ".json"})
    assert size < 6e6


PROBE = """
import sys
opened = []
sys.addaudithook(lambda event, arguments: event == "open" and opened.append(str(arguments[0])))
import torch
import levelport
import levelport_lab.problems
data = [path for path in opened if path.endswith((".npz", ".gz"))]
heavy = [name for name in ("scipy", "sklearn", "pandas", "matplotlib") if name in sys.modules]
assert not data, data
assert not heavy, heavy
"""


def test_import_reads_no_data_and_nothing_heavy() -> None:
    answer = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
