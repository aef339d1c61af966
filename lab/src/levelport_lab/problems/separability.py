"""Which samples a hyperplane can put on their right side at no other sample's expense.

Without a penalty, a direction v with yᵢxᵢᵀv ≥ 0 for all i, and > 0 for some, lets the logistic loss of those
samples fall to 0 along x + tv while the others keep theirs. The infimum is then not attained. The linear programme

    maximize Σ sᵢ   over v and s   subject to   yᵢ xᵢᵀv ≥ sᵢ,   0 ≤ sᵢ ≤ 1

finds the largest such set of samples: a direction may be scaled up until every positive margin exceeds 1, and two
directions may be added, so at the solution sᵢ is 1 on that set and 0 elsewhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def separable_rows(X: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """True for the samples in the largest set above; all True means that a hyperplane separates the classes."""
    from scipy import sparse
    from scipy.optimize import linprog

    n, d = X.shape
    signed = y[:, None] * X
    constraints = sparse.hstack([sparse.csr_matrix(-signed), sparse.identity(n, format="csr")], format="csr")
    answer = linprog(
        c=np.concatenate([np.zeros(d), -np.ones(n)]),
        A_ub=constraints,
        b_ub=np.zeros(n),
        bounds=[(None, None)] * d + [(0.0, 1.0)] * n,
        method="highs",
    )
    if answer.status != 0:
        raise RuntimeError(f"The linear programme for separability was not solved: {answer.message}")
    v, rows = answer.x[:d], answer.x[d:] > 0.5
    margins, rounding = signed @ v, 2 * d * np.finfo(float).eps * (abs(signed) @ abs(v))
    # The solver's tolerance is not ours: the direction must do what it claims, up to rounding.
    if bool((margins < np.where(rows, rounding, -rounding)).any()):
        return np.zeros(n, dtype=bool)
    return np.asarray(rows)
