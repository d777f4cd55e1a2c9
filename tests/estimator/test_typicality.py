"""Typicality: is this row anything we know? A p-value beside the prediction sets, which no vote and no label enters."""

from copy import deepcopy
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import betabinom, binom

import dwac
from dwac import DWACClassifier, Training, metrics, storage
from dwac.errors import CalibrationWarning, StorageError
from dwac.estimator import evaluation
from dwac.estimator.held_out import HeldOutRows
from dwac.nn import WeightedAverage
from dwac.reference import ReferenceSet, novelty
from tests.chance import RARE
from tests.named import warns

SETTINGS: dict[str, Any] = {"epochs": 4, "device": "cpu", "random_state": 0, "verbose": False}


def two_sides(n: int = 1200, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """The sign of a tells the class; b and c tell nothing, so that the network forgets that they are always alike."""
    a, b, noise = np.random.default_rng(seed).normal(size=(3, n))
    return pd.DataFrame({"a": a, "b": b, "c": b + 0.05 * noise}), np.asarray(a > 0)


def words(n: int = 1500, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Categories only: the first tells the class, the next two are always the same."""
    rng = np.random.default_rng(seed)
    first, second, third = rng.integers(0, 4, n), rng.integers(0, 5, n), rng.integers(0, 6, n)
    letters = np.array(list("pqrstu"))
    frame = pd.DataFrame(
        {"one": letters[first], "two": letters[second], "same": letters[second], "tre": letters[third]}
    )
    return frame, np.asarray(first % 2)


@pytest.fixture(scope="module")
def clf() -> DWACClassifier:
    return DWACClassifier(**{**SETTINGS, "epochs": 8}).fit(*two_sides())


@pytest.fixture(scope="module")
def plain() -> DWACClassifier:
    """The same, by its embedding alone."""
    return DWACClassifier(**{**SETTINGS, "epochs": 8}, training=Training(raw_features=False)).fit(*two_sides())


@pytest.fixture(scope="module")
def letters() -> DWACClassifier:
    return DWACClassifier(**SETTINGS, calibration_size=400).fit(*words())


def copy_of(clf: DWACClassifier, path: Any) -> DWACClassifier:
    return dwac.load(clf.save(path), device="cpu")


def typical(clf: DWACClassifier, X: Any) -> Any:
    found = clf.conformal(X).typicality
    assert found is not None
    return found


# The score


def test_novelty_is_the_log_of_the_mean_squared_distance_to_the_five_nearest():
    rng = np.random.default_rng(0)
    voters, queries = rng.normal(size=(40, 3)), torch.as_tensor(rng.normal(size=(9, 3)))
    references = ReferenceSet(voters, rng.integers(0, 2, 40))
    squared = np.sort(((queries.numpy()[:, None] - voters) ** 2).sum(axis=2), axis=1)
    np.testing.assert_allclose(novelty(references, queries), np.log(squared[:, :5].mean(axis=1) + 1e-4), rtol=1e-6)
    own = novelty(references, torch.as_tensor(voters), own=True)
    squared = np.sort(((voters[:, None] - voters) ** 2).sum(axis=2), axis=1)
    np.testing.assert_allclose(own, np.log(squared[:, 1:6].mean(axis=1) + 1e-4), rtol=1e-6)


def test_novelty_of_a_voter_among_few_is_finite():
    references = ReferenceSet([[1.0]], [0])
    for own in (False, True):
        assert novelty(references, torch.tensor([[1.0], [5.0]]), own=own).isfinite().all()


# The guarantee


def test_new_rows_like_those_of_calibration_are_atypical_as_often_as_promised(clf: DWACClassifier) -> None:
    """Of n calibration rows and one new row, each is as likely to be any in the order of novelty."""
    X, y = two_sides(2000, seed=7)
    measured = clf.fitted_.novelty.scores(clf.references_, *_rows(clf, X))
    rng, n, draws, found = np.random.default_rng(0), 40, 4200, []
    for _ in range(draws):
        some = rng.choice(len(y), n + 1, replace=False)
        found.append(dwac.conformal.typicality(measured[some[1:]], measured[some[:1]])[0])
    for epsilon in (0.05, 0.1, 0.5):
        law = binom(draws, np.floor(epsilon * (n + 1)) / (n + 1))  # scores are distinct
        assert law.ppf(RARE) <= (np.array(found) <= epsilon).sum() <= law.isf(RARE)


def _held_out(clf: DWACClassifier, X: Any) -> HeldOutRows:
    codes, exact = np.zeros(len(X), dtype=np.int64), np.zeros((len(X), 0))
    return clf.fitted_.novelty.hold_out(clf.model_, clf.encoder_.transform(X), codes, X.index, exact)


def _rows(clf: DWACClassifier, X: Any) -> tuple[torch.Tensor, torch.Tensor]:
    rows = _held_out(clf, X)
    return rows.h, rows.z


def assert_promise_is_kept(model: DWACClassifier, X: pd.DataFrame) -> None:
    n, found = len(model.calibration_y_), typical(model, X)
    for epsilon in (0.05, 0.1, 0.3):  # a beta-binomial law: chance of both calibration and new rows
        left = int(np.floor(epsilon * (n + 1)))
        assert (found <= epsilon).sum() <= betabinom(len(X), left, n + 1 - left).isf(RARE)


def test_typicality_of_the_fitted_model_keeps_its_promise(clf: DWACClassifier, plain, letters) -> None:
    assert_promise_is_kept(letters, words(3000, 9)[0])
    for model in (clf, plain):
        again = deepcopy(model).recalibrate(*two_sides(300, seed=6), ids=range(10_000, 10_300))
        assert_promise_is_kept(again, two_sides(3000, seed=9)[0])


@pytest.mark.slow
@pytest.mark.parametrize("raw_features", [True, False])
def test_typicality_keeps_its_promise_with_the_rows_that_fit_set_aside(raw_features: bool) -> None:
    training = Training(raw_features=raw_features)
    model = DWACClassifier(**{**SETTINGS, "epochs": 8}, calibration_size=300, training=training)
    assert_promise_is_kept(model.fit(*two_sides(1400)), two_sides(3000, seed=9)[0])


def test_a_row_scores_the_same_alone_as_among_others(clf: DWACClassifier, letters: DWACClassifier) -> None:
    for model, X in ((clf, two_sides(80, seed=1)[0]), (letters, words(80, seed=1)[0])):
        alone = np.concatenate([typical(model, X.iloc[[row]]) for row in range(20)])
        np.testing.assert_array_equal(alone, typical(model, X)[:20])


def test_calibration_rows_tie_with_themselves(clf: DWACClassifier) -> None:
    X, _ = two_sides()
    found, n = typical(clf, X.loc[clf.calibration_ids_]), len(clf.calibration_y_)
    np.testing.assert_allclose(np.sort(found), np.arange(2, n + 2) / (n + 1))


# What is noticed


def test_a_far_row_is_as_atypical_as_can_be(clf: DWACClassifier, plain: DWACClassifier) -> None:
    far = pd.DataFrame({"a": [1e6, -1e9], "b": [-1e6, 1e9], "c": [1e6, 1e9]})
    np.testing.assert_array_equal(typical(clf, far), 1 / (len(clf.calibration_y_) + 1))
    assert np.isfinite(clf.predict_proba(far)).all()


def test_rows_of_an_unknown_kind_are_atypical_though_each_number_is_usual(clf, plain) -> None:
    X, _ = two_sides(300, seed=1)
    strange = X.assign(c=-X["c"])[X["b"].abs() > 0.5]
    assert typical(clf, strange).mean() < 0.05
    assert typical(plain, strange).mean() > 0.3  # or the test would be too easy
    np.testing.assert_allclose(clf.predict_proba(X), plain.predict_proba(X), atol=1e-6)  # it changes no vote
    assert typical(clf, X).mean() > 0.4


def many(n: int = 1200, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Ten numbers of which the first tells the class."""
    x = np.random.default_rng(seed).normal(size=(n, 10))
    return pd.DataFrame(x).add_prefix("x"), np.asarray(x[:, 0] > 0)


def test_one_gap_lowers_typicality_a_little_and_gaps_alone_leave_nothing() -> None:
    clf = DWACClassifier(**SETTINGS).fit(*many())
    X, _ = many(400, seed=2)
    usual, two, five, all_ = (
        typical(clf, X.assign(**dict.fromkeys(X.columns[10 - gaps :], np.nan))).mean() for gaps in (0, 2, 5, 10)
    )
    assert all_ < 0.05
    assert 0.5 * usual < two <= usual + 0.05
    assert five < two
    one = [typical(clf, X.assign(**{str(name): np.nan})).mean() for name in X]
    assert 0.5 * usual < np.mean(one) <= usual + 0.05


@pytest.mark.slow
def test_a_gap_that_contradicts_nothing_known_is_usual_where_training_had_gaps() -> None:
    X, y = two_sides()
    gaps = np.random.default_rng(3).random(len(X)) < 0.3
    new, _ = two_sides(400, seed=2)
    with_gaps, without = (
        typical(DWACClassifier(**SETTINGS).fit(X.assign(b=values), y), new.assign(b=np.nan))
        for values in (X["b"].where(~gaps), X["b"])
    )
    assert (with_gaps <= 0.05).mean() < 0.15
    assert (without <= 0.05).mean() > 0.5  # or the test would be too easy


def test_a_value_just_past_the_range_is_a_little_less_typical_and_a_far_one_not_at_all(clf) -> None:
    X, _ = two_sides()
    top = X["a"].max()
    row = X.loc[[X["a"].idxmax()]]
    inside, just, far = (typical(clf, row.assign(a=value))[0] for value in (top, top + 0.01, top + 3 * X["a"].std()))
    assert far < 0.05
    assert far < just
    assert inside >= just > 0.5 * inside


def test_five_standard_deviations_in_one_column_are_noticed(clf: DWACClassifier) -> None:
    X, _ = two_sides(1000, seed=4)
    inside = typical(clf, X)
    for name in X:
        moved = typical(clf, X.assign(**{str(name): X[name] + 5 * X[name].std()}))
        assert metrics.ood_scores(inside, moved).auroc >= 0.98


def test_an_all_categorical_table_notices_categories_that_do_not_go_together(letters: DWACClassifier) -> None:
    X, _ = words(400, seed=5)
    mixed = X.assign(same=np.where(X["two"] == "p", "q", "p"))
    assert typical(letters, mixed).mean() < 0.05 < 0.5 < typical(letters, X).mean()


def test_one_unseen_category_lowers_typicality(letters: DWACClassifier) -> None:
    X, _ = words(400, seed=5)
    new, two = (typical(letters, rows) for rows in (X.assign(tre="new"), X.assign(tre="new", two="other")))
    assert two.mean() <= new.mean() < 0.1 < typical(letters, X).mean()


def test_unseen_categories_are_usual_where_rare_ones_are() -> None:
    X, y = words()
    names = np.where(np.arange(len(X)) % 4 == 0, [f"only {i}" for i in range(len(X))], X["tre"])
    clf = DWACClassifier(**SETTINGS).fit(X.assign(tre=names), y)
    new, _ = words(300, seed=6)
    assert typical(clf, new.assign(tre="never seen")).mean() > 0.3


# Votes


def test_no_vote_vector_is_longer_than_the_embedding_and_its_raw_features(clf: DWACClassifier, letters) -> None:
    for model, (X, _) in ((clf, two_sides(20)), (letters, words(20))):
        network = model.model_
        assert isinstance(network, WeightedAverage)
        extra = network.n_raw_features if network.raw_feature_weight else 0
        assert model.embed(X).shape[1] == network.embedding_size + extra == network.vector_size
        assert model.references_.embeddings.shape[1] == network.vector_size


def test_prediction_sets_are_by_probability_unless_weights_are_asked_for() -> None:
    X, y = many(1500)
    noisy = y ^ (np.random.default_rng(1).random(1500) < 0.1)
    model = DWACClassifier(**SETTINGS).fit(X[:1000], noisy[:1000])
    X = X[1000:]
    by_default = model.predict_set(X, 0.1)
    paper = model.set_params(nonconformity="weights").conformal(X)
    sets = model.set_params(nonconformity="probability").predict_set(X, 0.1)
    np.testing.assert_array_equal(by_default, sets)
    assert by_default.sum() < paper.label_sets(0.1).sum()
    np.testing.assert_array_equal(paper.typicality, typical(model, X))  # which does not depend on it


def test_atypical_rows_get_the_empty_set_on_demand(clf: DWACClassifier, tmp_path) -> None:
    X, y = two_sides(600, seed=8)
    found = clf.conformal(pd.concat([X, X * 1e6], ignore_index=True))
    kept, sets = found.label_sets(0.05), found.label_sets(0.05, reject=0.05)
    strange = found.atypical(0.05)
    assert strange[600:].all()
    assert not sets[strange].any()
    np.testing.assert_array_equal(sets[~strange], kept[~strange])
    covered = [sets[np.arange(600), y.astype(int)].mean()]
    model = copy_of(clf, tmp_path / "model")
    for seed in range(20, 31):
        X, y = two_sides(320, seed)
        model.recalibrate(X[200:], y[200:], ids=range(10_000, 10_120))
        sets = model.conformal(X[:200]).label_sets(0.05, reject=0.05)
        covered.append(sets[np.arange(200), y[:200].astype(int)].mean())
    # .9025 in the long run; 120 calibration rows and 200 new ones move each by a deviation of .034, the mean by .01.
    assert np.mean(covered) >= 1 - 0.05 - 0.05 - 0.05


def test_a_class_conditional_calibration_changes_no_typicality(clf: DWACClassifier, tmp_path) -> None:
    X, _ = two_sides(100, seed=1)
    model = copy_of(clf, tmp_path / "model").set_params(class_conditional=True)
    np.testing.assert_array_equal(typical(model, X), typical(clf, X))


def test_too_few_calibration_rows_to_call_anything_atypical_are_reported() -> None:
    X, y = two_sides(60)
    small = DWACClassifier(**SETTINGS, calibration_size=5).fit(X, y)
    with warns(CalibrationWarning, 19):
        assert not small.conformal(X * 1e9).atypical(0.05).any()


# Edits


def test_what_is_added_is_known_and_what_is_forgotten_is_not(clf: DWACClassifier, tmp_path) -> None:
    model = copy_of(clf, tmp_path / "model")
    row = pd.DataFrame({"a": [1.0], "b": [2.0], "c": [-2.0]}, index=["new"])
    before = typical(model, row)[0]
    model.add_references(row, [True])
    known = typical(model, row)[0]
    assert known > 0.2 > before
    again = copy_of(model, tmp_path / "more")
    assert typical(again, row)[0] == known
    model.forget(["new"])
    assert typical(model, row)[0] == before
    with pytest.raises(dwac.errors.IdError):
        model.add_references(row, [True], ids=[model.references_.ids[0]])
    assert typical(model, row)[0] == before  # a refused edit changes nothing


def test_typicality_keeps_its_promise_whoever_is_forgotten_or_added(clf: DWACClassifier, tmp_path) -> None:
    # 800 calibration and 1,500 new rows: a deviation of .013.
    calibration, codes = two_sides(800, seed=5)
    model = copy_of(clf, tmp_path / "model").recalibrate(calibration, codes, ids=range(10_000, 10_800))
    X, _ = two_sides(1500, seed=3)
    model.forget(list(model.references_.ids[100:]))
    assert 0.03 < (typical(model, X) <= 0.1).mean() < 0.18
    more, labels = two_sides(900, seed=4)
    model.add_references(more.set_axis([f"new {i}" for i in range(900)]), labels)
    assert 0.03 < (typical(model, X) <= 0.1).mean() < 0.18


def test_removed_voters_are_not_known_and_their_ids_can_be_reused(clf: DWACClassifier, tmp_path) -> None:
    model, X = copy_of(clf, tmp_path / "model"), two_sides()[0]
    name = model.references_.ids[0]
    row = X.loc[[name]]

    def apart(rows: pd.DataFrame) -> float:
        known = model.fitted_.novelty.known
        assert known is not None
        return float(known.distance(_rows(model, rows)[1], model.references_.voters.ids)[0])

    assert apart(row) == 0
    model.references_.remove([name])
    assert apart(row) > 0
    again = copy_of(model, tmp_path / "again")
    np.testing.assert_array_equal(typical(again, X), typical(model, X))
    assert again.fitted_.novelty.known is not None
    assert len(again.fitted_.novelty.known) == len(again.references_)
    other = row + 0.7
    model.add_references(other, [True])
    assert apart(other) == 0 < apart(row)


def test_condensed_models_measure_the_distance_to_representatives(clf: DWACClassifier, tmp_path) -> None:
    few = clf.condense(30)
    X, _ = two_sides(1500, seed=3)
    found = typical(few, X)
    assert 0.03 < (found <= 0.1).mean() < 0.18
    far = X.iloc[:5] * 1e6
    np.testing.assert_array_equal(typical(few, far), 1 / (len(few.calibration_y_) + 1))
    alone, whole = (
        dwac.load(few.save(tmp_path / str(members), include_members=members), device="cpu") for members in (False, True)
    )
    np.testing.assert_array_equal(typical(alone, X), found)
    np.testing.assert_array_equal(typical(whole, X), found)
    assert alone.fitted_.novelty.known is not None
    assert len(alone.fitted_.novelty.known) == 30


# Folders


def test_it_survives_saving_and_loading(clf: DWACClassifier, letters: DWACClassifier, tmp_path) -> None:
    for place, (model, X) in enumerate(((clf, two_sides(50, seed=5)[0]), (letters, words(50, seed=5)[0]))):
        np.testing.assert_array_equal(typical(copy_of(model, tmp_path / str(place)), X), typical(model, X))


def test_without_examples_no_number_of_a_row_is_kept(clf: DWACClassifier, plain, tmp_path) -> None:
    X, _ = two_sides(50, seed=5)
    path = clf.save(tmp_path / "bare", include_examples=False)
    stored = storage.read_model(path)
    assert not [name for name in stored.tensors if name.startswith("known")]
    assert stored.tensors["calibration_z"].shape[1] == stored.tensors["validation_z"].shape[1] == 0
    assert stored.config["novelty"] is None
    bare = dwac.load(path, device="cpu")
    np.testing.assert_array_equal(bare.predict_proba(X), clf.predict_proba(X))
    np.testing.assert_array_equal(typical(bare, X), typical(plain, X))  # by the embedding alone, calibrated anew
    again = copy_of(bare, tmp_path / "again")
    np.testing.assert_array_equal(typical(again, X), typical(bare, X))


@pytest.mark.parametrize(
    "value",
    [1.0, [], [[0.0, 1.0]], [[0.0, 1.0], [0.0, -1.0]], [[0.0, 0.0], [0.0, 1.0]], [[0.0], "ab"], [[0, 1], [0, 1]]],
)
def test_a_hostile_novelty_is_rejected(clf: DWACClassifier, tmp_path, value) -> None:
    stored = storage.read_model(clf.save(tmp_path / "model"))
    config = {**stored.config, "novelty": value}
    path = storage.write_model(tmp_path / "forged", config, stored.tensors, stored.examples)
    with pytest.raises(StorageError):
        dwac.load(path, device="cpu")


def test_hostile_rows_of_novelty_are_rejected(clf: DWACClassifier, tmp_path) -> None:
    stored = storage.read_model(clf.save(tmp_path / "model"))
    without = {name: part for name, part in stored.tensors.items() if name != "known_z"}
    for config, tensors in (
        (stored.config, {**stored.tensors, "known_z": stored.tensors["known_z"][:, :1]}),
        (stored.config, {**stored.tensors, "calibration_z": stored.tensors["calibration_z"][:, :1]}),
        (stored.config, without),
    ):
        path = storage.write_model(tmp_path / "forged", config, tensors, stored.examples)
        with pytest.raises(StorageError):
            dwac.load(path, device="cpu")


# Odd data


def test_rows_that_all_repeat_are_typical_and_others_are_not() -> None:
    X, y = two_sides()
    few = X.assign(a=np.sign(X["a"]), b=0.0, c=0.0)
    clf = DWACClassifier(**SETTINGS).fit(few, y)
    assert (typical(clf, few) == 1).all()
    assert typical(clf, few.iloc[:1].assign(a=500.0))[0] < 0.05


def test_one_absurd_validation_row_does_not_disable_novelty(clf: DWACClassifier) -> None:
    X, _ = two_sides(200, seed=11)
    rows = [_held_out(clf, part) for part in (X, X.assign(a=[*X["a"][:-1], 1e300]))]
    found = [clf.fitted_.novelty.fit(clf.references_, part).usual for part in rows]
    assert found[0] is not None
    assert found[1] is not None
    np.testing.assert_allclose(found[0], found[1], rtol=0.2)


def test_typicality_without_validation_rows_learns_what_is_usual_from_voters() -> None:
    X, y = two_sides()
    clf = DWACClassifier(**SETTINGS, validation_size=0, calibration_size=100).fit(X, y)
    strange = X.assign(c=-X["c"])[X["b"].abs() > 0.5]
    assert typical(clf, strange).mean() < 0.05
    assert typical(clf, two_sides(500, seed=1)[0]).mean() > 0.4


@pytest.mark.parametrize("kernel", ["laplace", "inverse_quadratic"])
def test_every_kernel_has_typicality(kernel: str) -> None:
    X, y = two_sides(400)
    clf = DWACClassifier(**SETTINGS, kernel=kernel).fit(X, y)
    assert typical(clf, X * 1e6).max() == 1 / (len(clf.calibration_y_) + 1)
    assert typical(clf, two_sides(300, seed=1)[0]).mean() > 0.35


def test_unreadable_rows_are_not_typical() -> None:
    texts = ["a good film", "a bad film", "good fun", "bad luck"] * 30
    clf = DWACClassifier("text", **{**SETTINGS, "epochs": 2}).fit(texts, [0, 1, 0, 1] * 30)
    found = clf.conformal(["a good film", ""])
    assert found.typicality is not None
    assert found.atypical(0.05).tolist() == [False, True]
    assert np.isnan(found.typicality).tolist() == [False, True]
    assert clf.explain([""])[0].typicality is None


# The same everywhere


def test_explanations_and_predictions_show_the_same_typicality(clf: DWACClassifier) -> None:
    X, _ = two_sides(6, seed=1)
    found = typical(clf, X)
    assert [e.typicality for e in clf.explain(X)] == found.tolist()
    shown: Any = evaluation.predict(clf, X).conformal
    assert shown.typicality.tolist() == found.tolist()
    rounded: Any = evaluation.predict(clf, X, private=True).conformal
    private = rounded.typicality
    assert [e.typicality for e in clf.explain(X, private=True)] == private.tolist()
    assert ((private >= found) | (private == 1)).all()
    np.testing.assert_allclose(private * 100, np.round(private * 100))


@pytest.mark.slow
def test_the_explorer_compares_a_training_row_with_the_others(clf: DWACClassifier, tmp_path) -> None:
    explorer = pytest.importorskip("dwac.server.explorer.views")
    model, X = copy_of(clf, tmp_path / "model"), two_sides()[0]
    examples = explorer.LoadedExamples.of(model)
    for place, name in enumerate(model.references_.ids[:5]):
        without = deepcopy(clf).forget([name])
        want = without.fitted_.novelty.scores(without.references_, *_rows(without, X.loc[[name]]))
        np.testing.assert_allclose(examples.novelty[place], want[0], atol=1e-4)
    assert len(explorer.first_view(model, examples).predictions.conformal.typicality) == len(model.references_)


def test_known_words_in_an_order_nobody_writes_are_not_typical() -> None:
    rng = np.random.default_rng(0)
    who, does, what = (
        np.array(text.split()) for text in ("cats dogs birds fish", "like fear see eat", "milk meat corn")
    )
    often = rng.integers(0, 3, (400, 3))
    texts = [f"the {who[i]} that {does[j]} the {what[k]} sleep" for i, j, k in often]
    mixed = [" ".join(rng.permutation(text.split())) for text in texts[:100]]
    y = often[:300, 0] % 2
    clf = DWACClassifier("text", **SETTINGS, cross_fit=False).fit(texts[:300], y)
    assert typical(clf, texts[300:]).mean() > 0.4
    assert typical(clf, mixed).mean() < 0.05
    strange = [clf.encoder_.transform(some)[-1] for some in (texts[300:], mixed)]
    assert strange[0].max() < strange[1].min()
    known = clf.fitted_.novelty.known
    assert known is not None
    assert bool((known.z == 0).all())  # voters lack nothing
