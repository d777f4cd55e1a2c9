"""Questions to a fitted model about one row, its voters and the rows between them: for reasons and recourse."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac._checks import listed
from dwac.drawing.legend import Legend
from dwac.encoders import ImageEncoder, TabularEncoder
from dwac.errors import InputError, LabelError
from dwac.estimator.fitted import Fitted
from dwac.estimator.observed import Observed, input_distances, judge_rows, observe
from dwac.estimator.preparation import take
from dwac.explain import Importance, Recourse, privacy
from dwac.explain.hybrids import Hybrids, Pool, leave_out, mix_images, mix_tables, mix_texts
from dwac.explain.importance import importance_of
from dwac.explain.numbers import numerals_of
from dwac.explain.recourse import make_private
from dwac.explain.voters import plain_ids
from dwac.explain.votes import Votes
from dwac.explain.ways import Ways
from dwac.nn import batches
from dwac.tasks.base import LABELS, NUMBERS

_SMALL = ("default", "paper")  # networks of images
_PIXELS = 32 * 32  # of an image, up to which a dozen questions take about 50 ms
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RowInquiry:
    """A row and a model that answers questions about it; see `dwac.explain.comparing.Inquiry`.

    X: rows, of which this is one. distances: of rows from voters, as `input_distances` gives them. which: of several
    labels or numbers, the one in question. shown: rows as a person sees them, if known.
    """

    fitted: Fitted
    sets: Any
    unknown: str
    X: Any
    distances: Callable[[int, list[Any]], Floats] | None
    private: bool
    row: int
    which: int
    shown: Sequence[Mapping[str, Any]] | None = None

    @cached_property
    def _own(self) -> Any:
        """The row, in the form in which it is mixed with others."""
        return self._form(take(self.X, np.array([self.row])))

    def _form(self, rows: Any) -> Any:
        """Rows of a table as a frame, texts as a list, images as a tensor."""
        encoder = self.fitted.encoder
        if isinstance(encoder, TabularEncoder):
            frame = encoder.records(rows)
            dates = [c.name for c in encoder.columns if c.kind == "datetime" and frame[c.name].dtype == object]
            frame = frame.copy() if dates else frame
            for name in dates:  # as texts, in JSON and files
                frame[name] = pd.to_datetime(frame[name], utc=True, format="ISO8601").dt.tz_localize(None)
            return frame
        if encoder.kind in ("text", "huggingface"):
            return encoder.records(rows)["text"].tolist()
        if isinstance(encoder, ImageEncoder):
            if isinstance(rows, pd.DataFrame) and "image" in rows:  # records, of a saved model
                return torch.cat([encoder.transform(encoder.from_record(png))[0] for png in rows["image"]])
            return encoder.transform(rows)[0]
        if isinstance(rows, tuple) or getattr(rows, "ndim", 0) != 2:
            raise InputError(
                "reasons need columns, texts or images; your own network takes something else; give it X as a table "
                "(n, columns) to compare rows by column"
            )
        return rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(np.asarray(rows))

    def _voters(self, ids: list[Any]) -> Any:
        """Voters, by id, in the same form."""
        rows = self.fitted.examples.rows(ids)
        if rows is None:
            raise InputError(
                "reasons and recourse compare the row with training examples, and this model holds none; ask the model "
                "it was saved from, or save with include_examples=True"
            )
        return self._form(rows)

    def hybrids(self, voters: Sequence[Any], tied: Sequence[Collection[Any]] = ()) -> list[Hybrids]:
        """Hybrids of the row and each of these voters, by id; tied: columns that move together."""
        own, others = self._own, self._voters(list(voters))
        if isinstance(own, pd.DataFrame):
            columns: list[Any] | None = getattr(self.fitted.encoder, "columns", None)
            used = None if columns is None else {column.name for column in columns if column.used}
            pool = Pool(own, others)
            return [mix_tables(pool, number, tied, used) for number in range(1, len(voters) + 1)]
        if tied:
            kind = self.fitted.encoder.kind
            raise InputError(f"tied is for columns of a table; got {tied!r} with {kind}s; leave it out")
        if isinstance(own, Tensor):
            return [mix_images(own, others[place : place + 1]) for place in range(len(voters))]
        return [mix_texts(own[0], other) for other in others]

    @property
    def is_quick(self) -> bool:
        """Whether the network is small: one that dwac trains from the start, and images up to 32 × 32 pixels."""
        encoder = self.fitted.encoder
        if not isinstance(encoder, ImageEncoder):
            return encoder.kind == "text"
        return encoder.settings["network"] in _SMALL and math.prod(encoder.seen.shape[1:]) <= _PIXELS

    def phrases(self) -> Hybrids | None:
        """The row, a text, with phrases left out; None if it is something else."""
        return leave_out(self._own[0]) if isinstance(self._own, list) else None

    def pool(self, voters: list[Any]) -> Pool:
        """The row and these voters, by id, as rows of one table."""
        return Pool(self._own, self._voters(voters))

    def embed(self, rows: Any) -> Tensor:
        """(n, d): the embeddings of hybrids."""
        fitted = self.fitted
        if isinstance(rows, Tensor):
            return batches.embed(fitted.model, (rows,))
        judged = judge_rows(fitted, self._as_given(rows), self.unknown, private=self.private)
        return batches.embed(fitted.model, judged.inputs)

    def _as_given(self, rows: Any) -> Any:
        """Hybrids in the form that the encoder takes: an array for your own network, if X is one."""
        of_array = self.fitted.encoder.kind == "module" and not isinstance(self.X, pd.DataFrame)
        return rows.to_numpy() if of_array else rows

    def contrast(self, h: Tensor, label: int, other: int) -> Floats:
        """(n,): log-odds of one label against the other, by code, or predicted numbers."""
        values: Floats = self.sets.contrast(h, label, other, self.which)
        return values

    def gives(self, h: Tensor, outcome: Any) -> NDArray[np.bool_]:
        """(n,): whether the model gives rows this label, by code, or a number in one of these ranges."""
        given: NDArray[np.bool_] = self.sets.gives(h, outcome, self.which)
        return given

    def given(self, h: Tensor) -> Any:
        """The label or number that the model gives the only row of h (1, d)."""
        return self.sets.given(h, self.which)

    def alike(self, ids: list[Any]) -> Floats:
        """(n,): how different voters are from the row as inputs; all equally, if the model holds no records."""
        if self.distances is not None:
            return self.distances(self.row, ids)
        rows = self.fitted.examples.rows(ids)
        if rows is None:
            return np.zeros(len(ids))
        return self.fitted.encoder.input_distances(take(self.X, np.array([self.row])), rows)

    def typicality(self, place: int) -> float | None:
        """The typicality of a voter, by its place among the references, without itself."""
        fitted = self.fitted
        if not fitted.calibrated:
            return None
        novelty = fitted.novelty_of_voters(fitted.references, np.array([place]))
        return float(fitted.typicality(novelty, private=self.private)[0])

    def voter(self, place: int) -> tuple[Any, Any, Any]:
        """(id, label or number, record) of a voter."""
        references = self.fitted.references
        name = plain_ids(references.ids[place : place + 1])[0]
        return name, self.sets.label_of(place, self.which), self.fitted.examples.get(name)

    @property
    def record(self) -> Any:
        """The row as a person sees it."""
        if self.shown is not None:
            return self.shown[self.row].get("record")
        records = self.fitted.encoder.records(take(self.X, np.array([self.row]))).to_dict("records")
        return records[0] if records else None

    def legend(self) -> Legend:
        """What its columns and codes are called."""
        return self.fitted.legend

    def column_names(self) -> list[Any]:
        """The columns of the row."""
        if not isinstance(self._own, pd.DataFrame):
            raise InputError(f"recourse changes the columns of a table; this model reads {self.fitted.encoder.kind}s")
        return list(self._own.columns)

    def ordered_columns(self) -> list[Any]:
        """Those of them whose values have an order: numbers and dates, not codes of categories."""
        columns = getattr(self.fitted.encoder, "columns", None)
        if columns is None:
            return self.column_names()
        return [column.name for column in columns if column.kind in ("numeric", "datetime")]

    def observe(self, rows: Any) -> Observed:
        """What the model observes of hybrids."""
        return observe(self.fitted, self._as_given(rows), unknown=self.unknown, private=self.private)

    def typicality_of(self, observed: Any) -> Floats | None:
        """(n,): the typicality of observed rows."""
        return observed.typicality(private=self.private) if self.fitted.calibrated else None

    def apart(self, rows: Any) -> Floats:
        """(n,): how different hybrids are from the row as inputs."""
        return self.fitted.encoder.input_distances(self._as_given(self._own), self._as_given(rows))


def find_recourse(
    sets: Any, unknown: str, observed: Observed, goal: Any, find: Callable[..., Ways], *, private: bool
) -> list[Recourse]:
    """The recourse of each observed row; find: the ways of a row that has not reached the goal."""
    fitted = sets.fitted
    alike = input_distances(fitted, observed.rows.X) if len(observed.h) else None
    inquire = partial(RowInquiry, fitted, sets, unknown, observed.rows.X, alike, private)
    is_number = fitted.target.kind == NUMBERS
    step = numerals_of(fitted.references)[goal.which].step if is_number and private else 0.0
    some = np.flatnonzero(observed.readable)
    reached = goal.reached(observed.take(some)) if len(some) else observed.readable
    found: list[Recourse] = []
    for row, why in enumerate(observed.reasons):
        if why is not None:
            found.append(Recourse(None, goal.name, (), unreadable=why))
            continue
        place = int(observed.readable[:row].sum())
        now, answer = sets.given(observed.h[place : place + 1], goal.which), Ways()
        if not reached[place]:
            answer = find(inquire(place, goal.which), votes=Votes(fitted.references, observed.h[place]))
        reaches, facts = bool(reached[place]), {"is_number": is_number, "legend": fitted.legend}
        exact = Recourse(now, goal.name, answer.ways, reaches, answer.obstacle, answer.closest, **facts)
        found.append(make_private(exact, step) if private else exact)
    return found


def measure_importance(
    fitted: Fitted, explain: Callable[..., Any], label: Any, name: Any, *, private: bool, **limits: Any
) -> Importance:
    """The importance of columns in the rows that `explain` explains; label, name: as for `importance`."""
    target, references = fitted.target, fitted.references
    ids, codes = pd.Index(references.ids, tupleize_cols=False), references.labels.cpu().numpy()
    names, several = target.plain_names, {}
    if target.kind == NUMBERS:
        step = numerals_of(references)[names.index(name) if name in names else 0].step if private else 0.0
        which = {} if name is None else {"name": name}
        return importance_of(explain(), pd.Series(0.0, index=ids), which, step=step, **limits)
    if target.kind == LABELS:
        target.require_label(label)
        has = target.table[codes, names.index(label)] > 0
        own, several = np.where(has, label, f"not {label}").astype(object), {"label": label}
    else:
        if label is not None and label not in names:
            raise LabelError(f"label must be one of {listed(names)}; got {label!r}")
        label = names[1] if label is None and len(names) == 2 else label
        own = pd.Series(names, dtype=object).to_numpy()[codes]
    voters, step = pd.Series(own, index=ids, dtype=object), privacy.FIT if private else 0.0
    return importance_of(explain(**several), voters, {}, label=label, step=step, **limits)
