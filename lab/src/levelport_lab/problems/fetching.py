"""Bring data sets into the cache: from their public archives, from a mirror, or from a directory.

Downloads go through pooch, which checks the checksum of what arrived; the transfer itself continues where an
earlier one broke off. What reaches the cache has been verified twice: the bytes as downloaded, and the values after
parsing. Files are written to a temporary name and renamed, so a killed fetch leaves no half file behind.
"""

from __future__ import annotations

import os
import shutil
import urllib.error
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
ATTEMPTS = 3


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
        downloaded = _download(url, f"sha256:{entry.source_sha256}", entry.source, on_piece)
        X, y = parse_benchmark_file(downloaded.read_text())
        downloaded.unlink()
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
    else:
        url = f"{mirror.rstrip('/')}/mnist/{entry.name}" if mirror else entry.url
        origin = _download(url, f"md5:{entry.gzip_md5}", entry.name, on_piece)
        read_mnist_file(origin, entry)
    with replacing(target) as temporary:
        shutil.copyfile(origin, temporary)
    if source is None:
        origin.unlink()
    return target


def parse_benchmark_file(text: str) -> tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.int8]]]:
    """X and y of the benchmark's ``*_R.dat``: a header, then row number, features and class, split by tabs."""
    table = np.array([[float(field) for field in line.split("\t")] for line in text.splitlines()[1:] if line.strip()])
    classes = table[:, -1]
    return np.ascontiguousarray(table[:, 1:-1]), np.where(classes == classes.min(), -1, 1).astype(np.int8)


def _sound(read: Callable[[], object], path: Path) -> bool:
    """Whether the cache already has the file, whole."""
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


def _download(url: str, known_hash: str, file: str, on_piece: OnPiece | None) -> Path:
    """The verified file, in the cache's ``downloads``."""
    import pooch

    directory = cache_directory() / "downloads"
    downloader = ResumingDownloader(directory / f"{file}.part", on_piece)
    pooch.get_logger().setLevel("WARNING")
    try:
        return Path(pooch.retrieve(url, known_hash, fname=file, path=directory, downloader=downloader))
    except ValueError as error:  # pooch: the hash of the download does not match
        raise DataError(f"What {url} sent was not used: {error}") from error
    except (OSError, HTTPException) as error:
        raise DataError(
            f"Could not download {url}: {error}. What arrived is kept; run the command again to go on from there, or "
            "use '--from DIR' with a directory that has the files."
        ) from error


class ResumingDownloader:
    """A downloader for pooch that keeps what has arrived in ``partial`` and asks for the rest only."""

    def __init__(self, partial: Path, on_piece: OnPiece | None = None) -> None:
        self.partial = partial
        self.on_piece = on_piece

    def __call__(self, url: str, output_file: str | os.PathLike[str], pooch: object) -> None:
        self.partial.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._transfer(url)
                break
            except urllib.error.HTTPError as error:
                if error.code == 416:  # the rest starts past the end: what is kept belongs to another file
                    self.partial.unlink(missing_ok=True)
                elif error.code < 500:
                    raise
                if attempt == ATTEMPTS:
                    raise
            except (OSError, HTTPException):
                if attempt == ATTEMPTS:
                    raise
        os.replace(self.partial, output_file)

    def _transfer(self, url: str) -> None:
        have = self.partial.stat().st_size if self.partial.exists() else 0
        request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
        with urllib.request.urlopen(request, timeout=60) as response:
            resumed = response.status == 206
            have = have if resumed else 0
            length = int(response.headers.get("Content-Length") or 0)
            total = have + length if length else 0
            with open(self.partial, "ab" if resumed else "wb") as stream:
                while chunk := response.read(CHUNK):
                    stream.write(chunk)
                    have += len(chunk)
                    if self.on_piece is not None:
                        self.on_piece(self.partial.name.removesuffix(".part"), have, total)
        if total and have < total:
            raise ConnectionError(f"the connection ended after {have} of {total} bytes")
