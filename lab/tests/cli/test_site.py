"""The site builds without a warning: every page is in the menu, every link and anchor leads somewhere.

The gallery is not run for it (``make docs`` does that); its pages stand in with their text and an empty picture.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
GALLERY = runpy.run_path(str(ROOT / "tools" / "build_gallery.py"))


def write_unrun(example: Any, out: Path) -> None:
    """The page of an example as if it had printed nothing."""
    picture = out / f"{example.stem}.png"
    picture.write_bytes(b"")
    (out / f"{example.stem}.md").write_text(GALLERY["page"](example, ""), encoding="utf-8")
    (out / f"{example.stem}.ipynb").write_text(json.dumps(GALLERY["notebook"](example, picture, "")))


def examples() -> list[Any]:
    return [GALLERY["Example"].read(path) for path in GALLERY["EXAMPLES"]]


def test_a_site_without_warnings(tmp_path: Path) -> None:
    for needed in ("mkdocs", "material", "mkdocstrings"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"the site needs {needed}: pip install 'levelport[docs]'")
    for name in ("src", "lab", "tools", "CHANGELOG.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("gallery"))
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    gallery = tmp_path / "docs" / "gallery"
    gallery.mkdir()
    for example in examples():
        write_unrun(example, gallery)
    (gallery / "index.md").write_text("# Gallery\n")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"], cwd=tmp_path, capture_output=True, text=True,
        timeout=600, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    written = (tmp_path / "build" / "site" / "index.html").read_text(encoding="utf-8")
    assert "https://unpkg.com" not in written  # nothing is fetched from elsewhere
    assert (tmp_path / "build" / "site" / "gallery" / "plane.ipynb").exists()


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.stem)
def test_notebooks_are_the_examples(example: Any, tmp_path: Path) -> None:
    """Valid in shape, and their first cell is the file itself: what ``make docs`` ran."""
    write_unrun(example, tmp_path)
    notebook = json.loads((tmp_path / f"{example.stem}.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    words, define, run = notebook["cells"]
    assert words["cell_type"] == "markdown"
    source = (ROOT / "examples" / "gallery" / f"{example.stem}.py").read_text(encoding="utf-8")
    assert source.rstrip().endswith("".join(define["source"]))
    compile("".join(define["source"]), example.stem, "exec")
    assert "main()" in "".join(run["source"])
    assert {"execution_count", "outputs", "metadata", "id"} <= set(run)


def test_the_cheapest_example_becomes_a_page(tmp_path: Path) -> None:
    place = GALLERY["build"](ROOT / "examples" / "gallery" / "plane.py", tmp_path)
    assert place == "[![Two functions of the plane](plane.png) **Two functions of the plane**](plane.md)\n"
    page = (tmp_path / "plane.md").read_text(encoding="utf-8")
    assert "booth, alone: f - f* =" in page
    assert "booth, teleported once: f - f* =" in page
    output = json.loads((tmp_path / "plane.ipynb").read_text())["cells"][2]["outputs"]
    assert [one["output_type"] for one in output] == ["stream", "execute_result"]


def test_sidebar_has_few_entries() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert 15 <= nav.count(".md") <= 25
