"""Logistic regression, f(w) = mean log(1 + exp(-y Xw)) + reg ‖w‖²: what every solver is judged by."""

import numpy as np
from benchopt import BaseObjective


class Objective(BaseObjective):
    name = "Logistic regression"
    min_benchopt_version = "1.6"
    requirements = ["numpy"]
    parameters = {"reg": [1e-6]}
    test_config = {"reg": 1e-3}

    def set_data(self, X, y):
        self.X, self.y = X, y

    def get_objective(self):
        return {"X": self.X, "y": self.y, "reg": self.reg}

    def get_one_result(self):
        return {"w": np.zeros(self.X.shape[1])}

    def evaluate_result(self, w):
        margins = self.y * (self.X @ w)
        value = np.logaddexp(0.0, -margins).mean() + self.reg * w @ w
        weights = np.exp(-np.logaddexp(0.0, margins))
        gradient = -self.X.T @ (self.y * weights) / len(self.y) + 2.0 * self.reg * w
        return {"value": value, "gradient_norm": np.linalg.norm(gradient)}
