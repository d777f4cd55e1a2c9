"""Why, and what would change it: reasons and recourse for the example that a page shows, importance over many.

The answers have the form of `Reasons.to_dict` and `Recourse.to_dict`. They follow the edits of a page, and the own vote
of a training example does not count.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field

from dwac.drawing.records import plain
from dwac.errors import InputError
from dwac.explain.reasons import Reasons
from dwac.explain.recourse import Recourse
from dwac.server.answers import silent
from dwac.server.explorer.state import Explorer
from dwac.server.schemas import StrictModel

_ROWS = 4  # whose importance is measured at once: other requests wait as long, and the page shows progress


class Other(StrictModel):
    """The outcome to compare with or to reach: the code of a label, or a range of numbers; a training example."""

    code: int | None = None
    low: float | None = None
    high: float | None = None
    point: int | None = None  # to compare with
    frozen: list[int] = Field([], max_length=10_000)  # places of columns that cannot change

    @property
    def ends(self) -> tuple[float, float] | None:
        """The range; None if neither end is given."""
        if self.low is None and self.high is None:
            return None
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high


def reasons(explorer: Explorer, session: str, number: int, other: Other) -> dict[str, Any]:
    """The reasons of an example that the page shows, against the runner-up or what the page chose."""
    vote, label, *_ = explorer.answer(session, number)
    against, which = explorer.task.goal(other, label), explorer.task.which(label)
    if other.point is not None:
        explorer.require_open("it compares with no training example of your choice")
        if explorer.points.is_data(other.point):
            raise InputError("only training examples vote and can be compared with; this is a row of data")
        against, which["example"] = None, explorer.points.references.ids[other.point]
    known: Reasons | None = vote.main_reasons if against is None and not which else None
    known = vote.reasons(against, **which) if known is None else known
    content = known.to_dict()
    if vote.record is None:  # a private page does not show the example itself either
        content["sentences"] = content["sentences"][1:]
        for part in content["contributions"]:
            part["value"] = None
    voters = explorer.points.references.voters.ids
    places = voters.get_indexer(pd.Index([each.id for each in known.precedents], tupleize_cols=False))
    return {**content, "points": places.tolist(), "ranges": explorer.ranges}


def recourse(explorer: Explorer, session: str, number: int, other: Other) -> dict[str, Any]:
    """The smallest changes of an example that the page shows that give it another label or number."""
    answer = explorer.answer(session, number)
    wanted, which = explorer.task.goal(other, answer.label), explorer.task.which(answer.label)
    if wanted is None:
        raise InputError("a wanted label, or a range of numbers, must be given; choose one")
    names = [column.name for column in getattr(explorer.clf.encoder_, "columns", None) or ()]
    if not all(0 <= place < len(names) for place in other.frozen):
        raise InputError(f"frozen must be places of the {len(names)} columns, from 0; got {other.frozen}")
    X = answer.X if answer.point is None else explorer.source(answer.point)
    if X is None:
        raise InputError("this model does not hold the example as it was read, so nothing in it can be changed")
    wanted = {which["name"]: wanted} if which else wanted
    frozen = [names[place] for place in other.frozen]
    with silent():
        model = explorer.model_for(session, answer.point)
        found: Recourse = model.recourse(X, wanted, frozen=frozen, private=explorer.private)[0]
    return found.to_dict()


def importance(explorer: Explorer, session: str, start: int, label: int, code: int | None) -> dict[str, Any]:
    """The contributions of each column to the predictions of some loaded examples, drawn at random, from `start` on.

    label: which of several labels or numbers. code: of the label to whose log-odds they contribute; None: the second
    of two classes, otherwise the label of each example.
    """
    order = explorer.points.with_prediction[np.random.default_rng(0).permutation(len(explorer.points.with_prediction))]
    chosen = order[start : start + _ROWS].tolist()
    if not chosen:
        raise InputError(f"importance needs examples: {len(order):,} are loaded, and it starts after {start:,}")
    options = {"label": explorer.task.counted(code, label), "private": explorer.private, **explorer.task.which(label)}
    parts = []
    for point in chosen:
        X = explorer.source(point)
        if X is None:
            raise InputError("this model does not hold its training examples as it read them; load rows of data")
        with silent():
            parts.append(explorer.model_for(session, point).importance(X, random_state=point, **options))
    contributions = pd.concat([part.contributions for part in parts]).fillna(0.0)
    names = contributions.columns
    values = pd.concat([part.inputs.astype(object) for part in parts])[names]
    return {
        "n": len(order),
        "label": plain(parts[0].label),
        "unit": parts[0].unit,
        "columns": plain(list(names)),
        "points": chosen,
        "contributions": contributions.to_numpy().tolist(),
        "values": None if explorer.private else plain(values.to_numpy().tolist()),
    }
