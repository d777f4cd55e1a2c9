"""The worth of each training example for the rows of a page whose labels are known, given its edits.

worths = Worths(explorer)
list_worth(worths, session)       # the most and the least helpful, and what removing each would change, exactly
column(worths, session)           # (n,): the relative worth of all points, for the map

Computed when a page first asks, and cached for the last edits. It takes seconds with many voters, so it runs without
the lock of the explorer: other requests need not wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac.drawing.records import plain
from dwac.report.measures import used_in_training
from dwac.report.worth import Worth, draw_judges, judges_of, worth_for
from dwac.server.explorer.state import Explorer
from dwac.server.explorer.views import View
from dwac.tasks import NUMBERS

SHOWN = 10  # of each kind
_KEPT = 4


@dataclass(eq=False)
class Worths:
    """The worth of voters, after the edits of any page."""

    explorer: Explorer
    _lock: threading.Lock = field(default_factory=threading.Lock)  # two requests of one page need the same result

    def of(self, session: str) -> Worth:
        """The worth with the edits of this page."""
        self.explorer.require_open("it shows nothing of single training examples")
        edits = self.explorer.history(session).net
        with self._lock:
            return self._measured(tuple(sorted(edits.items())))

    @cached_property
    def _measured(self) -> Callable[..., Worth]:
        """The worth after some edits; cached for the edits of the latest requests."""
        return lru_cache(_KEPT)(lambda edits: self._measure(self.explorer.view_with(dict(edits))))

    @property
    def by_training(self) -> bool:
        """Whether worth is measured on training examples, each without its own vote: no label of the data is known."""
        return len(self._known) == 0

    @cached_property
    def _known(self) -> NDArray[np.int64]:
        """Rows of data whose labels or numbers are known."""
        explorer = self.explorer
        known = explorer.task.known(explorer.examples.truth) if explorer.points.n_data else np.zeros(0, dtype=bool)
        return np.flatnonzero(known)

    def _measure(self, view: View) -> Worth:
        explorer, points = self.explorer, self.explorer.points
        n_training, references = points.n_training, points.references
        rows = np.arange(n_training) if self.by_training else self._known
        chosen = rows[draw_judges(len(rows), n_training)]
        if self.by_training:
            h, names = references.embeddings[chosen].cpu().numpy(), references.voters.ids[chosen]
        else:
            h, names = explorer.examples.h[chosen], explorer.examples.ids[chosen]
        own = np.full(len(chosen), -1)
        if self.by_training or used_in_training(explorer.clf, names, h).any():
            own = view.clf.references_.voters.ids.get_indexer(names)
        # Worth is still measured on removed examples: so the stated effect of a removal is what the page then shows.
        truth = points.values(view)[chosen + (0 if self.by_training else n_training)]
        return worth_for(view.clf, judges_of(view.clf, h, truth, own), len(rows))


def column(worths: Worths, session: str) -> NDArray[np.float32]:
    """(n,): the relative worth of all points; NaN for rows of data and for voters that were removed."""
    result, points = worths.of(session), worths.explorer.points
    values = np.full(len(points), np.nan, dtype="<f4")
    values[points.references.voters.ids.get_indexer(result.table.index)] = result.table["relative"]
    return values


def list_worth(worths: Worths, session: str) -> dict[str, Any]:
    """The most and least helpful within their class; the mean probability or squared error now and without each."""
    result = worths.of(session)
    most, least = result.ends(SHOWN)
    return {
        "most": _rows(worths, session, result, most),
        "least": _rows(worths, session, result, least),
        "before": _shown(result, result.whole),
        "together": result.together,
        "harming": result.harming,
        "n": len(result.table),
        "judges": len(result.judges.own),
        "rows": result.n_rows,
        "by_training": worths.by_training,
    }


def _rows(worths: Worths, session: str, result: Worth, part: pd.DataFrame) -> list[dict[str, Any]]:
    points, task = worths.explorer.points, worths.explorer.task
    places = points.references.voters.ids.get_indexer(part.index)
    values = points.values(worths.explorer.view(session))[places]
    return [
        {
            "point": int(place),
            "id": plain(name),
            "true": task.named(value),
            "worth": float(row["worth"]),
            "relative": float(row["relative"]),
            "standard_error": plain(float(row["standard_error"])),
            "after": _shown(result, result.whole + row["if_removed"]),
        }
        for place, value, (name, row) in zip(places, values, part.iterrows(), strict=True)
    ]


def _shown(result: Worth, score: float) -> float:
    """A probability, or a squared error."""
    return float(-score if result.clf.target_.kind == NUMBERS else score)
