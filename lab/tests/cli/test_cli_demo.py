"""``levelport demo``: the claims that it prints, and its pictures."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from levelport_lab.bench import cost_table
from levelport_lab.cli import app


def test_demo_shows_both_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The last table takes long and has tests of its own; here it only has to be shown.
    rows = {"GD-Armijo": (9293.0, math.inf, math.inf), "levelport.minimize": (232.0, 502.0, 742.0)}
    monkeypatch.setattr(cost_table, "cost_table", lambda: rows)
    runner = CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"})
    result = runner.invoke(app, ["demo", "--out", str(tmp_path / "pictures")])
    assert result.exit_code == 0, result.output

    steps = {
        (function, method): int(count)
        for function, method, count in re.findall(r"│ (booth|goldstein-price) +│ ([^│]+?) +│ +(\d+) │", result.output)
    }
    assert steps["booth", "GD, teleported"] == 1
    assert steps["booth", "GD"] > 10
    assert "9293" in result.output
    assert "not reached" in result.output
    assert str(tmp_path / "pictures" / "figure1.png") in result.output.replace("\n", "")
    with Image.open(tmp_path / "pictures" / "figure1.png") as picture:
        assert min(picture.size) > 600
