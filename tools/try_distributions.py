"""Install the built distributions in empty environments and try them: python tools/try_distributions.py DIST.

DIST holds ``levelport/`` and ``levelport-lab/`` as ``make dist`` writes them. The first environment gets the library
alone, so that it has what torch brings and nothing else: every public name must import, and the verbs must run. The
second gets the laboratory on top, and the command must run. Both are made in a temporary directory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

LIBRARY = """
import time
import torch

began = time.perf_counter()
import levelport
imported = time.perf_counter() - began
for name in levelport.__all__:
    getattr(levelport, name)
resolved = time.perf_counter() - began

def booth(w):
    return (w[0] + 2 * w[1] - 7) ** 2 + (2 * w[0] + w[1] - 5) ** 2

start = torch.tensor([7.5, -4.0], dtype=torch.float64)
result = levelport.teleport(booth, start)
assert result.success and result.gradient_norm > 57.6 and result.violation == 0.0, result
least = levelport.minimize(booth, start)
assert least.success and torch.allclose(least.x, torch.tensor([1.0, 3.0], dtype=torch.float64), atol=1e-5), least
torch.manual_seed(0)
model, x, y = torch.nn.Linear(3, 1), torch.randn(8, 3), torch.randn(8, 1)
optimizer = levelport.Teleported(torch.optim.SGD(model.parameters(), lr=0.05))
first = float(optimizer.step(lambda: torch.nn.functional.mse_loss(model(x), y)))
for _ in range(20):
    last = float(optimizer.step(lambda: torch.nn.functional.mse_loss(model(x), y)))
assert last < first, (first, last)
print(f"levelport {levelport.__version__} on torch {torch.__version__}: import after torch {1e3 * imported:.0f} ms, "
      f"all {len(levelport.__all__)} names {1e3 * resolved:.0f} ms")
"""

COMMANDS = [["--version"], ["problems", "list"], ["teleport", "booth"], ["reproduce", "list"]]


def environment(directory: Path, *requirements: str) -> Path:
    """Make an empty environment with ``requirements`` and return its python."""
    venv.create(directory, with_pip=True)
    python = directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    run(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *requirements)
    return python


def run(*command: str | Path) -> None:
    """Run ``command`` outside the repository, so that nothing but the installed files can be imported."""
    print("$", *(word if len(str(word)) < 200 else "..." for word in command), flush=True)
    subprocess.run([str(word) for word in command], check=True, cwd=tempfile.gettempdir())


def distribution(directory: Path, kind: str) -> str:
    """The one wheel or source distribution in ``directory``."""
    found = list(directory.resolve().glob("*.whl" if kind == "wheel" else "*.tar.gz"))
    if len(found) != 1:
        sys.exit(f"{directory}: expected one {kind}, found {len(found)}. Build with 'make dist'.")
    return str(found[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=Path, help="directory with levelport/ and levelport-lab/")
    parser.add_argument("--kind", choices=("wheel", "sdist"), default="wheel")
    parser.add_argument("--torch", default="torch", help="requirement for torch, such as torch==2.13.0")
    arguments = parser.parse_args()
    library = distribution(arguments.dist / "levelport", arguments.kind)
    laboratory = distribution(arguments.dist / "levelport-lab", arguments.kind)
    with tempfile.TemporaryDirectory() as temporary:
        python = environment(Path(temporary) / "library", arguments.torch, library)
        run(python, "-c", LIBRARY)
        python = environment(Path(temporary) / "laboratory", arguments.torch, library, laboratory)
        for command in COMMANDS:
            run(python, "-m", "levelport_lab", *command)
    print("both distributions work")


if __name__ == "__main__":
    main()
