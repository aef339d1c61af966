"""What the members of a grid have spent."""

from __future__ import annotations

import numpy as np

from levelport.objective import Cost
from levelport_lab.engine.spec import Curve
from levelport_lab.paper.member_points import Rows


class Spending:
    """What the members have spent, in full-batch evaluations; a mini-batch counts by its share."""

    def __init__(self, members: int) -> None:
        self.values = np.zeros(members)
        self.gradients = np.zeros(members)
        self.hvps = np.zeros(members)
        self.seconds = np.zeros(members)

    def add(self, member: int, cost: Cost) -> None:
        """Add the cost of a teleport."""
        self.values[member] += cost.values
        self.gradients[member] += cost.gradients
        self.hvps[member] += cost.hvps
        self.seconds[member] += cost.seconds

    def charge_alike(self, members: Rows, models: Rows) -> None:
        """Each of ``members`` has spent what its model has."""
        for spent in (self.values, self.gradients, self.hvps, self.seconds):
            spent[members] = spent[models]

    @property
    def gradient_equivalents(self) -> Curve:
        """½ per value, 1 per gradient, 2 per Hessian-vector product."""
        return 0.5 * self.values + self.gradients + 2.0 * self.hvps
