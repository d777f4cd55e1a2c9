"""One bad row costs no other row its answer: rows that cannot be read, with every encoder."""

import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

from dwac import DWACClassifier, DWACRegressor, Training, load
from dwac.encoders import Encoder, HuggingFaceEncoder
from dwac.errors import InputError, KindError, NonFiniteError, UnreadableWarning
from dwac.estimator.evaluation import evaluate, predict
from dwac.estimator.preparation import take
from dwac.estimator.readable import Partial, sift
from dwac.report.findings import ClassFindings
from tests.estimator.helpers import fit_once
from tests.named import named, refuses, warns

pytestmark = pytest.mark.usefixtures("few_steps")

N = 90
Y = np.array(["a", "b", "b"] * (N // 3))


def fitted(X: Any, y: Any = Y, **options: Any) -> Any:
    settings = {"epochs": 1, "random_state": 0, "device": "cpu", "verbose": False, **options}
    return fit_once(DWACClassifier(**settings), X, y)


def png(seed: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (8, 8), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def texts() -> Any:
    return [f"{'good' if label == 'a' else 'bad'} film {i}" for i, label in enumerate(Y)]


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.uniform(20, 70, N),
            "job": rng.choice(["nurse", "clerk"], N),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, N), unit="D"),
        }
    )


def with_cells(frame: pd.DataFrame, column: str, *cells: Any) -> pd.DataFrame:
    """Some good rows, and one more for each cell."""
    good = frame.iloc[:3].astype(object)
    bad = pd.concat([good.iloc[:1]] * len(cells), ignore_index=True)
    bad[column] = pd.Series(list(cells), dtype=object)
    return pd.concat([good.iloc[:1], bad, good.iloc[1:]], ignore_index=True)


class Shaky(nn.Module):
    """A network that overflows on large numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.exp(x.abs()))  # type: ignore[no-any-return]


@dataclass
class Case:
    train: Any
    asked: Any  # rows, the first and the last of which are fine
    bad: dict[int, tuple[str, ...]]  # the others, and what the reasons name
    options: dict[str, Any]


def case(kind: str, tmp_path: Path) -> Case:
    rng = np.random.default_rng(0)
    X: Any
    asked: Any
    reasons: Any
    match kind:
        case "texts":
            asked = ["good film", "", " \t", None, 7, "half \ud800", "bad film"]
            reasons = [("empty",), ("blank",), ("missing",), ("int", "'7'"), ("surrogate",)]
            return Case(texts(), asked, dict(enumerate(reasons, 1)), {})
        case "numbers":
            reasons = [
                ("'age'", "numbers", "'old'"),
                ("'age'", "finite", "inf"),
                ("'age'", "numbers", "up to"),
            ]
            asked = with_cells(table(), "age", "old", np.inf, 10**400)
            return Case(table(), asked, dict(enumerate(reasons, 1)), {})
        case "categories":
            asked = with_cells(table(), "job", ["nurse"], {})
            return Case(table(), asked, dict.fromkeys((1, 2), ("'job'", "single values")), {})
        case "dates":
            asked = with_cells(table(), "since", "soon", 5)
            return Case(table(), asked, dict.fromkeys((1, 2), ("'since'", "dates")), {})
        case "arrays":
            X = rng.normal(size=(N, 8, 8)).astype(np.float32)
            asked = [X[0], np.full((8, 8), np.nan), np.zeros((8, 9)), None, X[1]]
            reasons = [("NaN",), ("(8, 8)", "(8, 9)"), ("()",)]
            return Case(X, asked, dict(enumerate(reasons, 1)), {})
        case "pixels":
            X = rng.integers(0, 255, (N, 8, 8))
            asked = X[:4].copy()
            asked[1, 0, 0], asked[2, 0, 0] = 256, -1
            return Case(X, asked, dict.fromkeys((1, 2), ("numbers", "0 … 255")), {})
        case "files":
            for i in range(N):
                (tmp_path / f"{i}.png").write_bytes(png(i))
            paths = [str(tmp_path / f"{i}.png") for i in range(N)]
            for name, data in (("cut.png", png(0)[:50]), ("empty.png", b""), ("text.png", b"no picture")):
                (tmp_path / name).write_bytes(data)
            bad = [*(str(tmp_path / f"{name}.png") for name in ("cut", "empty", "text", "gone")), b"bytes", None]
            reasons = [*(("be read", path) for path in bad[:3]), ("no file", bad[3]), ("be read",), ("NoneType",)]
            return Case(paths, [paths[0], *bad, paths[1]], dict(enumerate(reasons, 1)), {})
        case "pictures":
            pictures = [Image.open(io.BytesIO(png(i))) for i in range(N)]
            return Case(pictures, [pictures[0], 7, png(3)[:40], pictures[1]], {1: ("int",), 2: ("be read",)}, {})
        case "tensors":
            X = torch.as_tensor(rng.normal(size=(N, 3)), dtype=torch.float32)
            asked = X[:4].clone()
            asked[1, 0], asked[2, 2] = float("nan"), 1e4
            reasons = {1: ("input 0", "NaN"), 2: ("finite embedding",)}
            return Case(X, asked, reasons, {"encoder": Shaky(), "training": Training(embedding_size=2)})
        case _:
            pytest.fail(kind)


KINDS = ["texts", "numbers", "categories", "dates", "arrays", "pixels", "files", "pictures", "tensors"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_cannot_be_read_are_flagged_and_change_no_other(kind: str, tmp_path: Path) -> None:
    given = case(kind, tmp_path)
    clf = fitted(given.train, **given.options)
    n, bad = len(given.asked), list(given.bad)
    fine = [row for row in range(n) if row not in bad]
    alone = take(given.asked, np.array(fine))

    votes, reasons = clf.votes(given.asked)
    assert [row for row in range(n) if reasons[row] is not None] == bad
    for row, facts in given.bad.items():
        assert named(reasons[row], *facts), reasons[row]
    np.testing.assert_array_equal(votes[fine], clf.log_class_weights(alone))
    assert np.isnan(votes[bad]).all()
    assert clf.unreadable(given.asked) == {row: reasons[row] for row in bad}

    with warns(UnreadableWarning, f"{len(bad)} of {n}", "row 1"):
        probabilities = clf.predict_proba(given.asked)
    assert np.isnan(probabilities[bad]).all()
    np.testing.assert_array_equal(probabilities[fine], clf.predict_proba(alone))
    with pytest.warns(UnreadableWarning):
        labels, score = clf.predict(given.asked), clf.score(given.asked, ["b"] * n)
    assert labels[bad].tolist() == [None] * len(bad)
    assert labels[fine].tolist() == clf.predict(alone).tolist()
    assert score == clf.score(alone, ["b"] * len(fine))

    trust, expected = clf.conformal(given.asked), clf.conformal(alone)
    assert trust.unreadable is not None
    assert np.flatnonzero(trust.unreadable).tolist() == bad
    np.testing.assert_array_equal(trust.p_values[fine], expected.p_values)
    np.testing.assert_array_equal(trust.confidence[fine], expected.confidence)
    assert not trust.p_values[bad].any()
    assert np.isnan([trust.credibility[bad], trust.confidence[bad]]).all()
    assert trust.labels[bad].tolist() == [None] * len(bad)
    assert trust.typicality is not None
    assert np.isnan(trust.typicality[bad]).all()
    assert trust.atypical(0.2)[bad].all()
    np.testing.assert_array_equal(trust.typicality[fine], expected.typicality)
    assert not trust.label_sets(0.2)[bad].any()
    assert not clf.predict_set(given.asked, 0.2)[bad].any()

    frame = predict(clf, given.asked).frame(0.2)
    assert frame["unreadable"].notna().to_numpy().nonzero()[0].tolist() == bad
    told = frame.drop(columns=["unknown", "unreadable"], errors="ignore")
    assert told.loc[bad].isna().all(axis=None)
    assert told.loc[fine].notna().all(axis=None)


@pytest.mark.parametrize("kind", KINDS)
def test_an_explanation_says_plainly_that_a_row_was_not_read(kind: str, tmp_path: Path) -> None:
    given = case(kind, tmp_path)
    clf = fitted(given.train, **given.options)
    found = clf.explain(given.asked, k=3)
    assert [row for row, e in enumerate(found) if e.unreadable] == list(given.bad)
    for row in given.bad:
        e = found[row]
        assert (e.label, e.neighbors, e.credibility, e.confidence, e.record) == (None, (), None, None, None)
        assert (math.isnan(e.probability), e.probabilities, e.p_values, e.typicality) == (True, {}, None, None)
        assert named(e.sentences()[0], "not be read", e.unreadable)
        answer = json.loads(json.dumps(e.to_dict(), allow_nan=False))
        assert (answer["deciding"], answer["flip_size"], answer["neighbors"]) == (None, None, [])
        assert (answer["unreadable"], answer["label"], answer["probability"]) == (e.unreadable, None, None)
        assert named(repr(e), "not be read")
        assert e.flip_set() is None
        assert named(e, "No training example")
        assert "<table>" not in e.to_html()
        assert len(e.to_frame()) == 0
        e.plot()
    first = found[0]
    assert len(first.neighbors) == 3
    assert first.unreadable is None


def test_one_empty_text_alone_is_answered_too() -> None:
    clf = fitted(texts())
    assert np.isnan(clf.conformal([""]).credibility).tolist() == [True]
    with warns(UnreadableWarning, "1 of 1", "row 0", "empty", "unreadable(X"):
        assert clf.predict([""]).tolist() == [None]
    with pytest.warns(UnreadableWarning), refuses(InputError, 1, "unreadable(X)"):
        clf.score([""], ["b"])
    assert named(clf.explain([""])[0].unreadable, "text", "empty")


@pytest.mark.parametrize("names", [[0, 1], [True, False], [1.0, 2.0], ["a", "b"]])
def test_labels_of_the_other_rows_keep_their_type(names: list[Any]) -> None:
    clf = fitted(texts(), y=np.array(names)[(Y == "b").astype(int)])
    with pytest.warns(UnreadableWarning):
        labels = clf.predict([texts()[0], ""]).tolist()
    first = predict(clf, [texts()[0], ""]).frame(0.2)["label"].tolist()[0]
    assert (type(labels[0]), labels[1], type(first)) == (type(names[0]), None, type(names[0]))


def test_several_labels_of_a_row_that_cannot_be_read_are_none() -> None:
    rows = [*texts()[:2], ""]
    table = np.stack([Y == "a", np.arange(N) % 2 == 0], axis=1).astype(int)
    with warns(UserWarning, f"of {N}"):
        clf = fitted(texts(), y=table)
    with pytest.warns(UnreadableWarning):
        found = clf.predict(rows)
    assert (found.shape, np.isnan(found).all(axis=1).tolist()) == ((3, 2), [False, False, True])
    listed = fitted(texts(), y=[[name for name, here in zip("xy", row, strict=True) if here] or ["z"] for row in table])
    with pytest.warns(UnreadableWarning):
        assert [type(each) for each in listed.predict(rows)] == [tuple, tuple, type(None)]
    frame = predict(listed, rows).frame(0.2)
    assert frame.drop(columns="unreadable").loc[2].isna().all()


def test_what_is_of_another_kind_altogether_is_refused() -> None:
    with refuses(KindError, "row 0", "1"):
        fitted(texts()).predict([1, 2])
    with refuses(KindError, "age", "old", "row 0"):
        fitted(table()).predict(table().assign(age="old"))
    clf = fitted(table())
    reasons = clf.votes(Partial(table().assign(age="old").iloc[:2], {}))[1]
    assert [named(why, "'age'", "numbers", "'old'") for why in reasons] == [True, True]


def test_training_and_edits_still_refuse_such_rows() -> None:
    clf = fitted(texts())
    for refuse in (clf.embed, lambda X: clf.add_references(X, ["a", "b"]), lambda X: clf.recalibrate(X, ["a", "b"])):
        with refuses(InputError, "row 1"):
            refuse(["fine", ""])
    with refuses(NonFiniteError, "column 0", "inf", "row 1"):
        fitted(np.where(np.arange(N)[:, None] == 1, np.inf, np.arange(N)[:, None]))


def test_a_saved_model_says_the_same(tmp_path: Path) -> None:
    clf = fitted(texts())
    again = load(clf.save(tmp_path / "model"), device="cpu")
    for one, other in zip(clf.votes(["x", ""]), again.votes(["x", ""]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_row_left_out_before_is_answered_in_its_place() -> None:
    clf = fitted(texts())
    votes, reasons = clf.votes(Partial(["good film", "", "bad film"], {0: "corrupt", 3: "gone"}))
    assert reasons[[0, 1, 3, 4]].tolist() == ["corrupt", None, "gone", None]
    assert named(reasons[2], "text", "empty")
    np.testing.assert_array_equal(votes[[1, 4]], clf.log_class_weights(["good film", "bad film"]))
    assert clf.votes(Partial(None, {0: "gone"}))[1].tolist() == ["gone"]


def test_a_tokeniser_that_panics_on_a_text_affects_only_that_text(tmp_path: Path) -> None:
    class PanicException(BaseException):
        pass

    class Panics:
        """Fails on one text, and after that on every other: as a poisoned lock does."""

        def __init__(self) -> None:
            self.broken = False

        def encode_batch(self, texts: list[str]) -> list[Any]:
            self.broken |= "boom" in texts
            if self.broken:
                raise PanicException("index out of bounds")
            return [type("Encoding", (), {"ids": [1], "attention_mask": [0 if text == "#" else 1]})() for text in texts]

        @property
        def padding(self) -> dict[str, int]:
            return {"length": 1}

    encoder = HuggingFaceEncoder("any")
    encoder._model, encoder._tokenizer, encoder._tokenizer_json = {"vocab_size": 9}, Panics(), "{}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dwac.encoders.hf_tokenizer.build_tokenizer", lambda _: Panics())
        patch.setattr("dwac.encoders.huggingface.restore_tokenizer", lambda *_: Panics())
        rows = sift(encoder, ["good", "boom", "#", "bad"])
    assert [row for row, why in enumerate(rows.reasons) if why is not None] == [1, 2]
    assert rows.inputs[0].shape == (2, 1)


def test_an_encoder_of_ones_own_that_names_no_rows_refuses_all() -> None:
    class Own(Encoder):
        kind = "own"

        def fit(self, X: Any, y: Any = None) -> Any:
            return self

        def transform(self, X: Any) -> Any:
            raise InputError("something about everything")

        network = config = records = lambda self, *_: None  # type: ignore[assignment]
        from_config = classmethod(lambda cls, config: cls())

    with refuses(InputError, "something about everything"):
        sift(Own(), [1, 2])


# What is measured, is measured on rows that were read


def test_an_evaluation_counts_rows_that_were_not_read_and_leaves_them_out() -> None:
    clf = fitted(texts())
    X, y = [*texts()[:6], ""], [*Y[:6], "a"]
    found, expected = evaluate(predict(clf, X), y, 0.2), evaluate(predict(clf, X[:6]), y[:6], 0.2)
    assert (found.n, found.unreadable, expected.unreadable) == (6, 1, 0)
    assert found.to_dict() == {**expected.to_dict(), "unreadable": 1}
    with refuses(InputError, "row 0"):
        evaluate(predict(clf, ["", ""]), ["a", "b"])


def test_a_report_is_on_rows_that_were_read() -> None:
    clf = fitted(texts())
    found = ClassFindings.of(
        clf, ["", *texts()[:6]], ["a", *Y[:6]], ids=list("xabcdef"), unlike=["", "zzz"], epsilon=0.2
    )
    assert found.ids.tolist() == list("abcdef")
    assert len(found.h) == len(found.truth) == len(found.predictions.codes) == 6
    assert found.outside is not None
    assert len(found.outside.codes) == 1


@pytest.mark.parametrize("form", [list, np.array, tuple, pd.Series])
def test_an_empty_text_is_left_out_of_a_fit_and_counted(form: Any) -> None:
    X = [*texts(), "", " \n"]
    X[4] = ""
    y, weights = [*Y, "b", "a"], [*np.arange(1.0, N + 1), np.inf, -1]
    clf = DWACClassifier(epochs=1, random_state=0, device="cpu", verbose=False)
    with warns(UserWarning, f"3 of {N + 2}", "row 4") as told:
        clf.fit(form(X), y, sample_weight=weights)
    assert told[0].filename == __file__
    kept = [*range(4), *range(5, N)]
    same = DWACClassifier(**clf.get_params(deep=False)).fit(
        [X[i] for i in kept], Y[kept], sample_weight=np.array(kept) + 1, ids=kept
    )
    assert clf.references_.ids.tolist() == same.references_.ids.tolist()
    np.testing.assert_array_equal(clf.predict_proba(texts()), same.predict_proba(texts()))


@pytest.mark.parametrize("form", [pd.DataFrame, lambda texts: np.array(texts, dtype=object)[:, None]])
def test_an_empty_text_in_a_column_of_texts_is_left_out_of_a_fit(form: Any) -> None:
    X = [*texts(), None, " "]
    clf = DWACClassifier("text", random_state=0, device="cpu", verbose=False)
    with warns(UserWarning, f"2 of {N + 2}", f"row {N}"):
        clf.fit(form(X), [*Y, "b", "a"], groups=[*np.arange(N) // 2, 0, 0], within=[*Y, "b", "a"])
    assert clf.references_.ids.tolist() == list(range(N))


def test_an_empty_text_leaves_several_labels_aligned() -> None:
    X, labels = texts(), np.eye(3, dtype=int)[np.arange(N) % 3]
    X[1] = ""
    clf = DWACClassifier(epochs=1, random_state=0, device="cpu", verbose=False)
    with warns(UserWarning, f"1 of {N}", "row 1"):
        clf.fit(X, labels)
    kept = np.delete(np.arange(N), 1)
    assert 1 not in clf.references_.ids
    same = DWACClassifier(**clf.get_params(deep=False)).fit([X[i] for i in kept], labels[kept], ids=kept)
    np.testing.assert_array_equal(clf.predict_proba(texts()), same.predict_proba(texts()))


def test_an_empty_text_keeps_ids_and_numbers_aligned() -> None:
    X = texts()
    X[0] = None
    with warns(UserWarning, "1 of 90"):
        reg = DWACRegressor(epochs=1, random_state=0, device="cpu", verbose=False).fit(
            X, np.arange(N, dtype=float), ids=[f"t{i}" for i in range(N)]
        )
    voters = reg.references_
    assert [f"t{y:.0f}" for y in np.ravel(np.asarray(voters.targets))] == voters.ids.tolist()
    assert "t0" not in voters.ids


def test_texts_that_are_all_empty_are_refused() -> None:
    with refuses(InputError, "row 0"):
        DWACClassifier(encoder="text", device="cpu").fit([""] * N, Y)
