"""The committed pictures show what the code draws, and the check notices where they do not."""

from __future__ import annotations

import copy
import json
import runpy
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[3]
PICTURES = runpy.run_path(str(ROOT / "tools" / "draw_pictures.py"))


def test_pictures_are_those_of_readme_and_home_page() -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        shown = [part.partition(")")[0] for part in page.read_text(encoding="utf-8").split("pictures/")[1:]]
        assert set(shown) <= set(PICTURES["DRAWN"]), page


def test_stale_pictures_are_found(tmp_path: Path) -> None:
    """Of one drawing; ``make docs`` draws all of them."""
    images, content = PICTURES["drawing"](PICTURES["intervals"]())
    path = tmp_path / "intervals.png"
    PICTURES["write"](path, images, content)
    assert PICTURES["differences"](path, images, content) == []
    moved = copy.deepcopy(content)
    moved[0]["lines"][1][0][0] += 0.03  # the end of an interval, by 3 % of the axis
    assert "lines differ" in PICTURES["differences"](path, images, moved)[0]
    reworded = json.loads(json.dumps(content).replace("23 flights", "24 flights"))
    assert "24 flights" in PICTURES["differences"](path, images, reworded)[0]
    painted = [images[0].copy()]
    painted[0].paste((255, 0, 0), (100, 50, 250, 150))
    assert "shades" in PICTURES["differences"](path, painted, content)[0]
    Image.new("RGB", images[0].size).save(path)
    assert PICTURES["differences"](path, images, content)[0] == "has other axes"
    assert PICTURES["differences"](tmp_path / "none.png", images, content) == ["is missing"]


@pytest.mark.parametrize("name", PICTURES["DRAWN"])
def test_pictures_carry_what_they_show(name: str) -> None:
    frames, content = PICTURES["read"](PICTURES["PICTURES"] / name)
    assert frames
    assert all(axes["words"] and axes["lines"] for axes in content)
