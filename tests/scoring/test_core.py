"""Arrow batches in and out: the answers of `dwac predict`, in columns that are known before the first row."""

import io
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import dwac
from dwac.errors import CalibrationWarning, InputError, StorageError
from dwac.estimator.evaluation import predict
from dwac.reading import load
from dwac.scoring import Request, schema, score
from dwac.scoring import request as requests
from tests.named import named, refuses
from tests.scoring.conftest import people

Folders = Any
KINDS = ("classes", "private", "labels", "numbers", "two numbers")


def scored(folder: Any, batches: Any, **options: Any) -> pd.DataFrame:
    found = list(score(folder, batches, device="cpu", **options))
    assert {batch.schema for batch in found} <= {schema(folder, device="cpu", **options)}
    frame: pd.DataFrame = pa.Table.from_batches(found).to_pandas()
    return frame


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    """The same values in the same columns, to the last bit; lists are lists and missing is missing."""
    found = found.map(lambda value: value.tolist() if isinstance(value, np.ndarray) else value)
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def pictures() -> list[bytes | None]:
    image = pytest.importorskip("PIL.Image")
    found: list[bytes | None] = [None, b"no image"]
    for seed in range(3):
        data = io.BytesIO()
        image.fromarray(np.random.default_rng(seed).integers(0, 255, (12, 12), dtype=np.uint8)).save(data, "png")
        found.append(data.getvalue())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_predict(kind: str, folder_of: Folders) -> None:
    frame, clf = people(50, seed=1), dwac.load(folder_of(kind), device="cpu")
    frame.loc[3, "pay"] = np.nan
    asked = {"quantiles": (0.1, 0.5)} if "number" in kind else {}
    expected = predict(clf, frame[["age", "pay", "town"]]).frame(0.2, **asked)
    expected.insert(0, "id", range(50))
    shuffled = pa.Table.from_pandas(frame[["note", "town", "pay", "age"]], preserve_index=False)
    same(scored(folder_of(kind), shuffled, epsilon=0.2, **asked), expected)


@pytest.mark.parametrize("hour", [0, 12])
def test_labels_that_are_dates_read_the_same_everywhere(hour: int, tmp_path: Path) -> None:
    X = pd.DataFrame({"a": np.arange(60.0)})
    y = pd.Series(pd.to_datetime(np.where(X["a"] < 30, "2024-01-01", "2025-03-01"))) + pd.Timedelta(hours=hour)
    clf = dwac.DWACClassifier(epochs=2, random_state=0, device="cpu").fit(X, y.astype("datetime64[ns]"))
    written = sorted(set(y.astype(str)))  # as pandas prints them
    assert [str(name) for name in clf.target_.plain_names] == written
    assert (clf.predict(X) == y.to_numpy()).mean() == clf.score(X, y)
    frame = predict(clf, X).frame(0.2, probabilities=True)
    assert set(frame["label"].astype(str)) == set(written)
    assert {f"probability_{name}" for name in written} < set(frame.columns)
    explanation = clf.explain(X[:1])[0]
    assert explanation.to_dict()["label"] == str(explanation.label) == str(frame["label"][0])
    found = scored(clf.save(tmp_path / "model"), pa.Table.from_pandas(X), epsilon=0.2, probabilities=True, voters=1)
    assert found["label"].tolist() == frame["label"].astype(str).tolist()
    assert {f"probability_{name}" for name in written} < set(found.columns)
    assert {voter["label"] for voters in found["voters"] for voter in voters} <= set(written)


@pytest.mark.slow
def test_texts_and_encoded_images_are_read_from_a_column(folder_of: Folders) -> None:
    texts = scored(folder_of("texts"), [pa.record_batch({"words": ["good day", None, "sad"], "more": ["", "", ""]})])
    assert texts["unreadable"].notna().tolist() == [False, True, False]
    assert (
        texts["label"].tolist()[::2]
        == dwac.load(folder_of("texts"), device="cpu").predict(["good day", "sad"]).tolist()
    )
    images = pictures()
    found = scored(folder_of("images"), [pa.record_batch({"picture": images, "id": list("abcde")})], id="id", voters=1)
    assert found["unreadable"].notna().tolist() == [True, True, False, False, False]
    assert "missing" in found["unreadable"][0]
    assert found["voters"].map(len).tolist() == [0, 0, 1, 1, 1]
    assert found["label"].tolist()[2:] == dwac.load(folder_of("images"), device="cpu").predict(images[2:]).tolist()


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers", "two numbers"])
def test_voters_are_those_of_an_explanation(kind: str, folder_of: Folders) -> None:
    frame, clf = people(6, seed=2)[["age", "pay", "town"]], dwac.load(folder_of(kind), device="cpu")
    found = scored(folder_of(kind), pa.Table.from_pandas(frame), epsilon=0.2, voters=3)["voters"]
    for row, told in zip(found, clf.explain(frame, k=3), strict=True):
        neighbors = told["old"].neighbors if kind == "labels" else told.neighbors
        assert [voter["id"] for voter in row] == [one.id for one in neighbors]
        shares = [one.share for one in neighbors]
        np.testing.assert_allclose([voter["share"] for voter in row], shares, rtol=1e-5)  # as exact as the engine
        for voter, one in zip(row, neighbors, strict=True):
            if kind == "labels":
                assert ("old" in voter["label"]) == (one.label == "old")
            elif kind == "two numbers":
                assert tuple(voter["target"]) == one.label
            else:
                assert voter["label" if kind == "classes" else "target"] == one.label


def test_probabilities_of_each_class_come_on_request(folder_of: Folders) -> None:
    frame = people(9, seed=3)[["age", "pay", "town"]]
    found = scored(folder_of("classes"), pa.Table.from_pandas(frame), probabilities=True)
    expected = dwac.load(folder_of("classes"), device="cpu").predict_proba(frame)
    np.testing.assert_array_equal(found[["probability_old", "probability_young"]], expected)


@pytest.mark.parametrize(("chunk", "rows"), [(1, 20), (7, 20), (100, 20)])
def test_batches_of_any_size_give_the_same_rows_in_order(chunk: int, rows: int, folder_of: Folders) -> None:
    table = pa.Table.from_pandas(people(64, seed=4))
    whole = scored(folder_of("classes"), table)
    empty = table.to_batches()[0].slice(0, 0)
    parts = list(score(folder_of("classes"), [empty, *table.to_batches(chunk), empty], rows=rows, device="cpu"))
    assert max(part.num_rows for part in parts) <= rows
    assert len(parts) <= 2 * -(-64 // rows)  # tiny batches are joined
    found = pa.Table.from_batches(parts).to_pandas()
    pd.testing.assert_frame_equal(found.drop(columns="set"), whole.drop(columns="set"), rtol=1e-9)


def test_a_dataset_a_reader_and_a_table_are_batches_too(folder_of: Folders, tmp_path: Any) -> None:
    table = pa.Table.from_pandas(people(20, seed=4))
    ds.write_dataset(table, tmp_path, format="parquet")
    found = [scored(folder_of("classes"), source) for source in (table, ds.dataset(tmp_path), table.to_reader(5))]
    for each in found:
        same(each, found[0].map(lambda value: value.tolist() if isinstance(value, np.ndarray) else value))


def test_a_row_is_answered_the_same_whoever_is_asked_beside(folder_of: Folders) -> None:
    """Gaps would turn 7 into 7.0, and a batch without one good row would be refused."""
    alone = pa.record_batch({"age": [30], "pay": [0.5], "town": [7]})
    beside = pa.record_batch({"age": [30, 31], "pay": [0.5, 0.1], "town": pa.array([7, None])})
    written = pa.record_batch({"age": [30], "pay": [0.5], "town": ["7"]})
    probability = [scored(folder_of("classes"), [batch])["probability"][0] for batch in (alone, beside, written)]
    assert probability[0] == probability[2] == pytest.approx(probability[1], abs=1e-9)
    bad = scored(folder_of("classes"), [pa.record_batch({"age": ["x"], "pay": [0.5], "town": ["7"]})])
    assert named(bad["unreadable"][0], "'age'", "numbers", "'x'")
    assert bad.drop(columns=["id", "unreadable"]).isna().all(axis=None)


def test_ids_have_the_type_that_was_asked(folder_of: Folders) -> None:
    batch = pa.RecordBatch.from_pandas(people(3).assign(key=[5, 6, 7]))
    assert scored(folder_of("classes"), [batch], id="key")["id"].tolist() == ["5", "6", "7"]
    assert scored(folder_of("classes"), [batch], id="key", id_type="int64")["id"].tolist() == [5, 6, 7]
    with refuses(InputError, "kez"):
        scored(folder_of("classes"), [batch], id="kez")
    with refuses(InputError, "int64"):
        scored(folder_of("classes"), [batch], id="note", id_type="int64")


def test_what_cannot_be_given_is_refused_before_the_first_row(folder_of: Folders) -> None:
    wrong: list[tuple[Any, dict[str, Any], list[Any]]] = [
        ("classes", {"quantiles": [0.5]}, ["quantiles", "numbers"]),
        ("numbers", {"quantiles": [2]}, [0, 1]),
        ("private", {"voters": 2}, ["private"]),
        ("classes", {"epsilon": 3}, ["epsilon"]),
        ("classes", {"colour": 3}, ["colour"]),
        ("classes", {"id_type": "float"}, ["id_type", "string", "int64"]),
    ]
    for kind, options, facts in wrong:
        with refuses(InputError, *facts):
            score(folder_of(kind), [], device="cpu", **options)
    with refuses(InputError, "path"):
        score(dwac.DWACClassifier(), [])
    with refuses(StorageError, "nowhere"):
        score("nowhere", [])
    with refuses(InputError, "town"):
        list(score(folder_of("classes"), [pa.record_batch({"age": [1], "pay": [2.0]})], device="cpu"))
    with refuses(InputError, "DataFrame"):
        list(score(folder_of("classes"), [people(1)], device="cpu"))


def test_a_model_is_loaded_once_and_again_when_its_folder_changes(
    folder_of: Folders, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clf, loads = dwac.load(folder_of("classes"), device="cpu"), []
    clf.save(tmp_path)

    def counted(*args: Any, **options: Any) -> Any:
        loads.append(1)
        return load(*args, **options)

    monkeypatch.setattr(requests, "load", counted)
    asked = Request(str(tmp_path), device="cpu")
    threads = [threading.Thread(target=requests.model_of, args=(asked,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect = dwac.fingerprint(tmp_path)
    assert len(loads) == 1
    clf.forget([clf.references_.ids[0]])
    clf.save(tmp_path, overwrite=True)
    assert len(requests.model_of(asked).clf.references_) == len(clf.references_)
    assert len(loads) == 2
    with refuses(StorageError, expect):
        requests.model_of(Request(str(tmp_path), device="cpu", expect=expect))


def test_too_few_calibration_rows_are_told_once_and_not_for_each_batch(folder_of: Folders) -> None:
    table = pa.Table.from_pandas(people(4))
    with pytest.warns(CalibrationWarning) as told:
        found = list(score(folder_of("classes"), table, rows=1, epsilon=0.01, device="cpu"))
    assert (len(found), len(told)) == (4, 1)


def test_only_a_small_value_travels(folder_of: Folders) -> None:
    asked = Request(str(folder_of("classes")), voters=3, quantiles=(0.1, 0.9))
    sent = pickle.dumps(asked)
    assert len(sent) < 1000
    assert pickle.loads(sent) == asked


def test_a_category_that_training_never_had_is_named_or_refused(folder_of: Folders) -> None:
    batch = pa.record_batch({"age": [30, 30], "pay": [0.5, 0.5], "town": ["7", "Ys"]})
    found = scored(folder_of("classes"), [batch])
    assert found["unknown"].isna().tolist() == [True, False]
    assert found["unknown"][1] == "town=Ys"
    refused = scored(folder_of("classes"), [batch], unknown="refuse")
    assert refused["label"].isna().tolist() == refused["unreadable"].notna().tolist() == [False, True]
    assert scored(folder_of("classes"), [batch])["label"].notna().all()  # each request has a model of its own
    with refuses(InputError, "unknown", "'atypical'", "'missing'", "'refuse'", "'ignore'"):
        scored(folder_of("classes"), [batch], unknown="ignore")
