"""Data frames of Dask, Ray and Spark on real workers get the answers that `score` gives."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dwac import scoring
from dwac.errors import InputError, StorageError
from tests.named import refuses
from tests.scoring.engines.conftest import needed, table

OPTIONS: dict[str, Any] = {"id": "row", "probabilities": True, "voters": 2, "epsilon": 0.2}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two Parquet files, 300 rows."""
    folder = tmp_path_factory.mktemp("rows")
    for place, start in enumerate((0, 170)):
        pq.write_table(table(300).slice(start, 170 if start == 0 else 130), folder / f"{place}.parquet")
    return folder


def assert_as_score_answers(answers: list[dict[str, Any]], model: Path) -> None:
    expected = pa.Table.from_batches(scoring.score(model, table(300), threads=1, **OPTIONS)).to_pylist()
    for answer, right in zip(sorted(answers, key=lambda each: int(each["id"][1:])), expected, strict=True):
        assert same(answer, right), (answer, right)


def same(one: Any, other: Any) -> bool:
    """The same up to rounding, which depends on the rows that share a batch."""
    if isinstance(one, float):
        return one == pytest.approx(other, rel=1e-6, abs=1e-9)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


# Without an engine


def test_only_a_small_request_travels(engine_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(engine_model.parent)
    for scorer in (scoring.spark("model"), scoring.dask("model")):
        assert len(pickle.dumps(scorer)) < 1000
        assert scorer.request.model == str(engine_model)  # workers have another current folder
        assert scorer.request.threads == 1


def test_without_ids_there_is_no_column_of_numbers_that_start_again_in_every_partition(engine_model: Path) -> None:
    scorer = scoring.dask(engine_model)
    assert "id" not in scorer.meta
    assert "`id`" not in scoring.spark(engine_model).schema
    assert list(scorer(table(3).to_pandas().set_index("row")).index) == ["r0", "r1", "r2"]


def test_the_meta_of_dask_is_what_partitions_are(engine_model: Path) -> None:
    scorer = scoring.dask(engine_model, **OPTIONS)
    for partition in (table(5), table(0)):
        pd.testing.assert_series_equal(scorer(partition.to_pandas()).dtypes, scorer.meta.dtypes)


def test_a_worker_that_does_not_see_the_model_says_so(engine_model: Path) -> None:
    with refuses(StorageError, "worker", "path"):
        scoring.dask(engine_model.parent / "gone")(table(3).to_pandas())


def test_an_engine_that_is_not_installed_is_named(engine_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with refuses(InputError, "pip install 'dwac[ray]'"):
        scoring.ray(engine_model)


def test_each_spark_task_computes_on_the_gpu_that_it_was_given(
    engine_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = SimpleNamespace(resources=lambda: {"gpu": SimpleNamespace(addresses=["99"])})
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(TaskContext=SimpleNamespace(get=lambda: given)))
    with refuses(StorageError, "cuda:99"):  # there is none here
        list(scoring.spark(engine_model)(table(3).to_batches()))


# On engines


@pytest.mark.slow
def test_dask_answers_as_score_does(engine_model: Path, rows: Path, dask_cluster: Any) -> None:
    import dask.dataframe as dd
    from distributed import Client

    scorer = scoring.dask(engine_model, **OPTIONS)
    with Client(dask_cluster, timeout=600):
        frame = dd.read_parquet(rows).map_partitions(scorer, meta=scorer.meta).compute()
    assert_as_score_answers(pa.Table.from_pandas(frame, preserve_index=False).to_pylist(), engine_model)


@pytest.fixture(scope="module")
def ray_of_two() -> Iterator[Any]:
    """Ray with two workers."""
    ray = needed("ray", "ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.mark.filterwarnings("ignore")  # of Ray's own
def test_ray_answers_as_score_does(engine_model: Path, rows: Path, ray_of_two: Any) -> None:
    import ray.data

    answers = ray.data.read_parquet(str(rows)).map_batches(**scoring.ray(engine_model, **OPTIONS)).take_all()
    assert_as_score_answers([plain(answer) for answer in answers], engine_model)


def plain(value: Any) -> Any:
    """Arrays of Ray as lists, and its missing values as None."""
    if isinstance(value, dict):
        return {name: plain(held) for name, held in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return [plain(each) for each in value] if isinstance(value, list) else value


@pytest.mark.filterwarnings("ignore::FutureWarning:pyspark", "ignore:PySpark does not yet:FutureWarning")
def test_spark_answers_as_score_does(engine_model: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = needed("pyspark.sql", "spark")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    scorer = scoring.spark(engine_model, **OPTIONS)
    try:
        answered = session.read.parquet(str(rows)).mapInArrow(scorer, scorer.schema).collect()
    finally:
        session.stop()
    assert_as_score_answers([row.asDict(recursive=True) for row in answered], engine_model)
