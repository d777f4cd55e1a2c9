"""The points of the map, and their columns as plain bytes: 600,000 points take a few megabytes and need no parsing.

Training examples come first, unless the explorer is private; then rows of data. A point is numbered by its position.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac.drawing.layout import Layout
from dwac.drawing.records import plain
from dwac.errors import InputError
from dwac.explain import privacy
from dwac.reference import ReferenceSet
from dwac.report.maps import layout_of, places_of
from dwac.server.explorer.views import Examples, View

NONE = 65535  # a code for "no label"
_DATA, _REMOVED, _RELABELLED = 1, 2, 4
_SPREADS = 6.0  # width of a private map in standard deviations
COLUMNS = ("xy", "label", "predicted", "typicality", "state", "p_values")


@dataclass(frozen=True, eq=False)
class Points:
    """Training examples and rows of data on one map."""

    references: ReferenceSet  # before any edit
    examples: Examples
    layout: Layout
    predicted: NDArray[np.int64]  # codes of the labels predicted for the rows of data before any edit
    n_training: int  # 0 if private
    step: float | None = None  # of a private map, on which positions are rounded to whole steps

    @classmethod
    def of(
        cls,
        references: ReferenceSet,
        examples: Examples,
        predicted: NDArray[np.int64],
        *,
        private: bool,
        members: ReferenceSet | None = None,
    ) -> Points:
        """The map is made of the training examples, even if they are not shown.

        members: those who are represented by the references, in the same groups.
        """
        layout = layout_of(references if members is None else members)
        if not private:
            return cls(references, examples, layout, predicted, len(references))
        step = float(places_of(references, layout).std(axis=0).max()) * _SPREADS / privacy.STEPS
        return cls(references, examples, layout, predicted, 0, step or 1.0)

    def place(self, h: Any, predicted: Any) -> NDArray[np.float64]:
        """(n, 2): positions of new embeddings on the map, by the codes of the labels predicted for them, (n,).

        On a private map they are rounded to hundredths of it.
        """
        xy = self.layout.place(h, labels=predicted)
        return xy if self.step is None else np.round(xy / self.step) + 0.0

    @cached_property
    def placed(self) -> NDArray[np.float64]:
        """(n, 2): positions of all points. A training example is in its own group, even if another one is nearer."""
        training = places_of(self.references, self.layout) if self.n_training else np.zeros((0, 2))
        return np.concatenate([training, self.place(self.examples.h, self.predicted)]) if self.n_data else training

    @property
    def n_data(self) -> int:
        """Number of rows of data."""
        return 0 if self.examples.of_training else len(self.examples)

    def __len__(self) -> int:
        return self.n_training + self.n_data

    @property
    def asked(self) -> NDArray[np.int64]:
        """(n,): the points of the examples with predictions."""
        return self.examples.own if self.examples.of_training else self.n_training + np.arange(self.n_data)

    def name(self, point: int) -> Any:
        """The id of a point."""
        row = point - self.n_training
        return plain(self.examples.ids[row] if self.is_data(point) else self.references.ids[point])

    def names(self) -> list[str]:
        """The ids of all points, as text."""
        training = list(self.references.ids) if self.n_training else []
        return [str(name) for name in [*training, *(self.examples.ids if self.n_data else [])]]

    def is_data(self, point: int) -> bool:
        """Whether a point is a row of data; an error if the point does not exist."""
        if not 0 <= point < len(self):
            raise InputError(f"the point must be one of the {len(self):,} points of the map; got {point}")
        return point >= self.n_training

    @cached_property
    def leaves(self) -> NDArray[np.int64]:
        """(n,): the disc of each point; none if the map has no discs."""
        if not self.has_discs:
            return np.zeros(0, dtype=np.int64)
        rows = self.layout.nearest(self.examples.h, self.predicted) if self.n_data else np.zeros(0, dtype=np.int64)
        return np.concatenate([self.references.groups.leaves, rows])

    @property
    def has_discs(self) -> bool:
        """Whether groups are drawn: not on a private map, nor if the map is the embedding itself."""
        return self.n_training > 0 and not self.layout.unchanged

    def disc_of(self, point: int) -> int | None:
        """The disc in which a point lies."""
        return int(self.leaves[point]) if self.has_discs else None

    def column(self, name: str, view: View) -> NDArray[Any]:
        """One of COLUMNS for all points; p-values only for those with predictions, one row per point."""
        match name:
            case "xy":
                return self.placed.astype("<f4")
            case "label":
                return self.labels(view)
            case "predicted":
                return self._spread(view.predictions.codes, NONE, "<u2")
            case "typicality":
                trust = view.predictions.conformal
                return self._spread([] if trust is None else trust.typicality, np.nan, "<f4")
            case "p_values":
                trust = view.predictions.conformal
                return np.zeros(0) if trust is None else trust.p_values.astype("<f8")
            case _:
                return self._states(view)

    def labels(self, view: View) -> NDArray[np.uint16]:
        """Codes of the current labels; NONE if unknown."""
        labels = np.full(len(self), NONE, dtype="<u2")
        if self.n_training:
            labels[: self.n_training] = self.references.labels.cpu().numpy()
            for place, label in view.edits.items():
                labels[place] = labels[place] if label is None else label
        if self.n_data:
            truth = self.examples.truth
            labels[self.n_training :] = np.where(truth < 0, NONE, truth)
        return labels

    def _spread(self, values: Any, missing: float, dtype: str) -> NDArray[Any]:
        """Values of the examples with predictions, spread over all points."""
        spread = np.full(len(self), missing, dtype=dtype)
        if len(values):
            spread[self.asked] = values
        return spread

    def _states(self, view: View) -> NDArray[np.uint8]:
        states = np.zeros(len(self), dtype=np.uint8)
        states[self.n_training :] = _DATA
        for place, label in view.edits.items():
            states[place] |= _REMOVED if label is None else _RELABELLED
        return states
