"""What ``minimize(f, x0)`` and ``Teleported(optimizer)`` do when nothing else is said. All defaults are here."""

from __future__ import annotations

from levelport.optim.adaptive import WhenItPays
from levelport.optim.armijo import Armijo
from levelport.optim.jump import Jump
from levelport.optim.schedules import Every, Schedule
from levelport.optim.step_rule import StepRule
from levelport.solvers import Auto, Recycled

METHOD: StepRule = Armijo(c=0.1)
"""Of ``minimize``."""

MINIMIZE_SCHEDULE: Schedule = Every(1)
"""Of ``minimize``: its teleports do most of the descending, by a model recycled from all gradients of the run."""

MINIMIZE_JUMP = Recycled()
"""How ``minimize`` teleports."""

SCHEDULE: Schedule = WhenItPays()
"""Of ``Teleported``."""

JUMP = Jump(solver=Auto(explore=1), max_hvps=10)
"""How ``Teleported`` teleports: briefly. On two small networks ten HVPs left a lower loss than fifty at equal cost."""

GTOL = 1e-8
"""‖∇f‖ relative to its value at x0."""

MAX_ITERATIONS = 1000
