"""A profile and a region.

A Gaussian peak over an exponential background, counted in 40 bins. Left, the profile likelihood of the number of signal
events: the smallest negative log-likelihood for each value. Right, the 95 % region of position and width together.
"""

from __future__ import annotations

import torch
from matplotlib.figure import Figure
from torch import Tensor

import levelport

bins = torch.linspace(0.125, 9.875, 40, dtype=torch.float64)


def expected(w: Tensor) -> Tensor:
    signal, position, width, height, slope = w
    peak = 0.25 * signal * torch.exp(-0.5 * ((bins - position) / width) ** 2) / (width * (2 * torch.pi) ** 0.5)
    return peak + torch.exp(height + slope * bins)


torch.manual_seed(3)
counts = torch.poisson(expected(torch.tensor([20.0, 5.0, 0.4, 1.5, -0.15], dtype=torch.float64)))


def negative_log_likelihood(w: Tensor) -> Tensor:
    rate = expected(w)
    return (rate - counts * rate.log()).sum()


def main() -> Figure:
    guess = torch.tensor([15.0, 5.0, 0.5, 1.4, -0.1], dtype=torch.float64)
    best = levelport.interval(negative_log_likelihood, guess, [0], rise=0.5, refine=True, names=["signal"])
    print(best)
    rises = [0.02, 0.1, 0.25, 0.5, 0.8, 1.2, 1.6, 2.0]
    curve = levelport.profile(negative_log_likelihood, best.x, [0], rises=rises, names=["signal"])
    region = levelport.contour(
        negative_log_likelihood, best.x, (1, 2), confidence=0.95, points=48, names=("position", "width")
    )
    print(f"region: {len(region.points)} points, all certified: {region.success}, {region.cost.gradient_equivalents:g}")
    picture = Figure(figsize=(10, 4), layout="constrained")
    left, right = picture.subplots(1, 2)
    curve.plot(ax=left)
    region.plot(ax=right)
    return picture
