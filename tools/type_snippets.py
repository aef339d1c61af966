"""Write the Python blocks of README and getting started to files that type checkers read.

    python tools/type_snippets.py build/snippets      then: mypy build/snippets, pyright build/snippets

README's blocks become a file each, because each stands alone; those of the tutorial one file. Sketches that are not run
are left out.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    block = runpy.run_path(str(ROOT / "tools" / "run_snippets.py"))["BLOCK"]
    readme, tutorial = (
        [
            found["code"]
            for found in block.finditer(page.read_text(encoding="utf-8"))
            if not (found["mark"] or "").startswith("not run")
        ]
        for page in (ROOT / "README.md", ROOT / "docs" / "guides" / "getting-started.md")
    )
    for number, code in enumerate(readme):
        (out / f"readme_{number}.py").write_text(code, encoding="utf-8")
    (out / "getting_started.py").write_text("\n".join(tutorial), encoding="utf-8")


if __name__ == "__main__":
    main()
