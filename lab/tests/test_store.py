from __future__ import annotations

import errno
import json
import os
import random
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arithmetic import Squares

from levelport_lab.engine import store as store_module
from levelport_lab.engine.spec import Run, RunStatus
from levelport_lab.engine.store import Store, StoreError

ENVIRONMENT = {"host": "here"}


def put(store: Store, spec: Squares) -> None:
    store.put(spec, spec.run(), 0.5, ENVIRONMENT)


def test_what_is_put_is_found(tmp_path: Path) -> None:
    store = Store(tmp_path)
    spec = Squares(4)
    runs = [
        Run(setting=0.1, final_value=1.5, chosen=False, facts={"a": 2.0, "b": np.inf}),
        Run(setting=0.2, status=RunStatus.DIVERGED, message="ω → ∞", final_value=np.inf, curves={"v": np.arange(3.0)}),
    ]
    store.put(spec, runs, 0.5, ENVIRONMENT)
    result = Store(tmp_path).look([spec.key]).results[spec.key]
    assert result.seconds == 0.5
    assert result.environment == ENVIRONMENT
    assert result.spec["n"] == 4
    assert [run.setting for run in result.runs] == [0.1, 0.2]
    assert result.runs[0].facts == {"a": 2.0, "b": np.inf}
    assert result.runs[1].message == "ω → ∞"
    assert result.runs[1].status is RunStatus.DIVERGED
    assert result.best is result.runs[1]
    np.testing.assert_array_equal(result.best.curves["v"], [0.0, 1.0, 2.0])


def test_only_wanted_keys_are_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for n in (1, 2, 3):
        put(store, Squares(n))
    assert set(store.look([Squares(2).key, Squares(9).key]).results) == {Squares(2).key}
    assert len(store.look().results) == 3


@pytest.mark.parametrize("harm", ["truncated", "bit flip", "empty", "another task's content", "not parquet"])
def test_damaged_shard_is_set_aside_and_reported(tmp_path: Path, harm: str) -> None:
    store = Store(tmp_path)
    good, bad = Squares(3), Squares(2000)
    put(store, good)
    put(store, bad)
    path = store.path(bad.key)
    content = bytearray(path.read_bytes())
    if harm == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif harm == "bit flip":
        content[len(content) // 3] ^= 0x10  # in the middle of the curve's pages
        path.write_bytes(content)
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "another task's content":
        shutil.copy(store.path(good.key), path)
    else:
        path.write_bytes(b"hello" * 100)
    found = store.look([good.key, bad.key])
    assert set(found.results) == {good.key}
    assert len(found.damaged) == 1
    assert path.name in found.sentences()[0]
    assert not path.exists()
    assert len(list(store.damaged.iterdir())) == 1
    # The next look finds a clean store, and the task can be stored again.
    assert store.look([good.key, bad.key]).sentences() == []
    put(store, bad)
    assert set(store.look([good.key, bad.key]).results) == {good.key, bad.key}


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """One bit anywhere in a shard, data or metadata, and it is set aside."""
    store, spec = Store(tmp_path), Squares(3)
    run = Run(setting=0.5, message="ok", final_value=14.0, facts={"n": 3.0}, curves={"partial": np.arange(5.0)})
    store.put(spec, [run], 0.5, ENVIRONMENT)
    path = store.path(spec.key)
    content = path.read_bytes()
    draw = random.Random(0)
    for at in range(0, len(content), 3):
        bad = bytearray(content)
        bad[at] ^= 1 << draw.randrange(8)
        path.write_bytes(bad)
        found = store.look([spec.key])
        assert (found.results, len(found.damaged)) == ({}, 1)


def test_shard_that_unpacks_to_too_much_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, spec = Store(tmp_path), Squares(3)
    store.put(spec, [Run(final_value=1.0, curves={"zeros": np.zeros(200_000)})], 0.5, ENVIRONMENT)
    assert store.path(spec.key).stat().st_size < 20_000
    monkeypatch.setattr(store_module, "MOST_BYTES", 1_000)
    monkeypatch.setattr(store_module.pq, "read_table", pytest.fail)
    (line,) = store.look([spec.key]).damaged
    assert "it would unpack to" in line


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (PermissionError(errno.EACCES, "Failed to open"), "cannot be read (Permission denied)"),
        (OSError(errno.EMFILE, "Failed to open"), "cannot be read (Too many open files)"),
        (OSError(errno.EIO, "Error reading bytes"), "cannot be read (Input/output error)"),
        (pa.ArrowMemoryError("malloc of size 64 failed"), "memory ran out"),
    ],
    ids=["rights", "open files", "disk", "memory"],
)
def test_a_shard_that_cannot_be_read_now_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Exception, words: str
) -> None:
    """A passing shortage says nothing about the file: it is an error, and the result is there afterwards."""
    store = Store(tmp_path)
    put(store, Squares(1))

    def refuse(*_: object, **__: object) -> None:
        raise trouble

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "_unpacked", refuse)
        with pytest.raises(StoreError, match="nothing was moved") as raised:
            store.look()
    assert words in str(raised.value)
    assert not store.damaged.exists()
    assert set(store.look().results) == {Squares(1).key}


def test_files_under_other_names_are_not_read(tmp_path: Path) -> None:
    store, spec = Store(tmp_path), Squares(3)
    put(store, spec)
    put(store, spec)
    for name in (f"{spec.key} (copy)", "notes", "ABCDEFABCDEFABCDEFAB"):
        shutil.copy(store.path(spec.key), store.shards / f"{name}.parquet")
    found = store.look()
    assert (list(found.results), found.damaged) == ([spec.key], [])


def test_shard_without_a_checksum_is_set_aside(tmp_path: Path) -> None:
    store, spec = Store(tmp_path), Squares(3)
    put(store, spec)
    table = pq.read_table(store.path(spec.key))
    about = json.loads(table.schema.metadata[b"levelport"])
    del about["sha256"]
    pq.write_table(table.replace_schema_metadata({"levelport": json.dumps(about)}), store.path(spec.key))
    (line,) = store.look().damaged
    assert "it has no checksum" in line


def test_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    put(store, Squares(1))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(store_module.os, "fsync", full)
        with pytest.raises(StoreError, match=r"No space left.*is safe.*--out"):
            put(store, Squares(2))
    assert [path.name for path in store.shards.iterdir()] == [store.path(Squares(1).key).name]
    assert set(store.look().results) == {Squares(1).key}


def test_only_leftovers_of_dead_processes_are_removed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host = socket.gethostname()
    (store.shards / f".tmp-{host}-{dead.pid}-aa").write_bytes(b"half")
    (store.shards / f".tmp-{host}-{os.getpid()}-bb").write_bytes(b"half")
    (store.shards / f".tmp-{host}-{10**30}-cc").write_bytes(b"half")  # damaged: no process has such a number
    # Of other machines: one of another name, one whose name begins with ours, one whose name ends with it.
    for machine in ("elsewhere", f"{host}-{dead.pid}", f"far-{host}"):
        (store.shards / f".tmp-{machine}-{dead.pid}-dd").write_bytes(b"half")
    found = store.look()
    assert found.leftovers == 2
    assert found.results == {}
    assert len(list(store.shards.iterdir())) == 4


def test_directory_that_cannot_be_made_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="--out"):
        Store(tmp_path / "file" / "results")
