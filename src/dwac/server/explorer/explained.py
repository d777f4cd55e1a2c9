"""An explanation for the page: `Explanation.to_dict`, its sentences, and the columns that differ."""

from __future__ import annotations

from typing import Any

from dwac.drawing.records import compare, kind_of
from dwac.explain import Explanation, Group
from dwac.explain.base import VoteExplanation
from dwac.server.explorer.points import Points
from dwac.server.explorer.tasks import Task

_LETTERS = 40  # shown per value in a table


def explained(task: Task, found: Any, points: Points | None, label: int = 0) -> dict[str, Any]:
    """A dict for JSON; with `points`, also the positions of the neighbours and groups among them.

    label: which of several labels is explained.
    """
    explanation: VoteExplanation = task.vote(found, label)
    open_ = points if points is not None and points.n_training and not explanation.private else None
    groups = () if explanation.few_suffice else explanation.shown_groups
    return {
        "kind": kind_of(explanation.record),
        "explanation": explanation.to_dict(),
        "few_suffice": explanation.few_suffice,
        "sentences": explanation.sentences(),
        "facts": _facts(explanation) if isinstance(explanation, Explanation) else {},
        "compared": _compared(explanation, [neighbor.record for neighbor in explanation.neighbors]),
        "compared_groups": _compared(explanation, [group.face.record for group in groups]),
        "neighbor_points": None if open_ is None else _places(open_, [n.id for n in explanation.neighbors]),
        "groups": None if open_ is None else [on_map(group, open_) for group in groups],
        **task.more(found),
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
    return [column._asdict() for column in compare(explanation.record, records, _LETTERS)]


def _facts(explanation: Explanation) -> dict[str, Any]:
    """Its sentences on what decides the label, what would change it, and how far few voters agree with all."""
    said = explanation.sentences()
    if explanation.unreadable:
        return {"decided": said, "flipped": "", "agreed": ""}
    agreed = said.pop() if explanation.n_examples != explanation.n_references else ""
    flipped = said.pop()
    return {"decided": explanation._deciding_sentences(), "flipped": flipped, "agreed": agreed}
