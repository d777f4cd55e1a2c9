"""A request to a model: every option of scoring in one small value that can be sent to a worker.

Also the models of this process: each is loaded once from its folder, and again only if the folder changed.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from dwac import _checks as checks
from dwac.errors import EPSILON, InputError, StorageError
from dwac.reading import Columns, Model, load
from dwac.reading.notation import Notation, check_notation
from dwac.storage import COLUMNS, MANIFEST, local_folder

ID_TYPES = ("string", "int64")
ROWS = 8192  # rows answered at once


@dataclass(frozen=True)
class Request:
    """The path of a model folder, and the options. Workers are sent only this, and load the model themselves.

    Args:
        model: the model folder; every worker must see it under this path.
        epsilon: error rate of prediction sets and intervals.
        probabilities: also give the probability of each class.
        voters: also give this many examples with the largest votes.
        quantiles: if the model predicts numbers, also give these quantiles of the votes.
        id: the column with the ids of the rows; without it rows are numbered from 0.
        id_type: the type of ids from a column, "string" or "int64". It is fixed before the first row is seen.
        text: the column with the text, or the encoded image files, to predict from; not needed if it is the only one.
        private: round numbers as private models do; None: as the model was saved.
        unknown: how to read categories that training never had: "atypical", "missing" or "refuse"; None: as the
            model was saved.
        device: "auto", "cpu", "cuda", "cuda:1", …
        threads: computing threads per process; None leaves the setting unchanged.
        rows: number of rows answered at once: larger batches are cut, smaller ones joined.
        separator, decimal, day_first: how CSV is written: field separator, decimal mark, and whether 01/02/2020 is
            1 February; by default as in training.
        expect: the fingerprint of the model folder (`dwac.fingerprint`); a worker that finds another model refuses to
            answer.
        record: the folder of a record of decisions (`dwac.records`) to append to; by default none.
        local: let calibration rows near a row count more in its set or interval.

    >>> request = Request("/shared/model", epsilon=0.1, voters=3)
    >>> request.epsilon, request.rows
    (0.1, 8192)
    """

    model: str
    epsilon: float = EPSILON
    probabilities: bool = False
    voters: int = 0
    quantiles: tuple[float, ...] = ()
    id: str | None = None
    id_type: str = "string"
    text: str | None = None
    private: bool | None = None
    unknown: str | None = None
    device: str = "auto"
    threads: int | None = None
    rows: int = ROWS
    separator: str | None = None
    decimal: str | None = None
    day_first: bool | None = None
    expect: str | None = None
    record: str | None = None
    local: bool = False

    def __post_init__(self) -> None:
        checks.epsilon(self.epsilon)
        if self.id_type not in ID_TYPES:
            raise InputError(f"id_type must be {' or '.join(ID_TYPES)}; got {self.id_type!r}")
        if isinstance(self.voters, bool) or not isinstance(self.voters, int) or self.voters < 0:
            raise InputError(f"voters must be the number of examples to name, 0 or more; got {self.voters!r}")
        if not all(isinstance(level, float | int) and 0 < level < 1 for level in self.quantiles):
            raise InputError(f"quantiles must be numbers between 0 and 1, such as 0.1, 0.5; got {self.quantiles!r}")
        checks.positive_int(self.rows, "rows")
        check_notation(self.separator, self.decimal, self.day_first)  # raises an error for invalid values
        if self.threads is not None:
            checks.positive_int(self.threads, "threads")


def requested_notation(request: Request) -> Notation:
    """The notation of tables that the request gives."""
    return check_notation(request.separator, request.decimal, request.day_first)


def notation_of(request: Request, model: Model) -> Notation:
    """How the cells of tables are written: as requested, or else as in training."""
    return requested_notation(request).over(model.notation)


def requested_columns(request: Request) -> Columns:
    """The columns that the request names."""
    return Columns(text=request.text, id=request.id)


def request_of(model: str | PathLike[str] | Request, **options: Any) -> Request:
    """A request from a path and options; a `Request` stays unchanged."""
    if isinstance(model, Request):
        if options:
            raise InputError("a Request holds all options; change it with dataclasses.replace")
        return model
    try:
        path = fspath(local_folder(model))
    except TypeError:
        raise InputError(
            f"model must be the path of a model folder, not a model ({type(model).__name__}): each process loads it; "
            "write it with clf.save(path)"
        ) from None
    quantiles: Sequence[float] = options.pop("quantiles", ())
    try:
        return Request(str(path), quantiles=tuple(quantiles), **options)
    except TypeError as error:
        known = ", ".join(name for name in Request.__dataclass_fields__ if name != "model")
        raise InputError(f"unknown option of scoring ({error}); choose from {known}") from None


# Models


_MOST = 4  # models kept in memory; the least recently used is dropped first
_FILES = (MANIFEST, COLUMNS)
_State = tuple[tuple[int, int, int] | None, ...]

_lock = threading.Lock()
_models: OrderedDict[tuple[str, str, str | None], tuple[_State, Model]] = OrderedDict()


def model_of(request: Request) -> Model:
    """The model of a request, loaded if this process does not hold it yet. Safe to call from several threads."""
    if request.threads is not None:
        _limit_threads(request.threads)
    folder = os.path.realpath(request.model)
    if not Path(folder, MANIFEST).is_file():
        raise StorageError(
            f"there is no model in {request.model!r} ({MANIFEST} is missing); write one with dwac train or clf.save, "
            "in a folder that every worker sees under this path"
        )
    key, state = (folder, request.device, request.unknown), _state(folder)
    with _lock:  # a second thread waits for the first to load, instead of loading too
        known = _models.get(key)
        if known is None or known[0] != state:
            known = state, load(folder, device=request.device, unknown=request.unknown)
        _models[key] = known
        _models.move_to_end(key)
        while len(_models) > _MOST:
            _models.popitem(last=False)
    fingerprint = known[1].clf.fingerprint_
    if request.expect is not None and request.expect != fingerprint:
        raise StorageError(
            f"the model in {request.model!r} must have the fingerprint {request.expect!r:.80}; it has "
            f"{fingerprint!r}, so it is not the one that was asked for or that this run began with; give every worker "
            "the same folder, or score into a new one"
        )
    return known[1]


def _state(folder: str) -> _State:
    """A value that changes when a model is written: files are replaced, never changed in place."""
    states: list[tuple[int, int, int] | None] = []
    for name in _FILES:
        try:
            facts = os.stat(os.path.join(folder, name))
            states.append((facts.st_mtime_ns, facts.st_size, facts.st_ino))
        except FileNotFoundError:
            states.append(None)
    return tuple(states)


def _limit_threads(threads: int) -> None:
    """Set the number of computing threads of this process, so that workers on one machine do not compete for cores."""
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
        threadpool_limits(threads)
