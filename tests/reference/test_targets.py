"""References carry numbers besides their labels: through every edit and copy, each with its own example."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dwac import ReferenceSet
from dwac.errors import DwacError, InputError, NonFiniteError, ShapeError
from dwac.reference.groups import GroupTargets
from dwac.reference.references import put_voters, set_of, with_groups, without_look_alikes, without_members
from tests.named import refuses

RNG = np.random.default_rng(0)
M, K, T = 24, 4, 2
POINTS = RNG.normal(size=(M, 3)).astype(np.float32)
LABELS = RNG.integers(0, K, M)
TARGETS = RNG.normal(size=(M, T))
QUERIES = RNG.normal(size=(5, 3)).astype(np.float32)


def example(**changes: Any) -> ReferenceSet:
    return ReferenceSet(
        **{"embeddings": POINTS, "labels": LABELS, "n_classes": K, "targets": TARGETS, **changes},
    )


def of(refs: ReferenceSet) -> dict[Any, tuple[Any, ...]]:
    """Embedding, label and targets of each example by its id."""
    assert refs.targets is not None
    rows = zip(refs.embeddings.tolist(), refs.labels.tolist(), refs.targets.tolist(), strict=True)
    return dict(zip(refs.ids.tolist(), rows, strict=True))


def own_targets(refs: ReferenceSet, expected: Any = None) -> bool:
    """Whether every example has the target that belongs to its id."""
    assert refs.targets is not None
    return bool((refs.targets.numpy() == (TARGETS if expected is None else expected)[refs.ids]).all())


# Contents


@pytest.mark.parametrize(
    "given",
    [TARGETS[:, 0], TARGETS[:, 0].tolist(), TARGETS[:, :1], torch.tensor(TARGETS[:, 0]), pd.Series(TARGETS[:, 0])],
    ids=["1-D", "list", "2-D", "tensor", "Series"],
)
def test_targets_are_kept_as_float64_columns(given):
    refs = example(targets=given)
    assert refs.targets is not None
    assert refs.targets.dtype == torch.float64
    np.testing.assert_array_equal(refs.targets, TARGETS[:, :1])
    assert refs.voters.n_targets == 1


def test_whole_numbers_lose_no_digit():
    large = np.arange(M) + 2**40  # float32 would round them
    refs = example(targets=large)
    assert refs.targets is not None
    assert refs.targets[:, 0].tolist() == large.tolist()


def test_a_set_of_classes_has_no_targets():
    refs = example(targets=None)
    assert refs.targets is None
    assert refs.voters.n_targets == 0


def test_targets_change_no_vote_for_a_class():
    np.testing.assert_array_equal(
        example().log_class_weights(QUERIES), example(targets=None).log_class_weights(QUERIES)
    )


def test_repr_says_how_many_targets_there_are():
    assert repr(example()) == "ReferenceSet(24 examples, 3 dimensions, 4 classes, 2 targets, kernel='gaussian')"
    assert ", 1 target, " in repr(example(targets=TARGETS[:, 0]))


def test_later_edits_of_the_callers_targets_change_nothing():
    mine, more = torch.tensor(TARGETS), TARGETS[:2].copy()
    refs = example(targets=mine)
    refs.add(QUERIES[:2], [0, 1], targets=more)
    refs.relabel([0], targets=more[:1])
    before = of(refs)
    mine[:] = 0
    more[:] = 0
    assert of(refs) == before


@pytest.mark.parametrize(
    ("targets", "error"),
    [
        (TARGETS[:-1], ShapeError),
        (np.zeros((M, 0)), ShapeError),
        (np.zeros((M, 1, 1)), ShapeError),
        (3.0, ShapeError),
        (["cheap"] * M, InputError),
        (["1.5"] * M, InputError),
        ([[1.0], [1.0, 2.0]] * (M // 2), InputError),
        ([None] * M, NonFiniteError),
        ([np.nan] * M, NonFiniteError),
        ([np.inf] * M, NonFiniteError),
        ([1e200] * M, NonFiniteError),
        (pd.date_range("2020", periods=M), InputError),
        (np.ones(M, dtype=complex), InputError),
    ],
)
def test_targets_that_are_no_finite_numbers_per_example_are_refused(targets, error):
    with pytest.raises(error, match="targets"):
        example(targets=targets)


# Edits


@settings(max_examples=20)
@given(data=st.data(), condensed=st.booleans())
def test_any_series_of_edits_equals_rebuilding(data, condensed):
    refs = example().condensed() if condensed else example()
    rows: dict[int, tuple[Any, int, Any]] = {i: (POINTS[i], int(LABELS[i]), TARGETS[i]) for i in range(M)}
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    for edit in data.draw(st.lists(st.sampled_from(["add", "remove", "relabel", "retarget", "both"]), max_size=6)):
        chosen = data.draw(st.lists(st.sampled_from(sorted(rows)), max_size=min(4, len(rows) - 1), unique=True))
        y, t = rng.integers(0, K, len(chosen)), rng.normal(size=(len(chosen), T))
        if edit == "add":
            h, y, t = rng.normal(size=(2, 3)).astype(np.float32), rng.integers(0, K, 2), rng.normal(size=(2, T))
            rows.update(zip(refs.add(h, y, targets=t), zip(h, y.tolist(), t, strict=True), strict=True))
        elif edit == "remove":
            refs.remove(chosen)
            rows = {i: row for i, row in rows.items() if i not in chosen}
        else:
            labels, targets = (None if edit == "retarget" else y), (None if edit == "relabel" else t)
            refs.relabel(chosen, labels, targets=targets)
            for place, i in enumerate(chosen):
                h, label, target = rows[i]
                rows[i] = (h, label if labels is None else int(y[place]), target if targets is None else t[place])
    everybody = refs.members if condensed else refs
    assert everybody is not None
    assert of(everybody) == {i: (h.tolist(), label, t.tolist()) for i, (h, label, t) in rows.items()}
    assert of(refs).items() <= of(everybody).items()


@settings(max_examples=20)
@given(n=st.integers(0, 9), seed=st.integers(0, 1000))
def test_adding_then_removing_changes_nothing(n, seed):
    rng = np.random.default_rng(seed)
    refs = example()
    refs.remove(refs.add(rng.normal(size=(n, 3)), rng.integers(0, K, n), targets=rng.normal(size=(n, T))))
    assert of(refs) == of(example())


def test_new_examples_need_targets_exactly_where_the_others_have_them():
    refs, classes = example(), example(targets=None)
    with refuses(InputError, "new ones", "targets=…"):
        refs.add(QUERIES, [0] * 5)
    with refuses(InputError, "no targets", "leave targets=…"):
        classes.add(QUERIES, [0] * 5, targets=[1.0] * 5)
    with refuses(InputError, "no targets", "leave targets=…"):
        classes.relabel([0], [0], targets=[1.0])
    with refuses(InputError, "labels", "targets", "neither"):
        refs.relabel([0])
    for wrong in (np.zeros((5, T + 1)), np.zeros((4, T)), np.zeros(5), np.full((5, T), np.nan)):
        with pytest.raises(DwacError, match="targets"):
            refs.add(QUERIES, [0] * 5, targets=wrong)
    assert of(refs) == of(example())


def test_relabelling_keeps_targets_and_new_targets_keep_labels_and_groups():
    refs = example()
    groups = refs.groups
    refs.relabel([3], targets=[[7.0, 8.0]])
    np.testing.assert_array_equal(refs.groups.leaves, groups.leaves)
    changed = TARGETS.copy()
    changed[3] = 7, 8
    assert own_targets(refs, changed)
    assert refs.labels.tolist() == LABELS.tolist()
    refs.relabel([3], [(LABELS[3] + 1) % K])
    assert own_targets(refs, changed)


def test_edits_of_nothing_change_nothing():
    refs = example()
    refs.relabel([], targets=np.zeros((0, T)))
    refs.relabel([], [])
    assert refs.add(np.zeros((0, 3)), [], targets=np.zeros((0, T))) == []
    assert of(refs) == of(example())


# Other sets of the same examples


@pytest.mark.parametrize(
    "change",
    [
        lambda refs: refs.to("cpu"),
        lambda refs: set_of(refs.voters.each_once),
        lambda refs: set_of(refs.voters.directions),
        lambda refs: without_look_alikes(refs),
        lambda refs: without_members(refs),
        lambda refs: refs.condensed(),
        lambda refs: refs.condensed(LABELS),
        lambda refs: refs.condensed().members,
        lambda refs: without_members(refs.condensed()),
        lambda refs: with_groups(refs, LABELS, np.arange(K)),
        lambda refs: refs.replaced(embeddings=2 * POINTS),
        lambda refs: refs.replaced(class_weights=[1.0, 2.0, 3.0, 4.0]),
        lambda refs: refs.replaced(labels=LABELS[::-1]),
        copy.copy,
        copy.deepcopy,
        lambda refs: pickle.loads(pickle.dumps(refs)),
    ],
)
@pytest.mark.parametrize("options", [{}, {"weights": np.arange(1, M + 1)}, {"look_alikes": (3.0, 50.0)}])
def test_every_set_of_the_same_examples_has_their_targets(change: Callable[[ReferenceSet], ReferenceSet], options):
    assert own_targets(change(example(**options)))


def test_moving_keeps_targets():
    refs = example()
    put_voters(refs, refs.voters.to("cpu"))
    assert own_targets(refs)


def test_a_snapshot_keeps_targets_that_are_edited_later():
    refs = example()
    before = copy.copy(refs)
    refs.relabel([0], targets=[[9.0, 9.0]])
    assert own_targets(before)


def test_other_targets_replace_those_there_are_and_this_set_stays():
    refs = example()
    other = refs.replaced(targets=2 * TARGETS)
    assert own_targets(other, 2 * TARGETS)
    assert own_targets(refs)
    assert own_targets(example(targets=None).replaced(targets=TARGETS))
    assert refs.condensed().replaced(targets=TARGETS[: len(refs.condensed())]).members is None
    with refuses(ShapeError, "targets", 24, "(23, 2)"):
        refs.replaced(targets=TARGETS[:-1])


def test_other_labels_find_new_groups_within_the_new_classes():
    refs = example()
    _ = refs.groups
    other = refs.replaced(labels=LABELS[::-1])
    assert other.labels.tolist() == LABELS[::-1].tolist()
    assert (other.groups.labels[other.groups.of] == LABELS[::-1]).all()
    assert refs.labels.tolist() == LABELS.tolist()
    with refuses(DwacError, "labels", f"0 … {K - 1}", "row 0"):
        refs.replaced(labels=LABELS + K)


# Groups


def group_targets(refs: ReferenceSet) -> GroupTargets:
    """The mean and the range of the targets in each group; where examples represent others, of those too."""
    everybody = refs.members or refs
    assert everybody.targets is not None
    return everybody.groups.targets(everybody.targets.numpy(), everybody.sizes)


@pytest.mark.parametrize("sizes", [None, RNG.integers(1, 9, M)], ids=["one each", "sizes"])
def test_groups_have_the_mean_and_the_range_of_their_members(sizes):
    refs = example(weights=sizes, targets=TARGETS + 1e6)
    found, counts = group_targets(refs), np.ones(M) if sizes is None else sizes
    for g in range(len(refs.groups)):
        rows = refs.groups.members(g)
        y = TARGETS[rows] + 1e6
        np.testing.assert_allclose(found.means[g], np.average(y, axis=0, weights=counts[rows]), rtol=1e-12)
        np.testing.assert_array_equal(found.lowest[g], y.min(axis=0))
        np.testing.assert_array_equal(found.highest[g], y.max(axis=0))
        assert (found.lowest[g] <= found.means[g]).all()
        assert (found.means[g] <= found.highest[g]).all()


def test_representatives_know_the_targets_of_all_their_members():
    refs = example()
    _ = refs.groups
    few = refs.condensed()
    assert len(few) < M
    for got, want in zip(group_targets(few), group_targets(refs), strict=True):
        np.testing.assert_array_equal(got, want)
    alone = group_targets(without_members(few))
    assert few.targets is not None
    np.testing.assert_array_equal(alone.lowest.min(axis=0), few.targets.numpy().min(axis=0))


def test_groups_of_equal_targets_have_no_range():
    found = group_targets(example(targets=np.full(M, 0.1)))
    assert all((field == 0.1).all() for field in found)
    assert example(targets=None).targets is None
