"""The experiments by name, in the paper's order."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Protocol

from reproduction import accuracy, agreement, dimension, domain, explanations, maps, sets, tried
from reproduction.cases import Case
from reproduction.fit import Fitted
from reproduction.tables import Found, Section


class Experiment(Protocol):
    """An experiment, one per file: the cases it needs, what it measures on each, and its section of the report.

    It may also have `needs(case)`: the names of other datasets that it needs for a case.
    """

    TITLE: str

    def cases(self) -> Iterable[Case]:
        """The cases that it needs."""

    def measure(self, fitted: Fitted) -> dict[str, Any]:
        """Its measurements on one case, for the record."""

    def report(self, found: Found) -> Section:
        """Its section of the report, from the records found."""


EXPERIMENTS: dict[str, Experiment] = {
    "accuracy": accuracy,
    "agreement": agreement,
    "dimension": dimension,
    "maps": maps,
    "explanations": explanations,
    "sets": sets,
    "domain": domain,
    "tried": tried,
}


@cache
def _cases(name: str) -> frozenset[Case]:
    return frozenset(EXPERIMENTS[name].cases())


def wanted_by(case: Case) -> list[str]:
    """The experiments that need a case."""
    return [name for name in EXPERIMENTS if case in _cases(name)]
