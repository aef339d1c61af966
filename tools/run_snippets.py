"""Run the Python blocks of the documents and compare what they print with what the documents say they print.

    python tools/run_snippets.py [--write] [PAGE ...]      all pages unless some are named; --write puts the output in

A block ``python`` that prints is followed by a block ``text`` with its output. Words have to agree; a number may differ
by 2 % or by one and a half units of its last digit, costs by 60 %, seconds and the steps of a minimization by anything,
residuals below 1e-4 by anything that is below 1e-4: other machines differ.
Blocks of a page share their names, from the top; those of the README stand alone, to be copied. In front of a block
``<!-- not run: REASON -->`` leaves it out, and ``<!-- prints -->`` lets it print what is not compared.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(<!-- (?P<mark>not run: [^>]+?|prints) -->\n)?^```python\n(?P<code>.*?)^```\n(\n```text\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"(?<![\w.])[-−+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
LOOSE = re.compile(r"\d[\d.e-]* (?=(?:s|ms|seconds)\b)|\d+ steps and \d+ (?=teleports\b)")
RESIDUAL = 1e-4


def pages() -> list[Path]:
    """The documents that have Python blocks; the gallery's are made of scripts that the build runs."""
    return [page for page in PAGES if "gallery" not in page.parts and "```python\n" in page.read_text(encoding="utf-8")]


def outputs(page: Path) -> Iterator[tuple[re.Match[str], str]]:
    """Each block that runs, and what it printed."""
    scope: dict[str, object] = {"__name__": "example"}
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if (block["mark"] or "").startswith("not run"):
            continue
        if page.name == "README.md":
            scope = {"__name__": "example"}
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("error")
            exec(compile(block["code"], f"{page.name}: {block['code'][:60]!r}", "exec"), scope)
        yield block, printed.getvalue()


def differences(page: Path) -> list[str]:
    """What the page says otherwise than its code; empty if all is well."""
    return [
        f"{page.name}: the page says\n{block['output'] or '(nothing)'}and the code prints\n{printed or '(nothing)'}"
        for block, printed in outputs(page)
        if block["mark"] != "prints" and not agree(block["output"] or "", printed)
    ]


def agree(said: str, printed: str) -> bool:
    """Return True if both say the same, up to the digits that another machine may change."""
    ours, theirs = (LOOSE.sub("# ", text).splitlines() for text in (said, printed))
    return len(ours) == len(theirs) and all(map(_same_line, ours, theirs))


def _same_line(said: str, printed: str) -> bool:
    if NUMBER.sub("#", said).split() != NUMBER.sub("#", printed).split():
        return False
    share = 0.6 if "gradient equivalents" in said else 0.02
    return all(_close(a, b, share) for a, b in zip(NUMBER.findall(said), NUMBER.findall(printed), strict=True))


def _close(said: str, printed: str, share: float) -> bool:
    a, b = (float(text.replace("−", "-")) for text in (said, printed))
    if 0.0 < abs(a) < RESIDUAL and abs(b) < RESIDUAL:
        return True
    mantissa, _, exponent = said.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    exact = unit == 1.0 and share < 0.6  # counts
    return abs(a - b) <= max(share * abs(a), 0.0 if exact else 1.5 * unit, 1.0 if share == 0.6 else 1e-5)


def write(page: Path) -> None:
    """Put what the code prints into the page."""
    text, done = page.read_text(encoding="utf-8"), 0
    parts = []
    for block, printed in outputs(page):
        end = block.end() if block["output"] is None else block.start("output") - len("\n```text\n")
        keep = block["mark"] == "prints" or agree(block["output"] or "", printed)
        new = text[end : block.end()] if keep else f"\n```text\n{printed}```\n"
        parts += [text[done:end], new if printed or keep else ""]
        done = block.end()
    page.write_text("".join(parts) + text[done:], encoding="utf-8")


def main() -> None:
    chosen = [Path(name) for name in sys.argv[1:] if name != "--write"] or pages()
    if "--write" in sys.argv:
        for page in chosen:
            write(page)
            print(page)
    elif found := [line for page in chosen for line in differences(page)]:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
