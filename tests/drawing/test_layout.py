"""Maps of embeddings: groups as discs that never overlap, members inside them, the same bits every time."""

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness
from sklearn.neighbors import KNeighborsClassifier

from dwac import ReferenceSet
from dwac.drawing.layout import MapLayout, layout, spread
from dwac.errors import ShapeError
from tests.named import refuses

ROUNDING = 1e-9


def clouds(n_leaves: int, d: int = 12, most: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Groups of uneven size: embeddings and the group of each."""
    rng = np.random.default_rng(seed)
    leaves = np.r_[np.arange(n_leaves), np.repeat(np.arange(n_leaves), rng.integers(0, most, n_leaves))]
    h = 3 * rng.normal(size=(n_leaves, d))[leaves] + rng.normal(size=(len(leaves), d)) * rng.random(d)
    return h.astype(np.float32), leaves


def labelled(n_leaves: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    h, leaves = clouds(n_leaves)
    return h, leaves % 3, leaves


@cache
def laid_out(n_leaves: int) -> MapLayout:
    return layout(*labelled(n_leaves))


def overlap(found: MapLayout) -> float:
    """The largest overlap of two discs, as a share of the sum of their radii."""
    apart = np.linalg.norm(found.centres[:, None] - found.centres, axis=2)
    together = found.radii[:, None] + found.radii
    np.fill_diagonal(apart, np.inf)
    return float((1 - apart / together).max())


@settings(max_examples=15)
@given(
    n_leaves=st.sampled_from([1, 2, 3, 4, 5, 6, 11, 40]),
    d=st.sampled_from([3, 7, 130]),
    scale=st.sampled_from([0.0, 1e-18, 1.0, 1e12]),
    copies=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_groups_are_discs_that_do_not_overlap(n_leaves: int, d: int, scale: float, copies: bool, seed: int) -> None:
    h, leaves = clouds(n_leaves, d, seed=seed)
    if copies:
        h = h[np.unique(leaves, return_index=True)[1]][leaves % max(1, n_leaves // 3)]  # many groups at one place
    h = h * np.float32(scale)
    found = layout(h, leaves % 3, leaves)
    assert np.isfinite(found.centres).all()
    assert overlap(found) < ROUNDING
    assert (found.radii > 0).all()
    areas, sizes = found.radii**2, np.bincount(leaves)
    assert np.allclose(areas / areas.sum(), sizes / sizes.sum())
    placed = found.place(h, leaves)
    inside = np.linalg.norm(placed - found.centres[leaves], axis=1)
    assert (inside <= found.radii[leaves]).all()
    assert np.abs(placed).max() <= 1


def test_discs_cover_a_fair_part_of_the_map() -> None:
    for n_leaves in (3, 12, 20, 60, 120):
        found = laid_out(n_leaves)
        assert np.pi * (found.radii**2).sum() > 0.1 * np.ptp(found.centres, axis=0).prod()


def test_areas_show_the_sizes_given() -> None:
    h, leaves = clouds(9)
    found = layout(h, leaves % 3, leaves, sizes=np.arange(1, 10))
    assert np.allclose(found.radii**2 / found.radii[0] ** 2, np.arange(1, 10))


@pytest.mark.slow
def test_a_map_is_the_same_to_the_bit_on_any_number_of_threads() -> None:
    script = (
        "import hashlib; from tests.drawing.test_layout import clouds; from dwac.drawing.layout import layout; "
        "h, leaves = clouds(60); found = layout(h, leaves % 3, leaves); "
        "print(hashlib.sha256(found.place(h, leaves).tobytes() + found.place(h[:50] + 1).tobytes()).hexdigest())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            cwd=Path(__file__).parents[2],
            env={"OMP_NUM_THREADS": threads, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
        ).stdout
        for threads in ("1", "3")
    }
    assert len(told) == 1


def test_a_map_hardly_changes_with_the_last_digits_of_the_embeddings() -> None:
    h, leaves = clouds(30)
    noise = 1 + 1e-6 * np.random.default_rng(1).normal(size=h.shape)
    moved = np.abs(layout(h, leaves, leaves).centres - layout(h * noise, leaves, leaves).centres).max()
    assert moved < 0.2  # of half the map's width; with early exaggeration 1 or more


def test_a_query_is_placed_like_a_member_of_the_nearest_group() -> None:
    h, leaves = clouds(20)
    found = layout(h, leaves % 3, leaves)
    means = np.stack([h[leaves == leaf].mean(axis=0) for leaf in range(20)])
    nearest = ((h[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (found.nearest(h) == nearest).all()
    assert np.allclose(found.place(h), found.place(h, nearest))
    assert found.place(h[:0]).shape == found.place(h[:0], labels=leaves[:0]).shape == (0, 2)
    far = found.place(h[:5] * 1e6)
    assert np.isfinite(far).all()


def test_a_query_with_a_label_is_placed_in_the_nearest_group_of_that_label() -> None:
    h, leaves = clouds(20)
    found = layout(h, leaves % 3, leaves)
    labels = np.arange(len(h)) % 4  # no group has the label 3
    squared = ((h[:, None] - found.means) ** 2).sum(axis=2)
    allowed = (labels[:, None] == np.arange(20) % 3) | (labels == 3)[:, None]
    nearest = np.where(allowed, squared, np.inf).argmin(axis=1)
    assert (found.nearest(h, labels) == nearest).all()
    assert np.allclose(found.place(h, labels=labels), found.place(h, nearest))


def test_members_along_the_main_axis_of_their_group_keep_their_order() -> None:
    rng = np.random.default_rng(0)
    h, leaves = clouds(8, d=6)
    line = np.zeros((50, 6))
    line[:, 2] = np.sort(rng.normal(size=50)) * 4
    line[:, 4] = rng.normal(size=50) * 1e-3
    found = layout(np.r_[h, line + 30], np.zeros(len(h) + 50), np.r_[leaves, np.full(50, 8)])
    placed = found.place(line + 30, np.full(50, 8)) - found.centres[8]
    along = placed @ (placed[-1] / np.linalg.norm(placed[-1]))
    assert (np.diff(along) > 0).all()


def test_discs_are_turned_towards_their_neighbours() -> None:
    """Three groups on a line: those members of the middle one that are nearer to a neighbour are drawn nearer to it."""
    rng = np.random.default_rng(0)
    leaves = np.repeat(np.arange(3), 200)
    h = rng.normal(size=(600, 5)) * [2, 1, 0.5, 0.5, 0.5]
    h[:, 0] += 20 * (leaves - 1)
    found = layout(h, leaves % 3, leaves)
    middle = leaves == 1
    placed = found.place(h[middle], leaves[middle])
    towards = found.centres[2] - found.centres[0]
    assert np.corrcoef(placed @ towards, h[middle, 0])[0, 1] > 0.9


@pytest.mark.slow
def test_neighbours_on_the_map_are_neighbours_far_more_than_on_the_principal_plane() -> None:
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))
    train, test = rows[:1200], rows[1200:]
    references = ReferenceSet(X[train], y[train])
    found = layout(X[train], y[train], references.groups.leaves, sizes=references.groups.leaf_sizes)
    plane = PCA(2).fit(X[train])
    trust = [trustworthiness(X[test], placed) for placed in (found.place(X[test]), plane.transform(X[test]))]
    placed = found.place(X[train], references.groups.leaves)
    correct = [
        KNeighborsClassifier(5).fit(placed, y[train]).score(found.place(X[test]), y[test]),
        KNeighborsClassifier(5).fit(plane.transform(X[train]), y[train]).score(plane.transform(X[test]), y[test]),
    ]
    assert 1 - trust[0] < (1 - trust[1]) / 3
    assert 1 - correct[0] < (1 - correct[1]) / 3


def test_two_dimensions_are_shown_as_they_are_and_one_as_a_line() -> None:
    h, leaves = clouds(5, d=2)
    found = layout(h, leaves % 3, leaves)
    assert found.unchanged
    assert np.allclose(found.place(h), h)
    assert np.allclose(found.centres[3], h[leaves == 3].mean(axis=0))
    line = layout(h[:, :1], leaves, leaves).place(h[:, :1])
    assert np.allclose(line[:, 0], h[:, 0])
    assert not line[:, 1].any()


@pytest.mark.parametrize(
    ("h", "leaves", "sizes", "facts"),
    [
        (np.zeros((3, 4)), [0, 1], None, [(3, 4), "(2,)"]),
        (np.zeros((0, 4)), np.zeros(0, dtype=int), None, [(0, 4)]),
        (np.zeros((3, 4)), [0, 2, 2], None, ["group 1"]),
        (np.zeros((3, 4)), [0, 1, 1], [1.0], [2, "positive"]),
        (np.zeros((3, 4)), [0, 1, 1], [1.0, 0.0], [2, "positive"]),
    ],
)
def test_wrong_groups_are_refused(h: Any, leaves: list[int], sizes: list[float] | None, facts: list[object]) -> None:
    with refuses(ShapeError, *facts):
        layout(h, leaves, leaves, sizes=sizes)


def test_groups_of_one_example_spread_new_ones_over_their_discs() -> None:
    rng = np.random.default_rng(0)
    h = rng.normal(size=(12, 6)) * [9, 4, 1, 1, 1, 1]
    found = layout(h, np.zeros(12, dtype=int), np.arange(12), sizes=np.arange(1, 13))
    near = found.place(h[3] + 0.3 * rng.normal(size=(40, 6)), np.full(40, 3)) - found.centres[3]
    assert (np.hypot(*near.T) < found.radii[3]).all()
    assert np.linalg.matrix_rank(near, tol=0.01 * found.radii[3]) == 2
    assert len(np.unique(near.round(6), axis=0)) == 40


# A map that fills its page


def filled(found: MapLayout, wide: float) -> float:
    """The share of a page, so many times as wide as high, that the discs cover when the map fits it."""
    low, high = (found.centres - found.radii[:, None]).min(axis=0), (found.centres + found.radii[:, None]).max(axis=0)
    width, height = high - low
    scale = min(wide / width, 1 / height)
    return float(np.pi * ((found.radii * scale) ** 2).sum() / wide)


@pytest.mark.parametrize("n_leaves", [2, 3, 20, 120])
def test_a_spread_map_fills_its_page_and_keeps_what_a_map_promises(n_leaves: int) -> None:
    h, _, leaves = labelled(n_leaves)
    found = laid_out(n_leaves)
    wide = spread(found, 1.5)
    assert overlap(wide) <= ROUNDING
    assert filled(wide, 1.5) > max(0.25, filled(found, 1.5))
    np.testing.assert_allclose(wide.radii / wide.radii[0], found.radii / found.radii[0])  # areas are still sizes
    inside = np.linalg.norm(wide.place(h, leaves) - wide.centres[leaves], axis=1)
    assert (inside <= wide.radii[leaves]).all()


@pytest.mark.parametrize("n_leaves", [20, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 120))])
def test_a_map_and_its_spread_are_the_same_every_time(n_leaves: int) -> None:
    first, again = (spread(layout(*labelled(n_leaves)), 1.5) for _ in range(2))
    assert np.array_equal(first.centres, again.centres)


def test_neighbours_mostly_stay_neighbours_on_a_spread_map() -> None:
    found = laid_out(120)
    wide = spread(found)
    assert trustworthiness(found.centres, wide.centres, n_neighbors=6) > 0.9


def test_a_map_that_is_the_embedding_itself_is_not_spread() -> None:
    h, leaves = clouds(5, d=2)
    found = layout(h, leaves, leaves)
    assert spread(found) is found
