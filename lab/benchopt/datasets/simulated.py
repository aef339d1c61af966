"""Gaussian features of very different scales, labels from a noisy linear rule."""

import numpy as np
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "simulated"
    parameters = {"samples, features": [(500, 50)], "seed": [0]}
    test_parameters = {"samples, features": [(40, 5)]}

    def get_data(self):
        generator = np.random.default_rng(self.seed)
        X = generator.standard_normal((self.samples, self.features)) * np.logspace(0, -2, self.features)
        y = np.sign(X @ np.ones(self.features) + generator.standard_normal(self.samples))
        return {"X": X, "y": y}
