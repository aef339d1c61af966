"""Logistic regression at high accuracy.

Badly conditioned data (reg 1e-6): the gradient norm against cost, for gradient descent with line search alone and with
teleports, for ``minimize``, and for its L-BFGS without probes. A teleport makes the gradient *larger*: these are the
upward jumps. What counts is where the curve is afterwards.
"""

from __future__ import annotations

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer

import levelport
from levelport.optim import Armijo


def main() -> Figure:
    features, labels = load_breast_cancer(return_X_y=True)
    X = torch.tensor((features - features.mean(0)) / features.std(0))
    X = torch.cat([X, torch.ones(len(X), 1)], dim=1)
    objective = levelport.LinearObjective.logistic(X, torch.tensor(2.0 * labels - 1.0), penalty=1e-6)
    zero = torch.zeros(X.shape[1], dtype=torch.float64)
    runs = {
        "gradient descent": {"method": Armijo(c=0.1), "schedule": levelport.Never()},
        "teleport every 50 steps": {"method": Armijo(c=0.1), "schedule": levelport.Every(50, start=5)},
        "minimize": {},
        "L-BFGS": {"method": "lbfgs", "schedule": levelport.Never()},
    }
    picture = Figure(figsize=(7, 4), layout="constrained")
    axes = picture.subplots()
    for name, options in runs.items():
        result = levelport.minimize(objective, zero, max_cost=1500, gtol=1e-9, **options)  # type: ignore[arg-type]
        axes.semilogy([row.cost for row in result.trace], [row.gradient_norm for row in result.trace], label=name)
        print(f"{name}: f = {result.value:.6f} after {result.cost.gradient_equivalents:g} gradient equivalents")
    axes.set(xlabel="gradient equivalents", ylabel="‖∇f‖")
    axes.legend()
    return picture
