"""Who is touched: the recorded decisions that other training examples would change, and what each source contributed.

Both follow from the votes alone: nothing is trained, and every number is that of the edited model.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dwac._checks import listed
from dwac.errors import InputError
from dwac.estimator.observed import Observed
from dwac.reading.rows import Estimator
from dwac.records.log import FACTS, Folder
from dwac.records.replaying import DecidedRows, Recorded
from dwac.reference import ReferenceSet
from dwac.reference.references import set_of
from dwac.tasks import LABELS, NUMBERS

_UNKNOWN = "unknown"  # the source of voters without one
_NAMED = 5  # ids named in a sentence
_VOTES = 2**24  # held at once


@dataclass(frozen=True)
class Impact:
    """The recorded decisions that change.

    >>> print(Impact(143, pd.DataFrame({"id": ["213"], "before": ["malignant"], "after": ["benign"]})))
    1 of 143 decisions change: '213'
    """

    n: int  # decisions that were compared
    decisions: pd.DataFrame  # time, id, before, after: those that change; for several numbers, a list of each
    changed: list[str] = field(default_factory=list)  # ids whose rows in the data are not those that were decided on
    missing: list[str] = field(default_factory=list)  # ids that the data does not have

    def __str__(self) -> str:
        names = self.decisions["id"].tolist()
        lines = [f"{len(names):,} of {self.n:,} decisions change" + (f": {listed(names, _NAMED)}" if names else "")]
        for left, why in ((self.changed, "the row in the data is another"), (self.missing, "the data has no such row")):
            if left:
                lines.append(f"{len(left):,} not compared: {why}: {listed(left, _NAMED)}")
        return "\n".join(lines)


def impact(
    folder: Folder,
    clf: Estimator,
    X: Any,
    ids: Iterable[Hashable] | None = None,
    *,
    forget: Iterable[Hashable] = (),
    relabel: Mapping[Hashable, Any] | None = None,
    tolerance: float = 0.0,
) -> Impact:
    """The recorded decisions that change if training examples are forgotten or get other labels, without training.

    Exactly what `clf.forget(ids)` and `clf.relabel(ids, y)` would answer; `clf` stays as it is.

    Args:
        folder: the record. clf: the model that made it. X, ids: the rows of the decisions.
        forget: ids of examples. relabel: {id: label}, or the number.
        tolerance: of numbers: those that move by no more than this count as unchanged.
    """
    edited = _edit(clf, list(forget), dict(relabel or {}))
    recorded = Recorded.find(folder, clf, X, ids, other_model=False, columns=list(FACTS))
    frames = [pd.DataFrame(columns=["time", "id", "before", "after"], dtype=object)]
    for part in recorded.parts(clf, X):
        before, after = _answers(part.clf, part.observed), _answers(edited, _observe(edited, part))
        moved = np.abs(after - before) > tolerance if clf.target_.kind == NUMBERS else after != before
        rows = np.flatnonzero(moved.reshape(len(moved), -1).any(axis=1))
        facts = part.then.select(["time", "id"]).take(rows).to_pandas()
        frames.append(facts.assign(before=_cells(clf, before[rows]), after=_cells(clf, after[rows])))
    return Impact(recorded.n, pd.concat(frames, ignore_index=True), recorded.changed, recorded.missing)


def _edit(clf: Estimator, forget: list[Any], relabel: dict[Any, Any]) -> Estimator:
    """The model after the edit; the one given stays as it is."""
    if not forget and not relabel:
        raise InputError("impact needs examples to forget or to relabel; got none; give ids")
    edited = copy(clf)
    if relabel:
        edited.relabel(list(relabel), list(relabel.values()))
    return edited.forget(forget) if forget else edited


def _observe(edited: Estimator, part: DecidedRows) -> Observed:
    """The rows as the edited model reads them: as before, unless the encoder has forgotten a category, too."""
    if edited.fitted_.encoder is part.observed.fitted.encoder:
        return Observed(edited.fitted_, part.observed.rows, part.observed.h)
    model = copy(edited)
    model.unknown = part.clf.unknown
    return model.observe(part.observed.rows.X, private=part.settings["private"])


def _answers(clf: Estimator, observed: Observed) -> NDArray[Any]:
    """(n, …): codes of labels, 0 and 1 for each of several labels, or numbers."""
    if clf.target_.kind == NUMBERS:
        return np.asarray(clf.sets_.values(observed))
    return np.asarray(clf.target_.predict(observed.votes))


def _cells(clf: Estimator, answers: NDArray[Any]) -> list[Any]:
    if clf.target_.kind == LABELS and not clf.target_.listed:
        return [[name for name, has in zip(clf.target_.plain_names, row, strict=True) if has] for row in answers]
    if answers.ndim == 2 and clf.target_.single:
        answers = answers[:, 0]
    cells: list[Any] = answers.tolist()
    return cells


# The ledger


def ledger(
    folder: Folder,
    clf: Estimator,
    X: Any,
    ids: Iterable[Hashable] | None = None,
    *,
    by: str | Mapping[Hashable, Any],
) -> pd.DataFrame:
    """What each source contributed to the recorded decisions: the sum of its shares of the votes.

    by: a column of the training records, or {id of a training example: source}. In a condensed model, the examples
    that a representative stands for share its votes equally.

    Columns: source, examples (how many vote), decisions (a sum of shares: over all sources, the number of decisions),
    share (of all decisions), and per_example.
    """
    references = clf.references_
    examples = references if references.members is None else references.members
    names, sources = np.unique(_sources(clf, examples, by), return_inverse=True)
    divided, parts = _divide(references, sources)
    totals = np.zeros(divided.n_classes)
    recorded = Recorded.find(folder, clf, X, ids, other_model=False, columns=list(FACTS))
    for part in recorded.parts(clf, X):
        for h in part.observed.h.split(max(1, _VOTES // len(totals))):
            votes = divided.log_class_weights(h).cpu().numpy()
            totals += np.exp(votes - np.logaddexp.reduce(votes, axis=1, keepdims=True)).sum(axis=0)
    decisions = np.bincount(sources, (totals / np.bincount(parts))[parts])
    counts = np.bincount(sources, examples.sizes)
    table = pd.DataFrame({"source": names, "examples": counts.round().astype(int), "decisions": decisions})
    table = table.assign(share=decisions / max(recorded.n, 1), per_example=decisions / counts)
    return table.sort_values("decisions", ascending=False, kind="stable", ignore_index=True)


def _sources(clf: Estimator, references: ReferenceSet, by: str | Mapping[Hashable, Any]) -> list[str]:
    """(m,): the source of each example, as text."""
    if not isinstance(by, str):
        values: list[Any] = [by.get(name) for name in references.ids.tolist()]
    else:
        rows = clf.fitted_.examples.rows(references.ids) if len(clf.fitted_.examples) else None
        if rows is None:
            raise InputError("the model keeps no training records; give the source of each example: {id: source}")
        if not isinstance(rows, pd.DataFrame) or by not in rows:
            held = listed(rows.columns) if isinstance(rows, pd.DataFrame) else "none"
            raise InputError(
                f"the source must be a column of the training records; {by!r} is not (columns: {held}); for another "
                "column, give the source of each example: {id: source}"
            )
        values = rows[by].tolist()
    return [_UNKNOWN if value is None or value != value else str(value) for value in values]


def _divide(references: ReferenceSet, sources: NDArray[np.int64]) -> tuple[ReferenceSet, NDArray[np.int64]]:
    """The same voters in smaller classes, each of one source; and (m,) the class of each example.

    A representative votes for examples of several sources, so it gets a class of its own: these share its votes.
    """
    voters, labels = references.voters, references.labels.cpu().numpy()
    if references.members is None:
        _, first, codes = np.unique(labels * (sources.max() + 1) + sources, return_index=True, return_inverse=True)
        parts = codes
    else:
        first = codes = np.arange(len(labels))
        parts = references.members.groups.leaves  # the number of a leaf is the row of its representative
    weights = None if voters.class_weights is None else tuple(references.class_weights[labels[first]].tolist())
    changes: dict[str, Any] = {"division": None, "members": None, "targets": None, "class_weights": weights}
    changes |= {"labels": torch.as_tensor(codes, device=voters.labels.device), "n_classes": len(first)}
    return set_of(replace(voters, **changes)), parts
