"""MLflow keeps a model as it was, and serves it as a pyfunc; with a store in files. `make test-mlflow` runs these."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dwac
from dwac.errors import InputError
from tests.named import refuses

os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
mlflow = pytest.importorskip("mlflow", reason="make test-mlflow installs MLflow")
pytestmark = [pytest.mark.usefixtures("few_steps"), pytest.mark.filterwarnings("default")]

RNG = np.random.default_rng(0)
X = pd.DataFrame({"size": RNG.normal(size=80), "job": RNG.choice(["nurse", "clerk"], 80)})
Y = np.where(X["size"] > 0, "high", "low")
TEXTS = [f"a {'good' if i % 2 else 'bad'} day {i}" for i in range(80)]
QUICK: dict[str, Any] = {"random_state": 0, "device": "cpu", "verbose": False}


@pytest.fixture(scope="module")
def models(few_steps: None) -> dict[str, Any]:
    return {
        "classes": dwac.DWACClassifier(**QUICK).fit(X, Y),
        "numbers": dwac.DWACRegressor(**QUICK).fit(X, X["size"]),
        "texts": dwac.DWACClassifier(**QUICK).fit(TEXTS, Y),
    }


@pytest.fixture(autouse=True)
def _store(tmp_path: Path) -> None:
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    mlflow.set_experiment("models")


@pytest.mark.parametrize("name", ["classes", "numbers", "texts"])
def test_a_logged_model_comes_back_and_is_a_pyfunc(models: dict[str, Any], name: str) -> None:
    clf, rows = models[name], TEXTS if name == "texts" else X
    with mlflow.start_run():
        info = dwac.mlflow.log_model(clf, name="model")
    other = dwac.mlflow.load_model(info.model_uri, device="cpu")
    assert np.array_equal(other.predict(rows), clf.predict(rows))
    assert other.fingerprint_ == info.flavors["dwac"]["fingerprint"]
    served = mlflow.pyfunc.load_model(info.model_uri)
    assert info.signature.inputs.input_names() == (["text"] if name == "texts" else ["size", "job"])
    assert "epsilon" in {each.name for each in info.signature.params}
    given = pd.DataFrame({"text": rows[:7]}) if name == "texts" else rows[:7]
    answers = served.predict(given, params={"epsilon": 0.2})
    assert list(answers.columns) == info.signature.outputs.input_names()
    assert len(answers) == 7
    assert len(served.predict(served.input_example)) == 5
    if name != "numbers":
        assert answers["label"].tolist() == clf.predict(rows[:7]).tolist()
        sets = clf.predict_set(rows[:7], epsilon=0.2)
        assert [len(labels.split("|")) if labels else 0 for labels in answers["set"]] == sets.sum(axis=1).tolist()


def test_a_private_model_has_no_example(models: dict[str, Any], tmp_path: Path) -> None:
    dwac.mlflow.save_model(models["classes"], tmp_path / "private", include_examples=False)
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "private"))
    assert loaded.input_example is None
    assert loaded.metadata.signature is None
    assert not any(b"nurse" in path.read_bytes() for path in tmp_path.rglob("*example*") if path.is_file())
    assert dwac.mlflow.load_model(str(tmp_path / "private")).private_
    assert len(loaded.predict(X[:2])) == 2


def test_models_of_others_are_refused(tmp_path: Path) -> None:
    base: Any = mlflow.pyfunc.PythonModel

    class Other(base):  # type: ignore[misc]
        def predict(self, model_input: list[str]) -> list[str]:
            return model_input

    mlflow.pyfunc.save_model(str(tmp_path / "other"), python_model=Other(), pip_requirements=[])
    with refuses(InputError, "dwac", "python_function"):
        dwac.mlflow.load_model(str(tmp_path / "other"))
