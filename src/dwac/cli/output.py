"""The output of commands: JSON Lines, tables as files and on the terminal, notes and progress."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from dwac.cli.options import table_format
from dwac.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from dwac.encoders.columns import Column
    from dwac.estimator.evaluation import Evaluated, GroupComparison
    from dwac.reading import Estimator

_NUMBER = re.compile(r"(–|-|< )?[\d.,]*( to -?[\d.,]+)?")  # or an interval, or none


def as_json(value: Any) -> str:
    """One line of JSON, without NaN."""
    from dwac.drawing.records import plain

    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def print_json(value: Any) -> None:
    """Write one line of JSON to standard output."""
    typer.echo(as_json(value))


def print_notes(notes: Iterable[str]) -> None:
    """Write notes on how data was read to standard error."""
    for note in notes:
        typer.secho(f"dwac: note: {note}", fg="yellow", err=True)


def print_written(what: str) -> None:
    """Name the written file on standard error."""
    Console(stderr=True).print(f"written: {what}", highlight=False, markup=False, soft_wrap=True)


def print_lines(lines: Iterable[str]) -> None:
    """Write sentences to standard output, each on a line of its own."""
    for line in lines:
        Console().print(line, highlight=False, markup=False, soft_wrap=True)


def model_facts(folder: str | Path) -> dict[str, str]:
    """Where a model was written, and its fingerprint for --expect; for programs."""
    from dwac.storage import fingerprint

    return {"model": str(folder), "fingerprint": fingerprint(folder)}


def written_line(folder: str | Path) -> str:
    """The same for people."""
    return "written: {model}, fingerprint {fingerprint}".format_map(model_facts(folder))


class _Printed(logging.Handler):
    """Prints log messages on progress to standard error, above a progress bar if there is one."""

    def __init__(self, hint: str) -> None:
        super().__init__(logging.INFO)
        self.hint = hint

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line."""
        from tqdm import tqdm

        hint = f"; {self.hint}" if self.hint and getattr(record, "estimate", False) else ""
        tqdm.write(f"{record.getMessage()}{hint}", file=sys.stderr)


class _Columns(logging.Handler):
    """Passes the columns of a table on, once, as soon as the encoder has learned how to read them."""

    def __init__(self, show: Callable[[list[Column]], None]) -> None:
        super().__init__(logging.INFO)
        self.show: Callable[[list[Column]], None] | None = show

    def emit(self, record: logging.LogRecord) -> None:
        """Show the columns, if this message has them."""
        if self.show is not None and hasattr(record, "columns"):
            show, self.show = self.show, None
            show(record.columns)


@contextmanager
def progress_printed(hint: str = "Ctrl-C stops") -> Iterator[None]:
    """Print how long the work inside will take, if it takes long, and its progress if there is no terminal.

    hint: what the user can do about it.
    """
    from dwac.training import progress

    with _handling(progress.logger, _Printed(hint)):
        yield


@contextmanager
def columns_shown(show: Callable[[list[Column]], None]) -> Iterator[None]:
    """Call `show` once the training inside has learned how to read the columns of its table."""
    from dwac.encoders import tabular

    with _handling(tabular.log, _Columns(show)):
        yield


@contextmanager
def _handling(log: logging.Logger, handler: logging.Handler) -> Iterator[None]:
    """Let a handler, and no other, have the messages of a log."""
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]


@contextmanager
def at_work(title: str) -> Iterator[None]:
    """Show that work of unknown length continues, and for how long; without a terminal, in a line every half minute."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            bar.add_task(title, total=None)
            yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_lines, args=(title, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _lines(title: str, done: threading.Event) -> None:
    from dwac.training import progress

    start = time.perf_counter()
    while not done.wait(progress.EVERY):
        spent = progress.duration(time.perf_counter() - start)
        sys.stderr.write(f"{title}: running for {spent}; Ctrl-C stops\n")


def write_table(path: Path, frame: pd.DataFrame, form: str | None = None, *, harmless: bool = False) -> None:
    """Write a table to a file, and name the file; form: by default that of its suffix."""
    write(path, _packed(frame, form or table_format(path), harmless=harmless))
    print_written(f"{path}, {len(frame):,} rows")


def write_or_pipe(frame: pd.DataFrame, output: Path | None, *, json: bool, harmless: bool = False) -> bool:
    """Write a table to a file, or as CSV to a pipe; in either case as JSON Lines if `json`.

    Return False, and write nothing, if there is no file and standard output is a terminal.
    """
    if output is not None:
        write_table(output, frame, "jsonl" if json else None, harmless=harmless)
    elif json or not Console().is_terminal:
        typer.echo(_packed(frame, "jsonl" if json else "csv", harmless=harmless).decode(), nl=False)
    else:
        return False
    return True


def _packed(frame: pd.DataFrame, form: str, *, harmless: bool) -> bytes:
    """A table as the bytes of a "csv", "tsv", "jsonl" or "parquet" file; harmless: no cell is a formula."""
    from dwac.estimator.evaluation import as_csv

    if harmless and form not in ("csv", "tsv"):
        raise InputError(f"--spreadsheet-safe is for CSV and TSV, which spreadsheets open; got {form}")
    if form == "jsonl":
        return "".join(f"{as_json(row)}\n" for row in frame.to_dict("records")).encode()
    if form == "parquet":
        data = io.BytesIO()
        frame.to_parquet(data, index=False)
        return data.getvalue()
    return as_csv(frame, "\t" if form == "tsv" else ",", harmless=harmless).encode()


def write(path: Path, data: bytes) -> None:
    """Write a file completely or not at all."""
    from dwac.storage.files import replace_file

    try:
        replace_file(path, data)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None


def number(value: float | None, digits: int = 3) -> str:
    """A number for a table; a dash if there is none."""
    return "–" if value is None or value != value else f"{value:.{digits}f}"


_SAME = {
    "labels": ("labels", "labels stay"),
    "numbers": ("number, to a tenth of the spread of the votes,", "number stays"),
}


def agreement_line(clf: Estimator) -> str:
    """How often the few voters predict the same as all would, in words."""
    same, stays = _SAME.get(clf.target_.kind, ("label", "label stays"))
    if clf.agreement_ is None:
        return f"how often the {stays} the same is not known: the model has no calibration rows"
    return f"the same {same} as by all votes: {clf.agreement_}, measured on calibration rows"


def evaluation_tables(evaluated: Evaluated, title: str) -> list[Table]:
    """An evaluation as tables: each number with its meaning, then by class, label or number, if there are several."""
    from dwac.estimator.evaluation import NumberEvaluation, amount

    facts = Table("", "", "what it means", title=title, title_justify="left", show_header=False)
    for fact in [*evaluated.facts, *evaluated.cost_facts]:
        facts.add_row(*fact)
    if len(evaluated.parts) < 2:
        return [facts]
    parts = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)  # eight columns fit 80 characters
    for place, name in enumerate(evaluated.parts.columns):
        title = str(name).removeprefix("mean_").replace("_", "\n")  # line breaks between words only
        parts.add_column(title, justify="right" if place else "left", overflow="fold", no_wrap=place > 0)
    units = not isinstance(evaluated, NumberEvaluation)
    for label, n, *values in evaluated.parts.itertuples(index=False, name=None):
        parts.add_row(str(label), f"{n:,}", *map(number if units else amount, values))
    return [facts, parts]


def group_tables(groups: GroupComparison) -> list[Table]:
    """Measures by group as tables: for each division its groups, then the largest differences."""
    tables = []
    for by in groups.divisions:
        for frame in (*groups.texts(by), groups.largest(by)):
            columns = [[str(name), *frame[name]] for name in frame]
            if sum(max(map(len, cells)) + 2 for cells in columns) > Console().width:
                columns = [[_broken(cell) for cell in cells] for cells in columns]
            table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
            for place, (head, *cells) in enumerate(columns):
                whole = all(map(_NUMBER.fullmatch, cells))  # numbers stay on one line
                table.add_column(head, justify="right" if place else "left", overflow="fold", no_wrap=whole)
            for row in zip(*(cells for _, *cells in columns), strict=True):
                table.add_row(*row)
            tables.append(table)
    return tables


def _broken(text: str) -> str:
    """A name in lines that break between words and after hyphens; numbers as they are."""
    return text if _NUMBER.fullmatch(text) else "\n".join(wrap(text, 12, break_long_words=False))
