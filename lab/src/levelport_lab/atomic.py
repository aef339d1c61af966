"""Files that are whole or absent, whatever happens while they are written.

A file is written under a temporary name beside its target, flushed to the disk, and renamed. The temporary name says
which process on which machine is writing, so that what a killed process left behind can be told from work in progress.
"""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A temporary path beside ``target`` that becomes ``target`` on success and vanishes on failure."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".tmp-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}")
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):  # the first trouble is the one to tell
            temporary.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # makes the rename itself durable, where the system can
        _flush(target.parent)


def write_text(target: Path, text: str) -> None:
    """Replace ``target`` by a file with this text."""
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def remove_leftovers(directory: Path) -> int:
    """Delete temporary files whose process on this machine is gone; those of others are left alone. How many."""
    removed = 0
    for path in directory.glob(".tmp-*"):
        # From the right: the name of a machine may have hyphens and numbers of its own.
        machine, _, process = path.name.rpartition("-")[0].rpartition("-")
        if machine == f".tmp-{socket.gethostname()}" and process.isdecimal() and not _alive(int(process)):
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _flush(path: Path) -> None:
    # Windows flushes only handles that can write; directories open for reading alone, and there not at all.
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _alive(process: int) -> bool:
    if os.name == "nt":  # os.kill(process, 0) would send Ctrl-C there: what may be in use is left alone
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # no system counts so far
        return False
    except PermissionError:
        return True
    return True
