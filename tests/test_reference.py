"""A ReferenceSet answers correctly, edits exactly or not at all, and says what is wrong with bad input."""

import copy
import io
import pickle
from typing import Any

import joblib  # type: ignore[import-untyped]
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dwac import ReferenceSet
from dwac.errors import (
    BackendError,
    DwacError,
    EmptyReferenceError,
    IdError,
    InputError,
    KernelError,
    LabelError,
    NonFiniteError,
    ShapeError,
)
from dwac.kernels import KERNELS
from tests import oracle
from tests.named import refuses

RNG = np.random.default_rng(0)
EMBEDDINGS = RNG.normal(size=(20, 3)).astype(np.float32)
LABELS = RNG.integers(0, 4, 20)
QUERIES = RNG.normal(size=(6, 3)).astype(np.float32)


def example(**changes) -> ReferenceSet:
    """Twenty references of four classes, numbered by default."""
    return ReferenceSet(**{"embeddings": EMBEDDINGS, "labels": LABELS, "n_classes": 4, **changes})


def state(refs: ReferenceSet):
    """Everything visible of a set."""
    return refs.embeddings.tolist(), refs.labels.tolist(), list(refs.ids), refs.n_classes, refs.kernel, len(refs)


def assert_same_set(got: ReferenceSet, want: ReferenceSet) -> None:
    assert state(got) == state(want)
    np.testing.assert_array_equal(got.log_class_weights(QUERIES), want.log_class_weights(QUERIES))
    for one, other in zip(got.nearest(QUERIES, 5), want.nearest(QUERIES, 5), strict=True):
        np.testing.assert_array_equal(one, other)


# Queries


@pytest.mark.parametrize("kernel", list(KERNELS))
def test_answers_equal_the_oracle(kernel):
    refs = example(kernel=kernel)
    votes = oracle.log_class_weights(QUERIES, EMBEDDINGS, LABELS, 4, kernel)
    p = oracle.probabilities(QUERIES, EMBEDDINGS, LABELS, 4, kernel)
    np.testing.assert_allclose(refs.log_class_weights(QUERIES), votes, rtol=1e-5)
    np.testing.assert_allclose(refs.probabilities(QUERIES), p, rtol=1e-5)
    np.testing.assert_allclose(refs.log_probabilities(QUERIES), np.log(p), rtol=1e-5)


@pytest.mark.parametrize("kernel", list(KERNELS))
def test_neighbours_carry_ids_labels_distances_and_weights(kernel):
    names = [f"row {i}" for i in range(20)]
    votes, near = example(kernel=kernel, ids=names).query(QUERIES, k=7)
    rows, squared = oracle.nearest(QUERIES, EMBEDDINGS, 7)
    np.testing.assert_array_equal(near.ids, np.array(names, dtype=object)[rows])
    np.testing.assert_array_equal(near.labels, LABELS[rows])
    np.testing.assert_allclose(near.squared_distances, squared, rtol=1e-12)
    log_w = np.take_along_axis(oracle.log_weights(QUERIES, EMBEDDINGS, kernel), rows, axis=1)
    np.testing.assert_allclose(near.log_weights, log_w, rtol=1e-12)
    np.testing.assert_allclose(votes, oracle.log_class_weights(QUERIES, EMBEDDINGS, LABELS, 4, kernel), rtol=1e-5)


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("distance", [1e2, 1e4, 1e8, 1e15, 1e30])
def test_far_query_keeps_finite_probabilities(kernel, distance):
    far = np.concatenate([QUERIES + np.float32(distance), QUERIES * np.float32(distance)])
    refs = example(kernel=kernel)
    p = refs.probabilities(far)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert np.isfinite(refs.log_class_weights(far)).all()
    assert np.isfinite(refs.log_probabilities(far)).all()


def test_a_class_without_examples_has_probability_zero():
    refs = example(n_classes=6)
    assert (refs.log_class_weights(QUERIES)[:, 4:] == -np.inf).all()
    assert (refs.log_probabilities(QUERIES)[:, 4:] == -np.inf).all()
    p = refs.probabilities(QUERIES)
    assert (p[:, 4:] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)


def test_a_single_example_is_certain_of_its_class():
    refs = ReferenceSet([[1.0, 2.0]], [0])
    assert refs.n_classes == 1
    assert refs.probabilities([[50.0, -3.0]]).tolist() == [[1.0]]


def test_numpy_is_answered_in_numpy_and_tensors_with_tensors():
    refs = example()
    cases: list[tuple[Any, Any]] = [
        (QUERIES, np.ndarray),
        (QUERIES.tolist(), np.ndarray),
        (pd.DataFrame(QUERIES), np.ndarray),
        (torch.as_tensor(QUERIES), torch.Tensor),
    ]
    for queries, kind in cases:
        methods: list[Any] = [refs.log_class_weights, refs.log_probabilities, refs.probabilities]
        for method in methods:
            answer = method(queries)
            assert isinstance(answer, kind)
            assert answer.dtype in (np.float64, torch.float64)
            assert tuple(answer.shape) == (6, 4)
        votes, near = refs.query(queries, k=2)
        assert isinstance(votes, kind)
        assert all(isinstance(field, np.ndarray) and field.shape == (6, 2) for field in near)


def test_tensor_queries_have_gradients():
    queries = torch.as_tensor(QUERIES).requires_grad_()
    example().log_probabilities(queries)[:, 0].sum().backward()
    assert queries.grad is not None
    assert queries.grad.isfinite().all()


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "disguise",
    [
        read_only,
        lambda a: a.astype(a.dtype.newbyteorder(">")),
        lambda a: a[::-1].copy()[::-1],
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=0)[::2],
        pd.DataFrame,
        lambda a: a.tolist(),
        torch.as_tensor,
        lambda a: torch.as_tensor(a).T.contiguous().T,
    ],
    ids=["read-only", "big-endian", "reversed", "fortran", "strided", "DataFrame", "list", "tensor", "transposed"],
)
def test_any_layout_of_the_same_numbers_gives_the_same_answer(disguise):
    # torch itself warns of read-only arrays and refuses reversed and foreign ones.
    refs = ReferenceSet(disguise(EMBEDDINGS), LABELS)
    np.testing.assert_allclose(refs.probabilities(disguise(QUERIES)), example().probabilities(QUERIES), rtol=1e-5)
    refs.add(disguise(QUERIES), [0] * 6)
    assert len(refs) == 26


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8])
def test_any_real_type_is_accepted(dtype):
    embeddings, queries = (np.abs(20 * x).astype(dtype) for x in (EMBEDDINGS, QUERIES))
    got = ReferenceSet(embeddings, LABELS).probabilities(queries)
    np.testing.assert_allclose(got, oracle.probabilities(queries, embeddings, LABELS, 4, "gaussian"), atol=1e-5)


@pytest.mark.parametrize(
    "labels",
    [
        LABELS.tolist(),
        LABELS.astype(np.float64),
        LABELS.astype(np.uint8),
        torch.as_tensor(LABELS),
        torch.as_tensor(LABELS).float(),
        pd.Series(LABELS, index=range(100, 120)),
    ],
    ids=["list", "float", "uint8", "tensor", "float tensor", "Series"],
)
def test_labels_may_come_in_any_type_that_holds_whole_numbers(labels):
    refs = ReferenceSet(EMBEDDINGS, labels)
    assert refs.labels.dtype == torch.int64
    assert refs.labels.tolist() == LABELS.tolist()


def test_no_queries_give_empty_answers():
    refs = example()
    assert refs.probabilities(np.zeros((0, 3))).shape == (0, 4)
    assert refs.nearest(np.zeros((0, 3)), 2).ids.shape == (0, 2)


def test_repr_gives_its_size():
    assert repr(example()) == "ReferenceSet(20 examples, 3 dimensions, 4 classes, kernel='gaussian')"


def test_moving_to_a_device_gives_an_equal_set():
    refs = example()
    moved = refs.to("cpu")
    moved.remove([0])
    assert_same_set(refs, example())


# Independence


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("convert", [np.array, torch.tensor])
def test_later_edits_of_the_callers_arrays_do_not_change_the_votes(convert, edited):
    embeddings, labels, ids = convert(EMBEDDINGS), convert(LABELS), list(range(20))
    more, more_labels = convert(QUERIES), convert(LABELS[:6])
    refs, want = ReferenceSet(embeddings, labels, ids=ids), ReferenceSet(EMBEDDINGS, LABELS, ids=ids)
    if edited:
        refs.add(more, more_labels, ids=range(20, 26))
        want.add(QUERIES, LABELS[:6], ids=range(20, 26))
    for array in (embeddings, labels, more, more_labels):
        array[:] = 0
    ids[0] = 99
    assert_same_set(refs, want)


def test_the_ids_it_returns_cannot_be_used_to_change_it():
    refs = example(ids=[f"row {i}" for i in range(20)])
    with pytest.raises(ValueError, match="read-only"):
        refs.ids[0] = "another"


@pytest.mark.parametrize("queried", [False, True])
@pytest.mark.parametrize(
    "round_trip",
    [copy.copy, copy.deepcopy, lambda refs: pickle.loads(pickle.dumps(refs)), lambda refs: through_joblib(refs)],
    ids=["copy", "deepcopy", "pickle", "joblib"],
)
def test_copies_are_equal_and_independent(round_trip, queried):
    refs = example(ids=[("patient", i) for i in range(20)], kernel="laplace")
    if queried:  # then it holds an index too
        refs.probabilities(QUERIES)
    twin = round_trip(refs)
    assert_same_set(twin, refs)
    before = state(refs)
    twin.remove([("patient", 3)])
    twin.relabel([("patient", 4)], [0])
    assert state(refs) == before
    rest = np.arange(20) != 3
    labels = LABELS.copy()
    labels[4] = 0
    assert_same_set(twin, ReferenceSet(EMBEDDINGS[rest], labels[rest], twin.ids, 4, "laplace"))


def through_joblib(refs):
    file = io.BytesIO()
    joblib.dump(refs, file)
    file.seek(0)
    return joblib.load(file)


# Editing


def test_removing_equals_rebuilding():
    refs = example()
    refs.remove([0, 19, 7])
    rest = np.setdiff1d(np.arange(20), [0, 7, 19])
    assert_same_set(refs, ReferenceSet(EMBEDDINGS[rest], LABELS[rest], rest.tolist(), 4))


def test_relabelling_equals_rebuilding():
    refs = example()
    refs.relabel([5, 2], [3, 0])
    labels = LABELS.copy()
    labels[[5, 2]] = [3, 0]
    assert_same_set(refs, example(labels=labels))


def test_adding_equals_rebuilding():
    refs = example()
    assert refs.add(QUERIES, [0, 1, 2, 3, 0, 1]) == [20, 21, 22, 23, 24, 25]
    both = np.concatenate([EMBEDDINGS, QUERIES])
    assert_same_set(refs, ReferenceSet(both, [*LABELS, 0, 1, 2, 3, 0, 1]))


@settings(max_examples=20)
@given(data=st.data(), kernel=st.sampled_from(sorted(KERNELS)))
def test_any_series_of_edits_equals_rebuilding(data, kernel):
    refs = example(kernel=kernel)
    rows = {i: (EMBEDDINGS[i], int(LABELS[i])) for i in range(20)}
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    for edit in data.draw(st.lists(st.sampled_from(["add", "remove", "relabel"]), max_size=6)):
        chosen = data.draw(st.lists(st.sampled_from(sorted(rows)), max_size=min(4, len(rows) - 1), unique=True))
        if edit == "add":
            h, y = rng.normal(size=(2, 3)).astype(np.float32), rng.integers(0, 4, 2)
            rows.update(zip(refs.add(h, y), zip(h, y.tolist(), strict=True), strict=True))
        elif edit == "remove":
            refs.remove(chosen)
            rows = {i: row for i, row in rows.items() if i not in chosen}
        else:
            y = rng.integers(0, 4, len(chosen))
            refs.relabel(chosen, y)
            rows.update({i: (rows[i][0], int(label)) for i, label in zip(chosen, y, strict=True)})
    embeddings, labels = zip(*rows.values(), strict=True)
    assert_same_set(refs, ReferenceSet(np.stack(embeddings), list(labels), list(rows), 4, kernel))


@settings(max_examples=20)
@given(n=st.integers(0, 9), seed=st.integers(0, 1000), kernel=st.sampled_from(sorted(KERNELS)))
def test_adding_then_removing_changes_nothing(n, seed, kernel):
    rng = np.random.default_rng(seed)
    refs = example(kernel=kernel)
    refs.remove(refs.add(rng.normal(size=(n, 3)), rng.integers(0, 4, n)))
    assert_same_set(refs, example(kernel=kernel))


def test_edits_of_nothing_change_nothing():
    refs = example()
    refs.remove([])
    refs.relabel([], [])
    assert refs.add(np.zeros((0, 3)), []) == []
    assert refs.add(np.zeros((0, 3)), [], ids=[]) == []
    assert_same_set(refs, example())


def test_additions_are_kept_in_the_precision_of_the_set():
    refs = example()
    refs.add(QUERIES.astype(np.float64), [0] * 6)
    assert refs.embeddings.dtype == torch.float32
    refs = example(embeddings=EMBEDDINGS.astype(np.float64))
    refs.add(QUERIES, [0] * 6)
    assert refs.embeddings.dtype == torch.float64


def test_an_edit_is_seen_by_the_next_query():
    refs = ReferenceSet([[0.0], [1.0]], [0, 1])
    assert refs.probabilities([[0.1]])[0, 0] > 0.5
    refs.relabel([0], [1])
    assert refs.probabilities([[0.1]])[0, 0] == 0


def test_an_index_taken_before_an_edit_still_answers_for_its_own_data():
    refs = example()
    index, labels = refs.voters.index, refs.labels.tolist()
    refs.relabel([0], [(labels[0] + 1) % 4])
    assert refs.voters.index is not index
    assert index.labels.tolist() == labels


# Ids


class Opaque:
    """An id that equals only itself."""


@pytest.mark.parametrize(
    "ids",
    [
        [10, 20, 30],
        [-1, 0, 2**62],
        [2**64, 2**100, 2**127 + 1],
        ["a", "b", "c"],
        ["1", 1, (1,)],
        [(1, 2), (1, 3), (2, 1)],
        [None, "b", 2.5],
        [2**60 + 1, 2**60, 0.5],
        [Opaque(), Opaque(), Opaque()],
        [pd.Timestamp("2026-01-01"), pd.Timestamp("2026-01-02"), "x"],
        list(np.array([4, 5, 6])),
        np.array([4, 5, 6], np.uint8),
        np.array(["a", "b", "c"]),
        torch.tensor([4, 5, 6]),
        pd.Index([4, 5, 6]),
        pd.Index(["a", "b", "c"]),
        pd.MultiIndex.from_tuples([(1, "a"), (1, "b"), (2, "a")]),
        pd.date_range("2026-01-01", periods=3),
        pd.Series(["a", "b", "c"], index=[7, 8, 9]),
        range(5, 8),
        {"a": 0, "b": 0, "c": 0},
    ],
    ids=lambda ids: type(ids).__name__ + " " + ", ".join(type(i).__name__ for i in ids),
)
def test_ids_of_any_kind_are_kept_and_found(ids):
    names = ids.tolist() if isinstance(ids, torch.Tensor | np.ndarray) else list(ids)
    refs = ReferenceSet([[0.0], [1.0], [5.0]], [0, 0, 1], ids=ids)
    assert list(refs.ids) == names
    assert refs.nearest([[4.0]], k=1).ids[0, 0] == names[2]
    assert refs.voters.positions([names[2], names[0]]).tolist() == [2, 0]
    refs.relabel([names[1]], [1])
    assert refs.labels.tolist() == [0, 1, 1]
    refs.remove([names[0]])
    assert list(refs.ids) == names[1:]
    assert refs.add([[9.0]], [0], ids=[names[0]]) == [names[0]]  # free again
    assert list(refs.ids) == [*names[1:], names[0]]
    assert refs.add([[8.0]], [0], ids=["quite new"]) == ["quite new"]
    assert list(refs.ids) == [*names[1:], names[0], "quite new"]
    assert [type(i) for i in refs.ids[:2]] == [int if isinstance(i, np.integer) else type(i) for i in names[1:]]
    with refuses(IdError, "ids", "new", repr(refs.ids[0]), "relabel"):
        refs.add([[8.0]], [0], ids=[names[1]])


def test_numpy_whole_numbers_name_the_same_examples_as_pythons():
    refs = example()
    assert (
        refs.voters.positions(np.array([3, 1])).tolist() == refs.voters.positions([np.int32(3), 1]).tolist() == [3, 1]
    )
    with refuses(IdError, "ids", "new", 3, "relabel"):
        refs.add(QUERIES[:1], [0], ids=[np.int64(3)])
    with refuses(IdError, "3"):
        refs.voters.positions(["3"])  # a string is another id than a number


def test_default_ids_are_never_used_twice():
    refs = example()
    refs.remove([19, 18, 17])
    assert refs.add(QUERIES[:2], [0, 0]) == [20, 21]
    refs.remove([20, 21])
    assert refs.add(QUERIES[:1], [0]) == [22]
    refs.add(QUERIES[:2], [0, 0], ids=[np.int64(100), "a name"])
    refs.remove([100])
    assert refs.add(QUERIES[:1], [0]) == [101]


def test_a_set_created_with_ids_requires_them_when_adding():
    refs = example(ids=range(100, 120))
    with refuses(IdError, "give ids=…"):
        refs.add(QUERIES[:1], [0])


# Errors: each says what was required and what was given; a failed call changes nothing


@pytest.mark.parametrize(
    ("changes", "error", "facts"),
    [
        ({"embeddings": EMBEDDINGS[0]}, ShapeError, ["embeddings", "2-D", "(3,)", "(1, d)"]),
        ({"embeddings": EMBEDDINGS[None]}, ShapeError, ["embeddings", "2-D", "(1, 20, 3)"]),
        ({"embeddings": EMBEDDINGS[:0], "labels": []}, EmptyReferenceError, ["(0, 3)"]),
        ({"embeddings": EMBEDDINGS[:, :0]}, EmptyReferenceError, ["(20, 0)"]),
        ({"embeddings": [["a"] * 3] * 20}, InputError, ["embeddings", "numbers", "list"]),
        ({"embeddings": [[1.0], [1.0, 2.0]]}, InputError, ["embeddings", "numbers", "list"]),
        ({"embeddings": EMBEDDINGS.astype(complex)}, InputError, ["embeddings", "torch.complex128", "float"]),
        ({"embeddings": EMBEDDINGS > 0}, InputError, ["embeddings", "torch.bool", "float"]),
        ({"labels": LABELS[:-1]}, ShapeError, ["labels", "20", "19"]),
        ({"labels": LABELS[:, None]}, ShapeError, ["labels", "1-D", "(20, 1)"]),
        ({"labels": 0}, ShapeError, ["labels", "1-D", "()"]),
        ({"labels": [[0], [1, 2]] * 10}, LabelError, ["labels", "whole numbers", "list"]),
        ({"labels": [*LABELS[:-1], 4]}, LabelError, ["labels", "0 … 3", "4", "row 19"]),
        ({"labels": [-1, *LABELS[1:]]}, LabelError, ["labels", "0 … 3", "-1", "row 0"]),
        ({"labels": [-1, *LABELS[1:]], "n_classes": None}, LabelError, ["labels", "0 … n_classes-1", "-1", "row 0"]),
        ({"labels": [0, 0.5, *LABELS[2:]]}, LabelError, ["labels", "whole numbers", "0.5", "row 1", "LabelEncoder"]),
        ({"labels": [0, np.nan, *LABELS[2:]]}, LabelError, ["labels", "whole numbers", "nan", "row 1", "LabelEncoder"]),
        (
            {"labels": [0, np.inf, *LABELS[2:]], "n_classes": None},
            LabelError,
            ["labels", "0 … n_classes-1", "inf", "row 1"],
        ),
        (
            {"labels": [0, 1e300, *LABELS[2:]], "n_classes": None},
            LabelError,
            ["labels", "0 … n_classes-1", "1e+300", "row 1"],
        ),
        ({"labels": ["cat"] * 20}, LabelError, ["labels", "whole numbers", "'cat'", "row 0", "LabelEncoder"]),
        ({"labels": [None] * 20}, LabelError, ["labels", "whole numbers", "None", "row 0", "LabelEncoder"]),
        ({"labels": LABELS > 1}, LabelError, ["labels", "0 … n_classes-1", "bool", "row 0", "LabelEncoder"]),
        ({"n_classes": 0}, InputError, ["n_classes", "1", "0"]),
        ({"n_classes": -3}, InputError, ["n_classes", "1", "-3"]),
        ({"n_classes": 4.0}, InputError, ["n_classes", "1", "4.0"]),
        ({"n_classes": True}, InputError, ["n_classes", "1", "True"]),
        ({"n_classes": "4"}, InputError, ["n_classes", "1", "'4'"]),
        ({"n_classes": 2}, LabelError, ["labels", "0 … 1", "2", "row 0"]),
        ({"ids": range(19)}, ShapeError, ["ids", "20", "19"]),
        ({"ids": [0, *range(19)]}, IdError, ["ids", "unique", "0"]),
        ({"ids": ["a"] * 20}, IdError, ["ids", "unique", "'a'"]),
        ({"ids": [[i] for i in range(20)]}, IdError, ["ids", "hashable", "[0]", "'list'"]),
        ({"ids": [([],)] * 20}, IdError, ["ids", "hashable", "([],)", "'list'"]),
        ({"ids": np.arange(40).reshape(20, 2)}, IdError, ["ids", "1-D", "(20, 2)"]),
        ({"ids": np.array(3)}, IdError, ["ids", "1-D", "()"]),
        ({"ids": "twenty characters it"}, IdError, ["ids", "'twenty characters it'", "['twenty characters it']"]),
        ({"ids": 5}, IdError, ["ids", "5", "[5]"]),
        ({"kernel": "rbf"}, KernelError, ["'rbf'", "gaussian", "laplace", "inverse_quadratic"]),
    ],
)
def test_an_invalid_set_is_rejected(changes, error, facts):
    with refuses(error, *facts) as caught:
        example(**changes)
    assert isinstance(caught.value, DwacError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_a_value_that_is_not_finite_is_reported_with_its_position(bad, convert):
    spoilt = EMBEDDINGS.copy()
    spoilt[13, 2] = spoilt[15, 0] = bad
    with refuses(NonFiniteError, "embeddings", 13, 2):
        ReferenceSet(convert(spoilt), LABELS)
    with refuses(NonFiniteError, "queries", 13, 2):
        example().probabilities(convert(spoilt))


@pytest.mark.parametrize(
    ("call", "error", "facts"),
    [
        (lambda refs: refs.probabilities(QUERIES[0]), ShapeError, ["queries", "2-D", "(3,)", "(1, d)"]),
        (lambda refs: refs.probabilities(QUERIES[:, :2]), ShapeError, ["queries", "3", "(6, 2)"]),
        (lambda refs: refs.probabilities([["x"]]), InputError, ["queries", "numbers", "list"]),
        (lambda refs: refs.probabilities(None), InputError, ["queries", "numbers", "NoneType"]),
        (lambda refs: refs.log_class_weights(QUERIES, backend="gpu"), BackendError, ["'gpu'", "auto", "torch"]),
        (lambda refs: refs.nearest(QUERIES, 0), InputError, ["k", "1", "0"]),
        (lambda refs: refs.nearest(QUERIES, 21), InputError, ["k", "0 … 20", "21"]),
        (lambda refs: refs.nearest(QUERIES, 2.0), InputError, ["k", "1", "2.0"]),
        (lambda refs: refs.nearest(QUERIES, True), InputError, ["k", "1", "True"]),
        (lambda refs: refs.add(QUERIES[:, :2], [0] * 6), ShapeError, ["embeddings", "3", "(6, 2)"]),
        (lambda refs: refs.add(QUERIES[0], [0]), ShapeError, ["embeddings", "2-D", "(3,)", "(1, d)"]),
        (
            lambda refs: refs.add(QUERIES * np.nan, [0] * 6),
            NonFiniteError,
            ["embeddings", "finite", "nan", "row 0", "column 0"],
        ),
        (
            lambda refs: refs.add([[0.0, 0, 0], [0, 1e100, 0]], [0, 0]),
            NonFiniteError,
            ["torch.float32", "finite", "inf", "row 1", "column 1"],
        ),
        (lambda refs: refs.add(QUERIES, [0] * 5), ShapeError, ["labels", "6", "5"]),
        (lambda refs: refs.add(QUERIES, [0] * 5 + [4]), LabelError, ["labels", "0 … 3", "4", "row 5"]),
        (
            lambda refs: refs.add(QUERIES, [0.5] * 6),
            LabelError,
            ["labels", "0 … n_classes-1", "float64", "row 0", "LabelEncoder"],
        ),
        (lambda refs: refs.add(QUERIES, [0] * 6, ids=range(5)), ShapeError, ["ids", "6", "5"]),
        (lambda refs: refs.add(QUERIES, [0] * 6, ids=range(19, 25)), IdError, ["ids", "19", "relabel"]),
        (lambda refs: refs.add(QUERIES, [0] * 6, ids=[50] * 6), IdError, ["ids", "unique", "50"]),
        (lambda refs: refs.add(QUERIES, [0] * 6, ids=[[]] * 6), IdError, ["ids", "hashable", "'list'"]),
        (lambda refs: refs.remove([3, 99]), IdError, ["ids", "99", "0"]),
        (lambda refs: refs.remove([3, 3]), IdError, ["ids", "unique", "3"]),
        (lambda refs: refs.remove(3), IdError, ["ids", "3", "[3]"]),
        (lambda refs: refs.remove("3"), IdError, ["ids", "'3'", "['3']"]),
        (lambda refs: refs.remove(range(20)), EmptyReferenceError, ["at least one"]),
        (lambda refs: refs.relabel([3, 99], [0, 0]), IdError, ["ids", "99", "0"]),
        (lambda refs: refs.relabel([3, 3], [0, 1]), IdError, ["ids", "unique", "3"]),
        (lambda refs: refs.relabel([3, 4], [0]), ShapeError, ["labels", "2", "1"]),
        (lambda refs: refs.relabel([3, 4], [0, 4]), LabelError, ["labels", "0 … 3", "4", "row 1"]),
        (
            lambda refs: refs.relabel([3], ["cat"]),
            LabelError,
            ["labels", "0 … n_classes-1", "<U3", "row 0", "LabelEncoder"],
        ),
        (lambda refs: refs.voters.positions([20]), IdError, ["ids", "20", "0"]),
    ],
)
def test_a_failed_call_says_why_and_changes_nothing(call, error, facts):
    refs = example()
    with refuses(error, *facts):
        call(refs)
    assert_same_set(refs, example())
    assert refs.add(QUERIES[:1], [0]) == [20]  # not even the next id has changed


def test_a_half_precision_set_rejects_what_it_cannot_store():
    refs = example(embeddings=EMBEDDINGS.astype(np.float16))
    with refuses(NonFiniteError, "float16", "inf", "row 0", "column 0"):
        refs.add([[1e5, 0, 0]], [0])
    assert len(refs) == 20


def test_replaced_parts_leave_the_rest_and_the_set_itself_as_they_are():
    refs = example()
    doubled = refs.replaced(embeddings=2 * refs.embeddings, ids=[f"r{i}" for i in range(len(refs))])
    assert torch.equal(doubled.embeddings, 2 * refs.embeddings)
    assert torch.equal(doubled.labels, refs.labels)
    assert doubled.ids[0] == "r0" != refs.ids[0]
    weighted = refs.replaced(class_weights=[2.0] * refs.n_classes)
    query = refs.embeddings[:1]
    assert torch.allclose(
        weighted.log_class_weights(query) - refs.log_class_weights(query), torch.tensor(2.0).log().double()
    )
    with refuses(ShapeError, "row"):
        refs.replaced(embeddings=refs.embeddings[1:])
