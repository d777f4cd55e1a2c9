"""What sections of the report are made of: records by case, means over trials, Markdown tables, pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dwac.paper.cases import Case
from dwac.paper.records import Record

NOT_RUN = "not run"
Draw = Callable[[], Any]
FIGURES = "FIGURES"  # stands for the folder of figures until the report knows where it lies


@dataclass(frozen=True)
class Section:
    """A part of the report: Markdown, and by name functions that draw its figures."""

    title: str
    text: str
    figures: dict[str, Draw] = field(default_factory=dict)


class Found:
    """Records that a report is made from."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.all = list(records)
        self._by_case = {Case(**record["case"]): record for record in self.all}
        self._by_cell: dict[Case, list[Record]] = {}  # all trials, under the first one's case
        for case in sorted(self._by_case, key=lambda case: case.trial):
            self._by_cell.setdefault(replace(case, trial=0), []).append(self._by_case[case])

    def __len__(self) -> int:
        return len(self.all)

    def get(self, case: Case) -> Record | None:
        """A case's record, or None."""
        return self._by_case.get(case)

    def of(self, dataset: str, setting: str, head: str, **fields: Any) -> list[Record]:
        """The records of all trials; `fields`: embedding_size, without and variant, None unless given."""
        return self._by_cell.get(Case(dataset, setting, head, **fields), [])

    def values(self, cell: tuple[str, str, str], *path: Any, **fields: Any) -> list[float]:
        """One number of each trial: where `path` leads within a record's metrics."""
        found = (_at(record["metrics"], path) for record in self.of(*cell, **fields))
        return [value for value in found if value is not None]


def _at(values: Any, path: Sequence[Any]) -> Any:
    for name in path:
        if values is None or str(name) not in values:
            return None
        values = values[str(name)]
    return values


def mean(values: Sequence[float]) -> float | None:
    """The mean, or None of none."""
    return float(np.mean(values)) if len(values) else None


def spread(values: Sequence[float], digits: int = 4) -> str:
    """Mean ± standard deviation (trials), or "not run".

    >>> spread([0.8, 0.9, 0.85])
    '0.8500 ± 0.0500 (3)'
    """
    if not len(values):
        return NOT_RUN
    off = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{off} ({len(values)})"


def number(value: float | None, digits: int = 3) -> str:
    """A number, or – for none."""
    return "–" if value is None else f"{value:.{digits}f}"


def verdict(met: bool | None) -> str:
    """A claim met, missed, or with nothing to judge it by."""
    return NOT_RUN if met is None else "**met**" if met else "**missed**"


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
