"""One function trains under Spark's TorchDistributor and under Ray Train: both start processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dwac
from tests.scoring.engines.conftest import needed

JOB = """
import numpy as np
import dwac

def main(folder):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 6000)
    X = rng.normal(size=(6000, 4)) + y[:, None]
    encoder = dwac.encoders.TabularEncoder(dropout=0.0)
    with dwac.training.processes() as place:
        clf = dwac.DWACClassifier(encoder, random_state=0, epochs=2, device="cpu", verbose=False).fit(X, y)
        if place.first:
            clf.save(folder)
    return place.size
"""
STARTERS = {
    "spark": """
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession
from job import main

SparkSession.builder.master("local[2]").getOrCreate()
assert TorchDistributor(num_processes=2, local_mode=True, use_gpu=False).run(main, "model") == 2
""",
    "ray": """
import os
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

def loop():
    from job import main
    assert main(os.environ["FOLDER"]) == 2

ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
storage = RunConfig(storage_path=os.path.abspath("ray"))
TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2), run_config=storage).fit()
""",
}


@pytest.mark.parametrize(("module", "extra"), [("pyspark", "spark"), ("ray.train", "ray")])
def test_the_same_function_trains_wherever_processes_come_from(module: str, extra: str, tmp_path: Path) -> None:
    needed(module, extra)
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "start.py").write_text(STARTERS[extra])
    paths = [str(tmp_path), str(Path(dwac.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    variables = {"PYTHONPATH": os.pathsep.join(paths), "FOLDER": str(tmp_path / "model"), "OMP_NUM_THREADS": "1"}
    variables |= {"RAY_USAGE_STATS_ENABLED": "0", "PYSPARK_PYTHON": sys.executable}
    subprocess.run([sys.executable, "start.py"], cwd=tmp_path, env=os.environ | variables, check=True, timeout=300)
    job: dict[str, object] = {}
    exec(JOB, job)
    assert job["main"](tmp_path / "alone") == 1  # type: ignore[operator]
    X = np.random.default_rng(1).normal(size=(200, 4)) + 1
    together, alone = (dwac.load(tmp_path / name, device="cpu").predict_proba(X) for name in ("model", "alone"))
    np.testing.assert_allclose(together, alone, atol=1e-3)
