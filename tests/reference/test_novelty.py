"""Novelty: distance and direction to the nearest voters, exact wherever the query lies."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dwac import ReferenceSet
from dwac.errors import DwacError
from dwac.reference import novelty as of_distance

novelty = partial(of_distance, directions=True)
RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(60, 5))
LABELS = RNG.integers(0, 3, 60)
QUERIES = RNG.normal(size=(11, 5)) * np.geomspace(0.01, 100, 11)[:, None]


def units(h: NDArray[Any]) -> NDArray[Any]:
    lengths = np.linalg.norm(h, axis=1, keepdims=True)
    return h / np.where(lengths > 0, lengths, 1)


def oracle(points: NDArray[Any], queries: NDArray[Any]) -> NDArray[Any]:
    """The definition, by double loops in float64."""
    found = []
    for q, u in zip(queries, units(queries), strict=True):
        near = np.mean(sorted(float(((q - p) ** 2).sum()) for p in points)[:5])
        aligned = np.mean(sorted(float(((u - v) ** 2).sum()) for v in units(points))[:5])
        found.append(np.log(near + 1e-4) + np.log(aligned + 1e-4))
    return np.array(found)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "inverse_quadratic"])
def test_novelty_is_that_of_a_double_loop(dtype: Any, kernel: str) -> None:
    points, queries = POINTS.astype(dtype), QUERIES.astype(dtype)
    found = novelty(ReferenceSet(points, LABELS, kernel=kernel), queries)
    assert found.shape == (11,)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found, oracle(points.astype(float), queries.astype(float)), atol=1e-4)


def test_a_voter_is_less_novel_than_its_copy_elsewhere() -> None:
    cloud = np.array([4.0, 0, 0, 0, 0]) + 0.3 * POINTS
    references = ReferenceSet(cloud, LABELS)
    known, longer, opposite = (novelty(references, factor * cloud[:5]) for factor in (1.0, 3.0, -1.0))
    assert (longer > known + 1).all()
    assert (opposite > known + 1).all()


def test_without_directions_distance_alone_counts() -> None:
    near = [np.sort(((q - POINTS) ** 2).sum(axis=1))[:5].mean() for q in QUERIES]
    np.testing.assert_allclose(
        of_distance(ReferenceSet(POINTS, LABELS), QUERIES), np.log(np.add(near, 1e-4)), atol=1e-6
    )


def test_between_classes_near_the_origin_is_novel_though_near() -> None:
    """Two classes far apart; both queries are as far from the nearest voters, one of them beyond the voters."""
    steps = 0.02 * np.arange(6)
    one, other = np.stack([4 + 0 * steps, steps], axis=1), np.stack([steps, 4 + 0 * steps], axis=1)
    references = ReferenceSet(np.concatenate([one, other]), [0] * 6 + [1] * 6)
    beyond, between = [7.0, 0.0], [4.0 - 3 / 2**0.5, 3 / 2**0.5]
    scores = novelty(references, [beyond, between])
    assert scores[1] > scores[0] + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_queries_are_finite_and_further_ones_more_novel(dtype: torch.dtype) -> None:
    exponents = torch.arange(2, 37 if dtype == torch.float32 else 152, 5)
    direction = torch.as_tensor(POINTS[:1], dtype=dtype)  # of a voter: the direction is known
    far = direction * 10.0 ** exponents[:, None].to(dtype)
    scores = novelty(ReferenceSet(POINTS.astype(np.float32), LABELS), far)
    assert scores.isfinite().all()
    assert (scores.diff() > 0).all()
    inside = novelty(ReferenceSet(POINTS.astype(np.float32), LABELS), QUERIES[:5])
    assert scores[1:].min() > inside.max()


def test_a_query_or_voter_at_the_origin_has_no_direction_and_a_finite_score() -> None:
    references = ReferenceSet([[0.0, 0.0], [1.0, 1.0]], [0, 1])
    scores = novelty(references, [[0.0, 0.0], [1e-30, 0.0], [1.0, 1.0]])
    assert scores.isfinite().all()
    np.testing.assert_allclose(scores, oracle(np.array([[0.0, 0], [1, 1]]), np.array([[0.0, 0], [1e-30, 0], [1, 1]])))


def test_one_dimension_goes_by_distance() -> None:
    scores = novelty(ReferenceSet([[1.0], [-1.0]], [0, 1]), [[1.0], [2.0], [-4.0], [9.0]])
    assert (scores.diff() > 0).all()


def test_weights_classes_and_look_alikes_change_nothing() -> None:
    plain = novelty(ReferenceSet(POINTS, LABELS), QUERIES)
    weights = 10.0 ** RNG.uniform(-3, 3, 60)
    for changed in (
        ReferenceSet(POINTS, LABELS, weights=weights),
        ReferenceSet(POINTS, LABELS, weights=weights, kernel="laplace"),
        ReferenceSet(POINTS, LABELS, class_weights=[1.0, 5.0, 0.1]),
        ReferenceSet(POINTS, LABELS, look_alikes=(3.0, 2.0)),
        ReferenceSet(POINTS, (LABELS + 1) % 3),
    ):
        np.testing.assert_allclose(novelty(changed, QUERIES), plain, atol=1e-9)


def test_a_condensed_set_is_judged_by_its_representatives() -> None:
    few = ReferenceSet(POINTS, LABELS).condensed(leaves=LABELS)
    assert len(few) == 3
    np.testing.assert_allclose(novelty(few, QUERIES), oracle(few.embeddings.numpy(), QUERIES), atol=1e-6)


def test_edits_are_followed_and_undone() -> None:
    references = ReferenceSet(POINTS, LABELS)
    before = novelty(references, QUERIES)
    references.add(QUERIES[:4], [0, 0, 1, 2], ids=["a", "b", "c", "d"])
    assert (novelty(references, QUERIES[:4]) < before[:4]).all()
    references.remove(["a", "b", "c", "d"])
    assert torch.equal(novelty(references, QUERIES), before)


def test_voters_themselves_are_compared_with_the_others() -> None:
    references = ReferenceSet(POINTS, LABELS)
    others = [oracle(np.delete(POINTS, i, axis=0), POINTS[i : i + 1])[0] for i in range(10)]
    np.testing.assert_allclose(novelty(references, POINTS[:10], own=True), others, atol=1e-6)
    assert novelty(ReferenceSet(POINTS[:1], [0]), POINTS[:1], own=True).isfinite().all()


def test_half_precision_is_computed_in_float32() -> None:
    points, queries = POINTS.astype(np.float16), QUERIES.astype(np.float16)
    found = novelty(ReferenceSet(torch.as_tensor(points), LABELS), torch.as_tensor(queries))
    np.testing.assert_allclose(found, oracle(points.astype(float), queries.astype(float)), atol=1e-4)


def test_a_row_scores_the_same_alone() -> None:
    references = ReferenceSet(POINTS.astype(np.float32), LABELS)
    together = novelty(references, QUERIES.astype(np.float32))
    alone = torch.cat([novelty(references, row[None].astype(np.float32)) for row in QUERIES])
    assert torch.equal(together, alone)


def test_lists_arrays_and_tensors_with_gradients_are_the_same() -> None:
    references = ReferenceSet(POINTS, LABELS)
    tensor = torch.as_tensor(QUERIES).requires_grad_()
    assert torch.equal(novelty(references, QUERIES), novelty(references, QUERIES.tolist()))
    assert torch.equal(novelty(references, QUERIES), novelty(references, tensor))
    assert not novelty(references, tensor).requires_grad


@pytest.mark.parametrize("wrong", [[[1.0, 2.0]], [1.0] * 5, [[float("nan")] * 5], [["a"] * 5]])
def test_wrong_queries_are_refused(wrong: Any) -> None:
    with pytest.raises(DwacError):
        novelty(ReferenceSet(POINTS, LABELS), wrong)


@settings(max_examples=25)
@given(seed=st.integers(0, 999), scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_order_of_voters_and_rotations_change_nothing(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    points, queries = scale * rng.normal(size=(20, 4)), scale * rng.normal(size=(6, 4))
    turn, order = np.linalg.qr(rng.normal(size=(4, 4)))[0], rng.permutation(20)
    first = novelty(ReferenceSet(points, np.zeros(20, int)), queries)
    second = novelty(ReferenceSet((points @ turn)[order], np.zeros(20, int)), queries @ turn)
    np.testing.assert_allclose(first, second, atol=1e-6)
