"""`score` for the data frames of Dask, Ray and Spark: a thin wrapper for each, which avoids its pitfalls.

None of the three is imported before it is needed. Workers are sent only the `Request`, with the absolute path of the
model: each worker process loads the model once, and must see it under that path. A worker computes with as many
threads as its engine gives it cores. A column holds the ids of the rows (`id="…"`). Without one the answers have no
column "id": row numbers would start from 0 again in every partition.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import pandas as pd
import pyarrow as pa

from dwac.errors import InputError
from dwac.scoring import core
from dwac.scoring.request import Request, model_of, request_of


@dataclass(frozen=True)
class Scorer:
    """The common part of the three: batches of one partition in, their answers out."""

    request: Request

    def answers(self, batches: Any) -> Iterator[pa.RecordBatch]:
        """The answers for a partition, in order."""
        for batch in core.score(self.request, batches):
            yield batch if self.request.id is not None else batch.drop_columns(["id"])

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the answers. Loads the model."""
        schema = core.schema(self.request)
        return schema if self.request.id is not None else schema.remove(schema.get_field_index("id"))


# Spark


@dataclass(frozen=True)
class SparkScorer(Scorer):
    """A function for `DataFrame.mapInArrow`, and the schema of its result."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The answers for one partition."""
        return replace(self, request=_on_own_gpu(self.request)).answers(batches)

    @property
    def schema(self) -> str:
        """The columns of the answers as Spark writes them: "label string, probability double, …"."""
        return ", ".join(f"`{field.name.replace('`', '``')}` {_spark_type(field.type)}" for field in self.arrow_schema)


def spark(model: str | PathLike[str] | Request, **options: Any) -> SparkScorer:
    """A function that scores the rows of a Spark data frame.

        scorer = dwac.scoring.spark("/shared/model", id="row")
        spark.read.parquet("s3a://…").mapInArrow(scorer, scorer.schema).write.parquet("s3a://…")

    Args:
        model: the path of a model folder that every executor sees, or a `Request`.
        options: those of `Request`. threads is 1 unless given, as Spark gives each task one core (spark.task.cpus).
    """
    return SparkScorer(_make_portable(model, options))


def _on_own_gpu(request: Request) -> Request:
    """The request on the GPU that Spark gave to this task (spark.task.resource.gpu.amount), if it did."""
    from pyspark import TaskContext

    context = TaskContext.get()
    gpu = context.resources().get("gpu") if context is not None and request.device == "auto" else None
    return request if gpu is None else replace(request, device=f"cuda:{gpu.addresses[0]}")


def _spark_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{_spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return f"struct<{', '.join(f'{field.name}: {_spark_type(field.type)}' for field in fields)}>"
    names = {pa.string(): "string", pa.int64(): "bigint", pa.float64(): "double", pa.bool_(): "boolean"}
    return names[kind]


# Dask


@dataclass(frozen=True)
class DaskScorer(Scorer):
    """A function for `dask.dataframe.DataFrame.map_partitions`, and the meta of its result."""

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The answers for one partition, with its index."""
        table = pa.Table.from_pandas(frame, preserve_index=False)
        answers = pa.Table.from_batches(self.answers(table), self.arrow_schema)
        return _frame(answers).set_index(frame.index)

    @property
    def meta(self) -> pd.DataFrame:
        """The columns of the answers as an empty data frame, with Arrow's types, so that lists keep theirs."""
        return _frame(self.arrow_schema.empty_table())


def dask(model: str | PathLike[str] | Request, **options: Any) -> DaskScorer:
    """A function that scores the partitions of a Dask data frame; answers have the index of their rows.

        scorer = dwac.scoring.dask("/shared/model")
        ddf.map_partitions(scorer, meta=scorer.meta).to_parquet("s3://…")

    Args:
        model: the path of a model folder that every worker sees, or a `Request`.
        options: those of `Request`. threads is 1 unless given: Dask runs as many tasks at once as a worker has threads.

    >>> import tempfile
    >>> from dwac import DWACClassifier
    >>> X = pd.DataFrame({"age": range(20, 80)})
    >>> clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X["age"] < 50)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     scorer = dask(clf.save(f"{folder}/model"), epsilon=0.1)
    ...     answers = scorer(X[:2])  # what Dask calls for each partition
    >>> list(answers["label"])
    [True, True]
    """
    return DaskScorer(_make_portable(model, options))


def _frame(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame


# Ray


class RayScorer(Scorer):
    """A class for `ray.data.Dataset.map_batches`: each of its actors loads the model when it starts."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        model_of(request)

    def __call__(self, batch: pa.Table) -> pa.Table:
        """The answers for one batch."""
        return pa.Table.from_batches(self.answers(batch), self.arrow_schema)


def ray(
    model: str | PathLike[str] | Request, *, workers: int | None = None, gpus: float = 0, **options: Any
) -> dict[str, Any]:
    """The arguments of `map_batches` that score the rows of a Ray dataset.

        ray.data.read_parquet("s3://…").map_batches(**dwac.scoring.ray("/shared/model", id="row")).write_parquet("s3://…")

    Args:
        model: the path of a model folder that every node sees, or a `Request`.
        workers: the most actors; None: as many as the cluster has room for. Ray starts with one and adds more while
            rows wait, so that cores are left for reading: a fixed number that takes every core would wait forever.
        gpus: GPUs per actor, such as 1, or 0.25 for four actors on one GPU. With 0, actors compute on the CPU.
        options: those of `Request`. threads, 1 unless given, is how many cores each actor takes.
    """
    try:
        from ray.data import ActorPoolStrategy
    except ModuleNotFoundError as error:
        raise InputError(f"dwac.scoring.ray needs {error.name}: pip install 'dwac[ray]'") from None
    request = _make_portable(model, options)
    if request.device == "auto":
        request = replace(request, device="cuda" if gpus else "cpu")
    return {
        "fn": RayScorer,
        "fn_constructor_args": (request,),
        "batch_format": "pyarrow",
        "batch_size": request.rows,
        "zero_copy_batch": True,
        "compute": ActorPoolStrategy(min_size=1, max_size=workers),
        "num_cpus": request.threads,
        "num_gpus": gpus,
    }


def _make_portable(model: str | PathLike[str] | Request, options: dict[str, Any]) -> Request:
    """The request to send to workers: with an absolute path, and few enough threads not to compete for cores."""
    request = request_of(model, **options)
    return replace(request, model=os.path.abspath(request.model), threads=request.threads or 1)
