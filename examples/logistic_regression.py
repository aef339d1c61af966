"""Logistic regression to high accuracy: gradient descent alone, and with teleports.

python examples/logistic_regression.py
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_breast_cancer

from levelport import LinearObjective
from levelport.optim import Armijo, Every, Never, minimize


def main() -> None:
    features, classes = load_breast_cancer(return_X_y=True)
    X = torch.tensor((features - features.mean(0)) / features.std(0))
    X = torch.cat([X, torch.ones(len(X), 1, dtype=X.dtype)], dim=1)  # a bias
    y = torch.tensor(2.0 * classes - 1.0)  # labels ±1
    x0 = torch.zeros(X.shape[1], dtype=X.dtype)

    for name, options in {
        "gradient descent": {"method": Armijo(), "schedule": Never()},
        "with teleports": {"method": Armijo(c=0.1), "schedule": Every(1)},
        "by default": {},
    }.items():
        objective = LinearObjective.logistic(X, y, penalty=1e-6)
        result = minimize(objective, x0, gtol=1e-6, max_cost=1000, **options)  # type: ignore[arg-type]
        print(f"{name:17} f = {result.value:.10f}  |gradient| = {result.gradient_norm:.1e}")
        print(f"{'':17} {result.cost.gradient_equivalents:g} gradient equivalents, {result.teleports} teleports")
        print(f"{'':17} {result.message}")


if __name__ == "__main__":
    main()
