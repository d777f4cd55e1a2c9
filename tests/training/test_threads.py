"""Few threads train what is small."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from dwac import DWACClassifier, _machine
from dwac._machine import few_threads
from dwac.encoders import ImageEncoder, TabularEncoder, TextEncoder


@pytest.fixture
def eight() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("most", "processors", "expected"), [(2, 16, 2), (2, 2, 1), (2, 1, 1), (4, 6, 3), (99, 64, 8), (None, 2, 8)]
)
def test_at_most_so_many_and_half_the_processors(eight, monkeypatch, most, processors, expected) -> None:
    monkeypatch.setattr(_machine, "cores", lambda: processors)
    with few_threads(most):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 8


def test_an_error_leaves_the_threads_as_they_were(eight, monkeypatch) -> None:
    monkeypatch.setattr(_machine, "cores", lambda: 16)
    with pytest.raises(ValueError, match="halt"), few_threads(1):
        raise ValueError("halt")
    assert torch.get_num_threads() == 8


def test_no_more_threads_than_before(monkeypatch) -> None:
    monkeypatch.setattr(_machine, "cores", lambda: 16)
    before = torch.get_num_threads()
    with few_threads(before + 3):
        assert torch.get_num_threads() == before


def test_a_small_table_is_fitted_with_few(eight, monkeypatch) -> None:
    monkeypatch.setattr(_machine, "cores", lambda: 16)
    found: list[int] = []

    def watched(*args: Any, **kwargs: Any) -> None:
        found.append(torch.get_num_threads())
        raise KeyError("far enough")

    monkeypatch.setattr("dwac.estimator.fit.network.train_folds", watched)
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(KeyError):
        DWACClassifier(random_state=0, verbose=False, device="cpu").fit(X, X[:, 0] > 0)
    assert found == [2]
    assert torch.get_num_threads() == 8


def test_large_tables_and_images_use_all() -> None:
    large, small = (TabularEncoder().adopt([], rows, [], pd.DataFrame()) for rows in (200_000, 20_000))
    assert large.recipe.threads is ImageEncoder().recipe.threads is None
    assert small.recipe.threads == TextEncoder().recipe.threads == 2
