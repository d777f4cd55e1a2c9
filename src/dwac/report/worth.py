"""Which training examples help or harm predictions on rows with known targets, and which groups they belong to.

worth = worth_for(clf, judges_of(clf, h, truth, own))
worth.table                                # by id, the most helpful of their class first: worth, if_removed, label, …

The values are those of `clf.worth`. A few hundred rows, drawn at random, are enough as judges.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dwac.drawing.records import shorten
from dwac.estimator.evaluation import amount
from dwac.estimator.worth import Judges, Options, kept_column, scores_of, worth_by
from dwac.report.findings import Findings
from dwac.report.measures import Estimator, percent
from dwac.report.parts import ReportTable, brief
from dwac.tasks import LABELS, NUMBERS

_MOST, _FEWEST, _VOTES = 500, 50, 5_000_000  # most and fewest judges, and the limit of votes they count together
FIGURES = ("worth", "deviation", "standard_error", "if_removed", "relative")  # columns of a table for every target
_TOLERANCE = 1e-3  # for the sum of all values for one judge: errors of single values are far smaller
_SEED = 0
_PEERS = {  # the examples that an example is compared with, and why
    NUMBERS: (
        "the fifth of examples that its number is in",
        "All votes for small or large numbers may be worth little",
    ),
    LABELS: ("all with the same labels", "All examples with the same labels may be worth little because they are rare"),
}
MOST_GROUPS, _COLUMNS = 30, 3  # at most: groups of a column, columns
_OF_PEOPLE = re.compile(
    r"(?<![a-z])(sex|gender|race|ethnic(ity)?|nationality|country|religion|marital|clinic|hospital|patient|person|user"
    r"|customer|annotator|site|region)(?![a-z])"
)

_SHOWN, _COLUMNS_SHOWN, _ROWS = 10, 6, 20  # examples at each end, columns of each, groups in a table


@dataclass(frozen=True, eq=False)
class Worth:
    """What each voter is worth for some rows."""

    clf: Estimator
    judges: Judges
    table: pd.DataFrame  # by id, ordered by relative worth; if_removed: the change of `whole` without this one
    whole: float  # the mean worth of the vote over rows: P of the true label, or minus the squared error
    n_rows: int  # rows from which the judges were drawn

    @property
    def harming(self) -> int:
        """How many voters harm more than they help."""
        return int((self.table["worth"] < 0).sum())

    @property
    def together(self) -> float:
        """The worth of all voters together."""
        return float(self.table["worth"].sum())

    def ends(self, most: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The most helpful and the least helpful of their class; if voters are few, each is in only one of the two."""
        most = min(most, len(self.table) // 2)
        return self.table.head(most), self.table.tail(most).iloc[::-1]

    def by(self, column: str) -> pd.DataFrame:
        """The worth of the groups of a column of the training data, each added and removed as a whole.

        sum: the sum of the worth of its single examples. if_removed: the change without the whole group.
        """
        groups = kept_column(self.clf, column)
        together = worth_by(self.clf.fitted_, self.judges, _options(self.clf, "shapley"), groups=groups)
        alone = worth_by(self.clf.fitted_, self.judges, _options(self.clf, "leave_one_out"), groups=groups)
        together["sum"] = self.table["worth"].groupby(groups.loc[self.table.index]).sum().reindex(together.index)
        return together.assign(if_removed=-alone["worth"]).sort_values("sum", ascending=False, kind="stable")


def worth_for(clf: Estimator, judges: Judges, n_rows: int | None = None) -> Worth:
    """The worth of each voter for these rows, which may be a sample of `n_rows`."""
    table = worth_by(clf.fitted_, judges, _options(clf, "shapley"))
    alone = worth_by(clf.fitted_, judges, _options(clf, "leave_one_out"))
    table.insert(3, "if_removed", -alone["worth"])
    table = table.sort_values("relative", ascending=False, kind="stable")
    n = len(judges.own)
    return Worth(clf, judges, table, float(scores_of(clf.fitted_, judges).mean()), n if n_rows is None else n_rows)


def _options(clf: Estimator, method: str) -> Options:
    if clf.target_.kind == NUMBERS:  # in units of the largest squared difference, which is a few variances
        return Options(method, "squared_error", _TOLERANCE / 10)
    return Options(method, "probability", _TOLERANCE)


def ranking(kind: str = "") -> str:
    """A sentence on how examples are ranked."""
    peers, why = _PEERS.get(kind, ("its class", "A whole class may be worth less than 0 because it is rare"))
    return f"{why}, so examples are ranked by relative worth: standard deviations above the mean of {peers}."


def judges_of(clf: Estimator, h: Any, truth: NDArray[Any], own: NDArray[np.int64]) -> Judges:
    """Rows as judges. truth: codes (n,) of classes, a table (n, L) of labels, or numbers (n, T)."""
    n, exact = len(h), clf.target_.kind in (NUMBERS, LABELS)
    numbers = np.asarray(truth, dtype=np.float64) if exact else np.zeros((n, 0))
    return Judges(torch.as_tensor(h), np.full(n, -1) if exact else np.asarray(truth), numbers, own)


def draw_judges(n: int, n_voters: int) -> NDArray[np.int64]:
    """Which of n rows judge: all if few, else a reproducible random sample, smaller if there are more voters."""
    most = int(np.clip(_VOTES // max(1, n_voters), _FEWEST, _MOST))
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(_SEED).choice(n, most, replace=False))


def columns_of_people(clf: Estimator) -> list[str]:
    """Columns of the training data whose names suggest groups of people: sex, country, clinic, …"""
    frame = None if clf.private_ else clf.examples_.frame()
    if frame is None:
        return []
    candidates = [name for name in frame.columns if _OF_PEOPLE.search(str(name).lower())]
    few = [str(name) for name in candidates if 2 <= frame[name].astype(str).nunique() <= MOST_GROUPS]
    return few[:_COLUMNS]


# The section of the report


class WorthSection(NamedTuple):
    """The report's section on worth: the most and the least helpful examples, and groups of each column."""

    worth: Worth
    voter: str  # who votes
    total: str  # the worth of all voters together
    ranking: str  # how examples are ranked
    examples: list[tuple[str, ReportTable]]
    groups: list[ReportTable]


def worth_section(findings: Findings, by: Sequence[str] | None = None) -> WorthSection | None:
    """The ten training examples that help most within their class, the ten that help least, and groups of columns `by`.

    Without `by`, groups of columns that look like groups of people. None for a private report.
    """
    if findings.private or len(findings.clf.references_) < 2:
        return None
    worth, kind = _measure(findings), findings.clf.target_.kind
    most, least = worth.ends(_SHOWN)
    unit = "in per cent of the variance" if kind == NUMBERS else "in percentage points"
    ends = (("Most helpful", most), ("Least helpful", least))
    examples = [(head, _examples(worth, part, f"{head}, {unit}")) for head, part in ends]
    columns = columns_of_people(findings.clf) if by is None else by
    groups = [_groups(worth, column) for column in columns]
    total = points(worth.together)(worth.together)
    return WorthSection(worth, _voter_word(worth), total, ranking(kind), examples, groups)


def _measure(findings: Findings) -> Worth:
    """Worth as judged by the test examples; a test example that is a voter does not vote on itself."""
    references = findings.clf.references_
    rows = draw_judges(len(findings.truth), len(references))
    own = np.full(len(rows), -1)
    if findings.in_training.any():
        own = references.voters.ids.get_indexer(findings.ids[rows])
    return worth_for(
        findings.clf, judges_of(findings.clf, findings.h[rows], findings.truth[rows], own), len(findings.truth)
    )


def _voter_word(worth: Worth) -> str:
    return "representative" if worth.clf.references_.voters.represents else "training example"


def _examples(worth: Worth, part: pd.DataFrame, caption: str) -> ReportTable:
    clf = worth.clf
    say, say_removed = points(part[["worth", "standard_error"]]), points(part["if_removed"])
    what = "number" if clf.target_.kind == NUMBERS else "label"
    rows = [
        {
            _voter_word(worth): shorten(name),
            what: outcome(clf, row),
            "worth ± 2 s.e.": f"{say(row['worth'])} ±\u00a0{say(2 * row['standard_error']).lstrip('+')}",
            "relative": f"{row['relative']:+.1f}".replace("-", "−"),
            "if removed": say_removed(_change(clf, row["if_removed"])),
            "example": brief(clf.examples_.get(name), _COLUMNS_SHOWN, clf.legend_),
        }
        for name, row in part.iterrows()
    ]
    return ReportTable.of(caption, rows, numbers=[2, 3, 4])


def _change(clf: Any, change: float) -> float:
    """The change of the squared error, or of the probability: the error rises as worth falls."""
    return -change if clf.target_.kind == NUMBERS else change


def outcome(clf: Any, row: pd.Series[Any]) -> str:
    """What a voter votes for, from its row in a table of worth."""
    values = row.drop([*FIGURES, "size"], errors="ignore").tolist()
    if clf.target_.kind == LABELS:
        values = list(values[0]) or ["no label"]
    return ", ".join(amount(value) if isinstance(value, float) else shorten(value) for value in values)


def _groups(worth: Worth, column: str) -> ReportTable:
    groups, legend = worth.by(column), worth.clf.legend_
    n_examples, whole = groups["examples"].sum(), groups["sum"].sum()
    say, say_removed = points(groups[["worth", "sum"]]), points(groups["if_removed"])
    rows = [
        (
            legend.value(column, name),
            f"{row['examples']:,.0f} ({percent(row['examples'] / n_examples)})",
            say(row["sum"]) + (f" ({percent(row['sum'] / whole)})".replace("-", "−") if whole > 0 else ""),
            f"{say(row['worth'])} ±\u00a0{say(2 * row['standard_error']).lstrip('+')}",
            say_removed(_change(worth.clf, row["if_removed"])),
        )
        for name, row in groups.head(_ROWS).iterrows()
    ]
    left = len(groups) - len(rows)
    caption = f"By {legend.head(column)}: whose data carries the model" + (
        f"; {left:,} more {'are' if left > 1 else 'is'} worth less" if left else ""
    )
    head = (
        legend.head(column),
        f"{_voter_word(worth)}s",
        "sum of their worth",
        "worth as one ± 2 s.e.",
        "if all are removed",
    )
    return ReportTable(caption, head, rows, numbers=range(1, 5))


def points(values: Any) -> Callable[[float], str]:
    """A function that writes such values in hundredths with their sign, with as many digits as the largest needs.

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
