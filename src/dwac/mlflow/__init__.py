"""Models in MLflow: the model folder as an artifact, which also loads as a pyfunc. Needs the extra `dwac[mlflow]`.

with mlflow.start_run():
    info = dwac.mlflow.log_model(clf, name="model")
clf = dwac.mlflow.load_model(info.model_uri)            # as `dwac.load`
mlflow.pyfunc.load_model(info.model_uri).predict(rows)  # a table: label, probabilities, prediction set, typicality
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dwac.errors import EPSILON, InputError, KindError
from dwac.estimator import DWACClassifier, DWACRegressor, load
from dwac.storage import fingerprint
from dwac.storage.folder import dwac_version

if TYPE_CHECKING:
    from mlflow.models import Model

__all__ = ["load_model", "log_model", "save_model"]

FLAVOR = "dwac"
_FOLDER = "model"
_EXAMPLE = 5  # rows of the example
_TEXT = "text"  # the column of texts in a table


def save_model(
    clf: DWACClassifier | DWACRegressor,
    path: str | PathLike[str],
    *,
    mlflow_model: Model | None = None,
    input_example: Any = None,
    signature: Any = None,
    include_examples: bool = True,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a model to a folder as MLflow keeps models: the model folder, its signature, an example, requirements.

    Args:
        input_example: rows like those of fit; by default the first training examples, if the model keeps any.
        signature: by default inferred from the example and its predictions; without either there is none.
        include_examples: as for `clf.save`; False also leaves out an example.
    """
    models = _mlflow("models")
    if not isinstance(clf, DWACClassifier | DWACRegressor):
        raise KindError(f"dwac.mlflow keeps DWACClassifier and DWACRegressor; got {type(clf).__name__}")
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    saved = clf.save(folder / _FOLDER, include_examples=include_examples)
    model = models.Model(metadata=dict(metadata or {})) if mlflow_model is None else mlflow_model
    if input_example is None and include_examples:
        input_example = _first_examples(clf)
    if input_example is not None:
        rows = _as_table(input_example)
        if signature is None:
            signature = models.infer_signature(rows, _Predictor(clf).predict(rows), params={"epsilon": EPSILON})
        models.utils._save_example(model, rows, str(folder))
    model.signature = signature
    model.add_flavor(FLAVOR, dwac_version=dwac_version(), data=_FOLDER, fingerprint=fingerprint(saved))
    _mlflow("pyfunc").add_to_model(
        model, loader_module="dwac.mlflow", data=_FOLDER, python_env="python_env.yaml", conda_env=None
    )
    (folder / "requirements.txt").write_text(f"dwac=={dwac_version()}\n", encoding="utf-8")
    env = _mlflow("utils.environment")._PythonEnv.current()
    env.dependencies = ["-r requirements.txt"]
    env.to_yaml(str(folder / "python_env.yaml"))
    model.save(str(folder / "MLmodel"))


def log_model(clf: DWACClassifier | DWACRegressor, name: str = "model", **options: Any) -> Any:
    """Write a model to the active run, and return MLflow's `ModelInfo`; options: of `save_model` or of MLflow.

    Those of MLflow are, for example, registered_model_name and params.
    """
    return _mlflow("models").Model.log(artifact_path=None, name=name, flavor=sys.modules[__name__], clf=clf, **options)


def load_model(model_uri: str, **options: Any) -> DWACClassifier | DWACRegressor:
    """The estimator of a model in MLflow: a path, runs:/…, models:/…; options: those of `dwac.load`."""
    download = _mlflow("artifacts").download_artifacts
    path = Path(download(artifact_uri=str(model_uri)))
    flavors = _mlflow("models").Model.load(str(path)).flavors
    if FLAVOR not in flavors:
        raise InputError(f"{model_uri} must hold a model of dwac; it has the flavors {', '.join(flavors)}")
    return load(path / flavors[FLAVOR]["data"], **options)


def _load_pyfunc(path: str) -> _Predictor:
    """What MLflow calls to load a model as a pyfunc."""
    return _Predictor(load(path))


class _Predictor:
    """A model with the `predict` of a pyfunc: rows to a table with one row per row."""

    def __init__(self, clf: DWACClassifier | DWACRegressor) -> None:
        self.clf = clf

    def predict(self, rows: Any, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """One row per example, as `dwac predict` writes it. params: epsilon, the error rate of sets and intervals."""
        epsilon = float((params or {}).get("epsilon", EPSILON))
        if self.clf.encoder_.kind in ("text", "huggingface") and isinstance(rows, pd.DataFrame):
            rows = rows.iloc[:, 0].tolist()
        frame = self.clf.sets_.predict(self.clf.observe(rows), private=self.clf.private_).frame(epsilon)
        notes = {name: frame[name].fillna("").astype(str) for name in ("unknown", "unreadable") if name in frame}
        joined = frame.assign(**notes).map(
            lambda value: "|".join(map(str, value)) if isinstance(value, list) else value
        )
        return pd.DataFrame(joined)


def _first_examples(clf: DWACClassifier | DWACRegressor) -> Any:
    """The first training examples of a table or of texts; None if the model keeps none."""
    records = None if clf.private_ else clf.examples_.frame()
    if records is None or clf.encoder_.kind not in ("tabular", "text", "huggingface") or not len(records.columns):
        return None
    return records.iloc[:_EXAMPLE].reset_index(drop=True)


def _as_table(rows: Any) -> Any:
    """Texts become a table of one column, which MLflow can describe."""
    return pd.DataFrame({_TEXT: rows}) if isinstance(rows, list) else rows


def _mlflow(part: str) -> Any:
    """A part of MLflow."""
    try:
        return import_module(f"mlflow.{part}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "dwac":
            raise
        raise InputError(f"dwac.mlflow needs {error.name}: pip install 'dwac[mlflow]'") from None
