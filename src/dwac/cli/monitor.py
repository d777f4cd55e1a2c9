"""`dwac monitor`: are new rows still like those that the model was calibrated on, and if not, what moved?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dwac.cli import options
from dwac.cli.output import print_json
from dwac.cli.rows import SOME_UNREADABLE, read_rows, report_unreadable, rows_located
from dwac.errors import InputError, StorageError

if TYPE_CHECKING:
    from dwac.monitoring import Change, Monitor, State
    from dwac.reading import Estimator, Rows

ALARM = 4  # the exit code


@options.with_bundles
def monitor(
    model: options.Model,
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="The new rows; may be left out if there are --outcomes.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Keep the state in this .json file, and continue from it."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column to leave out, such as a date that only grows; may be repeated."),
    ] = None,
    false_alarms: Annotated[
        float | None, typer.Option(metavar="P", help="Probability of ever raising a false alarm. Default: 0.01.")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Discard the state in FILE and start again.")] = False,
    ids: options.Id = None,
    outcomes: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A table of outcomes of earlier rows: their ids, and the target column."),
    ] = None,
    target: options.Target = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="COLUMN", help="A column of --outcomes with groups to watch; may be repeated."),
    ] = None,
    json: options.Json = False,
    *,
    reading: options.ReadingOptions,
    tables: options.TableOptions,
) -> None:
    """Check whether new rows still resemble the calibration rows, and if not, show what changed.

    Rows are taken in the order of the file; no labels are needed. With -o, the next call continues where this one
    ended: give each day's rows once. You may check as often as you like: if nothing changes, the probability that the
    alarm is ever raised is at most 1 %, however many days pass.

    --outcomes watches errors, misses of prediction sets, and calibration, over all rows and --by group, once outcomes
    are known. They may come in any order, and for only some of the rows. Rows need ids: name their column with --id.

    Exit codes: 0 no alarm, 4 alarm (also an earlier one that FILE remembers), 3 no alarm but rows that cannot be read,
    1 errors.

    Examples:

    dwac monitor model/ monday.csv -o monitor.json

    dwac monitor model/ tuesday.csv -o monitor.json --json

    dwac monitor model/ -o monitor.json --outcomes known.csv --id patient --by clinic
    """
    if data is None and outcomes is None:
        raise InputError("a monitor needs rows or outcomes; got neither; give DATA, --outcomes FILE, or both")
    options.check_rows(model, tables.form, data, outcomes)
    loaded = reading.load(model)
    watch = _monitor(loaded.clf, output, ignore or [], false_alarms, restart=restart)
    if data is not None:
        rows = read_rows(data, loaded, reading, tables, ids=ids)
        _watch_rows(watch, loaded.clf, rows, strict=reading.strict)
    if outcomes is not None:
        roles: dict[str, Any] = {"labelled": True, "unlabelled": "drop", "features": False}
        no_text = reading._replace(text=None)
        known = read_rows(outcomes, loaded, no_text, tables, ids=ids, target=target, keep=by or [], **roles)
        if known.columns.id is None:
            raise InputError(
                f"outcomes belong to rows by their ids; {outcomes} has no column of ids; name it with --id COLUMN"
            )
        watch.outcomes(known.ids, known.y, known.kept)
    state, moved = watch.state, watch.moved()
    if output is not None:
        try:
            watch.save(output)
        except OSError as error:
            why = error.strerror or error
            raise StorageError(f"{output} cannot be written: {why}; give another -o FILE") from None
    if json:
        print_json({**state.to_dict(), "moved": [change.to_dict() for change in moved]})
    else:
        _show(state, moved, by or [])
    if state.alarm is not None or (state.outcomes is not None and state.outcomes.alarm is not None):
        raise typer.Exit(ALARM)
    if state.unreadable:
        raise typer.Exit(SOME_UNREADABLE)


def _watch_rows(watch: Monitor, clf: Estimator, rows: Rows, *, strict: bool) -> None:
    earlier = watch.state.unreadable
    with rows_located(rows):
        if strict:
            report_unreadable(clf.unreadable(rows.X), rows, strict=True, fate="")
        # Without ids, rows have the same numbers every day: no outcome could be told from another.
        state = watch.update(rows.X, rows.ids, awaited=rows.columns.id is not None)
        if state.unreadable > earlier:
            report_unreadable(clf.unreadable(rows.X), rows, strict=False, fate="count as strange")


def _monitor(clf: Any, path: Path | None, ignore: list[str], false_alarms: float | None, *, restart: bool) -> Monitor:
    """A new monitor, or the one in the file; an error if that was begun with other options."""
    from dwac.monitoring import Monitor

    columns = {str(name): name for name in getattr(clf, "feature_names_in_", ())}
    given: dict[str, Any] = {} if false_alarms is None else {"false_alarms": false_alarms}
    if path is None or restart or not path.exists():
        return Monitor(clf, ignore=[columns.get(name, name) for name in ignore], **given)
    stored = Monitor.load(path, clf)
    ignored = sorted(map(str, stored.ignored))
    if ignore and sorted(ignore) != ignored:
        raise _other_option(path, "--ignore", ignored, ignore)
    if false_alarms is not None and false_alarms != stored.false_alarms:
        raise _other_option(path, "--false-alarms", stored.false_alarms, false_alarms)
    return stored


def _other_option(path: Path, option: str, kept: Any, value: Any) -> InputError:
    return InputError(f"{path} was started with {option} {kept}; leave {option} out, or use --restart; got {value}")


def _show(state: State, moved: list[Change], by: list[str]) -> None:
    """The state in words; by: the columns whose groups are shown, and not only those that are not as expected."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(str(state), markup=False)
    means = [(name, getattr(state, name)) for name in ("typicality", "credibility")]
    shown = ", ".join(f"{name} {value:.3f}" for name, value in means if value is not None)
    if shown:
        console.print(f"means: {shown} (typicality is 0.5 on average if nothing changed)")
    if state.alarm is None and moved:
        console.print("the latest rows differ, judged by this check alone, in:")
        for change in moved:
            console.print(f"  {change}", markup=False)
    if state.outcomes is not None:
        for risk in state.outcomes.risks:
            if risk.exceeded or risk.by is None or risk.by in by:
                console.print(f"  {'NOT AS EXPECTED: ' * risk.exceeded}{risk}", markup=False)
    for note in state.notes:
        console.print(f"note: {note}", markup=False)
