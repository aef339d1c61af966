"""Atomic writes on systems that differ from Linux: Windows' rules for flushing and for asking after a process."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from levelport_lab.problems import atomic

RUNNING, ENDED, FORBIDDEN, UNKNOWN = 11, 12, 13, 14


class Kernel32:
    """The four functions of Windows that are asked, for processes in known states."""

    def __init__(self) -> None:
        self.error, self.open = 0, 0

    def OpenProcess(self, access: int, inherit: bool, process: int) -> int:
        assert (access, inherit) == (0x1000, False)
        self.error = {FORBIDDEN: 5, UNKNOWN: 87}.get(process, 0)
        self.open += not self.error
        return 0 if self.error else process

    def GetLastError(self) -> int:
        return self.error

    def GetExitCodeProcess(self, handle: int, code: object) -> int:
        code._obj.value = {RUNNING: 259, ENDED: 0}[handle]  # type: ignore[attr-defined]
        return 1

    def CloseHandle(self, handle: int) -> None:
        self.open -= 1


@pytest.mark.parametrize(
    ("process", "alive"), [(RUNNING, True), (ENDED, False), (FORBIDDEN, True), (UNKNOWN, False), (2**40, False)]
)
def test_process_state_on_windows(process: int, alive: bool) -> None:
    kernel32 = Kernel32()
    assert atomic._alive_on_windows(process, kernel32) is alive
    assert kernel32.open == 0


def test_windows_processes_get_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """os.kill(process, 0) is Ctrl-C on Windows: leftovers are judged without it."""
    kernel32 = Kernel32()
    monkeypatch.setattr(atomic, "os", SimpleNamespace(name="nt", kill=pytest.fail))
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel32), raising=False)
    monkeypatch.setattr(atomic.socket, "gethostname", lambda: "here")
    for process in (RUNNING, ENDED):
        (tmp_path / f".tmp-here-{process}-0").touch()
    assert atomic.remove_leftovers(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == [f".tmp-here-{RUNNING}-0"]


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
