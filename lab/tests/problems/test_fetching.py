"""Fetching from a server on this machine: whole, broken off, altered, absent; and from a directory."""

from __future__ import annotations

import gzip
import hashlib
import re
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from levelport_lab.cli.data import app as data_app
from levelport_lab.problems import catalogue, fetching, storage
from levelport_lab.problems.catalogue import ARCHIVE, UCI, content_digest
from levelport_lab.problems.fetching import fetch, parse_benchmark_file
from levelport_lab.problems.storage import DataError, uci_file

NAME = "ionosphere"


def benchmark_file(X: np.ndarray, y: np.ndarray) -> bytes:
    """The source file of a set, byte for byte, written from its values."""
    header = "\t".join(["", *(f"f{j + 1}" for j in range(X.shape[1])), "clase"])
    rows = [
        "\t".join([str(i + 1), *(f"{value:g}" for value in row), str(int(label > 0))])
        for i, (row, label) in enumerate(zip(X, y, strict=True))
    ]
    return "\n".join([header, *rows, ""]).encode()


class Server(ThreadingHTTPServer):
    """Serves ``files``; a path in ``cut`` loses its connection after so many bytes, once per number listed."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cut: dict[str, list[int]] = {}
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        if self.path not in self.server.files:
            self.send_error(404)
            return
        body = self.server.files[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cuts = self.server.cut.get(self.path, [])
        self.wfile.write(body[: cuts.pop(0)] if cuts else body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server in place of the public archives."""
    with Server() as server:
        monkeypatch.setattr(catalogue, "ARCHIVE", server.url)
        monkeypatch.setattr(catalogue, "MNIST_ARCHIVE", f"{server.url}/mnist")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def source(server: Server) -> str:
    """The path on the server of the set's real source file."""
    path = f"/{NAME}/{UCI[NAME].source}"
    server.files[path] = benchmark_file(*storage.load(NAME))
    return path


@pytest.mark.parametrize("set_here", UCI, indirect=True)
def test_source_files_parse_to_the_catalogued_values(set_here: str) -> None:
    name = set_here
    content = benchmark_file(*storage.load(name))
    assert content_digest(*parse_benchmark_file(content.decode())) == UCI[name].digest
    assert UCI[name].url == f"{ARCHIVE}/{name}/{UCI[name].source}"


def test_download_parse_store(server: Server, source: str, own_cache: Path) -> None:
    (path,) = fetch(NAME)
    assert path == uci_file(own_cache, NAME)
    X, y = storage.read_uci(path, UCI[NAME])
    assert content_digest(X, y) == UCI[NAME].digest
    assert [file.name for file in own_cache.rglob("*") if file.is_file()] == [path.name]


def test_what_is_here_is_not_downloaded_again(server: Server, source: str) -> None:
    fetch(NAME)
    fetch(NAME)
    assert len(server.requests) == 1


def test_damaged_copy_is_replaced(server: Server, source: str, own_cache: Path) -> None:
    (path,) = fetch(NAME)
    path.write_bytes(path.read_bytes()[:500])
    fetch(NAME)
    assert len(server.requests) == 2
    storage.read_uci(path, UCI[NAME])


def test_broken_transfer_leaves_nothing(server: Server, source: str, own_cache: Path) -> None:
    server.cut[source] = [20_000]
    with pytest.raises(DataError, match=r"Could not download|was not used"):
        fetch(NAME)
    assert not [path for path in own_cache.rglob("*") if path.is_file()]
    fetch(NAME)
    storage.read_uci(uci_file(own_cache, NAME), UCI[NAME])


def test_altered_file_is_named_and_not_used(server: Server, source: str, own_cache: Path) -> None:
    good = server.files[source]
    server.files[source] = good.replace(b"0.0", b"0.1", 1)
    with pytest.raises(DataError, match=rf"{re.escape(server.url + source)} sent was not used.*checksum"):
        fetch(NAME)
    assert not uci_file(own_cache, NAME).exists()
    server.files[source] = good
    fetch(NAME)


def test_absent_file_and_absent_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"Could not download .*404.*--from DIR"):
        fetch(NAME)
    assert len(server.requests) == 1, "a file that is not there is not asked for again"
    monkeypatch.setattr(catalogue, "ARCHIVE", "http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"Could not download http://127\.0\.0\.1:9/"):
        fetch(NAME)


def idx(*shape: int) -> bytes:
    entries = np.arange(np.prod(shape), dtype=np.uint8) % 10
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + entries.tobytes()


def test_mnist_by_server_and_by_directory(
    server: Server, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small stand-ins for the four files, with their own checksums; an archive may compress otherwise."""
    digests = {}
    for name, shape in [
        ("train-images", (6, 2, 2)),
        ("train-labels", (6,)),
        ("t10k-images", (3, 2, 2)),
        ("t10k-labels", (3,)),
    ]:
        raw, file = idx(*shape), f"{name}-idx{len(shape)}-ubyte.gz"
        digests[file] = hashlib.sha256(raw).hexdigest()
        server.files[f"/mnist/{file}"] = gzip.compress(raw, mtime=0)
        (tmp_path / "mnist").mkdir(exist_ok=True)
        (tmp_path / "mnist" / file).write_bytes(gzip.compress(raw, compresslevel=1, mtime=1))
    monkeypatch.setattr(fetching, "MNIST", digests)
    monkeypatch.setattr(storage, "MNIST", digests)
    paths = fetch("mnist")
    assert [path.parent for path in paths] == [own_cache / "mnist"] * 4
    assert [array.shape for array in storage.load("mnist")] == [(6, 2, 2), (6,), (3, 2, 2), (3,)]
    paths[1].write_bytes(b"")
    fetch("mnist", source=tmp_path)
    assert storage.locate("mnist").state is storage.State.FETCHED
    assert len(server.requests) == 4


def test_from_directory(all_sets: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEVELPORT_DATA")
    fetch("ozone", source=all_sets)
    assert storage.locate("ozone").state is storage.State.FETCHED


def test_directory_without_or_with_a_broken_file(tmp_path: Path, own_cache: Path) -> None:
    with pytest.raises(DataError, match=r"ozone\.npz does not exist.*uci/ and mnist/"):
        fetch("ozone", source=tmp_path)
    broken = uci_file(tmp_path, "ozone")
    broken.parent.mkdir()
    broken.write_bytes(b"PK")
    with pytest.raises(DataError, match=str(broken)):
        fetch("ozone", source=tmp_path)
    assert not uci_file(own_cache, "ozone").exists()


def test_command_line_downloads_what_is_missing(
    server: Server, all_sets: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "cylinder-bands"
    server.files[f"/{name}/{UCI[name].source}"] = benchmark_file(*storage.load(name))
    monkeypatch.delenv("LEVELPORT_DATA")
    answer = CliRunner().invoke(data_app, ["fetch", name, "hill-valley"])
    assert answer.exit_code == 1, "hill-valley is not on the server"
    assert "hill-valley_train_R.dat" in answer.output
    assert storage.locate(name).state is storage.State.FETCHED
    assert storage.locate("hill-valley").state is storage.State.MISSING
