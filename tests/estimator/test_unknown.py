"""A category that training never had is said, counts as unlike training, and makes no answer surer than a gap does."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac import DWACClassifier, DWACRegressor, load, storage
from dwac.errors import InputError, UnreadableWarning
from dwac.estimator import saving
from dwac.estimator.evaluation import predict
from tests.estimator.helpers import fit_once
from tests.named import refuses, warns

pytestmark = pytest.mark.usefixtures("few_steps")

N = 120
SMALL: dict[str, Any] = {"random_state": 0, "device": "cpu", "verbose": False}
SPLIT: dict[str, Any] = {**SMALL, "epochs": 3, "cross_fit": False}


def people(n: int = N, seed: int = 0, *, gaps: bool, once: bool = False) -> pd.DataFrame:
    """Two columns of categories, one number. gaps: some jobs are missing. once: one job occurs once."""
    rng = np.random.default_rng(seed)
    job = rng.choice(["nurse", "clerk", "cook"], n).astype(object)
    if gaps:
        job[rng.random(n) < 0.2] = None
    if once:
        job[0] = "pilot"
    return pd.DataFrame({"age": rng.normal(40, 9, n), "job": job, "town": rng.choice(["Ulm", "Kiel"], n)})


def outcomes(X: pd.DataFrame, task: str) -> Any:
    rng = np.random.default_rng(1)
    pay = X["age"] / 9 + X["job"].map({"nurse": -2.0, "clerk": 2.0}).fillna(0) + rng.normal(size=len(X))
    if task == "numbers":
        return pay.to_numpy()
    if task == "labels":
        return np.stack([pay > 4, X["town"] == "Ulm"], axis=1).astype(int)
    return np.where(pay > 4.4, "high", "low")


def fitted(task: str, *, gaps: bool = True, once: bool = False, **options: Any) -> Any:
    X = people(gaps=gaps, once=once)
    return fit_once((DWACRegressor if task == "numbers" else DWACClassifier)(**options), X, outcomes(X, task))


@pytest.mark.filterwarnings("ignore:.*no label at all")
@pytest.mark.parametrize(
    ("task", "options", "gaps"),
    [
        pytest.param(task, options, gaps, marks=[pytest.mark.slow] if (options is SMALL) ^ gaps ^ odd else [])
        for task, odd in (("classes", False), ("labels", True), ("numbers", False))
        for options in (SMALL, SPLIT)
        for gaps in (True, False)
    ],
)
def test_no_set_is_smaller_and_no_interval_narrower_than_with_the_value_missing(
    task: str, options: dict[str, Any], gaps: bool
) -> None:
    model = fitted(task, gaps=gaps, **options)
    rows = people(40, seed=2, gaps=gaps)
    rng = np.random.default_rng(3)
    hit = {"job": rng.random(40) < 0.7, "town": rng.random(40) < 0.3}
    new, missing = rows.copy(), rows.copy()
    for name, where in hit.items():
        new.loc[where, name], missing.loc[where, name] = "never seen", None
    if task == "numbers":
        for epsilon in (0.1, 0.3):
            np.testing.assert_array_equal(
                model.predict_interval(new, epsilon), model.predict_interval(missing, epsilon)
            )
        typical = model.typicality(new), model.typicality(missing)
    else:
        for epsilon in (0.1, 0.3):
            assert (model.predict_set(new, epsilon) >= model.predict_set(missing, epsilon)).all()
        np.testing.assert_array_equal(model.predict_proba(new), model.predict_proba(missing))
        typical = model.conformal(new).typicality, model.conformal(missing).typicality
    assert (typical[0] <= typical[1]).all()
    if gaps:  # a gap is usual there, an unknown value is not
        assert typical[0][hit["job"]].mean() < typical[1][hit["job"]].mean()
    notes = predict(model, new).frame(0.3)["unknown"]
    assert notes.notna().tolist() == (hit["job"] | hit["town"]).tolist()
    both = np.flatnonzero(hit["job"] & hit["town"])[0]
    assert notes[both] == "job=never seen, town=never seen"
    assert predict(model, missing).frame(0.3)["unknown"].isna().all()


def test_a_value_of_a_single_training_row_is_not_unknown_unless_the_model_is_private(tmp_path: Path) -> None:
    clf = fitted("classes", once=True, **SMALL)
    rows = people(3, seed=2, gaps=False).assign(job=["pilot", "nurse", "diver"])
    told = [note if isinstance(note, str) else None for note in predict(clf, rows).frame(0.3)["unknown"]]
    assert told == [None, None, "job=diver"]
    again = load(clf.save(tmp_path / "open"), device="cpu")
    pd.testing.assert_frame_equal(predict(again, rows).frame(0.3), predict(clf, rows).frame(0.3))
    private = load(clf.save(tmp_path / "private", include_examples=False), device="cpu")
    for found in (predict(private, rows), predict(clf, rows, private=True)):
        assert found.frame(0.3)["unknown"].notna().tolist() == [True, False, True]
    clf.forget([0])  # the only pilot
    assert predict(clf, rows).frame(0.3)["unknown"].notna().tolist() == [True, False, True]


def test_the_policy_can_be_changed_after_fit_and_is_saved(tmp_path: Path) -> None:
    clf = fitted("classes", **SMALL)
    rows = people(2, seed=2, gaps=False).assign(job=["nurse", "diver"])
    missing = rows.assign(job=pd.Series(["nurse", None], dtype=object))
    strange = clf.conformal(rows).typicality
    clf.set_params(unknown="missing")
    np.testing.assert_array_equal(clf.conformal(rows).typicality, clf.conformal(missing).typicality)
    assert strange[1] < clf.conformal(rows).typicality[1]
    clf.set_params(unknown="refuse")
    again = load(clf.save(tmp_path / "m"), device="cpu")
    assert again.unknown == "refuse"
    for each in (clf, again):
        with warns(UnreadableWarning, "1 of 2", "row 1", "'job'", "'diver'"):
            assert each.predict(rows).tolist()[1] is None
        assert list(each.unreadable(rows)) == [1]
    with refuses(InputError, "job", "diver", "row 1"):
        clf.embed(rows)
    clf.set_params(unknown="ignore")
    with refuses(InputError, "refuse", "ignore"):
        clf.predict(rows)
    with refuses(InputError, "unknown", "ignore"):
        fitted("classes", unknown="ignore", **SMALL)


def test_an_old_folder_reads_unknown_values_as_missing(tmp_path: Path) -> None:
    clf = fitted("classes", **SMALL)
    config, tensors, examples, rows = saving.pack(clf, include_examples=True)
    assert config["settings"].pop("unknown") == "atypical"
    again = load(storage.write_model(tmp_path / "m", config, tensors, examples, rows), device="cpu")
    assert again.unknown == "atypical"
    assert predict(again, people(1, gaps=False).assign(job="diver")).frame(0.3)["unknown"].tolist() == ["job=diver"]


@pytest.mark.filterwarnings("ignore:.*no label at all")
@pytest.mark.parametrize("task", ["classes", "labels", "numbers"])
def test_explanations_name_the_unknown_value(task: str) -> None:
    model = fitted(task, **SMALL)
    rows = people(2, seed=2, gaps=False).assign(job=["nurse", "diver"])
    first, second = model.explain(rows, k=3)
    assert (first.unknown, second.unknown, second.to_dict()["unknown"]) == (None, "job=diver", "job=diver")
    assert sum("job=diver" in sentence for sentence in second.sentences()) == 1
    assert "job=diver" in second.to_text(width=200)
    assert "job=diver" in second.to_html()
    assert not any("nknown" in sentence for sentence in first.sentences())
