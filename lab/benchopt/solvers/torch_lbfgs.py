"""torch's L-BFGS with its strong-Wolfe search."""

import torch
from benchopt import BaseSolver


class Solver(BaseSolver):
    name = "torch-LBFGS"
    requirements = ["pip::torch"]
    sampling_strategy = "callback"

    def set_objective(self, X, y, reg):
        self.X, self.y, self.reg = torch.as_tensor(X), torch.as_tensor(y), reg

    def run(self, callback):
        self.w = torch.zeros(self.X.shape[1], dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([self.w], max_iter=1, line_search_fn="strong_wolfe", tolerance_grad=1e-14)

        def closure():
            optimizer.zero_grad()
            loss = torch.nn.functional.softplus(-self.y * (self.X @ self.w)).mean() + self.reg * self.w @ self.w
            loss.backward()
            return loss

        while callback():
            optimizer.step(closure)

    def get_result(self):
        return {"w": self.w.detach().numpy().copy()}
