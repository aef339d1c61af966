"""Results as one file: what was computed on different machines or days adds up in one store.

An archive is a zip of shards under their keys. What goes in is checked like everything else in a store (checksums, and
that the content belongs to the name); names that are no keys are left out: an archive can write nowhere else. What it
says that it unpacks to is bounded before anything is read, and no more of an entry than that is unpacked.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from levelport_lab.engine.store import MOST_BYTES, Found, Store, is_shard

_MOST_GROWTH = 20
"""How many times its own size an archive may unpack to; shards are compressed themselves and hardly shrink again."""


@dataclass(frozen=True)
class Imported:
    """The result of an import: new tasks, tasks already there, and what was wrong with the rest."""

    new: int
    known: int
    damaged: tuple[str, ...]


def export_results(store: Store, keys: Iterable[str], archive: Path) -> Found:
    """Write the shards of ``keys`` that the store holds to ``archive``, and return what it holds; failed ones stay out.

    Where there is none, nothing is written: an empty archive must not replace a good one.
    """
    found = store.look(keys)
    if not found.done:
        raise ValueError(
            f"{store.root} holds none of these tasks; nothing was written. The figures, --out, --tier, --protocol and "
            f"the options that restrict them say which ones are meant. {' '.join(found.sentences())}".rstrip()
        )
    archive.parent.mkdir(parents=True, exist_ok=True)
    temporary = archive.with_name(f".{archive.name}.{os.getpid()}.tmp")
    try:
        # Shards are compressed themselves. A zip cannot say 1979: files of such a date are dated 1980.
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, strict_timestamps=False) as file:
            for key in sorted(found.done):
                file.write(store.path(key), f"{key}.parquet")
        temporary.replace(archive)
    finally:
        temporary.unlink(missing_ok=True)
    return found


def import_results(store: Store, archive: Path) -> Imported:
    """Add what ``archive`` holds to the store; a task that is there already, and did not fail, is kept as it is."""
    with tempfile.TemporaryDirectory(dir=store.root) as directory, _opened(archive) as file:
        arrived = Store(Path(directory))
        unreadable, room = [], _MOST_GROWTH * archive.stat().st_size
        for entry in file.infolist():
            if not is_shard(entry.filename):
                unreadable.append(f"{entry.filename!r} (not the name of a result)")
                continue
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # zipfile bounds these two
                unreadable.append(f"{entry.filename} (it is compressed by a method other than 'deflate')")
                continue
            if entry.file_size > min(MOST_BYTES, room):
                unreadable.append(f"{entry.filename} (it would unpack to {entry.file_size} bytes, which is too much)")
                continue
            room -= entry.file_size
            try:
                with file.open(entry) as packed:  # ZipFile.read unpacks all of it before it compares the size
                    content = packed.read(entry.file_size + 1)
            except Exception as error:  # zipfile raises many kinds, depending on which byte is damaged
                unreadable.append(f"{entry.filename} ({error})")
                continue
            (arrived.shards / entry.filename).write_bytes(content)
        found = arrived.look()
        there = store.look(found.results)
        known = set(there.done)
        new = [key for key in found.results if key not in known]
        for key in new:
            os.replace(arrived.path(key), store.path(key))
        reasons = (line.split(");")[0] + ")" for line in found.damaged)
        return Imported(len(new), len(found.results) - len(new), (*unreadable, *reasons))


def _opened(archive: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(archive)
    except Exception as error:
        raise ValueError(
            f"{archive} is no archive of results ({error}); write one with 'levelport reproduce export'."
        ) from error
