"""Shared by the tests of the library and of the laboratory: independence of time, and roundings of another machine.

No test may depend on how fast the machine is. Hypothesis runs without deadlines and without the health check that
measures seconds, and draws the same examples every time; ``tools/fuzz.py`` is where new examples are looked for.

``pytest --roundings SEED`` multiplies every entry of every gradient and Hessian-vector product by 1 ± a unit of
rounding or two, which is what another processor, another number of threads or another version of torch does. Starts
and values stay as they are, and the same evaluation is rounded the same way every time. A test that fails under one
seed and passes under another tests an accident. Tests that compare two computations bit for bit are marked ``bits``
and run undisturbed: roundings differ between the two.
"""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor

from levelport.objective import Point

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
sys.path.append(str(Path(__file__).parent / "tools"))  # tests import scripts from there
settings.register_profile("levelport", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("levelport")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--roundings", type=int, default=None, help="seed of artificial roundings of derivatives")


@pytest.fixture(autouse=True)
def _other_roundings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = request.config.getoption("--roundings")
    if seed is None or request.node.get_closest_marker("bits"):
        return
    gradient, hvp = Point.gradient.fget, Point.hvp  # type: ignore[attr-defined]

    def rounded(v: Tensor, *at: Tensor) -> Tensor:
        place = zlib.crc32(
            b"".join(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for x in at)
        )
        generator = torch.Generator().manual_seed((seed << 32) + place)
        noise = torch.randn(v.shape, generator=generator, dtype=v.dtype).to(v.device)
        return v * (1.0 + torch.finfo(v.dtype).eps * noise)

    def other_gradient(self: Point) -> Tensor:
        if self._gradient is None:
            self._gradient = rounded(gradient(self), self.x)
        return self._gradient

    monkeypatch.setattr(Point, "gradient", property(other_gradient))
    monkeypatch.setattr(Point, "hvp", lambda self, v: rounded(hvp(self, v), self.x, v))
