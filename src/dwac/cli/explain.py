"""`dwac explain`: which training examples voted on a row, with what share, and how they differ from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dwac.cli import options
from dwac.cli.output import number, print_json, print_written, progress_printed, write
from dwac.cli.rows import (
    exit_if_unreadable,
    in_parts,
    read_rows,
    reasons_by_row,
    report_unreadable,
    rows_located,
)
from dwac.errors import EPSILON, IdError, InputError
from dwac.languages import label_name, numeral, say, speaking

if TYPE_CHECKING:
    from dwac.explain import Explanation, Neighbor
    from dwac.reading import Estimator, Rows

AT_ONCE = 200  # rows explained at once
_DIFFERENCES = 6  # shown per cell
_FEWER = 4  # of them, if the group is also described
_LETTERS = 24  # shown per value in such a cell


@options.with_bundles
def explain(
    model: options.Model,
    data: options.Data,
    row: Annotated[
        list[int] | None,
        typer.Option("--row", "-r", help="Row number, counted from 0; may be repeated. Default: all rows."),
    ] = None,
    name: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Id of a row; may be repeated.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of training examples, or groups, to show per row.")] = 5,
    private: options.Private = False,
    page: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML page instead.")] = None,
    epsilon: options.Epsilon = EPSILON,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="LABEL",
            help="Also say what decides against this label, a range of numbers LOW:HIGH, or a training example, by id.",
        ),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(
            "--example",
            metavar="ID",
            help="Also say what decides against this training example, even if a label has the same name.",
        ),
    ] = None,
    recourse: Annotated[
        str | None,
        typer.Option(
            "--recourse",
            metavar="LABEL",
            help="Also say which smallest changes would give this label, or a number in the range LOW:HIGH.",
        ),
    ] = None,
    frozen: Annotated[
        list[str] | None,
        typer.Option("--frozen", metavar="COLUMN", help="A column that --recourse must not change; may be repeated."),
    ] = None,
    tied: Annotated[
        list[str] | None,
        typer.Option(
            "--tied",
            metavar="COLUMN,COLUMN",
            help="Columns that move together in --against, --example and --recourse; may be repeated.",
        ),
    ] = None,
    least: Annotated[
        bool,
        typer.Option(
            "--least", help="Let --recourse change numbers and dates only as far towards the other example as needed."
        ),
    ] = False,
    ids: options.IdColumn = None,
    unknown: options.Unknown = None,
    language: options.Language = None,
    json: options.Json = False,
    *,
    reading: options.ReadingOptions,
    tables: options.TableOptions,
) -> None:
    """Explain predictions by the training examples with the largest votes, and show how few of them decide.

    If a handful of examples does not explain a prediction, it shows groups of similar examples instead: what is special
    about each group, its exact share of the vote, and the member that is most similar to the row.

    Rows that cannot be read are marked as such; the exit code is then 3.

    Examples:

    dwac explain model/ new.csv --row 3

    dwac explain model/ new.csv --id ann -k 10 --html why.html

    dwac explain model/ new.csv --row 3 --against good --recourse good --frozen age --tied amount,price

    echo "a fine film" | dwac explain model/ - --json
    """
    options.check_rows(model, tables.form, data)
    why = Why(against, example, recourse, frozen or [], options.tied_columns(tied), least)
    why.check()
    loaded = reading.load(model, unknown)
    rows = choose_rows(read_rows(data, loaded, reading, tables, ids=ids), row, name)
    with progress_printed():
        explanations = _explain_rows(loaded.clf, rows, k, private=True if private else None, epsilon=epsilon)
        more = _answer_why(loaded.clf, rows, explanations, why)
    bad = reasons_by_row([getattr(explanation, "unreadable", None) for explanation in explanations])
    report_unreadable(bad, rows, strict=reading.strict, fate="have no explanation")
    with speaking(language):
        _write(data, rows, explanations, more, page, json=json)
    exit_if_unreadable(bad)


def _write(
    data: str,
    rows: Rows,
    explanations: list[Any],
    more: list[dict[str, Any]],
    page: Path | None,
    *,
    json: bool,
) -> None:
    """Write explanations to a page, as JSON, or to the terminal."""
    if page is not None:
        from dwac.drawing.pages import render

        named = [(name, [e, *extra.values()]) for name, e, extra in zip(rows.ids, explanations, more, strict=True)]
        title = say("Why? {data}", data=data)
        write(page, render("explain/templates/file.html", title=title, explanations=named).encode())
        print_written(f"{page}")
    elif json:
        for explanation, extra in zip(explanations, more, strict=True):
            print_json(explanation.to_dict() | {name: each.to_dict() for name, each in extra.items()})
    else:
        console = Console()
        for place, (explanation, extra) in enumerate(zip(explanations, more, strict=True)):
            show(explanation, f"{rows.ids[place]}  ({rows.where(place)})", console)
            for each in extra.values():
                console.print(f"{each.to_text(console.width)}\n", highlight=False, markup=False, soft_wrap=True)


def _explain_rows(clf: Estimator, rows: Rows, k: int, **settings: Any) -> list[Any]:
    """An explanation per row; many rows are explained in parts, to show progress."""
    from dwac.estimator.readable import Partial

    def explain_part(part: Rows) -> list[Any]:
        with rows_located(part):
            # A row that cannot be read does not stop the others.
            return list(clf.explain(Partial(part.X, {}), k, **settings))

    return [explanation for part in in_parts(rows, AT_ONCE, "explaining", explain_part) for explanation in part]


class Why(NamedTuple):
    """The options on reasons and recourse."""

    against: str | None
    example: str | None
    recourse: str | None
    frozen: list[str]
    tied: list[list[str]]
    least: bool

    def check(self) -> None:
        """Raise an error if an option has nothing to act on."""
        for option, value in (("--frozen", self.frozen), ("--least", self.least)):
            if value and self.recourse is None:
                raise InputError(f"{option} needs --recourse LABEL, which it limits")
        if self.tied and self.against is self.example is self.recourse is None:
            raise InputError("--tied needs --against LABEL, --example ID or --recourse LABEL")


def _answer_why(clf: Estimator, rows: Rows, explanations: list[Any], why: Why) -> list[dict[str, Any]]:
    """For each row, the reasons and the recourse that the options ask for."""
    from dwac.estimator.readable import Partial

    more: list[dict[str, Any]] = [{} for _ in explanations]
    if why.against is not None or why.example is not None:
        other = None if why.against is None else read_outcome(clf, why.against)
        example = options.name_in(clf.references_.ids, why.example)
        for explanation, extra in zip(explanations, more, strict=True):
            if isinstance(explanation, Mapping):
                raise InputError(
                    "--against and --example are for one label per row; with several labels, leave them out"
                )
            if not explanation.unreadable and str(getattr(explanation, "label", None)) != why.against:
                extra["reasons"] = explanation.reasons(other, tied=why.tied, example=example)
    if why.recourse is not None:
        private = explanations[0].private if explanations else None
        limits: dict[str, Any] = {"frozen": why.frozen, "tied": why.tied, "least": why.least}
        wanted = read_outcome(clf, why.recourse)
        recourses = clf.recourse(Partial(rows.X, {}), wanted, private=private, **limits)
        for extra, each in zip(more, recourses, strict=True):
            extra["recourse"] = each
    return more


def read_outcome(clf: Estimator, text: str) -> Any:
    """A label of the model, a range of numbers or an id, from its text."""
    from dwac.tasks.base import NUMBERS

    target = clf.target_
    low, colon, high = text.partition(":")
    if target.kind == NUMBERS and colon:
        try:
            return float(low or "-inf"), float(high or "inf")
        except ValueError:
            pass
    return options.name_in([*(target.plain_names if target.kind != NUMBERS else ()), *clf.references_.ids], text)


def choose_rows(rows: Rows, numbers: list[int] | None, names: list[str] | None) -> Rows:
    """The rows with these numbers and ids; all rows if none are named."""
    import numpy as np

    if not numbers and not names:
        return rows
    for wanted in numbers or []:
        if not 0 <= wanted < len(rows):
            raise InputError(
                f"--row must be between 0 and {len(rows) - 1}, as the data has {len(rows):,} rows; got {wanted}"
            )
    places: dict[str, list[int]] = {}
    for place, name in enumerate(rows.ids):
        places.setdefault(str(name), []).append(place)
    for name in names or []:
        if name not in places:
            raise IdError(f"no row has the id {name!r}; the first ids are {', '.join(list(places)[:5])}")
    chosen = [*(numbers or []), *(place for name in names or [] for place in places[name])]
    return rows.take(np.array(chosen, dtype=np.int64))


def show(explanation: Any, title: str, console: Console) -> None:
    """Print one explanation: sentences, then the voters and how they differ; with several labels, for each it has."""
    console.print(Text(title, style="bold"))
    if isinstance(explanation, Mapping):
        _show_labels(explanation, console)
    else:
        _show_one(explanation, console)
    console.print()


def _show_labels(explanations: Any, console: Console) -> None:
    for sentence in explanations.sentences():
        console.print(sentence, highlight=False, markup=False)
    for label in explanations.labels:
        console.print(Text(say("votes on {label}", label=label), style="italic"))
        console.print(explanations[label].sentences()[0], highlight=False, markup=False)
        console.print(_votes(explanations[label]))


def _show_one(explanation: Any, console: Console) -> None:
    if explanation.attention:
        most = max(weight for _, weight in explanation.attention) or 1.0
        words = ((f"{word} ", "bold" if weight > most / 2 else "") for word, weight in explanation.attention)
        console.print(Text.assemble(*words))
        console.print(Text(say("bold: where the network looked, which is not what decided"), style="dim"))
    for sentence in explanation.lead() or explanation.sentences():
        console.print(sentence, highlight=False, markup=False)
    if not explanation.unreadable:
        console.print(_votes(explanation))
    for sentence in explanation.details():
        console.print(sentence, highlight=False, markup=False)


def _votes(explanation: Any) -> Table:
    """The voters: one by one, by group, or, for a private prediction of a number, by range."""
    from dwac.explain import Explanation, privacy
    from dwac.explain.rendering import OWN_HEADS

    if explanation.private and not isinstance(explanation, Explanation):
        frame = explanation.to_frame()
        table = Table(*(say(name) if name in OWN_HEADS else str(name) for name in frame.columns))
        for row in frame.itertuples(index=False, name=None):
            table.add_row(*(privacy.percent(cell) if isinstance(cell, float) else str(cell) for cell in row))
        return table
    return _neighbors(explanation) if explanation.few_suffice else _groups(explanation)


def _label(value: Any) -> str:
    """What a voter votes for, or the mean and range of a group: a label, a number, or several numbers."""
    from dwac.estimator.evaluation import amount

    if hasattr(value, "mean") and hasattr(value, "low"):
        mean, low, high = (numeral(amount(each)) for each in value)
        return mean if value.low == value.high else say("{mean} ({low} to {high})", mean=mean, low=low, high=high)
    if isinstance(value, tuple):
        return ", ".join(map(_label, value))
    return numeral(amount(value)) if isinstance(value, float) else label_name(value)


def _neighbors(explanation: Explanation) -> Table:
    """The nearest examples, one by one, and how each differs from the row."""
    from dwac.drawing.records import kind_of
    from dwac.explain import Explanation

    kind, voters = kind_of(explanation.record), explanation.neighbors
    with_records = any(voter.record is not None for voter in voters)
    represents = not explanation.private and any(voter.size > 1 for voter in voters)
    what = say("label") if isinstance(explanation, Explanation) else say("number")
    head = [what, say("share")] if explanation.private else [say("id"), what, say("share"), say("distance")]
    table = Table(*head, *([say("votes for")] if represents else []))
    if with_records:
        table.add_column(say("differs in") if kind == "table" else say("example"))
    details = _details(explanation, voters, _DIFFERENCES) if with_records else []
    for place, voter in enumerate(voters):
        size = [numeral(f"{voter.size:,}")] if represents else []
        table.add_row(*map(Text, [*_cells(voter, explanation.private), *size, *details[place : place + 1]]))
    return table


def _cells(neighbor: Neighbor, private: bool) -> list[str]:
    from dwac.explain import privacy
    from dwac.explain.rendering import percent

    if private:
        return [_label(neighbor.label), privacy.percent(neighbor.share)]
    return [str(neighbor.id), _label(neighbor.label), percent(neighbor.share), numeral(number(neighbor.distance))]


def _groups(explanation: Explanation) -> Table:
    """The heaviest groups: what sets each apart, and the member most like the row."""
    from dwac.drawing.records import kind_of
    from dwac.explain import Explanation
    from dwac.explain.rendering import percent

    what = say("label") if isinstance(explanation, Explanation) else say("mean (range)")
    table = Table(say("share"), what, say("examples"), say("group"))
    table.columns[0].justify = table.columns[2].justify = "right"
    table.columns[0].no_wrap = table.columns[2].no_wrap = True
    table.show_lines = True
    details = _details(explanation, explanation.shown, _FEWER)
    is_table = kind_of(explanation.record) == "table"
    for group, face, detail in zip(explanation.shown_groups, explanation.shown, details, strict=True):
        if face.record is None:
            face_text = say("most similar: {id}", id=face.id)
        elif is_table:
            face_text = say("most similar: {id}, which differs in {columns}", id=face.id, columns=detail)
        else:
            face_text = say("most similar: {id}: {example}", id=face.id, example=detail)
        about = Text(f"{group.compared}\n" if group.compared else "") + Text(face_text, style="dim")
        table.add_row(Text(percent(group.share)), Text(_label(group.label)), Text(numeral(f"{group.size:,}")), about)
    return table


def _details(explanation: Explanation, voters: Sequence[Neighbor], most: int) -> list[str]:
    """What to compare, per voter: the columns that differ, at most `most`, or the example itself."""
    from dwac._checks import listed
    from dwac.drawing.legend import compare
    from dwac.drawing.records import kind_of

    records = [voter.record for voter in voters]
    if kind_of(explanation.record) != "table":
        return [_brief(record) for record in records]
    columns = compare(explanation.record, records, _LETTERS, explanation.legend)
    cells = []
    for place, record in enumerate(records):
        apart = [f"{each.name} {each.value} → {each.others[place]}" for each in columns if each.differs[place]]
        cells.append("–" if record is None else listed(apart, most, str) or say("nothing"))
    return cells


def _brief(record: Any) -> str:
    from dwac.drawing.records import shorten

    if not isinstance(record, Mapping):
        return "–" if record is None else shorten(record)
    return shorten(record.get("path") or next(iter(record.values())))
