"""Data sets that come with levelport, standardised, with a column of ones."""

import numpy as np
import torch
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "embedded"
    requirements = ["pip::levelport"]
    parameters = {"data": ["ionosphere", "blood"]}
    test_parameters = {"data": ["blood"]}

    def get_data(self):
        from levelport_lab.problems import problem

        train = problem(f"logreg/{self.data}").train
        y = train.targets.to(torch.float64).numpy()
        return {"X": train.inputs.to(torch.float64).numpy(), "y": np.where(y > 0.0, 1.0, -1.0)}
