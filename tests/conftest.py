"""Every device that is present."""

from __future__ import annotations

import pytest
import torch


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
