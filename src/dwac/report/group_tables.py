"""Groups of training examples on a page: the typical ones, and those on whose word test examples go wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dwac.drawing.records import written
from dwac.report.cases import brief
from dwac.report.findings import Findings
from dwac.report.grouped import Group, every_group, largest, strangest
from dwac.report.markup import Html, joined, table, tag
from dwac.report.measures import Measure
from dwac.report.words import percent

_MOST_TYPICAL, _MOST_STRANGE = 36, 6  # rows of a table
_MOST_RELIED_ON = 8
_COLUMNS = 4  # of an example
_MOST_EACH = 3  # of a class


def group_tables(
    found: Findings,
    labels: Sequence[str],
    measure: Measure,
    strange: NDArray[np.bool_],
    how: str,
    codes: NDArray[np.int64] | None = None,
) -> Html:
    """The typical groups, and those with more strange test examples than others.

    labels: (G,) what each group votes for. strange: (n,) test examples that are unlike any other, or go wrong: how they
    do, in words. codes: (n,) the predicted classes, if classes are predicted.
    """
    groups = every_group(found.clf, found.h, codes)
    classes = found.clf.references_.groups.labels
    each = int(np.clip(_MOST_TYPICAL // len(np.unique(classes)), 1, _MOST_EACH))
    if codes is not None:
        typical, what = largest(groups, classes, each)[:_MOST_TYPICAL], f"the largest of each class, up to {each}"
    else:
        typical = sorted(groups, key=lambda group: -len(group.rows))[:_MOST_RELIED_ON]
        what = "those on which most test examples rely"
    odd = strangest(groups, strange, _MOST_STRANGE)
    parts = [_table(found, typical, labels, measure, f"Typical groups: {what}")]
    if odd:
        worst = f"Strange groups: test examples that rely on them are unfamiliar, or {how}, more often than others"
        parts.append(_table(found, odd, labels, measure, worst, strange))
    note = "A test example relies on the group that has most of the votes for its prediction."
    return joined((*parts, tag("p", note, class_="note")))


def _table(
    found: Findings,
    groups: Sequence[Group],
    labels: Sequence[str],
    measure: Measure,
    caption: str,
    strange: NDArray[np.bool_] | None = None,
) -> Html:
    described = any(group.description for group in groups)
    rows = []
    for group in groups:
        tested = measure.values[group.rows]
        rows.append(
            (
                labels[group.place],
                f"{group.size:,}",
                (group.description or "–") if described else percent(group.share),
                written(group.representative),
                f"{len(group.rows):,}",
                *((f"{int(strange[group.rows].sum()):,}",) if strange is not None else ()),
                measure.say(float(tested.mean())) if len(tested) else "–",
                _typicality(found, group),
                brief(found.clf.examples_.get(group.representative), _COLUMNS),
            )
        )
    head = (
        "votes for",
        "training examples",
        "what sets it apart" if described else "of all",
        "most central",
        "test examples",
        *(("strange",) if strange is not None else ()),
        measure.name,
        "typicality",
        "most central example",
    )
    return table(head, rows, caption=caption, numbers=[1, *range(4, len(head) - 1)])


def _typicality(found: Findings, group: Group) -> str:
    return "–" if found.typicality is None or not len(group.rows) else f"{found.typicality[group.rows].mean():.2f}"
