"""One small model of a table, saved once for all tests of scoring on engines."""

from __future__ import annotations

import importlib
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dwac import DWACClassifier


def table(n: int, seed: int = 1) -> pa.Table:
    """Rows with a number, a category, gaps in both, and ids."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n)
    frame = pd.DataFrame({"row": [f"r{i}" for i in range(n)], "size": size, "kind": rng.choice(["a", "b", "c"], n)})
    frame.loc[rng.random(n) < 0.1, "size"] = np.nan
    frame["kind"] = frame["kind"].where(rng.random(n) > 0.1, None)
    return pa.Table.from_pandas(frame, preserve_index=False)


@pytest.fixture(scope="session")
def engine_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that says whether "size" is large, small or neither."""
    rows = table(240, seed=0).to_pandas()
    y = np.select([rows["size"] > 0.5, rows["size"] < -0.5], ["large", "small"], "neither")
    folder = tmp_path_factory.mktemp("engines") / "model"
    DWACClassifier(epochs=2, random_state=0, device="cpu").fit(rows[["size", "kind"]], y).save(folder)
    return folder


def needed(module: str, extra: str) -> Any:
    """The module of an engine; the test is skipped where it is missing, but not by `make test-engines`."""
    if os.environ.get("DWAC_ENGINES") == "all":
        return importlib.import_module(module)
    return pytest.importorskip(module, reason=f"not installed: pip install 'dwac[{extra}]'")


@pytest.fixture(scope="session")
def dask_cluster() -> Iterator[Any]:
    """A Dask cluster of two processes, as `dwac score --engine dask` starts it."""
    needed("distributed", "dask")
    from dwac.scoring.engines.dask import local_cluster

    with local_cluster(2) as cluster:
        yield cluster


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An object store on this machine with an empty bucket, to which s3:// addresses lead from here on."""
    needed("moto.server", "engines")
    from moto.server import ThreadedMotoServer
    from s3fs import S3FileSystem

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()
    files = S3FileSystem()
    files.mkdir("bucket")
    yield files
    S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture(autouse=True)
def not_for_ever() -> Iterator[None]:
    """A cluster that does not answer fails the test instead of stopping all."""

    def stop(*_: Any) -> None:
        raise TimeoutError("the engine did not answer within 10 minutes")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(600)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
