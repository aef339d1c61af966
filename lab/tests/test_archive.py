"""Results of two machines add up in one store."""

from __future__ import annotations

import os
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from arithmetic import Squares
from typer.testing import CliRunner

from levelport_lab.cli import app
from levelport_lab.engine import archive as archive_module
from levelport_lab.engine import store as store_module
from levelport_lab.engine.archive import Imported, export_results, import_results
from levelport_lab.engine.spec import Run
from levelport_lab.engine.store import Store


def put(store: Store, n: int, value: float = 1.0, *, failed: bool = False) -> str:
    spec = Squares(n)
    run = Run.failure("boom") if failed else Run(final_value=value, curves={"partial": np.arange(3.0)})
    store.put(spec, [run], 1.0, {"host": "here"})
    return spec.key


def test_round_trip_adds_up(tmp_path: Path) -> None:
    """Two machines with one task in common: three tasks in the end, each once."""
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    keys = {put(here, 1), put(here, 2, 2.0)}
    others = {put(there, 2, 99.0), put(there, 3, 3.0)}
    archive = tmp_path / "moved" / "there.zip"
    assert len(export_results(there, others, archive).done) == 2
    assert import_results(here, archive) == Imported(new=1, known=1, damaged=())
    results = here.look().results
    assert set(results) == keys | others
    assert results[Squares(2).key].best.final_value == 2.0  # what is here stays
    assert results[Squares(3).key].best.final_value == 3.0
    assert import_results(here, archive) == Imported(new=0, known=2, damaged=())


def test_failed_tasks_stay_out_and_are_replaced(tmp_path: Path) -> None:
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    key = put(here, 1, failed=True)
    put(there, 1)
    with pytest.raises(ValueError, match="holds none of these tasks; nothing was written"):
        export_results(here, [key], tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()
    assert len(export_results(there, [key], tmp_path / "b.zip").done) == 1
    assert import_results(here, tmp_path / "b.zip").new == 1
    assert not here.look().results[key].failed


def test_what_is_not_asked_for_is_not_exported(tmp_path: Path) -> None:
    store = Store(tmp_path)
    key, _ = put(store, 1), put(store, 2)
    assert len(export_results(store, [key, Squares(7).key], tmp_path / "a.zip").done) == 1
    assert zipfile.ZipFile(tmp_path / "a.zip").namelist() == [f"{key}.parquet"]


def test_archives_are_not_trusted(tmp_path: Path) -> None:
    """Damaged shards, shards under another's name, and names that lead elsewhere."""
    store, other = Store(tmp_path / "store"), Store(tmp_path / "other")
    one, two = put(other, 1), put(other, 2)
    content = other.path(one).read_bytes()
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as file:
        file.writestr(f"{one}.parquet", content[: len(content) // 2])
        file.writestr(f"{two}.parquet", content)
        file.writestr("../outside.parquet", content)
        file.writestr(f"sub/{one}.parquet", content)
    came = import_results(store, tmp_path / "bad.zip")
    assert (came.new, came.known, len(came.damaged)) == (0, 0, 4)
    assert came.damaged[0] == "'../outside.parquet' (not the name of a result)"
    assert store.look().results == {}
    assert not (tmp_path / "outside.parquet").exists()


def test_a_damaged_byte_costs_one_task(tmp_path: Path) -> None:
    """A byte of the second entry's content, and of its header: the first and the third come in all the same."""
    store = Store(tmp_path / "store")
    keys = sorted(put(store, n) for n in (1, 2, 3))
    export_results(store, keys, tmp_path / "good.zip")
    good = (tmp_path / "good.zip").read_bytes()
    begins = zipfile.ZipFile(tmp_path / "good.zip").infolist()[1].header_offset
    for name, at in (("content", begins + 200), ("header", begins), ("name", begins + 35)):
        bad = bytearray(good)
        bad[at] ^= 0x10
        archive = tmp_path / f"{name}.zip"
        archive.write_bytes(bad)
        came = import_results(Store(tmp_path / name), archive)
        assert (came.new, came.known, len(came.damaged)) == (2, 0, 1)
        assert came.damaged[0].startswith(f"{keys[1]}.parquet (")
        assert set(Store(tmp_path / name).look().results) == {keys[0], keys[2]}
    done = CliRunner().invoke(app, ["reproduce", "import", str(archive), "--out", str(tmp_path / "told")])
    assert done.exit_code == 0
    assert "2 new tasks" in done.output
    assert f"damaged, left out: {keys[1]}" in done.output


def test_no_damaged_byte_is_a_surprise(tmp_path: Path) -> None:
    """Wherever an archive is damaged, what comes in is whole, or the archive is refused in words."""
    store = Store(tmp_path / "store")
    keys = [put(store, 1), put(store, 2)]
    values = {key: store.look().results[key].best.final_value for key in keys}
    export_results(store, keys, tmp_path / "good.zip")
    good = (tmp_path / "good.zip").read_bytes()
    directory = zipfile.ZipFile(tmp_path / "good.zip").start_dir
    for count, at in enumerate((*range(0, directory, 307), *range(directory, len(good), 5))):
        bad = bytearray(good)
        bad[at] ^= 0xFF
        (tmp_path / "bad.zip").write_bytes(bad)
        target = Store(tmp_path / f"target-{count}")
        try:
            import_results(target, tmp_path / "bad.zip")
        except ValueError as error:
            if "is no archive" not in str(error):
                raise
        for key, result in target.look().results.items():
            assert result.best.final_value == values[key]


def test_archive_that_grows_too_much_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of zeros packed into a kilobyte."""
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(f"{'a' * 20}.parquet", bytes(2**20))
    monkeypatch.setattr(zipfile.ZipFile, "open", pytest.fail)
    came = import_results(Store(tmp_path / "store"), tmp_path / "bomb.zip")
    assert came == Imported(0, 0, (f"{'a' * 20}.parquet (it would unpack to 1048576 bytes, which is too much)",))


def test_entry_that_is_too_large_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Store(tmp_path / "other")
    key = put(other, 1)
    with zipfile.ZipFile(tmp_path / "large.zip", "w") as file:
        file.write(other.path(key), f"{key}.parquet")
        file.writestr(f"{'a' * 20}.parquet", bytes(50_000))
    monkeypatch.setattr(archive_module, "MOST_BYTES", 40_000)
    came = import_results(Store(tmp_path / "store"), tmp_path / "large.zip")
    assert came == Imported(1, 0, (f"{'a' * 20}.parquet (it would unpack to 50000 bytes, which is too much)",))


def test_shard_that_unpacks_to_too_much_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zip of its own size, with a shard inside that repeats one number."""
    other, spec = Store(tmp_path / "other"), Squares(1)
    other.put(spec, [Run(final_value=1.0, curves={"zeros": np.zeros(200_000)})], 1.0, {})
    content = other.path(spec.key).read_bytes()
    assert len(content) < 20_000
    with zipfile.ZipFile(tmp_path / "large.zip", "w") as file:
        file.writestr(other.path(spec.key).name, content)
    monkeypatch.setattr(store_module, "MOST_BYTES", 40_000)
    (said,) = import_results(Store(tmp_path / "store"), tmp_path / "large.zip").damaged
    assert "it would unpack to" in said


def test_entry_that_lies_about_its_size_is_left_out(tmp_path: Path) -> None:
    """The directory says 100 bytes; the entry unpacks to 32 megabytes, of which no more than that is unpacked."""
    path = tmp_path / "liar.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(f"{'a' * 20}.parquet", bytes(2**25))
        directory = file.start_dir
    content = bytearray(path.read_bytes())
    at = content.index((2**25).to_bytes(4, "little"), directory)
    content[at : at + 4] = (100).to_bytes(4, "little")
    path.write_bytes(content)
    tracemalloc.start()
    came = import_results(Store(tmp_path / "store"), path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (came.new, came.known, len(came.damaged)) == (0, 0, 1)
    assert peak < 2**22


def test_other_compression_is_refused(tmp_path: Path) -> None:
    """zipfile unpacks what it has read of an entry at once, however much that is, except for 'deflate'."""
    with zipfile.ZipFile(tmp_path / "bz2.zip", "w", zipfile.ZIP_BZIP2) as file:
        file.writestr(f"{'a' * 20}.parquet", bytes(100))
    (said,) = import_results(Store(tmp_path / "store"), tmp_path / "bz2.zip").damaged
    assert "compressed by a method other than" in said


def test_files_dated_before_1980_are_exported(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    key = put(store, 1)
    os.utime(store.path(key), (0, 0))
    export_results(store, [key], tmp_path / "old.zip")
    assert import_results(Store(tmp_path / "other"), tmp_path / "old.zip").new == 1


def test_a_file_that_is_no_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(ValueError, match=r"notes\.txt is no archive"):
        import_results(Store(tmp_path / "store"), path)


def test_a_typing_error_writes_nothing(tmp_path: Path) -> None:
    """Neither an empty archive over a good one, nor a directory of the wrong name."""
    (tmp_path / "monday.zip").write_bytes(b"good")
    wrong = ["--tier", "smoke", "--out", str(tmp_path / "typo")]
    done = CliRunner().invoke(app, ["reproduce", "export", "fig1", *wrong, "--to", str(tmp_path / "monday.zip")])
    assert done.exit_code == 1
    assert "typo holds none of these tasks; nothing was written" in done.output
    assert (tmp_path / "monday.zip").read_bytes() == b"good"
    assert CliRunner().invoke(app, ["reproduce", "fig1", *wrong, "--claims"]).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["monday.zip"]


def test_commands(tmp_path: Path) -> None:
    runner = CliRunner()

    def levelport(*words: str) -> str:
        done = runner.invoke(app, ["reproduce", *words])
        assert done.exit_code == 0, done.output
        return done.output

    archive, smoke = str(tmp_path / "fig17.zip"), ("--tier", "smoke", "--solver", "published")
    levelport("fig17", *smoke, "--jobs", "1", "--out", str(tmp_path / "a"))
    assert "10 of 10 tasks" in levelport("export", "fig17", *smoke, "--out", str(tmp_path / "a"), "--to", archive)
    assert "10 new tasks, 0 already there" in levelport("import", archive, "--out", str(tmp_path / "b"))
    assert "0 to run" in levelport("fig17", *smoke, "--jobs", "1", "--out", str(tmp_path / "b"))
    for words in (("export", "fig17", "--to", archive), ("fig17", "--claims")):
        shard = min((tmp_path / "b" / "shards").iterdir())
        shard.write_bytes(b"damaged")
        said = levelport(*words, *smoke, "--out", str(tmp_path / "b"))
        assert f"A damaged shard was set aside and its task will run again: {shard.name}" in said
    wrong = runner.invoke(app, ["reproduce", "import", "--out", str(tmp_path)])
    assert wrong.exit_code == 2
    assert "import needs a file" in wrong.output
