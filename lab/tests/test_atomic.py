"""Atomic writes on systems that differ from Linux: Windows' rules for flushing and for signals."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from levelport_lab import atomic


def test_windows_processes_get_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """os.kill(process, 0) is Ctrl-C on Windows: what a process may still write to stays."""
    monkeypatch.setattr(atomic, "os", SimpleNamespace(name="nt", kill=pytest.fail))
    monkeypatch.setattr(atomic.socket, "gethostname", lambda: "here")
    (tmp_path / ".tmp-here-11-0").touch()
    assert atomic.remove_leftovers(tmp_path) == 0
    assert [path.name for path in tmp_path.iterdir()] == [".tmp-here-11-0"]


@pytest.mark.skipif(sys.platform == "win32", reason="simulates Windows")
def test_writes_when_only_writable_handles_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows refuses to flush a handle opened for reading, and to open a directory."""
    import fcntl

    flushed, flush = [], os.fsync

    def strict(handle: int) -> None:
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(9, "Bad file descriptor")
        flushed.append(handle)
        flush(handle)

    monkeypatch.setattr(os, "fsync", strict)
    atomic.write_text(tmp_path / "notes.txt", "kept")
    assert (tmp_path / "notes.txt").read_text() == "kept"
    assert len(flushed) == 1
