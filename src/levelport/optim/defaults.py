"""What ``minimize(f, x0)`` and ``Teleported(optimizer)`` do when nothing else is said. All defaults are here."""

from __future__ import annotations

from levelport.optim.armijo import Armijo
from levelport.optim.schedules import Every, Schedule
from levelport.optim.step_rule import StepRule
from levelport.optim.when_it_pays import WhenItPays
from levelport.solvers import Settings

METHOD: StepRule = Armijo(c=0.1)
"""Of ``minimize``."""

MINIMIZE_SCHEDULE: Schedule = Every(1)
"""Of ``minimize``."""

MINIMIZE_TELEPORTS = Settings(solver="krylov", max_hvps=200)
"""How ``minimize`` teleports: the Krylov solver stops by itself, long before that."""

SCHEDULE: Schedule = WhenItPays()
"""Of ``Teleported`` and ``Teleporter``."""

TELEPORTS = Settings(solver="krylov", max_hvps=10)
"""How ``Teleported`` teleports: briefly. On two small networks ten HVPs left a lower loss than fifty at equal cost."""

GTOL = 1e-8
"""‖∇f‖ relative to its value at x0."""

MAX_ITERATIONS = 1000
