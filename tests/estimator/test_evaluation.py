"""Predictions and evaluations say what the classifier and the metrics say, and None where there is nothing to say."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac import DWACClassifier
from dwac._checks import percent
from dwac.errors import LabelError, ShapeError
from dwac.estimator import DWACRegressor
from dwac.estimator.evaluation import evaluate, predict
from dwac.tasks.predicted_classes import OrderedEvaluation, undercovered_classes
from tests.estimator.helpers import fit_once
from tests.named import named, refuses

X = np.arange(120.0)[:, None]
Y = np.repeat(["low", "mid", "high"], 40)


def test_one_pass_gives_what_the_classifier_gives() -> None:
    clf = fit_once(DWACClassifier(epochs=3, random_state=0, device="cpu"), X, Y)
    predictions = predict(clf, X)
    assert np.array_equal(predictions.labels, clf.predict(X))
    assert np.array_equal(predictions.probabilities, clf.predict_proba(X))
    np.testing.assert_allclose(np.exp(predictions.log_probabilities), predictions.probabilities, atol=1e-12)
    frame = predictions.frame(epsilon=0.3)
    assert frame["credibility"].tolist() == clf.conformal(X).credibility.tolist()
    typicality: Any = clf.conformal(X).typicality
    assert frame["typicality"].tolist() == typicality.tolist()
    assert [set(labels) for labels in frame["set"]] == [set(clf.classes_[row]) for row in clf.predict_set(X, 0.3)]


def test_without_calibration_there_is_no_trust_to_tell() -> None:
    clf = DWACClassifier(epochs=1, random_state=0, device="cpu", validation_size=0, calibration_size=0).fit(X, Y)
    predictions = predict(clf, X)
    assert list(predictions.frame().columns) == ["label", "probability", "unknown", "unreadable"]
    found = evaluate(predictions, Y)
    assert (found.coverage, found.mean_set_size, found.credibility, found.typicality) == (None, None, None, None)
    assert list(found.by_class.columns) == ["label", "n", "recall", "precision"]
    assert found.accuracy == clf.score(X, Y)


def test_a_class_without_rows_has_gaps_not_zeros() -> None:
    clf = fit_once(DWACClassifier(epochs=1, random_state=0, device="cpu"), X, Y)
    found = evaluate(predict(clf, X[:40]), Y[:40], epsilon=0.2).to_dict()
    by_label = {row["label"]: row for row in found["by_class"]}
    assert by_label["low"]["n"] == 40
    assert by_label["high"]["n"] == 0
    assert by_label["high"]["recall"] is None
    assert by_label["high"]["coverage"] is None


def test_unknown_labels_are_refused() -> None:
    clf = fit_once(DWACClassifier(epochs=1, random_state=0, device="cpu"), X, Y)
    with refuses(LabelError, "'high', 'low', 'mid'", "row 1", "'huge'"):
        evaluate(predict(clf, X[:2]), ["low", "huge"])
    with refuses(LabelError, "'high', 'low', 'mid'", "row 0", "'a'"):
        evaluate(predict(clf, X[:2]), ["a", "b"], strict=False)


def test_unknown_labels_count_as_wrong_and_not_covered_if_not_strict() -> None:
    clf = fit_once(DWACClassifier(epochs=3, random_state=0, device="cpu"), X, Y)
    all_known = evaluate(predict(clf, X), Y, epsilon=0.3)
    y = np.where(np.arange(120) % 4 == 0, "huge", Y)
    found = evaluate(predict(clf, X), y, epsilon=0.3, strict=False)
    assert (found.n, found.unseen, all_known.unseen) == (120, 30, 0)
    hit = clf.predict_set(X, 0.3)[np.arange(120), np.searchsorted(clf.classes_, Y)] & (y == Y)
    assert found.coverage == pytest.approx(hit.mean())
    assert found.accuracy == clf.score(X, y)
    assert np.isfinite(found.log_loss)


# Classes that fall short of what is promised over all


def noisy(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A common class that is easy and a rare one that is hard to tell."""
    rng = np.random.default_rng(seed)
    rare = rng.random(n) < 0.15
    x = rng.normal(size=(n, 2)) + 1.2 * rare[:, None]
    return pd.DataFrame(x, columns=["a", "b"]), np.where(rare, "rare", "common")


def test_a_class_that_falls_short_is_named_and_class_conditional_offered() -> None:
    # 3,300 calibration rows, 500 of them rare, and 6,000 new ones: coverage has a deviation of .007, that of the rare
    # class, where sets are class-conditional, one of .017.
    clf = DWACClassifier("tabular:paper", epochs=6, calibration_size=3300, random_state=0, device="cpu")
    clf.fit(*noisy(4800, 0))
    X, y = noisy(6000, 1)
    found = evaluate(predict(clf, X), y, epsilon=0.1)
    assert found.coverage is not None
    assert found.coverage > 0.85
    assert found.undercovered == ("rare",)
    rows: Any = found.by_class.set_index("label").loc["rare"]
    assert found.advice is not None
    assert named(found.advice, percent(rows.coverage), f"{int(rows.n):,} rows", "rare", "class_conditional=True")
    assert found.to_dict()["undercovered"] == ["rare"]
    assert found.to_dict()["advice"] == found.advice
    again = evaluate(predict(clf.set_params(class_conditional=True), X), y, epsilon=0.1)
    assert again.advice is None
    rows = again.by_class.set_index("label").loc["rare"]
    assert rows.coverage > 0.8


def test_chance_alone_names_no_class() -> None:
    for covered, short in ((95, False), (88, False), (60, True)):
        frame = pd.DataFrame({"label": ["x", "y"], "n": [100, 0], "coverage": [covered / 100, np.nan]})
        assert undercovered_classes(frame, 0.05, 200) == (("x",) if short else ())
        assert undercovered_classes(frame, 0.05, (100, 100)) == ()  # by class already
        assert undercovered_classes(frame, 0.05, None) == ()
        assert undercovered_classes(frame, 0.05, 10) == ()  # no label can be left out


# Numbers and several labels


@pytest.fixture(scope="module")
def of_squares() -> DWACRegressor:
    return DWACRegressor(epochs=3, random_state=0, device="cpu").fit(X, X[:, 0] ** 2)


def test_parts_of_predicted_numbers_are_the_numbers_of_parts(of_squares: DWACRegressor) -> None:
    whole, rows = predict(of_squares, X), np.array([7, 3, 90])
    part = whole.part(rows)
    pd.testing.assert_frame_equal(part.frame(0.2, [0.5]), whole.frame(0.2, [0.5]).iloc[rows].reset_index(drop=True))
    np.testing.assert_array_equal(whole.frame()["prediction"], of_squares.predict(X))
    assert len(part) == 3


def test_rows_that_cannot_be_read_are_only_counted(of_squares: DWACRegressor) -> None:
    y = X[:, 0] ** 2
    broken = X.astype(object).copy()
    broken[[0, 5]] = "x"
    found = evaluate(predict(of_squares, broken), y, 0.2)
    kept = np.delete(np.arange(120), [0, 5])
    assert (found.n, found.unreadable) == (118, 2)
    assert found.rmse == pytest.approx(evaluate(predict(of_squares, X[kept]), y[kept], 0.2).rmse)


def test_without_calibration_numbers_have_no_intervals() -> None:
    bare = DWACRegressor(epochs=1, random_state=0, device="cpu", validation_size=0, calibration_size=0).fit(X, X[:, 0])
    predictions = predict(bare, X)
    assert list(predictions.frame().columns) == ["prediction", "unknown", "unreadable"]
    found = evaluate(predictions, X[:, 0])
    assert (found.coverage, found.mean_width, found.typicality, found.advice) == (None, None, None, None)
    assert found.rmse is not None


def test_intervals_that_miss_more_than_chance_explains_are_told(of_squares: DWACRegressor) -> None:
    found = evaluate(predict(of_squares, X), X[:, 0] ** 2 + 1e5, 0.2)
    assert found.coverage == 0
    assert found.advice is not None
    assert "recalibrate" in found.advice


def test_the_truth_must_have_as_many_numbers(of_squares: DWACRegressor) -> None:
    with refuses(ShapeError, "y", 1, 2):
        evaluate(predict(of_squares, X), np.zeros((120, 2)))


@pytest.mark.filterwarnings("ignore:.*have no label at all:UserWarning")
def test_labels_that_nobody_has_or_gets_have_gaps_not_zeros() -> None:
    Y = np.stack([X[:, 0] > 60, X[:, 0] % 2 == 0], axis=1).astype(int)
    clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, Y)
    predictions = predict(clf, X[:40])
    assert not predictions.has[:, 0].any()
    found = evaluate(predictions, Y[:40], 0.2)
    assert np.isnan(found.by_label["f1"][0])
    assert found.macro_f1 == found.by_label["f1"][1]
    assert found.to_dict()["by_label"][0]["f1"] is None
    frame = predictions.part(slice(2)).frame(0.2)
    assert frame["labels"].map(len).tolist() == predictions.has[:2].sum(axis=1).tolist()
    with refuses(ShapeError, "y", 2):
        evaluate(predictions, np.zeros((40, 3)))


@pytest.mark.filterwarnings("ignore:.*have no label at all:UserWarning")
def test_private_sets_of_labels_only_grow() -> None:
    rng = np.random.default_rng(0)
    Y = (rng.random((120, 3)) < 0.4).astype(int)
    clf = DWACClassifier(epochs=2, random_state=0, device="cpu").fit(X, Y)
    exact, private = (predict(clf, X, private=flag) for flag in (False, True))
    assert np.array_equal(private.probabilities, np.round(exact.probabilities, 2))
    assert (private.sets(0.3) >= exact.sets(0.3)).all()


def test_ordered_labels_are_judged_by_how_far_off_they_are() -> None:
    y = pd.Categorical(Y, ["low", "mid", "high"], ordered=True)
    clf = DWACClassifier(epochs=3, random_state=0, device="cpu").fit(X, y)
    found = evaluate(predict(clf, X), Y, 0.2)
    assert isinstance(found, OrderedEvaluation)
    codes = {"low": 0, "mid": 1, "high": 2}
    apart = [abs(codes[a] - codes[b]) for a, b in zip(clf.predict(X), Y, strict=True)]
    assert found.mean_distance == pytest.approx(np.mean(apart))
    assert "mean distance" in [fact.name for fact in found.facts]
