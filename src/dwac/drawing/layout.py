"""A map of many embeddings: groups as discs, arranged by t-SNE, and every example inside the disc of its group.

drawn = layout(embeddings, labels, leaves)
drawn.place(embeddings, leaves)         # (m, 2): the references, each in its own group
drawn.place(queries, labels=predicted)  # (n, 2): new ones, each in the nearest group of its predicted label

The first two principal components of a trained network's embeddings show next to nothing: each class is a small cloud,
and the clouds lie on a line. Here similar groups are neighbours on the map, the area of a disc is its group's share of
the whole, and no two discs overlap. The map is only for display: no vote depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from sklearn.manifold import TSNE
from sklearn.metrics import pairwise_distances_argmin
from threadpoolctl import threadpool_limits

from dwac.errors import ShapeError

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

_FEW = 5  # distinct groups; fewer are arranged by their principal components
_PERPLEXITY = 30  # t-SNE's usual number of neighbours
_FILLED = 0.35  # share of the arranged area that the discs would cover before they are pushed apart
_FULL, _EVEN = 0.6, 0.75  # the same on a map that fills its page, and how far gaps are closed there
_GROWING, _SWEEPS = 100, 600  # sweeps in which discs grow and push each other apart, and the most sweeps in total
_PUSH, _TOUCH = 0.8, 0.01  # a push is this share of the overlap; sweeps end when overlaps are below 1 % of two radii
_INSIDE = 0.9  # how far members reach towards the rim of a disc
_OWN = 3  # members a group needs for axes of its own
_AROUND = 6  # neighbouring groups towards which a disc is turned
_LEAST = 0.05  # smallest spread of a group along an axis, as a share of the usual spread
_WIDE, _SAMPLE = 128, 10_000  # limits of the dimensions searched for axes, and of the examples used to choose these


@dataclass(frozen=True, eq=False)
class MapLayout:
    """The positions of groups on a map, and the rule that places embeddings in them.

    An embedding h in group g is at centres[g] + radii[g] s(u), where u = axes[g] (h - means[g]) are its coordinates
    along the group's first two principal axes, in standard deviations. s(u) = 0.9 √(1 - exp(-|u|²/2)) u/|u| spreads a
    normal distribution evenly over a disc, keeps directions and the order of distances, and stays inside the disc.

    With one or two dimensions the map is the embedding itself (`unchanged`).
    """

    centres: Floats  # (L, 2)
    radii: Floats  # (L,); areas are in proportion to the sizes of the groups, except if unchanged
    labels: Whole  # (L,): the class of each group
    means: Floats  # (L, d)
    axes: Floats  # (L, 2, d)
    unchanged: bool

    def nearest(self, h: Any, labels: Any = None) -> Whole:
        """(n,): the group whose mean is nearest to each embedding, among those with its label (n,) if there are any."""
        middle = self.means.mean(axis=0)
        rows, means = np.asarray(h, dtype=np.float64) - middle, self.means - middle
        nearest = np.zeros(len(rows), dtype=np.int64)
        wanted = np.zeros(len(rows), dtype=np.int64) if labels is None else np.asarray(labels)
        for label, some in _rows_by(wanted).items():
            groups = np.arange(len(means)) if labels is None else np.flatnonzero(self.labels == label)
            groups = groups if len(groups) else np.arange(len(means))
            nearest[some] = groups[pairwise_distances_argmin(rows[some], means[groups])]
        return nearest

    def place(self, h: Any, leaves: Any = None, *, labels: Any = None) -> Floats:
        """(n, 2): positions of embeddings (n, d), in their groups `leaves` (n,), by default in the `nearest` ones."""
        h = np.asarray(h)
        if self.unchanged:
            return _in_two_dimensions(h)
        leaves = self.nearest(h, labels) if leaves is None else np.asarray(leaves)
        u = np.empty((len(h), 2))
        for leaf, rows in _rows_by(leaves).items():
            u[rows] = (h[rows] - self.means[leaf]) @ self.axes[leaf].T
        return np.asarray(self.centres[leaves] + self.radii[leaves, None] * _INSIDE * _spread_normal(u))


def layout(embeddings: Any, labels: Any, leaves: Any, *, sizes: Any = None) -> MapLayout:
    """Arrange groups of embeddings on a map; bitwise reproducible on any number of cores.

    Args:
        embeddings: (m, d). labels: (m,) classes.
        leaves: (m,) groups 0 … L-1 within classes, each with at least one member.
        sizes: (L,) positive numbers, to which areas of discs are proportional; by default the numbers of members.
    """
    h, leaves = np.asarray(embeddings), np.asarray(leaves)
    sizes = _check_sizes(h, leaves, sizes)
    classes = np.asarray(labels)[np.unique(leaves, return_index=True)[1]]
    # Sums over several threads are rounded differently every time, and t-SNE amplifies the differences.
    with threadpool_limits(1):
        means, axes, spread = _axes_of(h, leaves, len(sizes))
        if h.shape[1] <= 2:
            return MapLayout(_in_two_dimensions(means), np.hypot(*spread.T), classes, means, axes, True)
        centres, radii = _push_apart(_arrange(means), np.sqrt(sizes))
        axes = _turns(axes, means, centres) @ (axes / spread[:, :, None])
    return MapLayout(centres, radii, classes, means, axes, False)


def spread(drawn: MapLayout, wide: float = 1.7) -> MapLayout:
    """The same groups on a map that fills a page `wide` times as wide as high: large discs, little empty space.

    The map is rotated to be widest from left to right, gaps between distant groups are mostly closed (their lengths
    mean little), and the discs push each other apart again. Neighbours mostly stay neighbours.
    """
    if drawn.unchanged or len(drawn.centres) < 2:
        return drawn
    weights = drawn.radii**2 / (drawn.radii**2).sum()
    middle = weights @ drawn.centres
    _, vectors = np.linalg.eigh((drawn.centres - middle).T * weights @ (drawn.centres - middle))
    turn = vectors[:, ::-1].T  # (2, 2), widest first; positions of embeddings are rotated in the same way
    turn *= np.sign(turn[np.arange(2), np.abs(turn).argmax(axis=1)])[:, None]
    places = (drawn.centres - middle) @ turn.T
    places = np.stack([_close_gaps(axis, weights) for axis in places.T], axis=1) * [wide, 1.0]
    centres, radii = _push_apart(places, drawn.radii, covered=_FULL * 4 * wide)
    return replace(drawn, centres=centres, radii=radii, axes=turn @ drawn.axes)


def _close_gaps(values: Floats, weights: Floats) -> Floats:
    """Move coordinates within ±1 most of the way to where equal weights take equal lengths."""
    order = np.argsort(values, kind="stable")
    even = np.empty(len(values))
    even[order] = 2 * (np.cumsum(weights[order]) - weights[order] / 2) - 1
    low, high = values.min(), values.max()
    plain = 2 * (values - low) / (high - low or 1.0) - 1
    return np.asarray(_EVEN * even + (1 - _EVEN) * plain)


def _check_sizes(h: NDArray[Any], leaves: Whole, sizes: Any) -> Floats:
    """(L,): the sizes of the groups; raise an error if they do not fit."""
    if h.ndim != 2 or not len(h) or leaves.shape != h.shape[:1]:
        raise ShapeError(
            f"a map needs embeddings (m, d) and the group of each, (m,); got shapes {h.shape} and {leaves.shape}"
        )
    counts = np.bincount(leaves)
    if not counts.all():
        raise ShapeError(
            f"every group 0 … {len(counts) - 1} needs a member; group {int(counts.argmin())} has none; number them anew"
        )
    sizes = counts if sizes is None else np.asarray(sizes)
    if sizes.shape != counts.shape or not (sizes > 0).all():
        raise ShapeError(f"sizes must be {len(counts)} positive numbers, one per group; got shape {sizes.shape}")
    return np.asarray(sizes, dtype=np.float64)


def _in_two_dimensions(h: NDArray[Any]) -> Floats:
    """(n, 2): embeddings of one or two dimensions as they are; one dimension is a line."""
    return np.asarray(h.astype(np.float64) @ np.eye(h.shape[1], 2))


def _rows_by(codes: Whole) -> dict[int, Whole]:
    """The rows of each group or label that occurs."""
    indices: Any = pd.Series(codes).groupby(codes).indices
    return dict(indices)


def _spread_normal(u: Floats) -> Floats:
    """s(u) of `MapLayout`, without its factor: spread a normal distribution, (n, 2), evenly over the unit disc."""
    squared = (u**2).sum(axis=1, keepdims=True)
    return np.asarray(u * np.sqrt(-np.expm1(-squared / 2) / np.maximum(squared, np.finfo(np.float64).tiny)))


def _axes_of(h: NDArray[Any], leaves: Whole, n_leaves: int) -> tuple[Floats, Floats, Floats]:
    """The mean (L, d) of each group, its first two principal axes (L, 2, d) and standard deviations along them (L, 2).

    Groups too small for axes of their own get those of all examples about the means of their groups, or, if all groups
    are that small, those of the means.
    """
    basis = _basis(h)
    means, n_wide = np.zeros((n_leaves, h.shape[1])), len(basis)
    axes, spread = np.zeros((n_leaves, 2, n_wide)), np.zeros((n_leaves, 2))
    scatter = np.zeros((n_wide, n_wide))
    for leaf, rows in _rows_by(leaves).items():
        members = h[rows].astype(np.float64)
        means[leaf] = members.mean(axis=0)
        members = (members - means[leaf]) @ basis.T
        own = members.T @ members
        scatter += own
        if len(rows) >= _OWN:
            axes[leaf], spread[leaf] = _principal(own / len(rows))
    if n_leaves > 1 and not scatter.any():  # every group is one example: each is as wide as its part of the whole
        scatter = np.cov(means.T, bias=True).reshape(h.shape[1], -1) * len(h) / n_leaves
        scatter = basis @ scatter @ basis.T
    usual, typical = _principal(scatter / len(h))
    small = spread[:, 0] == 0
    axes[small], spread[small] = usual, typical
    least = _LEAST * typical[0] or 1.0  # all examples may be equal
    return means, axes @ basis, np.maximum(spread, least)


def _basis(h: NDArray[Any]) -> Floats:
    """Orthonormal rows: all dimensions, or if there are many the ones with most variance."""
    if h.shape[1] <= _WIDE:
        return np.eye(h.shape[1])
    some = h[np.linspace(0, len(h) - 1, min(len(h), _SAMPLE)).astype(np.int64)].astype(np.float64)
    _, vectors = np.linalg.eigh(np.cov(some.T, bias=True))  # a single example has covariance 0
    return np.asarray(vectors[:, -_WIDE:].T)


def _principal(covariance: Floats) -> tuple[Floats, Floats]:
    """The first two principal axes (2, d) and the standard deviations (2,); the second may be zero."""
    values, vectors = np.linalg.eigh(covariance)
    axes, spread = np.zeros((2, len(values))), np.zeros(2)
    shown = slice(0, min(2, len(values)))
    axes[shown] = vectors[:, ::-1].T[shown]
    spread[shown] = np.sqrt(np.maximum(values[::-1][shown], 0))
    return axes, spread


def _arrange(h: Floats) -> Floats:
    """(L, 2): arrange embeddings (L, d) by t-SNE, equal ones at one place; a few by principal components.

    Early exaggeration, and scikit-learn's learning rate of at least 50, make the result chaotic: a change in the last
    digit of the embeddings gives another map. Without them maps change little and are as good: see decision 10.
    """
    h = h - h.mean(axis=0)
    h /= np.abs(h).max() or 1.0
    distinct, where = np.unique(h, axis=0, return_inverse=True)
    if len(distinct) < _FEW:
        left, values, _ = np.linalg.svd(distinct, full_matrices=False)
        placed = np.pad((left * values)[:, :2], ((0, 0), (0, max(0, 2 - len(values)))))
    else:
        n = len(distinct)
        gently = {"early_exaggeration": 1.0, "learning_rate": n / 12}
        nearby = min(_PERPLEXITY, (n - 1) / 3)
        tsne = TSNE(2, perplexity=nearby, init="pca", random_state=0, n_jobs=1, **gently)
        placed = tsne.fit_transform(distinct)
    return np.asarray(placed[where.reshape(-1)], dtype=np.float64)


def _push_apart(places: Floats, radii: Floats, *, covered: float | None = None) -> tuple[Floats, Floats]:
    """Let discs grow and push each other apart until they hardly overlap, then shrink until none does.

    Of two discs the smaller one is pushed more. Half the width or height of the map is 1, whichever is larger.
    covered: the area of all discs before they are pushed apart; by default a share of that of their places.
    """
    width = np.ptp(places, axis=0)
    area = max(width.prod(), width.max() ** 2 / 4) or 1.0
    covered = _FILLED * area if covered is None else covered
    radii = radii * np.sqrt(covered / (np.pi * (radii**2).sum()))
    angle = np.arange(len(places)) * np.pi * (3 - np.sqrt(5))  # equal places move apart in different directions
    places = places + 1e-3 * radii.mean() * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for sweep in range(_SWEEPS):
        grown = radii * min(1, (sweep + 1) / _GROWING)
        i, j, overlap, towards = _overlaps(places, grown)
        if sweep >= _GROWING and (overlap / (grown[i] + grown[j])).max(initial=0) < _TOUCH:
            break
        share = radii[j] ** 2 / (radii[i] ** 2 + radii[j] ** 2)
        for axis in range(2):
            step = _PUSH * overlap * towards[:, axis]
            places[:, axis] -= np.bincount(i, step * share, len(places))
            places[:, axis] += np.bincount(j, step * (1 - share), len(places))
    i, j, overlap, _ = _overlaps(places, radii)
    radii = radii * (1 - (overlap / (radii[i] + radii[j])).max(initial=0))
    low, high = (places - radii[:, None]).min(axis=0), (places + radii[:, None]).max(axis=0)
    half = (high - low).max() / 2
    return (places - (low + high) / 2) / half, radii / half


def _overlaps(places: Floats, radii: Floats) -> tuple[Whole, Whole, Floats, Floats]:
    """Pairs of overlapping discs: first, second, overlap, and direction from the first to the second."""
    i, j = cKDTree(places).query_pairs(2 * radii.max(), output_type="ndarray").T
    towards = places[j] - places[i]
    distance = np.hypot(*towards.T)
    overlap = radii[i] + radii[j] - distance
    some = overlap > 0
    towards = towards[some] / np.maximum(distance[some, None], np.finfo(np.float64).tiny)
    return i[some], j[some], overlap[some], towards


def _turns(axes: Floats, means: Floats, centres: Floats) -> Floats:
    """(L, 2, 2): rotations or reflections that turn each group's members towards the neighbours they resemble.

    The orthogonal Q_g with the largest Σ_j ⟨p_j, Q_g A_g (m_j - m_g) / |m_j - m_g|⟩, over the nearest groups j, in the
    directions p_j on the map; A_g are the axes (2, d) and m_g the mean of the group.
    """
    if len(centres) == 1:
        return np.eye(2)[None]
    _, around = cKDTree(centres).query(centres, k=range(2, min(_AROUND + 1, len(centres)) + 1))
    on_map = _unit(centres[around] - centres[:, None])
    in_group = np.einsum("gad,gjd->gja", axes, _unit(means[around] - means[:, None]))
    left, _, right = np.linalg.svd(np.einsum("gja,gjb->gab", on_map, in_group))
    return np.asarray(left @ right)


def _unit(vectors: Floats) -> Floats:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(length > 0, length, 1))
