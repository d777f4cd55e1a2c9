"""References with weights: one of weight n votes as n copies would, for every kernel and backend, to the last digit."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dwac import ReferenceSet
from dwac.errors import DwacError, ShapeError
from dwac.kernels import KERNELS
from tests import oracle
from tests.engine.helpers import assert_close, every_backend, every_kernel

relaxed = settings(max_examples=20)
RNG = np.random.default_rng(0)
M, K = 40, 4
POINTS = RNG.normal(size=(M, 3)).astype(np.float32)
LABELS = RNG.integers(0, K - 1, M)  # the last class has no reference
QUERIES = RNG.normal(size=(9, 3)).astype(np.float32)
COUNTS = RNG.integers(1, 9, M)
WIDE = 10.0 ** RNG.uniform(-6, 12, M)
CLASS_WEIGHTS = np.array([0.3, 1.0, 5.0, 2.0])


def weighted(weights: Any = WIDE, **changes: Any) -> ReferenceSet:
    return ReferenceSet(**{"embeddings": POINTS, "labels": LABELS, "n_classes": K, "weights": weights, **changes})


def log_votes(queries: Any, points: Any, kernel: str, weights: Any) -> Any:
    """(n, m): the log of every vote, in float64."""
    return oracle.log_weights(queries, points, kernel) + np.log(weights)


def log_sums(votes: Any, codes: Any, n: int) -> Any:
    return np.array([[oracle.log_sum_exp(row[codes == code].tolist()) for code in range(n)] for row in votes])


@every_kernel
@every_backend
@pytest.mark.parametrize("by_class", [None, CLASS_WEIGHTS], ids=["", "class weights"])
def test_votes_equal_the_oracle(backend, device, kernel, by_class):
    refs = weighted(kernel=kernel, class_weights=by_class).to(device)
    want = log_sums(log_votes(QUERIES, POINTS, kernel, WIDE), LABELS, K)
    want += 0 if by_class is None else np.log(by_class)
    assert_close(refs.log_class_weights(QUERIES, backend=backend), want)
    odds = np.exp(want - want.max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        refs.probabilities(QUERIES, backend=backend), odds / odds.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-12
    )


@every_kernel
def test_votes_of_float64_equal_the_oracle_to_float64(kernel):
    refs = weighted(kernel=kernel, embeddings=POINTS.astype(np.float64))
    want = log_sums(log_votes(QUERIES, POINTS, kernel, WIDE), LABELS, K)
    np.testing.assert_allclose(refs.log_class_weights(QUERIES.astype(np.float64)), want, rtol=1e-9, atol=1e-9)


@every_kernel
@every_backend
def test_a_weight_of_n_is_n_copies(backend, device, kernel):
    few = weighted(COUNTS, kernel=kernel, class_weights=CLASS_WEIGHTS).to(device)
    every = np.repeat(np.arange(M), COUNTS)
    all_ = ReferenceSet(POINTS[every], LABELS[every], None, K, kernel, CLASS_WEIGHTS).to(device)
    np.testing.assert_allclose(
        few.probabilities(QUERIES, backend=backend), all_.probabilities(QUERIES, backend=backend), rtol=2e-5, atol=1e-9
    )
    assert_close(few.log_class_weights(QUERIES, backend=backend), all_.log_class_weights(QUERIES, backend=backend))


@every_kernel
def test_equal_weights_change_no_probability(kernel):
    for weight in (1e-6, 1.0, 1e12):
        np.testing.assert_allclose(
            weighted(np.full(M, weight), kernel=kernel).probabilities(QUERIES),
            ReferenceSet(POINTS, LABELS, None, K, kernel).probabilities(QUERIES),
            rtol=2e-5,
            atol=1e-12,
        )


@every_kernel
def test_class_weights_are_a_special_case(kernel):
    by_class = ReferenceSet(POINTS, LABELS, None, K, kernel, CLASS_WEIGHTS)
    got = weighted(CLASS_WEIGHTS[LABELS], kernel=kernel).log_class_weights(QUERIES)
    assert_close(got, by_class.log_class_weights(QUERIES))


@every_kernel
@pytest.mark.parametrize("distance", [1e2, 1e4, 1e8, 1e15])
def test_a_far_query_keeps_finite_probabilities(kernel, distance):
    far = np.concatenate([QUERIES + np.float32(distance), QUERIES * np.float32(distance)])
    p = weighted(kernel=kernel).probabilities(far)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)


@relaxed
@given(
    seed=st.integers(0, 999),
    m=st.integers(1, 30),
    kernel=st.sampled_from(sorted(KERNELS)),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
)
def test_any_small_problem_equals_the_oracle(seed, m, kernel, scale):
    rng = np.random.default_rng(seed)
    points, queries = (scale * rng.normal(size=(n, 2)).astype(np.float32) for n in (m, 3))
    labels, weights = rng.integers(0, 3, m), 10.0 ** rng.uniform(-6, 12, m)
    refs = ReferenceSet(points, labels, None, 3, kernel, weights=weights)
    assert_close(refs.log_class_weights(queries), log_sums(log_votes(queries, points, kernel, weights), labels, 3))


# Neighbours


@every_kernel
@every_backend
@pytest.mark.parametrize("weights", [COUNTS, WIDE], ids=["counts", "wide"])
def test_neighbours_come_by_their_votes_with_exact_distances(backend, device, kernel, weights):
    refs = weighted(weights, kernel=kernel, class_weights=CLASS_WEIGHTS, ids=[f"r{i}" for i in range(M)]).to(device)
    near = refs.nearest(QUERIES, 7, backend=backend)
    votes, squared = log_votes(QUERIES, POINTS, kernel, weights), oracle.squared_distances(QUERIES, POINTS)
    rows = np.argsort(-votes, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(near.ids, np.array([f"r{i}" for i in range(M)], dtype=object)[rows])
    np.testing.assert_array_equal(near.labels, LABELS[rows])
    np.testing.assert_array_equal(near.sizes, np.asarray(weights, np.float64)[rows])
    np.testing.assert_allclose(near.squared_distances, np.take_along_axis(squared, rows, 1), rtol=1e-9, atol=1e-12)
    want = np.take_along_axis(votes, rows, axis=1) + np.log(CLASS_WEIGHTS)[LABELS[rows]]
    np.testing.assert_allclose(near.log_weights, want, rtol=1e-9, atol=1e-9)


@every_kernel
def test_equal_votes_come_in_the_order_of_the_set(kernel):
    refs = ReferenceSet(np.zeros((5, 2)), [1, 0, 1, 0, 1], kernel=kernel, weights=[2, 2, 7, 2, 7])
    assert refs.nearest([[0.5, 0.5]], 5).ids.tolist() == [[2, 4, 0, 1, 3]]


def test_sizes_of_unweighted_neighbours_are_one():
    assert (ReferenceSet(POINTS, LABELS).nearest(QUERIES, 3).sizes == 1).all()


@every_kernel
def test_log_votes_are_those_of_every_reference(kernel):
    refs = weighted(kernel=kernel, class_weights=CLASS_WEIGHTS)
    want = log_votes(QUERIES[:1], POINTS, kernel, WIDE)[0]
    np.testing.assert_allclose(refs.voters.log_votes(torch.as_tensor(QUERIES[0])), want, rtol=1e-9, atol=1e-9)


@every_kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_outlier_costs_the_others_no_accuracy(kernel, dtype):
    points = np.concatenate([POINTS, [[3e5, -2e5, 1e5]]]).astype(dtype)
    labels, weights = np.append(LABELS, 0), np.append(COUNTS, 2.0)
    refs = ReferenceSet(points, labels, None, K, kernel, weights=weights)
    queries = np.concatenate([QUERIES, points[:3]]).astype(dtype)  # some coincide
    votes = log_votes(queries, points, kernel, weights)
    assert_close(refs.log_class_weights(queries), log_sums(votes, labels, K))
    near = refs.nearest(queries, 3)
    np.testing.assert_array_equal(near.ids, np.argsort(-votes, axis=1, kind="stable")[:, :3])
    squared = np.take_along_axis(oracle.squared_distances(queries, points), near.ids, axis=1)
    np.testing.assert_allclose(near.squared_distances, squared, rtol=1e-9, atol=1e-14)


# Gradients, types


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_those_of_the_dense_formula(kernel, dtype):
    refs = weighted(kernel=kernel, embeddings=torch.as_tensor(POINTS).to(dtype), class_weights=CLASS_WEIGHTS)
    cotangent = torch.as_tensor(RNG.normal(size=(len(QUERIES), K - 1)))
    got = torch.as_tensor(QUERIES).to(dtype).requires_grad_()
    (refs.log_class_weights(got)[:, :-1] * cotangent).sum().backward()
    h = torch.as_tensor(QUERIES).double().requires_grad_()
    squared = (h[:, None] - torch.as_tensor(POINTS).double()).square().sum(dim=2)
    log_w = {"gaussian": -squared, "laplace": -squared.sqrt(), "inverse_quadratic": -squared.log1p()}[kernel]
    log_w = log_w + torch.as_tensor(WIDE).log()
    dense = torch.stack([log_w[:, k == LABELS].logsumexp(dim=1) for k in range(K - 1)], dim=1)
    (dense * cotangent).sum().backward()
    assert got.grad is not None
    assert h.grad is not None
    tolerance = 1e-4 if dtype == torch.float32 else 1e-9
    np.testing.assert_allclose(got.grad.numpy(), h.grad.numpy(), rtol=tolerance, atol=tolerance)


@every_kernel
def test_numpy_is_answered_in_numpy_and_tensors_with_tensors(kernel):
    refs = weighted(kernel=kernel)
    for queries, kind in (
        (QUERIES, np.ndarray),
        (QUERIES.tolist(), np.ndarray),
        (torch.as_tensor(QUERIES), torch.Tensor),
    ):
        answers: list[Any] = [
            refs.log_class_weights(queries),
            refs.probabilities(queries),
            refs.log_group_weights(queries),
        ]
        assert all(isinstance(answer, kind) and answer.dtype in (np.float64, torch.float64) for answer in answers)


@every_kernel
@pytest.mark.parametrize("weights", [None, WIDE], ids=["all one", "weighted"])
def test_a_query_alone_gets_the_same_bits_as_among_others(kernel, weights):
    refs = weighted(weights, kernel=kernel)
    many = np.concatenate([QUERIES] * 20)[:150]
    for ask in (refs.log_class_weights, refs.log_group_weights):
        together = ask(many)
        np.testing.assert_array_equal(np.concatenate([ask(many[[i]]) for i in range(5)]), together[:5])
        np.testing.assert_array_equal(ask(many[60:99]), together[60:99])


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_votes_with_full_weights(kernel, dtype):
    points, queries = torch.as_tensor(POINTS).to(dtype), torch.as_tensor(QUERIES).to(dtype)
    refs = weighted(kernel=kernel, embeddings=points)
    want = log_sums(log_votes(queries.double().numpy(), points.double().numpy(), kernel, WIDE), LABELS, K)
    assert_close(refs.log_class_weights(queries), want)
    assert_close(refs.log_class_weights(queries.float()), want)
    near = refs.nearest(queries, 3)
    squared = oracle.squared_distances(queries.double().numpy(), points.double().numpy())
    rows = np.array([[refs.voters.positions([name])[0] for name in row] for row in near.ids])
    np.testing.assert_allclose(near.squared_distances, np.take_along_axis(squared, rows, 1), rtol=1e-6, atol=1e-9)
    assert len(refs.condensed()) == len(refs.groups.leaf_labels)


# Contents


def test_a_set_says_how_many_it_votes_for():
    assert repr(weighted(COUNTS)).startswith(f"ReferenceSet(40 examples for {COUNTS.sum()}, 3 dimensions")
    refs = ReferenceSet(POINTS, LABELS)
    assert not refs.voters.weighted
    assert refs.weights.tolist() == [1.0] * M
    assert weighted().voters.weighted


@pytest.mark.parametrize(
    "weights", [[1.0] * 39, [0.0] * 40, [-1.0] * 40, [np.inf] * 40, [[1.0]] * 40, "many", [np.nan] * 40]
)
def test_weights_that_are_no_positive_numbers_are_refused(weights):
    with pytest.raises((ShapeError, DwacError), match="weights"):
        weighted(weights)


def test_later_edits_of_the_callers_weights_change_nothing():
    mine = torch.tensor(WIDE)
    refs = weighted(mine)
    want = refs.log_class_weights(QUERIES)
    mine[:] = 1
    np.testing.assert_array_equal(weighted().log_class_weights(QUERIES), want)
    np.testing.assert_array_equal(refs.weights, WIDE)


def test_the_weights_it_returns_cannot_be_used_to_change_it():
    refs = weighted()
    with pytest.raises(ValueError, match="read-only"):
        refs.weights[0] = 5
    np.testing.assert_array_equal(refs.weights, WIDE)


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda refs: pickle.loads(pickle.dumps(refs))])
def test_copies_keep_weights_and_edits_keep_those_of_the_others(twin):
    refs = twin(weighted())
    np.testing.assert_array_equal(refs.log_class_weights(QUERIES), weighted().log_class_weights(QUERIES))
    refs.remove([0, 7])
    refs.add(QUERIES[:2], [0, 1])
    kept = np.setdiff1d(np.arange(M), [0, 7])
    np.testing.assert_array_equal(refs.weights, [*WIDE[kept], 1, 1])
    rebuilt = ReferenceSet(
        np.concatenate([POINTS[kept], QUERIES[:2]]), [*LABELS[kept], 0, 1], refs.ids, K, weights=[*WIDE[kept], 1, 1]
    )
    np.testing.assert_array_equal(refs.log_class_weights(QUERIES), rebuilt.log_class_weights(QUERIES))
