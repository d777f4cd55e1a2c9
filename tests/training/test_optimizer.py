"""Our AdamW is PyTorch's, without its compiler."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dwac.training.checkpoint import flatten_optimizer, restore_optimizer
from dwac.training.steps import AdamW

SETTINGS: dict[str, Any] = {"lr": 1e-2, "betas": (0.9, 0.95), "weight_decay": 0.1, "fused": True}

ALONE = """
import sys, tempfile, torch
import dwac
from dwac.nn import WeightedAverage
from dwac.training import train
x, y = torch.randn(200, 3), torch.arange(200) % 2
train(WeightedAverage(torch.nn.Linear(3, 4), 2), x[:30], y[:30], validation=(x[30:], y[30:]), epochs=2, rescale=True)
rows, texts = x.numpy(), ["a good day", "a bad night"] * 100
for settings in ({"cross_fit": True}, {"cross_fit": False, "epochs": 1}, {"shards": 2, "epochs": 1}, {"epochs": 1}):
    with tempfile.TemporaryDirectory() as folder:
        clf = dwac.DWACClassifier(**settings, random_state=0, verbose=False)
        clf.fit(texts if settings == {"epochs": 1} else rows, y.numpy()).save(f"{folder}/model")
        dwac.load(f"{folder}/model")
print("torch._dynamo" in sys.modules)
"""


def trained(kind: type[torch.optim.AdamW], steps: int) -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(0)
    layer = torch.nn.Linear(5, 3)
    optimizer = kind(layer.parameters(), **SETTINGS)
    for step in range(steps):
        optimizer.zero_grad(set_to_none=True)
        optimizer.param_groups[0]["lr"] = 1e-2 / (step + 1)
        layer(torch.randn(8, 5)).square().sum().backward()
        optimizer.step()
    return layer, optimizer


@pytest.mark.slow
def test_every_step_is_that_of_pytorch() -> None:
    ours, theirs = trained(AdamW, 5)[0], trained(torch.optim.AdamW, 5)[0]
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)
    assert not torch.equal(ours.weight, trained(AdamW, 4)[0].weight)


def test_no_step_is_recorded_for_gradients() -> None:
    layer, optimizer = trained(AdamW, 2)
    assert layer.weight.is_leaf
    assert not any(part.requires_grad for part in optimizer.state[layer.weight].values())


def test_checkpoints_of_pytorchs_optimizer_can_be_resumed() -> None:
    theirs, ours = trained(torch.optim.AdamW, 5)[1], trained(AdamW, 1)[1]
    restore_optimizer(ours, *flatten_optimizer(theirs))
    for one, other in zip(ours.state.values(), theirs.state.values(), strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_neither_training_nor_loading_imports_the_compiler() -> None:
    source = Path(sys.modules[AdamW.__module__].__file__ or "").parents[2]
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", ALONE], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
