"""`silence` and `relabel`: votes are cleaned, and calibration stays; `forget` deletes a row from everything."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification

import dwac
from dwac import DWACClassifier, DWACRegressor
from dwac.encoders import TabularEncoder
from dwac.errors import IdError, InputError
from tests.estimator.helpers import fit_once
from tests.named import refuses, warns

pytestmark = pytest.mark.usefixtures("few_steps")

TARGETS = ["classes", "ordered", "labels", "numbers"]


def table(n: int = 80, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    return X.set_axis([f"row{i}" for i in range(n)])


def target(kind: str, X: pd.DataFrame) -> Any:
    number = X["a"].to_numpy()
    if kind == "numbers":
        return number + 0.1 * X["b"].to_numpy()
    if kind == "labels":
        return pd.DataFrame({"up": number > 0, "down": number <= 0, "side": X["b"].to_numpy() > 0}).astype(int)
    names = np.array(["low", "middle", "top"])[np.digitize(number, [-0.5, 0.5])]
    return pd.Categorical(names, ["low", "middle", "top"], ordered=True) if kind == "ordered" else names


def fitted(kind: str, **settings: Any) -> Any:
    X = table()
    made = DWACRegressor if kind == "numbers" else DWACClassifier
    return fit_once(made(random_state=0, device="cpu", **settings), X, target(kind, X))


@pytest.fixture(scope="module", params=TARGETS)
def crossed(request: pytest.FixtureRequest) -> Any:
    return fitted(request.param)


def promised(clf: Any, X: pd.DataFrame) -> list[Any]:
    """What is said of rows: sets or intervals, and typicality."""
    if isinstance(clf, DWACRegressor):
        return [clf.predict_interval(X, 0.2), clf.predict(X), clf.typicality(X)]
    return [clf.predict_set(X, 0.2), clf.predict(X), clf.conformal(X).typicality]


@pytest.mark.parametrize("condensed", [False, True])
def test_silenced_rows_vote_no_more_and_calibrate_on(crossed: Any, condensed: bool, tmp_path: Path) -> None:
    clf = crossed.condense(30) if condensed else copy.deepcopy(crossed)
    assert clf.cross_fitted_
    gone = ["row3", "row7", "row8"]
    before = clf.calibration_ids_.tolist(), clf.calibration_y_.tolist()
    clf.silence(gone)
    assert not {*gone} & {*clf.fitted_.voter_ids}
    assert not {*gone} & {*clf.references_.ids}
    assert (clf.calibration_ids_.tolist(), clf.calibration_y_.tolist()) == before
    X = table(30, seed=1)
    again = dwac.load(clf.save(tmp_path / "model"), device="cpu")
    assert again.calibration_ids_.tolist() == before[0]
    for one, other in zip(promised(clf, X), promised(again, X), strict=True):
        np.testing.assert_array_equal(one, other)
    again.forget(gone)  # whoever was silenced can still be deleted
    assert not {*gone} & {*again.calibration_ids_}


def test_silenced_row_is_judged_by_the_models_that_left_it_out() -> None:
    clf = fitted("classes")
    before = clf.fitted_.folds.judge(clf.references_, clf.calibration_h_, clf.calibration_ids_)
    own = clf.fitted_.folds.numbers(pd.Index(["row5"]))[0]
    clf.silence(["row5"])
    after = clf.fitted_.folds.judge(clf.references_, clf.calibration_h_, clf.calibration_ids_)
    same = clf.fitted_.folds.numbers(clf.calibration_ids_) == own  # its vote did not count for these, itself among them
    np.testing.assert_array_equal(after[same], before[same])
    assert not np.array_equal(after[~same], before[~same])
    back = table().loc[["row5"]]
    clf.add_references(back, target("classes", table())[[5]])  # which undoes it
    np.testing.assert_allclose(
        clf.fitted_.folds.judge(clf.references_, clf.calibration_h_, clf.calibration_ids_), before, atol=1e-4
    )


def test_calibration_rows_of_a_split_model_stay_whoever_is_silenced() -> None:
    clf = fitted("classes", cross_fit=False, epochs=2)
    before = clf.calibration_ids_.tolist()
    clf.silence(clf.references_.ids[:20].tolist())
    assert clf.calibration_ids_.tolist() == before
    with refuses(IdError, before[0]):
        clf.silence([before[0]])
    with refuses(IdError, "ids"):
        clf.silence("row1")


def test_relabelled_rows_calibrate_with_the_labels_they_came_with(crossed: Any) -> None:
    clf, X = copy.deepcopy(crossed), table()
    kind = clf.target_.kind
    y = target(kind, X)
    new = y.iloc[[1, 1]] if isinstance(y, pd.DataFrame) else y[[1, 1]]
    before = clf.calibration_y_.tolist(), clf.fitted_.calibration.exact.tolist()
    clf.relabel(["row3", "row7"], new)
    assert (clf.calibration_y_.tolist(), clf.fitted_.calibration.exact.tolist()) == before
    places = clf.references_.voters.positions(["row1", "row3", "row7"])
    votes = clf.references_.labels if clf.references_.targets is None else clf.references_.targets
    assert len(votes[places].unique(dim=0)) == 1
    promised(clf, X[:5])
    with refuses(IdError, "nobody"):
        clf.relabel(["nobody"], new[:1])


def test_rows_of_a_sharded_model_that_were_silenced_can_be_forgotten() -> None:
    X = table(160)
    clf: Any = DWACClassifier(shards=2, epochs=1, random_state=0, device="cpu").fit(X, target("classes", X))
    name = clf.references_.ids[0]
    clf.silence([name])
    with refuses(InputError, "exact", "add_references", "silence", "relabel", "recalibrate"):
        clf.forget([name], exact=True)
    with warns(UserWarning, 2):
        clf.forget([name])
    assert name not in clf.fitted_.shards.rows.ids


def test_a_category_loses_its_name_with_the_last_voter_that_has_it(tmp_path: Path) -> None:
    X = table()
    X["city"] = np.where(np.arange(len(X)) % 2, "Ulm", "Bonn")
    X.loc[["row4", "row5", "row6"], "city"] = "Oberammergau"
    clf: Any = DWACClassifier(random_state=0, device="cpu").fit(X, target("classes", X))
    few, others = clf.condense(30), X.drop(["row4", "row5", "row6"])
    before = clf.embed(others)
    encoder = clf.encoder_
    clf.forget(["row4", "row5"])
    assert "Oberammergau" in clf.encoder_.columns[2].categories  # row6 has it
    assert clf.encoder_ is encoder  # so nothing has to be embedded again
    clf.forget(["row6"])
    assert few.encoder_.columns[2].categories == ["Bonn", "Oberammergau", "Ulm"]  # another model, which was not asked
    path = clf.save(tmp_path / "model", include_examples=False)
    assert not any(b"Oberammergau" in file.read_bytes() for file in path.iterdir())
    again = dwac.load(path, device="cpu")
    np.testing.assert_array_equal(again.embed(others), before)  # all other rows are what they were
    strange = X.loc[["row4"]]
    np.testing.assert_array_equal(again.embed(strange), again.embed(strange.assign(city="never seen")))


@pytest.mark.parametrize("places", [[3], [-1], [0, 0], ["0"], 1])
def test_places_without_a_name_are_checked_at_load(places: Any) -> None:
    encoder = TabularEncoder().fit(pd.DataFrame({"a": ["x", "y"] * 5}))
    config = encoder.config()
    config["columns"][0] |= {"categories": ["x"], "nameless": places}
    with refuses(InputError, "column 'a'", "categories=['x']", f"nameless={places}"):
        TabularEncoder.from_config(config).check()


def noisy(seed: int) -> tuple[Any, Any]:
    X, y = make_classification(2200, 10, n_informative=5, n_redundant=0, n_classes=3, flip_y=0, random_state=seed)
    rng = np.random.default_rng(seed)
    return X, np.where(rng.random(len(y)) < 0.2, (y + rng.integers(1, 3, len(y))) % 3, y)


def coverage(clf: Any, X: Any, y: Any) -> float:
    return float(clf.predict_set(X, 0.1)[np.arange(len(y)), y].mean())


def cleaned(seed: int) -> list[float]:
    """Coverage at ε = 0.1: as fitted; after silencing, relabelling and forgetting the rows with suspicious labels."""
    X, y = noisy(seed)
    clf = DWACClassifier(random_state=seed, device="cpu").fit(X[:200], y[:200])
    issues = dwac.report.label_issues(clf)
    found = [coverage(clf, X[200:], y[200:])]
    for edit in ("silence", "relabel", "forget"):
        other = copy.deepcopy(clf)
        getattr(other, edit)(issues["id"].tolist(), *([issues["suggested"]] if edit == "relabel" else []))
        found.append(coverage(other, X[200:], y[200:]))
    return found


@pytest.mark.usefixtures("all_steps")
def test_silencing_suspicious_labels_keeps_coverage_and_forgetting_them_does_not() -> None:
    before, silenced, relabelled, forgotten = cleaned(0)
    # Over six other seeds, the first three are .92, .91 and .91, with deviations of .02: five above theory's .8.
    # Forgetting costs .08, with a deviation of .0125.
    assert min(before, silenced, relabelled) > 0.8
    assert forgotten < silenced - 0.015


@pytest.mark.usefixtures("all_steps")
@pytest.mark.slow
def test_coverage_after_cleaning_over_seeds() -> None:
    # As above, each mean of 12 is 5 deviations away.
    means = np.mean([cleaned(seed) for seed in range(12)], axis=0)
    assert means[:3].min() > 0.88
    least = 0.9 - 2 * np.sqrt(0.9 * 0.1 / 200)  # two standard errors of the coverage of one fit with 200 rows
    assert means[:3].min() > least > means[3]
