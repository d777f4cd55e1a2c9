"""A condensed classifier: few vote for all, validation rows hardly notice, its folder holds few people's records."""

import json
import shutil
import warnings
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from scipy.stats import binomtest
from sklearn.base import clone

import dwac
from dwac import DWACClassifier, ReferenceSet, storage
from dwac.engine.groups import divide
from dwac.errors import IdError, InputError, StorageError
from dwac.estimator import condensing, editing
from dwac.metrics import log_loss
from tests.chance import assert_beta_binomial
from tests.estimator.helpers import forge
from tests.named import named, refuses, warns

pytestmark = pytest.mark.usefixtures("few_steps")

N = 700
SETTINGS: dict[str, Any] = {"epochs": 4, "random_state": 0, "device": "cpu", "verbose": False}


def people(n: int, seed: int, name: str = "patient") -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    data = {"age": rng.normal(size=n), "pulse": rng.normal(size=n), "town": rng.choice(["east", "west"], n)}
    return pd.DataFrame(data, index=[f"{name}-{i:04}" for i in range(n)])


def truth(X: pd.DataFrame, seed: int | None = None) -> list[str]:
    noise = np.random.default_rng(len(X) if seed is None else seed).normal(size=len(X))
    names = np.array(["ill", "unclear", "well"])
    return [str(name) for name in names[np.digitize(X["age"] + 0.6 * noise, [-0.5, 0.5])]]


X = people(N, 1)
NEW = people(40, 2, "visitor")


@pytest.fixture(scope="module")
def full() -> DWACClassifier:
    return DWACClassifier(calibration_size=150, validation_size=100, **SETTINGS).fit(X, truth(X))


@pytest.fixture(scope="module")
def chosen(full: DWACClassifier) -> DWACClassifier:
    """As few voters as validation rows allow; no test edits it."""
    return full.condense()


@pytest.fixture(scope="module")
def twelve(full: DWACClassifier) -> DWACClassifier:
    """No test edits it."""
    return full.condense(12)


@pytest.fixture
def few(twelve: DWACClassifier) -> DWACClassifier:
    return deepcopy(twelve)


@pytest.fixture(scope="module")
def saved(twelve: DWACClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No test changes it."""
    return twelve.save(tmp_path_factory.mktemp("condensed") / "model")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """For the test to change."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


@pytest.fixture
def alone(saved: Path) -> DWACClassifier:
    return load(saved)


def load(folder: Path) -> DWACClassifier:
    return dwac.load(folder, device="cpu")


def members(clf: DWACClassifier) -> ReferenceSet:
    assert clf.references_.members is not None
    return clf.references_.members


def silent(clf: DWACClassifier) -> Any:
    """Somebody who is represented and does not vote."""
    return next(name for name in members(clf).ids if name not in set(clf.references_.ids))


# Choosing


def test_validation_rows_keep_their_labels_and_their_log_loss(full, chosen) -> None:
    rows = full.fitted_.validation
    votes, all_votes = (refs.log_probabilities(rows.h).numpy() for refs in (chosen.references_, full.references_))
    assert (votes.argmax(axis=1) == all_votes.argmax(axis=1)).mean() >= 0.995
    assert log_loss(rows.y, votes) <= 1.005 * log_loss(rows.y, all_votes)
    assert len(chosen.references_) < len(full.references_) / 2
    assert chosen.references_.sizes.sum() == len(full.references_)
    assert set(chosen.references_.ids) < set(full.references_.ids)


def condenser(clf: DWACClassifier) -> condensing.Condenser:
    rows = clf.fitted_.validation
    return condensing.Condenser(clf.references_, rows.h, rows.y)


def test_no_smaller_number_that_was_tried_would_do(full, chosen) -> None:
    judge = condenser(full)
    sizes, found = judge.sizes(), len(chosen.references_)
    assert all(b == 2 * a for a, b in pairwise(sizes))
    assert judge.keeps(judge.represent(found))
    smaller = [size for size in sizes if size < found]
    assert found in sizes or found == round(2 * smaller[-1] / np.sqrt(2))
    for size in smaller:
        assert not judge.keeps(judge.represent(size))


@pytest.mark.usefixtures("all_steps")
def test_weights_are_fitted_to_the_full_vote(full) -> None:
    judge = condenser(full)
    few = judge.represent(12)
    counted = judge.whole.condensed(divide(judge.whole.embeddings, judge.whole.labels, 3, 12).leaves)
    assert few.ids.tolist() == counted.ids.tolist()
    np.testing.assert_allclose(few.weights, counted.weights * few.voters.leaf_factors)
    np.testing.assert_array_equal(few.sizes, counted.weights)
    full_p = judge.whole.log_probabilities(judge.fitting).numpy()

    def divergence(refs: ReferenceSet) -> float:
        return float((np.exp(full_p) * (full_p - refs.log_probabilities(judge.fitting).numpy())).sum(axis=1).mean())

    assert divergence(few) < 0.7 * divergence(counted)


def test_where_no_number_will_do_all_vote_and_it_is_said(full, monkeypatch) -> None:
    monkeypatch.setattr(condensing.Condenser, "keeps", lambda *_: False)
    with refuses(InputError, "size="):
        full.condense()


def test_where_no_number_keeps_all_labels_the_fewest_that_keep_most_are_taken_and_it_is_said(full, monkeypatch) -> None:
    keeps = condensing.Condenser.keeps
    monkeypatch.setattr(condensing.Condenser, "keeps", lambda *given: keeps(*given) and given[2:] == (0.98,))
    with warns(UserWarning, "99.5 %", "98 %", "size=", "--size") as told:
        small = full.condense()
    assert told[0].filename == __file__
    assert named(told[0].message, f"{len(small.references_):,}")
    judge = condenser(full)
    for size in (size for size in judge.sizes() if size < len(small.references_)):
        assert not keeps(judge, judge.represent(size), 0.98)


@pytest.mark.parametrize("size", [1, 3, 12, 37, 10**6])
def test_a_number_that_is_asked_for_is_given(full, size) -> None:
    few = full.condense(size)
    assert len(few.references_) == max(3, min(size, len(full.references_)))  # at least one per class
    assert few.references_.sizes.sum() == len(full.references_)


def test_condensing_leaves_the_model_as_it_was(full) -> None:
    before, voters = full.predict_proba(NEW), full.references_.ids.tolist()
    records = len(full.examples_)
    few = full.condense(12)
    few.forget(few.references_.ids[:2])
    few.add_references(NEW[:3], ["ill"] * 3)
    np.testing.assert_array_equal(full.predict_proba(NEW), before)
    assert full.references_.ids.tolist() == voters
    assert len(full.examples_) == records
    assert set(full.examples_) == set(voters)
    assert full.agreement_ is None


def test_condensing_again_starts_from_everybody(full, few) -> None:
    again = few.condense(40)
    assert len(again.references_) == 40
    np.testing.assert_array_equal(again.predict_proba(NEW), full.condense(40).predict_proba(NEW))


def test_the_same_representatives_are_chosen_every_time(full, chosen) -> None:
    assert full.condense().references_.ids.tolist() == chosen.references_.ids.tolist()


@pytest.mark.parametrize("size", [0, -3, 2.5, "many", True])
def test_sizes_that_are_no_number_are_refused(full, size) -> None:
    with refuses(InputError, "size", size):
        full.condense(size)


def test_without_validation_rows_a_number_is_asked_for() -> None:
    clf = DWACClassifier(validation_size=0, **SETTINGS).fit(X[:200], truth(X[:200]))
    with refuses(InputError, "size="):
        clf.condense()
    assert len(clf.condense(9).references_) == 9


def test_a_model_saved_alone_cannot_be_condensed_again(alone) -> None:
    with refuses(InputError, "condense"):
        alone.condense(5)


# The setting


def test_the_setting_condenses_after_training(full, twelve) -> None:
    clf = DWACClassifier(voters=12, calibration_size=150, validation_size=100, **SETTINGS).fit(X, truth(X))
    np.testing.assert_array_equal(clf.predict_proba(NEW), twelve.predict_proba(NEW))
    assert clf.references_.ids.tolist() == twelve.references_.ids.tolist()
    assert clone(clf).get_params()["voters"] == 12
    assert len(members(clf)) == len(full.references_)


def test_auto_condenses_many_voters_only_and_only_where_rows_can_choose(full, monkeypatch) -> None:
    small = X[:200], truth(X[:200])
    settings = SETTINGS | {"epochs": 1}
    for voters in ("all", "auto", 10**6):
        assert not DWACClassifier(voters=voters, **settings).fit(*small).references_.voters.weighted
    monkeypatch.setattr(condensing, "AUTOMATIC", 50)
    assert not DWACClassifier(voters="auto", validation_size=0, **settings).fit(*small).references_.voters.weighted
    clf = DWACClassifier(voters="auto", **settings).fit(*small)
    assert clf.references_.voters.weighted
    assert clf.references_.ids.tolist() == clf.condense().references_.ids.tolist()


@pytest.mark.parametrize("voters", ["some", 0, -1, 2.5, True, [3]])
def test_settings_that_say_nothing_are_refused_before_training(voters) -> None:
    with refuses(InputError, "voters", voters):
        DWACClassifier(voters=voters).fit(X[:100], truth(X[:100]))


# Calibration and agreement


def test_calibration_scores_are_those_of_the_few(few) -> None:
    rows = few.fitted_.calibration
    probabilities = few.references_.probabilities(rows.h).numpy()
    own = np.sort(-probabilities[np.arange(len(rows.y)), rows.y])
    scores = -few.predict_proba(NEW)
    want = (len(own) - np.searchsorted(own, scores - 1e-6) + 1) / (len(own) + 1)
    np.testing.assert_allclose(few.conformal(NEW).p_values, want)


def test_sets_of_a_condensed_model_keep_their_coverage() -> None:
    # One fit; calibration and test rows are drawn anew each time, so the number covered is beta-binomial.
    clf = DWACClassifier(voters=6, validation_size=50, calibration_size=50, **SETTINGS).fit(X[:300], truth(X[:300]))
    assert len(clf.references_) == 6
    n, n_cal, covered = 200, 99, np.zeros(20, dtype=np.int64)
    for repetition in range(len(covered)):
        rows = people(n + n_cal, 100 + repetition, "new")
        y = np.array(truth(rows, seed=repetition))
        clf.recalibrate(rows[:n_cal], y[:n_cal])
        sets = clf.predict_set(rows[n_cal:], 0.1)
        covered[repetition] = sets[np.arange(n), np.searchsorted(clf.classes_, y[n_cal:])].sum()
    assert_beta_binomial(covered, n, 90, n_cal, seed=0)


def test_agreement_is_that_of_brute_force_with_its_interval(full, few, chosen) -> None:
    for clf in (few, chosen):
        rows = X.loc[clf.calibration_ids_]
        same = int((clf.predict(rows) == full.predict(rows)).sum())
        interval = binomtest(same, len(rows)).proportion_ci()
        assert clf.agreement_ == pytest.approx((same / len(rows), interval.low, interval.high, len(rows)))
        assert str(clf.agreement_) in " ".join(clf.explain(NEW[:1])[0].sentences())
    assert full.agreement_ is None
    assert full.explain(NEW[:1])[0].agreement is None


def test_agreement_follows_edits_and_calibration(few) -> None:
    before = few.agreement_
    few.forget(few.calibration_ids_[:50])
    assert few.agreement_ is not None
    assert few.agreement_.n == 100
    few.forget(few.calibration_ids_)
    assert few.agreement_ is None
    assert before.n == 150


def test_explanations_count_everybody_who_is_represented(full, few) -> None:
    e = few.explain(NEW[:1], k=3)[0]
    assert (e.n_references, e.n_examples) == (12, len(full.references_))
    assert sum(group.size for group in e.groups) == e.n_examples
    assert list(e.probabilities.values()) == few.predict_proba(NEW[:1])[0].tolist()
    assert sum(n.size for n in few.explain(NEW[:1], k=12)[0].neighbors) == e.n_examples


def test_an_unreadable_row_counts_everybody_too() -> None:
    texts = [f"{word} list {i % 7}" for i, word in enumerate(["sort", "read"] * 60)]
    clf = DWACClassifier(voters=6, **SETTINGS).fit(texts, ["a", "b"] * 60)
    e = clf.explain([""])[0]
    assert e.unreadable
    assert (e.n_references, e.n_examples) == (6, len(members(clf)))


# Editing


def test_forgetting_a_representative_lets_another_take_its_place(few) -> None:
    gone, n = few.references_.ids[0], few.references_.sizes.sum()
    few.forget([gone])
    assert len(few.references_) == 12
    assert few.references_.sizes.sum() == n - 1
    assert gone not in few.references_.ids
    assert gone not in few.examples_
    assert few.explain(NEW[:1], k=12)[0].neighbors[0].record is not None


def test_forgetting_somebody_who_does_not_vote_counts(few) -> None:
    gone, n = silent(few), few.references_.sizes.sum()
    few.forget([gone])
    assert few.references_.sizes.sum() == n - 1
    with refuses(IdError, repr(gone)):
        few.forget([gone])
    with refuses(IdError, "nobody"):
        few.forget([few.references_.ids[0], "nobody"])
    assert few.references_.sizes.sum() == n - 1


def test_added_and_relabelled_examples_are_represented(few) -> None:
    n = few.references_.sizes.sum()
    few.add_references(NEW[:5], ["ill"] * 5)
    assert few.references_.sizes.sum() == n + 5
    assert set(NEW.index[:5]) <= set(members(few).ids)
    with refuses(IdError, "calibration rows", repr(NEW.index[0]), "votes"):
        few.recalibrate(NEW[:5], ["ill"] * 5)
    few.references_.relabel(NEW.index[:5], [2] * 5)
    by_class = np.bincount(few.references_.labels.numpy(), few.references_.sizes)
    np.testing.assert_array_equal(by_class, np.bincount(members(few).labels.numpy()))
    np.testing.assert_allclose(few.predict_proba(NEW).sum(axis=1), 1)


def test_edits_equal_condensing_the_edited_model(full, tmp_path) -> None:
    other = load(full.save(tmp_path / "full"))
    few = other.condense(12)
    gone = [*few.references_.ids[:3], silent(few)]
    leaves = dict(zip(members(few).ids, members(few).groups.leaves, strict=True))
    few.forget(gone)
    other.forget(gone)
    rest = np.unique([leaves[name] for name in other.references_.ids], return_inverse=True)[1]
    again = other.references_.condensed(rest)
    assert few.references_.ids.tolist() == again.ids.tolist()
    np.testing.assert_array_equal(few.references_.sizes, again.sizes)


def test_forgetting_on_a_model_alone_warns_that_votes_go_too(alone) -> None:
    gone, votes, n = alone.references_.ids[0], alone.references_.sizes[0], alone.references_.sizes.sum()
    assert alone.agreement_ is not None
    with warns(UserWarning, int(votes)):
        alone.forget([gone])
    assert len(alone.references_) == 11
    assert alone.references_.sizes.sum() == n - votes
    assert gone not in alone.examples_
    assert alone.agreement_ is None  # that of the model before is not its own
    np.testing.assert_allclose(alone.predict_proba(NEW).sum(axis=1), 1)


def test_somebody_whom_a_model_alone_does_not_hold_cannot_be_forgotten(few, alone) -> None:
    with refuses(IdError):
        alone.forget([silent(few)])
    assert len(alone.references_) == 12


def test_a_calibration_row_of_a_model_alone_can_be_forgotten(alone) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone.forget(alone.calibration_ids_[:1])
    assert len(alone.calibration_ids_) == 149
    assert alone.agreement_ is not None


def test_new_examples_vote_once_in_a_model_alone(alone) -> None:
    alone.add_references(NEW[:2], ["ill", "well"])
    assert alone.references_.sizes[-2:].tolist() == [1.0, 1.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # they take only their own vote with them
        alone.forget(NEW.index[:2])
    assert len(alone.references_) == 12


# On disk


def assert_same(got: DWACClassifier, want: DWACClassifier) -> None:
    np.testing.assert_array_equal(got.predict_proba(NEW), want.predict_proba(NEW))
    np.testing.assert_array_equal(got.conformal(NEW).p_values, want.conformal(NEW).p_values)
    assert got.agreement_ == want.agreement_
    assert got.descriptions_ == want.descriptions_
    assert got.references_.ids.tolist() == want.references_.ids.tolist()
    for name in ("leaves", "parents", "labels", "sizes", "representatives", "leaf_sizes"):
        np.testing.assert_array_equal(getattr(got.references_.groups, name), getattr(want.references_.groups, name))
    for one, other in zip(got.explain(NEW[:5]), want.explain(NEW[:5]), strict=True):
        assert one.to_dict() == other.to_dict()
        assert str(one) == str(other)


@pytest.mark.parametrize("include_members", [False, True])
def test_a_condensed_model_comes_back_as_it_was(few, include_members, tmp_path) -> None:
    assert few.descriptions_ is not None
    again = load(few.save(tmp_path / "model", include_members=include_members))
    assert_same(again, few)
    assert (again.references_.members is not None) == include_members
    twice = load(again.save(tmp_path / "twice", include_members=include_members))
    assert_same(twice, few)


def test_a_full_model_keeps_its_groups_and_can_still_be_condensed(full, chosen, tmp_path) -> None:
    again = load(full.save(tmp_path / "model"))
    assert_same(again, full)
    assert again.condense().references_.ids.tolist() == chosen.references_.ids.tolist()


def test_members_that_were_saved_can_be_forgotten(few, tmp_path) -> None:
    again = load(few.save(tmp_path / "model", include_members=True))
    for clf in (again, few):
        clf.forget([clf.references_.ids[0], silent(clf)])
    assert again.references_.ids.tolist() == few.references_.ids.tolist()
    np.testing.assert_array_equal(again.predict_proba(NEW), few.predict_proba(NEW))
    assert again.condense(20).references_.sizes.sum() == few.references_.sizes.sum()


def test_a_folder_of_representatives_names_nobody_else(few, tmp_path) -> None:
    folder = few.save(tmp_path / "alone")
    allowed = {*few.references_.ids, *few.calibration_ids_}
    others = set(X.index) - allowed
    manifest = json.loads((folder / "model.json").read_text())
    rows = pq.read_table(folder / manifest["files"]["examples"]["name"]).to_pandas()
    assert len(rows) == 12
    tensors = storage.read_model(folder).tensors
    assert len(tensors["ref_h"]) == len(tensors["ref_y"]) == len(tensors["ref_weight"]) == 12
    assert not any(name.startswith("validation") for name in tensors)
    assert manifest["config"]["validation_ids"] == []
    held = "".join(path.read_bytes().decode("latin-1") for path in folder.iterdir()) + rows.to_csv()
    assert not [name for name in others if name in held]
    assert any(name in held for name in few.references_.ids)
    # No record of another training row either, nor what it is compared by.
    stored = storage.read_model(folder).examples
    assert stored is not None
    pd.testing.assert_frame_equal(stored, X.loc[few.references_.ids], check_dtype=False, check_index_type=False)
    assert all(len(value) == 12 for name, value in tensors.items() if name.startswith(("known", "ref")))


def test_a_folder_of_representatives_is_small(full, few, tmp_path) -> None:
    sizes = [
        sum(path.stat().st_size for path in folder.iterdir() if "examples" in path.name)
        for folder in (few.save(tmp_path / "few"), full.save(tmp_path / "full"))
    ]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("include_members", [False, True])
def test_a_condensed_model_saved_without_records_is_private(few, include_members, tmp_path) -> None:
    folder = few.save(tmp_path / "private", include_examples=False, include_members=include_members)
    again = load(folder)
    assert again.private_
    np.testing.assert_allclose(again.predict_proba(NEW), few.predict_proba(NEW), rtol=1e-12)
    assert again.descriptions_ is None
    e = again.explain(NEW[:1])[0]
    assert e.private
    assert e.groups == ()
    assert "patient" not in str(e.to_dict())
    assert len(again.examples_) == 0
    manifest = json.loads((folder / "model.json").read_text())
    assert manifest["config"]["descriptions"] is None


def test_descriptions_of_groups_are_of_everybody_and_go_when_those_who_are_left_cannot_say(few, alone) -> None:
    described = few.descriptions_
    assert described is not None
    assert alone.descriptions_ == described
    assert few.explain(NEW[:1])[0].groups[0].words in described
    alone.add_references(NEW[:1], ["ill"])
    assert alone.descriptions_ is None


def gap(t: dict[str, torch.Tensor]) -> Any:
    t["ref_leaf"] = torch.where(t["ref_leaf"] == 0, 99, t["ref_leaf"])


def mixed(t: dict[str, torch.Tensor]) -> Any:
    t["ref_leaf"] = torch.zeros_like(t["ref_leaf"])
    t["leaf_group"] = torch.zeros_like(t["leaf_group"][:1])


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (gap, ["without gaps"]),
        (mixed, ["within one class"]),
        (lambda t: t.update(ref_leaf=t["ref_leaf"][1:]), ["leaves"]),
        (lambda t: t.update(ref_leaf=-t["ref_leaf"]), ["leaves"]),
        (lambda t: t.update(ref_leaf=t["ref_leaf"] + 2**61), ["leaves", 2305843009213693952, "row 0"]),
        (lambda t: t.update(ref_leaf=t["ref_leaf"].float()), ["ref_leaf"]),
        (lambda t: t.update(leaf_group=t["leaf_group"][1:]), ["parents"]),
        (lambda t: t.update(leaf_group=torch.zeros_like(t["leaf_group"])), ["within one class"]),
        (lambda t: t.update(leaf_group=t["leaf_group"] + 1), ["without gaps"]),
        (lambda t: t.update(ref_weight=-t["ref_weight"]), ["weights", "12 positive"]),
        (lambda t: t.update(ref_weight=t["ref_weight"][1:]), ["weights", "12 positive"]),
        (lambda t: t.update(ref_weight=t["ref_weight"] * float("nan")), ["ref_weight"]),
        (lambda t: t.update(ref_weight=t["ref_weight"].long()), ["ref_weight"]),
        (lambda t: t.pop("ref_leaf"), ["ref_leaf"]),
    ],
)
def test_tensors_of_groups_that_do_not_fit_are_named(folder, change, facts) -> None:
    forge(folder, tensors=change)
    with refuses(StorageError, folder, *facts):
        load(folder)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda c: c.update(descriptions=["x"]), ["descriptions"]),
        (lambda c: c.update(descriptions="x"), ["descriptions"]),
        (lambda c: c["descriptions"].__setitem__(0, 5), ["descriptions"]),
        (lambda c: c.update(agreement=[1.0, 0.9]), ["agreement"]),
        (lambda c: c.update(agreement=[0.5, 0.9, 1.0, 9]), ["agreement"]),
        (lambda c: c.update(agreement=[2.0, 0.9, 3.0, 9]), ["agreement"]),
        (lambda c: c.update(agreement=[1.0, 0.9, 1.0, 0]), ["agreement"]),
        (lambda c: c.update(agreement="high"), ["agreement"]),
        (lambda c: c.update(condensed="yes"), ["condensed"]),
        (lambda c: c.update(condensed=True), ["condensed"]),
    ],
)
def test_a_config_of_groups_that_does_not_fit_is_named(folder, change, facts) -> None:
    forge(folder, change)
    with refuses(StorageError, folder, *facts):
        load(folder)


def test_validation_labels_that_do_not_fit_are_named(full, tmp_path) -> None:
    folder = full.save(tmp_path / "model")
    forge(folder, tensors=lambda t: t.update(validation_y=t["validation_y"] - 1))
    with refuses(StorageError, 0, 2):
        load(folder)


# Data that comes sorted, and data that is easy


def test_rows_that_come_sorted_by_label_judge_all_labels(monkeypatch) -> None:
    monkeypatch.setattr(condensing, "ROWS", 20)
    monkeypatch.setattr(condensing, "PAIRS", 1)
    h = torch.linspace(0, 1, 200, dtype=torch.float64)[:, None]
    y = np.arange(200) // 100
    judge = condensing.Condenser(ReferenceSet(h, y), h, y)
    assert len(judge.y) == 10
    assert set(judge.y) == {0, 1}
    np.testing.assert_array_equal(y[np.searchsorted(h[:, 0].numpy(), judge.h[:, 0].numpy())], judge.y)


def test_classes_that_lie_far_apart_are_condensed_though_nothing_is_lost_to_share() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(600) % 2
    h = torch.tensor(rng.normal(size=(600, 2)) * 0.1 + 9 * y[:, None])
    few = condensing.Condenser(ReferenceSet(h[:400], y[:400]), h[400:], y[400:]).fewest()
    assert few is not None
    assert len(few) == 10


def test_a_condensed_model_says_what_it_is(full, few) -> None:
    assert "representatives" not in repr(full)
    text = repr(few)
    assert text.startswith("DWACClassifier(")
    assert named(text, "# 12 representatives", f"{len(full.references_)} training examples", few.agreement_)


# Half precision


def test_a_folder_in_half_precision_answers_as_the_rounded_model_does(full: DWACClassifier, tmp_path: Path) -> None:
    rows = people(300, 5, "guest")
    plain = full.condense(20).recalibrate(rows, truth(rows))
    half = full.condense(20).recalibrate(rows, truth(rows), half=True)
    assert [clf.fitted_.half for clf in (half, plain, full)] == [True, False, False]
    assert torch.equal(half.references_.embeddings, plain.references_.embeddings)
    np.testing.assert_array_equal(half.predict(rows), plain.predict(rows))
    np.testing.assert_allclose(half.predict_proba(rows), plain.predict_proba(rows), atol=0.01)
    saved = [storage.read_model(clf.save(tmp_path / name)).tensors for clf, name in ((plain, "plain"), (half, "half"))]
    matrices = [name for name, value in saved[0].items() if name.startswith(("backbone.", "embed")) and value.ndim > 1]
    assert matrices
    assert all(saved[1][name].dtype == torch.float16 for name in matrices)
    assert all(saved[0][name].dtype == torch.float32 for name in matrices)
    again = dwac.load(tmp_path / "half", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(NEW), half.predict_proba(NEW))
    np.testing.assert_array_equal(again.conformal(NEW).p_values, half.conformal(NEW).p_values)
    assert again.fitted_.half
    assert dwac.fingerprint(again.save(tmp_path / "again")) == dwac.fingerprint(tmp_path / "half")


def test_half_precision_is_refused_where_predictions_change(full: DWACClassifier, monkeypatch) -> None:
    clf, rows = full.condense(20), people(300, 5, "guest")
    monkeypatch.setattr(editing, "HALF", -1e-9)  # no change is small enough
    before = clf.fitted_
    with refuses(InputError, "300", "half"):
        clf.recalibrate(rows, truth(rows), half=True)
    assert clf.fitted_ is before
    assert not clf.fitted_.half
