"""The map of the embeddings: the training examples, which vote, and the test examples among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dwac.drawing import INK
from dwac.drawing.layout import MapLayout, layout
from dwac.drawing.style import discs, legend, medians, new, plain, scatter, share_limits, tidy
from dwac.estimator.classifier import DWACClassifier
from dwac.reference import ReferenceSet
from dwac.tasks.classes import encode_known

_NAMED = 20  # classes with a colour of their own
_MOST = 100_000  # points drawn
_WIDTH, _NARROW = 4.6, 3.8  # width of a panel in inches: side by side, and alone
_OTHERS = "others"
_CAPTION = "a t-SNE map of groups; distances between far groups mean little"


def layout_of(references: ReferenceSet) -> MapLayout:
    """The map of a reference set: the embeddings unchanged if they have one or two dimensions, otherwise its groups."""
    h, labels = references.embeddings.cpu().numpy(), references.labels.cpu().numpy()
    if h.shape[1] <= 2:
        return layout(h, labels, np.zeros(len(h), dtype=np.int64))  # needs no groups
    groups = references.groups
    return layout(h, labels, groups.leaves, sizes=groups.leaf_sizes)


def places_of(references: ReferenceSet, drawn: MapLayout) -> NDArray[np.float64]:
    """(m, 2): the positions of references on their map, each in its own group."""
    h = references.embeddings.cpu().numpy()
    return drawn.place(h, None if drawn.unchanged else references.groups.leaves)


def embedding_map(clf: DWACClassifier, X: Any = None, y: Any = None, *, h: Any = None) -> Any:
    """Training examples by class and, if X and y are given, test examples by true class, with errors ringed.

    h: the embeddings of X, if already computed.

    >>> import pandas as pd
    >>> X = pd.DataFrame({"age": range(20, 80), "shoe size": [38, 40, 42] * 20})
    >>> clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X["age"] < 50)
    >>> len(embedding_map(clf, X[:5], X["age"][:5] < 50).axes)
    2
    """
    drawn = _Map.of(clf, X, y, h)
    return drawn.figure(range(len(drawn.panels)), _WIDTH)


def map_figures(clf: DWACClassifier, y: Any, h: Any) -> list[Any]:
    """The same as one figure per panel, narrow enough for a phone; the page says how to read it."""
    drawn = _Map.of(clf, None, y, h)
    return [drawn.figure([place], _NARROW, caption="") for place in range(len(drawn.panels))]


def describe_map(
    *,
    unchanged: bool,
    discs: int,
    groups: int,
    alike: str = "of one class",
    near: str = "with the label predicted for it",
) -> str:
    """How to read a map, which is either the embedding itself or an arrangement of groups.

    discs: how many are drawn. groups: how many they form. alike: what the members of a disc share; near: where a new
    example is placed.
    """
    if unchanged:
        return "The embedding has two dimensions: distances on the map are the distances that the model uses."
    within = f"training examples {alike}"
    what = f"It arranges {within} that are not shown; what is similar is near"
    if discs:
        of = f"is one of {groups:,} groups" if discs == groups else f"belongs to one of {groups:,} groups"
        what = f"Each of its {discs:,} discs {of} of {within}; the more, the larger the disc. Similar discs are near"
    return f"This is a t-SNE map; large distances mean little. {what}. A new example is in the nearest disc {near}."


@dataclass(frozen=True)
class _Map:
    """The content of a map: panels of points (n, 2), codes of their classes and a title; names and their places."""

    layout: MapLayout
    panels: list[tuple[NDArray[Any], NDArray[Any], str]]
    wrong: NDArray[Any] | None  # places of errors, on the second panel
    names: list[Any]
    places: NDArray[np.float64]

    @classmethod
    def of(cls, clf: DWACClassifier, X: Any, y: Any, h: Any) -> Self:
        voters, names = clf.references_, clf.classes_.tolist()
        references = voters.members or voters
        labels = references.labels.cpu().numpy()
        drawn = layout_of(references)
        group, names = _grouped(labels, names)
        panels = [(places_of(references, drawn), group[labels], _title(voters))]
        wrong = None
        if X is not None or h is not None:
            h = clf.embed(X) if h is None else h
            truth = encode_known(y, len(h), clf.classes_)
            predicted = voters.log_class_weights(h).argmax(axis=1)
            title = f"{len(h):,} test examples, by their true label"
            panels.append((drawn.place(h, labels=predicted), group[truth], title))
            wrong = panels[1][0][predicted != truth]
        places = medians(*panels[0][:2], len(names))
        if len(clf.classes_) > _NAMED:
            places[-1] = np.nan  # other classes may be anywhere
        return cls(drawn, panels, wrong, names, _legible(places, names, np.ptp(panels[0][0], axis=0)))

    def figure(self, which: Iterable[int], width: float, caption: str = _CAPTION) -> Any:
        """Some of the panels side by side, all with the limits of the whole map."""
        chosen = list(which)
        height = _height(self.panels[0][0], self.layout, width)
        figure, axes = new(1, len(chosen), width=width, height=height)
        for panel, place in zip(axes[0], chosen, strict=True):
            points, codes, title = self.panels[place]
            some = _some(len(points))
            scatter(
                panel,
                points[some],
                codes[some],
                self.names,
                self.places,
                s=float(np.clip(14_000 / len(points), 1.5, 16)),
            )
            tidy(panel, title=title, x="" if self.layout.unchanged else caption)
            panel.spines[:].set_visible(False)
            if not self.layout.unchanged:
                panel.set_aspect("equal")
                discs(panel, self.layout.centres, self.layout.radii)
            if place == 1 and self.wrong is not None and len(self.wrong):
                size = float(np.clip(4000 / len(self.wrong), 8, 34))
                ring = {"s": size, "facecolors": "none", "edgecolors": INK, "linewidths": 0.5 if size < 20 else 0.8}
                panel.scatter(*self.wrong[_some(len(self.wrong), 3000)].T, label="wrong", **ring)
            if len(chosen) < len(self.panels):
                panel.update_datalim(np.concatenate([each for each, _, _ in self.panels]))
                panel.autoscale_view()
        share_limits(axes[0])
        legend(figure, axes[:, -1:], columns=6 if len(chosen) > 1 else 4, scatterpoints=1)
        for handle in figure.legends[0].legend_handles:
            handle.set(sizes=[30], alpha=1)
        return figure


def _title(voters: ReferenceSet) -> str:
    if not voters.voters.represents:
        return f"{len(voters):,} training examples, which vote"
    if voters.members is None:
        return f"{len(voters):,} who vote for {voters.sizes.sum():,.0f} training examples"
    return f"{len(voters.members):,} training examples, for which {len(voters):,} vote"


def _grouped(labels: NDArray[np.int64], names: list[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """Classes as drawn: if there are many, the most frequent ones, and all others as one."""
    if len(names) <= _NAMED:
        return np.arange(len(names)), names
    common = np.sort(np.argsort(-np.bincount(labels, minlength=len(names)), kind="stable")[: _NAMED - 1])
    group = np.full(len(names), _NAMED - 1)
    group[common] = np.arange(_NAMED - 1)
    return group, [*(names[code] for code in common), _OTHERS]


def _legible(places: NDArray[np.float64], names: list[Any], spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """Positions of names; NaN for names that would cover another one, which only the legend shows."""
    legible = np.full_like(places, np.nan)
    for row, place in enumerate(places):
        taken = spread * [0.02 + 0.016 * len(plain(names[row])), 0.04]  # estimated from the number of letters
        if not (np.abs(legible - place) < taken).all(axis=1).any():
            legible[row] = place
    return legible


def _height(points: NDArray[np.float64], drawn: MapLayout, width: float) -> float:
    """Height of a panel in inches: that of the map of groups, which keeps its proportions, plus title and legend."""
    wide, high = np.ptp(points, axis=0)
    return 4.4 if drawn.unchanged else float(np.clip(width * high / max(wide, 1e-9), 1.4, 3.8)) + 0.9


def _some(n: int, most: int = _MOST) -> NDArray[np.int64]:
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.int64)
