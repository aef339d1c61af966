"""Files that are cut short, altered or exchanged are named and not used."""

from __future__ import annotations

import gzip
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from levelport_lab.problems import storage
from levelport_lab.problems.catalogue import MNIST, UCI, content_digest
from levelport_lab.problems.datasets import load_data
from levelport_lab.problems.storage import DamagedDataWarning, DataError, State


@pytest.fixture
def fetched(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ionosphere as if it had been fetched and were not embedded."""
    embedded = Path(storage.__file__).parent / "embedded" / "ionosphere.npz"
    target = own_cache / "uci" / "ionosphere.npz"
    target.parent.mkdir(parents=True)
    shutil.copyfile(embedded, target)
    places = storage._places
    monkeypatch.setattr(storage, "_places", lambda: (p for p in places() if p[0] is not State.EMBEDDED))
    return target


def test_sound_file_is_used(fetched: Path) -> None:
    assert storage.locate("ionosphere") == storage.Location(State.FETCHED)
    X, _ = storage.load("ionosphere")
    assert X.shape == (351, 33)


@pytest.mark.parametrize("kept", [0, 10, 1000, -1])
def test_truncated_file_is_named_and_not_used(fetched: Path, kept: int) -> None:
    fetched.write_bytes(fetched.read_bytes()[:kept])
    found = storage.locate("ionosphere")
    assert found.state is State.DAMAGED
    assert str(fetched) in found.complaints[0]
    with pytest.raises(DataError, match=r"ionosphere\.npz.*not used.*levelport data fetch ionosphere"):
        storage.load("ionosphere")


@pytest.mark.parametrize("position", [100, 5000, 30000, 60000])
def test_flipped_bits_are_found(fetched: Path, position: int) -> None:
    content = bytearray(fetched.read_bytes())
    content[position] ^= 0xFF
    fetched.write_bytes(content)
    with pytest.raises(DataError, match=str(fetched)):
        storage.load("ionosphere")


@pytest.mark.parametrize(
    ("position", "value"),
    [
        pytest.param(8, 99, id="an unknown method"),
        pytest.param(8, 12, id="another method"),
        pytest.param(8, 14, id="lzma"),
        pytest.param(6, 1, id="encrypted"),
    ],
)
def test_altered_directory_of_the_archive_is_found(fetched: Path, position: int, value: int) -> None:
    """zipfile answers such damage by an exception for every kind of it."""
    content = bytearray(fetched.read_bytes())
    entry = content.index(b"PK\x01\x02") + 2  # the same fields, two bytes later than in front of the data
    content[position] = content[entry + position] = value
    fetched.write_bytes(content)
    assert storage.locate("ionosphere").state is State.DAMAGED


def test_a_single_array_and_a_header_cut_short_are_found(fetched: Path) -> None:
    with open(fetched, "wb") as stream:
        np.save(stream, np.ones(3))
    assert storage.locate("ionosphere").state is State.DAMAGED
    with zipfile.ZipFile(fetched, "w") as archive:
        header = b"{'descr': '<f8', 'fortran_order': (False, 'shape': (3,), }\n"
        archive.writestr("X.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    assert storage.locate("ionosphere").state is State.DAMAGED


def test_whole_file_with_other_values_is_refused(fetched: Path) -> None:
    with np.load(fetched) as stored:
        X, y = stored["X"].copy(), stored["y"]
    X[7, 3] = np.nextafter(X[7, 3], 10)
    np.savez_compressed(fetched, X=X, y=y)
    with pytest.raises(DataError, match="checksum mismatch"):
        storage.load("ionosphere")


def test_directory_comes_before_the_cache_and_damage_is_reported(
    fetched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "mine"
    (directory / "uci").mkdir(parents=True)
    monkeypatch.setenv("LEVELPORT_DATA", str(directory))
    copy = directory / "uci" / "ionosphere.npz"
    shutil.copyfile(fetched, copy)
    assert storage.locate("ionosphere").state is State.DIRECTORY
    copy.write_bytes(b"nonsense")
    assert storage.locate("ionosphere").state is State.FETCHED
    with pytest.warns(DamagedDataWarning, match=r"mine.*Another copy"):
        X, y = storage.load("ionosphere")
    assert content_digest(X, y) == UCI["ionosphere"].digest


def test_missing_set_says_how_to_get_it() -> None:
    assert storage.locate("ozone").state is State.MISSING
    with pytest.raises(DataError, match=r"'ozone' here.*levelport data fetch ozone.*LEVELPORT_DATA"):
        storage.load("ozone")


def test_directory_serves_all_sets_and_mnist(all_sets: Path) -> None:
    for name in UCI:
        assert storage.locate(name).state is (State.EMBEDDED if UCI[name].embedded else State.DIRECTORY)
    assert storage.locate("mnist").state is State.DIRECTORY


def test_mnist_has_its_known_counts(all_sets: Path) -> None:
    images, labels, test_images, test_labels = storage.load("mnist")
    assert images.shape == (60000, 28, 28)
    assert test_images.shape == (10000, 28, 28)
    assert np.bincount(labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(test_labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    data = load_data("mnist")
    assert data.X.dtype == np.float32
    assert abs(float(data.X.mean(dtype=float))) < 1e-3
    assert abs(float(data.X.std(dtype=float)) - 1) < 1e-3
    split = data.split(3)
    assert (len(split.X_train), len(split.X_test)) == (60000, 10000)


def test_truncated_mnist_is_named(all_sets: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEVELPORT_DATA")
    (own_cache / "mnist").mkdir(parents=True)
    for name in MNIST:
        shutil.copyfile(all_sets / "mnist" / name, own_cache / "mnist" / name)
    broken = own_cache / "mnist" / "t10k-labels-idx1-ubyte.gz"
    broken.chmod(0o644)
    broken.write_bytes(broken.read_bytes()[:2000])
    found = storage.locate("mnist")
    assert found.state is State.DAMAGED
    assert str(broken) in found.complaints[0]
    broken.write_bytes(gzip.compress(b"\0\0\x08\x01" + struct.pack(">I", 3) + b"abc"))
    assert "checksum mismatch" in storage.locate("mnist").complaints[0]
