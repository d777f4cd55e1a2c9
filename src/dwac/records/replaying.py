"""Replay: compute recorded decisions again, and compare them bit for bit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from os import fspath
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray

from dwac._checks import listed
from dwac.errors import IdError, InputError
from dwac.estimator.evaluation import predict
from dwac.estimator.observed import Observed
from dwac.estimator.preparation import count, row_ids, take
from dwac.reading.rows import Estimator
from dwac.records.log import FACTS, Folder, decisions, hash_rows, table_of

_AT_ONCE = 20_000  # rows computed at once
_NAMED = 5  # ids named in a sentence


@dataclass(frozen=True)
class Replay:
    """What became of recorded decisions when they were computed again.

    >>> nothing = pd.DataFrame({"time": [], "id": []})
    >>> print(Replay(143, nothing, changed=["p7"]))
    143 decisions computed again: 143 are the same bit for bit
    1 not compared: the row in the data is not the one that was decided on: 'p7'
    """

    n: int  # decisions computed again
    differences: pd.DataFrame  # time, id, column, recorded, now: one row for each value that differs
    changed: list[str] = field(default_factory=list)  # ids whose rows in the data are not those that were decided on
    missing: list[str] = field(default_factory=list)  # ids that the data does not have
    others: dict[str, int] = field(default_factory=dict)  # other models in the record → their decisions, left out

    @property
    def same(self) -> bool:
        """Whether all decisions could be computed again, with the same result."""
        return len(self.differences) == 0 and not self.changed and not self.missing

    def __str__(self) -> str:
        differ = self.differences.drop_duplicates(["time", "id"])["id"].tolist()
        same = self.n - len(differ)
        lines = [f"{self.n:,} decisions computed again: {same:,} {'is' if same == 1 else 'are'} the same bit for bit"]
        for names, what in (
            (differ, "differ"),
            (self.changed, "not compared: the row in the data is not the one that was decided on"),
            (self.missing, "not compared: the data has no such row"),
        ):
            if names:
                lines.append(f"{len(names):,} {what}: {listed(names, _NAMED)}")
        lines += [f"{n:,} left out: decided by another model, {model}" for model, n in self.others.items()]
        return "\n".join(lines)


def replay(
    folder: Folder, clf: Estimator, X: Any, ids: Iterable[Hashable] | None = None, *, other_model: bool = False
) -> Replay:
    """Compute the decisions of a record again from the rows of X, and compare them bit for bit.

    Rows are found by id. A row that is not the one that was decided on, by its hash, is named and not compared. The
    same bits need the same kind of processor, and the same versions of dwac and PyTorch.

    other_model: compare the decisions of other models, too, with those of this one on the rows with the same ids.
    """
    recorded = Recorded.find(folder, clf, X, ids, other_model=other_model)
    found = [pd.DataFrame(columns=["time", "id", "column", "recorded", "now"], dtype=object)]
    for part in recorded.parts(clf, X, bitwise=True):
        options: Any = {name: part.settings.get(name) for name in ("epsilon", "quantiles", "private", "decide")}
        predictions = predict(part.clf, part.observed, private=options["private"])
        frame = predictions.frame(options["epsilon"], options["quantiles"])
        now = decisions(part.clf, part.observed, frame, part.then["id"].to_pylist(), **options)
        found += _differences(part.then, now)
    return Replay(recorded.n, pd.concat(found, ignore_index=True), recorded.changed, recorded.missing, recorded.others)


def _differences(then: pa.Table, now: pa.Table) -> Iterator[pd.DataFrame]:
    """The values that differ, column by column."""
    for name in [name for name in then.column_names if name not in FACTS]:
        new = now[name] if name in now.column_names else pa.chunked_array([pa.nulls(len(then))])
        if then[name].equals(new):
            continue
        pairs = zip(then[name].to_pylist(), new.to_pylist(), strict=True)
        rows = [(row, old, value) for row, (old, value) in enumerate(pairs) if old != value]
        places, before, after = zip(*rows, strict=True) if rows else ((), (), ())
        facts = then.select(["time", "id"]).take(pa.array(places, pa.int64())).to_pandas()
        yield facts.assign(column=name, recorded=list(before), now=list(after))


# Recorded decisions, and the rows that they were made on


class DecidedRows(NamedTuple):
    """Some decisions that were made with the same settings, and their rows as the model reads them now."""

    then: pa.Table
    observed: Observed  # all rows can be read
    clf: Estimator
    settings: dict[str, Any]


@dataclass
class Recorded:
    """Decisions of a record, and where their rows are in X."""

    table: pa.Table
    places: NDArray[np.int64]  # (n,): the row of X of each decision
    missing: list[str]  # ids that X does not have
    others: dict[str, int]  # other models → their decisions, which are left out
    other_model: bool
    changed: list[str] = field(default_factory=list)  # ids whose rows changed, once all parts were read
    n: int = 0  # decisions in the parts that were read

    @classmethod
    def find(
        cls,
        folder: Folder,
        clf: Estimator,
        X: Any,
        ids: Iterable[Hashable] | None,
        *,
        other_model: bool,
        columns: list[str] | None = None,
    ) -> Recorded:
        """The decisions that this model made, by its fingerprint; other_model: of all models."""
        table, others = table_of(folder, columns), {}
        if not other_model:
            models = np.asarray(table["model"].to_pylist(), dtype=object)
            others = dict(Counter(models[models != clf.fingerprint_].tolist()))
            if others and sum(others.values()) == len(models):
                raise InputError(
                    f"the decisions in {fspath(folder)} must be those of this model, {clf.fingerprint_!r}; they were "
                    f"made by {listed(others)}; give that model, or ask for a comparison with another one: "
                    "other_model=True (--other-model)"
                )
            table = table.filter(pa.array(models == clf.fingerprint_))
        names = pd.Index([str(name) for name in row_ids(X, ids, count(X))])
        if not names.is_unique:
            repeated = names[names.duplicated()][0]
            raise IdError(f"ids must be unique as text; {repeated!r} is repeated; rename one of them")
        places = names.get_indexer(pd.Index(table["id"].to_pylist(), dtype=object))
        missing = table["id"].filter(pa.array(places < 0)).to_pylist()
        return cls(table.filter(pa.array(places >= 0)), places[places >= 0], missing, others, other_model)

    def parts(self, clf: Estimator, X: Any, *, bitwise: bool = False) -> Iterator[DecidedRows]:
        """The decisions whose rows are as they were, in parts; bitwise: with as many threads as then."""
        texts = np.asarray(self.table["settings"].to_pylist(), dtype=object)
        for text in dict.fromkeys(texts.tolist()):
            settings, model = json.loads(text), copy(clf)
            model.unknown = settings["unknown"]
            rows = np.flatnonzero(texts == text)
            with _threads(settings["threads"]) if bitwise else nullcontext():
                for start in range(0, len(rows), _AT_ONCE):
                    part = self._part(rows[start : start + _AT_ONCE], model, X, settings)
                    if len(part.then):
                        yield part

    def _part(self, rows: NDArray[np.int64], model: Estimator, X: Any, settings: dict[str, Any]) -> DecidedRows:
        how = {"private": settings["private"], "local": settings.get("local", False)}
        then, observed = self.table.take(rows), model.observe(take(X, self.places[rows]), **how)
        same = observed.readable.copy()
        if not self.other_model:
            hashes = np.asarray(hash_rows(observed.rows.inputs, len(observed.h)), dtype=object)
            same[same] = hashes == np.asarray(then["row"].to_pylist(), dtype=object)[same]
        self.n += int(same.sum())
        if not same.all():
            self.changed += then["id"].filter(pa.array(~same)).to_pylist()
            then, observed = then.filter(pa.array(same)), observed.take(np.flatnonzero(same))
        return DecidedRows(then, observed, model, settings)


@contextmanager
def _threads(n: int) -> Iterator[None]:
    """Compute with this many threads: another number may change the last digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
