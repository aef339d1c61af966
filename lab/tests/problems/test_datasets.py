"""Splits, scikit-learn's sets, and names."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from levelport.checks import UnknownNameError
from levelport_lab.problems import storage
from levelport_lab.problems.datasets import DATA_NAMES, Targets, data_info, load_data


def test_twenty_sets_and_three_more() -> None:
    assert len(DATA_NAMES) == 23
    assert len(set(DATA_NAMES)) == 23


@pytest.mark.parametrize("repeat", [0, 1, 7])
@pytest.mark.parametrize("name", ["blood", "titanic"])
def test_split_is_that_of_the_published_runs(name: str, repeat: int) -> None:
    data = load_data(name)
    order = np.arange(len(data.X))
    np.random.default_rng(1234567 + repeat).shuffle(order)
    held_out = int(np.floor(0.2 * len(order)))
    split = data.split(repeat)
    np.testing.assert_array_equal(split.X_test, data.X[order[:held_out]])
    np.testing.assert_array_equal(split.y_test, data.y[order[:held_out]])
    np.testing.assert_array_equal(split.X_train, data.X[order[held_out:]])
    np.testing.assert_array_equal(split.y_train, data.y[order[held_out:]])
    assert len(split.X_train) == data.info.training_samples


def test_the_shuffle_behind_the_splits_has_not_changed() -> None:
    """Written down once: NumPy's generator must go on to shuffle alike, or published splits are lost."""
    order = np.arange(748)
    np.random.default_rng(1234567).shuffle(order)
    assert order[:5].tolist() == [308, 322, 373, 191, 423]


def test_arrays_are_shared_and_read_only() -> None:
    data = load_data("blood")
    assert load_data("blood") is data
    with pytest.raises(ValueError, match="read-only"):
        data.X[0, 0] = 1.0


def test_scikit_learn_sets() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    data = load_data("breast-cancer-wisconsin")
    np.testing.assert_allclose(data.X, (X - X.mean(0)) / X.std(0, ddof=1), rtol=1e-12)
    np.testing.assert_array_equal(data.y, 2 * y - 1)
    assert data.info.positives == (y == 1).sum()
    X, y = load_digits(return_X_y=True)
    data = load_data("digits")
    np.testing.assert_array_equal(data.X * 16, X)
    np.testing.assert_array_equal(data.y, y)
    assert data.info.targets is Targets.CLASSES
    for info in (data_info("digits"), data_info("breast-cancer-wisconsin")):
        assert load_data(info.name).X.shape == (info.samples, info.features)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("blod", "blood"), ("Ionosfere", "ionosphere"), ("tictactoe", "tic-tac-toe")],
)
def test_misspelt_names_get_a_suggestion(name: str, suggestion: str) -> None:
    with pytest.raises(UnknownNameError, match=f"There is no data set '{name}'. Did you mean '{suggestion}"):
        data_info(name)


def test_part_of_mnist_is_its_first_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a made-up MNIST of six images, whose sizes are not those of the real one."""
    images = np.arange(24, dtype=np.uint8).reshape(6, 2, 2)
    labels = np.arange(6, dtype=np.uint8)
    monkeypatch.setattr(storage, "load", lambda name: (images, labels, images[:3], labels[:3]))
    load_data.cache_clear()
    try:
        whole, part = load_data("mnist"), load_data("mnist-first-4")
        np.testing.assert_array_equal(part.X, whole.X[:4])
        np.testing.assert_array_equal(part.y, [0, 1, 2, 3])
        assert part.test is whole.test
    finally:
        load_data.cache_clear()
    assert (data_info("mnist-first-4").training_samples, data_info("mnist-first-4").outputs) == (4, 10)
    for wrong in ("mnist-first-0", "mnist-first-60001", "mnist-first-x"):
        with pytest.raises(ValueError, match="There is no data set"):
            data_info(wrong)
