"""What the predictions of all kinds of targets share, and what their evaluations share; both as CSV."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.drawing.pages import render
from dwac.drawing.records import plain
from dwac.errors import EPSILON, InputError
from dwac.tasks.answers import AnswerColumn, table_of
from dwac.tasks.base import Bools, Floats, Reasons, readable
from dwac.tasks.by_group import GroupComparison, compare_groups
from dwac.tasks.costs import CostEvaluation
from dwac.tasks.group_statistics import GroupMeasure, Measure

GAP = "mean gap between stated and observed probability"
LEVEL = 0.99  # how often coverage lies in its range, for rows like the calibration rows
_NAMES = 26  # characters of the name of a fact
TYPICALITY = "mean; about 0.5 on familiar data, near 0 on other data"
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # the first characters of a formula
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Fact(NamedTuple):
    """A number with its name and its meaning."""

    name: str
    value: str
    meaning: str


class Evaluated(ABC):
    """How predictions compare with the truth; values that need calibration are None if the model has none."""

    n: int  # rows that could be read
    epsilon: float
    unreadable: int  # rows that could not be read; all other numbers leave them out
    groups: GroupComparison | None  # the measures by group, if asked for
    costs: CostEvaluation | None  # what decisions cost, if the costs of errors were given

    @property
    @abstractmethod
    def facts(self) -> list[Fact]:
        """Each number with its meaning, for people."""

    @property
    @abstractmethod
    def parts(self) -> pd.DataFrame:
        """The same by class, by label or by number: one row each, with the name first."""

    @property
    def advice(self) -> str | None:
        """What falls short of its guarantee, and what helps; None if nothing does."""
        return None

    @property
    def cost_facts(self) -> list[Fact]:
        """What decisions cost, for people; none unless costs were given."""
        if self.costs is None:
            return []
        return [
            Fact("changed by cost", share(self.costs.changed), f"share of decisions; {self.costs.rule}"),
            Fact("cost", amount(self.costs.mean), "per row, of these decisions; "
                 f"{amount(self.costs.mean_predicted)} of the predicted labels"),
        ]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON; groups and costs only if asked for."""
        optional = {name: value for name in ("groups", "costs") if (value := vars(self)[name]) is not None}
        values = {name: value for name, value in vars(self).items() if name not in ("groups", "costs")} | optional
        content: dict[str, Any] = plain(
            {name: _plain(value) for name, value in values.items()} | {"advice": self.advice}
        )
        return content

    def to_frame(self) -> pd.DataFrame:
        """By group, one row per group and measure; without groups, one row per fact."""
        return pd.DataFrame([*self.facts, *self.cost_facts]) if self.groups is None else self.groups.to_frame()

    def __repr__(self) -> str:
        """The facts, then the groups."""
        facts = [f"{fact.name:<{_NAMES}}{fact.value:>8}  {fact.meaning}" for fact in [*self.facts, *self.cost_facts]]
        notes = [] if self.advice is None else [f"{self.advice}."]
        groups = [] if self.groups is None else ["", str(self.groups)]
        return "\n".join([f"{self.n:,} rows", *facts, *notes, *groups])

    def to_html(self) -> str:
        """A self-contained HTML fragment: the facts, then the groups."""
        return render("tasks/templates/evaluation.html", result=self, facts=[*self.facts, *self.cost_facts])

    def _repr_html_(self) -> str:
        return self.to_html()


def _plain(value: Any) -> Any:
    """A field of an evaluation as plain values."""
    if isinstance(value, pd.DataFrame):
        return value.to_dict("records")
    if isinstance(value, CostEvaluation):
        return {name: _plain(part) for name, part in vars(value).items()} | {
            "costs": value.costs.reset_index().to_dict("records"),
            "rule": value.rule,
        }
    return value.to_dict() if isinstance(value, GroupComparison) else value


class Predictions(ABC):
    """One pass over n examples, and everything that follows from it."""

    target: Any  # the `Target` of the model
    reasons: Reasons | None  # (n,): None, or why a row could not be read
    unknown: Reasons | None  # (n,): None, or the values of a row that were not in training; None without columns
    private: bool  # whether numbers are rounded as in `dwac.explain.privacy`
    h: Tensor | None  # (r, d): the embeddings of the r readable rows, if known
    _by_row: ClassVar[tuple[str, ...]]  # the fields with a value per row

    @abstractmethod
    def __len__(self) -> int:
        """n."""

    @property
    @abstractmethod
    def typicality(self) -> Floats | None:
        """(n,): near 0, unlike anything known; None if it was not measured."""

    def columns(self, quantiles: Sequence[float] = ()) -> tuple[AnswerColumn, ...]:
        """The columns of an answer; quantiles: of numbers, at these levels."""
        columns: tuple[AnswerColumn, ...] = self.target.columns(quantiles)
        return columns

    @abstractmethod
    def answer(self, epsilon: float = EPSILON, quantiles: Sequence[float] = ()) -> dict[str, Any]:
        """The values of the columns, at error rate ε: an array (n, …) each, or None without calibration rows."""

    def frame(
        self, epsilon: float = EPSILON, quantiles: Sequence[float] = (), *, probabilities: bool = False
    ) -> pd.DataFrame:
        """One row per example: what is predicted, and how far to trust it at error rate ε.

        `unreadable` gives the reason if a row could not be read: everything else is then None or NaN. With several
        numbers, each has its own columns, which end in its name. probabilities: also a column per class.
        """
        values = self.answer(epsilon, quantiles)
        table = table_of(self.columns(quantiles), values, self.readable, probabilities=probabilities)
        return table.assign(**self._notes())

    def part(self, rows: Any) -> Self:
        """The predictions for some rows: a slice, row numbers or a mask."""
        values = {name: getattr(self, name) for name in self._by_row}
        parts = {name: None if value is None else value[rows] for name, value in values.items()}
        if (conformal := getattr(self, "conformal", None)) is not None:
            parts["conformal"] = conformal.part(rows)
        part: Self = replace(self, h=self._h_of(rows), **parts)  # type: ignore[type-var]  # a dataclass
        return part

    def evaluate(
        self,
        y: Any,
        epsilon: float = EPSILON,
        *,
        strict: bool = True,
        by: pd.DataFrame | None = None,
        costs: Any = None,
    ) -> Any:
        """Compare with the truth, as an `Evaluated` of its kind. Rows that could not be read are only counted.

        by: the groups of the rows, (n, C), as `dwac.tasks.by_group.read_groups` returns them. costs: of errors.
        """
        truth, rows = self._truth(y, strict=strict), self._require_readable()
        part, truth = self.part(rows), truth[rows]
        result = part._compare(truth, epsilon, unreadable=int((~rows).sum()))
        spent, measures = part._cost(truth, costs)
        groups = None
        if by is not None:
            every = [*part.measures(truth, epsilon), *measures]
            groups = compare_groups(every, by[rows].reset_index(drop=True), private=self.private)
        return replace(result, groups=groups, costs=spent)

    def _truth(self, y: Any, *, strict: bool) -> Any:
        """The truth y of all rows, in the form of the predictions; strict: refuse classes that were not in training."""
        del strict
        return self.target.values(y, len(self))

    @abstractmethod
    def _compare(self, truth: Any, epsilon: float, *, unreadable: int) -> Any:
        """The `Evaluated` of these rows, all of which could be read."""

    @abstractmethod
    def measures(self, truth: Any, epsilon: float) -> list[Measure]:
        """What groups of these rows, all of which could be read, are compared by."""

    def _cost(self, truth: Any, costs: Any) -> tuple[CostEvaluation | None, list[GroupMeasure]]:
        """What decisions cost, and the measures of groups that follow."""
        del truth
        if costs is not None:
            raise InputError(
                "costs are of wrong labels, and this model predicts numbers; to decide where too little costs u and "
                "too much costs o, take the quantile at u / (u + o): predict_quantiles"
            )
        return None, []

    @property
    def readable(self) -> Bools:
        """(n,): which rows could be read."""
        return np.ones(len(self), dtype=bool) if self.reasons is None else readable(self.reasons)

    def _h_of(self, rows: Any) -> Any:
        """The embeddings of the readable ones among these rows."""
        if self.h is None:
            return None
        place = np.full(len(self), -1)
        place[self.readable] = np.arange(len(self.h))
        return self.h[torch.as_tensor(place[rows][place[rows] >= 0], device=self.h.device)]

    def _notes(self) -> dict[str, pd.Series[Any]]:
        """The last columns of a frame, (n,) each: `unknown` (tables only) and `unreadable`."""
        notes = {"unreadable": pd.Series([None] * len(self) if self.reasons is None else self.reasons, dtype="str")}
        return notes if self.unknown is None else {"unknown": pd.Series(self.unknown, dtype="str"), **notes}

    def _require_readable(self) -> Bools:
        """Which rows can be evaluated; an error if none can."""
        rows = self.readable
        if self.reasons is not None and not rows.any():
            raise InputError(f"at least one row must be readable to evaluate; none is; row 0: {self.reasons[0]}")
        return rows


def mean(values: NDArray[Any]) -> float:
    """The mean; NaN without a warning if there are no values."""
    return float(values.mean()) if len(values) else float("nan")


def share(value: float | None, digits: int = 3) -> str:
    """A share for a table; a dash if there is none."""
    return "–" if value is None or np.isnan(value) else f"{value:.{digits}f}"


def amount(value: float | None) -> str:
    """A number as text, with four digits or all before the point; a dash if there is none.

    >>> amount(45296.31), amount(0.123456), amount(-12.5), amount(1e9), amount(float("inf")), amount(None)
    ('45,296', '0.1235', '-12.5', '1,000,000,000', '∞', '–')
    """
    if value is None or np.isnan(value):
        return "–"
    if np.isinf(value):
        return "∞" if value > 0 else "-∞"
    if abs(value) >= 1e12 or 0 < abs(value) < 1e-4:
        return f"{value:.3e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def by_chance(law: tuple[float, float] | None) -> str:
    """The range of coverage that chance explains, as text after the requested coverage; empty if it is not known."""
    return "" if law is None else f", chance gives {law[0]:.3f} to {law[1]:.3f}"


def as_csv(frame: pd.DataFrame, delimiter: str = ",", *, harmless: bool = False) -> str:
    """A frame of predictions as CSV text; the labels of a prediction set are joined by |.

    harmless: make it safe for spreadsheets, which would take cells such as =1+1 for formulas.
    """
    joined = frame.map(lambda value: "|".join(map(str, value)) if isinstance(value, list) else value)
    if harmless:
        joined = joined.map(harmless_cell).rename(columns=harmless_cell)
    return str(joined.to_csv(index=False, sep=delimiter, lineterminator="\n"))


def harmless_cell(value: Any) -> Any:
    """A cell or column name that no spreadsheet takes for a formula: a leading apostrophe makes it text.

    >>> harmless_cell("=HYPERLINK(1)"), harmless_cell("-3.5"), harmless_cell(-3.5)
    ("'=HYPERLINK(1)", '-3.5', -3.5)
    """
    formula = isinstance(value, str) and value.startswith(_FORMULAS) and not _NUMBER.fullmatch(value)
    return f"'{value}" if formula else value
