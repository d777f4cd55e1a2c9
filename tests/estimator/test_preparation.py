"""Labels, ids, parts and weights: what happens before training."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dwac.errors import DwacError, IdError, LabelError, ShapeError
from dwac.estimator.preparation import Examples, class_weights, count, row_ids, row_weights, rows_of, split, take
from dwac.tasks.classes import encode_known, encode_labels
from tests.named import refuses, warns


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (["b", "a", "b", "a"], ["a", "b"]),
        (np.array([3, 1, 1, 3]), [1, 3]),
        (np.array([1.0, 2.0, 2.0, 1.0]), [1.0, 2.0]),
        (pd.Series([True, False, True, False]), [False, True]),
        (pd.Series(["x", "y", "y", "x"], dtype="category"), ["x", "y"]),
        ([("a", 1), ("a", 2), ("a", 1), ("a", 2)], [("a", 1), ("a", 2)]),
        ([1, "a", 1, "a"], [1, "a"]),
        (torch.tensor([5, 2, 5, 2]), [2, 5]),
    ],
)
def test_any_hashable_labels_become_codes_in_sorted_order(y, classes) -> None:
    codes, found = encode_labels(y, 4)
    assert found.tolist() == classes
    assert [found[code] for code in codes] == (y.tolist() if hasattr(y, "tolist") else y)


@pytest.mark.parametrize(
    ("y", "error", "facts"),
    [
        (None, LabelError, ["DWACClassifier", "y", "None"]),
        ([1, 2, 1], ShapeError, ["4 rows", "3 labels"]),
        ([1.0, np.nan, 2.0, 1.0], LabelError, ["y", "row 1", "nan"]),
        (["a", None, "b", "a"], LabelError, ["y", "row 1", "None"]),
        (["a", "a", "a", "a"], LabelError, ["y", "two classes", "'a'"]),
        ([1, 2, 3, 4], LabelError, ["4 classes in 4 rows"]),
        ([0.5, 1.5, 0.25, 0.5], LabelError, ["continuous", "0.5", "DWACRegressor", "pandas.cut"]),
        ([1.0, np.inf, 2.0, 1.0], LabelError, ["y", "row 1", "infinite"]),
        ([[1, 2], [1, 2], [1, 2], [1, 2]], ShapeError, ["one label per row", "(4, 2)"]),
        ([frozenset([1]), "a", {}, "a"], LabelError, ["labels", "hashable", "'dict'"]),
    ],
)
def test_bad_labels_are_named(y, error, facts) -> None:
    with refuses(error, *facts):
        encode_labels(y, 4)


def test_later_labels_must_be_known() -> None:
    classes = np.array(["no", "yes"])
    assert encode_known(["yes", "no"], 2, classes).tolist() == [1, 0]
    with refuses(LabelError, "no", "yes", "row 1", "maybe"):
        encode_known(["yes", "maybe"], 2, classes)


def test_ids_come_from_the_index_or_are_numbers() -> None:
    frame = pd.DataFrame({"a": [1, 2]}, index=["ann", "bob"])
    assert row_ids(frame, None, 2).tolist() == ["ann", "bob"]
    assert row_ids(frame.set_axis(pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])), None, 2).tolist() == [
        ("a", 1),
        ("a", 2),
    ]
    assert row_ids(np.zeros((2, 1)), None, 2).tolist() == [0, 1]
    assert row_ids(frame, [("x", 1), "y"], 2).tolist() == [("x", 1), "y"]
    with warns(UserWarning, "index of X", "row numbers", "unique"):
        assert row_ids(frame.set_axis(["ann", "ann"]), None, 2).tolist() == [0, 1]
    with refuses(IdError, "ids", "'x'"):
        row_ids(frame, ["x", "x"], 2)
    with refuses(ShapeError, 2, 1, "ids"):
        row_ids(frame, ["x"], 2)


@given(
    codes=st.lists(st.integers(0, 4), min_size=8, max_size=200).map(np.array),
    sizes=st.tuples(st.sampled_from([None, 0, 0.1, 0.3]), st.sampled_from([None, 0, 0.1, 0.3])),
    seed=st.integers(0, 100),
)
def test_parts_are_disjoint_and_validation_leaves_its_classes_in_training(codes, sizes, seed) -> None:
    parts = split(codes, sizes[0], sizes[1], np.random.RandomState(seed))
    together = np.concatenate([parts.training, parts.validation, parts.calibration])
    assert sorted(together) == list(range(len(codes)))
    assert set(codes[parts.validation]) <= set(codes[parts.training])


def test_calibration_rows_do_not_depend_on_the_labels() -> None:
    codes = np.repeat(range(40), [200, *[1] * 39])
    drawn, others = (split(y, None, None, np.random.RandomState(3)).calibration for y in (codes, np.zeros_like(codes)))
    assert drawn.tolist() == others.tolist()
    assert set(codes[drawn]) - set(codes[np.setdiff1d(range(len(codes)), drawn)])  # the last rows of some classes


def test_calibration_has_each_class_as_often_as_the_data() -> None:
    codes = np.repeat(range(4), [900, 50, 20, 10])
    drawn = [
        np.bincount(codes[split(codes, None, None, np.random.RandomState(i)).calibration], minlength=4)
        for i in range(200)
    ]
    expected = np.array([900, 50, 20, 10]) * len(split(codes, None, None, np.random.RandomState(0)).calibration) / 980
    assert np.allclose(np.mean(drawn, axis=0), expected, atol=0.35)


def test_parts_have_the_sizes_asked_for() -> None:
    codes = np.arange(1000) % 3
    parts = split(codes, 0.2, 50, np.random.RandomState(0))
    assert (len(parts.validation), len(parts.calibration)) == (200, 50)
    assert np.ptp(np.bincount(codes[parts.validation])) <= 4  # as even as what calibration left
    small, large = (split(np.arange(n) % 2, None, None, np.random.RandomState(0)) for n in (200, 300_000))
    middle = split(np.arange(16_000) % 2, None, None, np.random.RandomState(0))
    assert (len(small.validation), len(small.calibration)) == (20, 40)
    assert (len(middle.validation), len(middle.calibration)) == (1_000, 1_000)
    assert (len(large.validation), len(large.calibration)) == (5_000, 10_000)


@pytest.mark.parametrize(
    ("validation", "calibration", "facts"),
    [
        (0.6, 0.5, ["2 rows", "validation_size", "calibration_size", "-10 of 100"]),
        (1.5, None, ["validation_size", "[0, 1)", 1.5]),
        (-1, None, ["validation_size", "[0, 1)", -1]),
        (True, None, ["validation_size", "[0, 1)", True]),
        (None, 99, ["2 rows", "validation_size", "calibration_size", "-9 of 100"]),
    ],
)
def test_parts_that_cannot_be_are_refused(validation, calibration, facts) -> None:
    with refuses(DwacError, *facts):
        split(np.arange(100) % 2, validation, calibration, np.random.RandomState(0))


def test_rows_and_classes_have_weights() -> None:
    assert row_weights(None, 2).tolist() == [1, 1]
    assert row_weights(2.0, 2).tolist() == [1, 1]  # their mean is 1: only proportions count
    assert row_weights([1, 0], 2).tolist() == [2, 0]
    for weight, facts in [
        ([1, 2], ["(2,)", "(4,)"]),
        ([1, 1, np.nan, 1], ["row 2", "nan"]),
        ([1, 1, -1, 1], ["row 2", "-1.0"]),
        ([0, 0, 0, 0], ["positive", "zero"]),
        (["x"] * 4, ["numbers", "'x'"]),
    ]:
        with refuses(DwacError, "sample_weight", *facts):
            row_weights(weight, 4)
    codes, classes = np.array([0, 0, 0, 1]), np.array(["a", "b"])
    assert class_weights(None, codes, classes) is None
    assert np.array_equal(class_weights({"b": 3}, codes, classes), [1, 3])  # type: ignore[arg-type]
    assert np.allclose(class_weights("balanced", codes, classes), [2 / 3, 2])  # type: ignore[arg-type]
    assert np.allclose(class_weights("balanced", np.zeros(3, int), classes), [1, 1])  # type: ignore[arg-type]
    for class_weight, facts in [
        ({"c": 1}, ["'c'", "'a'", "'b'"]),
        ("even", ["'balanced'", "'even'"]),
        ({"a": 0}, ["positive", "{'a': 0}"]),
    ]:
        with refuses(DwacError, "class_weight", *facts):
            class_weights(class_weight, codes, classes)


def test_rows_are_taken_from_every_form_of_x() -> None:
    rows = np.array([2, 0])
    assert take([10, 11, 12], rows) == [12, 10]
    assert take(pd.Series([10, 11, 12]), rows).tolist() == [12, 10]
    assert [part.tolist() for part in take((torch.arange(3), np.arange(3)), rows)] == [[2, 0], [2, 0]]
    assert (count([1, 2]), count((torch.zeros(3, 2),)), count(np.zeros((4, 1)))) == (2, 3, 4)
    for X in ("text", 3.0, np.array(3.0)):
        with refuses(DwacError, "X"):
            rows_of(X)
    with refuses(DwacError, "shape=(0,)", "minimum of 1"):
        rows_of([])


def test_examples_are_described_only_when_looked_at() -> None:
    seen = []

    def describe(X):
        seen.append(len(X))
        return pd.DataFrame({"value": X})

    examples = Examples()
    examples.add(pd.Index(["a", "b"]), [1, 2], describe)
    examples.add(pd.Index([("c", 1)], tupleize_cols=False), pd.DataFrame({"value": [3]}))
    assert seen == []
    assert (examples["b"], examples[("c", 1)]) == ({"value": 2}, {"value": 3})
    assert seen == [1]
    assert (len(examples), list(examples), examples.get("z")) == (3, ["a", "b", ("c", 1)], None)
    examples.remove(["a", ("c", 1)])
    assert list(examples) == ["b"]
    frame = examples.frame()
    assert frame is not None
    assert frame["value"].to_dict() == {"b": 2}
