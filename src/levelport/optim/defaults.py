"""What ``minimize(f, x0)`` and ``Teleported(optimizer)`` do when nothing else is said. All defaults are here."""

from __future__ import annotations

from levelport.optim.adaptive import WhenItPays
from levelport.optim.armijo import Armijo
from levelport.optim.jump import Jump
from levelport.optim.schedules import Schedule
from levelport.optim.step_rule import StepRule

METHOD: StepRule = Armijo(c=0.5)
"""Of ``minimize``."""

SCHEDULE: Schedule = WhenItPays()
"""Of ``minimize`` and ``Teleported``."""

JUMP = Jump(solver="auto", max_hvps=50)
"""How either teleports."""

GTOL = 1e-8
"""‖∇f‖ relative to its value at x0."""

MAX_ITERATIONS = 1000
