"""L-BFGS of the library beside SciPy's on logistic regression, counted by the benchmark's instrument."""

from __future__ import annotations

from levelport_lab.bench.instances import ProblemName
from levelport_lab.bench.races import race


def test_it_needs_no_more_than_scipy_on_logistic_regression() -> None:
    for reg in (1e-2, 1e-4):
        name = ProblemName("logistic", "logreg/ionosphere", reg)
        theirs = race(name, "SciPy L-BFGS-B", 2000.0).facts["gradient_equivalents"]
        assert race(name, "levelport lbfgs", 2000.0).facts["gradient_equivalents"] <= 1.2 * theirs
