"""``levelport data`` and ``levelport problems`` at the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from levelport_lab.cli.data import app as data
from levelport_lab.cli.problems import app as problems
from levelport_lab.problems.catalogue import UCI
from levelport_lab.problems.registry import PROBLEM_NAMES
from levelport_lab.problems.storage import uci_file

runner = CliRunner()


def words(text: str) -> str:
    """Without line breaks, frames and doubled blanks, so that wrapping does not matter."""
    return " ".join(text.replace("│", " ").split())


def test_data_list_tells_state_size_and_balance(all_sets: Path) -> None:
    answer = runner.invoke(data, ["list"])
    assert answer.exit_code == 0
    rows = {line.split()[0]: words(line) for line in answer.output.splitlines() if line}
    assert set(UCI) <= set(rows)
    assert rows["blood"] == "blood 748 4 embedded 570 / 178 (24%)"
    assert rows["ozone"] == "ozone 2536 72 in LEVELPORT_DATA 2463 / 73 (3%)"
    assert rows["mnist"] == "mnist 70000 784 in LEVELPORT_DATA 10 classes"
    assert rows["digits"] == "digits 1797 64 from scikit-learn 10 classes"
    assert "sonar echoes" in runner.invoke(data, ["list", "--about"]).output


def test_data_list_names_a_damaged_file(own_cache: Path) -> None:
    assert "ozone 2536 72 missing" in words(runner.invoke(data, ["list"]).output)
    path = uci_file(own_cache, "ozone")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PK\x03\x04")
    answer = runner.invoke(data, ["list"])
    assert answer.exit_code == 1
    assert "ozone 2536 72 damaged" in words(answer.output)
    assert str(path) in answer.output


def test_fetch_from_a_directory(all_sets: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEVELPORT_DATA")
    answer = runner.invoke(data, ["fetch", "ozone", "blood", "ozone", "--from", str(all_sets)])
    assert answer.exit_code == 0, answer.output
    assert answer.output.count("ozone:") == 1
    assert "blood: embedded already" in answer.output
    assert "ozone 2536 72 fetched" in words(runner.invoke(data, ["list"]).output)
    assert "ozone: fetched already" in runner.invoke(data, ["fetch", "ozone"]).output


def test_fetch_reports_failure_and_misspelt_names(tmp_path: Path) -> None:
    answer = runner.invoke(data, ["fetch", "ozone", "--from", str(tmp_path)])
    assert answer.exit_code == 1
    assert "ozone.npz does not exist" in words(answer.output)
    answer = runner.invoke(data, ["fetch", "ozon"])
    assert answer.exit_code == 2
    assert "Did you mean 'ozone'" in words(answer.output)


def test_problems_list() -> None:
    answer = runner.invoke(problems, ["list"])
    assert answer.exit_code == 0
    rows = {line.split()[0]: words(line) for line in answer.output.splitlines()}
    assert set(PROBLEM_NAMES) <= set(rows)
    assert rows["logreg/blood"] == "logreg/blood 599 5 certified"
    assert rows["mlp-softplus-50/mnist"] == "mlp-softplus-50/mnist 60000 39760 not known"


def test_problems_optimum() -> None:
    answer = runner.invoke(problems, ["optimum", "logreg/blood", "logreg/titanic", "--reg", "1e-3", "--reg", "0"])
    assert answer.exit_code == 0, answer.output
    assert "logreg/blood 0.001 0.4786" in words(answer.output)
    assert "4 optima, 4 certified" in answer.output
    answer = runner.invoke(problems, ["optimum", "mlp-relu-3/blood", "--reg", "1e-3"])
    assert answer.exit_code == 1
    assert "mlp-relu-3/blood is not convex: no optimum is known" in words(answer.output)
    answer = runner.invoke(problems, ["optimum", "logreg/blood", "logreg/blod"])
    assert answer.exit_code == 2
    assert "optima" not in answer.output  # nothing was begun
    assert "Did you mean 'blood'" in words(answer.output)
