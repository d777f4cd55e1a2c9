"""`dwac train` on a dataset that is read in batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from dwac.cli import tasks
from dwac.cli.described import kinds_rows
from dwac.estimator.targets import CLASSES, ORDERED
from dwac.reading import Estimator, Rows, Streamed


def settings_of(rows: Rows) -> dict[str, Any]:
    """Settings that follow from the task: ordered labels are told by a setting, because files do not tell."""
    return {"ordered": True} if rows.task == ORDERED else {}


def show_dataset(
    data: Streamed, name: str, kinds: Mapping[str, list[str]], aside: Mapping[str, str], console: Console
) -> None:
    """Print how the dataset was understood."""
    facts = Table.grid(padding=(0, 2))
    rows, files = data.rows, len(getattr(data.stream.data, "files", [])) or 1
    facts.add_row("data", f"{name}: {data.stream.n:,} rows in {files:,} file{'s' * (files > 1)}, read in batches")
    if rows.columns.text is not None:
        facts.add_row("text", rows.columns.text)
    facts.add_row("target", ", ".join(rows.columns.targets))
    facts.add_row("task", tasks.line(rows))
    if rows.columns.id is not None:
        facts.add_row("ids", rows.columns.id)
    for row in kinds_rows(kinds, aside):
        facts.add_row(*row)
    what, text = tasks.described(rows)
    facts.add_row(what, text if len(rows) == data.stream.n else f"{text}, in {len(rows):,} rows drawn at random")
    console.print(facts, highlight=False, markup=False)


def show_reading(clf: Estimator, console: Console) -> None:
    """Print what is exact and what is not, and how good the model is on validation rows."""
    if hasattr(clf, "stream_"):
        for line in clf.stream_.lines:
            console.print(f"note: {line}", highlight=False, soft_wrap=True)
    history = clf.history_
    if "validation_accuracy" in history:
        best = int(history["validation_loss"].to_numpy().argmin())
        accuracy = float(history["validation_accuracy"].to_numpy()[best])
        console.print(f"accuracy on validation rows: {accuracy:.3f}", highlight=False)


def summary(data: Streamed, clf: Estimator) -> dict[str, Any]:
    """What the summary of a training has besides, for programs."""
    report = getattr(clf, "stream_", None)
    found: dict[str, Any] = {"rows": data.stream.n, "described_rows": len(data.rows), "streamed": report is not None}
    if report is not None:
        found["stream"] = {
            "training": report.training,
            "sampled": report.sampled,
            "spooled_bytes": report.spooled_bytes,
            "notes": list(report.lines),
        }
    return found


def judged(clf: Estimator, held: Rows) -> Rows:
    """The test rows whose label is known; a file that is read as a whole keeps the others for training."""
    if held.task not in (CLASSES, ORDERED) or not len(held):
        return held
    return held.take(np.flatnonzero(pd.Series(held.y).isin(clf.classes_.tolist())))


def nobody(rows: Rows) -> Rows:
    """None of the rows."""
    return rows.take(np.zeros(0, dtype=np.int64))
