"""Lists of examples: search, labels and numbers that look wrong, disagreements, selections of points, and exports."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from dwac.drawing.legend import Legend
from dwac.drawing.records import plain, shorten
from dwac.encoders import TabularEncoder
from dwac.errors import InputError
from dwac.estimator.evaluation import as_csv
from dwac.report.wrong_labels import HOW_JUDGED, label_issues
from dwac.server.explorer.edits import Edit
from dwac.server.explorer.groups import line_of
from dwac.server.explorer.state import Explorer
from dwac.server.explorer.tasks.classes import ClassTask
from dwac.server.explorer.tasks.numbers import NumberTask
from dwac.server.explorer.views import MOST, task_of

FOUND = 50  # matches of a search
LISTED = 500  # rows of a list
_LETTERS = 160
_PAGE = 60  # examples of a selection listed at once
_NAMED = 19  # values of a column that have a colour; the rest are "others"
_OTHERS = "others"


class Finder:
    """Finds points by id or by words in their records; the index is built at the first search."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer

    def find(self, wanted: str) -> list[dict[str, Any]]:
        """The first points whose id is `wanted`, then those whose id or record contains it."""
        needle = wanted.strip().casefold()
        if not needle:
            return []
        exact = np.flatnonzero((self._ids == needle).to_numpy())
        matches = np.flatnonzero(
            self._ids.str.contains(needle, regex=False) | self._folded.str.contains(needle, regex=False)
        )
        order = list(dict.fromkeys([*exact.tolist(), *matches.tolist()]))[:FOUND]
        name = self.explorer.points.name
        return [{"point": p, "id": name(p), "text": shorten(self._texts[p], _LETTERS)} for p in order]

    @cached_property
    def _ids(self) -> pd.Series[Any]:
        return pd.Series([name.casefold() for name in self.explorer.points.names()], dtype="str")

    @cached_property
    def _folded(self) -> pd.Series[Any]:
        return pd.Series([text.casefold() for text in self._texts], dtype="str")

    @cached_property
    def _texts(self) -> list[str]:
        """The records of all points; empty if private."""
        points, clf = self.explorer.points, self.explorer.clf
        if self.explorer.private:
            return [""] * len(points)
        records = clf.examples_.frame()
        by_id = {} if records is None else dict(zip(records.index, _lines(records, clf.legend_), strict=True))
        training = [by_id.get(name, "") for name in points.references.ids]
        return training + (_lines(clf.encoder_.records(self.explorer.examples.X), clf.legend_) if points.n_data else [])


def _lines(records: pd.DataFrame, legend: Legend) -> list[str]:
    """Each record as one line; pictures have no text."""
    shown = records[[name for name in records.columns if name != "image"]]
    if list(shown.columns) == ["text"]:
        return shown["text"].astype(str).tolist()
    return [
        " ".join(
            f"{legend.head(name)}={legend.meaning(name, value) or value}"
            for name, value in zip(shown.columns, row, strict=True)
        )
        for row in shown.itertuples(index=False, name=None)
    ]


def example(explorer: Explorer, session: str, point: int, k: int, **options: Any) -> dict[str, Any]:
    """The name and label of a point, and its prediction; options: those of `Explorer.point`."""
    return {**explorer.point(session, point, k, **options), **_identity(explorer, session, point)}


def _identity(explorer: Explorer, session: str, point: int) -> dict[str, Any]:
    """The id of a point, where it comes from, and its current label or number."""
    points = explorer.points
    return {
        "id": points.name(point),
        "part": "data" if points.is_data(point) else "training",
        "true": explorer.task.named(points.values(explorer.view(session))[point]),
    }


def issues(explorer: Explorer, session: str) -> dict[str, Any]:
    """Training labels that look wrong, given the current voters; with very many examples, only some are checked."""
    explorer.require_open("it lists no training labels")
    if not isinstance(explorer.task, ClassTask):
        return _errors(explorer, session)
    clf = explorer.view(session).clf
    m = len(clf.references_)
    rows = None if m <= MOST else np.linspace(0, m - 1, MOST).astype(np.int64)
    suspects = label_issues(clf, rows=rows)
    places = explorer.points.references.voters.positions(suspects["id"].head(LISTED).tolist()).tolist()
    listed = [
        {"point": place, **{name: plain(value) for name, value in row.items()}}
        for place, row in zip(places, suspects.head(LISTED).to_dict("records"), strict=True)
    ]
    counts = {"n": len(suspects), "asked": m if rows is None else len(rows), "n_references": m}
    return {"issues": listed, **counts, "judged": HOW_JUDGED[suspects.attrs["judged"]]}


def _errors(explorer: Explorer, session: str) -> dict[str, Any]:
    """The loaded examples that are furthest from what the others vote for."""
    task, view, points = explorer.task, explorer.view(session), explorer.points
    errors = task.errors(view.predictions, points.values(view)[points.with_prediction])
    listed = [
        {"point": int(points.with_prediction[each["row"]]), "id": plain(explorer.examples.ids[each["row"]]), **each}
        for each in errors[:LISTED]
    ]
    n_references = len(view.clf.references_)
    counts = {"n": len(errors), "asked": len(explorer.examples), "n_references": n_references}
    return {"issues": listed, **counts, "judged": ""}


def disagreements(explorer: Explorer, session: str) -> dict[str, Any]:
    """Rows for which the two models predict different labels or numbers, the most striking first."""
    rival, task = explorer.rival, explorer.task
    if rival is None:
        return {"rows": [], "n": 0}
    ours, theirs = explorer.view(session).predictions, rival.predictions
    rows, other = task.disagreeing_rows(ours, theirs), task_of(rival.clf)
    listed = []
    for row in rows[:LISTED].tolist():
        mine, yours = task.summary(ours, row), other.summary(theirs, row)
        listed.append(
            {
                "point": row + explorer.points.n_training,
                "id": plain(explorer.examples.ids[row]),
                **mine,
                **{f"rival_{name}": value for name, value in yours.items()},
                "true": task.named(explorer.examples.truth[row]),
            }
        )
    return {"rows": listed, "n": len(rows)}


def changes(explorer: Explorer, session: str, most: int | None = LISTED) -> dict[str, Any]:
    """The edits of a page, and the examples whose predictions they change."""
    history, view, task = explorer.history(session), explorer.view(session), explorer.task
    before, after = explorer.first.predictions, view.predictions
    rows = task.changed_rows(before, after)
    points = explorer.points.with_prediction
    listed = [
        {
            "point": int(points[row]),
            "id": plain(explorer.examples.ids[row]),
            "before": task.summary(before, int(row)),
            "after": task.summary(after, int(row)),
        }
        for row in rows[:most]
    ]
    return {
        "edits": [_edit_dict(explorer, edit) for edit in history.done],
        "can_redo": bool(history.undone),
        "changed": listed,
        "n_changed": len(rows),
        "n_asked": len(explorer.examples),
        "n_references": explorer.count(len(view.clf.references_)),
    }


def _edit_dict(explorer: Explorer, edit: Edit) -> dict[str, Any]:
    named = explorer.task.named
    return {
        "point": edit.place,
        "id": plain(explorer.points.references.ids[edit.place]),
        "before": named(edit.before),
        "label": None if edit.label is None else named(edit.label),
    }


def table(explorer: Explorer, session: str, epsilon: float) -> str:
    """All loaded examples as CSV: id, label and prediction."""
    view, points = explorer.view(session), explorer.points
    frame = pd.DataFrame({"id": [plain(name) for name in explorer.examples.ids]})
    predicted = explorer.task.frame(view.predictions, points.values(view)[points.with_prediction], epsilon)
    return as_csv(pd.concat([frame, predicted], axis=1), harmless=True)


def brief(explorer: Explorer, session: str, point: int) -> dict[str, Any]:
    """An example in short: name, label, prediction if it has one, and its record as a picture or a line."""
    record = None if explorer.private else _record(explorer, point)
    row = _row_of(explorer, point)
    return {
        "point": point,
        **_identity(explorer, session, point),
        "predicted": None if row is None else explorer.task.summary(explorer.view(session).predictions, row),
        "record": None if record is None else plain({k: v for k, v in record.items() if isinstance(v, bytes)}),
        "text": line_of(record),
    }


def selected(explorer: Explorer, session: str, chosen: Sequence[int], start: int) -> dict[str, Any]:
    """A page of the examples of a selection."""
    for point in chosen:
        explorer.points.is_data(point)  # an error if there is no such point
    return {
        "n": len(chosen),
        "start": start,
        "examples": [brief(explorer, session, point) for point in chosen[start : start + _PAGE]],
    }


def selected_table(explorer: Explorer, session: str, chosen: Sequence[int], epsilon: float) -> str:
    """A selection as CSV: id, where it comes from, its label, and its prediction if it has one."""
    view, points, task = explorer.view(session), explorer.points, explorer.task
    values = points.values(view)
    frame = pd.DataFrame(
        {
            "id": [points.name(point) for point in chosen],
            "part": ["data" if points.is_data(point) else "training" for point in chosen],
        }
    )
    predicted = task.frame(view.predictions, values[points.with_prediction], epsilon)
    predicted = predicted.set_axis(points.with_prediction).reindex(list(chosen)).reset_index(drop=True)
    # Columns that points without a prediction also have.
    if isinstance(task, NumberTask):
        numbers = [name for name in predicted.columns if name == "number" or name.startswith("number_")]
        predicted[numbers] = values[list(chosen)]
    else:
        predicted[predicted.columns[0]] = [task.named(values[point]) for point in chosen]
    return as_csv(pd.concat([frame, predicted], axis=1), harmless=True)


def _row_of(explorer: Explorer, point: int) -> int | None:
    """The position of a point among those with predictions."""
    points = explorer.points.with_prediction
    row = int(np.searchsorted(points, point))
    return row if row < len(points) and int(points[row]) == point else None


def _record(explorer: Explorer, point: int) -> Any:
    if explorer.points.is_data(point):
        return explorer.clf.encoder_.records(explorer.points.row(point)).iloc[0].to_dict()
    return explorer.clf.examples_.get(explorer.points.references.ids[point]) or None


def column_names(explorer: Explorer) -> list[Any]:
    """The columns of the data by which points can be coloured."""
    encoder = explorer.clf.encoder_
    if explorer.private or not isinstance(encoder, TabularEncoder):
        return []
    return [plain(column.name) for column in encoder.columns]


def column_values(explorer: Explorer, place: int) -> dict[str, Any]:
    """A column of the data for all points: numbers, or names and a code for each point; None where unknown."""
    explorer.require_open("it shows no column of the data")
    names = column_names(explorer)
    if not 0 <= place < len(names):
        raise InputError(f"the column must be one of the {len(names)} of the data, counted from 0; got {place}")
    column, legend = explorer.clf.encoder_.columns[place], explorer.clf.legend_
    values = column_of(explorer, column.name)
    coded = all(legend.meaning(column.name, value) for value in values.dropna().unique())
    if column.kind == "datetime":
        return _dates(values)
    numbers = pd.to_numeric(values, errors="coerce") if column.kind == "numeric" else None
    if numbers is not None and numbers.notna().any() and not coded:
        return {"numbers": [None if not np.isfinite(v) else round(float(v), 9) for v in numbers.astype(float)]}
    texts = values.map(lambda value: None if pd.isna(value) else legend.value(column.name, value, 40)).astype(object)
    common = texts.value_counts().index[: _NAMED + 1].tolist()
    shown = sorted(common if len(common) <= _NAMED else common[:_NAMED])
    codes = {name: code for code, name in enumerate(shown)}
    rest = len(shown) if texts.nunique() > len(shown) else None
    names = [*shown, *([] if rest is None else [_OTHERS])]
    return {"names": names, "codes": [None if pd.isna(text) else codes.get(text, rest) for text in texts]}


def column_of(explorer: Explorer, name: Any) -> pd.Series[Any]:
    """The values of all points, training examples first."""
    points, clf = explorer.points, explorer.clf
    records = clf.examples_.frame()
    ids = pd.Index(list(points.references.ids), tupleize_cols=False)
    voters = pd.Series(None, index=ids, dtype=object) if records is None else records[name].reindex(ids)
    parts = [voters.astype(object)]
    if points.n_data:
        parts.append(clf.encoder_.records(explorer.examples.X)[name].astype(object))
    joined: pd.Series[Any] = pd.concat(parts, ignore_index=True)
    return joined


def _dates(values: pd.Series[Any]) -> dict[str, Any]:
    """Dates as days, and the first and the last in words."""
    dates = pd.to_datetime(values, errors="coerce", utc=True, format="mixed")
    days = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    known = dates.dropna()
    ends = [] if known.empty else [f"{known.min():%Y-%m-%d}", f"{known.max():%Y-%m-%d}"]
    return {"numbers": [None if pd.isna(day) else round(float(day), 6) for day in days], "ends": ends}
