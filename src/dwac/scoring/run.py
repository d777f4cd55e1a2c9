"""A run: files in, shards out, on any engine; an interrupted run continues where it stopped.

run = prepare("model/", "rows/", "scores/")
for done in run.results("local", workers=4): ...
run.summary.failed
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import pyarrow as pa

from dwac._machine import cores
from dwac.errors import InputError
from dwac.reading import Model
from dwac.reading.layouts import INDEX
from dwac.reading.places import File, Place, files_at, place, reaching
from dwac.scoring import manifest
from dwac.scoring.core import check_request
from dwac.scoring.engines import engine as engine_named
from dwac.scoring.pieces import Done, Piece, choose_forms, columns_of, number_pieces, plan, shard_name
from dwac.scoring.request import Request, model_of, notation_of, request_of
from dwac.scoring.task import UNREADABLE, Task
from dwac.storage.files import TEMPORARY, locked, make_folder, remove_files

_SHARD = re.compile(r"part-\d{5,}-\d{5,}\.parquet")
_PANDAS_INDEX = "__index_level_0__"


@dataclass
class RunSummary:
    """The results of a run so far."""

    rows: int = 0
    unreadable: int = 0  # rows of this run that could not be read
    side_files: bool = False  # whether some could not, in this run or the one that it continues
    failed: list[Done] = field(default_factory=list)


@dataclass
class Run:
    """The pieces of a run, those that have no shard yet, and the task to run on them."""

    task: Task
    pieces: list[Piece]  # all of them
    pending: list[Piece]  # those without a shard
    summary: RunSummary = field(default_factory=RunSummary)

    def results(
        self, engine: str = "local", workers: int | None = None, options: Mapping[str, Any] | None = None
    ) -> Iterator[Done]:
        """Run the pending pieces, and yield the result of each as soon as it is known."""
        run = engine_named(engine)
        out = place(self.task.out)
        workers = workers or default_workers(self.task.request)
        known = {"device": self.task.request.device, **(options or {})}
        with _alone(out):
            if self.pending:
                for done in run(self.task, self.pending, workers, known):
                    self.summary.rows += done.rows
                    self.summary.unreadable += done.unreadable
                    if done.error is not None:
                        self.summary.failed.append(done)
                    yield done
            self.summary.side_files = bool((out / UNREADABLE).names())


def score_files(
    model: str | PathLike[str] | Request,
    data: str | PathLike[str],
    out: str | PathLike[str],
    *,
    engine: str = "local",
    workers: int | None = None,
    options: Mapping[str, Any] | None = None,
    form: str | None = None,
    encoding: str = "utf-8",
    strict: bool = False,
    overwrite: bool = False,
    **settings: Any,
) -> RunSummary:
    """Score files into a folder of Parquet shards, as `dwac score` does; settings: the options of `Request`.

    Pieces that failed are in `.failed`, each with a sentence; all others are written, and the next call tries again.
    """
    run = prepare(model, data, out, form=form, encoding=encoding, strict=strict, overwrite=overwrite, **settings)
    for _ in run.results(engine, workers, options):
        pass
    return run.summary


def prepare(
    model: str | PathLike[str] | Request,
    data: str | PathLike[str],
    out: str | PathLike[str],
    *,
    form: str | None = None,
    encoding: str = "utf-8",
    strict: bool = False,
    overwrite: bool = False,
    announce: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> Run:
    """Find the data, divide it, and write the manifest; or find what is left to do of an interrupted run.

    announce: called with a message before slow steps.
    """
    request = request_of(model, **settings)
    loaded = model_of(request)
    folder = place(fspath(out))
    if request.record is not None and place(request.record).url.rstrip("/") == folder.url.rstrip("/"):
        raise InputError(f"the record of decisions must have a folder of its own; {folder.url} is that of the shards")
    files = choose_forms(files_at(fspath(data), without=folder.url), form, fspath(data))
    request = _settle(request, loaded, files, encoding)
    check_request(loaded, request)
    with reaching(folder), _alone(folder, tidy=False) if folder.local and os.path.isdir(folder.path) else nullcontext():
        if overwrite:
            _clear(folder)
        facts = manifest.request_facts(request, encoding, strict=strict)
        pieces = number_pieces(_manifest(folder, facts, files, encoding, announce).pieces)
        written = set(folder.names())
    return Run(
        Task(request, folder.url, encoding, strict),
        pieces,
        [piece for piece in pieces if f"{piece.shard}.parquet" not in written],
    )


def default_workers(request: Request) -> int:
    """The number of processes that uses this machine well: one per core, or one per GPU."""
    import torch

    if request.device != "cpu" and torch.cuda.is_available():
        return 1 if ":" in request.device else torch.cuda.device_count()
    return max(1, cores() // (request.threads or 1))


def _settle(request: Request, model: Model, files: list[tuple[File, str]], encoding: str) -> Request:
    """The request with everything that all workers must agree on: the model, its path and the ids."""
    used = set(getattr(model.clf, "feature_names_in_", []))
    written = notation_of(request, model)
    known = (columns_of(*each, encoding, written.separator) for each in files)
    columns = next(filter(None, known), {})  # of the first file that can be read
    likely = [name for name in (model.columns.id, INDEX, _PANDAS_INDEX) if name in columns and name not in used]
    name = request.id if request.id is not None else likely[0] if likely else None
    kind = None if name is None else columns.get(name)
    whole = kind is not None and pa.types.is_integer(kind) and kind != pa.uint64()
    return replace(
        request,
        model=os.path.abspath(request.model),
        record=None if request.record is None else place(request.record).url,
        id=name,
        id_type="int64" if whole else request.id_type,
        separator=written.separator,
        threads=request.threads or 1,  # answers do not depend on how many cores a worker has
        expect=model.clf.fingerprint_,
    )


def _manifest(
    out: Place, facts: dict[str, Any], files: list[tuple[File, str]], encoding: str, announce: Callable[[str], None]
) -> manifest.Manifest:
    """The manifest of the run that the folder holds, if it may continue; otherwise that of a new one, written there."""
    known = manifest.read(out, shard_name)
    if known is None:
        _refuse_occupied(out)
        new = manifest.Manifest(facts, files, plan(files, encoding, announce, facts["separator"]))
        if not any(new.pieces):
            raise InputError(f"{files[0][0].url} must have at least one row; it has columns but no rows")
        _write(out, new)
        return new
    differ = manifest.differences_of(known, facts, files)
    if differ:
        raise InputError(
            f"{out.url} holds the shards of another run ({'; '.join(differ)}); continue with its options, "
            "choose a new folder with -o, or replace that run with --overwrite"
        )
    changed = manifest.changed_files(known, files)
    known = manifest.with_locations(known, files)
    if not changed:
        return known
    written = set(out.names())
    for index in changed:
        if any(f"{piece.shard}.parquet" in written for piece in known.pieces[index]):
            raise InputError(
                f"{files[index][0].url} has changed since some of its rows were scored into {out.url}; put the old "
                "file back, choose a new folder with -o, or start again with --overwrite"
            )
    again = plan(files, encoding, announce, facts["separator"])
    pieces = [again[place] if place in changed else parts for place, parts in enumerate(known.pieces)]
    new = manifest.Manifest(facts, files, pieces)
    _write(out, new)
    return new


def _write(out: Place, new: manifest.Manifest) -> None:
    """Write the manifest, and create the folder if it does not exist."""
    try:
        (out / manifest.NAME).write(new.pack())
    except OSError as error:
        raise InputError(f"{out.url} cannot be written: {error.strerror or error}; choose another folder") from None


def _refuse_occupied(out: Place) -> None:
    names = [name for name in out.names() if not TEMPORARY.fullmatch(name)]
    if names == [os.path.basename(out.path)] and out.fs.isfile(out.path):
        raise InputError(f"{out.url} is a file, but -o must name a folder; choose a new one")
    if names:
        raise InputError(f"{out.url} is not empty and holds no scores ({names[0]}); choose a new folder with -o")


def _clear(out: Place) -> None:
    """Remove the run in a folder, and nothing else."""
    if not (out / manifest.NAME).exists():
        return
    for name in out.names():
        if _SHARD.fullmatch(name):
            (out / name).remove()
    for name in (out / UNREADABLE).names():
        (out / UNREADABLE / name).remove()
    with suppress(OSError):
        if out.local:
            os.rmdir((out / UNREADABLE).path)
    (out / manifest.NAME).remove()  # last, so that after an interruption the folder still holds a run


@contextmanager
def _alone(out: Place, *, tidy: bool = True) -> Iterator[None]:
    """Refuse to write where another run on this machine writes; remove the partial files of a killed run."""
    if not out.local:
        yield
        return
    make_folder(Path(out.path))
    with locked(Path(out.path), wait=False) as alone:
        if not alone:
            raise InputError(f"another dwac score writes to {out.url} now; wait for it, or choose a new folder")
        for folder in (Path(out.path), Path(out.path, UNREADABLE)):
            if tidy and folder.is_dir():
                remove_files(folder, TEMPORARY, set())
        yield
