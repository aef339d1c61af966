"""What the tests share: every device that is present, and roundings of another machine on demand.

``pytest --roundings SEED`` multiplies every entry of every gradient and Hessian-vector product by 1 ± a unit of
rounding or two, which is what another processor, another number of threads or another version of torch does. Starts
and values stay as they are. A test that fails under one seed and passes under another tests an accident.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from levelport.objective import Point

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--roundings", type=int, default=None, help="seed of artificial roundings of derivatives")


@pytest.fixture(autouse=True)
def _other_roundings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = request.config.getoption("--roundings")
    if seed is None:
        return
    generator = torch.Generator().manual_seed(seed)
    gradient, hvp = Point.gradient.fget, Point.hvp  # type: ignore[attr-defined]

    def rounded(v: Tensor) -> Tensor:
        noise = torch.randn(v.shape, generator=generator, dtype=v.dtype).to(v.device)
        return v * (1.0 + torch.finfo(v.dtype).eps * noise)

    def other_gradient(self: Point) -> Tensor:
        if self._gradient is None:
            self._gradient = rounded(gradient(self))
        return self._gradient

    monkeypatch.setattr(Point, "gradient", property(other_gradient))
    monkeypatch.setattr(Point, "hvp", lambda self, v: rounded(hvp(self, v)))


def present_devices() -> list[str]:
    """The CPU, and the accelerators of this machine."""
    devices = ["cpu"]
    if torch.cuda.is_available():
        devices.append("cuda")
    if torch.backends.mps.is_available():
        devices.append("mps")
    return devices


@pytest.fixture(params=present_devices())
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device present in turn."""
    return torch.device(request.param)


@pytest.fixture
def float64_device(device: torch.device) -> torch.device:
    """Each device present that has float64."""
    if device.type == "mps":
        pytest.skip("Apple's GPUs have no float64")
    return device
