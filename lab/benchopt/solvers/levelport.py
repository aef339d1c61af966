"""levelport.minimize: descent with teleports, on derivatives by autograd."""

import torch
from benchopt import BaseSolver

import levelport
from levelport.optim import Armijo


class Solver(BaseSolver):
    name = "levelport"
    requirements = ["pip::levelport"]
    sampling_strategy = "callback"
    parameters = {"schedule": ["always", "never"]}
    test_config = {"schedule": "always"}

    def set_objective(self, X, y, reg):
        self.X, self.y, self.reg = torch.as_tensor(X), torch.as_tensor(y), reg

    def run(self, callback):
        def loss(w):
            return torch.nn.functional.softplus(-self.y * (self.X @ w)).mean() + self.reg * w @ w

        def after(row, point):
            self.w = point.x
            return not callback()

        self.w = torch.zeros(self.X.shape[1], dtype=torch.float64)
        schedule = levelport.Every(1) if self.schedule == "always" else levelport.Never()
        if callback():
            levelport.minimize(loss, self.w, Armijo(c=0.1), schedule=schedule, gtol=1e-12, callback=after)

    def get_result(self):
        return {"w": self.w.detach().numpy().copy()}
