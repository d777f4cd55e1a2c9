"""Groups on the page: the discs of the map, the members of one, and a group of an explanation opened."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac.drawing.records import plain, shorten
from dwac.errors import InputError
from dwac.explain import Group
from dwac.reference import ReferenceSet
from dwac.report.grouped import every_group, in_shown_groups
from dwac.server.explorer.points import on_map
from dwac.server.explorer.state import Explorer
from dwac.server.explorer.tasks.classes import ClassTask

PAGE = 30  # members listed at once
_SUBGROUPS = 12  # shown when a group is opened
_LETTERS = 160


def discs(explorer: Explorer) -> dict[str, Any]:
    """The discs of the map, one per leaf; and the groups that the page shows, each made of discs."""
    points = explorer.points
    if not points.has_discs:
        return {"discs": [], "groups": []}
    (references, descriptions), layout = in_shown_groups(explorer.clf), points.layout
    groups = references.groups
    columns = {
        "x": layout.centres[:, 0].tolist(),
        "y": layout.centres[:, 1].tolist(),
        "r": layout.radii.tolist(),
        "group": groups.parents.tolist(),
        "size": np.round(groups.leaf_sizes).astype(int).tolist(),
        **explorer.task.disc(points.references),
    }
    sizes = np.round(groups.sizes).astype(int).tolist()
    return {
        "discs": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        "groups": [
            {"size": n, "description": text}
            for n, text in zip(sizes, descriptions or [None] * len(groups), strict=True)
        ],
    }


def group_scores(explorer: Explorer, session: str) -> dict[str, Any]:
    """How well the loaded examples that rely on each group are predicted: the figures of the report.

    Training examples belong to their own groups. wrong: the number of errors, or the total error of numbers.
    """
    explorer.require_open("it shows no groups of training examples")
    task, view, points, examples = explorer.task, explorer.view(session), explorer.points, explorer.examples
    truth = points.values(view)[points.with_prediction]
    known, measure = task.known(truth), task.measure(view.predictions, truth)
    codes = task.codes(view.predictions) if isinstance(task, ClassTask) else None
    scores = []
    for group in every_group(explorer.clf, examples.h, codes, examples.own if examples.of_training else None):
        judged = measure.values[group.rows[known[group.rows]]]
        wrong = float((~judged if judged.dtype == bool else judged).sum())
        sentence = measure.say(float(judged.mean())) if len(judged) else None
        scores.append({"n": len(group.rows), "wrong": wrong, "said": sentence})
    return {"measure": measure.name, "groups": scores}


def members(explorer: Explorer, session: str, disc: int, start: int, *, whole: bool) -> dict[str, Any]:
    """A page of the members of a disc, or of the whole group that contains it, the most central first."""
    explorer.require_open("it shows no groups of training examples")
    points = explorer.points
    references, descriptions = in_shown_groups(explorer.clf)
    groups, n = references.groups, len(references.groups.parents) if points.has_discs else 0
    if not 0 <= disc < n:
        raise InputError(f"the disc must be one of the {n:,} discs of the map; got {disc}")
    group = int(groups.parents[disc])
    all_examples = points.references if explorer.members is None else explorer.members
    leaves = np.flatnonzero(groups.parents == group) if whole else np.array([disc])
    rows = _central_first(all_examples, np.flatnonzero(np.isin(all_examples.groups.leaves, leaves)))
    return {
        "disc": disc,
        "whole": whole,
        "label": explorer.task.named_disc(points.references, disc),
        "size": round(float(groups.leaf_sizes[disc])),
        "group": {
            "size": round(float(groups.sizes[group])),
            "n_discs": int((groups.parents == group).sum()),
            "description": None if descriptions is None else descriptions[group],
        },
        "start": start,
        "n": len(rows),
        "n_examples": round(float(all_examples.sizes[rows].sum())),
        "members": _list_examples(explorer, session, all_examples, rows[start : start + PAGE]),
    }


def _central_first(references: ReferenceSet, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    h = references.embeddings.cpu().numpy()[rows].astype(np.float64)
    return rows[np.argsort(np.linalg.norm(h - h.mean(axis=0), axis=1), kind="stable")]


def _list_examples(
    explorer: Explorer, session: str, all_examples: ReferenceSet, rows: NDArray[np.int64]
) -> list[dict[str, Any]]:
    """Examples with their records; those that are points can be selected, and may have been edited."""
    points, edits, names = explorer.points, explorer.history(session).net, list(all_examples.ids[rows])
    places = points.references.voters.ids.get_indexer(all_examples.voters.ids[rows]).tolist()
    values, task = explorer.task.of_voters(all_examples)[rows], explorer.task
    listed = []
    for name, place, value in zip(names, places, values, strict=True):
        record = explorer.clf.examples_.get(name) or None
        now = edits.get(place, value) if place >= 0 else value
        listed.append(
            {
                "point": place if place >= 0 else None,
                "id": plain(name),
                "label": task.named(value if now is None else now),
                "removed": now is None,
                "size": round(float(points.references.sizes[place])) if place >= 0 else 1,
                "record": plain(record),
                "text": line_of(record),
            }
        )
    return listed


def line_of(record: Any) -> str:
    """A record in one line; a picture has none."""
    if not record:
        return ""
    if list(record) == ["text"]:
        return shorten(record["text"], _LETTERS)
    parts = [f"{name} {shorten(value, 30)}" for name, value in record.items() if not isinstance(value, bytes)]
    return shorten(", ".join(parts), 2 * _LETTERS)


def subgroups(explorer: Explorer, session: str, answer: int, number: int) -> dict[str, Any]:
    """The subgroups of a group of an explanation, heaviest first."""
    explorer.require_open("it shows no groups of training examples")
    shown = explorer.answer(session, answer).vote.shown_groups
    if not 0 <= number < len(shown):
        raise InputError(f"the group must be one of the {len(shown)} shown, 0 … {len(shown) - 1}; got {number}")
    subgroups: tuple[Group, ...] = shown[number].subgroups
    parts = [{**plain(part.to_dict()), **on_map(part, explorer.points)} for part in subgroups[:_SUBGROUPS]]
    return {"subgroups": parts, "n": len(subgroups)}
