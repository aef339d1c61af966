"""Across processes, with torch alone: sharded parameters are refused, distributed checkpoints resume bit for bit."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import fsdp

HERE = Path(__file__).parent


def launch(task: str, out: Path, ranks: int = 2) -> list[dict[str, Any]]:
    """What every rank found."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    rendezvous = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / "ranks_worker.py"), task, str(out)],
            env={**os.environ, **rendezvous, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
    return [json.loads((out / f"{task}-{rank}.json").read_text(encoding="utf-8")) for rank in range(ranks)]


@pytest.mark.skipif(not hasattr(fsdp, "fully_shard"), reason="torch before 2.6 has no fully_shard")
def test_sharded_parameters_are_refused_with_a_remedy(tmp_path: Path) -> None:
    for found in launch("sharded", tmp_path):
        for sentence in found.values():
            assert "DTensor" in sentence
            assert "DistributedObjective" in sentence


def test_distributed_checkpoints_resume_bit_for_bit(tmp_path: Path) -> None:
    first, second = launch("checkpoint", tmp_path)
    assert first == second
    assert first["whole"] == first["half"] == first["resumed"]
    assert first["iteration"] == 9


def test_what_a_teleport_sends_follows_from_what_it_evaluates(tmp_path: Path) -> None:
    """d numbers per gradient and product, one per value, and a handful to begin with: docs/guides/ranks.md."""
    first, second = ([{**row, "seconds over gradient": 0} for row in r["rows"]] for r in launch("cost", tmp_path))
    assert first == second
    for row in first:
        # Gradients that are made again because their graph was lost are charged, but not sent again.
        vectors = row["gradients"] + row["hvps"] + 1  # and the broadcast of the start
        numbers = 8 * (row["values"] + row["gradients"] + 10)
        assert 0.5 * vectors <= row["bytes"] / (4 * row["parameters"]) <= vectors + numbers / row["parameters"]
