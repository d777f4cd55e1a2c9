"""Building blocks of the report: records by case, means over trials, Markdown tables, figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from reproduction.cases import Case
from reproduction.records import Record

NOT_RUN = "not run"
NONE = "–"  # nothing to run
STALE = "†"  # marks numbers from records that another version of the code made
NOT_HELD = "not in this record"  # missing in records of earlier code
MODELS = {"paper": "The paper's models", "best": "Our best models"}
NAMES = {"dwac": "DWAC", "softmax": "softmax"}
FIGURES = "FIGURES"  # placeholder for the folder of figures
Draw = Callable[[], Any]
Cell = tuple[str, str, str]  # dataset, setting, head


@dataclass(frozen=True)
class Section:
    """A section of the report: Markdown, and functions that draw its figures, by name."""

    title: str
    text: str
    figures: dict[str, Draw] = field(default_factory=dict)


class Value(float):
    """A number from records, and whether one of them is stale."""

    stale = False

    @classmethod
    def of(cls, value: float, stale: bool) -> Value:
        """The number with its mark."""
        marked = cls(value)
        marked.stale = stale
        return marked


def mark(*values: Any) -> str:
    """The mark of a number computed from these."""
    return STALE if any(getattr(value, "stale", False) for value in values) else ""


class Found:
    """The records of a report, and which of them are stale.

    `fields` are embedding_size, without and variant of a case: None unless given.
    """

    def __init__(self, records: Iterable[Record], stale: Callable[[Record], bool] | None = None) -> None:
        self.by_case = {Case(**record["case"]): record for record in records}
        self.stale = {case for case, record in self.by_case.items() if stale is not None and stale(record)}
        self._by_cell: dict[Case, list[Record]] = {}  # all trials, under the first one's case
        for case in sorted(self.by_case, key=lambda case: case.trial):
            self._by_cell.setdefault(replace(case, trial=0), []).append(self.by_case[case])

    def get(self, case: Case, experiment: str) -> Any:
        """What an experiment measured for a case, or None."""
        return _at(self.by_case.get(case), ("metrics", experiment))

    def of(self, cell: Cell, **fields: Any) -> list[Record]:
        """The records of all trials."""
        return self._by_cell.get(Case(*cell, **fields), [])

    def values(self, cell: Cell, *path: Any, **fields: Any) -> list[Any]:
        """One value per trial: the one at `path` in the metrics of a record."""
        found = []
        for record in self.of(cell, **fields):
            if (value := _at(record["metrics"], path)) is not None:
                old = Case(**record["case"]) in self.stale
                found.append(Value.of(value, old) if isinstance(value, float | int) else value)
        return found

    def is_stale(self, cell: Cell, **fields: Any) -> bool:
        """Whether any trial's record is stale."""
        return any(Case(**record["case"]) in self.stale for record in self.of(cell, **fields))

    def mean(self, cell: Cell, *path: Any, **fields: Any) -> float | None:
        """The mean of `values`, or None without values."""
        values = self.values(cell, *path, **fields)
        return Value.of(float(np.mean(values)), bool(mark(*values))) if values else None


def _at(values: Any, path: Sequence[Any]) -> Any:
    for name in path:
        if values is None or str(name) not in values:
            return None
        values = values[str(name)]
    return values


def spread(values: Sequence[float], digits: int = 4) -> str:
    """Mean ± standard deviation (trials), or "not run".

    >>> spread([0.8, 0.9, 0.85])
    '0.8500 ± 0.0500 (3)'
    """
    if not len(values):
        return NOT_RUN
    off = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{off} ({len(values)}){mark(*values)}"


def number(value: float | None, style: str = ".3f", none: str = NOT_RUN) -> str:
    """A number, or the text for none."""
    return none if value is None else format(float(value), style) + mark(value)


def points(a: float | None, b: float | None) -> str:
    """How much a is above b, in hundredths."""
    return NOT_RUN if a is None or b is None else f"{100 * (a - b):+.2f}{mark(a, b)}"


def verdict(met: bool | None, *, whole: bool = True, stale: bool = False) -> str:
    """Whether a claim is met or missed, or "not run"; `whole`: whether all trials were run."""
    if met is None:
        return NOT_RUN
    return ("**met**" if met else "**missed**") + ("" if whole else " so far") + STALE * stale


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table.

    >>> print(table(["a", "|h|"], [["1", "2"]]))
    | a | \\|h\\| |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def picture(name: str, alt: str) -> str:
    """A figure of the section, with its description."""
    return f"![{alt}]({FIGURES}/{name}.png)"


def paragraphs(*parts: str) -> str:
    """Parts of Markdown with an empty line between."""
    return "\n\n".join(part for part in parts if part)
