"""Run the examples of examples/gallery and write a page each: what it shows, its code, its picture, what it printed.

    python scripts/build_gallery.py [OUT]      OUT is docs/gallery unless said otherwise

Every example is a file with a docstring and a function ``main() -> Figure``. An example that fails ends the build.
"""

from __future__ import annotations

import ast
import contextlib
import io
import runpy
import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples" / "gallery").glob("*.py"))


def build(example: Path, out: Path) -> str:
    """Write the page of ``example``; its line in the index."""
    source = example.read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(source)) or ""
    title, _, body = text.partition("\n")
    code = source[source.index('"""', 3) + 3 :].strip()
    printed = io.StringIO()
    began = time.perf_counter()
    with contextlib.redirect_stdout(printed):
        picture = runpy.run_path(str(example))["main"]()
    picture.savefig(out / f"{example.stem}.png", dpi=120, bbox_inches="tight")
    page = f"# {title.rstrip('.')}\n\n{body.strip()}\n\n![{title}]({example.stem}.png)\n\n```python\n{code}\n```\n"
    if printed.getvalue():
        page += f"\nIt prints:\n\n```text\n{printed.getvalue().rstrip()}\n```\n"
    (out / f"{example.stem}.md").write_text(page, encoding="utf-8")
    print(f"{example.stem}: {time.perf_counter() - began:.1f} s")
    return f"* [{title.rstrip('.')}]({example.stem}.md)"


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "gallery"
    out.mkdir(parents=True, exist_ok=True)
    lines = [build(example, out) for example in EXAMPLES]
    (out / "index.md").write_text("# Gallery\n\nEach was run when this page was made.\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
