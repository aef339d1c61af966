"""``levelport demo``: what it says is what it computed, and its pictures are there."""

from __future__ import annotations

import re
from pathlib import Path

from PIL import Image
from typer.testing import CliRunner

from levelport_lab.cli import app


def test_demo_shows_four_parts(tmp_path: Path) -> None:
    runner = CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"})
    result = runner.invoke(app, ["demo", "--out", str(tmp_path / "pictures")])
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "from 20.1 to 57.6" in text  # the global maximum of Booth's function, in closed form 18 √(92.25 / 9)
    ours, scipy = (
        int(re.search(rf"│ {name} +│ +(\d+) ", result.output)[1]) for name in ("levelport.minimize", "SciPy L-BFGS-B")
    )  # type: ignore[index]
    assert 0 < ours < 3000
    assert 0 < scipy < 3000
    assert "12 of 12 ends are certified" in text
    alone, teleported = map(float, re.search(r"loss ([\d.]+) alone, ([\d.]+) with", text).groups())  # type: ignore[union-attr]
    assert teleported < alone
    for name in ("teleport.png", "intervals.png", "training.png"):
        assert f"{tmp_path / 'pictures' / name}" in "".join(result.output.split())
        with Image.open(tmp_path / "pictures" / name) as picture:
            assert min(picture.size) > 250
