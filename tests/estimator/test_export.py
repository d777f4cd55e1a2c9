"""Exported models give Python's answers. Files are written in slow tests; those of ONNX need the extra onnx."""

import json
from collections.abc import Callable
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import dwac
from dwac.errors import InputError, PrivacyError
from dwac.estimator import export as exporting
from dwac.estimator.export.checking import compare
from dwac.estimator.export.graph import ModelGraph

pytestmark = pytest.mark.usefixtures("few_steps")
N = 120


def table(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n).astype(float),
            "income": np.exp(rng.normal(10, 1, n)),
            "job": rng.choice(["nurse", "clerk", "pilot"], n),
            "member": rng.random(n) < 0.5,
            "level": pd.Categorical(rng.choice([1, 2, 3], n)),
            "day": pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 90_000, n), unit="h"),
            "constant": 1.0,
        }
    )
    frame.loc[::17, "age"] = np.nan
    frame.loc[::23, "job"] = None
    return frame


def odd_rows() -> pd.DataFrame:
    """Values that training did not have: categories, gaps, far numbers, and one row that cannot be read."""
    frame = table(12, seed=1)
    frame["job"] = frame["job"].astype(object)
    frame.loc[0, "job"] = "astronaut"
    frame.loc[1, "income"] = np.nan
    frame.loc[2, "income"] = 1e30
    frame.loc[3, "day"] = pd.NaT
    frame.loc[4, "day"] = pd.Timestamp("1969-02-28T23:00")
    frame.loc[5, "income"] = np.inf
    frame["level"] = frame["level"].astype(object)
    frame.loc[6, "level"] = 9
    return frame


AGE = table()["age"].fillna(40)
TARGETS: dict[str, Any] = {
    "classes": pd.Series(np.where(AGE > 50, "old", "young")),
    "ordered": pd.Series(pd.Categorical(np.digitize(AGE, [35, 60]), categories=[0, 1, 2], ordered=True)),
    "labels": pd.DataFrame({"old": AGE > 50, "young": AGE <= 60, "nurse": table()["job"] == "nurse"}).astype(int),
    "numbers": AGE * 2,
}


@cache
def fit(kind: str, **settings: Any) -> Any:
    estimator = dwac.DWACRegressor if kind == "numbers" else dwac.DWACClassifier
    return estimator(random_state=0, verbose=False, device="cpu", **settings).fit(table(), TARGETS[kind])


def graph_of(clf: Any, epsilon: float = 0.1) -> tuple[ModelGraph, Callable[[Any], Any]]:
    front = exporting.front_of(clf.fitted_, clf.unknown)
    graph = ModelGraph(clf.fitted_, clf.sets_, front.read, epsilon, 4).eval()

    @torch.no_grad()
    def answer(X: Any) -> list[Any]:
        return [part.numpy() for part in graph(*front.tensors(X))]

    return graph, answer


def difference(clf: Any, X: Any) -> float:
    graph, answer = graph_of(clf)
    return compare(graph.outputs, answer(X), clf, X, 0.1)[0]


@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
@pytest.mark.parametrize("kind", TARGETS)
def test_the_graph_of_a_table_answers_like_python(kind: str) -> None:
    clf = fit(kind)
    assert clf.cross_fitted_
    assert difference(clf, table()) < 1e-5


@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_unknown_missing_and_far_values_are_answered_like_python() -> None:
    clf = fit("classes")
    rows, (graph, answer) = odd_rows(), graph_of(clf)
    rows.loc[5, "income"] = 1.0
    assert difference(clf, rows) < 1e-5
    rows.loc[5, "income"] = np.inf
    front = exporting.front_of(clf.fitted_, clf.unknown)
    numbers, codes = front.tensors(rows.assign(income=rows["income"].replace(np.inf, 1.0)))
    numbers[5, 1] = np.inf
    values = dict(zip(graph.outputs, graph(numbers, codes), strict=True))
    assert values["readable"].tolist() == [row != 5 for row in range(len(rows))]
    assert values["probabilities"][5].isnan().all()
    assert not values["prediction_set"][5].any()
    assert len(answer(table())) == len(graph.outputs)


@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
@pytest.mark.parametrize(("kind", "output", "wrong"), [("numbers", "interval", np.nan), ("labels", "readable", False)])
def test_each_wrong_answer_is_noticed(kind: str, output: str, wrong: Any) -> None:
    graph, answer = graph_of(fit(kind))
    answers = [part.copy() for part in answer(table())]
    answers[graph.outputs.index(output)].reshape(len(table()), -1)[3, -1] = wrong
    assert not compare(graph.outputs, answers, fit(kind), table(), 0.1)[0] < 1e-5


@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_a_condensed_model_and_a_split_one_are_answered_like_python() -> None:
    assert difference(fit("classes").condense(20), table()) < 1e-5
    assert difference(fit("numbers", cross_fit=False, epochs=1), table()) < 1e-5


def test_what_cannot_be_exported_says_so(tmp_path: Path) -> None:
    clf = fit("classes")
    with pytest.raises(InputError, match=r"model\.txt"):
        clf.export(tmp_path / "model.txt")
    with pytest.raises(InputError, match="nowhere"):
        clf.export(tmp_path / "nowhere" / "model.onnx")
    clf.save(tmp_path / "private", include_examples=False)
    with pytest.raises(PrivacyError):
        dwac.load(tmp_path / "private").export(tmp_path / "model.pt2")
    with pytest.raises(InputError, match="unknown"):
        copy(clf).set_params(unknown="refuse").export(tmp_path / "model.pt2")
    assert [path.name for path in tmp_path.iterdir()] == ["private"]


def test_large_sets_of_voters_are_refused_with_condense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "LARGEST", 1000)
    with pytest.raises(InputError, match="condense"):
        fit("classes").export(tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


# Files


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_program_of_torch_export_takes_any_number_of_rows(tmp_path: Path) -> None:
    clf = fit("classes")
    exported = clf.export(tmp_path / "model.pt2")
    assert exported.difference < 1e-5
    assert "20 rows" in str(exported)
    extra = {"dwac.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=extra)
    facts = json.loads(extra["dwac.json"])
    front = exporting.front_of(clf.fitted_, clf.unknown)
    for n in (1, 7):
        with torch.no_grad():
            answers = dict(zip(facts["outputs"], program.module()(*front.tensors(table()[:n])), strict=True))
        assert [facts["names"][code] for code in answers["label"].tolist()] == clf.predict(table()[:n]).tolist()
        np.testing.assert_allclose(answers["probabilities"].numpy(), clf.predict_proba(table()[:n]), atol=1e-5)


@pytest.mark.slow
def test_a_file_with_other_answers_is_refused_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "compare", lambda *_: (0.5, "typicality"))
    monkeypatch.setattr(exporting, "run_program", lambda *_: [])
    monkeypatch.setattr(exporting, "write_program", lambda file, *_: file.write_text("") and ())
    with pytest.raises(InputError, match="typicality"):
        fit("classes").export(tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", TARGETS)
def test_onnx_runtime_answers_columns_like_python(kind: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx: make test-onnx")
    clf = fit(kind)
    exported = clf.export(tmp_path / "model.onnx", epsilon=0.1)
    assert exported.difference < 1e-5
    session, rows = runtime.InferenceSession(tmp_path / "model.onnx"), odd_rows().drop(index=5)
    front = exporting.front_of(clf.fitted_, clf.unknown)
    feed = front.feed(rows)
    assert {each.name for each in session.get_inputs()} == set(feed) == set(exported.inputs)
    answers = dict(zip(exported.outputs, session.run(None, feed), strict=True))
    if kind == "numbers":
        np.testing.assert_allclose(answers["prediction"][:, 0], clf.predict(rows), rtol=1e-5)
    else:
        np.testing.assert_allclose(answers["probabilities"], clf.predict_proba(rows), atol=1e-5)
    if kind in ("classes", "ordered"):
        assert answers["label"].tolist() == clf.predict(rows).tolist()
        shown = [[(each.id, each.share) for each in e.neighbors[:2]] for e in clf.explain(rows, k=2)]
        shares = [each for row in answers["voter_shares"] for each in row[:2]]
        np.testing.assert_allclose(shares, [share for row in shown for _, share in row], atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", ["texts", "images", "array"])
def test_onnx_runtime_answers_texts_images_and_arrays_like_python(what: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra onnx: make test-onnx")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, N)
    words = np.array(["cat", "dog", "fish", "bird", "stock", "bond", "price", "market"])
    data: dict[str, Any] = {
        "texts": [" ".join(rng.choice(words[:5] if code else words[3:], 6)) for code in y],
        "images": (rng.random((N, 12, 12)) * 80 + y[:, None, None] * 60).astype(np.uint8),
        "array": rng.normal(size=(N, 3)) + y[:, None],
    }
    clf = dwac.DWACClassifier(random_state=0, verbose=False, device="cpu", epochs=1 if what == "images" else None)
    exported = clf.fit(data[what], y).export(tmp_path / "model.onnx")
    assert exported.difference < 1e-5
    assert exported.inputs[0] == {"texts": "ngrams", "images": "images", "array": "X"}[what]
    assert ("transform" in exported.note) == (what == "texts")
