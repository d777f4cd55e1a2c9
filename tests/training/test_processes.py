"""Two processes train the model that one trains; when one of them dies, the other says so and nothing is lost."""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import dwac
from dwac.cli.app import app
from dwac.errors import ProcessError
from dwac.storage.tensors import unpack_tensors
from dwac.training import launch as launching
from dwac.training import processes
from dwac.training.launch import LOST, launch
from tests.named import named, refuses
from tests.training import sharing

Found = Callable[..., dict[str, Tensor]]
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(part or str(Path.cwd()) for part in sys.path), "PYTHONWARNINGS": "error"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What two processes found, by name and rank."""
    folder = tmp_path_factory.mktemp("ranks")
    sharing.trained("votes", checkpoint=folder / "by one", on_epoch=sharing.stopping(2))
    with refuses(ProcessError, 1, 2, "SIGKILL"):  # as the last thing
        launch([sys.executable, "-m", sharing.__name__, str(folder)], 2, environment=ENVIRONMENT, timeout=400)

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


# Who ended, and why


def ended(code: str) -> list[str]:
    """A command that knows its rank."""
    return [sys.executable, "-c", f"import os, sys, time; rank = int(os.environ['RANK']); {code}"]


def test_what_rank_0_says_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert launch(ended("print('done'); print('note', file=sys.stderr)"), 2) == 0
    assert launch(ended("sys.exit('wrong data')"), 3) == 1
    output = capfd.readouterr()
    assert output.out == "done\n"
    assert output.err == "note\nwrong data\n"


def test_the_process_at_fault_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "GRACE", 600.0)
    with refuses(ProcessError, 1, 2, "exit code 1"):
        launch(ended(f"sys.exit('no memory' if rank else {LOST})"), 2)
    with refuses(ProcessError, 0, 2, "SIGTERM"):
        launch(ended("os.kill(os.getpid(), 15) if rank == 0 else None"), 2)
    with refuses(ProcessError, 2):
        launch(ended("time.sleep(600)"), 2, timeout=0.5)
    monkeypatch.setattr(launching, "GRACE", 0.2)
    with refuses(ProcessError, 1, 2, "exit code 4"):
        launch(ended("sys.exit(4) if rank else time.sleep(600)"), 2)


@pytest.mark.slow
def test_the_command_trains_over_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    monkeypatch.setattr("dwac.cli.train.launch", partial(launch, timeout=400))
    X, y = sharing.rows(60, seed=0)
    pd.DataFrame(X.numpy(), columns=list("abcd")).assign(y=y.numpy()).to_csv(tmp_path / "rows.csv", index=False)
    model, options = tmp_path / "model", ["--target", "y", "-o", str(tmp_path / "model")]
    asked = ["train", str(tmp_path / "rows.csv"), *options, "--nproc", "2", "--epochs", "2"]
    told = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert told.exit_code == 0, told.output
    assert {path.name for path in tmp_path.iterdir()} == {"rows.csv", "model"}
    assert len(dwac.load(model).history_) == 2
    again = CliRunner().invoke(app, asked)
    assert again.exit_code == 1
    assert named(again.output, model, "--overwrite")
    assert named(CliRunner().invoke(app, ["train", "-", *options, "--nproc=2", "--overwrite"]).output, "standard input")


def test_a_process_that_nobody_started_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with processes() as place:
        assert place == (0, 1)
        assert place.first
    monkeypatch.setenv("RANK", "1")
    with refuses(ProcessError, "WORLD_SIZE", "torchrun"), processes():
        pass
