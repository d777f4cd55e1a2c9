"""Several labels at once, and labels in an order: probabilities, decisions, sets, folders and bad input."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.metrics import f1_score

import dwac
from dwac import DWACClassifier, Training
from dwac.errors import InputError, LabelError, ShapeError
from dwac.metrics import missed_share
from dwac.tasks import class_target
from tests.estimator.helpers import fit_once
from tests.named import named, refuses, warns
from tests.steps import ALL, steps

pytestmark = pytest.mark.usefixtures("few_steps")

Floats = NDArray[np.float64]
QUICK: dict[str, Any] = {
    "epochs": 3,
    "training": Training(batch_size=32, learning_rate=1e-2),
    "random_state": 0,
    "device": "cpu",
}


def songs(n: int = 300, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Three moods that follow three columns, not independently."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["tempo", "mode", "loudness"], index=[f"s{i}" for i in range(n)])
    noise = 0.4 * rng.normal(size=(n, 3))
    Y = pd.DataFrame(
        {
            "happy": X["tempo"] + X["mode"] + noise[:, 0] > 0,
            "calm": X["loudness"] + noise[:, 1] < -0.3,
            "sad": X["mode"] + noise[:, 2] < -0.6,
        }
    )
    return X, Y.astype(int)


@pytest.fixture(scope="module")
def crossed_labels() -> DWACClassifier:
    with warnings.catch_warnings(), steps(ALL):
        warnings.simplefilter("ignore")  # rows without a label are said, and tested below
        return DWACClassifier(random_state=0, device="cpu").fit(*songs())


@pytest.fixture(scope="module")
def split_labels() -> DWACClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DWACClassifier(
            cross_fit=False, epochs=8, training=Training(learning_rate=1e-2), random_state=0, device="cpu"
        ).fit(*songs(700))


def test_labels_are_predicted_from_the_same_votes(crossed_labels, split_labels) -> None:
    X, Y = songs(200, seed=1)
    for clf in (crossed_labels, split_labels):
        found = clf.predict(X)
        assert found.shape == (200, 3)
        assert f1_score(Y, found, average="micro") > 0.8
        np.testing.assert_array_equal(found, clf.predict_proba(X) >= 0.5)
        assert clf.score(X, Y) == pytest.approx((found == Y.to_numpy()).all(axis=1).mean())
        assert clf.classes_.tolist() == ["happy", "calm", "sad"]


def test_a_label_has_the_share_of_the_votes_of_those_who_have_it(split_labels) -> None:
    X, _ = songs(4, seed=2)
    refs = split_labels.references_
    held = split_labels.target_.table[refs.labels.numpy()]
    for row, p in zip(split_labels.embed(X), split_labels.predict_proba(X), strict=True):
        squared = np.square(row.astype(float) - refs.embeddings.numpy().astype(float)).sum(axis=1)
        log_w = refs.voters.log_weights_at(torch.as_tensor(squared)).numpy()
        w = np.exp(log_w - log_w.max())
        np.testing.assert_allclose(p, w @ held / w.sum(), atol=1e-4)


def test_decisions_are_wrong_at_most_as_often_as_allowed(split_labels) -> None:
    X, Y = songs(3000, seed=3)
    decided = split_labels.conformal(X).decisions(0.1)
    assert set(np.unique(decided)) <= {-1, 0, 1}
    truth = Y.to_numpy()
    for label in range(3):
        for has in (0, 1):
            own = truth[:, label] == has
            wrong = ((decided[:, label] == 1 - has) & own).sum() / own.sum()
            assert wrong < 0.1 + 0.12  # 70 calibration rows: three standard deviations of the beta law


def test_sets_miss_few_labels(crossed_labels, split_labels) -> None:
    X, Y = songs(1500, seed=4)
    for clf in (crossed_labels, split_labels):
        sets = clf.predict_set(X, 0.1)
        assert sets.dtype == bool
        assert missed_share(Y, sets) < 0.17
    certain, seen = split_labels.expected_sets(0.1), crossed_labels.expected_sets(0.1)
    assert named(certain, "10.0 %", "miss")
    assert not named(certain, "not guaranteed")
    assert named(seen, "10.0 %", "missed", "on average", "not guaranteed")


def test_unlike_rows_are_atypical_and_unreadable_ones_undecided(crossed_labels) -> None:
    far = pd.DataFrame({"tempo": [60.0], "mode": [-80.0], "loudness": [90.0]})
    assert crossed_labels.conformal(far).typicality[0] < 0.05
    texts = [["loud", "bright"], ["quiet"]] * 30
    clf = DWACClassifier(**QUICK).fit(["a loud bright day", "a quiet night"] * 30, texts)
    with warns(UserWarning, "1 of 2"):
        assert clf.predict(["", "a quiet night"]).shape == (2,)
    found = clf.conformal(["", "a quiet night"])
    assert np.isnan(found.typicality[0])
    assert (found.decisions(0.4)[0] == -1).all()


def test_lists_are_answered_with_tuples_of_labels() -> None:
    X, Y = songs(120)
    lists = [[name for name in Y.columns if row[name]] for _, row in Y.iterrows()]
    with warns(UserWarning, 120):
        clf = DWACClassifier(**QUICK).fit(X, lists)
    assert clf.classes_.tolist() == ["calm", "happy", "sad"]
    found = clf.predict(X)
    assert all(isinstance(row, tuple) and set(row) <= {"calm", "happy", "sad"} for row in found)
    assert clf.score(X, lists) == pytest.approx(np.mean([set(a) == set(b) for a, b in zip(found, lists, strict=True)]))


@pytest.mark.parametrize("form", [np.asarray, lambda Y: Y.to_numpy().tolist(), lambda Y: csr_array(Y.to_numpy())])
@pytest.mark.filterwarnings("ignore")
def test_every_form_of_indicators_gives_the_same_model(form) -> None:
    X, Y = songs(80)
    wanted = fit_once(DWACClassifier(**QUICK), X, Y).predict_proba(X)
    np.testing.assert_array_equal(DWACClassifier(**QUICK).fit(X, form(Y)).predict_proba(X), wanted)


def test_a_saved_model_says_the_same(crossed_labels, split_labels, tmp_path) -> None:
    X, _ = songs(40, seed=5)
    for name, clf in (("crossed", crossed_labels), ("split", split_labels)):
        again = dwac.load(clf.save(tmp_path / name), device="cpu")
        np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
        np.testing.assert_array_equal(again.conformal(X).p_yes, clf.conformal(X).p_yes)
        np.testing.assert_array_equal(again.predict_set(X, 0.2), clf.predict_set(X, 0.2))


@pytest.mark.filterwarnings("ignore")
def test_voters_come_and_go_with_label_sets_that_nobody_had() -> None:
    X, Y = songs(150)
    clf = DWACClassifier(random_state=0, device="cpu").fit(X[Y.sum(axis=1) < 3], Y[Y.sum(axis=1) < 3])
    n, before = len(clf.references_), clf.predict_proba(X[:5])
    new = X[:1].set_axis(["new"])
    clf.add_references(new, pd.DataFrame([[1, 1, 1]], columns=Y.columns))
    assert len(clf.references_) == n + 1
    assert (clf.predict_proba(new) > before[:1]).any()
    clf.forget(["new"])
    np.testing.assert_allclose(clf.predict_proba(X[:5]), before, atol=1e-6)
    few = clf.condense(40)
    assert few.predict_proba(X).shape == (150, 3)


@pytest.mark.parametrize(
    ("change", "error", "facts"),
    [
        (lambda Y: Y.assign(happy=2), LabelError, ["row 0", "'happy'", "2", "DWACRegressor"]),
        (lambda Y: Y.assign(happy="yes"), LabelError, ["row 0", "'happy'", "'yes'"]),
        (lambda Y: Y * 0, LabelError, ["y", "constant"]),
        (lambda Y: Y[:10], ShapeError, ["60 rows", "10"]),
        (lambda Y: [[] for _ in range(len(Y))], LabelError, ["at least one label", "empty"]),
    ],
)
def test_bad_labels_are_refused_in_a_sentence(change, error, facts) -> None:
    X, Y = songs(60)
    with refuses(error, *facts):
        DWACClassifier(**QUICK).fit(X, change(Y))


def test_constant_labels_and_rows_without_any_are_said() -> None:
    X, Y = songs(60)
    with warns(UserWarning, "loud"):
        clf = DWACClassifier(**QUICK).fit(X, Y.assign(loud=1))
    with warns(UserWarning, 60):
        DWACClassifier(**QUICK).fit(X, Y)
    assert (clf.predict_proba(X)[:, 3] == 1).all()


@pytest.mark.filterwarnings("ignore")
def test_settings_for_one_label_are_refused() -> None:
    X, Y = songs(60)
    with refuses(InputError, "class_weight"):
        DWACClassifier(class_weight="balanced", **QUICK).fit(X, Y)
    with refuses(InputError, "ordered=True"):
        DWACClassifier(ordered=True, **QUICK).fit(X, Y)
    with refuses(InputError, "ordered", "auto"):
        DWACClassifier(ordered="yes", **QUICK).fit(X, Y)


@pytest.mark.filterwarnings("ignore:.* have no label at all")
def test_rows_of_labels_may_come_in_any_container() -> None:
    X, Y = songs(80)
    lists = [[name for name in Y.columns if row[name]] for _, row in Y.iterrows()]
    cells = np.empty(len(lists), dtype=object)
    cells[:] = lists
    clf = DWACClassifier(**QUICK).fit(X, lists)
    again = DWACClassifier(**QUICK).fit(X, cells)
    assert again.target_.listed
    assert again.predict(X).tolist() == clf.predict(X).tolist()
    assert clf.score(X, clf.predict(X)) == 1.0  # what it answers is what it takes
    assert clf.score(X, cells) == clf.score(X, lists)
    tensors = DWACClassifier(**QUICK).fit(X, [torch.tensor(row) for row in Y.to_numpy()])
    table = DWACClassifier(**QUICK).fit(X, Y.to_numpy())
    np.testing.assert_array_equal(tensors.predict_proba(X), table.predict_proba(X))


@pytest.mark.filterwarnings("ignore:.* have no label at all")
@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
def test_a_model_of_a_table_reads_lists_of_0_and_1_as_its_rows() -> None:
    X, Y = songs(80)
    table = Y[["happy", "calm"]].to_numpy()
    clf = DWACClassifier(**QUICK).fit(X, table)
    row = [[0, 1]]  # no row twice the same: it could also name the labels 0 and 1
    clf.add_references(X[:1], row, ids=["new"])
    assert clf.target_.outcomes[int(clf.references_.labels[-1])] == (1,)
    assert clf.score(X[:1], row) == clf.score(X[:1], np.array(row))
    found = dwac.estimator.evaluation.predict(clf, X[:1])
    assert found.evaluate(row).hamming_loss == found.evaluate(np.array(row)).hamming_loss


@pytest.mark.filterwarnings("ignore:.* have no label at all")
def test_what_is_no_list_of_labels_is_named() -> None:
    X, Y = songs(60)
    lists = [[name for name in Y.columns if row[name]] for _, row in Y.iterrows()]
    with refuses(LabelError, "row 2", "None"):
        DWACClassifier(**QUICK).fit(X, [*lists[:2], [None], *lists[3:]])
    clf = DWACClassifier(**QUICK).fit(X, lists)
    with refuses(LabelError, "row 0", "happy"):
        clf.score(X[:2], ["happy", "calm"])
    with refuses(LabelError, "row 0 is 0"):
        clf.score(X[:2], torch.tensor([0, 1]))
    with refuses(ShapeError, (2, 3, 1)):
        clf.score(X[:2], np.zeros((2, 3, 1)))
    gaps = Y.astype("boolean")
    gaps.loc[gaps.index[5], "calm"] = pd.NA
    with refuses(LabelError, "row 5", "calm", "NA"):
        DWACClassifier(**QUICK).fit(X, gaps)


def test_private_probabilities_are_those_of_explanations(crossed_labels) -> None:
    X, _ = songs(200, seed=5)
    found = dwac.estimator.evaluation.predict(crossed_labels, X, private=True)
    exact = crossed_labels.predict_proba(X)
    assert np.abs(found.probabilities - exact).max() <= 0.005 + 1e-9
    for each, row in zip(crossed_labels.explain(X[:20], private=True), found.probabilities, strict=False):
        assert list(each.probabilities.values()) == row.tolist()
    assert (found.sets(0.1) >= crossed_labels.predict_set(X, 0.1)).all()


# Labels in an order


def stars(n: int = 300, seed: int = 0) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    level = np.clip(np.round(2 + 1.2 * X["a"] + 0.5 * rng.normal(size=n)), 0, 4).astype(int)
    return X, level


def test_sets_of_ordered_labels_are_intervals() -> None:
    X, y = stars()
    clf = DWACClassifier(ordered=True, random_state=0, device="cpu").fit(X, y)
    new, truth = stars(400, seed=1)
    sets = clf.predict_set(new, 0.1)
    gaps = (np.diff(sets.astype(int), axis=1) == 1).sum(axis=1) + sets[:, 0]
    assert (gaps <= 1).all()
    assert sets[np.arange(400), truth].mean() > 0.85
    assert clf.target_.kind == "ordered"


def test_an_ordered_categorical_has_its_own_order(tmp_path) -> None:
    X, y = stars()
    names = np.array(["awful", "bad", "fair", "good", "great"])
    words = pd.Series(pd.Categorical(names[y], categories=names[::-1], ordered=True))
    clf = DWACClassifier(**QUICK | {"epochs": 12}).fit(X, words)
    assert clf.classes_.tolist() == names[::-1].tolist()
    assert clf.target_.kind == "ordered"
    assert clf.score(X, words) > 0.5
    again = dwac.load(clf.save(tmp_path / "model"), device="cpu")
    assert again.target_.kind == "ordered"
    np.testing.assert_array_equal(again.predict_set(X, 0.2), clf.predict_set(X, 0.2))
    plain = DWACClassifier(ordered=False, **QUICK).fit(X, words)
    assert plain.target_.kind == "classes"
    assert plain.classes_.tolist() == sorted(names)


def test_ordered_training_is_by_how_far_off_a_prediction_is() -> None:
    """The loss of a model's own predictions is the ranked probability score, in units of that of the shares."""
    target = class_target(np.arange(4), ordered=True)
    codes = np.array([0, 1, 1, 2, 3, 3])
    values = np.asarray(target.loss(codes).averaged, dtype=np.float64)
    p = np.array([0.1, 0.2, 0.3, 0.4])
    shares = np.bincount(codes) / len(codes)

    def rps(q: Floats, y: int) -> float:
        return float(np.sum((np.cumsum(q)[:-1] - (y <= np.arange(3))) ** 2))

    unit = np.mean([rps(shares, y) for y in codes])
    for y in range(4):
        assert np.square(p @ values - values[y]).sum() == pytest.approx(rps(p, y) / unit, rel=1e-6)
