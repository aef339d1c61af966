"""One training run per framework, and the benchmark that outsiders run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "lightning_callback": "lightning",
    "fabric_loop": "lightning",
    "transformers_trainer": "transformers",
    "accelerate_loop": "accelerate",
    "ignite_handler": "ignite",
    "skorch_net": "skorch",
}


def test_every_example_is_in_the_table() -> None:
    assert {path.stem for path in (ROOT / "examples" / "integrations").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_trains_and_teleports(name: str, tmp_path: Path) -> None:
    pytest.importorskip(EXAMPLES[name], reason=f"{EXAMPLES[name]} is not installed: make integrations")
    script = ROOT / "examples" / "integrations" / f"{name}.py"
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert found.returncode == 0, found.stderr
    assert "gradient x" in found.stdout


def test_benchopt_runs_the_benchmark(tmp_path: Path) -> None:
    pytest.importorskip("benchopt", reason="benchopt is not installed: make integrations")
    folder = tmp_path / "benchopt"
    shutil.copytree(ROOT / "lab" / "benchopt", folder, ignore=shutil.ignore_patterns("outputs", "__cache__"))
    script = Path(sys.executable).parent / "benchopt"
    command = [str(script), "run", str(folder), "-n", "3", "-r", "1", "--no-plot", "--no-html"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "error" not in found.stdout.lower(), found.stdout
    assert list((folder / "outputs").glob("*.parquet"))
