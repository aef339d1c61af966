"""The examples run and print what they should."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("logistic_regression.py", ["the gradient norm fell below the tolerance"]),
        ("mlp_adam.py", ["step 50: gradient norm", "training accuracy 0.9", "without teleports: loss"]),
        ("checkpoint_resume.py", ["the parameters agree bit for bit"]),
        ("minibatch.py", ["epoch 7: loss", "last teleport: gradient norm x"]),
    ],
)
def test_example(script: str, expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """In this process: a process of its own would import torch once more, which takes longer than the example."""
    with torch.random.fork_rng():
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    printed = capsys.readouterr().out
    assert [line for line in expected if line not in printed] == []


def test_data_parallel_example() -> None:
    for _ in range(3):
        finished = subprocess.run(
            [sys.executable, *TORCHRUN, str(EXAMPLES / "data_parallel.py")],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=600,
        )
        # Now and then torch's own threads abort a process that is shutting down, when all work is done.
        if "terminate called without an active exception" not in finished.stderr:
            break
    assert finished.returncode == 0, finished.stderr
    assert all(f"rank {rank}: the same point as rank 0" in finished.stdout for rank in (0, 1))


def test_every_example_is_tested() -> None:
    assert len(list(EXAMPLES.glob("*.py"))) == 5
