"""What people who know scikit-learn, pandas, polars and torch expect of an estimator."""

import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from dwac import DWACClassifier, DWACRegressor
from dwac.errors import InputError, ShapeError
from dwac.estimator import containers
from dwac.explain import Explanations
from tests.named import named, refuses

QUICK: dict[str, Any] = {"epochs": 3, "random_state": 0, "device": "cpu"}
N = 90


def table(n: int = N) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "town": rng.choice(["Ulm", "Bonn"], n)})
    X.index = pd.Index([f"r{i}" for i in range(n)])
    kind = np.select([X["a"] < -0.4, X["a"] < 0.4], ["low", "mid"], "high")
    return X, pd.Series(kind, index=X.index, name="kind")


X, Y = table()
NUMBERS = X[["a", "b"]].to_numpy(copy=True)
LABELS = pd.DataFrame({"low": Y == "low", "warm": (Y != "low") | (X["town"] == "Ulm")}).astype(int)


@pytest.fixture(scope="module")
def three() -> DWACClassifier:
    return DWACClassifier(**QUICK).fit(X, Y)


@pytest.fixture(scope="module")
def two() -> DWACClassifier:
    return DWACClassifier(**QUICK).fit(NUMBERS, Y == "low")


@pytest.fixture(scope="module")
def number() -> DWACRegressor:
    return DWACRegressor(**QUICK).fit(X, X["a"].rename("height"))


@pytest.fixture(scope="module")
def several() -> DWACClassifier:
    return DWACClassifier(**QUICK).fit(X, LABELS)


# Explanations


def test_explanations_know_the_index_of_the_rows(three, number) -> None:
    for model in (three, number):
        found = model.explain(X[:3], epsilon=0.2)
        assert isinstance(found, Explanations)
        assert found.ids == ["r0", "r1", "r2"]
        assert found.to_frame().index.tolist() == found.ids
        assert [line.split()[0] for line in repr(found).splitlines()[1:4]] == found.ids
    assert three.explain(pl.from_pandas(X[:2])).ids == [0, 1]


def test_results_say_in_a_line_what_can_be_asked_of_them(three, number) -> None:
    assert named(repr(three.conformal(X[:2])), "<ConformalPrediction", "2 examples", "3 labels", "p_values")
    assert named(repr(number.predict_distribution(X[:2])), "<PredictedDistribution", "2 rows", "mean")


# Prediction sets and intervals


def test_sets_as_labels_are_the_labels_of_the_table(three) -> None:
    sets = three.predict_set(X, 0.2)
    assert sets.dtype == bool
    held = three.predict_set(X, 0.2, as_labels=True)
    assert isinstance(held, list)
    assert held == [three.classes_[row].tolist() for row in sets]
    frame = three.predict_set(X, 0.2, as_frame=True)
    assert frame.index.tolist() == X.index.tolist()
    assert frame.columns.tolist() == three.classes_.tolist()
    assert (frame.to_numpy() == sets).all()
    series = three.predict_set(X, 0.2, as_frame=True, as_labels=True)
    assert series.index.tolist() == X.index.tolist()
    assert series.tolist() == held


def test_sets_of_several_labels_too(several) -> None:
    sets = several.predict_set(X, 0.2)
    held = several.predict_set(X, 0.2, as_labels=True)
    assert held == [[name for name, here in zip(["low", "warm"], row, strict=True) if here] for row in sets]
    assert several.predict_set(X[:2], 0.2, as_frame=True).columns.tolist() == ["low", "warm"]


def test_intervals_as_a_frame(number) -> None:
    ends = number.predict_interval(X[:5], 0.2)
    frame = number.predict_interval(X[:5], 0.2, as_frame=True)
    assert frame.columns.tolist() == ["low", "high"]
    assert frame.index.tolist() == X.index[:5].tolist()
    assert (frame.to_numpy() == ends).all()


# transform and decision_function


def test_transform_is_embed_and_follows_set_output(three) -> None:
    h = three.embed(X[:4])
    assert (three.transform(X[:4]) == h).all()
    names = three.get_feature_names_out().tolist()
    assert names == [f"dwacclassifier{i}" for i in range(h.shape[1])]
    asked = pickle.loads(pickle.dumps(three)).set_output(transform="pandas")
    frame = asked.transform(X[:4])
    assert frame.index.tolist() == X.index[:4].tolist()
    assert frame.columns.tolist() == names
    assert (frame.to_numpy() == h).all()
    polars = asked.set_output(transform="polars").transform(pl.from_pandas(X[:4]))
    assert isinstance(polars, pl.DataFrame)
    assert polars.columns == names
    assert (polars.to_numpy() == h).all()


def test_it_is_a_step_of_a_pipeline() -> None:
    steps = make_pipeline(DWACClassifier(**QUICK), LogisticRegression()).fit(X, Y)
    assert steps.score(X, Y) > 0.5
    assert make_pipeline(FunctionTransformer(), DWACRegressor(**QUICK)).fit(X, X["a"]).transform(X).shape[0] == N


def test_decision_function_agrees_with_predict(three, two, several) -> None:
    scores = three.decision_function(X)
    assert scores.shape == (N, 3)
    assert (three.classes_[scores.argmax(axis=1)] == three.predict(X)).all()
    assert np.allclose(np.exp(scores), three.predict_proba(X))
    single = two.decision_function(NUMBERS)
    assert single.shape == (N,)
    assert (two.classes_[(single > 0).astype(int)] == two.predict(NUMBERS)).all()
    p = two.predict_proba(NUMBERS)[:, 1]
    assert np.allclose(1 / (1 + np.exp(-single)), p)
    assert roc_auc_score(Y == "low", single) == pytest.approx(roc_auc_score(Y == "low", p))
    assert ((several.decision_function(X) > 0) == several.predict(X)).all()


def test_decision_function_is_finite_for_a_class_without_votes(two) -> None:
    clf = pickle.loads(pickle.dumps(two))
    clf.references_.remove([i for i, y in zip(clf.references_.ids, clf.references_.labels, strict=True) if y == 1])
    assert np.isfinite(clf.decision_function(NUMBERS[:3])).all()
    assert (clf.decision_function(NUMBERS[:3]) < 0).all()


# Sparse tables


@pytest.mark.parametrize("form", ["csr_array", "csc_matrix", "coo_array"])
def test_a_sparse_table_is_the_table(two, form: str) -> None:
    X_sparse = getattr(sparse, form)(NUMBERS)
    assert (two.predict_proba(X_sparse) == two.predict_proba(NUMBERS)).all()
    if form == "csr_array":
        other = clone(two).fit(X_sparse, Y == "low")
        assert (other.predict_proba(X_sparse) == two.predict_proba(NUMBERS)).all()


def test_sparse_columns_of_a_frame_are_numbers(two) -> None:
    dense = pd.DataFrame({"a": np.where(NUMBERS[:, 0] > 0, 1.0, 0.0), "b": NUMBERS[:, 1]}, index=X.index)
    thin = dense.astype({"a": pd.SparseDtype("float64", 0.0)})
    clf = DWACClassifier(**QUICK).fit(thin, Y)
    assert (clf.predict_proba(thin) == clf.predict_proba(dense)).all()
    assert (clf.predict_proba(dense) == DWACClassifier(**QUICK).fit(dense, Y).predict_proba(dense)).all()
    assert clf.explain(thin[:1]).ids == ["r0"]


def test_a_sparse_table_that_memory_does_not_hold_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "memory", lambda: 1e6)
    wide = sparse.random_array((1000, 1000), density=0.001, format="csr", rng=0)
    with refuses(InputError, "1,000 rows", "1,000 columns", "TruncatedSVD"):
        DWACClassifier(**QUICK).fit(wide, np.arange(1000) % 2)
    small = containers.native(wide[:10])
    assert small.shape == (10, 1000)


# polars


def test_polars_frames_are_tables(three) -> None:
    frame = pl.from_pandas(X)
    clf = DWACClassifier(**QUICK).fit(frame, pl.Series(Y.tolist()), ids=pl.Series(X.index.tolist()))
    assert (clf.predict_proba(frame) == three.predict_proba(X)).all()
    assert (clf.predict_proba(frame.lazy()) == three.predict_proba(X)).all()
    assert isinstance(clf.predict(frame), np.ndarray)
    assert clf.references_.ids.tolist() == three.references_.ids.tolist()
    assert clf.score(frame, pl.Series(Y.tolist())) == three.score(X, Y)
    assert clf.explain(frame[:1])[0].neighbors[0].id == three.explain(X[:1])[0].neighbors[0].id
    assert clf.feature_names_in_.tolist() == ["a", "b", "town"]
    with refuses(ValueError, "feature names", "other", "a"):
        clf.predict(frame.rename({"a": "other"}))


def test_polars_numbers_texts_and_several_labels_are_targets_and_rows() -> None:
    frame = pl.from_pandas(X)
    assert DWACRegressor(**QUICK).fit(frame, frame["a"]).predict(frame).shape == (N,)
    assert DWACClassifier(**QUICK).fit(frame, pl.from_pandas(LABELS)).classes_.tolist() == ["low", "warm"]
    texts = pl.Series(["goal and match", "vote and senate"] * 20)
    clf = DWACClassifier(**QUICK).fit(texts, pl.Series(["sport", "politics"] * 20))
    assert clf.encoder_.kind == "text"
    assert clf.predict(texts).shape == (40,)


def test_batches_may_be_polars_frames() -> None:
    frame = pl.from_pandas(X).with_columns(kind=pl.Series(Y.tolist()))
    clf = DWACClassifier(**QUICK).fit([frame[:50], frame[50:]], "kind")
    assert clf.feature_names_in_.tolist() == ["a", "b", "town"]
    assert clf.classes_.tolist() == ["high", "low", "mid"]


# torch


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x))


def loader(x: torch.Tensor, *, shuffle: bool = False) -> DataLoader[Any]:
    data = TensorDataset(x, torch.tensor((Y == "low").tolist(), dtype=torch.int64))
    return DataLoader(data, batch_size=32, shuffle=shuffle)


def test_a_data_loader_of_a_table_is_a_table(two) -> None:
    clf = DWACClassifier(**QUICK).fit(loader(torch.as_tensor(NUMBERS)))
    assert clf.encoder_.kind == "tabular"
    assert np.allclose(clf.predict_proba(NUMBERS), two.predict_proba(NUMBERS))
    assert np.allclose(clf.predict_proba(loader(torch.as_tensor(NUMBERS))), two.predict_proba(NUMBERS))


def test_a_data_loader_feeds_your_own_network_and_images() -> None:
    x = torch.as_tensor(NUMBERS, dtype=torch.float32)
    clf = DWACClassifier(Small(), **QUICK).fit(loader(x))
    assert clf.encoder_.kind == "module"
    assert clf.predict(x).shape == (N,)
    images = x[:, :1, None, None].expand(N, 1, 8, 8).contiguous()
    clf = DWACClassifier(epochs=1, random_state=0, device="cpu").fit(loader(images, shuffle=True))
    assert clf.encoder_.kind == "image"
    assert clf.classes_.tolist() == [0, 1]


def test_a_data_loader_that_shuffles_does_not_mix_up_names_or_answers(two) -> None:
    mixed = loader(torch.as_tensor(NUMBERS), shuffle=True)
    with refuses(InputError, "ids", "shuffle=False"):
        DWACClassifier(**QUICK).fit(mixed, ids=list(range(N)))
    with refuses(InputError, "shuffle=False"):
        two.predict(mixed)
    alone: DataLoader[Any] = DataLoader(torch.as_tensor(NUMBERS)[:, :, None].float(), batch_size=32, shuffle=True)  # type: ignore[arg-type]
    with refuses(InputError, "y", "shuffle=False"):
        DWACClassifier(Small(), **QUICK).fit(alone, Y)


def test_what_a_data_loader_must_give_is_said() -> None:
    x = torch.as_tensor(NUMBERS, dtype=torch.float32)
    with refuses(InputError, "DataLoader", "labels", "leave y"):
        DWACClassifier(Small(), **QUICK).fit(loader(x), Y)
    with refuses(InputError, "DataLoader", "(x, y)", "3 parts"):
        DWACClassifier(Small(), **QUICK).fit(DataLoader(TensorDataset(x, x, x)))
    with refuses(ShapeError, "batch"):
        DWACClassifier(Small(), **QUICK).fit(DataLoader(TensorDataset(x[:0], x[:0])))


class Once(IterableDataset[Any]):
    """Rows that can be read a single time."""

    def __init__(self) -> None:
        self.rows = iter(zip(torch.as_tensor(NUMBERS), (Y == "low").tolist(), strict=True))

    def __iter__(self) -> Iterator[Any]:
        return self.rows


def test_no_batch_of_rows_that_can_be_read_once_is_lost(two) -> None:
    clf = DWACClassifier(**QUICK).fit(DataLoader(Once(), batch_size=32))
    assert len(ids_in(clf)) == N
    assert np.allclose(clf.predict_proba(NUMBERS), two.predict_proba(NUMBERS))


def test_a_data_loader_of_single_rows_is_read_in_larger_batches() -> None:
    x, y = torch.arange(5_000.0).reshape(2_500, 2), torch.arange(2_500)
    found, tables = containers.batches_of(DataLoader(TensorDataset(x, y)))
    assert tables
    parts = list(found)
    assert [len(labels) for _, labels in parts] == [1_000, 1_000, 500]
    assert torch.equal(torch.cat([rows for rows, _ in parts]), x)
    assert torch.equal(torch.cat([labels for _, labels in parts]), y)


# partial_fit


def test_partial_fit_is_not_there_and_says_what_to_do(three) -> None:
    assert not hasattr(three, "partial_fit")
    with refuses(AttributeError, "fit(batches", "add_references(X, y"):
        three.partial_fit(X, Y)


# Metadata routing


def ids_in(clf: DWACClassifier) -> set[Any]:
    return {*clf.references_.ids, *clf.validation_ids_, *clf.calibration_ids_}


def test_ids_and_weights_are_routed_through_searches_and_pipelines() -> None:
    ids, weights = [f"person {i}" for i in range(N)], np.linspace(1, 2, N)
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        clf = (
            DWACClassifier(**QUICK).set_fit_request(ids=True, sample_weight=True).set_score_request(sample_weight=True)
        )
        steps = make_pipeline(FunctionTransformer(), clf)
        search = GridSearchCV(steps, {"dwacclassifier__training__penalty": [0.1]}, cv=2)
        search.fit(X.reset_index(drop=True), Y.tolist(), ids=ids, sample_weight=weights)
        assert ids_in(search.best_estimator_[-1]) == set(ids)
        found = cross_validate(
            clf, NUMBERS, Y, params={"ids": ids, "sample_weight": weights}, cv=2, return_estimator=True
        )
        folds = [ids_in(each) for each in found["estimator"]]
        assert folds[0] | folds[1] == set(ids)
        assert folds[0].isdisjoint(folds[1])
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match=r"\[ids\].*set_fit_request"):
            cross_validate(DWACClassifier(**QUICK), NUMBERS, Y, params={"ids": ids}, cv=2)
