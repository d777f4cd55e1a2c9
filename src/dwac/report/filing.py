"""What makes a report a record: data, model and date by name and hash; results by group; decisions by cost."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from dwac.drawing.records import shorten
from dwac.estimator.evaluation import Fact, GroupComparison, amount
from dwac.report.findings import Findings
from dwac.report.measures import Estimator, on_one_line, percent
from dwac.report.parts import Plot, ReportTable, images

_DRAWN = 12  # measures with a picture in each division


class ComparedDivision(NamedTuple):
    """The groups of one division: their values and largest differences, and a picture of each measure."""

    by: str
    tables: list[ReportTable]
    plots: list[Plot]


class CostSection(NamedTuple):
    """Decisions by cost, and what each threshold gives: each None or empty if it is not known."""

    facts: Sequence[Fact]
    tables: list[ReportTable]


def filing_values(
    findings: Findings, y: Any, source: str | PathLike[str] | None, target: Sequence[str]
) -> dict[str, Any]:
    """The values of a report that name what it is about, and of the sections on groups and costs."""
    groups: GroupComparison | None = findings.result.groups
    return {
        "filed": filed_facts(findings.clf, y, source, target, private=findings.private),
        "compared": [] if groups is None else [_division(groups, by) for by in groups.divisions],
        "compared_notes": [] if groups is None else groups.notes,
        "costs": _costs(findings),
    }


def filed_facts(
    clf: Estimator,
    y: Any = None,
    source: str | PathLike[str] | None = None,
    target: Sequence[str] = (),
    *,
    private: bool,
) -> list[Fact]:
    """Date, target, columns, test data and model, with the hashes that identify a file and a model."""
    names = target or ([y.name] if getattr(y, "name", None) is not None else getattr(y, "columns", []))
    columns = getattr(clf.encoder_, "columns", None)
    title = clf.legend_.head
    known = [f"{shorten(title(each.name))} ({each.kind})" for each in columns] if isinstance(columns, list) else []
    if private and known:
        known = [f"{len(known):,}, not named in a private report"]
    mark = clf.fingerprint_
    facts = [
        Fact("Date", datetime.now(UTC).strftime("%Y-%m-%d"), "When this report was made (UTC)."),
        Fact("Target", ", ".join(map(shorten, names)) or "not named", "What the model predicts."),
        Fact("Columns", ", ".join(known) or "not a table", "All that the model reads, and how it reads them."),
        Fact("Model", mark or "not saved", "The fingerprint of the model folder." if mark else "A saved model has a "
             "fingerprint."),
        Fact("Software", f"dwac {version('dwac')}", "The version that made this report."),
    ]  # fmt: skip
    return facts if source is None else [*facts, _file_fact(Path(source))]


def _file_fact(path: Path) -> Fact:
    """The name and the hash of a file; a folder or a stream has no hash."""
    if not path.is_file():
        return Fact("Test data", shorten(path.name or str(path)), "Not a file: it has no hash.")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Fact("Test data", shorten(path.name), f"SHA-256 {digest}.")


def _division(groups: GroupComparison, by: str) -> ComparedDivision:
    tables = [_table(frame, f"By {by}, with 95 % intervals") for frame in groups.texts(by, intervals=True)]
    tables.append(_table(groups.largest(by), f"Largest differences by {by}"))
    return ComparedDivision(by, tables, images(*(groups.plot(name, by) for name in groups.measures[:_DRAWN])))


def _table(frame: pd.DataFrame, caption: str) -> ReportTable:
    rows = [
        (shorten(name), *(on_one_line(shorten(cell)) for cell in cells))
        for name, *cells in frame.itertuples(index=False, name=None)
    ]
    return ReportTable(caption, [shorten(name) for name in frame.columns], rows, range(1, frame.shape[1]))


def _costs(findings: Findings) -> CostSection:
    result, tables = findings.result, list[ReportTable]()
    spent, thresholds = result.costs, getattr(result, "thresholds", None)
    if spent is not None:
        head = spent.costs.reset_index().astype({spent.costs.index.name: str})
        shown = head.map(lambda value: amount(value) if isinstance(value, float) else value)
        tables.append(_table(shown, "What a decision costs (columns), by the truth (rows)"))
        chosen = spent.decisions.assign(label=spent.decisions["label"].map(str))
        shares = chosen[["predicted", "decided"]].map(percent)
        chosen = chosen.assign(threshold=chosen["threshold"].map(amount)).assign(**shares)
        tables.append(_table(chosen, "How often each label is predicted, and decided at least expected cost"))
    if thresholds is not None:
        shown = thresholds.map(amount).rename(columns=lambda name: name.replace("_", " "))
        tables.append(
            _table(shown, f"Deciding for {shorten(findings.clf.classes_[1])} where its probability is over a threshold")
        )
    return CostSection(result.cost_facts, tables)
