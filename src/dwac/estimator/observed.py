"""Rows as a model sees them: read, encoded and embedded once; votes and novelty are computed on request.

observed = observe(fitted, X)
observed.votes                          # (n, K)
observed.evidence()                     # votes, reasons, novelty and votes by fold
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dwac.encoders import Encoder, TabularEncoder
from dwac.encoders.module import read_dataset
from dwac.errors import InputError
from dwac.estimator.containers import batches_of, gather_batches, require_order
from dwac.estimator.fitted import Features, Fitted
from dwac.estimator.preparation import read_within, rows_of, take
from dwac.estimator.readable import ATYPICAL, Judged, Sifted, judge, sift
from dwac.nn import batches
from dwac.tasks.base import LABELS, Evidence, Reasons
from dwac.training.cross_fit import FOLDS

Floats = NDArray[np.float64]
_AT_ONCE, _ROWS = 5_000, 8  # training examples that are read once; rows for which the result is kept


@dataclass(frozen=True, eq=False)
class Observed:
    """n rows, and the embeddings of the readable ones; values of unreadable rows are NaN or infinite."""

    fitted: Fitted
    rows: Sifted
    h: Tensor  # (r, d), of the rows that can be read
    given: pd.Series[Any] | None = None  # (n,): the groups of the rows, unless columns have them
    local: bool = False  # whether sets and intervals have a local guarantee

    def __len__(self) -> int:
        return len(self.rows.reasons)

    @property
    def reasons(self) -> Reasons:
        """(n,): None, or why a row could not be read."""
        return self.rows.reasons

    @cached_property
    def readable(self) -> NDArray[np.bool_]:
        """(n,): which rows can be read."""
        return self.rows.readable

    @property
    def notes(self) -> Reasons | None:
        """(n,): None, or the values of a row that were not in training; None if the model reads no table."""
        return self.rows.unknown if self.fitted.encoder.kind == "tabular" else None

    @cached_property
    def within(self) -> NDArray[Any] | None:
        """(n,): the groups of the rows, for guarantees within each; None if the model has none, or they are unknown."""
        if self.given is not None:
            return self.given.to_numpy()
        columns = self.fitted.settings.within
        if columns is None or self.fitted.within is None or len(self.h) == 0:
            return None
        names = read_within(None, columns, self.rows.X, pd.RangeIndex(len(self.h)))
        assert names is not None
        if len(names) == len(self):
            return names.to_numpy()
        places = np.maximum(np.cumsum(self.readable) - 1, 0)  # unreadable rows have no answer
        return np.asarray(names.to_numpy()[places])

    @cached_property
    def votes(self) -> Floats:
        """(n, K): log class weights."""
        return self.spread(self.fitted.votes(self.h) if len(self.h) else None, (self.fitted.references.n_classes,))

    @cached_property
    def fold_votes(self) -> Floats | None:
        """(n, F, K): the same by the models of the folds."""
        if self.fitted.folds is None:
            return None
        width = FOLDS, self.fitted.references.n_classes
        return self.spread(self.fitted.fold_votes(self.h) if len(self.h) else None, width)

    @cached_property
    def novelty(self) -> Floats:
        """(n,), or by fold (n, F); infinite for a row that cannot be read."""
        width = () if self.fitted.folds is None else (FOLDS,)
        novelty = self.fitted.novelty_of(self.h, self.rows.inputs) if len(self.h) else None
        return self.spread(novelty, width, missing=np.inf)

    def typicality(self, *, private: bool) -> Floats:
        """(n,): the typicality of the rows; NaN for a row that cannot be read. private: round it."""
        novelty = self.novelty[self.readable]
        return self.spread(self.fitted.typicality(novelty, private=private) if len(novelty) else None, ())

    def evidence(self, *, novelty: bool = True) -> Evidence:
        """Votes, reasons, novelty and votes by fold, groups, and embeddings where these are needed."""
        known = vars(self)  # of the cached properties
        if novelty and len(self.h) and "votes" not in known and "novelty" not in known:
            votes, novelties, by_fold = self.fitted.votes_and_novelty(self.h, self.rows.inputs)
            known["votes"] = self.spread(votes, votes.shape[1:])
            known["novelty"] = self.spread(novelties, novelties.shape[1:], missing=np.inf)
            known["fold_votes"] = None if by_fold is None else self.spread(by_fold, by_fold.shape[1:])
        h = self.h if self.local or self.fitted.shift is not None else None
        if h is not None and len(h) < len(self):  # rows that cannot be read are anywhere: their answers are masked
            h = h.new_zeros(len(self), h.shape[1]).index_put((torch.as_tensor(self.readable, device=h.device),), h)
        novel = self.novelty if novelty else None
        return Evidence(self.votes, self.reasons, novel, self.fold_votes, self.within, h, self.local)

    def spread(self, values: Floats | None, shape: tuple[int, ...], missing: float = np.nan) -> Floats:
        """(n, …): the values of the readable rows (r, …) at their positions; `missing` for all others."""
        if values is not None and len(values) == len(self):
            return values
        full = np.full((len(self), *shape), missing)
        if values is not None:
            full[self.readable] = values
        return full

    def take(self, rows: NDArray[np.int64]) -> Observed:
        """The same for some of the rows, by number."""
        place = np.full(len(self), -1)
        place[self.readable] = np.arange(len(self.h))
        kept = place[rows][place[rows] >= 0]
        inputs = tuple(part[torch.as_tensor(kept)] for part in self.rows.inputs) if len(kept) else ()
        X = take(self.rows.X, kept) if len(kept) else None
        part = Sifted(X, inputs, self.rows.reasons[rows], self.rows.unknown[rows])
        given = None if self.given is None else self.given.iloc[rows]
        return Observed(self.fitted, part, self.h[torch.as_tensor(kept, device=self.h.device)], given, self.local)

    def shown(self) -> list[dict[str, Any]]:
        """Each readable row as a person would see it, for explanations."""
        encoder, X = self.fitted.encoder, self.rows.X
        attention, frame = encoder.attention(self.fitted.model.backbone, X), encoder.records(X)
        records: list[dict[Any, Any]] = frame.to_dict("records") or [{}] * len(frame)  # pandas 2: none without columns
        notes = self.rows.unknown[self.readable]
        return [
            {"record": record or None, "unknown": notes[row], "legend": self.fitted.legend}
            | ({} if attention is None else {"attention": attention[row]})
            for row, record in enumerate(records)
        ]


def observe(
    fitted: Fitted,
    X: Any,
    *,
    unknown: str = ATYPICAL,
    private: bool | None = None,
    check: Callable[[Any], None] = lambda _: None,
    within: Any = None,
    local: bool = False,
) -> Observed:
    """Read, encode and embed the rows of X; an error if none can be read.

    unknown: how to read values that were not in training. private: values of a single training row count as unknown,
    too, so that answers do not reveal that row. check: raises an error unless X has the columns of fit. within: the
    groups of the rows, for guarantees within each; by default those in the columns that the settings name. local: for
    sets and intervals in which calibration rows near each row count more.
    """
    if local:
        require_local(fitted, within, private=private is True)
    private = fitted.private if private is None else private

    def prepare(X: Any) -> Any:
        X = rows_for(X, fitted.encoder)
        check(X)
        return X

    rows = sift(fitted.encoder, X, prepare, lambda X: judge_rows(fitted, X, unknown, private=private))
    if within is not None and fitted.within is None:
        raise InputError(
            "a guarantee within groups needs the groups of the calibration rows; fit with within=…, or, after "
            "recalibration, recalibrate with within=…"
        )
    given = None if within is None else read_within(within, None, None, pd.RangeIndex(len(rows.reasons)))
    if not rows.inputs:
        none = torch.zeros(0, fitted.model.vector_size, device=fitted.model.device)
        return Observed(fitted, rows, none, given, local)
    h = batches.embed(fitted.model, rows.inputs)
    if not h.isfinite().all():
        finite = h.isfinite().all(dim=1)
        rows, h = rows.only(finite.cpu().numpy(), "the network gives it no finite embedding"), h[finite]
    return Observed(fitted, rows, h, given, local)


def require_local(fitted: Fitted, within: Any, *, private: bool) -> None:
    """Raise an error if a model has no local guarantee."""
    if fitted.target.kind == LABELS:
        raise InputError(
            "a local guarantee is for one label per row, or for numbers; this model predicts several labels; "
            "leave local out"
        )
    if within is not None or (fitted.settings.within is not None and fitted.within is not None):
        raise InputError("a guarantee is local, or within groups; this model has groups; leave local out")
    if private:
        raise InputError(
            "a local guarantee depends on exact distances, which private answers must not reveal; leave local out, or "
            "ask the model that was saved with its examples"
        )
    fitted.calibration.require()


def judge_rows(fitted: Fitted, X: Any, unknown: str, *, private: bool) -> Judged:
    """Rows in the form of the encoder, as inputs of the network, and their values that were not in training."""
    seen: Callable[[Any], Collection[str]] = (lambda _: ()) if private else fitted.examples.values_of
    encoder, inputs = fitted.encoder, fitted.encoder.transform(X)
    parts: list[Any] = getattr(encoder, "parts", []) if encoder.kind == "tabular" else []
    if not parts:
        return judge(encoder, X, inputs, unknown, seen)
    # A sharded table: each part has its own tensors, and knows the categories of the others as well.
    columns: list[Any] = encoder.columns  # type: ignore[attr-defined]
    shared = {column.name: {*map(str, column.categories)} for column in columns}
    size = len(inputs) // len(parts)
    judged = [
        judge(part, X, inputs[place * size :][:size], unknown, lambda name: {*seen(name), *shared[name]})
        for place, part in enumerate(parts)
    ]
    notes = np.array([next(filter(None, each), None) for each in zip(*(j.notes for j in judged), strict=True)], object)
    return Judged(tuple(tensor for each in judged for tensor in each.inputs), notes)


def rows_for(X: Any, encoder: Encoder) -> Any:
    """X in the form that the encoder and all later steps need."""
    if isinstance(X, DataLoader):
        require_order(X, "rows are answered in the order of the dataset")
        X = gather_batches(batches_of(X)[0])[0]
    elif isinstance(X, Dataset):
        X = read_dataset(X)[0]
    return rows_of(list(X) if isinstance(X, tuple) and encoder.kind != "module" else X)


def has_columns(X: Any, encoder: Encoder) -> bool:
    """Whether X has columns that must be the same in `predict`."""
    return (encoder.kind == "tabular" and getattr(X, "ndim", 2) == 2) or (
        encoder.kind == "module" and isinstance(X, pd.DataFrame)
    )


def features_of(X: Any, encoder: Encoder) -> Features:
    """What scikit-learn records about columns: how many there are, and their names if these are strings."""
    if not has_columns(X, encoder):
        return Features()
    if not isinstance(X, pd.DataFrame):
        return Features(width_of(X))
    kinds = sorted({type(name).__name__ for name in X.columns})
    if "str" in kinds and len(kinds) > 1:
        raise InputError(
            "the columns of X must be named by strings alone, or by whole numbers alone; got names of the types "
            f"{', '.join(kinds)}; rename them, e.g. X.columns = X.columns.astype(str)"
        )
    return Features(X.shape[1], np.asarray(X.columns, dtype=object) if kinds == ["str"] else None)


def width_of(X: Any) -> int:
    """The number of columns of a table."""
    return int(X.shape[1]) if getattr(X, "ndim", 0) == 2 else len(X[0]) if isinstance(X, list) and X else 0


def input_distances(fitted: Fitted, X: Any) -> Callable[[int, list[Any]], Floats] | None:
    """A function (row of X, ids) → how different these training examples are from the row as inputs; None if unknown.

    A folder keeps no examples of a model with your own module. A table compares a row with one example in the time that
    many take, so it compares with all of them, if these are few, and remembers that for the next ids.
    """
    examples, encoder = fitted.examples, fitted.encoder
    if len(examples) == 0 or encoder.kind == "module":
        return None

    def measure(row: int, ids: list[Any]) -> Floats:
        rows = examples.rows(ids)
        return np.zeros(len(ids)) if rows is None else encoder.input_distances(take(X, np.array([row])), rows)

    if not isinstance(encoder, TabularEncoder) or len(examples) > _AT_ONCE:
        return measure
    measure_all = lru_cache(_ROWS)(lambda row: examples.distances(encoder)[1](take(X, np.array([row]))))

    def look_up(row: int, ids: list[Any]) -> Floats:
        places = examples.distances(encoder)[0]
        known = [places[name] for name in ids if name in places]
        return measure_all(row)[known] if len(known) == len(ids) else measure(row, ids)

    return look_up
