"""The examples run, each in seconds, and say what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.parametrize(
    ("script", "promises"),
    [
        ("logistic_regression.py", ["the gradient norm fell below the tolerance"]),
        ("mlp_adam.py", ["step 50: gradient norm", "training accuracy 0.9", "without teleports: loss"]),
        ("checkpoint_resume.py", ["the parameters agree bit for bit"]),
        ("minibatch.py", ["epoch 7: loss", "last teleport: gradient norm x"]),
        ("data_parallel.py", ["rank 0: the same point as rank 0", "rank 1: the same point as rank 0"]),
    ],
)
def test_example(script: str, promises: list[str]) -> None:
    launcher = TORCHRUN if script == "data_parallel.py" else []
    for _ in range(3):
        finished = subprocess.run(
            [sys.executable, *launcher, str(EXAMPLES / script)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=600,
        )
        # Now and then torch's own threads abort a process that is shutting down, when all work is done.
        if "terminate called without an active exception" not in finished.stderr:
            break
    assert finished.returncode == 0, finished.stderr
    for promise in promises:
        assert promise in finished.stdout


def test_every_example_is_tested() -> None:
    assert len(list(EXAMPLES.glob("*.py"))) == 5
