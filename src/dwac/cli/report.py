"""`dwac report`: one file on a model: a summary for everyone, then quality, trust and explained cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from dwac import report as reports
from dwac.cli import unreadable
from dwac.cli.options import (
    told,
)
from dwac.cli.output import print_notes
from dwac.errors import InputError
from dwac.estimator import DWACClassifier
from dwac.estimator.targets import LABELS, NUMBERS
from dwac.estimator.worth import kept_column
from dwac.reading import Estimator, Rows, load, read


def report(
    *,
    model: Path,
    data: str,
    output: Path,
    target: list[str] | None,
    unlike: str | None,
    check_labels: str | None,
    title: str | None,
    by: str | None,
    epsilon: float,
    k: int,
    cases: int,
    private: bool,
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
    strict: bool,
) -> None:
    """The work of `dwac report`; for its options see `dwac.cli.commands.report`."""
    loaded = load(model, device=device, expect=expect)
    if check_labels is not None and loaded.task in (LABELS, NUMBERS):
        raise InputError(f"--check-labels is for models of classes; this one predicts {loaded.task}; leave it out")
    so: dict[str, Any] = {"told": told(separator, decimal, day_first), "encoding": encoding}
    if by is not None:
        kept_column(loaded.clf, by, "--by")  # an error before the work
    of: dict[str, Any] = {**so, "target": target, "text": text, "ids": ids, "form": form, "unlabelled": unlabelled}
    rows = read(data, like=loaded, labelled=True, sheet=sheet, **of)
    print_notes(rows.notes)
    hidden = private or loaded.clf.private_
    given = len(rows)
    rows, bad = _readable(loaded.clf, rows, strict=strict)
    rows, note = fresh(loaded.clf, rows, data, private=hidden)
    console = Console(stderr=True)
    if note:
        console.print(f"dwac: note: {note}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    if bad:  # said already on the terminal
        left = f"{len(bad):,} of {given:,} rows of {data} could not be read and are left out"
        note = f"{left}; {note}" if note else left
    strange = None
    if unlike is not None:
        others = read(unlike, like=loaded, labelled=False, **so)
        strange = _readable(loaded.clf, others, strict=strict)[0].X
    issues = None
    if check_labels is not None:
        judged = read(check_labels, like=loaded, labelled=True, **of)
        judged = _readable(loaded.clf, judged, strict=strict)[0]
        assert isinstance(loaded.clf, DWACClassifier)
        issues = reports.label_issues(loaded.clf, judged.X, judged.y, ids=judged.ids)
    with console.status(f"predicting {len(rows):,} rows …"):
        written = reports.write(
            loaded.clf,
            rows.X,
            rows.y,
            output,
            ids=rows.ids,
            unlike=strange,
            title=title or f"Report on {model.resolve().name}",
            epsilon=epsilon,
            k=k,
            cases=cases,
            private=hidden,
            note=note,
            issues=issues,
            by=by,
        )
    size = written.stat().st_size / 1e6
    console.print(
        f"written: {written}, on {len(rows):,} row{'s' * (len(rows) != 1)}, {size:.1f} MB",
        highlight=False,
        soft_wrap=True,
    )
    unreadable.end(bad)


def _readable(clf: Estimator, rows: Rows, *, strict: bool) -> tuple[Rows, dict[int, str]]:
    """The rows that can be read, and why the others cannot."""
    with unreadable.located(rows):
        bad = clf.unreadable(rows.X)
    unreadable.report(bad, rows, strict=strict, fate="are left out")
    return unreadable.without(rows, bad), bad


def fresh(clf: Estimator, rows: Rows, name: str, *, private: bool = False) -> tuple[Rows, str]:
    """The rows that are new to the model, and a note on the others; the calibration rows if none is new.

    private: the note reveals neither how many rows were used in training nor whether any were.
    """
    names: pd.Index[Any] = pd.Index(rows.ids, tupleize_cols=False)
    met = reports.seen(clf, names, clf.embed(rows.X))
    if private and not met.all():
        return rows.take(np.flatnonzero(~met)), f"rows of {name} that were used in training, if any, are left out"
    if not met.any():
        return rows, ""
    if not met.all():
        left = f"{met.sum():,} of the {len(rows):,} rows of {name} were used in training and are left out"
        return rows.take(np.flatnonzero(~met)), left
    held = np.flatnonzero(names.isin(clf.calibration_ids_))
    if len(held) == 0:
        raise InputError(
            f"the model was trained on all {len(rows):,} rows of {name}, so they cannot show how good it is; "
            "give other rows, or hold some out in training: dwac train … --test-size 0.2"
        )
    note = (
        f"no row of {name} is new to the model, so results are on the {len(held):,} calibration rows: fair for "
        "accuracy, but coverage is correct by construction; for a fair test, use dwac train … --test-size 0.2"
    )
    return rows.take(held), note
