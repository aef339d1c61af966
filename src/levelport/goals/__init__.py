"""Any goal over a sub-level set: intervals of quantities, and a better model at the same loss."""

from levelport.goals._improve import improve
from levelport.goals._interval import interval
from levelport.goals.goal import Distance, Norm
from levelport.goals.result import End, EndStatus, ImproveResult, ImproveRow, ImproveStatus, IntervalResult

__all__ = [
    "Distance",
    "End",
    "EndStatus",
    "ImproveResult",
    "ImproveRow",
    "ImproveStatus",
    "IntervalResult",
    "Norm",
    "improve",
    "interval",
]
