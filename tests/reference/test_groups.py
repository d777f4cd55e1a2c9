"""Groups of references: their votes are exact sums, edits keep them, and a condensed set follows its members."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dwac import ReferenceSet
from dwac.errors import DwacError, EmptyReferenceError, IdError, LabelError, ShapeError
from dwac.kernels import KERNELS
from dwac.reference.groups import default_groups, default_leaves
from dwac.reference.references import put_voters, with_groups, without_members
from tests import oracle
from tests.engine.helpers import assert_close, every_backend, every_kernel, most_central, partition
from tests.named import refuses

RNG = np.random.default_rng(0)
M, K = 60, 3
LABELS = RNG.integers(0, K, M)
POINTS = (RNG.normal(size=(M, 3)) + LABELS[:, None]).astype(np.float32)
QUERIES = RNG.normal(size=(6, 3)).astype(np.float32)
IDS = [f"r{i}" for i in range(M)]
LEAVES = np.unique(LABELS * 10 + RNG.integers(0, 4, M), return_inverse=True)[1]  # about four per class


def full(**changes: Any) -> ReferenceSet:
    return ReferenceSet(**{"embeddings": POINTS, "labels": LABELS, "ids": IDS, "n_classes": K, **changes})


def assert_same_groups(got: ReferenceSet, want: ReferenceSet) -> None:
    """The same division, whatever the numbers of its parts, with the same representatives and sizes."""
    a, b = got.groups, want.groups
    assert partition(a.leaves) == partition(b.leaves)
    assert partition(a.of) == partition(b.of)
    for columns in (("leaf_representatives", "leaf_sizes", "leaf_labels"), ("representatives", "sizes", "labels")):
        one, other = (sorted(zip(*(getattr(groups, name) for name in columns), strict=True)) for groups in (a, b))
        assert one == other


# Groups


@pytest.mark.parametrize("weights", [None, RNG.integers(1, 9, M)], ids=["all one", "weighted"])
def test_groups_are_within_classes_with_central_representatives(weights):
    refs = full(weights=weights)
    groups, w = refs.groups, refs.weights
    assert (groups.labels[groups.of] == LABELS).all()
    assert (groups.leaf_labels[groups.leaves] == LABELS).all()
    np.testing.assert_array_equal(groups.sizes, np.bincount(groups.of, w))
    np.testing.assert_array_equal(groups.leaf_sizes, np.bincount(groups.leaves, w))
    assert groups.leaf_representatives.tolist() == most_central(POINTS.astype(float), groups.leaves, w)
    assert groups.representatives.tolist() == most_central(POINTS.astype(float), groups.of, w)
    assert [groups.members(g).tolist() for g in range(len(groups))] == [
        np.flatnonzero(groups.of == g).tolist() for g in range(len(groups))
    ]


def test_defaults_are_readable_and_within_reach():
    assert default_groups(np.array([20_000, 7_000])).tolist() == [12, 12]
    assert default_groups(np.array([0, 20, 60, 700])).tolist() == [1, 1, 2, 12]  # 25 members each, or one group
    assert set(default_groups(np.full(100, 10**4)).tolist()) == {2}
    assert [default_leaves(m, 2) for m in (1, 100, 27_146, 10**6)] == [4, 20, 329, 1000]
    assert default_leaves(10**6, 5000) == 10_000
    assert len(full().groups) <= default_groups(np.bincount(LABELS)).sum()
    assert refs_of_one().groups.sizes.tolist() == [1.0]


def refs_of_one() -> ReferenceSet:
    return ReferenceSet([[1.0, 2.0]], [3], n_classes=5)


def test_groups_of_one_example_of_one_class_of_many():
    refs = refs_of_one()
    assert refs.groups.labels.tolist() == [3]
    assert refs.log_group_weights([[1.0, 2.0]]).tolist() == [[0.0]]
    assert len(refs.condensed()) == 1


@every_kernel
@every_backend
@pytest.mark.parametrize("weights", [None, 10.0 ** RNG.uniform(-6, 12, M)], ids=["all one", "weighted"])
def test_votes_of_groups_equal_brute_force_and_add_up_to_those_of_classes(backend, device, kernel, weights):
    by_class = [0.5, 1.0, 4.0]
    refs = full(kernel=kernel, class_weights=by_class, weights=weights).to(device)
    groups = refs.groups
    votes = oracle.log_weights(QUERIES, POINTS, kernel) + np.log(refs.weights) + np.log(by_class)[LABELS]
    want = [[oracle.log_sum_exp(row[groups.of == g].tolist()) for g in range(len(groups))] for row in votes]
    got = refs.log_group_weights(QUERIES, backend=backend)
    assert_close(got, want)
    sums = [[oracle.log_sum_exp(row[groups.labels == k].tolist()) for k in range(K)] for row in got]
    assert_close(sums, refs.log_class_weights(QUERIES, backend=backend))


def test_group_votes_of_a_given_division_are_exact_however_coarse():
    labels = LEAVES % 2  # a division need not be one of k-means
    refs = with_groups(ReferenceSet(POINTS, labels, n_classes=2), LEAVES, leaf_parents(LEAVES, labels))
    votes = oracle.log_weights(QUERIES, POINTS, "gaussian")
    want = [[oracle.log_sum_exp(row[labels == k].tolist()) for k in (0, 1)] for row in votes]
    assert_close(refs.log_group_weights(QUERIES), want)


def leaf_parents(leaves: Any, labels: Any) -> Any:
    """One group per class, by leaf."""
    return np.array([labels[np.flatnonzero(leaves == leaf)[0]] for leaf in range(leaves.max() + 1)])


@pytest.mark.parametrize(
    ("leaves", "parents", "facts"),
    [
        (LEAVES[:-1], None, ["leaves", "60", "59"]),
        (np.where(LEAVES == 2, 99, LEAVES), None, ["leaves", "without gaps"]),
        (np.zeros(M, int), [0], ["leaves", "one class"]),
        (LEAVES, [0], ["parents", "12", "1"]),
        (LEAVES, np.zeros(LEAVES.max() + 1, int), ["parents", "one class"]),
        (LEAVES, np.arange(LEAVES.max() + 1) + 1, ["parents", "without gaps"]),
        (LEAVES - 1, None, ["leaves", "0 … n_classes-1", "-1", "row 3"]),
        (LEAVES + 0.5, None, ["leaves", "0 … n_classes-1", "float64", "row 0", "LabelEncoder"]),
        (["x"] * M, None, ["leaves", "0 … n_classes-1", "<U1", "row 0", "LabelEncoder"]),
    ],
    ids=["short", "gap", "mixed", "few parents", "mixed parents", "gap in parents", "negative", "half", "texts"],
)
def test_a_division_that_is_none_is_refused(leaves, parents, facts):
    refs = full()
    before = refs.log_class_weights(QUERIES)
    if parents is None:
        parents = leaf_parents(LEAVES, LABELS)
        with refuses(DwacError, *facts):
            refs.condensed(leaves)
    with refuses(DwacError, *facts):
        with_groups(refs, leaves, parents)
    np.testing.assert_array_equal(refs.log_class_weights(QUERIES), before)


@pytest.mark.parametrize(
    "same",
    [
        lambda refs: refs.to("cpu"),
        copy.copy,
        copy.deepcopy,
        lambda refs: pickle.loads(pickle.dumps(refs)),
        lambda refs: refs.replaced(class_weights=[1.0, 2.0, 3.0]),
        lambda refs: refs.replaced(ids=range(len(refs))),
    ],
    ids=["to", "copy", "deepcopy", "pickle", "class weights", "ids"],
)
@pytest.mark.parametrize("condensed", [False, True])
def test_the_same_set_elsewhere_keeps_its_groups(same, condensed):
    refs = with_groups(full(), LEAVES, leaf_parents(LEAVES, LABELS))
    refs = refs.condensed() if condensed else refs
    other = same(refs)
    assert_same_groups(other, refs)
    np.testing.assert_array_equal(other.groups.leaves, refs.groups.leaves)
    np.testing.assert_array_equal(other.weights, refs.weights)


def test_groups_that_were_found_move_with_the_set():
    refs = full()
    leaves = refs.groups.leaves
    np.testing.assert_array_equal(refs.to("cpu").groups.leaves, leaves)
    put_voters(refs, refs.voters.to("cpu"))
    np.testing.assert_array_equal(refs.groups.leaves, leaves)


# Edits of groups


def test_a_new_example_joins_the_leaf_whose_representative_is_nearest():
    refs = full()
    before = refs.groups
    refs.add(QUERIES, [0, 1, 2, 0, 1, 2], [f"new{i}" for i in range(6)])
    assert refs.groups.leaves[:M].tolist() == before.leaves.tolist()
    for row, (h, label) in enumerate(zip(QUERIES, [0, 1, 2, 0, 1, 2], strict=True), M):
        own = np.flatnonzero(before.leaf_labels == label)
        squared = oracle.squared_distances([h], POINTS[before.leaf_representatives[own]])[0]
        assert refs.groups.leaves[row] == own[squared.argmin()]
        assert refs.groups.of[row] == before.parents[own[squared.argmin()]]


def test_a_relabelled_example_moves_to_a_group_of_its_new_class():
    refs = full()
    refs.groups  # noqa: B018 - known before the edit
    refs.relabel(["r0", "r1"], [(LABELS[0] + 1) % K, (LABELS[1] + 2) % K])
    groups = refs.groups
    assert (groups.labels[groups.of] == refs.labels.numpy()).all()
    assert groups.labels[groups.of[0]] == (LABELS[0] + 1) % K


def test_relabelling_with_the_same_label_changes_nothing():
    refs = with_groups(full(), LEAVES, leaf_parents(LEAVES, LABELS))
    few = refs.condensed()
    before, votes = few.ids.tolist(), few.log_class_weights(QUERIES)
    few.relabel(IDS, LABELS)
    refs.relabel(IDS, LABELS)
    np.testing.assert_array_equal(refs.groups.leaves, LEAVES)
    assert few.ids.tolist() == before
    np.testing.assert_array_equal(few.log_class_weights(QUERIES), votes)


def test_the_first_examples_of_a_class_are_a_group_of_their_own():
    refs = full(n_classes=K + 1)
    n = len(refs.groups)
    refs.add(QUERIES[:2], [K, K], ["x", "y"])
    groups = refs.groups
    assert len(groups) == n + 1
    assert groups.of[M:].tolist() == [n, n]
    assert groups.labels[n] == K


def test_a_group_that_loses_everybody_vanishes():
    refs = full()
    groups = refs.groups
    refs.remove([IDS[i] for i in groups.members(2)])
    assert len(refs.groups) == len(groups) - 1
    assert partition(refs.groups.of) == partition(groups.of[groups.of != 2])
    assert refs.log_group_weights(QUERIES).shape == (6, len(groups) - 1)


def test_edits_before_groups_are_asked_for_give_those_of_the_edited_set():
    refs = full()
    refs.remove(IDS[:7])
    refs.add(QUERIES, [0] * 6, range(6))
    rebuilt = ReferenceSet(np.concatenate([POINTS[7:], QUERIES]), [*LABELS[7:], *[0] * 6], [*IDS[7:], *range(6)], K)
    np.testing.assert_array_equal(refs.groups.of, rebuilt.groups.of)


# Condensed


@every_kernel
@pytest.mark.parametrize("by_class", [None, [0.5, 1.0, 4.0]])
def test_representatives_vote_with_the_size_of_their_leaf(kernel, by_class):
    few = full(kernel=kernel, class_weights=by_class).condensed(LEAVES)
    rows = most_central(POINTS.astype(float), LEAVES, np.ones(M))
    assert few.ids.tolist() == [IDS[row] for row in rows]
    assert few.labels.tolist() == LABELS[rows].tolist()
    np.testing.assert_array_equal(few.weights, np.bincount(LEAVES))
    assert few.weights.sum() == M
    np.testing.assert_array_equal(few.embeddings.numpy(), POINTS[rows])
    votes = oracle.log_weights(QUERIES, POINTS[rows], kernel) + np.log(np.bincount(LEAVES))
    votes += 0 if by_class is None else np.log(by_class)[LABELS[rows]]
    want = [[oracle.log_sum_exp(row[LABELS[rows] == k].tolist()) for k in range(K)] for row in votes]
    assert_close(few.log_class_weights(QUERIES), want)
    assert few.members is not None
    assert few.members.ids.tolist() == IDS


def test_everybody_alone_in_a_leaf_votes_as_before():
    few = full().condensed(np.arange(M))
    assert few.ids.tolist() == IDS
    np.testing.assert_allclose(few.probabilities(QUERIES), full().probabilities(QUERIES), rtol=1e-6)


def test_condensing_again_starts_from_the_members():
    few = full().condensed(LEAVES)
    again = few.condensed(np.arange(M))
    assert again.ids.tolist() == IDS
    assert few.condensed().ids.tolist() == few.ids.tolist()


def test_condensing_leaves_the_set_itself_as_it_was():
    refs = full()
    few = refs.condensed(LEAVES)
    few.remove(IDS[:5])
    assert refs.ids.tolist() == IDS
    assert not refs.voters.weighted
    assert refs.members is None


def test_weights_are_added_up_where_weighted_examples_are_condensed():
    weights = RNG.integers(1, 5, M).astype(float)
    few = full(weights=weights).condensed(LEAVES)
    np.testing.assert_array_equal(few.weights, np.bincount(LEAVES, weights))


def test_a_representative_that_goes_is_succeeded_by_the_next_most_central():
    few = full().condensed(LEAVES)
    gone, size = few.ids[1], few.weights[1]
    few.remove([gone])
    kept = np.array([name != gone for name in IDS])
    rows = most_central(POINTS[kept].astype(float), LEAVES[kept], np.ones(M - 1))
    assert few.ids.tolist() == np.array(IDS)[kept][rows].tolist()
    assert few.weights[1] == size - 1


def test_a_leaf_without_members_vanishes():
    few = full().condensed(LEAVES)
    n = len(few)
    few.remove(np.array(IDS)[LEAVES == 3].tolist())
    assert len(few) == n - 1
    assert few.weights.sum() == M - np.sum(LEAVES == 3)


def test_a_new_class_gets_a_representative():
    few = full(n_classes=K + 1).condensed(LEAVES)
    few.add(QUERIES[:3], [K] * 3, ["x", "y", "z"])
    assert few.labels.tolist().count(K) == 1
    assert few.weights[-1] == 3
    assert few.log_class_weights(QUERIES)[0, K] > -np.inf


def test_numbers_go_on_where_those_of_the_members_ended():
    few = ReferenceSet(POINTS, LABELS).condensed(LEAVES)
    assert few.add(QUERIES[:2], [0, 1]) == [M, M + 1]


class Model:
    """What edits of a condensed set should do, by loops over a dict of rows."""

    def __init__(self) -> None:
        self.rows = {name: [POINTS[i], int(LABELS[i]), int(LEAVES[i])] for i, name in enumerate(IDS)}
        self.next_leaf = int(LEAVES.max()) + 1

    def representatives(self) -> dict[int, tuple[str, int, int]]:
        """By leaf: who represents it, its label and size."""
        found = {}
        for leaf in {row[2] for row in self.rows.values()}:
            names = [name for name, row in self.rows.items() if row[2] == leaf]
            points = np.stack([self.rows[name][0] for name in names]).astype(float)
            centre = most_central(points, np.zeros(len(names), int), np.ones(len(names)))[0]
            found[leaf] = (names[centre], self.rows[names[0]][1], len(names))
        return found

    def nearest_leaf(self, h: Any, label: int, leaves: dict[int, tuple[str, int, int]]) -> int | None:
        own = [(leaf, name) for leaf, (name, y, _) in sorted(leaves.items()) if y == label]
        if not own:
            return None
        squared = oracle.squared_distances([h], [self.rows[name][0] for _, name in own])[0]
        return own[int(squared.argmin())][0]

    def join(self, new: dict[str, tuple[Any, int]]) -> None:
        """All at once: each is compared with the representatives from before."""
        leaves, joined, fresh = self.representatives(), {}, {}
        for name, (h, label) in new.items():
            leaf = self.nearest_leaf(h, label, leaves)
            if leaf is None:
                if label not in fresh:
                    fresh[label], self.next_leaf = self.next_leaf, self.next_leaf + 1
                leaf = fresh[label]
            joined[name] = [h, label, leaf]
        self.rows.update(joined)


def assert_follows(few: ReferenceSet, model: Model) -> None:
    want = sorted((name, label, float(size)) for name, label, size in model.representatives().values())
    assert sorted(zip(few.ids, few.labels.tolist(), few.weights.tolist(), strict=True)) == want
    assert few.members is not None
    assert sorted(few.members.ids) == sorted(model.rows)


EDITS = st.lists(st.tuples(st.sampled_from(["add", "remove", "relabel"]), st.integers(0, 10**6)), max_size=5)


@pytest.mark.slow
@settings(max_examples=20)
@given(edits=EDITS, kernel=st.sampled_from(sorted(KERNELS)))
def test_any_series_of_edits_equals_condensing_the_edited_examples(edits, kernel):
    refs = with_groups(full(kernel=kernel, n_classes=K + 1), LEAVES, leaf_parents(LEAVES, LABELS))
    few, model = refs.condensed(), Model()
    for step, (edit, seed) in enumerate(edits):
        rng = np.random.default_rng(seed)
        chosen = rng.choice(sorted(model.rows), size=rng.integers(0, 25), replace=False).tolist()
        if edit == "add":
            names = [f"new{step}.{i}" for i in range(3)]
            h, y = rng.normal(size=(3, 3)).astype(np.float32), rng.integers(0, K + 1, 3)
            for one in (few, refs):
                one.add(h, y, names)
            model.join(dict(zip(names, zip(h, y.tolist(), strict=True), strict=True)))
        elif edit == "remove":
            chosen = chosen[: len(model.rows) - 1]
            for one in (few, refs):
                one.remove(chosen)
            model.rows = {name: row for name, row in model.rows.items() if name not in chosen}
        else:
            y = rng.integers(0, K + 1, len(chosen))
            for one in (few, refs):
                one.relabel(chosen, y)
            other = {name: int(label) for name, label in zip(chosen, y, strict=True) if model.rows[name][1] != label}
            model.join({name: (model.rows[name][0], label) for name, label in other.items()})
        assert_follows(few, model)
    # The full set, edited alike and condensed afterwards, is the same set.
    later = refs.condensed()
    assert later.ids.tolist() == few.ids.tolist()
    np.testing.assert_array_equal(later.weights, few.weights)
    np.testing.assert_array_equal(later.log_class_weights(QUERIES), few.log_class_weights(QUERIES))
    assert_same_groups(later, few)


def test_failing_edits_change_nothing():
    few = full().condensed(LEAVES)
    before = few.ids.tolist(), few.weights.tolist(), few.groups, few.log_class_weights(QUERIES).tolist()
    failing: list[tuple[type[Exception], Any]] = [
        (IdError, lambda: few.remove(["r0", "nobody"])),
        (EmptyReferenceError, lambda: few.remove(IDS)),
        (LabelError, lambda: few.relabel(["r0"], [K])),
        (IdError, lambda: few.relabel(["nobody"], [0])),
        (IdError, lambda: few.add(QUERIES[:1], [0], ["r0"])),  # a member that does not vote itself
        (IdError, lambda: few.add(QUERIES[:1], [0])),
        (ShapeError, lambda: few.add(QUERIES[:1, :2], [0], ["x"])),
        (LabelError, lambda: few.add(QUERIES[:1], [K], ["x"])),
    ]
    for error, edit in failing:
        with pytest.raises(error):
            edit()
        assert (few.ids.tolist(), few.weights.tolist(), few.groups, few.log_class_weights(QUERIES).tolist()) == before
        assert few.members is not None
        assert len(few.members) == M


def test_a_removed_member_no_longer_counts_though_it_never_voted():
    few = full().condensed(LEAVES)
    silent = next(name for name in IDS if name not in few.ids)
    few.remove([silent])
    assert few.weights.sum() == M - 1
    with refuses(IdError, "ids", repr(silent)):
        few.remove([silent])


# Alone


def test_representatives_alone_vote_the_same_and_know_nobody_else():
    few = full(class_weights=[0.5, 1.0, 4.0]).condensed(LEAVES)
    alone = without_members(few)
    assert alone.members is None
    assert alone.voters.weighted
    np.testing.assert_array_equal(alone.log_class_weights(QUERIES), few.log_class_weights(QUERIES))
    np.testing.assert_array_equal(alone.log_group_weights(QUERIES), few.log_group_weights(QUERIES))
    assert_same_groups(alone, few)
    silent = next(name for name in IDS if name not in few.ids)
    with refuses(IdError, "ids", repr(silent)):
        alone.remove([silent])


def test_a_representative_alone_goes_with_its_votes():
    alone = without_members(full().condensed(LEAVES))
    rest, sizes = alone.ids.tolist()[1:], alone.weights.tolist()[1:]
    alone.remove(alone.ids[:1])
    assert alone.ids.tolist() == rest
    assert alone.weights.tolist() == sizes


def test_a_new_voter_counts_once_beside_representatives_alone():
    alone = without_members(full().condensed(LEAVES))
    before, n = alone.weights.tolist(), len(alone)
    alone.add(QUERIES[:1], [1], ["x"])
    assert alone.weights.tolist() == [*before, 1.0]
    assert alone.groups.leaves[n] < n  # in the leaf of a representative
    assert alone.groups.sizes.sum() == M + 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_embeddings_are_condensed(dtype):
    points = torch.as_tensor(POINTS).to(dtype)
    few = full(embeddings=points).condensed(LEAVES)
    assert few.embeddings.dtype == dtype
    few.add(QUERIES[:2], [0, 1], ["x", "y"])
    assert few.weights.sum() == M + 2
    assert_close(
        few.log_group_weights(torch.as_tensor(QUERIES).to(dtype)).exp().sum(dim=1).log(),
        few.log_class_weights(torch.as_tensor(QUERIES).to(dtype)).exp().sum(dim=1).log(),
    )
