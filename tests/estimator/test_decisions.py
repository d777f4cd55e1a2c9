"""A model of any kind decides rows by its own votes, alone as in a batch, and says why it hands over the others."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_wine

import dwac
from dwac.errors import CalibrationWarning, InputError
from dwac.tasks.decisions import control_of, stake_of

pytestmark = pytest.mark.usefixtures("few_steps")


@pytest.fixture(scope="module")
def wine(few_steps: None) -> Any:
    del few_steps
    X, y = load_wine(return_X_y=True, as_frame=True)
    y = y.map({0: "a", 1: "b", 2: "c"})
    return dwac.DWACClassifier(random_state=0, device="cpu").fit(X[::2], y[::2]), X[1::2], y[1::2]


@pytest.fixture(scope="module")
def several(few_steps: None) -> Any:
    del few_steps
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    Y = (X[:, :3] + rng.normal(scale=0.3, size=(400, 3)) > 0).astype(int)
    X, Y = X[Y.any(axis=1)], Y[Y.any(axis=1)]  # rows without a label cause a warning
    return dwac.DWACClassifier(random_state=0, device="cpu").fit(X[:250], Y[:250]), X[250:], Y[250:]


@pytest.fixture(scope="module")
def numbers(few_steps: None) -> Any:
    del few_steps
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return dwac.DWACRegressor(random_state=0, device="cpu").fit(X[:300], y[:300]), X[300:], y[300:]


def test_rows_are_decided_if_their_votes_expect_few_errors(wine: Any) -> None:
    clf, X, _ = wine
    decisions = clf.decide(X, risk=0.2)
    frame, p = decisions.to_frame(), clf.predict_proba(X)
    assert frame.index.tolist() == X.index.tolist()
    assert np.array_equal(frame["expected_loss"], 1 - p.max(axis=1))
    assert np.array_equal(frame["decided"], frame["expected_loss"] <= decisions.rule.threshold)
    assert decisions.decided.any()
    labels = clf.predict(X)
    assert frame["decision"].tolist() == [
        label if here else None for label, here in zip(labels, decisions.decided, strict=True)
    ]
    assert frame["why"].isna().tolist() == decisions.decided.tolist()
    assert f"{decisions.decided.sum()} of {len(X)}" in str(decisions)


def test_a_row_is_decided_alone_as_in_a_batch(wine: Any) -> None:
    clf, X, _ = wine
    together = clf.decide(X, risk=0.2)
    alone = clf.decide(X.iloc[7:8], risk=0.2)
    assert (alone.decided[0], alone.expected[0]) == (together.decided[7], together.expected[7])


@pytest.mark.parametrize(("measure", "sure"), [("false positives", "b"), ("false negatives", "a")])
def test_errors_of_one_kind_are_those_of_rows_that_can_have_them(wine: Any, measure: str, sure: str) -> None:
    """A row that is not called b cannot be a false positive of b, one called a no false negative of a."""
    clf, X, _ = wine
    decisions = clf.decide(X, risk=0.1, measure=measure, label=sure)
    p, called = clf.predict_proba(X)[:, "abc".index(sure)], clf.predict(X) == sure
    at_stake = called if measure == "false positives" else ~called
    loss = 1 - p if measure == "false positives" else p
    assert np.allclose(decisions.expected, np.where(at_stake, loss, 0.0), atol=1e-12)


def test_losses_of_calibration_rows_are_counted_as_defined(wine: Any) -> None:
    clf, *_ = wine
    fitted = clf.fitted_
    votes, y = fitted.judge(fitted.references, fitted.calibration.h), fitted.calibration.y
    said = votes.argmax(axis=1)
    counts = {"error": said != y, "false positives": (said == 1) & (y != 1), "false negatives": (said != 1) & (y == 1)}
    for measure, lost in counts.items():
        rule = control_of(fitted, stake_of(clf.sets_, measure, None if measure == "error" else "b", None)).rule(0.99)
        assert (rule.decided, rule.losses) == (len(y), lost.sum())


def test_several_labels_are_decided_together_or_one_by_one(several: Any) -> None:
    clf, X, _ = several
    votes, _ = clf.votes(X)
    p = clf.predict_proba(X)
    shares = np.exp(votes - np.logaddexp.reduce(votes, axis=1, keepdims=True))
    predicted = {tuple(row) for row in (p >= 0.5).astype(float).tolist()}
    table = {tuple(row): code for code, row in enumerate(clf.target_.table.tolist())}
    all_ = clf.decide(X, risk=0.4)
    for row in range(len(X)):
        code = table.get(tuple((p[row] >= 0.5).astype(float).tolist()))
        assert np.isclose(all_.expected[row], 1.0 if code is None else 1 - shares[row, code], atol=1e-12)
    assert len(predicted) > 1
    one = clf.decide(X, risk=0.2, label=1)
    assert np.allclose(one.expected, np.minimum(p[:, 1], 1 - p[:, 1]), atol=1e-12)
    assert one.decided.sum() >= all_.decided.sum()


def test_numbers_are_decided_within_a_tolerance(numbers: Any) -> None:
    reg, X, _ = numbers
    decisions, value = reg.decide(X, 0.2, tolerance=90.0), reg.predict(X)
    votes = reg.predict_distribution(X)
    off = (
        1 - np.asarray(votes.cdf(value + 90)).ravel() + np.asarray(votes.cdf(np.nextafter(value - 90, -np.inf))).ravel()
    )
    assert np.allclose(decisions.expected, off, atol=1e-9)
    assert np.array_equal(decisions.answers, value)
    with pytest.raises(InputError, match=r"tolerance=… \(--tolerance\)"):
        reg.decide(X)


def test_rows_that_cannot_be_read_are_handed_over() -> None:
    texts, labels = ["good fine", "bad poor", "fine good day", "poor bad day"] * 30, ["yes", "no"] * 60
    clf = dwac.DWACClassifier(random_state=0, device="cpu", epochs=1).fit(texts, labels)
    decisions = clf.decide(["good", "", "bad"], risk=0.3)
    assert not decisions.decided[1]
    assert "empty" in str(decisions.why[1])
    assert np.isnan(decisions.expected[1])


def test_wrong_questions_are_refused(wine: Any) -> None:
    clf, X, _ = wine
    for options in ({"measure": "costs"}, {"measure": "false positives"}, {"label": "d"}, {"tolerance": 1.0}):
        with pytest.raises(InputError, match=str(next(iter(options))) if "measure" not in options else "measure|label"):
            clf.decide(X, **options)


def test_strangers_are_listed_the_strangest_first(wine: Any) -> None:
    clf, X, _ = wine
    rows = pd.concat([X.iloc[:2], X.iloc[:2] * 20, X.iloc[:1] * 3]).set_axis(list("abcde"))
    found = clf.strangers(rows, 0.2)
    assert {"c", "d"} <= set(found.index) <= {"c", "d", "e"}
    assert found["typicality"].is_monotonic_increasing
    with pytest.warns(CalibrationWarning, match="fewer rows"):
        assert len(clf.strangers(pd.concat([X] * 4), 0.01)) == 0


def test_a_private_model_rounds_what_it_expects(wine: Any) -> None:
    clf, X, _ = wine
    private = clf.decide(X, risk=0.2, private=True)
    assert np.array_equal(private.expected, np.round(private.expected, 2))
    assert np.array_equal(private.decided, private.expected <= private.rule.threshold)  # nothing else decides
