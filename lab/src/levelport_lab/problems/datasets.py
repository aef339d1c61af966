"""Data sets by name: the twenty of the paper, MNIST, and two of scikit-learn's.

    blood ... spambase                 binary, standardized (see :mod:`levelport_lab.problems.catalogue`)
    mnist, mnist-first-N               ten classes, pixels with the usual normalization, its own test set
    breast-cancer-wisconsin, digits    from scikit-learn: 569×30 standardized; 1797×64 scaled to [0, 1]

Nothing is read before :func:`load_data` asks for it.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelport.checks import unknown_name
from levelport_lab.problems import storage
from levelport_lab.problems.catalogue import UCI

SPLIT_SEED = 1234567
TEST_FRACTION = 0.2


class Targets(enum.Enum):
    """The kind of the targets."""

    BINARY = "two classes, -1 and +1"
    CLASSES = "classes 0, 1, ..."


@dataclass(frozen=True)
class DataInfo:
    """Facts about a data set that need no reading."""

    name: str
    samples: int
    features: int
    targets: Targets
    classes: int = 2
    positives: int | None = None
    own_test_samples: int = 0

    @property
    def training_samples(self) -> int:
        """Samples in the training split."""
        return self.samples - (self.own_test_samples or int(TEST_FRACTION * self.samples))

    @property
    def outputs(self) -> int:
        """Numbers that a model has to predict per sample."""
        return self.classes if self.targets is Targets.CLASSES else 1


@dataclass(frozen=True, eq=False)
class Split:
    """Training and test samples."""

    X_train: NDArray[Any]
    y_train: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]


@dataclass(frozen=True, eq=False)
class DataSet:
    """Features and targets, and a test set where one comes with the data."""

    info: DataInfo
    X: NDArray[Any]
    y: NDArray[Any]
    test: tuple[NDArray[Any], NDArray[Any]] | None = None

    def split(self, repeat: int = 0) -> Split:
        """The split of the published runs: 80/20, row numbers shuffled by ``default_rng(1234567 + repeat)``.

        Sets with a test set of their own keep it, whatever ``repeat``.
        """
        if self.test is not None:
            return Split(self.X, self.y, *self.test)
        order = np.arange(len(self.X))
        np.random.default_rng(SPLIT_SEED + repeat).shuffle(order)
        test, train = np.split(order, [int(TEST_FRACTION * len(order))])
        return Split(self.X[train], self.y[train], self.X[test], self.y[test])


_BUILT_IN = {
    "mnist": DataInfo("mnist", 70000, 784, Targets.CLASSES, classes=10, own_test_samples=10000),
    "breast-cancer-wisconsin": DataInfo("breast-cancer-wisconsin", 569, 30, Targets.BINARY, positives=357),
    "digits": DataInfo("digits", 1797, 64, Targets.CLASSES, classes=10),
}
_PART_OF_MNIST = re.compile(r"mnist-first-([1-9]\d*)")

DATA_NAMES = (*UCI, *_BUILT_IN)
"""All names but the parts of MNIST."""


def data_info(name: str) -> DataInfo:
    """Size and kind of targets of a data set, without reading it."""
    if name in UCI:
        entry = UCI[name]
        return DataInfo(name, entry.samples, entry.features, Targets.BINARY, positives=entry.positives)
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    part = _PART_OF_MNIST.fullmatch(name)
    if part and int(part[1]) <= 60000:  # the test set stays whole
        return replace(_BUILT_IN["mnist"], name=name, samples=int(part[1]) + 10000)
    raise unknown_name("data set", name, DATA_NAMES, see="'levelport data list' shows all names.")


@lru_cache(maxsize=8)
def load_data(name: str) -> DataSet:
    """Read, or make, a data set. The arrays are shared between callers and cannot be written to."""
    info = data_info(name)
    if name in UCI:
        X, y = storage.load(name)
        return _frozen(DataSet(info, X, y))
    if name == "mnist":
        images, labels, test_images, test_labels = storage.load(name)
        test = (_normalized_pixels(test_images), test_labels.astype(np.int64))
        return _frozen(DataSet(info, _normalized_pixels(images), labels.astype(np.int64), test))
    if name.startswith("mnist-first"):
        whole, first = load_data("mnist"), slice(info.training_samples)
        return _frozen(DataSet(info, whole.X[first], whole.y[first], whole.test))
    return _frozen(_scikit_learn(info))


def _frozen(data: DataSet) -> DataSet:
    for array in (data.X, data.y, *(data.test or ())):
        array.flags.writeable = False
    return data


def _normalized_pixels(images: NDArray[Any]) -> NDArray[np.float32]:
    """Pixels scaled to [0, 1], then by MNIST's mean .1307 and standard deviation .3081; float32 to spare memory."""
    pixels = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    return (pixels - np.float32(0.1307)) / np.float32(0.3081)


def _scikit_learn(info: DataInfo) -> DataSet:
    from sklearn.datasets import load_breast_cancer, load_digits

    if info.name == "digits":
        X, y = load_digits(return_X_y=True)
        return DataSet(info, X / 16.0, y.astype(np.int64))
    X, y = load_breast_cancer(return_X_y=True)
    return DataSet(info, (X - X.mean(axis=0)) / X.std(axis=0, ddof=1), np.where(y == 1, 1, -1).astype(np.int8))
