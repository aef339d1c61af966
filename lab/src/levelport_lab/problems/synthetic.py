"""Linear and logistic data whose Hessian has a spectrum that you choose.

With an n×d matrix U of orthonormal columns, all orthogonal to the vector of ones, and a random rotation V,

    X = √n U diag(√λ) Vᵀ    gives    XᵀX/n = V diag(λ) Vᵀ    and    Xᵀ1 = 0,

exactly (to rounding). So [X, 1]ᵀ[X, 1]/n has the eigenvalues λ and 1, which is the Hessian of the mean squared
loss, and four times the Hessian of the mean logistic loss at the origin.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def features_with_spectrum(samples: int, spectrum: ArrayLike, *, seed: int = 0) -> Floats:
    """X with XᵀX/n of the given eigenvalues and columns of mean 0."""
    eigenvalues = np.asarray(spectrum, dtype=np.float64)
    if eigenvalues.ndim != 1 or eigenvalues.size == 0 or bool((eigenvalues < 0).any()):
        raise ValueError("spectrum must be a list of eigenvalues, none of them negative.")
    dimension = eigenvalues.size
    if samples <= dimension:
        raise ValueError(f"samples must exceed the {dimension} eigenvalues of spectrum, not be {samples}.")
    generator = np.random.default_rng(seed)
    gaussian = generator.standard_normal((samples, dimension))
    U, _ = np.linalg.qr(gaussian - gaussian.mean(axis=0))
    V, _ = np.linalg.qr(generator.standard_normal((dimension, dimension)))
    return np.asarray((np.sqrt(samples) * U * np.sqrt(eigenvalues)) @ V.T)


def linear_data(samples: int, spectrum: ArrayLike, *, noise: float = 0.1, seed: int = 0) -> tuple[Floats, Floats]:
    """X and y = Xw + noise·ε, with w and ε standard normal."""
    X = features_with_spectrum(samples, spectrum, seed=seed)
    generator = np.random.default_rng([seed, 1])
    weights = generator.standard_normal(X.shape[1])
    return X, X @ weights + noise * generator.standard_normal(samples)


def logistic_data(
    samples: int, spectrum: ArrayLike, *, margin: float = 2.0, seed: int = 0
) -> tuple[Floats, NDArray[np.int8]]:
    """X and labels ±1 drawn with P(y = 1) = 1/(1 + exp(-xᵀw)), where w makes the margins xᵀw have the given size.

    ``margin`` is the root mean square of xᵀw. Labels drawn at random are not separable once there are many more
    samples than features.
    """
    X = features_with_spectrum(samples, spectrum, seed=seed)
    generator = np.random.default_rng([seed, 1])
    margins = X @ generator.standard_normal(X.shape[1])
    margins *= margin / np.sqrt(np.mean(margins**2))
    positive = generator.random(samples) < 1.0 / (1.0 + np.exp(-margins))
    return X, np.where(positive, 1, -1).astype(np.int8)
