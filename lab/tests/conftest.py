"""One thread per process unless the environment says otherwise."""

from __future__ import annotations

import os

import torch

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
