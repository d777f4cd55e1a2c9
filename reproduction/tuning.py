"""How peers are tuned: hill climbing on a grid. Every score is kept, and a best point at an edge is reported.

A journal stores each score at once, so an interrupted search resumes where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.cases import PaperError

Values = dict[str, Any]
Scored = dict[str, Any]  # {"loss": …} and whatever else was found, such as rounds
OnTried = Callable[[Values, Scored], None]
# Values that no grid could go beyond: stumps, all columns, one-hot splits for all categories or for none.
LIMITS: dict[str, tuple[Any, ...]] = {
    "max_depth": (1,),
    "colsample_bytree": (1.0,),
    "max_cat_to_onehot": (1, 100),
    "num_leaves": (2,),
    "depth": (1,),
    "rsm": (1.0,),
    "one_hot_max_size": (2, 100),
}


class Journal:
    """The scores of a search, one per line of a file; without a path, in memory.

    Only scores with the same stamp are read: those from the same version of the code.
    """

    def __init__(self, path: Path | None = None, stamp: str = "", on_tried: OnTried | None = None) -> None:
        self.path, self.stamp, self.on_tried = path, stamp, on_tried
        self._known: dict[str, Scored] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                    if entry["stamp"] == stamp:
                        self._known[_key(entry["values"])] = entry["scored"]
                except (ValueError, KeyError, TypeError):  # the line that an interrupted run did not finish
                    continue

    def score(self, values: Values, measure: Callable[[], Scored]) -> Scored:
        """The score of these values: read from the journal, or measured now."""
        if _key(values) not in self._known:
            self._known[_key(values)] = found = measure()
            if self.path is not None:
                self._append({"stamp": self.stamp, "values": values, "scored": found})
            if self.on_tried is not None:
                self.on_tried(values, found)
        return self._known[_key(values)]

    def _append(self, entry: dict[str, Any]) -> None:
        assert self.path is not None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise PaperError(
                f"{self.path} cannot be written: {error.strerror}; free space or choose another folder"
            ) from None

    def done(self) -> None:
        """Remove the file; the record now has all its scores."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _key(values: Values) -> str:
    return json.dumps(values, sort_keys=True)


@dataclass(frozen=True)
class Tuned:
    """The best point of a grid and its score, all points tried, and the settings whose best value is at an edge."""

    best: Values
    found: Scored
    tried: list[Values]
    edges: list[str]


def hill_climb(grid: dict[str, list[Any]], start: Values, score: Callable[[Values], Scored]) -> Tuned:
    """From `start`, move to the neighbour with the lowest loss until no neighbour has a lower one.

    Neighbours differ by one step in one setting. A setting whose best value is the first or last of its list is in
    `edges`: values outside the grid might be better. Values in `LIMITS` are exempt, as nothing lies beyond them.

    >>> found = hill_climb({"x": [1, 2, 3, 4, 5]}, {"x": 2}, lambda values: {"loss": abs(values["x"] - 4)})
    >>> found.best, [tried["x"] for tried in found.tried], found.edges
    ({'x': 4}, [2, 1, 3, 4, 5], [])
    """
    tried: list[Values] = []
    best, found = dict(start), score(start)
    tried.append(best | found)
    while True:
        here = best
        for values in _neighbours(grid, here):
            if all(any(old[name] != values[name] for name in values) for old in tried):
                scored = score(values)
                tried.append(values | scored)
                if scored["loss"] < found["loss"]:
                    best, found = values, scored
        if best == here:
            break
    edges = [
        name for name, of in grid.items() if best[name] in (of[0], of[-1]) and best[name] not in LIMITS.get(name, ())
    ]
    return Tuned(best, found, tried, edges)


def _neighbours(grid: dict[str, list[Any]], values: Values) -> list[Values]:
    found = []
    for name, of in grid.items():
        at = of.index(values[name])
        found += [values | {name: of[place]} for place in (at - 1, at + 1) if 0 <= place < len(of)]
    return found
