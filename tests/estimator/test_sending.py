"""joblib, pickle and copies: a fitted model is sent as the files of its folder, and comes back as it was."""

import copy
import pickle
import pickletools
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_validate

import dwac
from dwac import DWACClassifier, DWACRegressor
from dwac.errors import StorageError
from tests.named import refuses

pytestmark = pytest.mark.usefixtures("few_steps")

RNG = np.random.default_rng(0)
N = 70
X = pd.DataFrame(RNG.normal(size=(N, 3)), columns=list("abc"), index=[f"p{i}" for i in range(N)])
Y = np.where(X["a"] + 0.3 * X["b"] > 0, "high", "low")
QUICK: dict[str, Any] = {"epochs": 1, "device": "cpu", "verbose": False, "cross_fit": False}


@pytest.fixture(scope="module")
def models(few_steps: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Models of each kind, none of which a test may change."""
    clf = DWACClassifier(**QUICK, random_state=0).fit(X, Y)
    private = dwac.load(clf.save(tmp_path_factory.mktemp("sending") / "model", include_examples=False))
    network = dwac.encoders.ModuleEncoder(torch.nn.Linear(3, 4))
    own = DWACClassifier(encoder=network, **QUICK, random_state=0).fit(torch.tensor(X.to_numpy()).float(), Y)
    generator = np.random.RandomState(0)
    numbers = DWACRegressor(**QUICK, random_state=generator).fit(X, X["a"])
    made = {"classes": clf, "condensed": clf.condense(8), "private": private, "own network": own, "numbers": numbers}
    return made | {
        "labels": DWACClassifier(**QUICK, random_state=0).fit(X, [["a"], ["b"], ["a", "b"], ["c"], ["b"]] * (N // 5))
    }


def through_joblib(model: Any, path: Path) -> Any:
    joblib.dump(model, path / "model.joblib")
    return joblib.load(path / "model.joblib")


@pytest.mark.parametrize("name", ["classes", "condensed", "private", "own network", "numbers", "labels"])
@pytest.mark.parametrize("way", ["joblib", "pickle", "deepcopy"])
def test_a_fitted_model_comes_back_as_it_was(models: dict[str, Any], name: str, way: str, tmp_path: Path) -> None:
    model = models[name]
    if way == "joblib":
        other = through_joblib(model, tmp_path)
    else:
        other = pickle.loads(pickle.dumps(model)) if way == "pickle" else copy.deepcopy(model)
    rows: Any = torch.tensor(X.to_numpy()).float()[:9] if name == "own network" else X[:9]
    assert repr(other).split(" at 0x")[0] == repr(model).split(" at 0x")[0]
    assert other.fingerprint_ == model.fingerprint_
    assert other.private_ == model.private_
    assert (other.embed(rows) == model.embed(rows)).all()
    answer = "predict_quantiles" if name == "numbers" else "predict_proba"
    assert np.array_equal(getattr(other, answer)(rows), getattr(model, answer)(rows))
    assert str(other.explain(rows, epsilon=0.2)[0]) == str(model.explain(rows, epsilon=0.2)[0])
    assert list(other.references_.ids) == list(model.references_.ids)
    assert (other.references_.members is None) == (model.references_.members is None)


def test_what_is_sent_is_the_folder_and_no_object_of_ours_but_settings(models: dict[str, Any]) -> None:
    sent = pickle.dumps(models["classes"])
    texts = [str(value) for _, value, _ in pickletools.genops(sent) if isinstance(value, str)]
    assert {text for text in texts if text.startswith("dwac")} == {
        "dwac.estimator.classifier", "dwac.estimator.loading", "dwac.estimator.settings",
    }  # fmt: skip
    assert "model.json" in texts


def test_a_copy_can_be_changed_alone(models: dict[str, Any]) -> None:
    model = models["classes"]
    other = pickle.loads(pickle.dumps(model)).forget([model.references_.ids[0]])
    assert len(other.references_) == len(model.references_) - 1


def test_unfitted_estimators_and_clones_are_their_settings() -> None:
    model = DWACClassifier(training=dwac.Training(learning_rate=1e-2), random_state=3)
    assert repr(pickle.loads(pickle.dumps(model))) == repr(clone(model)) == repr(model)


def test_voters_in_a_file_are_not_sent(models: dict[str, Any], tmp_path: Path) -> None:
    folder = models["classes"].save(tmp_path / "model")
    with refuses(StorageError, "mapped=True", "path of the model folder"):
        pickle.dumps(dwac.load(folder, mapped=True))


@pytest.mark.slow
def test_searches_in_several_processes() -> None:
    search = GridSearchCV(DWACClassifier(**QUICK, random_state=0), {"epochs": [1, 2]}, n_jobs=2, cv=2).fit(X, Y)
    alone = GridSearchCV(DWACClassifier(**QUICK, random_state=0), {"epochs": [1, 2]}, cv=2).fit(X, Y)
    assert np.array_equal(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
    folds = cross_validate(DWACClassifier(**QUICK, random_state=0), X, Y, n_jobs=2, cv=2, return_estimator=True)
    assert all(model.predict(X[:3]).shape == (3,) for model in folds["estimator"])
