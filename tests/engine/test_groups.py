"""Groups never mix classes and cover everybody; merges follow Ward; central members are those of brute force."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import linkage
from torch import Tensor

from dwac.engine import groups
from dwac.engine.groups import Tree, central, divide, tree_of
from tests.engine.helpers import most_central, partition

relaxed = settings(max_examples=25)


def problem(seed: int, m: int, n_classes: int, d: int = 2) -> tuple[Tensor, Tensor]:
    """Points of which many coincide, in classes of which some may be empty."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(m, d)) if seed % 3 else rng.integers(0, 3, size=(m, d)).astype(float)
    return torch.tensor(points, dtype=torch.float32), torch.tensor(rng.integers(n_classes, size=m))


def refines(fine: Any, coarse: Any) -> bool:
    return all(any(part <= whole for whole in partition(coarse)) for part in partition(fine))


# Leaves


@relaxed
@given(seed=st.integers(0, 999), m=st.integers(1, 60), n_classes=st.integers(1, 4), n_leaves=st.integers(1, 80))
def test_leaves_cover_all_rows_without_gaps_and_never_mix_classes(seed, m, n_classes, n_leaves):
    points, labels = problem(seed, m, n_classes)
    tree = divide(points, labels, n_classes, n_leaves)
    assert tree.leaves.shape == (m,)
    assert np.unique(tree.leaves).tolist() == list(range(len(tree.labels)))
    assert (tree.labels[tree.leaves] == labels.numpy()).all()
    present = len(labels.unique())
    assert present <= len(tree.labels) <= max(present, min(n_leaves, m))
    assert len(tree.merges) == len(tree.labels) - present


@relaxed
@given(seed=st.integers(0, 999), m=st.integers(1, 60), n_leaves=st.integers(1, 80))
def test_identical_references_share_a_leaf(seed, m, n_leaves):
    points, labels = problem(3 * seed, m, 2)
    leaves = divide(points, labels, 2, n_leaves).leaves
    rows = torch.cat([points, labels[:, None]], dim=1)
    same = (rows[:, None] == rows).all(dim=2).numpy()
    assert (leaves[:, None] == leaves)[same].all()


@pytest.mark.parametrize("state", [1, 2])
def test_a_division_is_the_same_every_time_whatever_random_numbers_were_drawn(state):
    points, labels = problem(1, 500, 3)
    torch.manual_seed(state)
    np.random.default_rng(state)
    first, again = divide(points, labels, 3, 20), divide(points.clone(), labels.clone(), 3, 20)
    for name in ("leaves", "labels", "merges"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    torch.manual_seed(99)
    np.testing.assert_array_equal(divide(points, labels, 3, 20).leaves, first.leaves)


def test_clusters_that_lie_apart_are_found():
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 6
    points = torch.tensor(100.0 * np.eye(6)[truth] + 0.1 * rng.normal(size=(60, 6)))
    labels = torch.tensor(truth % 2)
    assert partition(divide(points, labels, 2, 6).leaves) == partition(truth)


def test_clusters_far_from_the_origin_are_found():
    # Offsets that float32 cannot square: distances must be taken near the centre of a class.
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 3
    points = torch.tensor(1e6 + truth[:, None] + 0.01 * rng.normal(size=(60, 2)))
    assert partition(divide(points, torch.zeros(60, dtype=torch.int64), 1, 3).leaves) == partition(truth)


def test_one_row_per_class_is_one_leaf_each():
    tree = divide(torch.eye(4), torch.arange(4), 4, 2)
    assert tree.leaves.tolist() == tree.labels.tolist() == [0, 1, 2, 3]
    assert tree.merges.shape == (0, 2)
    assert tree.cut(1).tolist() == [0, 1, 2, 3]


def test_more_leaves_than_rows_give_one_leaf_per_distinct_row():
    points, labels = torch.arange(10.0)[:, None], torch.arange(10) % 2
    assert len(divide(points, labels, 2, 1000).labels) == 10


def test_classes_without_rows_have_no_leaf():
    points, _ = problem(1, 20, 1)
    tree = divide(points, torch.tensor([1, 4] * 10), 6, 8)
    assert set(tree.labels.tolist()) == {1, 4}
    assert len(tree.labels) == 8


def test_equal_embeddings_are_one_leaf_per_class():
    tree = divide(torch.full((12, 3), 0.7), torch.arange(12) % 3, 3, 12)
    assert tree.leaves.tolist() == [0, 1, 2] * 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_precision_can_be_divided(dtype):
    points, labels = problem(1, 40, 2)
    tree = divide(points.to(dtype), labels, 2, 6)
    assert len(tree.labels) == 6


def test_a_large_class_is_divided_from_a_sample(monkeypatch):
    monkeypatch.setattr(groups, "FEWEST_SAMPLED", 50)
    monkeypatch.setattr(groups, "SAMPLED", 5)
    rng = np.random.default_rng(0)
    truth = np.arange(900) % 3
    points = torch.tensor(50.0 * np.eye(3)[truth] + 0.1 * rng.normal(size=(900, 3)))
    tree = divide(points, torch.zeros(900, dtype=torch.int64), 1, 3)
    assert partition(tree.leaves) == partition(truth)


def test_distances_held_in_parts_change_nothing(monkeypatch):
    points, labels = problem(1, 300, 2)
    whole = divide(points, labels, 2, 12).leaves
    monkeypatch.setattr(groups, "TILE", {"cpu": 64})
    np.testing.assert_array_equal(divide(points, labels, 2, 12).leaves, whole)


@given(
    counts=st.lists(st.integers(0, 200), min_size=1, max_size=8).filter(any),
    total=st.integers(1, 300),
)
def test_leaves_are_apportioned_to_classes_by_their_size(counts, total):
    sizes = groups.apportion_leaves(total, np.array(counts))
    present = np.count_nonzero(counts)
    assert (sizes <= counts).all()
    assert ((sizes >= 1) == (np.array(counts) > 0)).all()
    assert sizes.sum() == max(present, min(total, sum(counts)))
    order = np.argsort(counts, kind="stable")
    assert (np.diff(sizes[order]) >= 0).all() or len(set(counts)) < len(counts)


# Ward's merges


def ward_cost(points: Any, weights: Any, rows: frozenset[int]) -> float:
    """The weighted sum of squares of rows around their mean."""
    own, w = points[sorted(rows)], weights[sorted(rows)]
    mean = (own * w[:, None]).sum(axis=0) / w.sum()
    return float((np.square(own - mean).sum(axis=1) * w).sum())


def brute_force(means: Any, sizes: Any) -> list[set[frozenset[int]]]:
    """The partition after each merge of the two groups whose union adds least to the sum of squares."""
    parts = [frozenset([i]) for i in range(len(means))]
    history = [set(parts)]
    while len(parts) > 1:
        pairs = [(a, b) for i, a in enumerate(parts) for b in parts[i + 1 :]]
        a, b = min(
            pairs,
            key=lambda pair: (
                ward_cost(means, sizes, pair[0] | pair[1])
                - ward_cost(means, sizes, pair[0])
                - ward_cost(means, sizes, pair[1])
            ),
        )
        parts = [part for part in parts if part not in (a, b)] + [a | b]
        history.append(set(parts))
    return history


@pytest.mark.parametrize("seed", range(8))
def test_merges_of_unit_sizes_equal_scipys(seed):
    means = np.random.default_rng(seed).normal(size=(25, 3))
    tree = tree_of(torch.tensor(means), torch.zeros(25, dtype=torch.int64), torch.arange(25))
    parts: dict[int, frozenset[int]] = {i: frozenset([i]) for i in range(25)}
    for step, (a, b, _, _) in enumerate(linkage(means, "ward")):
        parts[25 + step] = parts.pop(int(a)) | parts.pop(int(b))
        assert partition(tree.cut(24 - step)) == set(parts.values())


@pytest.mark.parametrize("seed", range(8))
def test_costs_of_merges_of_unit_sizes_equal_scipys(seed):
    means = np.random.default_rng(seed).normal(size=(25, 3))
    costs = np.sort(groups.ward(means, np.ones(25, dtype=np.int64))[1])
    np.testing.assert_allclose(costs, linkage(means, "ward")[:, 2] ** 2 / 2, rtol=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_merges_of_unequal_sizes_equal_brute_force(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 30, 9)
    leaves = np.repeat(np.arange(9), sizes)
    points = rng.normal(size=(9, 2))[leaves] + 0.1 * rng.normal(size=(len(leaves), 2))
    tree = tree_of(torch.tensor(points), torch.zeros(len(leaves), dtype=torch.int64), torch.tensor(leaves))
    means = np.stack([points[leaves == leaf].mean(axis=0) for leaf in range(9)])
    for n_groups, parts in zip(range(9, 0, -1), brute_force(means, sizes), strict=True):
        assert partition(tree.cut(n_groups)) == parts


@relaxed
@given(seed=st.integers(0, 999), m=st.integers(1, 50), n_classes=st.integers(1, 4))
def test_cuts_are_nested_within_classes_and_of_the_number_asked_for(seed, m, n_classes):
    points, labels = problem(seed, m, n_classes)
    tree = divide(points, labels, n_classes, 20)
    present, before = len(labels.unique()), None
    for n_groups in range(len(tree.labels) + 2):
        codes = tree.cut(n_groups)
        found = np.unique(codes)
        assert found.tolist() == list(range(max(present, min(n_groups, len(tree.labels)))))
        assert all(len(np.unique(tree.labels[codes == code])) == 1 for code in found)
        assert before is None or refines(codes, before)
        before = codes
    assert partition(before) == partition(np.arange(len(tree.labels)))


def test_the_cheapest_merge_of_all_classes_comes_first():
    points = torch.tensor([[0.0], [5.0], [0.0], [1.0], [0.0], [3.0]])
    tree = tree_of(points, torch.tensor([0, 0, 1, 1, 2, 2]), torch.arange(6))
    assert partition(tree.cut(5)) == partition([0, 1, 2, 2, 4, 5])
    assert partition(tree.cut(4)) == partition([0, 1, 2, 2, 4, 4])
    assert partition(tree.cut(3)) == partition([0, 0, 2, 2, 4, 4])


def test_equal_means_merge_first_and_never_fail():
    tree = tree_of(torch.zeros(7, 2), torch.tensor([0, 0, 0, 0, 1, 1, 1]), torch.arange(7))
    assert isinstance(tree, Tree)
    assert partition(tree.cut(2)) == partition([0, 0, 0, 0, 1, 1, 1])


# Central members


@relaxed
@given(seed=st.integers(0, 999), m=st.integers(1, 40), n_groups=st.integers(1, 5), weighted=st.booleans())
def test_central_members_are_those_of_brute_force(seed, m, n_groups, weighted):
    points, codes = problem(seed, m, n_groups)
    codes = codes.unique(return_inverse=True)[1]
    weights = np.random.default_rng(seed).choice([0.5, 1.0, 7.0, 1e6], size=m) if weighted else np.ones(m)
    given_weights = torch.tensor(weights) if weighted else None
    got = central(points, codes, int(codes.max()) + 1, given_weights)
    assert got.tolist() == most_central(points.double().numpy(), codes.numpy(), weights)


def test_weights_move_the_centre():
    points, codes = torch.tensor([[0.0], [1.0], [10.0]]), torch.zeros(3, dtype=torch.int64)
    assert central(points, codes, 1).tolist() == [1]
    assert central(points, codes, 1, torch.tensor([1.0, 1.0, 1e9])).tolist() == [2]
    assert central(points, codes, 1, torch.tensor([1e9, 1.0, 1.0])).tolist() == [0]


def test_the_first_of_equals_is_central():
    points = torch.tensor([[0.1, 0.7], [0.3, -0.2], [0.3, -0.2], [5.0, 5.0], [5.0, 5.0]], dtype=torch.float64)
    assert central(points[:2], torch.tensor([0, 0]), 1).tolist() == [0]
    assert central(points, torch.tensor([0, 0, 0, 1, 1]), 2).tolist() == [1, 3]
    assert central(points.flip(1), torch.tensor([1, 1, 1, 0, 0]), 2).tolist() == [3, 1]
