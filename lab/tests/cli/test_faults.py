"""Long work under faults: each ends in a sentence and an exit code, without a traceback and without litter."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelport_lab.cli import app
from levelport_lab.engine.backends import Backend, WorkerLostError
from levelport_lab.engine.spec import Run
from levelport_lab.engine.store import Store
from levelport_lab.paper.registry import STUDIES
from levelport_lab.paper.reproduction import require_data
from levelport_lab.paper.study import Setup
from levelport_lab.problems.storage import DataError

runner = CliRunner(env={"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"})


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


@contextmanager
def full_disk() -> Iterator[None]:
    """A limit on the size of files stands for it."""
    resource = pytest.importorskip("resource", reason="there are no limits on this system")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_disk_that_is_full_while_drawing(tmp_path: Path) -> None:
    """Figure 2 stores nothing, so its picture meets it first."""
    importlib.import_module("matplotlib.font_manager")  # its list of fonts is a file as well
    with full_disk():
        done = runner.invoke(app, ["reproduce", "fig2", "--tier", "smoke", "--out", str(tmp_path)])
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, SystemExit)  # a sentence, no traceback
    assert "The system says: File too large" in done.output
    assert "start the same command again" in done.output
    assert files(tmp_path) == []


def test_disk_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, *_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, path, **__: refused(path))
    done = runner.invoke(app, ["reproduce", "fig2", "--tier", "smoke", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "Read-only file system" in done.output
    assert files(tmp_path) == []


def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    done = runner.invoke(app, ["reproduce", "fig2", "--tier", "smoke", "--out", str(tmp_path / "file" / "results")])
    assert done.exit_code == 1
    assert "choose another with --out" in done.output


def test_worker_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise WorkerLostError("a worker process was ended from outside.")

    monkeypatch.setattr(Backend, "compute", lost)
    done = runner.invoke(app, ["reproduce", "fig17", "--tier", "smoke", "--jobs", "2", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "a worker process was ended from outside" in done.output


def test_brackets_in_the_name_of_the_directory(tmp_path: Path) -> None:
    """Markup of the console: a style, tags that close one and nothing, and one that does not end."""
    out = tmp_path / "a [b] c" / "[red]results[/red]" / "[/]" / "[link=x"
    done = runner.invoke(app, ["reproduce", "fig2", "--tier", "smoke", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert str(out) in done.output
    report = runner.invoke(app, ["report", "--out", str(out)])
    assert report.exit_code == 0, report.output
    assert str(out / "report.html") in report.output
    assert (out / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"title": 1}',
        json.dumps({"title": "t", "setup": {}, "tasks": "many"}),
        "\x00\x01",
        "[" * 100_000,
        json.dumps({"title": "t", "setup": {}, "tasks": math.inf}),
    ],
)
def test_broken_summary(content: str, tmp_path: Path) -> None:
    path = tmp_path / "quick" / "fig2" / "summary.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    done = runner.invoke(app, ["report", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    assert f"the file {path} is damaged" in done.output
    assert "running its figure again" in done.output
    assert files(tmp_path) == ["summary.json"]


def test_interruption_has_its_own_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Backend, "compute", interrupted)
    done = runner.invoke(app, ["reproduce", "fig17", "--tier", "smoke", "--jobs", "1", "--out", str(tmp_path)])
    assert done.exit_code == 130
    assert "the same command goes on from there" in done.output


def test_an_interruption_says_nothing_where_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["levelport_lab.cli.demo"], "_teleport", interrupted)
    done = runner.invoke(app, ["demo", "--out", str(tmp_path)])
    assert done.exit_code == 130
    assert done.output.endswith("\nInterrupted.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["diagnose", "logreg/ozone"],
        ["theory", "logreg/ozone"],
        ["problems", "optimum", "logreg/ozone"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_data_that_are_not_here(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVELPORT_CACHE", str(tmp_path))
    monkeypatch.delenv("LEVELPORT_DATA", raising=False)
    done = runner.invoke(app, arguments)
    assert done.exit_code == 1
    assert "levelport data fetch ozone" in done.output


def test_data_that_a_figure_needs_are_missed_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is missing is named at once, and nothing is started; results that are there need no data."""
    monkeypatch.setenv("LEVELPORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LEVELPORT_DATA", raising=False)
    monkeypatch.setattr(Backend, "compute", lambda *_: pytest.fail("something was started"))
    missing = ["hill-valley", "ozone"]
    arguments = ["reproduce", "fig2", "fig3", "fig8", "--tier", "full", "--set", "blood", "--images", "50"]
    done = runner.invoke(app, [*arguments, "--set", missing[0], "--set", missing[1], "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "Nothing was started" in done.output
    assert f"'levelport data fetch {missing[0]} mnist {missing[1]}'" in done.output
    assert not (tmp_path / "out").exists()


def test_results_that_are_there_need_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVELPORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LEVELPORT_DATA", raising=False)
    store, specs = Store(tmp_path), STUDIES["fig3"].specs(Setup(tier="full", images=50))[:2]
    for spec, runs in zip(specs, ([Run()], [Run.failure("no data")]), strict=True):
        store.put(spec, runs, 1.0, {})
    require_data(specs[:1], store)
    with pytest.raises(DataError, match=r"1 task\(s\) need .*: mnist"):  # what failed will run again
        require_data(specs, store)


def test_no_pictures_where_all_tasks_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ValueError("no luck")

    monkeypatch.setattr("levelport_lab.paper.teleport_study.problem", fails)
    monkeypatch.setattr("levelport_lab.paper.teleport_study.OneTeleport.rough_seconds", 1.0)
    done = runner.invoke(app, ["reproduce", "fig3", "--tier", "smoke", "--jobs", "1", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "no luck" in done.output
    assert "0 pictures" in done.output
    assert not [name for name in files(tmp_path) if name.endswith((".png", ".pdf"))]


def test_a_figure_without_the_sets_asked_for_is_refused(tmp_path: Path) -> None:
    arguments = ["reproduce", "fig17", "--tier", "smoke", "--set", "titanic", "--out", str(tmp_path)]
    done = runner.invoke(app, arguments)
    assert done.exit_code == 2
    assert "fig17 has none of the data sets asked for (titanic)" in done.output
    assert files(tmp_path) == []


def test_a_tier_without_the_sets_asked_for_is_said(tmp_path: Path) -> None:
    arguments = ["reproduce", "fig17", "--tier", "smoke", "--set", "ionosphere", "--out", str(tmp_path)]
    done = runner.invoke(app, arguments)
    assert done.exit_code == 1
    assert "None of the data sets asked for is part of this figure at the smoke tier." in done.output
    assert files(tmp_path) == []
