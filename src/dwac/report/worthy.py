"""The section on the most and the least helpful examples, and on whose data carries the model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from dwac.drawing.records import written
from dwac.estimator.evaluation import amount
from dwac.estimator.targets import LABELS, NUMBERS
from dwac.report.cases import brief
from dwac.report.findings import Findings
from dwac.report.markup import Html, joined, table, tag
from dwac.report.parts import folded
from dwac.report.words import percent
from dwac.report.worth import Worth, columns_of_people, compared, drawn, judges_of, worth_for

_SHOWN, _COLUMNS, _MOST_GROUPS = 10, 6, 20
_ADDS = {
    NUMBERS: "takes off the squared error of the voters' mean, in per cent of the variance of the training numbers",
    LABELS: "adds to the probability that a label is as it is, on average over labels, in percentage points",
}
_NOW = {NUMBERS: "squared error", LABELS: "mean probability that a label is as it is"}
_NOTE = (
    "This is the worth of a vote: what the network learned from an example is not in it. Examples that are alike share "
    "their worth. One of the least helpful may have a wrong label, or be unlike others with the same one: look at it."
)
_GROUPS = (
    "The sum is that of examples one by one; its share of all, beside the share of the examples, shows whose votes do "
    "more than others'. Worth as one: all votes of a group come and go together, and groups count alike, however small."
)


def worth_section(found: Findings, by: str | None = None) -> Html | None:
    """The ten training examples that help most, within their class, and the ten that help least; by: groups, too.

    Without `by`, of columns that look like groups of people. None for a private report.
    """
    if found.private or len(found.clf.references_) < 2:
        return None
    worth = _measured(found)
    most, least = worth.ends(_SHOWN)
    unit = "in per cent of the variance" if found.clf.target_.kind == NUMBERS else "in percentage points"
    parts: list[Html | None] = [tag("p", _lead(worth)), tag("p", compared(worth.clf.target_.kind)),
                                tag("p", _removed(worth))]  # fmt: skip
    parts += [folded(f"{head} ({len(part)})", None, _examples(worth, part, f"{head}, {unit}"))
              for head, part in (("Most helpful", most), ("Least helpful", least))]  # fmt: skip
    columns = columns_of_people(found.clf) if by is None else [by]
    parts += [_groups(worth, column) for column in columns]
    parts += [tag("p", _GROUPS, class_="note")] if columns else []
    return joined((*parts, tag("p", _NOTE, class_="note")))


def _measured(found: Findings) -> Worth:
    """Judged by the test examples; one that votes takes no part in the vote on itself."""
    references = found.clf.references_
    rows = drawn(len(found.truth), len(references))
    own = np.full(len(rows), -1)
    if found.met.any():
        own = references.voters.ids.get_indexer(found.ids[rows])
    return worth_for(found.clf, judges_of(found.clf, found.h[rows], found.truth[rows], own), len(found.truth))


def _lead(worth: Worth) -> str:
    kind, n = worth.clf.target_.kind, len(worth.judges.own)
    adds = _ADDS.get(kind, "adds to the probability of the true label, in percentage points")
    rows = f"{n:,} test examples" + (f" drawn at random from {worth.n_rows:,}" if n < worth.n_rows else "")
    return (
        f"The worth of a training example is what its vote {adds}: its Shapley value, the average over {rows} and over "
        f"all orders in which voters may come. Together the {len(worth.table):,} {_who(worth)}s are worth "
        f"{points(worth.together)(worth.together)}; {worth.harming:,} of them harm more than they help."
    )


def _removed(worth: Worth) -> str:
    what = _NOW.get(worth.clf.target_.kind, "mean probability of the true label")
    return (
        f"“If removed” is exact: by how much the {what}, now {percent(abs(worth.whole))}, would change without this "
        "one example, all others staying. It may differ in sign from worth, which also counts how an example votes "
        "among few others. To remove votes, use silence (dwac silence), which leaves calibration as it is."
    )


def _who(worth: Worth) -> str:
    return "representative" if worth.clf.references_.voters.weighted else "training example"


def _examples(worth: Worth, part: pd.DataFrame, caption: str) -> Html:
    clf = worth.clf
    say, say_removed = points(part[["worth", "standard_error"]]), points(part["if_removed"])
    rows = [
        (
            written(name),
            outcome(clf, row),
            f"{say(row['worth'])} ±\u00a0{say(2 * row['standard_error']).lstrip('+')}",
            f"{row['relative']:+.1f}".replace("-", "−"),
            say_removed(_change(clf, row["if_removed"])),
            brief(clf.examples_.get(name), _COLUMNS),
        )
        for name, row in part.iterrows()
    ]
    what = "number" if clf.target_.kind == NUMBERS else "label"
    head = (_who(worth), what, "worth ± 2 s.e.", "relative", "if removed", "example")
    return tag("div", table(head, rows, caption=caption, numbers=[2, 3, 4]), class_="worths")


def _change(clf: Any, change: float) -> float:
    """Of what is said to be now: an error rises where worth falls."""
    return -change if clf.target_.kind == NUMBERS else change


def outcome(clf: Any, row: pd.Series[Any]) -> str:
    """What a voter votes for, from its row in a table of worth."""
    values = row.drop(
        ["worth", "deviation", "standard_error", "if_removed", "relative", "size"], errors="ignore"
    ).tolist()
    if clf.target_.kind == LABELS:
        values = list(values[0]) or ["no label"]
    return ", ".join(amount(value) if isinstance(value, float) else written(value) for value in values)


def _groups(worth: Worth, column: str) -> Html:
    found = worth.by(column)
    everyone, whole = found["examples"].sum(), found["sum"].sum()
    say, say_removed = points(found[["worth", "sum"]]), points(found["if_removed"])
    rows = [
        (
            written(name),
            f"{row['examples']:,.0f} ({percent(row['examples'] / everyone)})",
            say(row["sum"]) + (f" ({percent(row['sum'] / whole)})".replace("-", "−") if whole > 0 else ""),
            f"{say(row['worth'])} ±\u00a0{say(2 * row['standard_error']).lstrip('+')}",
            say_removed(_change(worth.clf, row["if_removed"])),
        )
        for name, row in found.head(_MOST_GROUPS).iterrows()
    ]
    left = len(found) - len(rows)
    caption = f"By {column}: whose data carries the model" + (
        f"; {left:,} more {'are' if left > 1 else 'is'} worth less" if left else ""
    )
    head = (column, f"{_who(worth)}s", "sum of their worth", "worth as one ± 2 s.e.", "if all are removed")
    return tag("div", table(head, rows, caption=caption, numbers=range(1, 5)), class_="tight")


def points(values: Any) -> Callable[[float], str]:
    """How to write such values: in hundredths with their sign, all with as many digits as the largest needs.

    >>> say = points([0.01234, -0.001])
    >>> say(0.01234), say(-0.001), say(1e-9)
    ('+1.23', '−0.10', '0')
    """
    largest = float(np.nanmax(np.abs(np.asarray(values, dtype=np.float64)), initial=0.0))
    digits = max(0, 2 - math.floor(math.log10(100 * largest))) if 0 < 100 * largest < math.inf else 2

    def say(value: float) -> str:
        text = f"{100 * value:+.{digits}f}"
        return "–" if value != value else "0" if float(text) == 0 else text.replace("-", "−")

    return say
