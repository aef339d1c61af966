"""Run the examples of examples/gallery and write a page and a notebook each.

    python tools/build_gallery.py [OUT]      OUT is docs/gallery unless said otherwise

Every example is a file with a docstring and a function ``main() -> Figure``. Its page has what it shows, its picture,
its code and what it printed; its notebook has the same code in a cell, the picture and the output of that same run.
An example that fails ends the build; one whose package ``NEEDS`` is not here gets a page without a picture.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import importlib.util
import io
import json
import runpy
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

ROOT = Path(__file__).resolve().parents[1]
ORDER = [
    "plane", "training", "intervals", "profile", "fairness", "balance", "figure8", "high_accuracy", "transformer",
    "theory_and_run", "own_solver", "dask_sweep",
]  # fmt: skip
"""Of the index: what a visitor wants first."""
EXAMPLES = sorted(
    (ROOT / "examples" / "gallery").glob("*.py"),
    key=lambda path: (ORDER.index(path.stem) if path.stem in ORDER else len(ORDER), path.stem),
)


@dataclass(frozen=True)
class Example:
    """One file, taken apart; ``needs`` is a package that it cannot do without, or empty."""

    stem: str
    title: str
    text: str
    code: str
    needs: str

    @classmethod
    def read(cls, path: Path) -> Example:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        title, _, text = (ast.get_docstring(tree) or "").partition("\n")
        needs = [node.value.value for node in tree.body if isinstance(node, ast.Assign) and _named(node) == "NEEDS"]  # type: ignore[attr-defined]
        code = "\n".join(source.splitlines()[tree.body[0].end_lineno :]).strip()
        return cls(path.stem, title.rstrip("."), text.strip(), code, needs[0] if needs else "")

    @property
    def runs(self) -> bool:
        """True if what it needs is here."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None


def _named(node: ast.Assign) -> str:
    return node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""


def build(path: Path, out: Path) -> str:
    """Write page, picture and notebook of the example at ``path``; its place in the index."""
    example = Example.read(path)
    began, printed = time.perf_counter(), io.StringIO()
    picture = out / f"{example.stem}.png"
    if example.runs:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(str(path))["main"]().savefig(picture, dpi=120, bbox_inches="tight")
    (out / f"{example.stem}.ipynb").write_text(json.dumps(notebook(example, picture, printed.getvalue()), indent=1))
    (out / f"{example.stem}.md").write_text(page(example, printed.getvalue()), encoding="utf-8")
    print(f"{example.stem}: {time.perf_counter() - began:.1f} s" + ("" if example.runs else ", not run"))
    shown = f"![{example.title}]({picture.name}) " if example.runs else ""
    return f"[{shown}**{example.title}**]({example.stem}.md)\n"


def page(example: Example, printed: str) -> str:
    """In Markdown."""
    shown = f"![{example.title}]({example.stem}.png)"
    if not example.runs:
        shown = f"*Not run when this page was made: it needs the package {example.needs}.*"
    parts = [f"# {example.title}", example.text, shown]
    if printed:
        parts.append(f"It prints:\n\n```text\n{printed.rstrip()}\n```")
    parts.append(f"```python\n{example.code}\n```")
    parts.append(f"The same as a [notebook]({example.stem}.ipynb){{ download }}, with what it printed and drew.")
    return "\n\n".join(parts) + "\n"


def notebook(example: Example, picture: Path, printed: str) -> dict[str, Any]:
    """In Jupyter's format 4.5: the text, a cell that defines everything, and one that runs it, with what came out."""
    outputs: list[dict[str, Any]] = []
    if printed:
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.splitlines(keepends=True)})
    if example.runs:
        data = {"image/png": base64.b64encode(picture.read_bytes()).decode("ascii"), "text/plain": ["<Figure>"]}
        outputs.append({"output_type": "execute_result", "execution_count": 2, "data": data, "metadata": {}})
    words = {"cell_type": "markdown", "id": "words", "metadata": {}, "source": f"# {example.title}\n\n{example.text}"}
    cells = [words, _cell("define", 1, example.code, []), _cell("run", 2, "%matplotlib inline\nmain()", outputs)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _cell(name: str, count: int, source: str, outputs: list[dict[str, Any]]) -> dict[str, Any]:
    ran = {"execution_count": count, "outputs": outputs}
    return {"cell_type": "code", "id": name, "metadata": {}, "source": source.splitlines(keepends=True), **ran}


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "gallery"
    out.mkdir(parents=True, exist_ok=True)
    places = [build(example, out) for example in EXAMPLES]
    head = (
        "# Gallery\n\nEach example is a script that was run when this page was made. Its page has the picture, what it "
        "printed, the code and a notebook.\n\n"
    )
    grid = '<div class="gallery" markdown="1">\n\n' + "\n".join(places) + "\n</div>\n"
    (out / "index.md").write_text(head + grid, encoding="utf-8")


if __name__ == "__main__":
    main()
