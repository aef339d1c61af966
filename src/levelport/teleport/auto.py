"""placeholder"""

from __future__ import annotations
from levelport.teleport.sqp import SQP as Auto  # noqa
