"""`reweigh`: the least change of voters' weights that brings the rates of groups together, and what follows from it."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import dwac
from dwac import DWACClassifier
from dwac.errors import IdError, InputError
from dwac.estimator.reweighing import _RIDGE, MEASURES, GroupRates, Metric, Shares, least_change
from tests.estimator.helpers import SPLIT, fit_once
from tests.named import refuses

pytestmark = pytest.mark.usefixtures("few_steps")


def people(n: int, seed: int, name: str = "row") -> tuple[pd.DataFrame, Any, Any]:
    """Men have more of what counts, and so more often the label; the model does not see the column of sex."""
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(n) < 0.5, "f", "m")
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"], index=[f"{name}{i}" for i in range(n)])
    X["a"] += 0.8 * (sex == "m")
    X["b"] += 0.8 * (sex == "m")
    y = np.where(X["a"] + rng.normal(scale=0.7, size=n) > 0.5, "yes", "no")
    return X, y, sex


def model(**settings: Any) -> Any:
    X, y, _ = people(300, 0)
    usual: dict[str, Any] = {"random_state": 0, "device": "cpu"}
    return fit_once(DWACClassifier(**usual | settings), X, y)


def apart(measure: str, decided: Any, truth: Any, groups: Any) -> float:
    """The difference as fairlearn defines it: the largest rate minus the smallest, the worse of both for odds."""
    among = {"all": np.ones(len(truth), bool), "with": truth, "without": ~truth}
    rates = [[decided[among[w] & (groups == g)].mean() for g in np.unique(groups)] for w in MEASURES[measure]]
    return float(max(max(each) - min(each) for each in rates))


def test_the_step_is_the_least_change_that_scipy_finds() -> None:
    rng = np.random.default_rng(0)
    shares = Shares(rng.dirichlet(np.ones(7), 20).astype(np.float32), np.arange(7) % 2, 2, 1)
    metric, slopes, q = Metric.of(shares), rng.normal(size=(3, 7)) / 5, shares.p.mean(axis=0)
    signed = shares.p * np.where(shares.codes == 1, 1.0, -1.0)

    def cost(v: Any) -> float:
        return float(np.square(signed @ (v - 1)).mean() + _RIDGE * q @ np.square(v - 1))

    rates, now = np.array([0.5, 0.45, 0.4]), rng.uniform(0.5, 1.5, 7)
    pairs = np.array([(a, b) for a in range(3) for b in range(3) if a != b])
    ours = least_change(metric, slopes, rates, now, pairs, 0.05)

    def room(v: Any) -> Any:
        moved = rates + slopes @ (v - now)
        return 0.05 - (moved[pairs[:, 0]] - moved[pairs[:, 1]])

    theirs = minimize(
        cost,
        np.ones(7),
        method="SLSQP",
        constraints={"type": "ineq", "fun": room},
        options={"ftol": 1e-14, "maxiter": 500},
    ).x
    assert room(ours).min() > -1e-5
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("measure", MEASURES)
def test_differences_are_those_of_a_plain_loop(measure: str) -> None:
    rng = np.random.default_rng(1)
    groups, truth, decided = rng.integers(0, 3, 90), rng.random(90) < 0.4, rng.random(90) < 0.5
    found = GroupRates.of(groups, truth, MEASURES[measure]).difference(decided)
    assert found == pytest.approx(apart(measure, decided, truth, groups), abs=1e-12)


@pytest.mark.parametrize(
    "measure",
    ["equalized odds", *(pytest.param(name, marks=pytest.mark.slow) for name in list(MEASURES)[:2])],
)
def test_the_difference_on_the_rows_keeps_the_bound_without_the_group(measure: str) -> None:
    clf, (X, y, sex) = model(**SPLIT), people(600, 1, "new")
    before = clf.predict_proba(X)
    result = clf.reweigh(X, y, by=sex, measure=measure, at_most=0.05)
    truth = y == "yes"
    after = apart(measure, result.model.predict(X) == "yes", truth, sex)
    assert apart(measure, clf.predict(X) == "yes", truth, sex) > 0.1 > 0.052 > after
    assert after == pytest.approx(result.chosen, abs=0.01)
    assert result.reached
    np.testing.assert_array_equal(clf.predict_proba(X), before)  # the old model stays as it was
    change = result.difference
    assert change.loc["after", "low"] <= change.loc["after", "difference"] <= change.loc["after", "high"]
    assert result.price.loc["before", "accuracy"] == pytest.approx(clf.score(X, y), abs=0.01)
    weights = pd.Series(result.model.references_.weights, index=result.model.references_.ids)
    np.testing.assert_allclose(weights[result.changed.index], result.changed["factor"])
    assert measure in str(result)


def test_a_reweighed_model_explains_calibrates_and_is_saved(tmp_path: Path) -> None:
    clf, (X, y, sex) = model(**SPLIT), people(400, 1, "new")
    new = clf.reweigh(X, y, by=sex, at_most=0.05).model
    explanation = new.explain(X.iloc[:1], k=len(new.references_))[0]
    assert sum(each.share for each in explanation.neighbors) == pytest.approx(1)
    own = sum(each.share for each in explanation.neighbors if each.label == explanation.label)
    assert own == pytest.approx(new.predict_proba(X.iloc[:1]).max())
    np.testing.assert_array_equal(new.conformal(X).typicality, clf.conformal(X).typicality)  # the data is the same
    assert new.predict_set(X).shape == (len(X), 2)
    assert new.agreement_ is None  # nobody stands for others
    loaded = dwac.load(new.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), new.predict_proba(X))
    np.testing.assert_array_equal(loaded.conformal(X).p_values, new.conformal(X).p_values)
    gone = loaded.references_.ids[0]
    assert len(loaded.forget([gone]).references_) == len(new.references_) - 1  # all are there: edits go on
    few = new.condense(100)
    assert (few.predict(X) == new.predict(X)).mean() > 0.9


def test_rows_of_a_cross_fitted_model_are_judged_by_networks_that_left_them_out(tmp_path: Path) -> None:
    clf, (X, y, sex) = model(), people(300, 0)
    held = clf.out_of_fold_.argmax(axis=1) == 1
    assert clf.cross_fitted_
    result = clf.reweigh(X, y, by=sex, at_most=0.04)
    measured = result.before.table.query("by == 'group'").set_index("group")["value"]
    assert measured["m"] == pytest.approx(held[sex == "m"].mean())
    after = result.model.out_of_fold_.argmax(axis=1) == 1
    assert apart("demographic parity", after, y == "yes", sex) == pytest.approx(result.chosen, abs=0.01)
    loaded = dwac.load(result.model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.out_of_fold_, result.model.out_of_fold_)


def test_rows_that_vote_under_other_ids_are_refused() -> None:
    clf, (X, y, sex) = model(), people(300, 0)
    with refuses(IdError, "300 of 300", "'other0'", "index of their ids"):
        clf.reweigh(X.set_axis([f"other{i}" for i in range(300)]), y, by=sex)


@pytest.mark.parametrize("settings", [pytest.param(SPLIT, marks=pytest.mark.slow), {"random_state": 0}])
def test_an_embedding_that_tells_groups_apart_lets_voters_tell_them_apart(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    (X, y, _), (new, _, _) = people(300, 0), people(300, 1, "new")
    rng = np.random.default_rng(2)
    X, new = (part.assign(c=rng.normal(size=300)) for part in (X, new))  # says nothing of the label
    group, truth = np.where(X["c"] > 0, "left", "right"), new["c"] > 0

    def error(clf: Any) -> float:
        """How far the share of a group in the votes on new rows is from whether they belong to it."""
        votes = clf.references_.voters.every_vote(clf.embed(new))
        own = pd.Series(group, X.index)[clf.references_.ids] == "left"
        shares = np.exp(votes - np.logaddexp.reduce(votes, axis=1, keepdims=True)) @ own.to_numpy()
        return float(np.abs(shares - truth).mean())

    plain, told = (fit_once(DWACClassifier(**settings), X, y, apart=apart) for apart in (None, group))
    assert error(told) < 0.3 < error(plain)
    assert told.references_.n_classes == 2
    assert told.predict_proba(new).shape == (300, 2)
    loaded = dwac.load(told.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(new), told.predict_proba(new))
    np.testing.assert_array_equal(loaded.conformal(new).p_values, told.conformal(new).p_values)


def test_groups_are_told_apart_for_classes_in_memory_alone() -> None:
    X, y, sex = people(60, 0)
    quick: dict[str, Any] = {"random_state": 0, "device": "cpu"}
    with refuses(InputError, "apart", "one label per row"):
        DWACClassifier(**quick).fit(X, pd.DataFrame({"a": y == "yes", "b": y == "no"}).astype(int), apart=sex)
    with refuses(InputError, "apart", "one label per row"):
        DWACClassifier(**quick, ordered=True).fit(X, (y == "yes").astype(int), apart=sex)
    with refuses(InputError, "apart", "shards"):
        DWACClassifier(**quick, shards=2).fit(X, y, apart=sex)
    with refuses(InputError, "apart", "in memory"):
        DWACClassifier(**quick).fit(iter([X.assign(y=y)]), "y", apart=sex)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [pytest.param(SPLIT, marks=pytest.mark.slow), {}])
def test_examples_follow_the_representative_that_is_reweighed(settings: dict[str, Any], tmp_path: Path) -> None:
    few, (X, y, sex) = model(**settings).condense(60), people(400, 1, "new")
    result = few.reweigh(X, y, by=sex, at_most=0.06)
    ratio = pd.Series(result.model.references_.weights / few.references_.weights, index=few.references_.ids)
    np.testing.assert_allclose(ratio[result.changed.index], result.changed["factor"])
    for how in (True, False):
        loaded = dwac.load(result.model.save(tmp_path / f"{how}", include_members=how))
        np.testing.assert_array_equal(loaded.predict_proba(X), result.model.predict_proba(X))
        np.testing.assert_array_equal(loaded.conformal(X).p_values, result.model.conformal(X).p_values)


def test_a_bound_out_of_reach_says_what_was_reached() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": np.repeat([0.0, 50.0], 40) + rng.normal(size=80)})
    X.index = [f"row{i}" for i in range(80)]
    y, sex = np.repeat(["no", "yes"], 40), np.repeat(["f", "m"], 40)
    clf = fit_once(DWACClassifier(**SPLIT), X, y)
    result = clf.reweigh(X.set_axis([f"new{i}" for i in range(80)]), y, by=sex, at_most=0.02)
    assert not result.reached
    assert result.chosen > 0.5
    assert "reach" in str(result)


def test_what_cannot_be_reweighed_says_why() -> None:
    clf, (X, y, sex) = model(**SPLIT), people(300, 0)
    with refuses(IdError, repr(clf.references_.ids[0]), "not trained"):
        clf.reweigh(X, y, by=sex)
    X = X.set_axis([f"new{i}" for i in range(300)])
    with refuses(InputError, "measure", "'parity'"):
        clf.reweigh(X, y, by=sex, measure="parity")
    with refuses(InputError, "label", "'maybe'"):
        clf.reweigh(X, y, by=sex, label="maybe")
    with refuses(InputError, "two groups"):
        clf.reweigh(X, y, by=np.zeros(300))


@pytest.mark.slow
def test_sets_of_a_reweighed_model_cover_as_promised() -> None:
    """Calibration rows take no part in the choice of weights, and are judged anew with them."""
    covered = np.zeros(24)
    for seed in range(len(covered)):
        (X, y, _), (held, labels, sex), (new, truth, _) = (people(300, 10 * seed + each) for each in (1, 2, 3))
        clf = DWACClassifier(**SPLIT | {"random_state": seed}).fit(X, y)
        fair = clf.reweigh(held.set_axis([f"held{i}" for i in range(300)]), labels, by=sex, at_most=0.05).model
        covered[seed] = fair.predict_set(new, 0.2)[np.arange(300), np.searchsorted(fair.classes_, truth)].mean()
    assert covered.mean() >= 0.8 - 2 * covered.std() / np.sqrt(len(covered))
