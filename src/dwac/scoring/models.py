"""The models of this process: each is loaded once from its folder, and again only if the folder changed."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from dwac.errors import StorageError
from dwac.reading import Model, load
from dwac.scoring.request import Request
from dwac.storage import COLUMNS, MANIFEST

_MOST = 4  # models that are kept; the one that was asked least recently goes first
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
    with _lock:  # whoever comes second waits for the first to load, instead of loading too
        known = _models.get(key)
        if known is None or known[0] != state:
            known = state, load(folder, device=request.device, unknown=request.unknown)
        _models[key] = known
        _models.move_to_end(key)
        while len(_models) > _MOST:
            _models.popitem(last=False)
    found = known[1].clf.fingerprint_
    if request.expect is not None and request.expect != found:
        raise StorageError(
            f"the model in {request.model!r} must have the fingerprint {request.expect!r:.80}; it has {found!r}, so it "
            "is not the one that was asked for or that this run began with; give every worker the same folder, or "
            "score into a new one"
        )
    return known[1]


def _state(folder: str) -> _State:
    """What changes when a model is written: files are replaced, never changed in place."""
    found: list[tuple[int, int, int] | None] = []
    for name in _FILES:
        try:
            facts = os.stat(os.path.join(folder, name))
            found.append((facts.st_mtime_ns, facts.st_size, facts.st_ino))
        except FileNotFoundError:
            found.append(None)
    return tuple(found)


def _limit_threads(threads: int) -> None:
    """Let this process compute with so many threads; several workers on one machine would otherwise fight for it."""
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
        threadpool_limits(threads)
