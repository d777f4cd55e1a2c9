"""The points of the map, and explanations with the points that they name.

The columns of points are plain bytes: 600,000 points take a few megabytes and need no parsing.
Training examples come first, unless the explorer is private; then rows of data. A point is numbered by its position.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac.drawing.layout import MapLayout, spread
from dwac.drawing.legend import compare
from dwac.drawing.records import kind_of, plain
from dwac.errors import EPSILON, InputError
from dwac.explain import Explanation, Group, privacy
from dwac.explain.base import VoteExplanation, set_sentences
from dwac.reference import ReferenceSet
from dwac.report.maps import layout_of, places_of
from dwac.server.explorer.tasks import PageTask
from dwac.server.explorer.views import LoadedExamples, View

_DATA, _REMOVED, _RELABELLED = 1, 2, 4
_LETTERS = 40  # shown per value in a table
_SPREADS = 6.0  # width of a private map in standard deviations
COLUMNS = {"xy": "<f4", "typicality": "<f4", "state": "<u1"}  # and those of the task, with their number types


@dataclass(frozen=True, eq=False)
class Points:
    """Training examples and rows of data on one map."""

    task: PageTask
    references: ReferenceSet  # before any edit
    examples: LoadedExamples
    layout: MapLayout
    predicted: NDArray[np.int64]  # codes of the outcomes predicted for the rows of data before any edit
    n_training: int  # 0 if private
    step: float | None = None  # of a private map, on which positions are rounded to whole steps

    @classmethod
    def of(
        cls,
        task: PageTask,
        references: ReferenceSet,
        examples: LoadedExamples,
        predicted: NDArray[np.int64],
        *,
        private: bool,
        members: ReferenceSet | None = None,
    ) -> Points:
        """Points on a map built from the training examples, even if they are not shown.

        members: the examples that the references represent, in the same groups.
        """
        layout = spread(layout_of(references if members is None else members))
        if not private:
            return cls(task, references, examples, layout, predicted, len(references))
        step = float(places_of(references, layout).std(axis=0).max()) * _SPREADS / privacy.STEPS
        return cls(task, references, examples, layout, predicted, 0, step or 1.0)

    def place(self, h: Any, predicted: Any) -> NDArray[np.float64]:
        """(n, 2): positions of new embeddings on the map, by the codes of the labels predicted for them, (n,).

        On a private map they are rounded to hundredths of its size.
        """
        xy = self.layout.place(h, labels=predicted)
        return xy if self.step is None else np.round(xy / self.step) + 0.0

    @cached_property
    def positions(self) -> NDArray[np.float64]:
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
    def with_prediction(self) -> NDArray[np.int64]:
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

    def row(self, point: int) -> Any:
        """A row of data as an X with one example."""
        return self.examples.row(point - self.n_training)

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
        """The disc that contains a point."""
        return int(self.leaves[point]) if self.has_discs else None

    @property
    def columns(self) -> dict[str, str]:
        """All columns, and their number types."""
        return {**COLUMNS, **self.task.columns}

    def column(self, name: str, view: View, epsilon: float = EPSILON) -> NDArray[Any]:
        """One of the columns, for all points or for those with predictions; epsilon: of intervals."""
        match name:
            case "xy":
                return self.positions.astype("<f4")
            case "typicality":
                known = view.predictions.typicality
                return self.spread([] if known is None else known, np.nan, "<f4")
            case "state":
                return self._states(view)
            case _:
                return self.task.column(name, self, view, epsilon)

    def values(self, view: View) -> NDArray[Any]:
        """(n, …): the current labels or numbers of all points, or placeholders for unknown ones."""
        shown = [self.examples.truth] if self.n_data else []
        if self.n_training:
            now = np.array(self.task.of_voters(view.clf.references_))
            voters = np.array(self.task.of_voters(self.references))
            stays = np.setdiff1d(np.arange(len(voters)), [p for p, value in view.edits.items() if value is None])
            voters[stays] = now
            shown = [voters, *shown]
        return np.concatenate(shown) if shown else self.task.unknown(0)

    def spread(self, values: Any, missing: float, dtype: str, width: int | None = None) -> NDArray[Any]:
        """Values of the examples with predictions, spread over all points."""
        spread = np.full(len(self) if width is None else (len(self), width), missing, dtype=dtype)
        if len(values):
            spread[self.with_prediction] = values
        return spread

    def _states(self, view: View) -> NDArray[np.uint8]:
        states = np.zeros(len(self), dtype=np.uint8)
        states[self.n_training :] = _DATA
        for place, value in view.edits.items():
            states[place] |= _REMOVED if value is None else _RELABELLED
        return states


# Explanations


def explanation_dict(task: PageTask, explanation: Any, points: Points | None, label: int = 0) -> dict[str, Any]:
    """A dict for JSON; with `points`, also the positions of the neighbours and groups among them.

    label: which of several labels is explained.
    """
    vote: VoteExplanation = task.vote(explanation, label)
    open_ = points if points is not None and points.n_training and not vote.private else None
    groups = () if vote.few_suffice else vote.shown_groups
    return {
        "kind": kind_of(vote.record),
        "explanation": vote.to_dict(),
        "few_suffice": vote.few_suffice,
        "lead": _lead(vote),
        "sentences": vote.sentences(),
        "facts": _facts(vote) if isinstance(vote, Explanation) else {},
        "compared": _compared(vote, [neighbor.record for neighbor in vote.neighbors]),
        "compared_groups": _compared(vote, [group.face.record for group in groups]),
        "neighbor_points": None if open_ is None else _places(open_, [neighbor.id for neighbor in vote.neighbors]),
        "groups": None if open_ is None else [on_map(group, open_) for group in groups],
        **task.more(explanation),
    }


def on_map(group: Group, points: Points) -> dict[str, Any]:
    """The points of a group's representative and shown members, and its discs; for a subgroup, its one disc."""
    (representative,) = _places(points, [group.representative.id])
    members = _places(points, [member.id for member in group.members])
    discs: list[int] = []
    if points.has_discs:
        discs = points.task.discs_of(group, points.references)
    return {"representative_point": representative, "member_points": members, "discs": discs}


def _places(points: Points, ids: list[Any]) -> list[int]:
    return list(points.references.voters.positions(ids).tolist())


def _compared(explanation: VoteExplanation, records: list[Any]) -> list[dict[str, Any]]:
    """The columns of a table, for the example and for others."""
    if explanation.private or kind_of(explanation.record) != "table":
        return []
    return [column._asdict() for column in compare(explanation.record, records, _LETTERS, explanation.legend)]


def _lead(vote: VoteExplanation) -> list[str]:
    """The first sentences, without the prediction set: the page shows it at the ε of its slider."""
    known = set_sentences(vote.label_set, vote.epsilon) if isinstance(vote, Explanation) else []
    return [sentence for sentence in vote.lead() if sentence not in known]


def _facts(explanation: Explanation) -> dict[str, Any]:
    """Its sentences on what decides the label, what would change it, and how far few voters agree with all."""
    if explanation.unreadable:
        return {"decided": explanation.sentences(), "flipped": "", "agreed": ""}
    agreed = explanation.details()[-1] if explanation.n_examples != explanation.n_references else ""
    return {"decided": explanation._deciding_sentences(), "flipped": explanation._flip_sentence(), "agreed": agreed}
