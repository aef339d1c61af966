"""Any goal over a sub-level set: intervals, profiles and contours of quantities, and better models at the same loss."""

from levelport.goals._contour import contour
from levelport.goals._improve import improve
from levelport.goals._interval import interval
from levelport.goals._profile import profile
from levelport.goals.goal import Distance, Norm
from levelport.goals.result import (
    ContourResult,
    End,
    EndStatus,
    ImproveResult,
    ImproveRow,
    ImproveStatus,
    IntervalResult,
    ProfileResult,
)

__all__ = [
    "ContourResult",
    "Distance",
    "End",
    "EndStatus",
    "ImproveResult",
    "ImproveRow",
    "ImproveStatus",
    "IntervalResult",
    "Norm",
    "ProfileResult",
    "contour",
    "improve",
    "interval",
    "profile",
]
