"""The log of decisions: a folder of Parquet files, each written as a whole, never changed, by any number of writers."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from os import PathLike, fspath
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from dwac.drawing.records import plain
from dwac.errors import EPSILON, IdError, InputError, StorageError
from dwac.estimator.evaluation import predict
from dwac.estimator.observed import Observed
from dwac.estimator.preparation import row_ids
from dwac.nn.batches import Inputs
from dwac.reading.places import Place, place
from dwac.reading.rows import Estimator
from dwac.tasks.answers import table_columns
from dwac.tasks.arrow import arrow_array, arrow_type

Folder = str | PathLike[str]

_GROUPS = 3  # of voters named for each decision: on the paper's datasets, three decide a label
_OVERRIDES = "_overrides"  # a folder that readers of Parquet skip
_TIME = pa.timestamp("us", tz="UTC")
_GROUP = pa.struct([("group", pa.int64()), ("representative", pa.string()), ("share", pa.float64())])
FACTS = ("time", "id", "model", "settings", "row")  # the columns that come before the answer
_OVERRIDE = ("overridden_by", "overridden_to", "overridden_why", "overridden_at")


def record(
    folder: Folder,
    clf: Estimator,
    X: Any,
    ids: Iterable[Hashable] | None = None,
    *,
    epsilon: float = EPSILON,
    quantiles: Sequence[float] = (),
    private: bool | None = None,
) -> pd.DataFrame:
    """Predict the rows of X, append a row per decision to the record, and return the answers.

    A row that cannot be read has no answer, and is not recorded.

    Args:
        folder: the folder of the record, a path or a URL; it is made if it does not exist.
        clf: a model that was loaded from a folder, and not edited since: the record holds the folder's fingerprint.
        X: rows, or the result of `clf.observe` on them.
        ids: their names; by default the index of a frame, or numbers.
        epsilon: the error rate of sets and intervals. quantiles: of numbers, at these levels.
        private: keep labels, sets and rounded numbers, and no voters; by default for a private model.
    """
    private = clf.private_ if private is None else private
    observed = X if isinstance(X, Observed) else clf.observe(X, private=private)
    names = row_ids(X, None, len(observed)) if ids is None else list(ids)  # an id may occur again
    frame: pd.DataFrame = predict(clf, observed, private=private).frame(epsilon, quantiles)
    write(folder, decisions(clf, observed, frame, names, epsilon=epsilon, quantiles=quantiles, private=private))
    return frame


def decisions(
    clf: Estimator,
    observed: Observed,
    frame: pd.DataFrame,
    ids: Iterable[Any],
    *,
    epsilon: float,
    quantiles: Sequence[float],
    private: bool,
    decide: Mapping[str, Any] | None = None,
) -> pa.Table:
    """The rows of a record, one for each row that could be read.

    frame: the answers. decide: the arguments of `decide`, if rows may be handed over to a person.
    """
    if clf.fingerprint_ is None:
        raise InputError(
            "a record names the model by the fingerprint of its folder, so the model must come from a folder, and be "
            "as it was loaded; save it, and load it again"
        )
    rows, names = np.flatnonzero(observed.readable), list(ids)
    settings = {
        "epsilon": epsilon,
        "quantiles": list(quantiles),
        "private": private,
        "unknown": clf.unknown,
        "threads": torch.get_num_threads(),
        **({"local": True} if observed.local else {}),
    }
    if decide is not None:
        settings["decide"] = plain(dict(decide))
    columns: dict[str, Any] = {
        "time": pa.array([datetime.now(UTC)] * len(rows), _TIME),
        "id": pa.array([str(names[row]) for row in rows], pa.string()),
        "model": pa.array([clf.fingerprint_] * len(rows), pa.string()),
        "settings": pa.array([json.dumps(settings)] * len(rows), pa.string()),
        "row": pa.array(hash_rows(observed.rows.inputs, len(rows)), pa.string()),
    }
    answers = frame.iloc[rows]
    declared = table_columns(clf.target_.columns(tuple(quantiles)), calibrated=len(clf.calibration_y_) > 0)
    columns |= {
        name: arrow_array(answers[name] if len(rows) else [], arrow_type(column)) for name, column, _ in declared
    }
    columns["groups"] = pa.nulls(len(rows), pa.list_(_GROUP)) if private else _groups(clf, observed)
    if decide is not None:
        decided = clf.decide(observed, private=private, **decide).decided
        columns["decided"] = pa.array(decided[rows].tolist(), pa.bool_())
    return pa.table(columns)


def hash_rows(inputs: Inputs, n: int) -> list[str]:
    """A hash for each of n rows, of what the encoder reads from them: numbers, indices of categories and words, pixels.

    The same row has the same hash, whatever file it comes from; two rows that the model cannot tell apart have the
    same, too.
    """
    parts: list[NDArray[Any]] = [np.ascontiguousarray(part.cpu().numpy()).reshape(n, -1) for part in inputs]
    digests = []
    for row in range(n):
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            digest.update(part[row])
        digests.append(digest.hexdigest())
    return digests


def _groups(clf: Estimator, observed: Observed) -> pa.Array:
    """The heaviest groups of voters for each readable row, with their shares of all votes."""
    references = clf.references_
    if len(observed.h) == 0:
        return pa.array([], pa.list_(_GROUP))
    groups = references.groups
    log_votes = references.log_group_weights(observed.h).cpu().numpy()
    k = min(_GROUPS, len(groups))
    shares = np.exp(log_votes - np.logaddexp.reduce(log_votes, axis=1, keepdims=True))
    heaviest = np.argsort(-shares, axis=1, kind="stable")[:, :k]
    names = [str(name) for name in references.ids[groups.representatives].tolist()]
    flat = heaviest.ravel().tolist()
    values = [flat, [names[group] for group in flat], np.take_along_axis(shares, heaviest, axis=1).ravel()]
    arrays = [pa.array(each, field.type) for each, field in zip(values, _GROUP, strict=True)]
    starts = pa.array(np.arange(len(heaviest) + 1) * k, pa.int32())
    return pa.ListArray.from_arrays(starts, pa.StructArray.from_arrays(arrays, fields=list(_GROUP)))


# Files


def write(folder: Folder, table: pa.Table) -> None:
    """Append rows: one new file, with a name that no other writer has."""
    if table.num_rows == 0:
        return
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(8)}.parquet"
    try:
        with (place(fspath(folder)) / name).writing() as path:
            pq.write_table(table, path, compression="zstd")
    except OSError as error:
        raise InputError(
            f"the record {fspath(folder)} cannot be written: {error.strerror or error}; choose another folder"
        ) from None


def override(folder: Folder, name: Hashable, by: str, answer: Any, why: str) -> None:
    """Append who decided otherwise, how and why, on the latest decision with this id (name). Nothing is rewritten."""
    if str(name) not in set(table_of(folder, ["id"])["id"].to_pylist()):
        raise IdError(f"only a recorded decision can be overridden; {name!r} is not in {fspath(folder)}; check the id")
    row = {"id": str(name), **dict(zip(_OVERRIDE, (by, str(answer), why, datetime.now(UTC)), strict=True))}
    kinds = [("id", pa.string()), *((column, pa.string()) for column in _OVERRIDE[:-1]), (_OVERRIDE[-1], _TIME)]
    write(f"{fspath(folder).rstrip('/')}/{_OVERRIDES}", pa.Table.from_pylist([row], pa.schema(kinds)))


def table_of(folder: Folder, columns: list[str] | None = None) -> pa.Table:
    """All decisions of a record, by the name of their file."""
    tables = _tables(place(fspath(folder)), columns)
    if not tables:
        raise InputError(f"{fspath(folder)} holds no record of decisions; dwac predict --record FOLDER writes one")
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


def _tables(root: Place, columns: list[str] | None = None) -> list[pa.Table]:
    tables = []
    for name in root.names():
        if name.endswith(".parquet"):
            try:
                tables.append(pq.read_table(pa.BufferReader((root / name).read()), columns=columns))
            except (pa.ArrowException, KeyError) as error:
                raise StorageError(
                    f"{(root / name).url} is not a file of a record ({error!s:.100}); take it out of the folder"
                ) from None
    return tables


def read(folder: Folder) -> pd.DataFrame:
    """All decisions in the order of their time: a row each, and who overrode it, how, why and when."""
    frame: pd.DataFrame = table_of(folder).to_pandas().sort_values("time", kind="stable", ignore_index=True)
    frame = frame.assign(**dict.fromkeys(_OVERRIDE))
    later = _tables(place(fspath(folder)) / _OVERRIDES)
    rows_of = frame.groupby("id").indices
    for each in sorted((row for one in later for row in one.to_pylist()), key=lambda row: row[_OVERRIDE[-1]]):
        rows = rows_of.get(each["id"], np.zeros(0, dtype=np.int64))
        before = rows[(frame["time"].iloc[rows] <= each[_OVERRIDE[-1]]).to_numpy()]
        if len(before):
            frame.loc[before[-1], list(_OVERRIDE)] = [each[name] for name in _OVERRIDE]
    return frame
