"""`dwac worth`: which training examples help the predictions of rows whose target is known, and which harm them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dwac import worth as methods
from dwac.cli import unreadable
from dwac.cli.options import (
    DataArgument,
    DayFirstOption,
    DecimalOption,
    DeviceOption,
    EncodingOption,
    FormatOption,
    IdOption,
    JsonOption,
    ModelArgument,
    SeparatorOption,
    SheetOption,
    StrictOption,
    TargetOption,
    TextOption,
    UnlabelledOption,
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

UTILITIES = {
    "probability": "probability of the true label, in percentage points",
    "log_probability": "log-probability of the true label, in hundredths",
    "accuracy": "accuracy, in percentage points",
}
_COLUMNS = 4  # of a record, on a terminal
_COUNTS = ("examples", "size")
_OF = {
    NUMBERS: "squared error taken off, in hundredths of the target's variance",
    LABELS: "probability that a label is as it is, in percentage points",
}


def _one_of(names: tuple[str, ...]) -> Any:
    def check(value: str) -> str:
        if value not in names:
            raise typer.BadParameter(f"must be {', '.join(names[:-1])} or {names[-1]}; got {value!r}")
        return value

    return check


def worth(
    model: ModelArgument,
    data: DataArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write all to this .csv, .tsv, .jsonl or .parquet file."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="What groups of training examples are worth, such as all rows of one person or clinic: a column of "
            "the training data that the model holds.",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="|".join(methods.METHODS),
            callback=_one_of(tuple(methods.METHODS)),
            help="shapley: a fair share of what all add; banzhaf: the average over all sets of others; "
            "leave_one_out: what removing this one alone would take away.",
        ),
    ] = "shapley",
    utility: Annotated[
        str,
        typer.Option(
            metavar="|".join(UTILITIES),
            callback=_one_of(tuple(UTILITIES)),
            help="What counts, of the true label; for classes.",
        ),
    ] = "probability",
    top: Annotated[int, typer.Option(min=1, metavar="N", help="How many to show of each kind.")] = 10,
    target: TargetOption = None,
    text: TextOption = None,
    ids: IdOption = None,
    device: DeviceOption = "auto",
    form: FormatOption = None,
    encoding: EncodingOption = "utf-8",
    unlabelled: UnlabelledOption = "refuse",
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    day_first: DayFirstOption = None,
    sheet: SheetOption = None,
    json: JsonOption = False,
    strict: StrictOption = False,
) -> None:
    """Say what each training example is worth: which of them help predictions, and which harm.

    DATA holds rows that were not used in training, with their target. An example's worth is by how much its vote raises
    the probability of the true label, averaged over these rows and over all orders in which voters may come (its
    Shapley value, exact up to a stated error). All together are worth what the votes add to the shares of the classes.
    "if removed" is what would change without this one example, the others staying.

    It is the worth of a vote. What the network learned from the example is not in it. Duplicates share their worth.

    Examples:

    dwac worth model/ test.csv

    dwac worth model/ test.csv -o worth.csv

    dwac worth model/ test.csv --by clinic     # whose data carries the model
    """
    form_written = None if output is None else form_of(output)
    loaded = load(model, device=device)
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
    """The most helpful first, and what removing each would change."""
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
    table = table.sort_values("worth", ascending=False, kind="stable")
    table.attrs = attrs
    return table


def show(table: pd.DataFrame, clf: Estimator, top: int, by: str | None, console: Console) -> None:
    """Print who helps most and who harms most."""
    what = _OF.get(clf.target_.kind) or UTILITIES[table.attrs["utility"]]
    many = f"{len(table):,} {'training examples' if by is None else 'groups'}"
    together = f", together {_points(table['worth'].sum())}" if table.attrs["method"] == "shapley" else ""
    harming, judges = int((table["worth"] < 0).sum()), table.attrs["queries"]
    for line in (
        f"{many}, judged by {judges:,} row{'s' * (judges != 1)}: {what}{together}.",
        f"{harming:,} of them harm more than they help." if harming else "None of them harms more than it helps.",
    ):
        console.print(line, highlight=False, markup=False)
    parts = {"all, the most helpful first": table}
    if len(table) > 2 * top:
        parts = {"help most": table.head(top), "harm most" if harming else "help least": table.tail(top).iloc[::-1]}
    for title, part in parts.items():
        console.print(_table(part, clf, title, by))
    console.print("-o FILE.csv writes all; the network's own learning from an example is not in its worth", style="dim")


def _table(part: pd.DataFrame, clf: Estimator, title: str, by: str | None) -> Table:
    extra = [name for name in part.columns if name not in ("worth", "deviation", "standard_error", "if_removed")]
    shown = Table(title=title, title_justify="left")
    for name in [by or "id", *extra]:
        shown.add_column(str(name), overflow="fold", justify="right" if name in _COUNTS else "left")
    for name in ["worth", "± 2 s.e.", "if removed"]:
        shown.add_column(name, justify="right", no_wrap=True)
    if by is None and not clf.private_:
        shown.add_column("example", overflow="fold")
    digits = _digits(part["worth"]), _digits(part["if_removed"])
    for player, row in part.iterrows():
        numbers = [_points(row["worth"], digits[0]), _points(2 * row["standard_error"], digits[0]).lstrip("+")]
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


def _digits(values: pd.Series[Any]) -> int:
    """Behind the point, in hundredths: so many that the largest has three."""
    largest = 100 * float(values.abs().max())
    return max(0, 2 - math.floor(math.log10(largest))) if largest > 0 else 2


def _points(value: float, digits: int | None = None) -> str:
    """A worth in hundredths, with its sign; a dash if it is not known, as the error of a single row's judgement.

    >>> _points(0.01234), _points(-0.5), _points(0.0), _points(0.0012, 2), _points(0.0, 2), _points(math.nan)
    ('+1.23', '-50', '0', '+0.12', '0', '–')
    """
    if math.isnan(value):
        return "–"
    shown = f"{100 * value:+.3g}" if digits is None else f"{100 * value:+.{digits}f}"
    return shown if float(shown) else "0"
