"""The table of docs/guides/ranks.md: what one teleport evaluates and sends, with one to four processes on this machine.

    python tools/measure_scale.py

Counts and bytes do not depend on the load of the machine; the last column, a ratio of times, does.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WORKER = Path(__file__).parent.parent / "tests" / "integrations" / "ranks_worker.py"


def measured(ranks: int) -> list[dict[str, Any]]:
    """What the first of so many ranks found, a row per size of network."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as out:
        processes = [
            subprocess.Popen(
                [sys.executable, str(WORKER), "cost", out], env={**os.environ, **common, "RANK": str(rank)}
            )
            for rank in range(ranks)
        ]
        endings = [process.wait() for process in processes]
        if any(endings):
            sys.exit(f"a rank of {ranks} failed; its output is above.")
        rows: list[dict[str, Any]] = json.loads((Path(out) / "cost-0.json").read_text(encoding="utf-8"))["rows"]
        return rows


def main() -> None:
    found = {ranks: measured(ranks) for ranks in range(1, 5)}
    names = ("parameters d", "ranks", "values", "gradients", "HVPs", "collectives", "bytes per rank", "bytes / 4d")
    print("| " + " | ".join((*names, "time / gradient")) + " |")
    print("|" + " ---: |" * 9)
    for number in range(len(found[1])):
        for ranks, rows in found.items():
            row = rows[number]
            d, sent = row["parameters"], row["bytes"]
            counts = f"{row['values']} | {row['gradients']} | {row['hvps']} | {row['calls']} | {sent}"
            print(f"| {d} | {ranks} | {counts} | {sent / (4 * d):.1f} | {row['seconds over gradient']:.0f} |")


if __name__ == "__main__":
    main()
