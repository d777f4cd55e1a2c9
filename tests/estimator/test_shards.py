"""Exact deletion: after `forget(ids, exact=True)` every bit is what `fit` gives without these rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

import dwac
from dwac.encoders import TabularEncoder
from dwac.errors import IdError, InputError, LabelError
from dwac.estimator import saving
from dwac.estimator.certificate import Certificate, fingerprint
from dwac.estimator.fit import sharded
from dwac.estimator.loading import unpack_shards
from dwac.estimator.shards import CALIBRATION, TRAINING, VALIDATION, as_stored, deal
from dwac.storage import read_model
from tests.named import refuses, warns

QUICK: dict[str, Any] = {"shards": 2, "random_state": 0, "epochs": 1, "device": "cpu", "verbose": False}
PAPER: dict[str, Any] = QUICK | {"encoder": "tabular:paper"}  # a smaller network


def table(n: int = 300) -> tuple[pd.DataFrame, pd.Series]:
    """Numbers, texts, gaps and categories, by name; three classes, one of which is rare."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.choice(list("xyz"), n), "c": rng.integers(0, 4, n)})
    X.loc[::7, "a"] = np.nan
    X["d"] = np.array(["one", "two", None], dtype=object)[rng.integers(0, 3, n)]
    X["e"] = pd.Categorical(rng.choice(["p", "q"], n), categories=["q", "p", "nobody's"])
    X.index = pd.Index([f"row {i}" for i in range(n)])
    y = np.where(X["a"].fillna(0) + (X["b"] == "x") > 0.4, "yes", "no").astype(object)
    y[[50, 150]] = "rare"
    return X, pd.Series(y, index=X.index)


def state(clf: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any], pd.DataFrame, pd.DataFrame | None]:
    """All that a folder would hold, except how long training took and what was deleted."""
    config, tensors, examples, rows = saving.pack(clf, include_examples=True)
    config["history"].pop("seconds")
    return tensors, {name: value for name, value in config.items() if name != "deletions"}, examples, rows


def assert_same(one: Any, other: Any) -> None:
    """Every tensor byte by byte, every setting, every record."""
    tensors, config, examples, rows = state(one)
    others, other_config, other_examples, other_rows = state(other)
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        assert tensor.dtype == others[name].dtype, name
        assert tensor.shape == others[name].shape, name
        assert tensor.contiguous().numpy().tobytes() == others[name].contiguous().numpy().tobytes(), name
    assert config == other_config
    pd.testing.assert_frame_equal(examples, other_examples, check_index_type=False)
    assert rows is not None
    assert other_rows is not None
    pd.testing.assert_frame_equal(rows, other_rows, check_index_type=False)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier in a folder."""
    X, y = table()
    return dwac.DWACClassifier(**PAPER).fit(X, y).save(tmp_path_factory.mktemp("shards") / "model")


def loaded(saved: Path) -> Any:
    return dwac.load(saved, device="cpu")


def some_id(clf: Any, role: int, shard: int) -> str:
    """A row of a common class."""
    rows = clf.fitted_.shards.rows
    here = (rows.role == role) & (rows.shard == shard) & (clf.classes_[rows.codes] != "rare")
    return str(rows.ids[here][3])


@pytest.mark.parametrize(
    ("roles", "trained"),
    [
        ([(TRAINING, 0)], [0]),
        ([(TRAINING, 0), (TRAINING, 1)], [0, 1]),
        ([(VALIDATION, 1)], [1]),
        ([(CALIBRATION, 0)], []),
    ],
)
def test_deletion_ends_where_fit_without_the_rows_does(
    saved: Path, roles: list[tuple[int, int]], trained: list[int]
) -> None:
    X, y = table()
    clf, before = loaded(saved), loaded(saved)
    gone = [some_id(clf, *role) for role in roles]
    clf.forget(gone, exact=True)
    assert_same(clf, dwac.DWACClassifier(**PAPER).fit(X.drop(gone), y.drop(gone)))
    certificate = clf.deletions_[-1]
    assert [each.shard for each in certificate.retrained] == trained
    for shard in {0, 1} - set(trained):
        known, now = (list(each.model_.backbone.members[shard].parameters()) for each in (before, clf))
        assert all(torch.equal(a, b) for a, b in zip(known, now, strict=True))


def test_deletion_does_not_depend_on_the_folder_or_on_threads(saved: Path) -> None:
    X, y = table()
    clf, other = dwac.DWACClassifier(**PAPER).fit(X, y), loaded(saved)
    assert_same(clf, other)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        other.forget([some_id(other, TRAINING, 1)], exact=True)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert_same(clf.forget([some_id(clf, TRAINING, 1)], exact=True), other)


def test_votes_go_first_and_networks_are_trained_later(saved: Path, tmp_path: Path) -> None:
    X, y = table()
    clf = loaded(saved)
    gone = [some_id(clf, TRAINING, 0), some_id(clf, VALIDATION, 1)]
    with warns(UserWarning, "2 of 2"):
        clf.forget(gone)
    again = loaded(clf.save(tmp_path / "stale"))
    assert not set(gone) & set(again.fitted_.shards.rows.ids)
    again.forget([], exact=True)
    assert all(again.deletions_[-1].covers(name) for name in gone)
    assert len(again.deletions_[-1].ids) == 2
    assert_same(again, dwac.DWACClassifier(**PAPER).fit(X.drop(gone), y.drop(gone)))


def test_nothing_of_a_row_is_left(saved: Path, tmp_path: Path) -> None:
    clf = loaded(saved)
    gone = [some_id(clf, TRAINING, 0), some_id(clf, VALIDATION, 0), some_id(clf, CALIBRATION, 1)]
    folder = clf.forget(gone, exact=True).save(tmp_path / "without")
    for path, there in ((saved, True), (folder, False)):
        stored = read_model(path)
        assert stored.examples is not None
        assert stored.all_rows is not None
        assert set(gone) <= set(stored.all_rows.index) if there else not set(gone) & set(stored.all_rows.index)
        assert (gone[0] in stored.examples.index) is there
        assert all((f'"{name}"' in json.dumps(stored.config)) is there for name in gone[1:])


def test_a_category_goes_with_the_last_row_that_has_it(tmp_path: Path) -> None:
    X, y = table()
    X["e"] = X["e"].cat.add_categories("Ann Smith")
    X.loc["row 9", "e"] = "Ann Smith"
    clf = dwac.DWACClassifier(**PAPER).fit(X, y).forget(["row 9"], exact=True)
    assert_same(clf, dwac.DWACClassifier(**PAPER).fit(X.drop("row 9"), y.drop("row 9")))
    clf.save(tmp_path / "model")
    rows = read_model(tmp_path / "model").all_rows
    assert rows is not None
    assert set(rows["e"].cat.categories) == {"p", "q"}


def test_the_last_row_of_a_class_takes_the_class_with_it(saved: Path) -> None:
    X, y = table()
    clf, gone = loaded(saved), y.index[y == "rare"].tolist()
    with warns(UserWarning, "label", 2):
        clf.forget(gone, exact=True)
    assert clf.classes_.tolist() == ["no", "yes"]
    assert len(clf.deletions_[-1].retrained) == 2
    assert_same(clf, dwac.DWACClassifier(**PAPER).fit(X.drop(gone), y.drop(gone)))
    with refuses(LabelError, "class"):
        clf.forget(y.index[y == "no"].tolist(), exact=True)


def test_a_label_of_a_list_goes_with_the_last_row_that_has_it() -> None:
    X, y = table()
    lists = [[label, *(["x"] if b == "x" else [])] for label, b in zip(y, X["b"], strict=True)]
    clf, gone = dwac.DWACClassifier(**PAPER).fit(X, lists), y.index[y == "rare"].tolist()
    with warns(UserWarning, "label", 2):
        clf.forget(gone, exact=True)
    kept = [labels for labels in lists if "rare" not in labels]
    assert_same(clf, dwac.DWACClassifier(**PAPER).fit(X.drop(gone), kept))


def numbers() -> tuple[Any, Any, Any, dict[str, Any]]:
    X, _ = table()
    rng = np.random.default_rng(1)
    given = {"sample_weight": rng.uniform(1, 2, len(X)), "within": np.array(list("pq"))[rng.integers(0, 2, len(X))]}
    return (
        dwac.DWACRegressor(**QUICK),
        X.drop(columns="d"),
        10 * X["a"].fillna(0).to_numpy() + rng.normal(size=300),
        given,
    )


def labels() -> tuple[Any, Any, Any, dict[str, Any]]:
    X, y = table()
    return dwac.DWACClassifier(**QUICK), X, np.stack([y == "yes", y != "yes", X["b"] == "x"], axis=1).astype(int), {}


def texts() -> tuple[Any, Any, Any, dict[str, Any]]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 180)
    words = np.array([["good", "fine", "nice", "kind"], ["bad", "poor", "dull", "rude"]])
    X = [f"{' '.join(rng.choice(words[label], 3))} {rng.choice(['film', 'book'])}" for label in y]
    return dwac.DWACClassifier(**QUICK), X, y, {}


def images() -> tuple[Any, Any, Any, dict[str, Any]]:
    digits = load_digits(n_class=2)
    return dwac.DWACClassifier(**QUICK), digits.images[:180], digits.target[:180], {}


@pytest.mark.parametrize(
    "case", [numbers, labels, *(pytest.param(each, marks=pytest.mark.slow) for each in (texts, images))]
)
def test_every_kind_of_target_and_data(case: Callable[[], Any], tmp_path: Path) -> None:
    clf, X, y, given = case()
    ids = X.index.to_numpy() if isinstance(X, pd.DataFrame) else np.arange(len(X))
    clf.fit(X, y, ids=ids, **given)
    folder = clf.save(tmp_path / "model")
    gone = [clf.references_.ids[4], clf.calibration_ids_[2]]
    clf = dwac.load(folder, device="cpu").forget(gone, exact=True)
    kept = np.flatnonzero(~np.isin(ids, gone))
    X = X.iloc[kept] if isinstance(X, pd.DataFrame) else [X[row] for row in kept] if isinstance(X, list) else X[kept]
    again = case()[0].fit(X, y[kept], ids=ids[kept], **{name: part[kept] for name, part in given.items()})
    assert_same(clf, again)
    assert clf.deletions_[-1].verify(again)
    clf.explain(X[:2], k=2)


def test_a_model_without_held_out_rows_forgets_exactly() -> None:
    X, y = table()
    settings = PAPER | {"validation_size": 0, "calibration_size": 0}
    clf = dwac.DWACClassifier(**settings).fit(X, y).forget(["row 7"], exact=True)
    assert_same(clf, dwac.DWACClassifier(**settings).fit(X.drop("row 7"), y.drop("row 7")))


def test_a_condensed_model_says_where_to_forget_exactly(saved: Path) -> None:
    small = dwac.load(saved).condense(10).set_params(shards=None)  # which is for the next fit
    with warns(UserWarning, 2, "condensed"):
        small.forget([small.references_.ids[0]])


def test_row_numbers_keep_their_rows() -> None:
    shard, role = deal(pd.RangeIndex(200), 3, 4, 0.1, 0.2)
    fewer, fewer_roles = deal(pd.Index([150, 7, 11]), 3, 4, 0.1, 0.2)
    assert fewer.tolist() == shard[[150, 7, 11]].tolist()
    assert deal(pd.Index([np.int64(150)], dtype=object), 3, 4, 0.1, 0.2)[0] == shard[150]
    assert fewer_roles.tolist() == role[[150, 7, 11]].tolist()
    assert set(shard) == {0, 1, 2, 3}
    assert 10 < (role == VALIDATION).sum() < 35
    assert 20 < (role == CALIBRATION).sum() < 60
    assert (deal(pd.RangeIndex(200), 4, 4, 0.1, 0.2)[0] != shard).any()


def test_stored_rows_are_stored_as_they_are() -> None:
    once = as_stored(table()[0])
    pd.testing.assert_frame_equal(as_stored(once), once)


# The certificate


def test_the_certificate_says_what_was_done_and_names_nobody(saved: Path, tmp_path: Path) -> None:
    clf = loaded(saved)
    before, gone = fingerprint(clf.fitted_), some_id(clf, TRAINING, 1)
    certificate = clf.forget([gone], exact=True).deletions_[-1]
    (trained,) = certificate.retrained
    rows = clf.fitted_.shards.rows.of(1)
    assert (trained.seed, trained.rows, trained.rows_sha256) == (
        clf.fitted_.shards.seed_of(1),
        len(rows),
        rows.digest(),
    )
    assert trained.before != trained.after
    assert (certificate.before, certificate.after) == (before, fingerprint(clf.fitted_))
    assert certificate.covers(gone)
    assert not certificate.covers("row 0" if gone != "row 0" else "row 1")
    path = certificate.save(tmp_path / "certificate.json")
    assert gone not in path.read_text()
    assert Certificate.read(path) == certificate == loaded(clf.save(tmp_path / "model")).deletions_[-1]
    assert {"python", "dwac", "torch", "numpy"} < set(certificate.versions)
    assert (certificate.shards, certificate.rows, certificate.device) == (2, 299, "cpu")


def test_a_model_that_saw_the_row_does_not_pass_for_one_that_did_not(saved: Path) -> None:
    clf = loaded(saved)
    gone = [some_id(clf, TRAINING, 0)]
    certificate = loaded(saved).forget(gone, exact=True).deletions_[-1]
    assert not certificate.verify(clf)
    with warns(UserWarning, "1 of 2"):
        clf.forget(gone)
    assert not certificate.verify(clf)
    assert certificate.verify(clf.forget([], exact=True))


# What cannot be


def test_an_interrupted_deletion_leaves_the_model_as_it_was(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clf = loaded(saved)
    gone, before = [some_id(clf, TRAINING, 0), some_id(clf, TRAINING, 1)], fingerprint(clf.fitted_)
    members = clf.model_.backbone.members

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(sharded, "_join_members", interrupted)
    with pytest.raises(KeyboardInterrupt):
        clf.forget(gone, exact=True)
    assert fingerprint(clf.fitted_) == before
    assert clf.model_.backbone.members is members
    assert clf.deletions_ == []
    assert set(gone) < set(clf.references_.ids)
    assert set(gone) < set(clf.fitted_.shards.rows.ids)


def test_training_that_is_stopped_is_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(self: Any, *given: Any, **options: Any) -> pd.DataFrame:
        history = pd.DataFrame({"epoch": [1]})
        history.attrs["ended"] = "interrupted"
        return history

    monkeypatch.setattr(sharded, "train", stopped)
    with pytest.raises(KeyboardInterrupt):
        dwac.DWACClassifier(**PAPER).fit(*table())


def test_exact_deletion_says_what_it_needs(saved: Path, tmp_path: Path) -> None:
    X, y = table()
    whole = dwac.DWACClassifier(**PAPER | {"shards": None}).fit(X, y)
    clf = loaded(saved)
    gone = [some_id(clf, TRAINING, 0)]
    with refuses(InputError, "shards=4"):
        whole.forget([whole.references_.ids[0]], exact=True)
    with refuses(InputError, "examples"):
        dwac.load(clf.save(tmp_path / "private", include_examples=False), device="cpu").forget(gone, exact=True)
    with refuses(InputError, "exact", "all voters", "condensed"):
        clf.condense(20).forget(gone, exact=True)
    with refuses(IdError, "nobody"):
        clf.forget(["nobody"], exact=True)
    with refuses(InputError, "voters", "calibration"):
        loaded(saved).add_references(X[:1], y[:1], ids=["new"]).forget(gone, exact=True)
    with refuses(InputError, "voters", "calibration"):
        loaded(saved).recalibrate(X[:9], y[:9], ids=range(9)).forget(gone, exact=True)
    changed = loaded(saved)
    voter = changed.references_.ids[0]
    changed.references_.relabel([voter], (changed.references_.labels[:1] + 1) % 2)
    with refuses(InputError, "voters", "labels"):
        changed.forget(gone, exact=True)
    assert fingerprint(clf.fitted_) == fingerprint(loaded(saved).fitted_)


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"shards": 1}, ["shards", "2", "1"]),
        ({"training": dwac.Training(ensemble_size=2)}, ["shards", "ensemble_size", "2"]),
        ({"cross_fit": True}, ["shards", "cross_fit", "True"]),
        ({"voters": 20}, ["shards", "voters", "20"]),
        ({"checkpoint": "file"}, ["shards", "checkpoint", "'file'"]),
        ({"calibration_size": 50}, ["calibration_size", "[0, 1)", "50"]),
        ({"validation_size": 0.5, "calibration_size": 0.5}, ["shards", "validation_size", "calibration_size"]),
        ({"shards": 9}, ["9 shards", "50", "shard 0", "300"]),
        ({"encoder": torch.nn.Linear(4, 2)}, ["shards", "tables", "texts", "images", "network"]),
    ],
)
def test_settings_that_would_break_the_promise_are_refused(settings: dict[str, Any], facts: list[object]) -> None:
    with refuses(InputError, *facts):
        dwac.DWACClassifier(**QUICK | settings).fit(*table())


def test_data_that_one_row_could_change_for_all_are_refused() -> None:
    X, y = table()
    with refuses(InputError, "d", "int", "str"):
        dwac.DWACClassifier(**QUICK).fit(X.assign(d=[1, *["a"] * 299]), y)
    with refuses(InputError, "batches"):
        dwac.DWACClassifier(**QUICK).fit(iter([(X, y)]))
    pictures = pytest.importorskip("PIL.Image")
    with refuses(InputError, "array"):
        dwac.DWACClassifier(**QUICK).fit([pictures.new("L", (8, 8))] * 10, [0, 1] * 5)


def test_a_folder_whose_rows_do_not_fit_is_refused(saved: Path) -> None:
    _, tensors, _, frame = saving.pack(loaded(saved), include_examples=True)
    config = json.loads((saved / "model.json").read_text())["config"]["shards"]
    assert unpack_shards(config, tensors, frame) is not None
    for broken in ({"n": 1}, {"stale": [7]}, {"seed": "0"}, {"pending": [7]}):
        with pytest.raises((InputError, dwac.errors.StorageError)):
            unpack_shards(config | broken, tensors, frame)
    with refuses(dwac.errors.StorageError, "rows"):
        unpack_shards(config, tensors, None if frame is None else frame[1:])
    with refuses(dwac.errors.StorageError, "file of the rows", "missing"):
        unpack_shards(config, tensors, None)


@pytest.mark.filterwarnings("ignore:the calibration set is too small")
def test_a_category_that_one_shard_never_had_is_known_and_one_that_none_had_is_not() -> None:
    X, y = table()
    shards = dwac.DWACClassifier(**QUICK).fit(X, y).fitted_.shards
    assert shards is not None
    assert shards.rows is not None
    shard = pd.Series(shards.rows.shard, index=shards.rows.ids).reindex(X.index)
    X["rare"] = np.where(shard == 0, "here", np.where(np.arange(len(X)) % 2, "there", "elsewhere"))
    clf = dwac.DWACClassifier(**QUICK).fit(X, y)
    new = X[:4].assign(rare=["here", "there", "nowhere", "elsewhere"])
    assert clf.predict_proba(new).shape == (4, 3)
    notes = clf.observe(new).notes
    assert notes is not None
    assert notes.tolist() == [None, None, "rare=nowhere", None]
    gap = clf.predict_proba(new.assign(rare=None))
    np.testing.assert_array_equal(clf.predict_proba(new)[2], gap[2])


@pytest.mark.filterwarnings("ignore:the calibration set is too small")
def test_networks_of_numbers_ignore_the_columns_that_are_named() -> None:
    X, _ = table()
    y, other = X["c"] + X["a"].fillna(0), X.assign(c=X["c"].to_numpy()[::-1])
    reg = dwac.DWACRegressor(training=dwac.Training(ignored="c"), **QUICK).fit(X, y)
    encoder = reg.encoder_
    assert isinstance(encoder, TabularEncoder)
    assert [column.name for column in encoder.columns if column.used] == ["a", "b", "d", "e"]
    np.testing.assert_array_equal(reg.predict(other), reg.predict(X))
