"""A few seeds of the study of safety: teleports never hurt a small network."""

from __future__ import annotations

import pytest

from levelport_lab.bench import safety


@pytest.mark.parametrize("schedule", ["every 20", "default"])
@pytest.mark.parametrize("optimizer", list(safety.OPTIMIZERS))
@pytest.mark.parametrize("activation", ["softplus", "tanh"])
def test_small_networks_are_never_hurt(activation: str, optimizer: str, schedule: str) -> None:
    """A few seeds of the study of :mod:`levelport_lab.bench.safety`."""
    if schedule == "default" and optimizer not in safety.WITH_DEFAULT:
        pytest.skip("there is no default schedule")
    for seed in range(2):
        plain, _ = safety.train(activation, optimizer, seed, lambda inner: inner)
        found = safety.compared(activation, optimizer, schedule, seed, plain)
        assert found["safe"], found
