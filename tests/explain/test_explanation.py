"""Explanations: who voted, how few suffice, whose removal flips the label; and what privacy hides."""

import itertools
import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dwac import ReferenceSet
from dwac.conformal import Calibration
from dwac.errors import InputError, NonFiniteError, PrivacyError, ShapeError
from dwac.explain import explain
from dwac.kernels import KERNELS
from tests import oracle
from tests.explain.helpers import every_text
from tests.named import named, refuses


def random_set(seed: int, m: int = 8, n_classes: int = 3, kernel: str = "gaussian") -> tuple[ReferenceSet, Any]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_classes, size=m)
    refs = ReferenceSet(rng.normal(size=(m, 2)), labels, [f"r{i}" for i in range(m)], n_classes, kernel)
    return refs, rng.normal(size=(1, 2)) * rng.choice([1, 5])


def label_of(refs: ReferenceSet, query: Any) -> int:
    return int(refs.log_class_weights(query).argmax())


def exact_votes(log_w: Any, labels: Any, class_weights: Any) -> Any:
    """The votes for each class, by correctly rounded sums."""
    votes = np.exp(log_w) * class_weights[labels]
    return np.array([math.fsum(votes[labels == k]) for k in range(len(class_weights))])


def test_shares_are_parts_of_the_whole_vote() -> None:
    refs, query = random_set(0)
    e = explain(refs, query, k=100)[0]
    assert len(e.neighbors) == len(refs) == e.n_references
    assert sum(n.share for n in e.neighbors) == pytest.approx(1)
    for label, probability in e.probabilities.items():
        assert sum(n.share for n in e.neighbors if n.label == label) == pytest.approx(probability, abs=1e-9)
    assert e.probability == max(e.probabilities.values())
    assert [n.distance for n in e.neighbors] == sorted(n.distance for n in e.neighbors if n.distance is not None)


def test_a_far_query_still_has_shares() -> None:
    refs = ReferenceSet([[0.0], [1.0], [2.0]], [0, 1, 1])
    e = explain(refs, [[1e4]], k=3)[0]
    assert e.neighbors[0].weight == 0.0  # underflows
    assert e.neighbors[0].share == pytest.approx(1)
    assert e.neighbors[0].log_weight == pytest.approx(-(1e4**2), rel=1e-3)
    assert (e.label, e.deciding) == (1, 1)


@pytest.mark.parametrize("far", [1e4, 1e8, 1e12, 1e18])
def test_no_share_is_more_than_the_whole_however_far_the_query(far: float) -> None:
    rng = np.random.default_rng(0)
    refs = ReferenceSet(rng.normal(size=(40, 3)), rng.integers(2, size=40))
    shares = [n.share for n in explain(refs, far * rng.normal(size=(1, 3)), k=40)[0].neighbors]
    assert all(0 <= share <= 1 for share in shares)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("seed", range(12))
def test_deciding_is_the_least_number_that_no_labels_of_the_rest_can_overturn(seed: int, kernel: str) -> None:
    refs, query = random_set(seed, m=6, kernel=kernel)
    e = explain(refs, query)[0]
    near = refs.nearest(query, k=6)
    labels, log_w = refs.labels.numpy(), oracle.log_weights(query, refs.embeddings, kernel)[0]

    def fixed(j: int) -> bool:
        """Whether every way to label the rest leaves the label: all of them tried."""
        rest = refs.voters.positions(near.ids[0, j:])
        for other in itertools.product(range(3), repeat=len(rest)):
            changed = labels.copy()
            changed[rest] = other
            if exact_votes(log_w, changed, np.ones(3)).argmax() != e.label:
                return False
        return True

    assert e.deciding == next(j for j in range(7) if fixed(j))


def weighted_set(seed: int) -> tuple[ReferenceSet, list[list[float]]]:
    """Up to seven references, many of them coincident or equally far, in classes of several weights."""
    rng = np.random.default_rng(seed)
    n_classes, m = int(rng.integers(2, 4)), int(rng.integers(2, 8))
    points = rng.integers(-1, 2, size=(m, 1)).astype(float) if seed % 2 else rng.normal(size=(m, 2))
    weights = rng.choice([0.5, 1.0, 2.0, 3.7], size=n_classes)
    refs = ReferenceSet(points, rng.integers(n_classes, size=m), n_classes=n_classes, class_weights=weights)
    return refs, [[0.0] * points.shape[1]]


@pytest.mark.parametrize("seed", range(60))
def test_deciding_and_flip_set_are_exact_with_class_weights_and_ties(seed: int) -> None:
    refs, query = weighted_set(seed)
    log_w, labels = oracle.log_weights(query, refs.embeddings, "gaussian")[0], refs.labels.numpy()
    nearest, label = np.argsort(-log_w, kind="stable"), exact_votes(log_w, labels, refs.class_weights).argmax()
    e = explain(refs, query)[0]
    assert e.label == label

    def beaten(votes: Any) -> bool:
        tied = votes[:label][refs.class_weights[:label] == refs.class_weights[label]] == votes[label]
        return bool(tied.any() or np.delete(votes, label).max() > votes[label] * (1 + 1e-12))

    def fixed(j: int) -> bool:
        for other in itertools.product(range(refs.n_classes), repeat=len(labels) - j):
            changed = labels.copy()
            changed[nearest[j:]] = other
            votes = exact_votes(log_w, changed, refs.class_weights)
            if np.delete(votes, label).max() >= votes[label] * (1 - 1e-12):
                return False
        return True

    assert e.deciding == next((j for j in range(len(labels)) if fixed(j)), len(labels))
    fewest = next(
        (
            size
            for size in range(1, len(labels))
            for gone in itertools.combinations(range(len(labels)), size)
            if beaten(exact_votes(np.delete(log_w, gone), np.delete(labels, gone), refs.class_weights))
        ),
        None,
    )
    assert e.flip_size == fewest
    if fewest is not None:
        refs.remove(e.flip_set() or [])
        assert explain(refs, query)[0].label != label


@pytest.mark.parametrize(("labels", "fewest"), [([1, 1, 1, 1, 0, 0, 0], 1), ([0, 0, 0, 0, 1, 1, 1], 2)])
def test_a_tie_goes_to_the_first_class_however_many_coincide(labels: list[int], fewest: int) -> None:
    refs = ReferenceSet(np.full((7, 3), 0.3), labels)
    e = explain(refs, [[0.1, -0.7, 0.2]])[0]
    assert e.flip_size == fewest
    refs.remove(e.flip_set() or [])
    assert label_of(refs, [[0.1, -0.7, 0.2]]) != e.label


def test_shown_votes_hold_the_weights_of_their_classes() -> None:
    rng = np.random.default_rng(0)
    points, labels, weights = rng.normal(size=(30, 3)), rng.integers(3, size=30), np.array([0.2, 1.0, 5.0])
    refs = ReferenceSet(points, labels, n_classes=3, class_weights=weights)
    query = rng.normal(size=(1, 3))
    log_w = oracle.log_weights(query, points, "gaussian")[0]
    votes = np.exp(log_w) * weights[labels]
    for neighbor, row in zip(explain(refs, query, k=30)[0].neighbors, np.argsort(-log_w), strict=True):
        assert (neighbor.id, neighbor.label) == (row, labels[row])
        assert neighbor.weight == pytest.approx(votes[row])
        assert neighbor.share == pytest.approx(votes[row] / votes.sum())
        assert neighbor.distance == pytest.approx(np.sqrt(-log_w[row]))


def test_an_edit_between_two_reads_does_not_mix_two_states() -> None:
    refs = ReferenceSet([[0.0], [1.0], [2.0]], [0, 0, 1], ids=["ann", "bob", "eve"])

    class Edited(ReferenceSet):
        """Loses its first example as soon as anything of it was read."""

        def __copy__(self) -> ReferenceSet:
            same = super().__copy__()
            if len(same) == 3:
                self.remove(["ann"])
            return same

    refs.__class__ = Edited
    e = explain(refs, [[0.1]], k=3)[0]
    assert [n.id for n in e.neighbors] == ["ann", "bob", "eve"]
    assert e.n_references == 3
    assert e.flip_set() == ["ann", "bob"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("seed", range(12))
def test_flip_set_changes_the_label_and_no_smaller_set_does(seed: int, kernel: str) -> None:
    refs, query = random_set(seed, kernel=kernel)
    before = label_of(refs, query)
    labels, log_w = refs.labels.numpy(), oracle.log_weights(query, refs.embeddings, kernel)[0]
    flip = explain(refs, query)[0].flip_set()
    assert flip is not None
    for size in range(1, len(flip)):
        for gone in itertools.combinations(range(len(refs)), size):
            votes = exact_votes(np.delete(log_w, gone), np.delete(labels, gone), np.ones(3))
            assert votes.argmax() == before
    refs.remove(flip)
    assert label_of(refs, query) != before


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), m=st.integers(2, 200), scale=st.sampled_from([0.1, 1.0, 10.0, 1000.0]))
def test_removing_the_flip_set_always_changes_the_label(seed: int, m: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    refs = ReferenceSet(rng.normal(size=(m, 3)).astype("float32") * scale, rng.integers(4, size=m), n_classes=4)
    query = rng.normal(size=(1, 3)).astype("float32") * scale
    e = explain(refs, query)[0]
    flip = e.flip_set()
    if flip is None:
        assert len(set(refs.labels.tolist())) == 1
        return
    assert len(flip) == e.flip_size
    refs.remove(flip)
    assert label_of(refs, query) != e.label


def test_flip_set_sees_beyond_underflow() -> None:
    # The rival's vote is e^-10,000 of the leader's: linear weights would call it 0.
    refs = ReferenceSet([[0.0], [100.0], [300.0]], [0, 1, 0], ids=["a", "b", "c"])
    assert explain(refs, [[0.0]])[0].flip_set() == ["a"]


def test_one_class_alone_cannot_be_flipped() -> None:
    e = explain(ReferenceSet([[0.0], [1.0]], [1, 1], n_classes=2), [[0.0]])[0]
    assert e.flip_set() is None
    assert e.flip_size is None
    assert "No removal" in " ".join(str(e).split())
    assert explain(ReferenceSet([[0.0], [1.0]], [0, 0]), [[0.0]])[0].deciding == 0


def test_a_tie_takes_every_example_to_decide() -> None:
    refs = ReferenceSet([[-1.0], [1.0]], [0, 1])
    e = explain(refs, [[0.0]])[0]
    assert (e.label, e.deciding, e.flip_size) == (0, 2, 1)


def test_an_explanation_outlives_edits_of_its_references() -> None:
    refs = ReferenceSet([[0.0], [0.5], [3.0]], [0, 0, 1], ids=["a", "b", "c"])
    e = explain(refs, [[0.1]])[0]
    refs.remove(["a"])
    assert e.flip_set() == ["a", "b"]


def test_conformal_numbers_come_from_the_calibration() -> None:
    refs = ReferenceSet([[0.0], [5.0]], [0, 1])
    near, far = explain(refs, [[0.0], [99.0]], calibration=Calibration([0.0, 0.1, 0.2, 0.3]))
    assert near.credibility == 1.0
    assert near.confidence == pytest.approx(0.8)
    assert far.credibility == pytest.approx(0.2)
    assert near.p_values == {0: 1.0, 1: pytest.approx(0.2)}
    assert explain(refs, [[0.0]])[0].credibility is None
    assert near.typicality is None


def test_an_example_of_low_typicality_is_called_unlike_the_training_data() -> None:
    refs = ReferenceSet([[0.0], [5.0]], [0, 1])
    given: dict[str, Any] = {"calibration": Calibration([0.0, 0.1, 0.2, 0.3]), "typicality": np.array([0.4, 0.05])}
    usual, strange = explain(refs, [[0.0], [99.0]], **given)
    assert usual.typicality == usual.to_dict()["typicality"] == 0.4
    assert any(named(each, "0.400", "40 %") for each in usual.sentences())
    unlike = "unlike the training data"
    assert [unlike in shown for shown in (str(usual), " ".join(strange.sentences()), strange.to_html())] == [0, 1, 1]
    with refuses(ShapeError, "typicality", 1, 2):
        explain(refs, [[0.0]], **given)


def test_names_and_records_are_the_users_own() -> None:
    frame = pd.DataFrame({"age": [30, 40], "label": ["odd", "name"]}, index=["ann", "bob"])
    refs = ReferenceSet([[0.0], [1.0]], [0, 1], ids=frame.index)
    e = explain(refs, [[0.1]], classes=["no", "yes"], records=frame)[0]
    shown = e.to_frame()
    assert shown["id"].tolist() == ["ann", "bob"]
    assert shown["label"].tolist() == ["no", "yes"]
    assert shown["age"].tolist() == [30, 40]
    assert shown["record.label"].tolist() == ["odd", "name"]  # kept beside our own column
    texts = explain(refs, [[0.1]], records={"ann": "first", "bob": "second"})[0]
    assert texts.to_frame()["record"].tolist() == ["first", "second"]
    series = explain(refs, [[0.1]], records=pd.Series(["x", "y"], index=["ann", "bob"]))[0]
    assert series.neighbors[1].record == "y"


def test_private_explanations_hold_labels_and_rounded_shares_only() -> None:
    refs = ReferenceSet([[0.0], [0.4], [3.0]], [0, 0, 1], ids=["secret-ann", "secret-bob", "secret-eve"])
    records = {name: f"record of {name}" for name in refs.ids}
    open_ = explain(refs, [[0.1]], records=records)[0]
    private = explain(refs, [[0.1]], records=records, private=True)[0]
    assert any("secret" in text for text in every_text(open_))
    assert not any("secret" in text or "record of" in text for text in every_text(private))
    assert private._votes is None
    assert private.to_frame().to_dict("list") == {"label": [0], "share": [1.0]}
    assert private.probabilities == {0: 1.0, 1: 0.0}
    assert (open_.deciding, open_.flip_size) == (1, 2)
    assert (private.deciding, private.flip_size) == (10, 10)  # ten or fewer
    assert named(private, "10 or fewer")
    with refuses(PrivacyError, "private", "flip_size"):
        private.flip_set()


def test_to_dict_is_json_and_says_what_the_object_says() -> None:
    refs = ReferenceSet([[0.0], [1.0]], [0, 1], ids=np.array([7, 8]))
    records = pd.DataFrame({"when": pd.to_datetime(["2020-01-01", "2021-01-01"]), "gap": [np.nan, 1.0]}, index=[7, 8])
    e = explain(refs, [[0.1]], records=records, calibration=Calibration([0.1, 0.5]))[0]
    plain = json.loads(json.dumps(e.to_dict(), allow_nan=False))
    assert plain["label"] == 0
    assert plain["neighbors"][0]["id"] == 7
    assert plain["neighbors"][0]["share"] == e.neighbors[0].share
    assert plain["neighbors"][0]["record"] == {"when": "2020-01-01 00:00:00", "gap": None}
    assert (plain["deciding"], plain["flip_size"]) == (e.deciding, e.flip_size)
    assert plain["p_values"] == {"0": e.p_values[0], "1": e.p_values[1]}  # type: ignore[index]


def test_html_is_well_formed_escaped_and_offline() -> None:
    refs = ReferenceSet([[0.0], [1.0]], [0, 1], ids=["<script>alert(1)</script>", "b&b"])
    e = explain(refs, [[0.1]], classes=["<b>no</b>", "yes"], records={"b&b": "<img src=x>"})[0]
    text = e.to_html()
    assert text == e._repr_html_()
    assert "<script" not in text
    assert "<img" not in text
    assert "<b>" not in text
    assert not re.search(r"https?:|src=|href=", text.replace("&lt;img src=x&gt;", ""))
    opened: list[str] = []

    class Checker(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Checker().feed(text)
    assert opened == []


def test_html_has_no_control_characters_and_none_that_reverse_the_reading_order() -> None:
    refs = ReferenceSet([[0.0], [1.0]], [0, 1], ids=["a\u202eb", "c\x00d"])
    text = explain(refs, [[0.1]])[0].to_html()
    assert not {"\u202e", "\x00"} & set(text)
    assert {"a\ufffdb", "c\ufffdd"} <= set(re.findall(r"<td>(.*?)</td>", text))


def test_words_say_the_numbers() -> None:
    refs = ReferenceSet([[0.0], [0.5], [2.0]], [0, 0, 1])
    e = explain(refs, [[0.1]], calibration=Calibration(np.linspace(-1, 1, 9)))[0]
    text = str(e)
    assert f"probability {100 * e.probability:.1f} % from few cases" in text
    text = " ".join(text.split())
    assert named(text, "credibility 0.800", "80 %", f"confidence {100 * e.confidence:.1f} %")  # type: ignore[operator]
    assert named(text, f"{e.flip_size} training examples")


def test_bad_input_is_named() -> None:
    refs = ReferenceSet([[0.0], [1.0]], [0, 1])
    with refuses(ShapeError, 1, 2):
        explain(refs, [[0.0, 1.0]])
    with refuses(NonFiniteError, "queries", "nan", "row 1"):
        explain(refs, [[0.0], [np.nan]])
    with refuses(InputError, "k", 0):
        explain(refs, [[0.0]], k=0)
    with refuses(ShapeError, 2, 1):
        explain(refs, [[0.0]], classes=["only"])
    with refuses(InputError, "classes"):
        explain(refs, [[0.0]], classes=["same", "same"])
    with refuses(InputError, "classes"):
        explain(refs, [[0.0]], classes=[["no"], ["yes"]])
    with refuses(InputError, "records", "list"):
        explain(refs, [[0.0]], records=["a", "b"])  # type: ignore[arg-type]
    with refuses(InputError, "records", 0):
        explain(refs, [[0.0]], records=pd.Series(["a", "b"], index=[0, 0]))


@pytest.mark.parametrize(
    "ids", [[(1, "a"), (1, "b")], [pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01")], [7, 8]]
)
def test_a_neighbours_id_is_the_very_id_of_the_example(ids: list[Any]) -> None:
    refs = ReferenceSet([[0.0], [1.0]], [0, 1], ids=ids)
    e = explain(refs, [[0.0]], records=dict(zip(ids, "xy", strict=True)))[0]
    assert [n.id for n in e.neighbors] == ids
    assert [n.record for n in e.neighbors] == ["x", "y"]
    json.dumps(e.to_dict())
    refs.remove([e.neighbors[0].id])
    assert len(refs) == 1
