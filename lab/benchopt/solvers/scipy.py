"""SciPy's own: L-BFGS-B and Newton-CG, with derivatives in closed form."""

import numpy as np
import scipy.optimize as so
from benchopt import BaseSolver


class Solver(BaseSolver):
    name = "SciPy"
    requirements = ["scipy"]
    parameters = {"method": ["L-BFGS-B", "Newton-CG"]}
    test_config = {"method": "L-BFGS-B"}
    sampling_strategy = "iteration"

    def set_objective(self, X, y, reg):
        self.X, self.y, self.reg = X, y, reg

    def _loss(self, w):
        margins = self.y * (self.X @ w)
        weights = np.exp(-np.logaddexp(0.0, margins))
        gradient = -self.X.T @ (self.y * weights) / len(self.y) + 2.0 * self.reg * w
        return np.logaddexp(0.0, -margins).mean() + self.reg * w @ w, gradient

    def _hessp(self, w, v):
        margins = self.y * (self.X @ w)
        curvature = np.exp(-np.logaddexp(0.0, margins) - np.logaddexp(0.0, -margins))
        return self.X.T @ (curvature * (self.X @ v)) / len(self.y) + 2.0 * self.reg * v

    def run(self, n_iter):
        self.w = np.zeros(self.X.shape[1])
        if n_iter == 0:
            return
        products = {"hessp": self._hessp} if self.method == "Newton-CG" else {}
        tolerance = {"xtol": 1e-14} if products else {"ftol": 0.0, "gtol": 1e-14}
        options = {"maxiter": n_iter, **tolerance}
        self.w = so.minimize(self._loss, self.w, jac=True, method=self.method, options=options, **products).x

    def get_result(self):
        return {"w": self.w}
