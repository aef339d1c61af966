"""The places of data files, and the check of their contents.

A set is looked for inside the package, then in the directory that ``LEVELPORT_DATA`` names, then in the cache
(the platform's place, or ``LEVELPORT_CACHE``) that ``levelport data fetch`` fills. Both directories have the layout

    uci/<name>.npz              X: float64 (n, d);  y: int8 (n,), -1 or +1
    mnist/*-ubyte.gz            the four idx files: two zero bytes, the type code of bytes, the number of dimensions,
                                their sizes (32 bits each, big-endian), then the entries

Every file is checked against the catalogue each time it is read. One that fails is named and passed over.
"""

from __future__ import annotations

import enum
import gzip
import hashlib
import os
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelport_lab.problems.catalogue import MNIST, UCI, UciSet, content_digest

Arrays = tuple[NDArray[Any], ...]


class DataError(RuntimeError):
    """A data set is absent or damaged; the message names the file and the remedy."""


class DamagedDataWarning(UserWarning):
    """A damaged file was passed over and another copy used."""


class State(enum.Enum):
    """The place of a set, or the reason why it is missing."""

    EMBEDDED = "embedded"
    DIRECTORY = "in LEVELPORT_DATA"
    FETCHED = "fetched"
    DAMAGED = "damaged"
    MISSING = "missing"
    SCIKIT_LEARN = "from scikit-learn"


@dataclass(frozen=True)
class Location:
    """The answer of :func:`locate`: the state, and sentences about damaged files met on the way."""

    state: State
    complaints: tuple[str, ...] = ()


def cache_directory() -> Path:
    """Return the directory of fetched data."""
    chosen = os.environ.get("LEVELPORT_CACHE")
    if chosen:
        return Path(chosen)
    import platformdirs

    return platformdirs.user_cache_path("levelport")


def _places() -> Iterator[tuple[State, Path]]:
    """The directories that may hold data, in the order in which they are asked."""
    yield State.EMBEDDED, Path(str(resources.files("levelport_lab.problems.embedded")))
    directory = os.environ.get("LEVELPORT_DATA")
    if directory:
        yield State.DIRECTORY, Path(directory)
    yield State.FETCHED, cache_directory()


def uci_file(place: Path, name: str) -> Path:
    """The path of a set in a directory of the layout above."""
    return place / "uci" / f"{name}.npz"


def read_uci(path: Path, entry: UciSet) -> Arrays:
    """X and y of a file, verified; :class:`DataError` names a file that is not what it should be."""
    try:
        # numpy leaves a file open that it could not read, so it gets one that is ours to close.
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            X = np.ascontiguousarray(archive["X"], dtype=np.float64)
            y = np.ascontiguousarray(archive["y"], dtype=np.int8)
    except Exception as error:  # numpy and zipfile raise many kinds, depending on which byte is damaged
        raise DataError(f"The file {path} is damaged and was not used: {error}.") from error
    if X.ndim != 2 or y.ndim != 1 or content_digest(X, y) != entry.digest:
        raise DataError(
            f"The file {path} was not used: its values are not those of the data set '{entry.name}' "
            "(checksum mismatch)."
        )
    return X, y


def mnist_array(content: bytes, name: str, origin: object) -> NDArray[np.uint8]:
    """The array in a gzipped idx file of MNIST, verified; :class:`DataError` names its ``origin`` if it is another."""
    try:
        raw = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{origin} is damaged and was not used: {error}.") from error
    if hashlib.sha256(raw).hexdigest() != MNIST[name]:
        raise DataError(f"{origin} was not used: it is not MNIST's {name} (checksum mismatch).")
    start = 4 + 4 * raw[3]
    return np.frombuffer(raw, np.uint8, offset=start).reshape(struct.unpack(f">{raw[3]}I", raw[4:start]))


def read_mnist_file(path: Path) -> NDArray[np.uint8]:
    """The array of one of MNIST's files, verified."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    return mnist_array(content, path.name, path)


def _read_mnist(place: Path) -> Arrays:
    return tuple(read_mnist_file(place / "mnist" / name) for name in MNIST)


def _copies(name: str) -> Iterator[tuple[State, Callable[[], Arrays]]]:
    """Every place that has a copy of a set, sound or not, with a function that reads it."""
    for state, place in _places():
        if name == "mnist":
            if any((place / "mnist" / file).exists() for file in MNIST):
                yield state, partial(_read_mnist, place)
        else:
            path = place / f"{name}.npz" if state is State.EMBEDDED else uci_file(place, name)
            if path.exists():
                yield state, partial(read_uci, path, UCI[name])


def _search(name: str) -> tuple[Location, Arrays]:
    """The first sound copy and what was wrong with those before it; no arrays where there is none."""
    complaints: list[str] = []
    for state, read in _copies(name):
        try:
            return Location(state, tuple(complaints)), read()
        except DataError as error:
            complaints.append(str(error))
    return Location(State.DAMAGED if complaints else State.MISSING, tuple(complaints)), ()


def locate(name: str) -> Location:
    """Find a stored set (one of the twenty, or ``mnist``); reads and checks its files, never raises."""
    return _search(name)[0]


def load(name: str) -> Arrays:
    """The arrays of a stored set from the first place that has a sound copy.

    X and y of one of the twenty; training images and labels, test images and labels of ``mnist``.
    """
    found, arrays = _search(name)
    if arrays:
        for complaint in found.complaints:
            warnings.warn(f"{complaint} Another copy was read instead.", DamagedDataWarning, stacklevel=3)
        return arrays
    file = "mnist/ with the four idx files" if name == "mnist" else f"uci/{name}.npz"
    seen = "".join(f"{complaint} " for complaint in found.complaints)
    raise DataError(
        f"{seen}There is no {'other ' if seen else ''}copy of the data set '{name}' here. Run 'levelport data fetch "
        f"{name}', with '--from DIR' where there is no network, or set LEVELPORT_DATA to a directory that holds {file}."
    )
