"""An explanation for the page: `Explanation.to_dict`, its sentences, and the columns that differ."""

from __future__ import annotations

from typing import Any

from dwac.drawing.records import compared, kind_of
from dwac.explain import Explanation
from dwac.server.explorer.points import Points

_LETTERS = 40  # shown per value in a table


def explained(explanation: Explanation, points: Points | None) -> dict[str, Any]:
    """A dict for JSON; with `points`, also the positions of the neighbours among them."""
    neighbors = explanation.neighbors
    kind = kind_of(explanation.record)
    records = [neighbor.record for neighbor in neighbors]
    columns = compared(explanation.record, records, _LETTERS) if kind == "table" and not explanation.private else []
    open_ = points is not None and points.n_training and not explanation.private
    places = points.references.positions([n.id for n in neighbors]).tolist() if points is not None and open_ else None
    return {
        "kind": kind,
        "explanation": explanation.to_dict(),
        "sentences": explanation.sentences(),
        "compared": [column._asdict() for column in columns],
        "neighbor_points": places,
    }
