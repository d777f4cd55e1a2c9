"""Some points of the map: what is at one, a list of several, their table, and a column of the data for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dwac.drawing.records import plain, written
from dwac.encoders import TabularEncoder
from dwac.errors import InputError
from dwac.estimator.evaluation import as_csv
from dwac.server.explorer.grouped import line_of
from dwac.server.explorer.state import Explorer
from dwac.server.explorer.tasks.numbers import NumberTask

LISTED = 60  # examples of a selection listed at once
_NAMED = 19  # values of a column that have a colour; the rest are "others"
_OTHERS = "others"


def brief(explorer: Explorer, session: str, point: int) -> dict[str, Any]:
    """An example in short: name, label, prediction if it has one, and its record as a picture or a line."""
    view, points, task = explorer.view(session), explorer.points, explorer.task
    data = points.is_data(point)
    record = None if explorer.private else _record(explorer, point)
    row = _row_of(explorer, point)
    return {
        "point": point,
        "id": points.name(point),
        "part": "data" if data else "training",
        "true": task.named(points.values(view)[point]),
        "predicted": None if row is None else task.told(view.predictions, row),
        "record": None if record is None else plain({k: v for k, v in record.items() if isinstance(v, bytes)}),
        "text": line_of(record),
    }


def listed(explorer: Explorer, session: str, chosen: Sequence[int], start: int) -> dict[str, Any]:
    """A page of the examples of a selection."""
    for point in chosen:
        explorer.points.is_data(point)  # an error if there is no such point
    return {
        "n": len(chosen),
        "start": start,
        "examples": [brief(explorer, session, point) for point in chosen[start : start + LISTED]],
    }


def table(explorer: Explorer, session: str, chosen: Sequence[int], epsilon: float) -> str:
    """A selection as CSV: id, where it comes from, its label, and its prediction if it has one."""
    view, points, task = explorer.view(session), explorer.points, explorer.task
    values = points.values(view)
    frame = pd.DataFrame(
        {
            "id": [points.name(point) for point in chosen],
            "part": ["data" if points.is_data(point) else "training" for point in chosen],
        }
    )
    rows = [_row_of(explorer, point) for point in chosen]
    predicted = task.frame(view.predictions, values[points.asked], epsilon)
    predicted = predicted.reindex([-1 if row is None else row for row in rows]).reset_index(drop=True)
    # What those without a prediction have, too.
    if isinstance(task, NumberTask):
        numbers = [name for name in predicted.columns if name == "number" or name.startswith("number_")]
        predicted[numbers] = values[list(chosen)]
    else:
        predicted[predicted.columns[0]] = [task.named(values[point]) for point in chosen]
    return as_csv(pd.concat([frame, predicted], axis=1), harmless=True)


def _row_of(explorer: Explorer, point: int) -> int | None:
    """The place of a point among those with predictions."""
    asked = explorer.points.asked
    place = int(np.searchsorted(asked, point))
    return place if place < len(asked) and int(asked[place]) == point else None


def _record(explorer: Explorer, point: int) -> Any:
    if explorer.points.is_data(point):
        row = explorer.examples.row(point - explorer.points.n_training)
        return explorer.clf.encoder_.records(row).iloc[0].to_dict()
    return explorer.clf.examples_.get(explorer.points.references.ids[point]) or None


def column_names(explorer: Explorer) -> list[Any]:
    """The columns of the data by which points can be coloured."""
    encoder = explorer.clf.encoder_
    if explorer.private or not isinstance(encoder, TabularEncoder):
        return []
    return [plain(column.name) for column in encoder.columns]


def values(explorer: Explorer, place: int) -> dict[str, Any]:
    """A column of the data for all points: numbers, or names and a code for each point; None where unknown."""
    explorer.require_open("it shows no column of the data")
    names = column_names(explorer)
    if not 0 <= place < len(names):
        raise InputError(f"the column must be one of the {len(names)} of the data, counted from 0; got {place}")
    column = explorer.clf.encoder_.columns[place]
    held = _column(explorer, column.name)
    if column.kind == "datetime":
        return _dates(held)
    numbers = pd.to_numeric(held, errors="coerce") if column.kind == "numeric" else None
    if numbers is not None and numbers.notna().any():
        return {"numbers": [None if not np.isfinite(v) else round(float(v), 9) for v in numbers.astype(float)]}
    texts = held.map(lambda value: None if pd.isna(value) else written(value, 40)).astype(object)
    common = texts.value_counts().index[: _NAMED + 1].tolist()
    shown = sorted(common if len(common) <= _NAMED else common[:_NAMED])
    codes = {name: code for code, name in enumerate(shown)}
    rest = len(shown) if texts.nunique() > len(shown) else None
    found = [None if pd.isna(text) else codes.get(text, rest) for text in texts]
    return {"names": [*shown, *([] if rest is None else [_OTHERS])], "codes": found}


def _column(explorer: Explorer, name: Any) -> pd.Series[Any]:
    """The values of all points, training examples first."""
    points, clf = explorer.points, explorer.clf
    held = clf.examples_.frame()
    ids = pd.Index(list(points.references.ids), tupleize_cols=False)
    voters = pd.Series(None, index=ids, dtype=object) if held is None else held[name].reindex(ids)
    parts = [voters.astype(object)]
    if points.n_data:
        parts.append(clf.encoder_.records(explorer.examples.X)[name].astype(object))
    joined: pd.Series[Any] = pd.concat(parts, ignore_index=True)
    return joined


def _dates(held: pd.Series[Any]) -> dict[str, Any]:
    """Dates as days, and the first and the last in words."""
    dates = pd.to_datetime(held, errors="coerce", utc=True, format="mixed")
    days = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    known = dates.dropna()
    ends = [] if known.empty else [f"{known.min():%Y-%m-%d}", f"{known.max():%Y-%m-%d}"]
    return {"numbers": [None if pd.isna(day) else round(float(day), 6) for day in days], "ends": ends}
