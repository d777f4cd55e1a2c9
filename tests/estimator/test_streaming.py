"""Fitting on rows that are read in batches: what counts is exact, what is held out stays so, nothing is left behind."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import torch

import dwac
from dwac import DWACClassifier, DWACRegressor, Training
from dwac.encoders import TabularEncoder, TextEncoder
from dwac.errors import InputError, LabelError, NonFiniteError, ShapeError
from dwac.estimator.condensing import Condenser, count_votes
from dwac.estimator.fit import passes, stream
from dwac.estimator.fit.streams import Roles, open_dataset, stream_of
from tests.named import named, refuses, warns

N = 5_000
SMALL = TabularEncoder(width=16, depth=1, frequencies=4)
SETTINGS: dict[str, Any] = {
    "encoder": SMALL, "epochs": 2, "random_state": 0, "device": "cpu", "verbose": False,
    "validation_size": 300, "calibration_size": 400,
    "training": Training(embedding_size=4, batch_size=256, learning_rate=0.03),
}  # fmt: skip


def people(n: int = N, seed: int = 0) -> pd.DataFrame:
    """A table, sorted by label: the hardest order for whoever reads it in blocks."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(size=n),
            "pulse": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "town": rng.choice(["east", "west"], n),
        }
    )
    score = frame["age"] + 0.3 * rng.normal(size=n)
    frame["price"] = score
    frame["name"] = [f"p{i}" for i in rng.permutation(n)]
    frame["label"] = np.array(["ill", "unclear", "well"])[np.digitize(score, [-0.5, 0.5])]
    frame.loc[frame.index[:3], "label"] = "rare"
    return frame.sort_values("label", ignore_index=True)


FRAME = people()
FEATURES = ["age", "pulse", "town"]
NEW = people(200, seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("rows")
    for number, part in enumerate(np.array_split(np.arange(N), 3)):
        table = pa.Table.from_pandas(FRAME.iloc[part], preserve_index=False)
        pq.write_table(table, found / f"{number}.parquet", row_group_size=400)
    return found


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Temporary files go where they can be seen, and are gone after every test, whatever happened in it."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    yield
    assert list((tmp_path / "temporary").glob("dwac-*")) == []


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if memory were small: most rows are seen in passing only."""
    monkeypatch.setattr(passes, "SAMPLE", 1_200)
    monkeypatch.setattr(stream, "VOTERS", 600)


def rows(*features: str, label: str = "label") -> pads.Dataset:
    return pads.InMemoryDataset(pa.Table.from_pandas(FRAME[[*features, label]], preserve_index=False))


@pytest.fixture(scope="module")
def plain() -> DWACClassifier:
    """Of all rows and default voters; no test edits it."""
    return DWACClassifier(**SETTINGS).fit(rows(*FEATURES), "label")


# Who votes


@pytest.mark.usefixtures("sampled")
def test_representatives_vote_for_every_training_row(tmp_path: Path, folder: Path) -> None:
    clf = DWACClassifier(voters=40, **SETTINGS).fit(stream_of(open_dataset(folder), roles("label")), None)
    references, held = clf.references_, {*clf.validation_ids_, *clf.calibration_ids_}
    assert len(clf.validation_ids_) == 300
    assert len(clf.calibration_ids_) == 400
    assert len(held) == 700
    assert not held & set(references.ids.tolist())
    assert 36 <= len(references) <= 44
    names = np.array(clf.classes_)[references.labels.numpy()]
    training = FRAME["label"].drop(index=list(held)).value_counts()
    votes = pd.Series(references.sizes).groupby(names).sum()
    assert votes.to_dict() == training.to_dict()  # exact, of each class, although 600 rows were remembered
    for name in references.ids.tolist():
        assert clf.examples_[name] == pytest.approx(FRAME.loc[name, FEATURES].to_dict(), nan_ok=True)
    assert len(clf.examples_) == len(references)
    assert references.members is None
    assert clf.agreement_ is not None
    assert clf.score(NEW[FEATURES], NEW["label"]) > 0.75
    clf.save(tmp_path / "model")
    again = dwac.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_proba(NEW[FEATURES]), clf.predict_proba(NEW[FEATURES]), atol=1e-6)
    assert str(again.explain(NEW[FEATURES].head(1))[0]) == str(clf.explain(NEW[FEATURES].head(1))[0])


@pytest.mark.usefixtures("sampled")
def test_each_row_counts_for_the_nearest_leaf_of_its_label() -> None:
    rng = np.random.default_rng(0)
    h, y = torch.as_tensor(rng.normal(size=(900, 3)), dtype=torch.float32), torch.as_tensor(rng.integers(0, 3, 900))
    sample = dwac.ReferenceSet(h[:300], y[:300])
    few = Condenser(sample, h[:0], np.zeros(0, dtype=np.int64)).represent(9)
    assert few.members is not None
    leaves = few.members.groups.leaves
    means = np.stack([h[:300].double().numpy()[leaves == leaf].mean(axis=0) for leaf in range(len(few))])
    expected = np.zeros(len(few))
    for point, label in zip(h.double().numpy(), y.tolist(), strict=True):
        own = np.flatnonzero(few.labels.numpy() == label)
        expected[own[np.square(means[own] - point).sum(axis=1).argmin()]] += 1
    found = count_votes(few, [(h[:500], y[:500]), (h[500:], y[500:])])
    assert found.sizes.tolist() == expected.tolist()
    np.testing.assert_allclose(found.weights / found.sizes, few.weights / few.sizes)


@pytest.mark.usefixtures("sampled")
def test_a_sample_votes_for_all_where_few_would_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Condenser, "fewest", lambda self: None)
    monkeypatch.setattr("dwac.estimator.condensing.AUTOMATIC", 1_000)
    clf = DWACClassifier(**SETTINGS).fit(rows(*FEATURES), "label")
    held = [*clf.validation_ids_, *clf.calibration_ids_]
    names = np.array(clf.classes_)[clf.references_.labels.numpy()]
    votes = pd.Series(clf.references_.sizes).groupby(names).sum()
    assert votes.to_dict() == pytest.approx(FRAME["label"].drop(index=held).value_counts().to_dict())
    assert 600 <= len(clf.references_) < 700
    assert named(clf.stream_, "random", "all")


def test_all_vote_if_asked_unless_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    clf = DWACClassifier(voters="all", **SETTINGS).fit(rows(*FEATURES, "name"), "label", ids="name")
    assert len(clf.references_) == N - 700
    assert not clf.references_.voters.weighted
    by_name = FRAME.set_index("name")
    labels = np.array(clf.classes_)[clf.references_.labels.numpy()]
    assert by_name.loc[clf.references_.ids, "label"].tolist() == labels.tolist()
    h = clf.embed(by_name.loc[clf.references_.ids[:50], FEATURES])
    np.testing.assert_allclose(h, clf.references_.embeddings[:50].numpy(), atol=1e-5)
    monkeypatch.setattr("os.sysconf", lambda name: 512)
    with refuses(InputError, "voters='all'", "4,300"):
        clf.fit(rows(*FEATURES), "label")
    assert len(clf.references_) == N - 700  # a fit that fails changes nothing


# Where rows come from


def test_batches_from_anywhere_give_the_model_of_the_dataset(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dwac.estimator.fit.SMALL_TABLE", 1_000)  # fewer rows would be read at once
    table = FRAME[[*FEATURES, "label"]][::4]
    parts = [table.iloc[start : start + 300] for start in range(0, len(table), 300)]
    whole = pads.InMemoryDataset(pa.Table.from_pandas(table, preserve_index=False))
    expected = DWACClassifier(**SETTINGS).fit(whole, "label").predict_proba(NEW[FEATURES])
    given: list[tuple[Any, str | None]] = [
        (iter(parts), "label"),
        ([pa.RecordBatch.from_pandas(part, preserve_index=False) for part in parts], "label"),
        (((part[FEATURES], part["label"].tolist()) for part in parts), None),
    ]
    for batches, y in given:
        clf = DWACClassifier(**SETTINGS).fit(batches, y)
        np.testing.assert_array_equal(clf.predict_proba(NEW[FEATURES]), expected)
    one = DWACClassifier(**{**SETTINGS, "epochs": 1}).fit(str(folder / "[01].parquet"), "label", ids="name")
    assert one.feature_names_in_.tolist() == ["age", "pulse", "town", "price"]


def test_arrays_are_matched_by_position() -> None:
    x, y = FRAME[["age", "price"]].to_numpy(), FRAME["label"].to_numpy()
    clf = DWACClassifier(**SETTINGS).fit((x[i : i + 1000], y[i : i + 1000]) for i in range(0, N, 1000))
    assert clf.n_features_in_ == 2
    assert not hasattr(clf, "feature_names_in_")
    assert (clf.predict(NEW[["age", "price"]].to_numpy()) == NEW["label"]).mean() > 0.8


def test_a_small_stream_is_fitted_as_if_it_were_given_as_a_whole() -> None:
    few = FRAME.iloc[::25].reset_index(drop=True)
    few["label"] = few["label"].replace("rare", "ill")
    settings: dict[str, Any] = {"random_state": 0, "device": "cpu", "verbose": False, "epochs": 2}
    streamed = DWACClassifier(**settings).fit(pads.dataset(pa.Table.from_pandas(few[[*FEATURES, "label"]])), "label")
    whole = DWACClassifier(**settings).fit(few[FEATURES], few["label"])
    np.testing.assert_array_equal(streamed.predict_proba(NEW[FEATURES]), whole.predict_proba(NEW[FEATURES]))


# What is learned


def test_the_encoder_is_that_of_the_training_rows_in_memory(plain: DWACClassifier) -> None:
    training = FRAME.drop(index=[*plain.validation_ids_, *plain.calibration_ids_])
    expected = TabularEncoder(width=16, depth=1, frequencies=4).fit(training[FEATURES])
    assert plain.encoder_.config() == expected.config()


@pytest.mark.slow
@pytest.mark.usefixtures("sampled")
def test_numbers_are_predicted_with_intervals_that_keep_their_promise() -> None:
    reg = DWACRegressor(voters=60, **SETTINGS).fit(rows(*FEATURES, label="price"), "price")
    new = people(8_000, seed=2)
    assert reg.score(new[FEATURES], new["price"]) > 0.7
    low, high = reg.predict_interval(new[FEATURES], epsilon=0.1).T
    # 400 calibration rows: of 8,000 others so few are covered less than once in 1e6 times
    assert ((low <= new["price"]) & (new["price"] <= high)).mean() > 0.9 - 5 * np.sqrt(0.09 * (1 / 400 + 1 / 1000))
    assert reg.references_.sizes.sum() == N - 700


@pytest.mark.slow
@pytest.mark.usefixtures("sampled")
def test_texts_are_read_in_batches() -> None:
    rng = np.random.default_rng(0)
    words = {"sport": ["ball", "goal", "team", "run"], "food": ["salt", "soup", "bread", "oven"]}
    labels = rng.choice(["food", "sport"], N)
    texts = [" ".join(rng.choice([*words[label], "the", "a", "of"], 6)) for label in labels]
    pairs = ((texts[i : i + 1000], labels[i : i + 1000]) for i in range(0, N, 1000))
    slower = replace(SETTINGS["training"], learning_rate=0.01)
    settings = {**SETTINGS, "encoder": TextEncoder("paper"), "epochs": 1, "training": slower}
    texts[1234] = " "
    with warns(UserWarning, "1 of", "row 1234") as told:
        clf = DWACClassifier(voters=20, **settings).fit(pairs)
    assert told[0].filename == __file__
    assert clf.predict(["the goal of a team", "salt the soup"]).tolist() == ["sport", "food"]
    assert clf.examples_[clf.references_.ids[0]]["text"] in texts


def test_several_labels_are_read_in_batches() -> None:
    table = FRAME[FEATURES].assign(old=(FRAME["age"] > 0).astype(int), ill=(FRAME["label"] == "ill").astype(int))
    data = pads.dataset(pa.Table.from_pandas(table, preserve_index=False))
    clf = DWACClassifier(**SETTINGS).fit(data, ["old", "ill"])
    assert clf.classes_.tolist() == ["old", "ill"]
    assert (clf.predict(NEW[FEATURES])[:, 0] == (NEW["age"] > 0)).mean() > 0.8


def test_weights_of_rows_and_classes_count(plain: DWACClassifier) -> None:
    table = FRAME[[*FEATURES, "label"]].assign(w=np.where(FRAME["age"] > 0, 5.0, 5.0))
    data = pads.dataset(pa.Table.from_pandas(table, preserve_index=False))
    same = DWACClassifier(**SETTINGS).fit(data, "label", sample_weight="w")  # only ratios matter
    np.testing.assert_allclose(same.predict_proba(NEW[FEATURES]), plain.predict_proba(NEW[FEATURES]), atol=1e-4)
    balanced = DWACClassifier(class_weight="balanced", **SETTINGS).fit(rows(*FEATURES), "label")
    counts = FRAME["label"].drop(index=[*balanced.validation_ids_, *balanced.calibration_ids_]).value_counts()
    expected = counts.sum() / (len(counts) * counts.sort_index())
    np.testing.assert_allclose(balanced.references_.class_weights, expected)


def test_rows_that_are_left_out_are_never_seen() -> None:
    stream = stream_of(rows(*FEATURES), Roles("label"))
    away = np.flatnonzero(FRAME["label"] == "rare")
    clf = DWACClassifier(**SETTINGS).fit(replace(stream, left_out=away))
    assert "rare" not in clf.classes_
    assert clf.stream_.training == N - 700 - len(away)


# The files


def test_rows_are_dealt_over_the_whole_file(tmp_path: Path) -> None:
    n = 10_007
    x = torch.arange(n)
    found = passes.Spool(tmp_path, n, {"x": x[:2], "none": torch.zeros(2, 0)})
    for part in x.split(1_234):
        found.write({"x": part, "none": torch.zeros(len(part), 0)})
    written = found.tensor("x")
    assert sorted(written.tolist()) == list(range(n))
    assert written[torch.as_tensor(found.places(np.array([5, 7_000])))].tolist() == [5, 7_000]
    for block in written[:10_000].split(500):  # of sorted rows, every block has its share of each quarter
        assert np.bincount(block.numpy() * 4 // n, minlength=4).min() > 0.2 * len(block)
    assert found.tensor("none").shape == (n, 0)
    assert found.counts("x", n).tolist() == [1] * n


def test_a_disk_that_is_too_small_is_found_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "SPARE", 2**62)
    with refuses(InputError, "GB", "TMPDIR"):
        DWACClassifier(**SETTINGS).fit(rows(*FEATURES), "label")


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_fit_leaves_no_files(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any, **kwargs: Any) -> None:
        del args, kwargs
        raise error

    monkeypatch.setattr("dwac.training.train", stop)
    with pytest.raises(error):
        DWACClassifier(**SETTINGS).fit(iter([FRAME[[*FEATURES, "label"]]]), "label")


# What is refused


def repeated(frame: pd.DataFrame, **columns: Any) -> list[pd.DataFrame]:
    return [frame.assign(**columns)] * 2


GOOD = FRAME[[*FEATURES, "label"]]


@pytest.mark.parametrize(
    ("batches", "y", "error", "facts"),
    [
        (repeated(GOOD), "price", InputError, ["'price'", "'age'"]),
        (repeated(GOOD), None, InputError, ["y", "'age'"]),
        (repeated(GOOD), ["label", 3], InputError, ["y", "columns", "3"]),
        (iter([]), "label", ShapeError, ["batch", "iterable"]),
        ([GOOD.head(0)], "label", ShapeError, ["no rows"]),
        ([GOOD, GOOD.drop(columns="age")], "label", InputError, ["'age'", "batch 1"]),
        ([GOOD, GOOD.assign(age="x")], "label", InputError, ["types", "age", "double", "large_string"]),
        (repeated(GOOD, label="one"), "label", LabelError, ["two classes", "'one'"]),
        (repeated(GOOD, label=GOOD["age"]), "label", LabelError, ["continuous", "DWACRegressor", "pandas.cut"]),
        ([GOOD, GOOD.assign(label=None)], "label", LabelError, ["y", "row 5,000"]),
        ([GOOD, GOOD.assign(age=np.inf)], "label", NonFiniteError, ["'age'", "inf", "row 5,000"]),
        (iter([np.zeros((2, 3, 4))]), "label", InputError, ["batch 0", "(2, 3, 4)", "fit(X, y)"]),
        (((GOOD[FEATURES], GOOD["label"]) for _ in range(2)), "label", InputError, ["pairs (X, y)", "leave y"]),
        ("nowhere/", "label", InputError, ["nowhere/", "folder 'nowhere/'"]),
        ("nowhere/*.parquet", "label", InputError, ["'nowhere/*.parquet'", "pattern"]),
    ],
)
def test_what_cannot_be_learned_from_is_named(
    batches: Any, y: Any, error: type[Exception], facts: list[object]
) -> None:
    with refuses(error, *facts):
        DWACClassifier(**SETTINGS).fit(batches, y)


def test_images_and_networks_of_your_own_need_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dwac.estimator.fit.MIDDLE_TABLE", N)  # fewer rows would be read at once
    for encoder in ("image", torch.nn.Linear(3, 2)):
        with refuses(InputError, "tables", "texts"):
            DWACClassifier(**{**SETTINGS, "encoder": encoder}).fit(rows(*FEATURES), "label")
    with refuses(InputError, "cross_fit=True"):
        DWACClassifier(cross_fit=True, device="cpu").fit(rows(*FEATURES), "label")


def test_files_with_other_columns_and_damaged_ones_are_named(tmp_path: Path) -> None:
    GOOD.to_parquet(tmp_path / "a.parquet")
    GOOD.drop(columns="age").to_parquet(tmp_path / "b.parquet")
    with refuses(InputError, "b.parquet", "age"):
        DWACClassifier(**SETTINGS).fit(tmp_path / "*.parquet", "label")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and then nothing")
    with refuses(InputError, "Parquet", tmp_path / "b.parquet"):
        DWACClassifier(**SETTINGS).fit(tmp_path / "*.parquet", "label")


# Memory

_CHILD = """
import sys, threading
import numpy as np, pandas as pd, pyarrow.dataset as pads, torch
from dwac import DWACClassifier, Training
from dwac.estimator.fit import passes, stream, streams
passes.SAMPLE, stream.VOTERS, passes._BLOCK, streams._CELLS = 10_000, 5_000, 2**20, 2**18

def anonymous():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

torch.set_num_threads(1)
training = Training(embedding_size=2, batch_size=512, rescale=False)
settings = dict(encoder="tabular:paper", epochs=1, training=training, device="cpu", verbose=False)
settings |= dict(voters=50, random_state=0, validation_size=500, calibration_size=500)
data = pads.dataset(sys.argv[1])
few = {name: np.random.default_rng(0).normal(size=6000) for name in data.schema.names}
DWACClassifier(**settings).fit([pd.DataFrame({**few, "label": few["x0"] > 0})], "label")  # all code is loaded
before, peak, done = anonymous(), [0.0], threading.Event()

def watch():
    while not done.wait(0.005):
        peak[0] = max(peak[0], anonymous())

thread = threading.Thread(target=watch, daemon=True)
thread.start()
clf = DWACClassifier(**settings).fit(data, "label")
done.set(); thread.join()
print(clf.references_.sizes.sum(), peak[0] - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_memory_is_bounded_whatever_the_number_of_rows(tmp_path: Path) -> None:
    """The rows alone take 192 MB in memory, and an in-memory fit some times that: half of it must do."""
    rng, n, columns = np.random.default_rng(0), 400_000, 60
    schema = pa.schema([*((f"x{i}", pa.float64()) for i in range(columns)), ("label", pa.int64())])
    with pq.ParquetWriter(tmp_path / "rows.parquet", schema, compression="none") as writer:
        for _ in range(20):
            x = rng.normal(size=(columns, n // 20))
            arrays = [*map(pa.array, x), pa.array((x[0] > 0).astype(np.int64))]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    command = [sys.executable, "-c", _CHILD, str(tmp_path / "rows.parquet")]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    votes, megabytes = map(float, found.stdout.split())
    assert votes == n - 1_000
    assert 10 < megabytes < 96


def roles(target: str) -> Roles:
    return Roles(target, features=tuple(FEATURES))
