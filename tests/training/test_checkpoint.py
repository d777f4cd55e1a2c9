"""Training that stops and continues from a checkpoint gives the same result as uninterrupted training, bit for bit."""

import json
import math
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import OneCycleLR

from dwac.errors import InputError, StorageError
from dwac.training.checkpoint import (
    checkpoint_bytes,
    flatten_optimizer,
    read_checkpoint,
    restore_optimizer,
    restore_rng,
    rng_state,
    save_checkpoint,
)
from tests.named import refuses

X = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
FACTS = {"epoch": 3, "best": float("inf"), "history": [{"loss": 0.5, "name": "é"}], "none": None}
TENSORS = {"w": torch.arange(6.0).reshape(2, 3).T, "n": torch.tensor(7), "b": torch.ones(3).bfloat16()}


def load_checkpoint(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    return read_checkpoint(checkpoint_bytes(path), str(path))


class Run:
    """A training run with everything that has a state: weights, moments, schedule, dropout, shuffling."""

    def __init__(self, seed: int, *, lr: Any = 1e-3, **options: Any) -> None:
        torch.manual_seed(seed)
        self.network = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 2))
        parameters = list(self.network.parameters())
        groups: list[dict[str, Any]] = [{"params": parameters[:1], "weight_decay": 0.1}, {"params": parameters[1:]}]
        self.optimizer = AdamW(groups, lr=lr, **options)
        self.scheduler = OneCycleLR(self.optimizer, max_lr=1e-2, total_steps=24)
        self.shuffling = torch.Generator().manual_seed(seed)

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            for batch in torch.randperm(64, generator=self.shuffling).split(16):
                loss = nn.functional.cross_entropy(self.network(X[batch]), Y[batch])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()

    def save(self, path: Path) -> None:
        moments, facts = flatten_optimizer(self.optimizer)
        tensors = self.network.state_dict() | moments | rng_state("cpu") | {"shuffling": self.shuffling.get_state()}
        save_checkpoint(path, tensors, {"optimizer": facts, "step": self.scheduler.last_epoch})

    def load(self, path: Path) -> None:
        tensors, facts = load_checkpoint(path)
        self.network.load_state_dict({name: tensors[name] for name in self.network.state_dict()})
        restore_optimizer(self.optimizer, tensors, facts["optimizer"])
        self.scheduler.last_epoch = facts["step"]
        restore_rng(tensors, "cpu")
        self.shuffling.set_state(tensors["shuffling"])

    def state(self) -> dict[str, Tensor]:
        return self.network.state_dict() | flatten_optimizer(self.optimizer)[0]


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize(
    "options",
    [{}, {"lr": torch.tensor(1e-3)}, {"fused": True}, {"foreach": True}, {"amsgrad": True}],
    ids=["plain", "tensor rate", "fused", "foreach", "amsgrad"],
)
@pytest.mark.parametrize("stops", [[0, 3, 6], [0, 1, 2, 3, 4, 5, 6]], ids=["one stop", "a stop an epoch"])
def test_training_continues_bit_for_bit(tmp_path, options, stops):
    def fresh(seed: int) -> Run:
        copies = {name: value.clone() if isinstance(value, Tensor) else value for name, value in options.items()}
        return Run(seed, **copies)

    straight = fresh(0)
    straight.train(6)

    run = fresh(0)
    for number, (start, stop) in enumerate(pairwise(stops)):
        run.train(stop - start)
        run.save(tmp_path / "c.safetensors")
        torch.rand(number + 1)  # whatever happens in between
        run = fresh(number + 1)
        run.load(tmp_path / "c.safetensors")
    assert_same(run.state(), straight.state())
    for group, other in zip(run.optimizer.param_groups, straight.optimizer.param_groups, strict=True):
        assert {k: v for k, v in group.items() if k != "params"} == {k: v for k, v in other.items() if k != "params"}
        assert type(group["lr"]) is type(other["lr"])


def test_without_the_random_state_it_would_differ(tmp_path):
    straight = Run(0)
    straight.train(6)
    run = Run(0)
    run.train(3)
    torch.rand(1)
    run.train(3)
    assert not torch.equal(run.state()["0.weight"], straight.state()["0.weight"])


def test_flattened_state_is_a_copy():
    run = Run(0)
    run.train(1)
    tensors, facts = flatten_optimizer(run.optimizer)
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    run.train(1)
    assert_same(tensors, before)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert all(name.startswith("optimizer.") for name in tensors)


def test_an_optimizer_that_has_not_stepped_is_restored():
    tensors, facts = flatten_optimizer(Run(0).optimizer)
    assert tensors == {}
    restore_optimizer(Run(1).optimizer, tensors, facts)


def test_how_it_computes_and_the_kind_of_rate_stay_those_of_the_new_optimizer(tmp_path):
    run = Run(0, lr=torch.tensor(1e-3))
    run.train(1)
    tensors, facts = flatten_optimizer(run.optimizer)
    other = Run(1, fused=True)
    restore_optimizer(other.optimizer, tensors, facts)
    assert other.optimizer.param_groups[0]["fused"] is True
    assert other.optimizer.param_groups[0]["lr"] == run.optimizer.param_groups[0]["lr"].item()
    back = Run(2, lr=torch.tensor(1e-3, dtype=torch.float64))
    restore_optimizer(back.optimizer, *flatten_optimizer(other.optimizer))
    assert back.optimizer.param_groups[0]["lr"].dtype == torch.float64
    other.train(1)
    back.train(1)


def test_other_optimizers_are_restored():
    weight = nn.Parameter(torch.ones(3))
    optimizer = SGD([weight], lr=0.1, momentum=0.9)
    weight.sum().backward()
    optimizer.step()
    again = SGD([nn.Parameter(torch.ones(3))], lr=0.5, momentum=0.9)
    restore_optimizer(again, *flatten_optimizer(optimizer))
    assert flatten_optimizer(again)[1] == flatten_optimizer(optimizer)[1]
    assert_same(flatten_optimizer(again)[0], flatten_optimizer(optimizer)[0])


def test_an_optimizer_of_another_kind_or_shape_is_rejected():
    run = Run(0)
    run.train(1)
    tensors, facts = flatten_optimizer(run.optimizer)
    parameters = list(run.network.parameters())
    with refuses(InputError, "AdamW", "SGD"):
        restore_optimizer(SGD(parameters), tensors, facts)
    with refuses(InputError, "shapes"):
        restore_optimizer(AdamW(parameters), tensors, facts)
    with refuses(InputError, "optimizer", "restored"):
        restore_optimizer(run.optimizer, {}, facts)
    with refuses(InputError, "optimizer", "restored"):
        restore_optimizer(run.optimizer, tensors, facts | {"state": {"value": {"eval": 1}}})


# Random numbers


def test_random_numbers_continue():
    states = rng_state("cpu")
    want = torch.rand(3)
    restore_rng(states, torch.device("cpu"))
    assert torch.equal(torch.rand(3), want)


def test_missing_and_wrong_random_states_are_reported():
    with refuses(InputError, "rng.cpu"):
        restore_rng({}, "cpu")
    with refuses(InputError, "state", "torch", 3):
        restore_rng({"rng.cpu": torch.zeros(3, dtype=torch.uint8)}, "cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_random_numbers_of_the_gpu_continue():
    states = rng_state("cuda")
    want = torch.rand(3, device="cuda")
    restore_rng(states, "cuda")
    assert torch.equal(torch.rand(3, device="cuda"), want)


# The file


def test_tensors_and_facts_are_restored(tmp_path):
    path = tmp_path / "new" / "folder" / "c.safetensors"
    save_checkpoint(path, TENSORS, FACTS | {"nan": float("nan")})
    tensors, facts = load_checkpoint(str(path))
    assert_same(tensors, TENSORS)
    assert math.isnan(facts.pop("nan"))
    assert facts == FACTS
    save_checkpoint(path, {}, {})
    assert load_checkpoint(path) == ({}, {})
    assert os.listdir(path.parent) == ["c.safetensors"]


def test_a_relative_path_and_stale_temporary_files_are_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(".dwac-0123456789abcdef.tmp").write_text("left by a killed process")
    Path("mine.tmp").write_text("mine")
    save_checkpoint("c.safetensors", TENSORS, FACTS)
    assert sorted(os.listdir()) == ["c.safetensors", "mine.tmp"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("operation", ["open", "write", "fsync", "replace"])
def test_a_failed_save_keeps_the_earlier_checkpoint(tmp_path, monkeypatch, operation, error):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, TENSORS, FACTS)

    def fail(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(os, operation, fail)
    with pytest.raises((KeyboardInterrupt, StorageError)):
        save_checkpoint(path, {}, {})
    monkeypatch.undo()
    assert load_checkpoint(path)[1] == FACTS
    assert os.listdir(tmp_path) == ["c.safetensors"]


@pytest.mark.parametrize(
    ("facts", "fact"),
    [
        ({"a": (1, 2)}, "tuple"),
        ({1: 2}, "strings"),
        ({"a": torch.ones(1)}, "Tensor"),
        ({"a": 10**5000}, "facts"),
    ],
)
def test_facts_that_json_would_change_are_rejected(tmp_path, facts, fact):
    with refuses(InputError, fact):
        save_checkpoint(tmp_path / "c", {}, facts)


def test_facts_too_large_for_the_header_are_rejected(tmp_path):
    with refuses(InputError, "safetensors header"):
        save_checkpoint(tmp_path / "c", {}, {"a": "x" * 10**8})
    assert os.listdir(tmp_path) == []


def test_missing_truncated_altered_foreign_and_newer_files_are_reported(tmp_path):
    path = tmp_path / "c.safetensors"
    with refuses(StorageError, "c.safetensors"):
        load_checkpoint(path)
    with refuses(StorageError, "read"):
        load_checkpoint(tmp_path)
    save_checkpoint(path, TENSORS, FACTS)
    data = path.read_bytes()
    for cut in (0, 5, 100, len(data) - 1):
        path.write_bytes(data[:cut])
        with refuses(StorageError, "c.safetensors"):
            load_checkpoint(path)
    for altered in (data[:-1] + bytes([data[-1] ^ 1]), data.replace(b'\\"epoch\\": 3', b'\\"epoch\\": 4')):
        assert altered != data
        path.write_bytes(altered)
        with refuses(StorageError, "SHA-256"):
            load_checkpoint(path)
    for metadata in (None, {"format": "pt"}, {"format": "dwac-checkpoint"}):
        safetensors.torch.save_file({"w": torch.ones(2)}, path, metadata)
        with refuses(StorageError, "c.safetensors", "checkpoint"):
            load_checkpoint(path)
    safetensors.torch.save_file({}, path, {"format": "dwac-checkpoint", "version": "2"})
    with refuses(StorageError, 2, 1, "upgrade"):
        load_checkpoint(path)


@settings(max_examples=100)
@given(st.data())
def test_no_flipped_byte_goes_unnoticed(tmp_path, data):
    path = tmp_path / "c.safetensors"
    save_checkpoint(path, TENSORS, FACTS)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        tensors, facts = load_checkpoint(path)
    except StorageError:
        return
    assert_same(tensors, TENSORS)  # a byte without meaning, e.g. of the version of dwac
    assert facts == FACTS
