"""How peers are tuned: climb a grid to its best point, keep every score, and say if the best lies at an edge.

A journal keeps each score as soon as it is known, so that a stopped search goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwac.paper.cases import PaperError

Values = dict[str, Any]
Scored = dict[str, Any]  # {"loss": …} and whatever else was found, such as rounds
OnTried = Callable[[Values, Scored], None]
# What ends a grid because there is nothing beyond: all columns, no split, all categories singly or none.
ENDS: dict[str, tuple[Any, ...]] = {"max_depth": (1,), "colsample_bytree": (1.0,), "max_cat_to_onehot": (1, 100)}


class Journal:
    """The scores of a search, a line each in a file that holds for one state of the code; without a path, in memory."""

    def __init__(self, path: Path | None = None, stamp: str = "", on_tried: OnTried | None = None) -> None:
        self.path, self.stamp, self.on_tried = path, stamp, on_tried
        self._known: dict[str, Scored] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                    if entry["stamp"] == stamp:
                        self._known[_key(entry["values"])] = entry["scored"]
                except (ValueError, KeyError, TypeError):  # the line at which a run was cut off
                    continue

    def score(self, values: Values, measure: Callable[[], Scored]) -> Scored:
        """What `measure` found of these values, now or earlier."""
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
                f"{self.path} cannot be written: {error.strerror}; free it or choose another folder"
            ) from None

    def done(self) -> None:
        """Remove the file: its record holds all that it held."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _key(values: Values) -> str:
    return json.dumps(values, sort_keys=True)


@dataclass(frozen=True)
class Tuned:
    """The best point of a grid, what was found of it, every point tried, and the names at whose edge the best lies."""

    best: Values
    found: Scored
    tried: list[Values]
    edges: list[str]


def climb(grid: dict[str, list[Any]], start: Values, score: Callable[[Values], Scored]) -> Tuned:
    """From `start`, go to the neighbour with the lowest loss until no neighbour in the grid has a lower one.

    Neighbours differ in one value, by one step of its list. So the best has a worse point on either side of each value,
    or lies at the end of its list: that is named in `edges`, unless there is nothing beyond (`ENDS`).

    >>> found = climb({"x": [1, 2, 3, 4, 5]}, {"x": 2}, lambda values: {"loss": abs(values["x"] - 4)})
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
        name for name, of in grid.items() if best[name] in (of[0], of[-1]) and best[name] not in ENDS.get(name, ())
    ]
    return Tuned(best, found, tried, edges)


def _neighbours(grid: dict[str, list[Any]], values: Values) -> list[Values]:
    found = []
    for name, of in grid.items():
        at = of.index(values[name])
        found += [values | {name: of[place]} for place in (at - 1, at + 1) if 0 <= place < len(of)]
    return found
