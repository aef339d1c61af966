"""The map of the house: imports point one way, and the core needs torch alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import levelport

ROOT = Path(levelport.__file__).parent
ROOMS = ["checks", "objective", "objectives", "numerics", "solvers", "symmetries", "optim"]
"""The core, from the ground up; a room imports what stands before it."""
ABOVE = {"integrations": ROOMS, "theory": ROOMS, "problems": ROOMS}
ABOVE["theory"] = [*ROOMS, "problems"]
ABOVE["lab"] = [*ROOMS, "integrations", "theory", "problems"]
ABOVE["cli"] = [*ABOVE["lab"], "lab"]


def imported(path: Path) -> set[str]:
    """The rooms that a file imports from, wherever in the file it does."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "levelport":
            tail = node.module.split(".")[1:]
            named = [alias.name for alias in node.names if alias.name != "__version__"]
            homes = {levelport._HOME.get(name, name).split(".")[0] for name in named}
            names |= {tail[0]} if tail else homes
        elif isinstance(node, ast.Import):
            names |= {a.name.split(".")[1] for a in node.names if a.name.startswith("levelport.")}
    return names


def allowed(room: str) -> set[str]:
    """``room`` itself and what it may import from; symmetries and optim do not know each other."""
    below = ROOMS[: ROOMS.index(room)] if room in ROOMS else ABOVE[room]
    return {room, *below} - ({"symmetries"} if room == "optim" else set())


def violations(root: Path) -> list[str]:
    found = []
    for path in sorted(root.rglob("*.py")):
        room = path.relative_to(root).parts[0].removesuffix(".py")
        if room not in ("__init__", "__main__"):
            wrong = imported(path) - allowed(room)
            found += [f"{path.relative_to(root)} imports from {name}" for name in sorted(wrong)]
    return found


def test_imports_point_one_way() -> None:
    assert violations(ROOT) == []


def test_a_forbidden_import_is_seen(tmp_path: Path) -> None:
    for room, line in (("solvers", "from levelport.optim import minimize"), ("optim", "import levelport.lab.report")):
        (tmp_path / room).mkdir()
        (tmp_path / room / "wrong.py").write_text(f"def later():\n    {line}\n")
    assert violations(tmp_path) == ["optim/wrong.py imports from lab", "solvers/wrong.py imports from optim"]


def test_the_map_names_every_folder() -> None:
    """docs/architecture.md, which people find their way by."""
    page = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"
    text = page.read_text(encoding="utf-8")
    folders = [path for path in ROOT.rglob("*") if path.is_dir() and (path / "__init__.py").exists()]
    assert len(folders) > 10
    assert [str(path.relative_to(ROOT)) for path in folders if f"{path.name}/" not in text] == []
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", text))
    homes = (ROOT, ROOT.parents[1])
    assert sorted(name for name in named if not any((home / name).exists() for home in homes)) == []


def test_no_verb_hides_a_module() -> None:
    """``import levelport.solvers.sqp as s`` gives the module, for every module of the core."""
    modules = [".".join(p.relative_to(ROOT).with_suffix("").parts) for r in ROOMS for p in ROOT.glob(f"{r}*/*.py")]
    lines = [f"import levelport.{m} as m; assert type(m).__name__ == 'module', m" for m in modules if "__" not in m]
    assert len(lines) > 20
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_the_core_needs_torch_alone() -> None:
    """With every other package hidden, the core imports and teleports."""
    hidden = ["numpy", "scipy", "pandas", "matplotlib", "sklearn", "joblib", "typer", "rich", "pooch", "pyarrow"]
    script = f"""
import sys
import torch
for name in {hidden!r}:
    for loaded in [m for m in sys.modules if m.split(".")[0] == name]:
        del sys.modules[loaded]
    sys.modules[name] = None
import levelport
for name in levelport.__all__:
    if levelport._HOME[name] not in ("problems", "theory"):
        getattr(levelport, name)
x = torch.tensor([1.0, 2.0], dtype=torch.float64)
assert levelport.teleport(lambda x: (x * x * torch.tensor([1.0, 3.0])).sum(), x).success
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


def test_importing_the_package_imports_no_torch() -> None:
    script = (
        "import sys, levelport; assert 'torch' not in sys.modules; levelport.teleport; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
