"""Spark: each piece is a job of one task, on a cluster or in processes on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from dwac.scoring.engines import TRIES, failed, lost
from dwac.scoring.pieces import Done, Piece

_DIED = ("crashed", "ExecutorLost")  # in Spark's message about a task whose process or machine is gone
_HERE = "local[*]"  # Spark's default master


def run(
    task: Callable[[Piece], Done], pieces: Iterable[Piece], workers: int, options: Mapping[str, Any]
) -> Iterator[Done]:
    """Run the task on every piece, and again if its worker died.

    The cluster is the one at options["address"], or that PYSPARK_SUBMIT_ARGS or spark-defaults.conf names, with as
    many tasks at once as it has cores; otherwise `workers` processes run on this machine.

    Each piece is a separate job: one job for all would return nothing before its end, and stop at the first failure.
    """
    ours = SparkContext._active_spark_context is None
    context = _context(workers, options.get("address"))
    pool = ThreadPoolExecutor(max(context.defaultParallelism, 1), thread_name_prefix="dwac-spark")
    try:
        futures = [pool.submit(_done, context, task, piece) for piece in pieces]
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        if ours:
            context.stop()


def _context(workers: int, address: str | None) -> SparkContext:
    if SparkContext._active_spark_context is not None:
        return SparkContext.getOrCreate()
    SparkContext._ensure_initialized()  # starts Java, which reads the settings
    conf = SparkConf().setAppName("dwac score").setIfMissing("spark.log.level", "FATAL")
    conf.setIfMissing("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    master = str(address or conf.get("spark.master", _HERE))
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # not the python3 on the path
        conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        master = f"local[{workers}]" if master == _HERE else master
    return SparkContext.getOrCreate(conf.setMaster(master))


def _done(context: SparkContext, task: Callable[[Piece], Done], piece: Piece) -> Done:
    """Run one piece. Spark keeps its Python worker processes, and so the model, between tasks."""
    for _ in range(TRIES if context.master.startswith("local") else 1):  # on clusters Spark itself retries
        try:
            done: Done = context.parallelize([piece], 1).map(task).collect()[0]
            return done
        except (Py4JError, PySparkException) as error:
            if not any(sign in str(error) for sign in _DIED):
                return failed(piece, error)
    return lost(piece)
