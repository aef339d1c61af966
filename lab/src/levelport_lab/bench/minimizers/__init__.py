"""The comparison of minimizers: problems by formula and seed, arms, the study and its page."""

from levelport_lab.bench.minimizers import functions, networks, statistical  # they fill PROBLEMS

__all__ = ["functions", "networks", "statistical"]
