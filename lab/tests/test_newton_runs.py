from __future__ import annotations

import numpy as np
import pytest
import torch

from levelport_lab.paper.newton_runs import NewtonRun, flat_function
from levelport_lab.problems import problem

torchmin = pytest.importorskip("torchmin")


@pytest.mark.parametrize("name", ["logreg/blood", "mlp-relu-6-5/blood"])
def test_flat_function_is_the_problem(name: str) -> None:
    named = problem(name, reg=1e-2)
    x = named.initial_point() + 0.1
    leaf = x.clone().requires_grad_(True)
    value = flat_function(named)(leaf)
    (gradient,) = torch.autograd.grad(value, leaf)
    point = named.objective().at(x)
    assert value.item() == pytest.approx(point.value, rel=1e-12)
    torch.testing.assert_close(gradient, point.gradient, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("settings", [(), (1.0,)])
def test_stepwise_run_equals_one_call(settings: tuple[float, ...]) -> None:
    """A step at a time, as the authors call it, is what one call of pytorch-minimize with as many steps gives."""
    spec = NewtonRun("logreg/blood", 1e-2, 25, 4, settings=settings, code="pytorch-minimize", first_trial=1e-3)
    (run,) = spec.run()
    named = problem("logreg/blood", reg=1e-2)
    options = {"lr": settings[0] if settings else 1e-3, "cg_max_iter": 25, "xtol": 1e-20, "twice_diffable": False}
    options["line_search"] = "none" if settings else "strong-wolfe"
    whole = torchmin.minimize(
        flat_function(named), named.initial_point(), method="newton-cg", max_iter=4, options=options
    )
    assert run.curves["value"][-1] == pytest.approx(float(whole.fun), rel=1e-9)
    assert len(run.curves["value"]) == 5


def test_steps_with_short_gradients_are_idle() -> None:
    """CG's absolute test ends the run in float32 long before the gradient vanishes; the library's goes on."""
    theirs, ours = (
        NewtonRun("logreg/titanic", 0.0, 25, 30, settings=(1.0,), precision="float32", code=code).run()[0]
        for code in ("pytorch-minimize", "levelport")
    )
    assert theirs.facts["idle_steps"] >= 10
    assert np.ptp(theirs.curves["value"][-10:]) == 0.0
    assert theirs.curves["gradient_norm"][-1] > 10.0 * ours.curves["gradient_norm"].min()
