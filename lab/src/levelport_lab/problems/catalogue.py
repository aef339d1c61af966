"""What is known of the stored data sets before they are read: size, balance, origin, checksum; ``uci.csv`` has it.

The twenty binary sets are in the pre-processed form of Fernández-Delgado et al., "Do we need hundreds of
classifiers to solve real world classification problems?" (JMLR 15, 2014): categories mapped to numbers, missing
values set to 0 before scaling, constant columns dropped, every feature standardized over the whole file to mean 0
and standard deviation 1 (with n-1), printed with 6 significant digits. The smaller class code is -1, the larger +1.

``digest`` identifies the *values* (see :func:`content_digest`), whatever file they come in, so that the embedded
copy, a downloaded one and one from a directory are all held to the same standard.
"""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

ARCHIVE = (
    "https://raw.githubusercontent.com/CameronDiao/GLVQ-For-Classification-In-Randomized-NN-And-HDC/"
    "dec0fe3169b95a7dc8e224cf1aabcb6be914fc96/data"
)
"""A public copy of the benchmark's tree, at a fixed commit."""

MNIST_ARCHIVE = "https://ossci-datasets.s3.amazonaws.com/mnist"


def content_digest(X: NDArray[Any], y: NDArray[Any]) -> str:
    """SHA-256 of shape, features (little-endian float64, row by row) and labels (int8)."""
    digest = hashlib.sha256(f"{X.shape[0]}x{X.shape[1]};".encode())
    digest.update(np.ascontiguousarray(X, dtype="<f8").tobytes())
    digest.update(np.ascontiguousarray(y, dtype="i1").tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class UciSet:
    """One of the twenty binary sets: its size, where it comes from, and how to recognize its values."""

    name: str
    samples: int
    features: int
    negatives: int
    embedded: bool
    about: str
    source: str
    digest: str

    @classmethod
    def of_row(cls, row: dict[str, str]) -> UciSet:
        """Read a row of ``uci.csv``."""
        name, samples, features, negatives, embedded, *texts = row.values()
        return cls(name, int(samples), int(features), int(negatives), embedded == "yes", *texts)

    @property
    def positives(self) -> int:
        return self.samples - self.negatives

    @property
    def url(self) -> str:
        return f"{ARCHIVE}/{self.name}/{self.source}"


MNIST = {
    "train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""The four idx files, each with the SHA-256 of what is compressed in it."""


def _read_sets() -> dict[str, UciSet]:
    text = (resources.files("levelport_lab.problems") / "uci.csv").read_text(encoding="utf-8")
    return {row["name"]: UciSet.of_row(row) for row in csv.DictReader(text.splitlines())}


UCI: dict[str, UciSet] = _read_sets()
"""The twenty sets of the paper, by name, in its order."""
