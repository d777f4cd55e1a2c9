"""The softmax twin: a DWAC's rows, encoder and training, with a softmax in place of the vote."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine

from dwac import DWACClassifier
from dwac.estimator.settings import parameters
from dwac.metrics import coverage
from reproduction.twin import Twin

X, Y = load_wine(return_X_y=True, as_frame=True)
QUICK: dict[str, Any] = {"epochs": 20, "batch_size": 16, "learning_rate": 0.01, "patience": 20, "random_state": 0}
QUICK |= {"device": "cpu", "verbose": False}


@pytest.fixture(scope="module")
def twin() -> Twin:
    return Twin(**QUICK, calibration_size=60).fit(X, np.array(["a", "b", "c"])[Y])


def test_it_learns_and_predicts_labels_with_probabilities(twin: Twin) -> None:
    p = twin.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert list(twin.predict(X)) == [twin.classes_[k] for k in p.argmax(axis=1)]
    assert twin.score(X, twin.classes_[Y]) > 0.9
    assert twin.embed(X).shape == (len(X), twin.model_.vector_size)


def test_it_trains_validates_and_calibrates_on_the_rows_of_a_dwac(twin: Twin) -> None:
    dwac = DWACClassifier(**parameters(QUICK), calibration_size=60).fit(X, Y)
    assert list(twin.validation_ids_) == list(dwac.validation_ids_)
    assert list(twin.calibration_ids_) == list(dwac.calibration_ids_)
    assert len(twin.history_) == len(dwac.history_) == QUICK["epochs"]


def test_its_prediction_sets_hold_what_they_promise_on_the_rows_that_calibrate(twin: Twin) -> None:
    held = twin.calibration_ids_.to_numpy()
    for epsilon in (0.05, 0.2):
        assert coverage(twin.calibration_y_, twin.conformal(X.iloc[held]).label_sets(epsilon)) >= 1 - epsilon


@pytest.mark.slow
def test_several_labels_and_numbers_have_an_output_each() -> None:
    has = np.stack([Y == 0, X["alcohol"] > 13], axis=1).astype(float)
    several = Twin(**QUICK).fit(X, has, task="labels")
    assert (several.predict(X) == has).mean() > 0.9
    numbers = X[["alcohol", "hue"]].to_numpy()
    standard = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    found = Twin(**QUICK).fit(X, numbers, task="numbers").logits(X)
    assert ((found - standard) ** 2).mean() < 0.5
