"""Bring data sets into the cache: from their public archives, from a mirror, or from a directory.

What reaches the cache has been verified twice: the bytes as downloaded, and the values after parsing. Files are written
to a temporary name and renamed, so that a killed fetch leaves no half file behind.
"""

from __future__ import annotations

import hashlib
import shutil
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np

from levelport.checks import unknown_name
from levelport_lab.problems.atomic import replacing
from levelport_lab.problems.catalogue import MNIST_FILES, UCI, MnistFile, UciSet, content_digest
from levelport_lab.problems.storage import DataError, cache_directory, read_mnist_file, read_uci, uci_file

OnPiece = Callable[[str, int, int], None]
"""Called with the file's name, the bytes so far and the bytes in all (0 where the server does not say)."""

CHUNK = 1 << 16


def fetch(
    name: str,
    *,
    source: Path | None = None,
    mirror: str | None = None,
    on_piece: OnPiece | None = None,
) -> list[Path]:
    """Put a stored set (one of the twenty, or ``mnist``) into the cache and return its files there.

    Args:
        source: a directory with ``uci/`` and ``mnist/`` to copy from instead of downloading.
        mirror: a base URL that replaces the public archives; it must serve ``<name>/<file>_R.dat`` and
            ``mnist/<file>.gz``.
        on_piece: told about every piece that arrives.
    """
    check_origin(source, mirror)
    if name == "mnist":
        return [_fetch_mnist_file(entry, source, mirror, on_piece) for entry in MNIST_FILES]
    if name not in UCI:
        raise unknown_name("stored data set", name, [*UCI, "mnist"])
    return [_fetch_uci(UCI[name], source, mirror, on_piece)]


def check_origin(source: Path | None, mirror: str | None) -> None:
    """Raise unless files can come from there: one of the two at most, and a mirror with its scheme."""
    if source is not None and mirror is not None:
        raise ValueError("a directory ('--from') and a mirror were given; files can come from one of them only.")
    if mirror is not None and urllib.parse.urlsplit(mirror).scheme not in ("http", "https", "ftp", "file"):
        raise ValueError(f"mirror must be a whole address, as in https://{mirror.lstrip('/')}, not {mirror!r}.")


def _fetch_uci(entry: UciSet, source: Path | None, mirror: str | None, on_piece: OnPiece | None) -> Path:
    target = uci_file(cache_directory(), entry.name)
    if _sound(lambda: read_uci(target, entry), target):
        return target
    if source is not None:
        X, y = read_uci(_existing(uci_file(source, entry.name)), entry)
    else:
        url = f"{mirror.rstrip('/')}/{entry.name}/{entry.source}" if mirror else entry.url
        content = _download(url, "sha256", entry.source_sha256, on_piece)
        X, y = parse_benchmark_file(content.decode())
        if content_digest(X, y) != entry.digest:
            raise DataError(f"The file {url} has the right checksum but not the values of '{entry.name}'.")
    with replacing(target) as temporary, open(temporary, "wb") as stream:
        np.savez_compressed(stream, X=X, y=y)
    return target


def _fetch_mnist_file(entry: MnistFile, source: Path | None, mirror: str | None, on_piece: OnPiece | None) -> Path:
    target = cache_directory() / "mnist" / entry.name
    if _sound(lambda: read_mnist_file(target, entry), target):
        return target
    if source is not None:
        origin = _existing(source / "mnist" / entry.name)
        read_mnist_file(origin, entry)
        with replacing(target) as temporary:
            shutil.copyfile(origin, temporary)
        return target
    url = f"{mirror.rstrip('/')}/mnist/{entry.name}" if mirror else entry.url
    content = _download(url, "md5", entry.gzip_md5, on_piece)
    with replacing(target) as temporary:
        temporary.write_bytes(content)
        read_mnist_file(temporary, entry)
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


def _download(url: str, algorithm: str, digest: str, on_piece: OnPiece | None) -> bytes:
    """Return what the address sends, verified; the largest file has ten megabytes."""
    content = bytearray()
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            total = int(response.headers.get("Content-Length") or 0)
            while chunk := response.read(CHUNK):
                content += chunk
                if on_piece is not None:
                    on_piece(url.rpartition("/")[2], len(content), total)
    except (OSError, HTTPException) as error:
        raise DataError(
            f"Could not download {url}: {error}. Run the command again, or use '--from DIR' with a directory that has "
            "the files."
        ) from error
    if hashlib.new(algorithm, content, usedforsecurity=False).hexdigest() != digest:
        raise DataError(f"What {url} sent was not used: its {algorithm} hash is not the known one.")
    return bytes(content)
