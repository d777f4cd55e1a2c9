"""The task of a worker: read a piece, predict its rows, write its shard."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dwac.errors import DwacError, InputError
from dwac.reading.features import needed_columns, worded_columns
from dwac.reading.layouts import layout_of
from dwac.reading.places import Place, place
from dwac.reading.roles import infer_notation
from dwac.reading.tables import BadRow, ParsedRows, read_part
from dwac.scoring.core import answer, schema_of
from dwac.scoring.pieces import Done, Piece
from dwac.scoring.request import Request, model_of, notation_of, requested_columns, requested_notation

UNREADABLE = "_unreadable"  # the folder of rows that could not be read; Parquet readers skip names that begin with _
FILE = "file"  # the column with the file of a row, if rows have no ids of their own
_GROUP = 2**16  # rows per row group of a shard
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Task:
    """The work on each piece. A small value that can be sent to workers; the model is loaded where it is called."""

    request: Request
    out: str
    encoding: str = "utf-8"
    strict: bool = False  # refuse a piece with rows that cannot be read

    def __call__(self, piece: Piece) -> Done:
        """Write the shard of a piece, completely or not at all. Never raises: the result holds any error."""
        began = time.perf_counter()
        try:
            rows, unreadable = self._write(piece)
        except DwacError as error:
            return Done(piece.number, seconds=time.perf_counter() - began, error=str(error))
        except Exception as error:
            _LOG.exception("piece %s of %s", piece.shard, piece.file)
            why = f"{piece.file}: {type(error).__name__}: {error!s:.300}"
            return Done(piece.number, seconds=time.perf_counter() - began, error=why)
        return Done(piece.number, rows, unreadable, time.perf_counter() - began)

    def _write(self, piece: Piece) -> tuple[int, int]:
        """(rows, unreadable rows). The shard is written last: if it exists, the piece is done."""
        out, rows = place(self.out), 0
        with _UnreadableRows(piece, strict=self.strict) as bad, (out / f"{piece.shard}.parquet").writing() as path:
            schema = schema_of(model_of(self.request), self.request)
            wide = shard_schema(schema, self.request)
            with pq.ParquetWriter(path, wide, compression="zstd") as writer:
                for group in _group(self._answers(piece, bad, schema, wide), wide):
                    writer.write_table(group)
                    rows += group.num_rows
            bad.write(out)
        return rows, bad.n

    def _answers(
        self, piece: Piece, bad: _UnreadableRows, schema: pa.Schema, wide: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """The answers for the rows of a piece, with the columns of a shard (wide)."""
        request = self.request
        model = model_of(request)
        columns, notation, layout = requested_columns(request), notation_of(request, model), None
        if piece.form != "parquet":
            versions = model.clf.fingerprint_, place(piece.file).version
            layout, notation = _layout_and_notation(request, self.encoding, piece.file, piece.form, versions)
        needed = worded_columns(model, columns)._replace(needed=needed_columns(model, columns))
        for chunk in read_part(piece.part, layout, request.rows, needed):
            if len(chunk.numbers) == 0:
                bad.add(chunk.bad)
                continue
            answers = answer(model, schema, chunk.rows, request, chunk.numbers, piece.file, notation)
            bad.add([*chunk.bad, *_unanswered(answers, chunk)])
            if request.id is None:
                names = pa.array([piece.name] * answers.num_rows).dictionary_encode().cast(wide.field(FILE).type)
                answers = pa.RecordBatch.from_arrays([answers.column(0), names, *answers.columns[1:]], schema=wide)
            yield answers


@lru_cache(maxsize=64)
def _layout_and_notation(request: Request, encoding: str, file: str, form: str, versions: Any) -> Any:
    """How a file is written, inferred from its beginning: once for all of its pieces, until it or the model changes."""
    del versions
    model = model_of(request)
    notation = notation_of(request, model)
    layout = layout_of(file, form, encoding, notation.separator, notation.decimal)
    return layout, infer_notation(model, layout, requested_columns(request), requested_notation(request))


def shard_schema(schema: pa.Schema, request: Request) -> pa.Schema:
    """The columns of shards: those of the answers, and the file of a row if its id is only its number in that file."""
    if request.id is not None:
        return schema
    return schema.insert(1, pa.field(FILE, pa.dictionary(pa.int32(), pa.string())))


def _group(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Row groups of a shard; its bytes depend only on the rows."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(each.num_rows for each in waiting) >= _GROUP:
            yield pa.Table.from_batches(waiting, schema).unify_dictionaries()
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting, schema).unify_dictionaries()


def _unanswered(answers: pa.RecordBatch, chunk: ParsedRows) -> Iterator[BadRow]:
    """The rows that the model could not read."""
    reasons = answers.column(answers.schema.get_field_index("unreadable"))
    for row in pc.indices_nonzero(pc.is_valid(reasons)).to_pylist():
        line, text = chunk.written(row)
        yield BadRow(int(chunk.numbers[row]), line, reasons[row].as_py(), text)


class _UnreadableRows:
    """The rows of a piece that could not be read, on disk: there may be many."""

    def __init__(self, piece: Piece, *, strict: bool) -> None:
        self._piece, self._strict, self.n = piece, strict, 0
        self._lines = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object

    def __enter__(self) -> _UnreadableRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()

    def add(self, rows: list[BadRow]) -> None:
        """Keep these rows too; the rows of one batch are sorted."""
        for bad in sorted(rows):
            if self._strict:
                where = f"row {bad.row}" if bad.line is None else f"line {bad.line}"
                raise InputError(f"{self._piece.file} {where}: {bad.why}")
            facts = {"file": self._piece.name, "row": bad.row, "line": bad.line, "reason": bad.why, "text": bad.text}
            self._lines.write(f"{json.dumps(facts, ensure_ascii=False)}\n".encode(errors="backslashreplace"))
            self.n += 1

    def write(self, out: Place) -> None:
        """Write them next to the shards; no file if there are no such rows."""
        side = out / UNREADABLE / f"{self._piece.shard}.jsonl"
        if self.n:
            self._lines.seek(0)
            with side.writing() as path, open(path, "wb") as file:
                shutil.copyfileobj(self._lines, file)
        elif side.exists():  # from an earlier attempt
            side.remove()
