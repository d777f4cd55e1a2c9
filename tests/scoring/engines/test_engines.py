"""Pieces on real engines: the same bytes as one process writes, also when workers are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dwac.cli.app import app
from dwac.scoring.engines import engine
from dwac.scoring.run import prepare, score_files
from tests.named import named
from tests.scoring.engines.conftest import needed, table

ENGINES = {"dask": "distributed", "ray": "ray", "spark": "pyspark"}


@pytest.fixture(params=ENGINES)
def name(request: pytest.FixtureRequest) -> str:
    """Each engine that is installed."""
    needed(ENGINES[request.param], request.param)
    return str(request.param)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of six Parquet files, and so six pieces."""
    folder = tmp_path_factory.mktemp("rows")
    for part in range(6):
        pq.write_table(table(300).slice(50 * part, 50), folder / f"{part}.parquet")
    return folder


def killed_once(task: Callable[[Any], Any], marks: Path, numbers: set[int]) -> Callable[[Any], Any]:
    """The task; the worker that gets one of these pieces first is killed, as when memory runs out."""

    def run_or_die(piece: Any) -> Any:
        mark = marks / f"{piece.number}.mark"
        if piece.number in numbers and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task(piece)

    return run_or_die


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning")  # of engines
def test_a_killed_worker_loses_nothing_and_shards_have_the_same_bytes(
    name: str, engine_model: Path, rows: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options: dict[str, Any] = {"id": "row", "voters": 2}
    assert not score_files(engine_model, rows, tmp_path / "local", workers=1, **options).failed
    prepared = prepare(engine_model, rows, tmp_path / "out", **options)
    there = {"address": request.getfixturevalue("dask_cluster").scheduler_address} if name == "dask" else {}
    results = list(engine(name)(killed_once(prepared.task, tmp_path, {2}), prepared.pending, 2, there))
    assert (tmp_path / "2.mark").exists()
    assert [done.error for done in results] == [None] * 6
    assert sorted(done.piece for done in results) == list(range(6))
    assert contents(tmp_path / "out") == contents(tmp_path / "local")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_piece_that_kills_every_worker_is_named_and_the_others_are_done(name: str) -> None:
    pieces: list[Any] = [SimpleNamespace(number=number, file=f"{number}.csv") for number in range(8)]

    def task(piece: Any) -> Any:  # knows nothing of dwac, so that workers start fast
        if piece.number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if piece.number == 5:
            raise ModuleNotFoundError("No module named 'dwac'")
        return SimpleNamespace(piece=piece.number, error=None)

    errors: dict[int, Any] = {done.piece: done.error for done in engine(name)(task, pieces, 2, {})}
    assert sorted(errors) == list(range(8))
    assert named(errors.pop(3), "3.csv", "3 workers")
    assert named(errors.pop(5), "'dwac'", "workers", "same Python")
    assert set(errors.values()) == {None}


# An object store


def test_a_run_in_an_object_store_goes_on_where_it_was_stopped(
    engine_model: Path, rows: Path, tmp_path: Path, s3: Any
) -> None:
    s3.put(f"{rows}/", "bucket/in/", recursive=True)
    stopped: Any = prepare(engine_model, "s3://bucket/in/", "s3://bucket/out/", id="row").results(workers=1)
    written = [f"bucket/out/part-{next(stopped).piece:05d}-00000.parquet" for _ in range(2)]
    stopped.close()
    before = [s3.info(path, refresh=True)["LastModified"] for path in written]
    arguments = ["score", str(engine_model), "s3://bucket/in/", "-o", "s3://bucket/out/", "--id", "row"]
    rest = CliRunner().invoke(app, [*arguments, "--workers", "1"])
    assert rest.exit_code == 0, rest.output
    assert named(rest.output, "200 rows", "4 shards")
    assert [s3.info(path, refresh=True)["LastModified"] for path in written] == before
    assert not score_files(engine_model, rows, tmp_path / "local", workers=1, id="row").failed
    shards = {name: data for name, data in contents(tmp_path / "local").items() if name.endswith(".parquet")}
    assert len(shards) == 6
    assert {path.rsplit("/", 1)[-1]: s3.cat_file(path) for path in s3.glob("bucket/out/*.parquet")} == shards
    other = CliRunner().invoke(app, [*arguments, "--epsilon", "0.2"])
    assert other.exit_code == 1
    assert named(other.output, "another run", "--epsilon", 0.05, 0.2)


def test_dask_workers_keep_their_memory_between_pieces() -> None:
    distributed = needed("distributed", "dask")
    from dwac.scoring.engines.dask import local_cluster

    with local_cluster(1) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        found = client.run(
            lambda: {name: os.environ.get(name) for name in ("MALLOC_TRIM_THRESHOLD_", "OMP_NUM_THREADS")}
        )
    assert found
    assert all(of == {"MALLOC_TRIM_THRESHOLD_": None, "OMP_NUM_THREADS": "1"} for of in found.values())
