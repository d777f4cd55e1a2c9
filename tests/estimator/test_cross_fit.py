"""DWACClassifier(cross_fit=…): when small tables are cross-fitted, and that everything else still works."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import betabinom

import dwac
from dwac import DWACClassifier
from dwac.errors import InputError


def table(n: int = 120, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(seed)
    y = rng.choice(["blue", "red"], n)
    X = pd.DataFrame({"x": rng.normal(size=n) + 1.5 * (y == "red"), "z": rng.normal(size=n)})
    X["colour"] = np.where(rng.random(n) < 0.7, y, "grey")
    X.loc[::9, "z"] = np.nan
    return X.set_axis([f"row{i}" for i in range(n)]), y


def fitted(**settings: Any) -> DWACClassifier:
    return DWACClassifier(random_state=0, device="cpu", **settings).fit(*table())


@pytest.fixture(scope="module")
def clf() -> DWACClassifier:
    return fitted()


def crossed(clf: DWACClassifier) -> bool:
    return clf.model_.ensemble_size == 15 and len(clf.validation_ids_) == 0


def test_small_table_is_cross_fitted_by_default_and_all_rows_vote_or_calibrate(clf: DWACClassifier) -> None:
    assert crossed(clf)
    ids = {*clf.references_.ids, *clf.calibration_ids_}
    assert len(clf.references_) == 96
    assert len(clf.calibration_ids_) == 24
    assert len(ids) == 120
    X, y = table(400, seed=1)
    assert clf.score(X, y) > 0.8


def test_the_same_seed_gives_the_same_fit(clf: DWACClassifier) -> None:
    X, _ = table(20, seed=2)
    np.testing.assert_array_equal(fitted().predict_proba(X), clf.predict_proba(X))


@pytest.mark.parametrize(
    "settings",
    [{"epochs": 1}, {"cross_fit": False, "epochs": 1}, {"head": "softmax"}, {"encoder": "tabular:paper"}],
    ids=str,
)
def test_auto_leaves_other_ways_of_training_alone(settings: dict[str, Any]) -> None:
    assert not crossed(fitted(**settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 3}, "no settings of other ways to train; got epochs=3"),
        ({"head": "softmax"}, "head='dwac'; got 'softmax'"),
        ({"calibration_size": 0}, "calibration_size=0"),
        ({"encoder": "tabular:paper"}, "encoder='auto' or 'tabular'"),
    ],
    ids=str,
)
def test_what_cannot_be_cross_fitted_is_an_error_that_says_why(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted(cross_fit=True, **settings)


def test_few_rows_texts_and_wrong_values_are_refused() -> None:
    X, y = table(30)
    with pytest.raises(InputError, match="at least 40 rows; got 30"):
        DWACClassifier(cross_fit=True).fit(X, y)
    with pytest.raises(InputError, match="text data"):
        DWACClassifier(cross_fit=True).fit(["a b", "b c"] * 30, [0, 1] * 30)
    with pytest.raises(InputError, match="cross_fit must be True or False or 'auto'; got 'yes'"):
        DWACClassifier(cross_fit="yes").fit(X, y)


def test_saved_model_gives_the_same_answers(clf: DWACClassifier, tmp_path: Path) -> None:
    loaded, (X, _) = dwac.load(clf.save(tmp_path / "model"), device="cpu"), table(30, seed=3)
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))
    np.testing.assert_array_equal(loaded.conformal(X).p_values, clf.conformal(X).p_values)
    assert loaded.cross_fit == "auto"
    assert crossed(loaded)
    private = dwac.load(clf.save(tmp_path / "private", include_examples=False), device="cpu")
    np.testing.assert_allclose(private.predict_proba(X), clf.predict_proba(X), rtol=1e-6)


def test_votes_can_be_explained_edited_and_condensed(tmp_path: Path) -> None:
    clf, (X, y) = fitted(), table(30, seed=4)
    X.index = pd.Index([f"new{i}" for i in range(30)])
    explanation = clf.explain(X, k=3)[0]
    assert explanation.label == clf.predict(X)[0]
    assert explanation.neighbors[0].id in set(clf.references_.ids)
    first = clf.references_.ids[0]
    clf.forget([first, clf.calibration_ids_[0]])
    assert first not in set(clf.references_.ids)
    assert len(clf.calibration_ids_) == 23
    clf.add_references(X, y)
    assert len(clf.references_) == 95 + 30
    fewest = clf.condense()  # chosen without validation rows
    assert len(fewest.references_) <= 125 // 4
    assert (fewest.predict(X) == clf.predict(X)).mean() > 0.9
    small = clf.condense(20)
    assert len(small.references_) == 20
    assert small.agreement_ is not None
    loaded = dwac.load(small.save(tmp_path / "small"), device="cpu")
    np.testing.assert_array_equal(loaded.predict(X), small.predict(X))
    held, labels = table(40, seed=5)
    held.index = pd.Index([f"held{i}" for i in range(40)])
    assert len(clf.recalibrate(held, labels).calibration_ids_) == 40


def test_weights_of_rows_and_classes_count() -> None:
    X, y = table()
    usual = fitted().predict_proba(X)
    heavy = fitted(class_weight={"red": 5.0}).predict_proba(X)
    assert heavy[:, 1].mean() > usual[:, 1].mean()
    weighted = DWACClassifier(random_state=0, device="cpu").fit(X, y, sample_weight=np.where(y == "red", 9.0, 0.1))
    assert not np.array_equal(weighted.predict_proba(X), usual)


def test_table_of_categories_alone_and_of_rare_labels_is_cross_fitted() -> None:
    X, y = table()
    labels = np.where(np.arange(120) < 3, ["a", "b", "c"] * 40, y)
    clf = DWACClassifier(random_state=0, device="cpu").fit(X[["colour"]], labels)
    assert crossed(clf)
    assert np.isfinite(clf.predict_proba(X[["colour"]])).all()


def test_prediction_sets_of_small_tables_keep_their_coverage() -> None:
    """Of new rows, as many are covered as the beta-binomial law of their calibration allows, summed over 6 tables."""
    covered, mean, variance = 0, 0.0, 0.0
    for seed in range(6):
        (X, y), (new, truth) = table(100, seed=10 + seed), table(500, seed=50 + seed)
        clf = DWACClassifier(random_state=seed, device="cpu").fit(X, y)
        assert crossed(clf)
        sets = clf.predict_set(new, epsilon=0.2)
        covered += int(sets[np.arange(500), np.searchsorted(clf.classes_, truth)].sum())
        n = len(clf.calibration_y_)
        left_out = int(np.floor(0.2 * (n + 1)))
        law = betabinom(500, n + 1 - left_out, left_out)  # exact where scores do not tie; ties only add coverage
        mean, variance = mean + law.mean(), variance + law.var()
    assert covered >= mean - 3.3 * np.sqrt(variance)
