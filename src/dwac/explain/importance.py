"""Importance: how much each column contributes over many rows, from the reasons of each.

importance = clf.importance(X)
print(importance)
importance.plot("income")
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dwac.drawing.legend import NO_LEGEND, Legend
from dwac.drawing.pages import render
from dwac.drawing.reasons import draw_column, draw_importance
from dwac.drawing.records import kind_of, plain_dict
from dwac.errors import InputError
from dwac.explain import privacy
from dwac.explain.many import Explanations
from dwac.explain.reasons import LOG_ODDS
from dwac.explain.rendering import line_width, table_lines
from dwac.languages import numeral, say, spoken


@dataclass(frozen=True, eq=False, repr=False)
class Importance:
    """The contributions of each column to the predictions of many rows; made by `importance` of an estimator.

    contributions, inputs: a row per row, a column per column; by id. label: to whose log-odds they contribute, None for
    the label of each row, or for numbers.

    >>> from dwac import DWACClassifier
    >>> X = pd.DataFrame({"age": range(20, 80), "constant": 1.0})
    >>> clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X["age"] < 50)
    >>> clf.importance(X[::10]).to_frame()["column"].tolist()
    ['age', 'constant']
    """

    contributions: pd.DataFrame
    inputs: pd.DataFrame
    label: Any = None
    unit: str = LOG_ODDS
    legend: Legend = NO_LEGEND

    def to_frame(self) -> pd.DataFrame:
        """One row per column, the most important first: column, importance (mean size of a contribution), mean."""
        sizes = self.contributions.abs().mean().sort_values(ascending=False, kind="stable")
        means = self.contributions.mean()[sizes.index]
        return pd.DataFrame({"column": sizes.index, "importance": sizes.to_numpy(), "mean": means.to_numpy()})

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values, ready for JSON."""
        return plain_dict(
            {
                "label": self.label,
                "unit": self.unit,
                "rows": len(self.contributions),
                "columns": [
                    each | ({"title": self.legend.title(each["column"])} if self.legend else {})
                    for each in self.to_frame().to_dict("records")
                ],
            }
        )

    def _sentence(self) -> str:
        rows = numeral(f"{len(self.contributions):,}")
        if self.unit != LOG_ODDS:
            return say("Mean size of contributions to the predicted number, over {n} rows.", n=rows)
        if self.label is None:
            return say("Mean size of contributions in log-odds, to their own label, over {n} rows.", n=rows)
        return say("Mean size of contributions in log-odds, to {label}, over {n} rows.", label=self.label, n=rows)

    def __repr__(self) -> str:
        """A line per column."""
        frame = self.to_frame()
        most = frame["importance"].max() or 1.0
        bars = ["█" * round(20 * size / most) for size in frame["importance"]]
        names, sizes = frame["column"].map(self.legend.title), frame["importance"].map(_size)
        shown = pd.DataFrame({"column": names, "importance": sizes, "": bars})
        heads = [say("column"), say("importance"), ""]
        return "\n".join([self._sentence(), "", *table_lines(shown, line_width(), always=3, heads=heads)[0]])

    @spoken
    def to_html(self, *, language: str | None = None) -> str:
        """A self-contained HTML fragment: a bar per column; every value escaped. language: such as "de"."""
        del language  # see `spoken`
        frame = self.to_frame()
        most = frame["importance"].max() or 1.0
        rows = [(self.legend.title(name), _size(size), size / most) for name, size, _ in frame.itertuples(index=False)]
        return render("explain/templates/importance.html", sentence=self._sentence(), rows=rows)

    def _repr_html_(self) -> str:
        return self.to_html()

    @spoken
    def plot(self, column: Any = None, *, language: str | None = None) -> Any:
        """A matplotlib figure: a bar per column; or, for one column, its contribution against its value.

        Needs the extra `dwac[report]`. language: of the texts, such as "de".
        """
        del language  # see `spoken`
        if column is None:
            return draw_importance(self)
        if column not in self.contributions:
            raise InputError(f"column must be one of {list(self.contributions)}; got {column!r}")
        return draw_column(self, column)


def _size(value: float) -> str:
    return numeral(f"{value:.3g}")


def importance_of(
    explanations: Explanations[Any],
    voters: pd.Series[Any],
    which: Mapping[str, Any],
    tied: Sequence[Collection[Any]] = (),
    *,
    label: Any = None,
    step: float = 0.0,
    seconds: float | None = None,
    random_state: int = 0,
) -> Importance:
    """The importance of columns over explained rows, each compared with a voter drawn at random.

    voters: their labels by id, of which only those with another label than the row are drawn; or numbers. which: name=…
    of several numbers. label: to whose log-odds. step: to which contributions are rounded. seconds: after which no
    further row is compared. random_state: of the draws.
    """
    rng, late = np.random.default_rng(random_state), None if seconds is None else time.monotonic() + seconds
    rows: list[dict[Any, float]] = []
    values, ids, unit = list[dict[Any, Any]](), list[Any](), LOG_ODDS
    for name, e in zip(explanations.ids, explanations, strict=True):
        if e.unreadable:
            continue
        if rows and late is not None and time.monotonic() > late:
            break
        if kind_of(e.record) == "text":
            raise InputError("importance is of columns or patches, which all rows share; texts have none; use reasons")
        own = getattr(e, "label", None)
        away = label is not None and own != label
        others = voters.index if own is None else voters.index[voters == label if away else voters != own]
        if not len(others):
            raise InputError("importance compares rows with training examples of another label, and there are none")
        reasons = e.reasons(others[int(rng.integers(len(others)))], tied=tied, **which)
        unit = reasons.unit
        rows.append({part.column: (-1.0 if away else 1.0) * part.contribution for part in reasons.contributions})
        values.append({part.column: part.value for part in reasons.contributions})
        ids.append(name)
    if not rows:
        raise InputError("importance needs at least one row that can be read")
    index = pd.Index(ids, name="id", tupleize_cols=False)
    contributions = pd.DataFrame(rows, index=index).fillna(0.0)
    contributions[:] = privacy.numbers(contributions.to_numpy(), step)
    legend = next(e.legend for e in explanations if not e.unreadable)
    return Importance(contributions, pd.DataFrame(values, index=index), label, unit, legend)
