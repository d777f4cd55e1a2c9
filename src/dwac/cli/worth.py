"""`dwac worth`: which training examples help the predictions of rows whose target is known, and which harm them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dwac.cli import options
from dwac.cli.output import print_json, write_table
from dwac.cli.rows import exit_if_unreadable, in_training, observe_rows, read_rows
from dwac.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from dwac.estimator.observed import Observed
    from dwac.reading import Estimator, Rows

_UTILITIES = {
    "probability": "probability of the true label, in percentage points",
    "log_probability": "log-probability of the true label, in hundredths",
    "accuracy": "accuracy, shared among votes by a rule, in percentage points",
}
_COLUMNS = 4  # of a record, on a terminal
_COUNTS = ("examples", "size")
_OF = {
    "numbers": "reduction of the squared error, in hundredths of the target's variance",
    "labels": "probability of the true value of a label, in percentage points",
}


@options.with_bundles
def worth(
    model: options.Model,
    data: options.Data,
    output: options.Table = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Measure groups of training examples, such as all rows of one person or clinic, by a column of the "
            "training data that the model holds.",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="|".join(options.METHODS),
            callback=options.one_of(options.METHODS),
            help="shapley: a fair share of what all voters add; banzhaf: the average over all sets of other voters; "
            "leave_one_out: what removing this voter alone would change.",
        ),
    ] = "shapley",
    utility: Annotated[
        str,
        typer.Option(
            metavar="|".join(options.UTILITIES),
            callback=options.one_of(options.UTILITIES),
            help="For classes: the quantity of the true label that counts. With accuracy, worth follows a rule and is "
            "not a Shapley value (except with leave_one_out).",
        ),
    ] = "probability",
    top: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many of the most and the least helpful to show.")
    ] = 10,
    target: options.Target = None,
    ids: options.Id = None,
    unlabelled: options.Unlabelled = "refuse",
    json: options.Json = False,
    *,
    reading: options.ReadingOptions,
    tables: options.TableOptions,
) -> None:
    """Measure what each training example is worth: which examples help predictions, and which harm them.

    DATA holds rows that were not used in training, with their target. The worth of an example is how much its vote
    raises the probability of the true label, averaged over these rows and over all orders in which voters can be added
    (its Shapley value, exact up to a stated error). All examples together are worth what the votes add to the shares of
    the classes. "if removed" is what would change if only this example were removed.

    Examples are compared within their class: "relative" is the number of standard deviations above the mean of the
    class (with several labels: of examples with the same labels; with numbers: of a fifth of the examples).

    This is the worth of a vote. It does not include what the network learned from the example. Duplicates share their
    worth.

    Examples:

    dwac worth model/ test.csv

    dwac worth model/ test.csv -o worth.csv

    dwac worth model/ test.csv --by clinic     # whose data carries the model
    """
    options.check_rows(model, tables.form, data)
    options.check_table(output)
    loaded = reading.load(model)
    rows = read_rows(data, loaded, reading, tables, labelled=True, target=target, unlabelled=unlabelled, ids=ids)
    judges, observed, bad = observe_rows(loaded.clf, rows, strict=reading.strict, fate="are left out")
    table = _measure(loaded.clf, judges, observed, method, utility, by)
    if output is not None:
        write_table(output, table.reset_index())
    if json:
        print_json({**table.attrs, "worth": table.reset_index().to_dict("records")})
    elif output is None:
        show(table, loaded.clf, top, by, Console())
    exit_if_unreadable(bad)


def _measure(clf: Estimator, rows: Rows, observed: Observed, method: str, utility: str, by: str | None) -> pd.DataFrame:
    """The examples most helpful within their class first, or groups by worth; and what removing each would change.

    observed: what the model sees of the rows.
    """
    from dwac.estimator.worth import kept_column

    kind = clf.target_.kind
    if kind in ("numbers", "labels") and utility != "probability":
        raise InputError(f"--utility is for classes; this model predicts {kind}; leave it out")
    settings: dict[str, Any] = {} if kind == "numbers" else {"utility": utility}
    if by is not None:
        settings["groups"] = kept_column(clf, by, "--by")
    # Training rows do not vote on themselves. Ids alone do not identify them: any file may number its rows from 0.
    if in_training(clf, rows, observed.h.cpu().numpy()).any():
        settings["ids"] = rows.ids
    table = clf.worth(observed, rows.y, method=method, **settings)
    alone = table if method == "leave_one_out" else clf.worth(observed, rows.y, method="leave_one_out", **settings)
    table.insert(3, "if_removed", -alone["worth"])
    attrs = table.attrs
    table = table.sort_values("relative" if by is None else "worth", ascending=False, kind="stable")
    table.attrs = attrs
    return table


def show(table: pd.DataFrame, clf: Estimator, top: int, by: str | None, console: Console) -> None:
    """Print the most and the least helpful: examples are compared within their class."""
    from dwac.report.worth import points, ranking

    what = _OF.get(clf.target_.kind) or _UTILITIES[table.attrs["utility"]]
    many = f"{len(table):,} {'training examples' if by is None else 'groups'}"
    total = table["worth"].sum()
    together = f", together {points(total)(total)}" if table.attrs["method"] == "shapley" else ""
    harming, judges = int((table["worth"] < 0).sum()), table.attrs["queries"]
    lines = [
        f"{many}, judged by {judges:,} row{'s' * (judges != 1)}: {what}{together}.",
        f"{harming:,} of them harm more than they help." if harming else "None of them harms more than it helps.",
    ]
    lines += [ranking(clf.target_.kind)] if by is None else []
    for line in lines:
        console.print(line, highlight=False, markup=False)
    parts = {"all, the most helpful first": table}
    if len(table) > 2 * top:
        parts = {"most helpful": table.head(top), "least helpful": table.tail(top).iloc[::-1]}
    for title, part in parts.items():
        console.print(_table(part, clf, title, by))
    console.print(
        "-o FILE.csv writes all; what the network learned from an example is not part of its worth", style="dim"
    )
    if harming and by is None:
        console.print("dwac silence removes votes and keeps calibration; dwac forget does not keep it", style="dim")


def _table(part: pd.DataFrame, clf: Estimator, title: str, by: str | None) -> Table:
    from dwac.drawing.records import shorten
    from dwac.report.worth import FIGURES, points

    extra = [name for name in part.columns if name not in FIGURES]
    shown = Table(title=title, title_justify="left")
    for name in [by or "id", *extra]:
        shown.add_column(str(name), overflow="fold", justify="right" if name in _COUNTS else "left")
    for name in ["worth", "± 2 s.e.", *(["relative"] if by is None else []), "if removed"]:
        shown.add_column(name, justify="right", no_wrap=True)
    if by is None and not clf.private_:
        shown.add_column("example", overflow="fold")
    say, say_removed = points(part["worth"]), points(part["if_removed"])
    for player, row in part.iterrows():
        numbers = [say(row["worth"]), say(2 * row["standard_error"]).lstrip("+")]
        numbers += [f"{row['relative']:+.1f}"] if by is None else []
        numbers.append(say_removed(row["if_removed"]))
        about = [_example(clf, player)] if by is None else []
        shown.add_row(*map(Text, [shorten(player), *(_cell(each, row[each]) for each in extra), *numbers, *about]))
    return shown


def _cell(name: str, value: Any) -> str:
    """A count, a label, several labels or a number."""
    from dwac.drawing.records import shorten

    if name in _COUNTS:
        return f"{value:,.0f}"
    return (", ".join(map(shorten, value)) or "no label") if isinstance(value, tuple) else shorten(value)


def _example(clf: Estimator, name: Any) -> str:
    from dwac._checks import listed
    from dwac.drawing.records import kind_of, shorten

    record = clf.examples_.get(name) or {}
    if kind_of(record) == "image":
        return shorten(record.get("path", record["image"]))
    cells = [f"{key} {shorten(value, 40)}" if len(record) > 1 else shorten(value) for key, value in record.items()]
    return listed(cells, _COLUMNS, str) or "–"
