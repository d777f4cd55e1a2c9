"""Training examples that help the predictions of rows whose target is known, and those that harm them.

found = worth_for(clf, judges_of(clf, h, truth, own))
found.table                                # by id, the most helpful of their class first: worth, if_removed, label, …

The values are those of `clf.worth`. Many rows need not judge: a few hundred, drawn at random, show who matters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dwac.estimator.targets import LABELS, NUMBERS
from dwac.estimator.worth import Judges, Options, kept_column, scores_of, worth_by
from dwac.report.seen import Estimator

_MOST, _FEWEST, _VOTES = 500, 50, 5_000_000  # judges, and votes that they look at together
_TOLERANCE = 1e-3  # of all values for one judge together: errors of single values are far smaller
_SEED = 0
_PEERS = {  # whom an example is compared with, and why
    NUMBERS: (
        "the fifth of examples that its number is in",
        "All votes for small or large numbers may be worth little",
    ),
    LABELS: ("all with the same labels", "All examples with the same labels may be worth little because they are rare"),
}
_NAMED, _COLUMNS = 30, 3  # groups of a column, columns
_OF_PEOPLE = re.compile(
    r"(?<![a-z])(sex|gender|race|ethnic(ity)?|nationality|country|religion|marital|clinic|hospital|patient|person|user"
    r"|customer|annotator|site|region)(?![a-z])"
)


@dataclass(frozen=True, eq=False)
class Worth:
    """What each voter is worth for some rows."""

    clf: Estimator
    judges: Judges
    table: pd.DataFrame  # by id, by relative worth; if_removed: by how much `whole` changes without this one
    whole: float  # the mean of what the vote is worth for each row: P of the true label, or minus the squared error
    n_rows: int  # from which the judges were drawn

    @property
    def harming(self) -> int:
        """How many voters harm more than they help."""
        return int((self.table["worth"] < 0).sum())

    @property
    def together(self) -> float:
        """What all are worth together."""
        return float(self.table["worth"].sum())

    def ends(self, most: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The most helpful and the least helpful of their class; of few voters, each in one of the two."""
        most = min(most, len(self.table) // 2)
        return self.table.head(most), self.table.tail(most).iloc[::-1]

    def by(self, column: str) -> pd.DataFrame:
        """What the groups of a column of the training data are worth, each coming and going as one.

        sum: of the worth of their examples, each on its own. if_removed: without all of them.
        """
        groups = kept_column(self.clf, column)
        found = worth_by(self.clf, self.judges, _options(self.clf, "shapley"), groups=groups)
        alone = worth_by(self.clf, self.judges, _options(self.clf, "leave_one_out"), groups=groups)
        found["sum"] = self.table["worth"].groupby(groups.loc[self.table.index]).sum().reindex(found.index)
        return found.assign(if_removed=-alone["worth"]).sort_values("sum", ascending=False, kind="stable")


def worth_for(clf: Estimator, judges: Judges, n_rows: int | None = None) -> Worth:
    """What each voter is worth for these rows, which may be drawn from more."""
    table = worth_by(clf, judges, _options(clf, "shapley"))
    alone = worth_by(clf, judges, _options(clf, "leave_one_out"))
    table.insert(3, "if_removed", -alone["worth"])
    table = table.sort_values("relative", ascending=False, kind="stable")
    n = len(judges.own)
    return Worth(clf, judges, table, float(scores_of(clf, judges).mean()), n if n_rows is None else n_rows)


def _options(clf: Estimator, method: str) -> Options:
    if clf.target_.kind == NUMBERS:  # in units of the largest squared difference, which is a few variances
        return Options(method, "squared_error", _TOLERANCE / 10)
    return Options(method, "probability", _TOLERANCE)


def compared(kind: str = "") -> str:
    """How examples are ranked, in a sentence."""
    peers, why = _PEERS.get(kind, ("its class", "A whole class may be worth less than 0 because it is rare"))
    return f"{why}, so examples are ranked by relative worth: standard deviations above the mean of {peers}."


def judges_of(clf: Estimator, h: Any, truth: NDArray[Any], own: NDArray[np.int64]) -> Judges:
    """Rows as judges. truth: codes (n,) of classes, a table (n, L) of labels, or numbers (n, T)."""
    n, exact = len(h), clf.target_.kind in (NUMBERS, LABELS)
    given = np.asarray(truth, dtype=np.float64) if exact else np.zeros((n, 0))
    return Judges(torch.as_tensor(h), np.full(n, -1) if exact else np.asarray(truth), given, own)


def drawn(n: int, n_voters: int) -> NDArray[np.int64]:
    """Which of n rows judge: all of few, else some, drawn at random but always the same; the fewer, the more vote."""
    most = int(np.clip(_VOTES // max(1, n_voters), _FEWEST, _MOST))
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(_SEED).choice(n, most, replace=False))


def columns_of_people(clf: Estimator) -> list[str]:
    """Columns of the training data that look like groups of people, by their names: sex, country, clinic, …"""
    frame = None if clf.private_ else clf.examples_.frame()
    if frame is None:
        return []
    named = [name for name in frame.columns if _OF_PEOPLE.search(str(name).lower())]
    few = [str(name) for name in named if 2 <= frame[name].astype(str).nunique() <= _NAMED]
    return few[:_COLUMNS]
