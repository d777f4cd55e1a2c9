"""Rows in random order, and by blocks where they are read from a file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dwac.errors import InputError
from dwac.nn import WeightedAverage
from dwac.training import evaluate, train
from dwac.training.rows import WINDOW, count_batches, even_size, read_batches, windows
from tests.named import refuses
from tests.training.helpers import clusters, model_of


@given(
    n=st.integers(2, 400),
    size=st.integers(2, 50),
    block_rows=st.none() | st.integers(1, 60),
    seed=st.integers(0, 9),
)
def test_every_row_comes_once_and_no_batch_is_a_single_row(n, size, block_rows, seed):
    batches = [
        batch for window in windows(n, size, torch.Generator().manual_seed(seed), block_rows) for batch in window
    ]
    assert torch.equal(torch.cat(batches).sort().values, torch.arange(n))
    assert len(batches) == count_batches(n, size)
    assert all(len(batch) == size for batch in batches[:-1])
    assert 2 <= len(batches[-1]) <= size + 1


def test_a_window_reads_few_blocks_and_mixes_them():
    found = list(windows(100_000, 50, torch.Generator().manual_seed(0), 1000))
    assert len(found) == 13
    for window in found:
        rows = torch.cat(window)
        _, counts = (rows // 1000).unique(return_counts=True)
        assert (counts > 100).sum() <= WINDOW  # and a few rows that the window before has left
        assert len((window[0] // 1000).unique()) > 1
    assert not torch.equal(found[0][0], next(windows(100_000, 50, torch.Generator().manual_seed(1), 1000))[0])


@pytest.mark.parametrize("ahead", [False, True])
def test_rows_are_read_as_they_were_asked_for(ahead):
    x = (torch.arange(40).reshape(20, 2), torch.arange(20))
    batches = [torch.tensor([5, 3]), torch.tensor([19, 0, 4])]
    found = list(read_batches(x, batches, torch.device("cpu"), ahead=ahead))
    for (first, second), rows in zip(found, batches, strict=True):
        assert torch.equal(first, x[0][rows])
        assert torch.equal(second, rows)


@pytest.mark.slow
def test_trains_on_a_memory_mapped_file(tmp_path: Path):
    x, y = clusters(600)
    file = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (600, 4))
    file[:] = x.numpy()
    mapped = torch.from_numpy(file)
    validation = clusters(100, seed=1)
    options: dict[str, Any] = {
        "validation": validation,
        "epochs": 8,
        "batch_size": 32,
        "learning_rate": 1e-2,
        "rescale": True,
    }
    model = model_of(WeightedAverage)
    history = train(model, mapped, y, block_rows=20, checkpoint=tmp_path / "checkpoint", **options)
    assert history["validation_accuracy"].iloc[-1] > 0.95
    assert evaluate(model, *clusters(seed=2))[1] > 0.95
    assert isinstance(model, WeightedAverage)
    assert len(model.references) == 600
    again = model_of(WeightedAverage)
    train(again, x, y, block_rows=20, **options)
    assert isinstance(again, WeightedAverage)
    assert torch.equal(again.references.embeddings, model.references.embeddings)


def test_a_checkpoint_of_other_blocks_is_refused(tmp_path: Path):
    def stop(row):
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    path = tmp_path / "checkpoint"
    options: dict[str, Any] = {"epochs": 4, "checkpoint": path}
    train(WeightedAverage(nn.Linear(4, 4), 3), *clusters(), block_rows=10, on_epoch=stop, **options)
    assert path.exists()
    with refuses(InputError, path, "checkpoint"):
        train(WeightedAverage(nn.Linear(4, 4), 3), *clusters(), block_rows=11, **options)
    with refuses(InputError, "block_rows", 0):
        train(WeightedAverage(nn.Linear(4, 4), 3), *clusters(), block_rows=0)


@given(n=st.integers(0, 2000), most=st.integers(1, 600))
def test_even_batches_are_as_few_and_as_small_as_possible(n, most):
    size = even_size(n, most)
    assert 1 <= size <= most
    assert -(-n // size) == -(-n // most)
    assert size == 1 or -(-n // (size - 1)) > -(-n // most)
