"""The experiments by name, in the paper's order."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Protocol

from dwac.paper import accuracy, agreement, dimension, domain, explanations, maps, sets, tried
from dwac.paper.cases import Case
from dwac.paper.fit import Fitted
from dwac.paper.tables import Found, Section


class Experiment(Protocol):
    """One file each: which cases it needs, what it measures of each, and what it makes of their records.

    An experiment may also have `needs(case)`: the names of further datasets without which it cannot measure.
    """

    TITLE: str

    def cases(self) -> Iterable[Case]:
        """The cases whose records it reads."""

    def measure(self, fitted: Fitted) -> dict[str, Any]:
        """What it adds to the record of one of them."""

    def report(self, found: Found) -> Section:
        """What it makes of the records that are there."""


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
