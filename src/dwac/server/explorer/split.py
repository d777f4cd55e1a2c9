"""The loaded examples divided by a column: the group of each point, and the measures of each group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dwac.encoders import TabularEncoder
from dwac.errors import InputError
from dwac.server.answers import silent
from dwac.server.explorer.lists import column_of
from dwac.server.explorer.state import Explorer
from dwac.tasks import LABELS, NUMBERS
from dwac.tasks.by_group import compare_groups, read_groups

_FEW = 20  # values of a column that divides the examples; numbers and dates are cut
_SHOWN = ("accuracy", "every label right", "absolute error", "coverage", "missed share", "set size", "width")


def division_names(explorer: Explorer) -> list[str]:
    """The columns that divide the examples: those given for it, and those of the data with few values."""
    if explorer.private:
        return []
    return [*_given(explorer), *(explorer.clf.legend_.head(column.name) for column in _columns(explorer))]


def first_division(explorer: Explorer) -> int | None:
    """The place of the column that divides the examples when the page opens: the first one given for it."""
    return 0 if not explorer.private and _given(explorer) else None


def _given(explorer: Explorer) -> list[str]:
    return [] if explorer.groups is None else [str(name) for name in explorer.groups]


def _columns(explorer: Explorer) -> list[Any]:
    encoder = explorer.clf.encoder_
    if not isinstance(encoder, TabularEncoder):
        return []
    return [
        column
        for column in encoder.columns
        if column.kind in ("numeric", "datetime") or (column.kind != "empty" and column.n_indices <= _FEW)
    ]


def split(explorer: Explorer, session: str, place: int, epsilon: float, label: int) -> dict[str, Any]:
    """The groups by one of `division_names`: names, a code per point, and the measures of the loaded examples.

    label: which of several numbers is measured.
    """
    explorer.require_open("it shows no groups of examples")
    names = division_names(explorer)
    if not 0 <= place < len(names):
        raise InputError(f"the column must be one of the {len(names)} that divide the examples, from 0; got {place}")
    groups, view, points, task = _groups(explorer, place), explorer.view(session), explorer.points, explorer.task
    truth = points.values(view)[points.with_prediction]
    codes = groups.codes[points.with_prediction]
    known = np.flatnonzero(task.known(truth) & (codes >= 0))
    rows: list[Any] = []
    measures = []
    if len(known):
        part, true = view.predictions.part(known), truth[known]
        with silent():
            every = part.measures(true > 0 if task.clf.target_.kind == LABELS else true, epsilon)
        of = ""
        if task.clf.target_.kind == NUMBERS and not task.clf.target_.single:
            of = f" of {task.subjects[task.subject(np.zeros(len(task.subjects)), label)]}"
        measures = [each for each in every if each.name.startswith(_SHOWN) and each.name.endswith(of)]
        frame = pd.DataFrame({names[place]: groups[points.with_prediction[known]]})
        rows = compare_groups(measures, frame).cells(names[place])
    return {
        "name": names[place],
        "names": groups.categories.tolist(),
        "codes": groups.codes.tolist(),
        "measures": [each.name for each in measures],
        "rows": rows,
        "counts": np.bincount(codes[codes >= 0], minlength=len(groups.categories)).tolist(),
    }


def _groups(explorer: Explorer, place: int) -> Any:
    """The group of each point; training examples have none if it was given for the rows of data."""
    given, points = _given(explorer), explorer.points
    if place < len(given):
        assert explorer.groups is not None
        known = explorer.groups[given[place]].array
        codes = np.concatenate([np.full(points.n_training, -1), known.codes])
        return pd.Categorical.from_codes(codes, known.categories)
    column = _columns(explorer)[place - len(given)]
    values = {column.name: column_of(explorer, column.name).infer_objects()}
    return read_groups(values, None, len(points), explorer.clf.legend_).iloc[:, 0].array
