"""Imports point one way, the library needs torch alone, and the architecture page names what exists."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import FrameType

import pytest
import torch
from torch import Tensor

import levelport

LIBRARY = Path(levelport.__file__).parent
REPOSITORY = Path(__file__).resolve().parents[1]
LAYERS = [
    "checks",
    "vectors",
    "objective",
    "objectives",
    "numerics",
    "solvers",
    "goals",
    "symmetries",
    "optim",
    "integrations",
]
"""Packages of the library; each may import those before it. ``symmetries`` and ``optim`` do not import each other."""


def imported(path: Path) -> set[str]:
    """Return the packages of the library that a file imports from, and ``levelport_lab`` if it imports that."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            root, *tail = node.module.split(".")
            if root == "levelport":
                named = [alias.name for alias in node.names if alias.name != "__version__"]
                found |= {tail[0]} if tail else {levelport._HOME.get(name, name).split(".")[0] for name in named}
            elif root == "levelport_lab":
                found.add(root)
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            found |= {name[1] for name in names if name[0] == "levelport" and len(name) > 1}
            found |= {name[0] for name in names if name[0] == "levelport_lab"}
    return found


def violations(root: Path) -> list[str]:
    """Return a line for each import that points the wrong way."""
    found = []
    for path in sorted(root.rglob("*.py")):
        package = path.relative_to(root).parts[0].removesuffix(".py")
        if package != "__init__":
            allowed = set(LAYERS[: LAYERS.index(package) + 1]) - ({"symmetries"} if package == "optim" else set())
            found += [f"{path.relative_to(root)} imports {name}" for name in sorted(imported(path) - allowed)]
    return found


def test_imports_point_one_way() -> None:
    assert violations(LIBRARY) == []


def test_forbidden_import_is_found(tmp_path: Path) -> None:
    for package, line in (
        ("solvers", "from levelport.optim import minimize"),
        ("optim", "import levelport_lab.report"),
    ):
        (tmp_path / package).mkdir()
        (tmp_path / package / "wrong.py").write_text(f"def later():\n    {line}\n")
    assert violations(tmp_path) == ["optim/wrong.py imports levelport_lab", "solvers/wrong.py imports optim"]


def test_files_have_at_most_400_lines() -> None:
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in LIBRARY.rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_library_tests_do_not_import_laboratory() -> None:
    tests = [path for path in Path(__file__).parent.rglob("*.py") if "levelport_lab" in imported(path)]
    assert tests == []


def test_architecture_page_names_every_folder() -> None:
    page = REPOSITORY / "docs" / "architecture.md"
    if not page.exists():
        pytest.skip("the documentation is not part of this copy")
    text = page.read_text(encoding="utf-8")
    homes = (LIBRARY, REPOSITORY, REPOSITORY / "lab" / "src" / "levelport_lab")
    folders = [path.parent for home in (LIBRARY, homes[2]) for path in home.rglob("*/__init__.py")]
    assert len(folders) > 10
    assert [str(path) for path in folders if f"{path.name}/" not in text] == []
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", text))
    assert sorted(name for name in named if not any((home / name).exists() for home in homes)) == []


def files_passed(run: Callable[[], object]) -> int:
    """Count the files of the library in which a function is called."""
    seen = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if Path(frame.f_code.co_filename).is_relative_to(LIBRARY):
            seen.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return len(seen)


def test_verbs_pass_as_many_files_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("levelport.objectives.isolation.eager", nullcontext)  # another test may have compiled something
    page = REPOSITORY / "docs" / "architecture.md"
    if not page.exists():
        pytest.skip("the documentation is not part of this copy")
    said = dict(re.findall(r"^\| `([\w.]+)\(.*?\)` \| (\d+) \|", page.read_text(encoding="utf-8"), flags=re.MULTILINE))
    torch.manual_seed(0)
    x, module = torch.tensor([1.0, 2.0], dtype=torch.float64), torch.nn.Linear(3, 1)
    inputs = torch.ones(4, 3)

    def f(x: Tensor) -> Tensor:
        return x.square().sum() + (x**4).sum()

    optimizer = levelport.Teleported(torch.optim.SGD(module.parameters(), lr=0.1), schedule=levelport.Every(1))
    runs: dict[str, Callable[[], object]] = {
        "teleport": lambda: levelport.teleport(f, x),
        "minimize": lambda: levelport.minimize(f, x),
        "Teleported.step": lambda: optimizer.step(lambda: module(inputs).square().mean()),
    }
    for name, run in runs.items():
        run()  # what the first call sets up is not counted
        assert files_passed(run) <= int(said[name]), name


def test_no_verb_hides_a_module() -> None:
    """``import levelport.solvers.sqp as s`` gives the module, for every module of the library."""
    modules = [".".join(p.relative_to(LIBRARY).with_suffix("").parts) for p in LIBRARY.glob("*/*.py")]
    lines = [
        f"import levelport.{m} as m; assert type(m).__name__ == 'module', m"
        for m in modules
        if "__" not in m and not m.startswith("integrations")
    ]
    assert len(lines) > 20
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_library_needs_torch_alone() -> None:
    """With every other package hidden, all names import and the verbs work."""
    hidden = ["numpy", "scipy", "pandas", "matplotlib", "sklearn", "joblib", "typer", "rich", "platformdirs", "pyarrow"]
    script = f"""
import sys
import torch
for name in [*{hidden!r}, "levelport_lab"]:
    for loaded in [m for m in sys.modules if m.split(".")[0] == name]:
        del sys.modules[loaded]
    sys.modules[name] = None
from levelport import *
x = torch.tensor([1.0, 2.0], dtype=torch.float64)
f = lambda x: (x * x * torch.tensor([1.0, 3.0])).sum()
assert teleport(f, x).success
assert minimize(f, x).success
model = torch.nn.Linear(2, 1)
optimizer = Teleported(torch.optim.SGD(model.parameters(), lr=0.1), schedule=Every(2))
for _ in range(4):
    optimizer.step(lambda: model(torch.ones(3, 2)).square().mean())
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


def test_importing_the_package_imports_no_torch() -> None:
    script = (
        "import sys, levelport; assert 'torch' not in sys.modules; levelport.teleport; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
