"""Measure the table of costs again and write it into docs/optimizers.md.

python tools/update_cost_table.py
"""

from __future__ import annotations

import re
from pathlib import Path

from levelport_lab.bench.cost_table import as_text, cost_table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "optimizers.md"
MARK = "<!-- comparison table -->"


def main() -> None:
    table = as_text(cost_table())
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.escape(MARK) + r"\n(\n\|.*?\n(?=\n[^|]))?"
    text, count = re.subn(pattern, lambda _: f"{MARK}\n\n{table}\n", text, count=1, flags=re.DOTALL)
    if count != 1:
        raise SystemExit(f"{PAGE} has no line {MARK!r}.")
    PAGE.write_text(text, encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
