"""Bring data sets into the cache: from their public archives or from a directory.

Only values with the catalogue's checksum reach the cache. Files are written to a temporary name and renamed, so that a
killed fetch leaves no half file behind.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import wrap_file

from levelport.checks import unknown_name
from levelport_lab.atomic import replacing
from levelport_lab.problems import catalogue
from levelport_lab.problems.catalogue import MNIST, UCI, UciSet, content_digest
from levelport_lab.problems.storage import (
    Arrays,
    DataError,
    cache_directory,
    mnist_array,
    read_mnist_file,
    read_uci,
    uci_file,
)


def fetch(name: str, *, source: Path | None = None) -> list[Path]:
    """Put a stored set (one of the twenty, or ``mnist``) into the cache and return its files there.

    ``source`` is a directory with ``uci/`` and ``mnist/`` to copy from instead of downloading.
    """
    if name == "mnist":
        return [_fetch_mnist_file(file, source) for file in MNIST]
    if name not in UCI:
        raise unknown_name("stored data set", name, [*UCI, "mnist"])
    return [_fetch_uci(UCI[name], source)]


def _fetch_uci(entry: UciSet, source: Path | None) -> Path:
    target = uci_file(cache_directory(), entry.name)
    if _sound(lambda: read_uci(target, entry), target):
        return target
    if source is not None:
        X, y = read_uci(_existing(uci_file(source, entry.name)), entry)
    else:
        X, y = _parsed(entry, _download(entry.url))
    with replacing(target) as temporary, open(temporary, "wb") as stream:
        np.savez_compressed(stream, X=X, y=y)
    return target


def _parsed(entry: UciSet, content: bytes) -> Arrays:
    """X and y of a downloaded file, verified."""
    with contextlib.suppress(ValueError, IndexError):  # whatever it is, it is no table
        X, y = parse_benchmark_file(content.decode())
        if content_digest(X, y) == entry.digest:
            return X, y
    raise DataError(f"What {entry.url} sent was not used: it is not the data set '{entry.name}' (checksum mismatch).")


def _fetch_mnist_file(name: str, source: Path | None) -> Path:
    target = cache_directory() / "mnist" / name
    if _sound(lambda: read_mnist_file(target), target):
        return target
    if source is not None:
        origin = str(_existing(source / "mnist" / name))
        content = Path(origin).read_bytes()
    else:
        origin = f"{catalogue.MNIST_ARCHIVE}/{name}"
        content = _download(origin)
    mnist_array(content, name, origin)
    with replacing(target) as temporary:
        temporary.write_bytes(content)
    return target


def parse_benchmark_file(text: str) -> tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.int8]]]:
    """X and y of the benchmark's ``*_R.dat``: a header, then row number, features and class, split by tabs."""
    table = np.array([[float(field) for field in line.split("\t")] for line in text.splitlines()[1:] if line.strip()])
    classes = table[:, -1]
    return np.ascontiguousarray(table[:, 1:-1]), np.where(classes == classes.min(), -1, 1).astype(np.int8)


def _sound(read: Callable[[], object], path: Path) -> bool:
    """Return True if the cache already has the file, whole."""
    if not path.exists():
        return False
    try:
        read()
    except DataError:
        return False
    return True


def _existing(path: Path) -> Path:
    if not path.exists():
        raise DataError(f"The file {path} does not exist. '--from' takes a directory with uci/ and mnist/ inside.")
    return path


def _download(url: str) -> bytes:
    """Return what the address sends; the largest file has ten megabytes. A terminal shows a bar."""
    content, name, silent = io.BytesIO(), url.rpartition("/")[2], not sys.stderr.isatty()
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            total = int(response.headers.get("Content-Length") or 0)
            with wrap_file(response, total, description=name, transient=True, disable=silent) as stream:
                shutil.copyfileobj(stream, content)
    except (OSError, HTTPException) as error:
        raise DataError(
            f"Could not download {url}: {error}. Run the command again, or use '--from DIR' with a directory that has "
            "the files."
        ) from error
    return content.getvalue()
