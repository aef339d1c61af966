"""Figures 11 and 12: performance profiles over time."""

from __future__ import annotations

import numpy as np

from levelport_lab.choices import HalfName, SolverName
from levelport_lab.paper.methods import Method
from levelport_lab.paper.profile_grid import Scored, Variant
from levelport_lab.paper.profile_studies import Case, Check, ProfileStudy, profile_of
from levelport_lab.paper.profiles import Axis


class TimedProfile(ProfileStudy):
    """A profile against time with the solver cut short after 1, 10, 25 and 50 iterations."""

    statement = (
        "Teleports of 50 iterations let {half} methods catch up with plain ones in the same time; shorter ones gain "
        "little."
    )
    timed = True
    longer = True
    solver_limits = (1, 10, 25, 50)
    axis = Axis.SECONDS

    def statements(self, half: HalfName) -> list[tuple[str, str, Check]]:
        end = "In the end {half} methods with teleports of 50 iterations have caught up with plain ones."
        return [(self.name, self.statement, self.check_in_time), (f"{self.name}-end", end, self.check)]

    def check_in_time(self, case: Case) -> tuple[bool, str]:
        """Both parts: at the time budget of the plain methods, 50 iterations are level or better, and beat 1 and 10."""
        scores = self.needed_scores(case)
        means = {
            limit: np.mean([self._solved_in_same_time(scores, method, case.solver, limit) for method in Method])
            for limit in self.limits(case.setup)
        }
        plain = np.mean([profile_of(scores, Variant(method), Axis.SECONDS).solved for method in Method])
        words = ", ".join(f"{limit} its. {share:.0%}" for limit, share in means.items())
        shortest, short, *_, longest = means.values()
        holds = longest >= plain and longest > max(shortest, short)
        return bool(holds), f"solved within the plain methods' time: plain {plain:.0%}, {words}"

    @staticmethod
    def _solved_in_same_time(scores: list[Scored], method: Method, solver: SolverName, limit: int) -> float:
        """Share of problems solved by the time at which the plain method's run on the same problem had ended."""
        budget = {
            (score.problem, score.reg): float(score.run.curves["seconds"][-1])
            for score in scores
            if score.variant == Variant(method) and len(score.run.curves.get("seconds", ()))
        }
        wanted = [score for score in scores if score.variant == Variant(method, solver, limit)]
        solved = [score.spent(Axis.SECONDS) <= budget.get((score.problem, score.reg), 0.0) for score in wanted]
        return float(np.mean(solved))


class LogisticTimed(TimedProfile):
    """Figure 11."""

    name = "fig11"
    title = "Time profiles, logistic regression, solver limited to 1, 10, 25, 50 iterations"
    model = "logreg"


class NetworkTimed(TimedProfile):
    """Figure 12."""

    name = "fig12"
    title = "Time profiles, ReLU networks, solver limited to 1, 10, 25, 50 iterations"
    model = "network"
