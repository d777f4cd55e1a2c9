"""clf.worth and reg.worth: who helps and who harms, by id and by group, for every kind of target."""

import warnings
from copy import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_classification

import dwac
from dwac import DWACClassifier, DWACRegressor
from dwac.errors import IdError, InputError, PrivacyError, ShapeError
from dwac.worth import of_mean
from tests.estimator.helpers import SPLIT, noisy_rows
from tests.named import refuses

NEW = noisy_rows(60, 1, "new")


@pytest.fixture(scope="module")
def of_noisy_rows() -> DWACClassifier:
    return DWACClassifier(**SPLIT).fit(*noisy_rows(150, 0))


def prior_of(clf: DWACClassifier, y: Any) -> float:
    shares = np.bincount(clf.references_.labels.numpy()) / len(clf.references_)
    return float(np.mean([shares[list(clf.classes_).index(label)] for label in y]))


def test_shapley_values_sum_to_what_the_votes_add_to_the_prior(of_noisy_rows) -> None:
    X, y = NEW
    table = of_noisy_rows.worth(X, y)
    assert table.index.tolist() == of_noisy_rows.references_.ids.tolist()
    assert table.index.name == "id"
    p = of_noisy_rows.predict_proba(X)[np.arange(len(y)), [list(of_noisy_rows.classes_).index(label) for label in y]]
    assert table["worth"].sum() == pytest.approx(p.mean() - prior_of(of_noisy_rows, y), abs=1e-4)
    assert table.attrs["queries"] == 60
    assert 0 < table.attrs["error"] <= 1e-4
    np.testing.assert_allclose(table["standard_error"], table["deviation"] / np.sqrt(60))


def test_leave_one_out_is_what_forgetting_changes(of_noisy_rows) -> None:
    X, y = NEW
    table, h = of_noisy_rows.worth(X, y, method="leave_one_out"), of_noisy_rows.embed(X)
    codes = np.array([list(of_noisy_rows.classes_).index(label) for label in y])

    def mean(references: Any) -> float:
        return float(references.probabilities(h)[np.arange(len(y)), codes].mean())

    for name in of_noisy_rows.references_.ids[[0, 17, 60]]:
        without = copy(of_noisy_rows.references_)
        without.remove([name])
        assert table.loc[name, "worth"] == pytest.approx(mean(of_noisy_rows.references_) - mean(without), abs=1e-6)


def test_wrong_labels_are_worth_less(of_noisy_rows) -> None:
    X, y = noisy_rows(150, 0)
    table = of_noisy_rows.worth(*NEW)
    wrong = ((X["a"] + 0.3 * X["b"] > 0) != (y == "yes")).loc[table.index]
    worth = table["worth"]
    assert worth[wrong].mean() < 0 < worth[~wrong].mean()
    assert (table["label"] == y.loc[table.index]).all()
    banzhaf = of_noisy_rows.worth(*NEW, method="banzhaf")["worth"]
    assert banzhaf[wrong].mean() < 0 < banzhaf[~wrong].mean()


@pytest.mark.parametrize("utility", ["log_probability", "accuracy"])
def test_worth_for_other_utilities_ranks_much_alike(of_noisy_rows, utility: str) -> None:
    usual, other = of_noisy_rows.worth(*NEW)["worth"], of_noisy_rows.worth(*NEW, utility=utility)["worth"]
    assert usual.corr(other, method="spearman") > 0.8
    if utility == "accuracy":
        assert other.sum() == pytest.approx(of_noisy_rows.score(*NEW) - prior_of(of_noisy_rows, NEW[1]), abs=1e-4)


def test_groups_are_worth_what_all_of_their_examples_bring_at_once(of_noisy_rows) -> None:
    owner = pd.Series(["ann", "bob", "cat"] * 50, index=noisy_rows(150, 0)[0].index)
    table = of_noisy_rows.worth(*NEW, groups=owner)
    assert sorted(table.index) == ["ann", "bob", "cat"]
    assert table["examples"].sum() == len(of_noisy_rows.references_)
    assert table["worth"].sum() == pytest.approx(of_noisy_rows.worth(*NEW)["worth"].sum(), abs=2e-4)
    in_order = of_noisy_rows.worth(*NEW, groups=owner.loc[of_noisy_rows.references_.ids].tolist())
    pd.testing.assert_frame_equal(in_order, table)
    pd.testing.assert_frame_equal(of_noisy_rows.worth(*NEW, groups=owner.to_dict()), table)
    unknown = of_noisy_rows.worth(*NEW, groups=owner.where(owner != "bob", None))
    pd.testing.assert_frame_equal(unknown.rename(index={"missing": "bob"}), table)


def test_groups_may_be_a_column_of_the_training_data(of_noisy_rows) -> None:
    alone = of_noisy_rows.worth(*NEW)["worth"]  # every value of the column occurs once
    found = of_noisy_rows.worth(*NEW, groups="a")["worth"]
    np.testing.assert_allclose(found.loc[noisy_rows(150, 0)[0].loc[alone.index, "a"]], alone, atol=1e-6)
    with refuses(InputError, "groups", "a, b, c", "owner"):
        of_noisy_rows.worth(*NEW, groups="owner")


def test_nobody_votes_on_itself(of_noisy_rows) -> None:
    X, y = noisy_rows(150, 0)
    voter = of_noisy_rows.references_.ids[:1].tolist()
    table, without = (
        of_noisy_rows.worth(X.loc[voter], y.loc[voter], ids=voter, tolerance=1e-8),
        copy(of_noisy_rows.references_),
    )
    assert table.loc[voter[0], "worth"] == 0
    assert np.isnan(table["deviation"]).all()  # of one row
    without.remove(voter)
    log_w, code = (
        without.voters.every_vote(of_noisy_rows.embed(X.loc[voter])),
        list(of_noisy_rows.classes_).index(y[voter[0]]),
    )
    others = of_mean(
        torch.as_tensor(log_w),
        (without.labels == code).double(),
        torch.tensor([prior_of(of_noisy_rows, y.loc[voter])]),
        tolerance=1e-8,
    )[0]
    np.testing.assert_allclose(table["worth"].iloc[1:], others[0], atol=1e-8)


def test_a_label_nobody_has_and_a_row_nobody_can_read_judge_no_one(of_noisy_rows) -> None:
    X, y = NEW
    assert (of_noisy_rows.worth(X[:2], ["maybe"] * 2)["relative"] == 0).all()  # all are worth the same
    unknown = of_noisy_rows.worth(X[:2], ["maybe", y.iloc[1]])
    np.testing.assert_allclose(unknown["worth"], of_noisy_rows.worth(X[1:2], y[1:2])["worth"] / 2, atol=1e-4)


def test_several_labels_are_worth_what_they_add_to_being_right(tmp_path) -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 3))
    Y = (X + 0.5 * rng.normal(size=X.shape) > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = DWACClassifier(**SPLIT).fit(X, Y)
    asked, true = X[:40] + 0.1, Y[:40]
    p = clf.predict_proba(asked)
    right = np.where(true == 1, p, 1 - p)
    shares = Y[clf.references_.ids].mean(axis=0)
    before = np.where(true == 1, shares, 1 - shares)
    table = clf.worth(asked, true)
    assert table["worth"].sum() == pytest.approx((right - before).mean(), abs=1e-4)
    one = clf.worth(asked, true, label=clf.classes_[1])
    assert one["worth"].sum() == pytest.approx((right - before)[:, 1].mean(), abs=1e-4)
    with refuses(InputError, "utility", "'probability'", "'accuracy'"):
        clf.worth(asked, true, utility="accuracy")


def test_numbers_are_worth_the_squared_error_they_take_away() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(100, 3))
    y = 100 + 10 * X[:, 0] + rng.normal(size=100)
    reg = DWACRegressor(**SPLIT).fit(X[:85], y[:85])
    table = reg.worth(X[85:], y[85:])
    known = y[reg.references_.ids]
    gain = (known.mean() - y[85:]) ** 2 - (reg.predict(X[85:]) - y[85:]) ** 2
    assert table["worth"].sum() == pytest.approx(gain.mean() / known.var(), abs=1e-3)
    assert table["number"].tolist() == known.tolist()
    by_group = reg.worth(X[85:], y[85:], groups=(known > 100).tolist())
    assert by_group["worth"].sum() == pytest.approx(table["worth"].sum(), abs=1e-3)


def test_a_target_named_like_worth_leaves_worth_alone() -> None:
    X, _ = noisy_rows(100, 4)
    Y = pd.DataFrame({"worth": 50 + X["a"], "other": X["b"]})
    reg = DWACRegressor(**SPLIT).fit(X, Y)
    table = reg.worth(*(part[:6] for part in (X, Y)))
    assert table["worth_target"].tolist() == pytest.approx(Y["worth"].loc[table.index].tolist())
    assert table["worth"].abs().max() < 1
    assert list(table) == ["worth", "deviation", "standard_error", "relative", "worth_target", "other"]


def test_examples_are_compared_within_their_class() -> None:
    X, y = make_classification(
        400, 5, n_informative=4, n_redundant=0, weights=[0.9], class_sep=0.7, flip_y=0.05, random_state=1
    )
    table = DWACClassifier(**SPLIT).fit(X[:250], y[:250]).worth(X[250:], y[250:])
    assert set(table.sort_values("worth")["label"].head(10)) == {1}  # rare, so wrong for most rows
    within = table.groupby("label")["relative"]
    assert within.mean().tolist() == pytest.approx([0, 0], abs=1e-9)
    assert within.std(ddof=0).tolist() == pytest.approx([1, 1])
    assert 0 in table.sort_values("relative")["label"].head(10).to_numpy()
    for _, members in table.groupby("label"):
        assert members["relative"].corr(members["worth"], method="spearman") == pytest.approx(1)


def test_numbers_are_compared_with_similar_ones_and_rare_labels_with_each_other() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 3))
    reg = DWACRegressor(**SPLIT).fit(X, X[:, 0])
    table = reg.worth(X[:10] + 0.1, X[:10, 0])
    fifths = table["relative"].groupby(pd.qcut(table["number"], 5, labels=False))
    assert fifths.mean().abs().max() < 1e-9
    assert fifths.std(ddof=0).tolist() == pytest.approx([1] * 5)
    y = np.repeat([0, 1, 2, 3], [60, 54, 3, 3])
    table = DWACClassifier(**SPLIT, calibration_size=0, validation_size=0).fit(X, y).worth(X[:30], y[:30])
    assert table["relative"][table["label"] >= 2].std(ddof=0) == pytest.approx(1)


def test_representatives_are_players_with_the_votes_of_all_they_stand_for(of_noisy_rows) -> None:
    few = of_noisy_rows.condense(10)
    table = few.worth(*NEW)
    assert len(table) == len(few.references_) < len(of_noisy_rows.references_)
    assert table["size"].sum() == len(of_noisy_rows.references_)


def test_errors_say_what_to_do(of_noisy_rows, tmp_path) -> None:
    with refuses(InputError, "method"):
        of_noisy_rows.worth(*NEW, method="knn")
    with refuses(InputError, "utility"):
        of_noisy_rows.worth(*NEW, utility="auc")
    with refuses(ShapeError, "groups", 1):
        of_noisy_rows.worth(*NEW, groups=["ann"])
    with refuses(IdError, "groups", repr(of_noisy_rows.references_.ids[0])):
        of_noisy_rows.worth(*NEW, groups=pd.Series(["ann"], index=["nobody"]))
    voters = of_noisy_rows.references_.ids.tolist()
    with refuses(IdError, voters[0]):
        of_noisy_rows.worth(*NEW, groups=pd.Series("ann", index=[*voters, voters[0]]))
    with refuses(InputError, "Series", 3):
        of_noisy_rows.worth(*NEW, groups=3)
    with refuses(PrivacyError, "private", "saved from"):
        dwac.load(of_noisy_rows.save(tmp_path / "model", include_examples=False)).worth(*NEW)
