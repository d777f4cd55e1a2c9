"""What `dwac train` prints about the data, the training and the model, for one file or a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console
from rich.table import Table

from dwac._checks import listed
from dwac.cli import tasks
from dwac.cli.output import agreement_line, evaluation_tables, model_facts, print_notes, written_line
from dwac.encoders import TabularEncoder
from dwac.encoders.columns import Column
from dwac.estimator.evaluation import Evaluated
from dwac.reading import Estimator, Rows, Streamed, looks_like_text
from dwac.tasks import CLASSES, LABELS, ORDERED
from dwac.training.cross_fit import FOLDS

_KINDS = {"numeric": "numbers", "categorical": "categories", "boolean": "true or false", "datetime": "dates"}
_UNUSED = "not used"
_FEW = 50  # rows; measurements on fewer are uncertain
_FEW_JUDGES = 30
_MANY = 200  # categories


class ColumnKinds(NamedTuple):
    """The columns of a table by how the model treats them, why others are not used, and notes for the user."""

    kinds: dict[str, list[str]]
    unused: dict[str, str]
    notes: tuple[str, ...]


def sort_columns(columns: Sequence[Column], rows: Rows) -> ColumnKinds:
    """Sort the columns that an encoder has learned by kind; rows: those of the table."""
    kinds: dict[str, list[str]] = {}
    unused = dict(rows.aside)
    for column in columns:
        if column.used:
            kinds.setdefault(_KINDS[column.kind], []).append(str(column.name))
        elif str(column.name) not in unused:
            unused[str(column.name)] = _why_unused(column, rows.X[column.name])
    return ColumnKinds(kinds, unused, _column_notes(columns, rows))


def _why_unused(column: Column, values: pd.Series[Any]) -> str:
    if column.kind == "empty":
        return "it has no values"
    if column.kind == "categorical" and len(values.unique()) > 1:
        return "different in every row"
    if column.kind == "numeric" and len(values.unique()) > 1:
        return "a different whole number in every row, like ids"
    return "the same in every row"


def _column_notes(columns: Sequence[Column], rows: Rows) -> tuple[str, ...]:
    """Notes on columns that were not read as a user may expect: ids, mixed cells, many categories."""
    notes = []
    for column in columns:
        name, values = str(column.name), rows.X[column.name].dropna()
        if column.kind == "numeric" and not column.used and name not in rows.aside and len(values.unique()) > 1:
            notes.append(
                f"{name!r} holds a different whole number in every row, like ids, so the model does not learn from it; "
                f"--id {name} uses it as ids, --kind {name}=numbers learns from it"
            )
        if column.kind != "categorical" or not column.used:
            continue
        words = values.astype(str)
        others = words[pd.to_numeric(words.str.replace(",", "."), errors="coerce").isna()]
        if 0 < len(others) <= len(words) / 2:
            some = listed(others.unique(), 3)
            notes.append(
                f"{name!r} holds numbers and, in {len(others):,} of {len(words):,} cells, other texts ({some}), and is "
                f"read as categories; empty these cells to read it as numbers, or --ignore {name}"
            )
        elif (n := len(values.unique())) >= _MANY:
            alone = n - sum(value is not None for value in column.categories)
            rest = f", the {alone:,} rarest together as one" if alone else ""
            notes.append(
                f"{name!r} has {n:,} different values, each read as its own category{rest}; if they are ids or "
                f"texts, --ignore {name} or --text {name}; if they can be grouped, group them"
            )
    return tuple(notes)


def _kind_lines(table: ColumnKinds) -> list[tuple[str, str]]:
    """(kind, columns) for a table: all columns, and why some are not used."""
    reasons: dict[str, list[str]] = {}
    for column, why in table.unused.items():
        reasons.setdefault(why, []).append(column)
    lines = [f"{', '.join(columns)} ({why})" for why, columns in reasons.items()]
    unused = [(_UNUSED if place == 0 else "", line) for place, line in enumerate(lines)]
    return [*((kind, ", ".join(columns)) for kind, columns in table.kinds.items()), *unused]


def show_rows(rows: Rows, name: str, table: ColumnKinds, console: Console, dataset: Streamed | None = None) -> None:
    """Print how dwac reads the data. table: its columns; dataset: the one from which the rows are a sample."""
    facts = Table.grid(padding=(0, 2))
    facts.add_row("data", f"{name}: {_size(rows, dataset)}")
    if rows.columns.text is not None:
        facts.add_row("text", rows.columns.text)
    if rows.columns.targets:
        facts.add_row("target", ", ".join(rows.columns.targets))
    facts.add_row("task", tasks.describe_task(rows))
    if rows.columns.id is not None:
        facts.add_row("ids", rows.columns.id or "the first column, which has no name")
    for row in _kind_lines(table):
        facts.add_row(*row)
    what, text = tasks.describe_target(rows)
    sampled = dataset is not None and len(rows) < dataset.stream.n
    facts.add_row(what, f"{text}, in {len(rows):,} rows drawn at random" if sampled else text)
    console.print(facts, highlight=False, markup=False)
    if dataset is not None:
        return
    unique = [column for column, why in table.unused.items() if why == "different in every row"]
    for column in [*table.kinds.get("categories", []), *unique]:
        if looks_like_text(rows.X[column]):
            hint = f"note: {column!r} looks like text; --text {column} would predict from this column alone"
            console.print(hint, style="yellow", highlight=False, markup=False, soft_wrap=True)


def _size(rows: Rows, dataset: Streamed | None) -> str:
    """The amount of data, in words."""
    if dataset is None:
        return f"{len(rows):,} {({'tabular': 'rows', 'image': 'images', 'text': 'texts'})[rows.kind]}"
    files = len(getattr(dataset.stream.data, "files", [])) or 1
    return f"{dataset.stream.n:,} rows in {files:,} file{'s' * (files > 1)}, read in batches"


def show_warnings(rows: Rows) -> None:
    """Warn if there is too little data to rely on. rows: the training rows."""
    notes = []
    if len(rows) < _FEW:
        notes.append(
            f"there are only {len(rows)} rows to learn from: take every number below as a rough guess, and get more "
            "rows if you can"
        )
    if rows.task in (CLASSES, ORDERED):
        counts = pd.Series(rows.y).value_counts()
        single = [str(label) for label, n in counts.items() if n == 1]
        if single:
            many = len(single) > 1
            notes.append(
                f"{'classes' if many else 'class'} {', '.join(single)} {'have' if many else 'has'} a single row"
                f"{' each' if many else ''}: whether new rows of {'them' if many else 'it'} are recognised cannot be "
                "measured; get more, or leave it out"
            )
    elif rows.task == LABELS:
        single = [str(label) for label, n in tasks.label_counts(rows.y).items() if n == 1]
        if single:
            notes.append(f"a single row has the label {', '.join(single)}: that is too few to learn from")
    print_notes(notes)


def show_stream(clf: Estimator, console: Console) -> None:
    """Print what is exact and what is not after training in batches, and how good the model is on validation rows."""
    if hasattr(clf, "stream_"):
        for line in clf.stream_.lines:
            console.print(f"note: {line}", highlight=False, soft_wrap=True)
    history = clf.history_
    if "validation_accuracy" in history:
        best = int(history["validation_loss"].to_numpy().argmin())
        accuracy = float(history["validation_accuracy"].to_numpy()[best])
        console.print(f"accuracy on validation rows: {accuracy:.3f}", highlight=False)


def show_training(
    clf: Estimator, seconds: float, test: Evaluated | None, validation: Rows | None, output: Path, console: Console
) -> None:
    """Print how training went and how good the model is."""
    console.print(f"trained {_describe_training(clf, seconds)}", highlight=False, soft_wrap=True)
    if clf.references_.voters.represents:
        console.print(agreement_line(clf), highlight=False, soft_wrap=True)
    if (expected := tasks.expected_sets(clf, 0.05)) is not None:
        console.print(f"{tasks.name_of_sets(clf)} from {expected}", highlight=False, soft_wrap=True)
    if test is not None:
        console.print(*evaluation_tables(test, f"On {test.n:,} held-out rows"))
        if test.n < _FEW_JUDGES:
            print_notes([f"{_rows(test.n)} held out {_is(test.n)} too few to judge by; hold out more if you can"])
    elif validation is not None and len(validation):
        how_good = tasks.score(clf, validation.X, validation.y).rpartition(" ")
        console.print(
            f"{how_good[0]} on validation rows: {how_good[2]}; for a fair estimate, hold out rows with --test-size 0.2",
            highlight=False,
            soft_wrap=True,
        )
        if len(validation) < _FEW_JUDGES:
            n = len(validation)
            print_notes([f"{_rows(n)} for validation {_is(n)} too few to judge by: do not rely on that number"])
    console.print(written_line(output), highlight=False, soft_wrap=True)


def _rows(n: int) -> str:
    return f"{n:,} row{'s' * (n != 1)}"


def _is(n: int) -> str:
    return "is" if n == 1 else "are"


def _describe_training(clf: Estimator, seconds: float) -> str:
    if clf.cross_fitted_:
        members = clf.model_.ensemble_size
        made = f"{members} networks" if members > 1 else f"{FOLDS} linear classifiers"
        text = f"{made} in {seconds:.0f} s, each without a fifth of the rows: {_describe_voters(clf)} and calibrate"
        judged = tasks.out_of_fold_score(clf)
        return text if judged is None else f"{text}; {judged}, each row judged by those that left it out"
    epochs = len(clf.history_)
    networks = "" if clf.shards is None else f"{clf.shards} networks, each on its part of the rows, "
    return (
        f"{networks}{epochs} epoch{'s' * (epochs != 1)} in {seconds:.0f} s: {_describe_voters(clf)}, "
        f"{len(clf.validation_ids_):,} for early stopping, {len(clf.calibration_ids_):,} for calibration"
    )


def _describe_voters(clf: Estimator) -> str:
    n = len(clf.references_)
    if not clf.references_.voters.represents:
        return f"{n:,} rows vote"
    return f"{n:,} representatives vote for {clf.references_.sizes.sum():,.0f} rows"


def summary(
    rows: Rows, clf: Estimator, seconds: float, test: Evaluated | None, output: Path, dataset: Streamed | None
) -> dict[str, Any]:
    """The same as JSON."""
    table = sort_columns(clf.encoder_.columns if isinstance(clf.encoder_, TabularEncoder) else [], rows)
    facts = {
        **model_facts(output),
        "kind": rows.kind,
        "rows": len(rows),
        "target": rows.columns.target,
        "task": rows.task,
        "text": rows.columns.text,
        "id": rows.columns.id,
        "columns": {**table.kinds, **({_UNUSED: list(table.unused)} if table.unused else {})},
        "left_aside": table.unused,
        "notes": [*rows.notes, *table.notes],
        **tasks.target_facts(rows),
        "epochs": len(clf.history_),
        "seconds": seconds,
        "voters": len(clf.references_),
        "examples": round(float(clf.references_.sizes.sum())),
        "agreement": None if clf.agreement_ is None else clf.agreement_._asdict(),
        "validation": len(clf.validation_ids_),
        "calibration": len(clf.calibration_ids_),
        "cross_fitted": clf.cross_fitted_,
        **tasks.expected_facts(clf, 0.05),
        "test": None if test is None else test.to_dict(),
    }
    return facts if dataset is None else facts | _stream_facts(dataset, clf)


def _stream_facts(dataset: Streamed, clf: Estimator) -> dict[str, Any]:
    """The entries that training in batches adds to the summary."""
    report = getattr(clf, "stream_", None)
    facts: dict[str, Any] = {
        "rows": dataset.stream.n,
        "described_rows": len(dataset.rows),
        "streamed": report is not None,
    }
    if report is not None:
        facts["stream"] = {
            "training": report.training,
            "sampled": report.sampled,
            "spooled_bytes": report.spooled_bytes,
            "notes": list(report.lines),
        }
    return facts
