"""`dwac.Training`: the settings of training in one object, as scikit-learn's tools and model folders meet it."""

import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dwac
from dwac import DWACClassifier, DWACRegressor, Training, storage
from dwac.errors import InputError
from dwac.estimator.settings import NAMES
from tests.estimator.helpers import noisy_rows
from tests.named import refuses

QUICK: dict[str, Any] = {"epochs": 1, "random_state": 0, "device": "cpu", "verbose": False}
OTHER = Training(
    embedding_size=3, ensemble_size=2, penalty=0.1, auxiliary_weight=0.5, batch_size=16, learning_rate=0.02,
    weight_decay=0.1, patience=1, rescale=False, raw_features=False, look_alikes=False, mixed_precision=False,
    compiled=False,
)  # fmt: skip


@pytest.mark.parametrize("kind", [DWACClassifier, DWACRegressor])
def test_parameters_are_few(kind: Any) -> None:
    names = set(kind().get_params())
    assert len(names) <= {DWACClassifier: 19, DWACRegressor: 16}[kind]  # within, of guarantees, came last
    assert not names & NAMES


def test_training_shows_what_differs_from_the_defaults() -> None:
    assert repr(Training()) == "Training()"
    assert repr(DWACClassifier(epochs=2, training=Training(patience=0, rescale=False))) == (
        "DWACClassifier(epochs=2, training=Training(patience=0, rescale=False))"
    )
    assert "learning_rate" in DWACClassifier(training=Training(learning_rate=0.5))._repr_html_()


def test_training_never_changes() -> None:
    with pytest.raises(AttributeError):
        OTHER.batch_size = 8  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(OTHER)) == clone(OTHER) == OTHER


def test_an_estimator_changes_its_own_training_alone() -> None:
    shared = Training(batch_size=16)
    one, other = DWACClassifier(training=shared), DWACClassifier(training=shared)
    one.set_params(training__learning_rate=0.5, epochs=3)
    assert (one.training, one.epochs) == (Training(batch_size=16, learning_rate=0.5), 3)
    assert other.training is shared
    assert shared == Training(batch_size=16)
    assert one.get_params()["training__learning_rate"] == 0.5
    assert clone(one).training == one.training
    assert DWACRegressor().set_params(training__patience=0).training == Training(patience=0)
    with pytest.raises(TypeError, match="no_setting"):
        one.set_params(training__no_setting=1)


def test_a_search_over_settings_of_training() -> None:
    X, y = noisy_rows(60, seed=0)
    clf = DWACClassifier("tabular:paper", **QUICK)
    search = GridSearchCV(clf, {"training__learning_rate": [1e-3, 1e-2]}, cv=2).fit(X, y)
    assert search.best_params_["training__learning_rate"] == search.best_estimator_.training.learning_rate
    assert clf.training is None
    steps = make_pipeline(StandardScaler(), clf).set_params(dwacclassifier__training__batch_size=8)
    assert steps[-1].training == Training(batch_size=8)


@pytest.mark.parametrize("kind", [DWACClassifier, DWACRegressor])
def test_a_setting_of_training_is_pointed_to_its_place(kind: Any) -> None:
    for change in (kind, kind().set_params):
        with refuses(InputError, "training=dwac.Training(batch_size=64, penalty=0.5)"):
            change(batch_size=64, epochs=3, penalty=0.5)
    with pytest.raises(TypeError, match="no_setting"):
        kind(no_setting=1)


def test_training_is_checked_by_fit() -> None:
    X, y = noisy_rows(60, seed=0)
    with refuses(InputError, "training", "dwac.Training(…)", "batch_size"):
        DWACClassifier(training={"batch_size": 2}).fit(X, y)  # type: ignore[arg-type]
    with refuses(InputError, "auxiliary_weight", "numbers", 0.5):
        DWACRegressor(training=Training(auxiliary_weight=0.5)).fit(X, X["a"])


@pytest.mark.parametrize("numbers", [False, True])
def test_a_folder_holds_settings_by_name(numbers: bool, tmp_path: Path) -> None:
    X, y = noisy_rows(60, seed=0)
    given = {**OTHER.get_params(), "auxiliary_weight": None if numbers else 0.5}
    kind: Any = DWACRegressor if numbers else DWACClassifier
    fitted = kind("tabular:paper", training=Training(**given), **QUICK).fit(X, X["a"] if numbers else y)
    stored = storage.read_model(fitted.save(tmp_path / "model")).config["settings"]
    assert "training" not in stored
    assert ("auxiliary_weight" in stored) is not numbers
    assert {name: stored[name] for name in NAMES & stored.keys()} == {
        name: value for name, value in given.items() if name in stored
    }
    again = dwac.load(tmp_path / "model", device="cpu")
    assert again.training == Training(**given)
    pd.testing.assert_frame_equal(pd.DataFrame(again.embed(X)), pd.DataFrame(fitted.embed(X)))
