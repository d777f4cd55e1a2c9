"""The columns that decide: how much each contributes to predictions of test rows, and which way with its value."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from dwac.drawing.reasons import draw_column
from dwac.drawing.records import shorten
from dwac.errors import InputError
from dwac.estimator.evaluation import amount
from dwac.estimator.preparation import take
from dwac.report.findings import Findings
from dwac.report.parts import Plot, ReportTable, RichCell, images
from dwac.tasks import LABELS, NUMBERS

ROWS = 60  # compared, unless another number is given
_SECONDS = 30.0  # after which no further row is compared
_FEWEST = 10  # rows with which a picture is worth drawing
_WIDTH, _HEIGHT = 2.75, 2.5  # inches: three side by side, and one on a phone
_BARS, _DRAWN, _OUTCOMES = 15, 3, 3  # columns with a bar, and with a picture; labels or numbers, if there are several


class ColumnSection(NamedTuple):
    """The importance of columns for one outcome: a label, a number, or all predictions."""

    outcome: str  # to which they contribute; "" for the label of each row
    unit: str
    n: int  # test rows compared
    bars: ReportTable
    plots: list[Plot]  # of the first columns: contribution against value; none if private
    drawn: str  # their names


def column_sections(findings: Findings, n: int | None) -> list[ColumnSection]:
    """The importance of columns over n test rows, drawn at random; none if the rows are not those of a table."""
    clf, n = findings.clf, ROWS if n is None else n
    if n == 0 or clf.encoder_.kind not in ("tabular", "module"):
        return []
    outcomes = _outcomes(findings)
    rows = np.random.default_rng(0).permutation(len(findings.ids))[: ceil(n / len(outcomes))]
    try:
        return [_section(findings, rows, options) for options in outcomes]
    except InputError:  # the model holds no training examples, gives all the same label, or takes no columns
        return []


def _outcomes(findings: Findings) -> Sequence[dict[str, Any]]:
    """The arguments of `importance` for each outcome: the most frequent labels, or the first numbers."""
    target = findings.clf.target_
    if target.kind == LABELS:
        places = np.argsort(-findings.truth.sum(axis=0), kind="stable")[:_OUTCOMES]
        return [{"label": target.plain_names[place]} for place in places]
    if target.kind == NUMBERS and not target.single:
        return [{"name": name} for name in target.plain_names[:_OUTCOMES]]
    return [{}]


def _section(findings: Findings, rows: Any, options: dict[str, Any]) -> ColumnSection:
    importance = findings.clf.importance(take(findings.X, rows), private=findings.private, seconds=_SECONDS, **options)
    frame = importance.to_frame()
    frame = frame[frame["importance"] > 0]
    most = frame["importance"].max()
    bars = [
        (importance.legend.title(name), RichCell("bar", amount(float(f"{size:.2g}")), size / most))
        for name, size, _ in frame[:_BARS].itertuples(index=False)
    ]
    log_odds = importance.unit == "log-odds"
    unit = "log-odds" if log_odds else "the predicted number"
    table = ReportTable(
        f"Mean size of contributions to {unit}", ("column", "importance"), bars, left=len(frame[_BARS:])
    )
    few = findings.private or len(importance.contributions) < _FEWEST
    drawn = [] if few else frame["column"].tolist()[:_DRAWN]
    outcome = "" if importance.label is None and log_odds else next(iter(options.values()), importance.label)
    return ColumnSection(
        "" if outcome is None else shorten(outcome),
        unit,
        len(importance.contributions),
        table,
        images(*(draw_column(importance, column, _WIDTH, _HEIGHT) for column in drawn)),
        ", ".join(map(importance.legend.title, drawn)),
    )
