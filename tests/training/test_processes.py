"""Two processes train the model that one trains; when one of them dies, the other says so and nothing is lost."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from typer.testing import CliRunner

import dwac
from dwac.cli.app import app
from dwac.errors import ProcessError
from dwac.storage.tensors import unpack_tensors
from dwac.training import processes
from tests.named import named, refuses
from tests.training import sharing

Found = Callable[..., dict[str, Tensor]]
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(part or str(Path.cwd()) for part in sys.path), "PYTHONWARNINGS": "error"}


def start(command: list[str], n: int) -> list[int]:
    """Run a command as n processes that find one another, each to its own end; their exit codes."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    shared = {"WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    shared |= {"LOCAL_WORLD_SIZE": str(n), "TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1"}
    if sys.platform == "linux":
        shared["GLOO_SOCKET_IFNAME"] = "lo"  # whatever the name of this machine resolves to
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(n)]
    started = [subprocess.Popen(command, env={**os.environ, **ENVIRONMENT, **shared, **rank}) for rank in ranks]
    try:
        return [process.wait(timeout=400) for process in started]
    finally:
        for process in started:
            process.kill()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What two processes found, by name and rank."""
    folder = tmp_path_factory.mktemp("ranks")
    sharing.trained("votes", checkpoint=folder / "by one", on_epoch=sharing.stopping(2))
    codes = start([sys.executable, "-m", sharing.__name__, str(folder)], 2)
    assert codes == [ProcessError.exit_code, -signal.SIGKILL]  # as the last thing

    def read(name: str, rank: int = 0) -> dict[str, Tensor]:
        return unpack_tensors((folder / f"{name} {rank}").read_bytes(), name)[0]

    read.folder = folder  # type: ignore[attr-defined]
    return read


def close(first: dict[str, Tensor], second: dict[str, Tensor], within: float) -> None:
    assert first.keys() == second.keys()
    for name, part in first.items():
        assert torch.allclose(part.double(), second[name].double(), rtol=within, atol=within), name


@pytest.mark.slow
def test_loss_and_gradient_are_those_of_the_joined_batch(found: Found) -> None:
    differences = {name: float(value) for name, value in found("losses").items()}
    assert len(differences) == 4 * len(sharing.heads())
    assert {name: value for name, value in differences.items() if not value < 1e-12} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["votes", "averages", "softmax"])
def test_two_processes_train_the_model_of_one(found: Found, name: str) -> None:
    close(found(f"trained {name}"), sharing.trained(name), within=1e-6)


@pytest.mark.slow
def test_all_ranks_end_with_the_same_numbers(found: Found) -> None:
    for name in ("trained votes", "blocks", "resumed by two", "interrupted", "fitted", "without a seed"):
        close(found(name), found(name, 1), within=0)


@pytest.mark.slow
def test_blocks_of_a_file_are_shared_too(found: Found) -> None:
    close(found("blocks"), sharing.trained("votes", block_rows=4), within=1e-6)
    assert not torch.allclose(found("blocks")["ref_h"], found("trained votes")["ref_h"], atol=1e-3)


@pytest.mark.slow
def test_another_number_of_processes_resumes(found: Found) -> None:
    whole = sharing.trained("votes")
    close(found("resumed by two"), whole, within=1e-6)
    checkpoint: Path = found.folder / "by two"  # type: ignore[attr-defined]
    assert checkpoint.exists()
    resumed = sharing.trained("votes", checkpoint=checkpoint)
    close(resumed, whole, within=1e-6)
    assert not checkpoint.exists()


@pytest.mark.slow
def test_ctrl_c_on_one_rank_stops_all_after_the_same_step(found: Found) -> None:
    assert len(found("interrupted")["history"]) == 2 < sharing.OPTIONS["epochs"]


@pytest.mark.slow
def test_a_classifier_is_calibrated_and_represented_as_by_one(found: Found) -> None:
    alone = sharing.fitted()
    assert int(alone["voters"]) == 40
    close(found("fitted"), alone, within=1e-3)
    close(found("cross-fitted"), sharing.cross_fitted(random_state=0), within=1e-4)


@pytest.mark.slow
def test_ranks_with_different_rows_are_refused(found: Found) -> None:
    for rank in (0, 1):
        [message] = found("refusal", rank)
        assert named(message, "rank 0", 45, "rank 1", 46)


@pytest.mark.slow
def test_a_killed_process_ends_the_training_with_a_checkpoint(found: Found) -> None:
    folder: Path = found.folder  # type: ignore[attr-defined]
    said = (folder / "said").read_text()
    assert named(said, "rank 0 of 2", folder / "of the killed", "2 epochs")
    resumed = sharing.trained("votes", checkpoint=folder / "of the killed", augment=lambda x, _: x)
    close(resumed, sharing.trained("votes"), within=1e-6)


@pytest.mark.slow
def test_the_command_trains_over_processes(tmp_path: Path) -> None:
    X, y = sharing.rows(60, seed=0)
    pd.DataFrame(X.numpy(), columns=list("abcd")).assign(y=y.numpy()).to_csv(tmp_path / "rows.csv", index=False)

    def torchrun(data: str) -> subprocess.CompletedProcess[str]:
        run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        options = ["-m", "dwac.training", data, "--target", "y", "-o", str(tmp_path / "model"), "--epochs", "2"]
        environment = {**os.environ, "PYTHONPATH": ENVIRONMENT["PYTHONPATH"]}
        return subprocess.run([*run, *options], env=environment, capture_output=True, text=True, timeout=400)

    told = torchrun(str(tmp_path / "rows.csv"))
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("written: ") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"rows.csv", "model"}
    assert len(dwac.load(tmp_path / "model").history_) == 2
    again = torchrun(str(tmp_path / "rows.csv"))
    assert again.returncode == 1
    assert named(again.stderr, tmp_path / "model", "--overwrite")


def test_processes_do_not_share_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dwac.nn.ranks.several_processes", lambda: True)
    told = CliRunner().invoke(app, ["train", "-", "--target", "y", "-o", str(tmp_path / "model")])
    assert told.exit_code == 1
    assert named(told.output, "standard input")


def test_a_process_that_nobody_started_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with processes() as place:
        assert place == (0, 1)
        assert place.first
    monkeypatch.setenv("RANK", "1")
    with refuses(ProcessError, "WORLD_SIZE", "torchrun"), processes():
        pass
