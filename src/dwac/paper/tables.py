"""What sections of the report are made of: records by case, means over trials, Markdown tables, pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dwac.paper.cases import Case
from dwac.paper.records import Record

NOT_RUN = "not run"
NONE = "–"  # where there is nothing to run
MODELS = {"paper": "The paper's models", "best": "Our best models"}
NAMES = {"dwac": "DWAC", "softmax": "softmax"}
FIGURES = "FIGURES"  # stands for the folder of figures until the report knows where it lies
Draw = Callable[[], Any]
Cell = tuple[str, str, str]  # dataset, setting, head


@dataclass(frozen=True)
class Section:
    """A part of the report: Markdown, and by name functions that draw its figures."""

    title: str
    text: str
    figures: dict[str, Draw] = field(default_factory=dict)


class Found:
    """Records that a report is made from.

    `fields` are a case's embedding_size, without and variant: None unless given.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self.by_case = {Case(**record["case"]): record for record in records}
        self._by_cell: dict[Case, list[Record]] = {}  # all trials, under the first one's case
        for case in sorted(self.by_case, key=lambda case: case.trial):
            self._by_cell.setdefault(replace(case, trial=0), []).append(self.by_case[case])

    def get(self, case: Case, experiment: str) -> Any:
        """What an experiment measured of a case, or None."""
        return _at(self.by_case.get(case), ("metrics", experiment))

    def of(self, cell: Cell, **fields: Any) -> list[Record]:
        """The records of all trials."""
        return self._by_cell.get(Case(*cell, **fields), [])

    def values(self, cell: Cell, *path: Any, **fields: Any) -> list[Any]:
        """One value of each trial: where `path` leads within a record's metrics."""
        found = (_at(record["metrics"], path) for record in self.of(cell, **fields))
        return [value for value in found if value is not None]

    def mean(self, cell: Cell, *path: Any, **fields: Any) -> float | None:
        """The mean of `values`, or None of none."""
        values = self.values(cell, *path, **fields)
        return float(np.mean(values)) if values else None


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
    return f"{np.mean(values):.{digits}f}{off} ({len(values)})"


def number(value: float | None, style: str = ".3f", none: str = NOT_RUN) -> str:
    """A number, or what stands for none."""
    return none if value is None else format(value, style)


def points(a: float | None, b: float | None) -> str:
    """How much a is above b, in hundredths."""
    return NOT_RUN if a is None or b is None else f"{100 * (a - b):+.2f}"


def verdict(met: bool | None, *, whole: bool = True) -> str:
    """A claim met, missed, or with nothing to judge it by; `whole`: whether all trials were run."""
    return NOT_RUN if met is None else ("**met**" if met else "**missed**") + ("" if whole else " so far")


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
    """A figure of the section, with what it shows in words."""
    return f"![{alt}]({FIGURES}/{name}.png)"


def paragraphs(*parts: str) -> str:
    """Parts of Markdown with an empty line between."""
    return "\n\n".join(part for part in parts if part)
