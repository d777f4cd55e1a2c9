"""`dwac worth`: which training examples help the predictions of rows whose target is known, and which harm them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dwac.cli import unreadable
from dwac.cli.options import (
    told,
)
from dwac.cli.output import form_of, packed, print_json, print_notes, write
from dwac.drawing.records import kind_of, written
from dwac.errors import InputError
from dwac.estimator.evaluation import predict
from dwac.estimator.targets import LABELS, NUMBERS
from dwac.estimator.worth import kept_column
from dwac.reading import Estimator, Rows, load, read
from dwac.report.seen import seen
from dwac.report.worth import compared

UTILITIES = {
    "probability": "probability of the true label, in percentage points",
    "log_probability": "log-probability of the true label, in hundredths",
    "accuracy": "accuracy, shared among votes by a rule, in percentage points",
}
_COLUMNS = 4  # of a record, on a terminal
_COUNTS = ("examples", "size")
_FIGURES = ("worth", "deviation", "standard_error", "if_removed", "relative")
_OF = {
    NUMBERS: "squared error taken off, in hundredths of the target's variance",
    LABELS: "probability that a label is as it is, in percentage points",
}


def worth(
    *,
    model: Path,
    data: str,
    output: Path | None,
    by: str | None,
    method: str,
    utility: str,
    top: int,
    target: list[str] | None,
    text: str | None,
    ids: str | None,
    device: str,
    expect: str | None,
    form: str | None,
    encoding: str,
    unlabelled: str,
    separator: str | None,
    decimal: str | None,
    day_first: bool | None,
    sheet: str | None,
    json: bool,
    strict: bool,
) -> None:
    """The work of `dwac worth`; for its options see `dwac.cli.commands.worth`."""
    form_written = None if output is None else form_of(output)
    loaded = load(model, device=device, expect=expect)
    reading: dict[str, Any] = {"told": told(separator, decimal, day_first), "sheet": sheet, "unlabelled": unlabelled}
    reading |= {"form": form, "encoding": encoding}
    rows = read(data, like=loaded, target=target, text=text, ids=ids, labelled=True, **reading)
    print_notes(rows.notes)
    with unreadable.located(rows):
        bad = unreadable.by_row(predict(loaded.clf, rows.X).reasons)
    unreadable.report(bad, rows, strict=strict, fate="judge nobody")
    judges = unreadable.without(rows, bad)
    table = _measured(loaded.clf, judges, method, utility, by)
    if output is not None and form_written is not None:
        write(output, packed(table.reset_index(), form_written))
        Console(stderr=True).print(f"written: {output}, {len(table):,} rows", highlight=False, soft_wrap=True)
    if json:
        print_json({**table.attrs, "worth": table.reset_index().to_dict("records")})
    elif output is None:
        show(table, loaded.clf, top, by, Console())
    unreadable.end(bad)


def _measured(clf: Estimator, rows: Rows, method: str, utility: str, by: str | None) -> pd.DataFrame:
    """The most helpful of their class first, or groups by worth; and what removing each would change."""
    given: dict[str, Any] = {} if clf.target_.kind == NUMBERS else {"utility": utility}
    if clf.target_.kind in (NUMBERS, LABELS) and utility != "probability":
        raise InputError(f"--utility is for classes; this model predicts {clf.target_.kind}; leave it out")
    given |= {} if by is None else {"groups": kept_column(clf, by, "--by")}
    # Training rows do not vote on themselves. Ids alone do not tell: rows of any file may be numbered from 0.
    known = seen(clf, pd.Index(rows.ids, tupleize_cols=False), clf.embed(rows.X)).any()
    given |= {"ids": rows.ids} if known else {}
    table = clf.worth(rows.X, rows.y, method=method, **given)
    alone = table if method == "leave_one_out" else clf.worth(rows.X, rows.y, method="leave_one_out", **given)
    table.insert(3, "if_removed", -alone["worth"])
    attrs = table.attrs
    table = table.sort_values("relative" if by is None else "worth", ascending=False, kind="stable")
    table.attrs = attrs
    return table


def show(table: pd.DataFrame, clf: Estimator, top: int, by: str | None, console: Console) -> None:
    """Print who helps most and who helps least: of examples, within their class."""
    what = _OF.get(clf.target_.kind) or UTILITIES[table.attrs["utility"]]
    many = f"{len(table):,} {'training examples' if by is None else 'groups'}"
    together = f", together {_points(table['worth'].sum())}" if table.attrs["method"] == "shapley" else ""
    harming, judges = int((table["worth"] < 0).sum()), table.attrs["queries"]
    lines = [
        f"{many}, judged by {judges:,} row{'s' * (judges != 1)}: {what}{together}.",
        f"{harming:,} of them harm more than they help." if harming else "None of them harms more than it helps.",
    ]
    lines += [compared(clf.target_.kind)] if by is None else []
    for line in lines:
        console.print(line, highlight=False, markup=False)
    parts = {"all, the most helpful first": table}
    if len(table) > 2 * top:
        parts = {"most helpful": table.head(top), "least helpful": table.tail(top).iloc[::-1]}
    for title, part in parts.items():
        console.print(_table(part, clf, title, by))
    console.print("-o FILE.csv writes all; the network's own learning from an example is not in its worth", style="dim")
    if harming and by is None:
        console.print("dwac silence takes votes away and keeps calibration; dwac forget would not keep it", style="dim")


def _table(part: pd.DataFrame, clf: Estimator, title: str, by: str | None) -> Table:
    extra = [name for name in part.columns if name not in _FIGURES]
    shown = Table(title=title, title_justify="left")
    for name in [by or "id", *extra]:
        shown.add_column(str(name), overflow="fold", justify="right" if name in _COUNTS else "left")
    for name in ["worth", "± 2 s.e.", *(["relative"] if by is None else []), "if removed"]:
        shown.add_column(name, justify="right", no_wrap=True)
    if by is None and not clf.private_:
        shown.add_column("example", overflow="fold")
    digits = digits_of(part["worth"]), digits_of(part["if_removed"])
    for player, row in part.iterrows():
        numbers = [_points(row["worth"], digits[0]), _points(2 * row["standard_error"], digits[0]).lstrip("+")]
        numbers += [f"{row['relative']:+.1f}"] if by is None else []
        numbers.append(_points(row["if_removed"], digits[1]))
        about = [_example(clf, player)] if by is None else []
        shown.add_row(*map(Text, [written(player), *(_cell(each, row[each]) for each in extra), *numbers, *about]))
    return shown


def _cell(name: str, value: Any) -> str:
    """A count, a label, several labels or a number."""
    if name in _COUNTS:
        return f"{value:,.0f}"
    return (", ".join(map(written, value)) or "no label") if isinstance(value, tuple) else written(value)


def _example(clf: Estimator, name: Any) -> str:
    record = clf.examples_.get(name) or {}
    if kind_of(record) == "image":
        return written(record.get("path", record["image"]))
    cells = [f"{key} {written(value, 40)}" if len(record) > 1 else written(value) for key, value in record.items()]
    more = [f"… ({len(cells) - _COLUMNS} more)"] if len(cells) > _COLUMNS else []
    return ", ".join(cells[:_COLUMNS] + more) or "–"


def digits_of(values: pd.Series[Any]) -> int:
    """Behind the point, in hundredths: so many that the largest has three."""
    largest = 100 * float(values.abs().max())
    return max(0, 2 - math.floor(math.log10(largest))) if 0 < largest < math.inf else 2


def _points(value: float, digits: int | None = None) -> str:
    """A worth in hundredths, with its sign; a dash if it is not known, as the error of a single row's judgement.

    >>> _points(0.01234), _points(-0.5), _points(0.0), _points(0.0012, 2), _points(0.0, 2), _points(math.nan)
    ('+1.23', '-50', '0', '+0.12', '0', '–')
    """
    if math.isnan(value):
        return "–"
    shown = f"{100 * value:+.3g}" if digits is None else f"{100 * value:+.{digits}f}"
    return shown if float(shown) else "0"
