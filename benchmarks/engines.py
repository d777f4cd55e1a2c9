"""What Dask, Ray and Spark cost over processes of this machine, on the same pieces, in one run.

python -m benchmarks.engines --rows 400000 --files 16        # engines that are not installed are left out

Three costs are measured apart. Start: from the call to the first result of a task that does nothing. Per piece: what a
piece takes from one result to the next, with that task. Sent: the bytes of task and piece together. The rest of the
difference between engines is how well two workers share two cores with the engine's own processes.
"""

from __future__ import annotations

import argparse
import pickle
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import record
from dwac import DWACClassifier
from dwac.errors import InputError
from dwac.scoring.engines import ENGINES, engine
from dwac.scoring.pieces import Done, Piece
from dwac.scoring.run import prepare

PACKAGES = {"dask": "distributed", "ray": "ray", "spark": "pyspark"}
FEATURES = 10


def rows_of(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(rng.normal(size=(n, FEATURES)), columns=[f"x{i}" for i in range(FEATURES)])


def fitted(folder: Path, voters: int, seed: int = 0) -> Path:
    """The folder of a classifier of tables with so many training rows."""
    X = rows_of(voters, seed)
    y = np.where(X["x0"] + X["x1"] * X["x2"] > 0, "yes", "no")
    DWACClassifier(epochs=2, random_state=seed, device="cpu").fit(X, y).save(folder)
    return folder


def written(folder: Path, rows: int, files: int) -> Path:
    """A folder of Parquet files, each one piece."""
    folder.mkdir()
    for part in range(files):
        frame = rows_of(rows // files, 100 + part)
        table = pa.Table.from_pandas(frame, preserve_index=False)
        pq.write_table(table, folder / f"{part:04d}.parquet")
    return folder


def nothing(piece: Piece) -> Done:
    """A task that costs nothing, so that what remains is the engine's."""
    return Done(piece.number)


def engine_costs(name: str, pieces: list[Piece], workers: int) -> tuple[float, float]:
    """(seconds to the first result, seconds per further piece) of a task that does nothing."""
    began = time.perf_counter()
    at = [time.perf_counter() for _ in engine(name)(nothing, pieces, workers, {})]
    return at[0] - began, (at[-1] - at[0]) / (len(at) - 1)


def scored(name: str, model: Path, data: Path, out: Path, workers: int) -> tuple[list[Done], list[float]]:
    """What came of each piece, and when, in seconds from the call."""
    run = prepare(model, data, out)
    began = time.perf_counter()
    found = [(done, time.perf_counter() - began) for done in run.results(name, workers)]
    if run.summary.failed:
        raise SystemExit(run.summary.failed[0].error)
    return [done for done, _ in found], [at for _, at in found]


def measured(name: str, model: Path, data: Path, out: Path, workers: int, empty: int) -> dict[str, Any]:
    run = prepare(model, data, out.with_name(f"{out.name}-plan"))
    pieces = [Piece(number, f"part-{number}", "a.csv", "a.csv", "csv") for number in range(empty)]
    start, each = engine_costs(name, pieces, workers)
    dones, at = scored(name, model, data, out, workers)
    rows = sum(done.rows for done in dones)
    return {
        "engine": name,
        "version": _version(name),
        "start s": start,
        "per piece ms": 1000 * each,
        "sent per piece B": len(pickle.dumps((run.task, run.pieces[0]))),
        "first shard s": at[0],
        "all s": at[-1],
        "work s": sum(done.seconds for done in dones) / workers,
        "rows/s after the first": (rows - dones[0].rows) / (at[-1] - at[0]),
    }


def _version(name: str) -> str:
    try:
        return version(PACKAGES[name]) if name in PACKAGES else "–"
    except PackageNotFoundError:
        return "?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--voters", type=int, default=5_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--empty", type=int, default=300, help="pieces of the task that does nothing")
    config = parser.parse_args()
    table = []
    with tempfile.TemporaryDirectory() as folder:
        model = fitted(Path(folder, "model"), config.voters)
        data = written(Path(folder, "rows"), config.rows, config.files)
        for name in ENGINES:
            try:
                engine(name)
            except InputError as error:
                print(f"left out: {error}")
                continue
            found = measured(name, model, data, Path(folder, f"out-{name}"), config.workers, config.empty)
            shards = {path.name: path.read_bytes() for path in Path(folder, f"out-{name}").glob("*.parquet")}
            first = {path.name: path.read_bytes() for path in Path(folder, "out-local").glob("*.parquet")}
            table.append({**found, "same bytes": shards == first})
            print(table[-1], flush=True)
    frame = pd.DataFrame(table)
    frame["over local"] = frame["all s"] / frame["all s"][0]
    frame["over local after the first"] = frame["rows/s after the first"][0] / frame["rows/s after the first"]
    claim = (
        f"What each engine costs over the local one: {config.rows:,} rows in {config.files} pieces, the same pieces."
    )
    record.write("engines", claim, vars(config), frame)


if __name__ == "__main__":
    main()
