"""Votes by classifiers that were not trained on the row: every kind of input, rare classes, and no leaks."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

from dwac import DWACClassifier, Training
from dwac.errors import InputError
from dwac.estimator.out_of_fold import out_of_fold_votes, stratified_folds
from tests.named import refuses

pytestmark = pytest.mark.usefixtures("few_steps")

N = 60
Y = np.arange(N) % 2
RNG = np.random.default_rng(0)
NUMBERS = np.stack([3 * Y + 0.1 * RNG.normal(size=N), RNG.normal(size=N)], axis=1).astype(np.float32)
with torch.random.fork_rng():
    torch.manual_seed(0)
    NETWORK = nn.Linear(2, 4)
KINDS: dict[str, tuple[Any, Any]] = {
    "table": (pd.DataFrame(NUMBERS, columns=["a", "b"]), "auto"),
    "image": ((NUMBERS[:, :1, None] * np.ones((1, 8, 8)) * 30 + 50).astype(np.uint8), "image:paper"),
    "text": ([("cold dark sea" if k else "warm bright sand") + f" {i}" for i, k in enumerate(Y)], "auto"),
    "module": (torch.as_tensor(NUMBERS), NETWORK),
    "dataset": (TensorDataset(torch.as_tensor(NUMBERS), torch.as_tensor(Y)), NETWORK),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_is_judged_by_others(kind: str) -> None:
    X, encoder = KINDS[kind]
    clf = DWACClassifier(encoder, epochs=8, training=Training(learning_rate=2e-2), random_state=0, device="cpu")
    votes = out_of_fold_votes(clf, X, None if kind == "dataset" else Y, folds=3)
    assert votes.shape == (N, 2)
    assert np.isfinite(votes).all()
    assert np.mean(votes.argmax(axis=1) == Y) > 0.9
    assert not hasattr(clf, "model_")  # the classifier given is not fitted


def test_no_row_is_judged_by_a_model_that_was_trained_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[set[int]] = []
    fit, votes_of = DWACClassifier.fit, DWACClassifier.log_class_weights
    judged: list[int] = []

    def watched(self: DWACClassifier, X: pd.DataFrame, y: Any, *, ids: list[int]) -> Any:
        trained.append(set(X.index))
        assert set(ids) == trained[-1]
        return fit(self, X, y, ids=ids)

    def asked(self: DWACClassifier, X: pd.DataFrame) -> Any:
        assert not trained[-1] & set(X.index)
        judged.extend(X.index)
        return votes_of(self, X)

    monkeypatch.setattr(DWACClassifier, "fit", watched)
    monkeypatch.setattr(DWACClassifier, "log_class_weights", asked)
    out_of_fold_votes(DWACClassifier(epochs=1, random_state=0, device="cpu"), KINDS["table"][0], Y, folds=4)
    assert sorted(judged) == list(range(N))
    assert len(trained) == 4


def test_a_class_with_one_row_has_no_votes_for_that_row() -> None:
    y = np.array(["a", "b"] * 30, dtype=object)
    y[7] = "only"
    votes = out_of_fold_votes(
        DWACClassifier(epochs=2, validation_size=0, random_state=0, device="cpu"), KINDS["table"][0], y, folds=3
    )
    assert votes[7, 2] == -np.inf
    assert np.isfinite(votes[7, :2]).all()
    assert np.isfinite(np.delete(votes, 7, axis=0)[:, :2]).all()


def test_a_seed_gives_the_same_votes_again() -> None:
    clf = DWACClassifier(epochs=2, random_state=3, device="cpu")
    first, second = (out_of_fold_votes(clf, KINDS["table"][0], Y, folds=2) for _ in range(2))
    assert (first == second).all()


@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.integers(2, 6), st.integers(0, 1000))
def test_folds_have_one_size_and_their_share_of_every_class(codes: list[int], folds: int, seed: int) -> None:
    codes = [*codes, *range(folds)]
    found = stratified_folds(np.array(codes), folds, np.random.RandomState(seed))
    sizes = np.bincount(found, minlength=folds)
    assert np.ptp(sizes) <= 1
    for code in set(codes):
        assert np.ptp(np.bincount(found[np.array(codes) == code], minlength=folds)) <= 1


@pytest.mark.parametrize("folds", [0, 1, 61])
def test_a_number_of_folds_that_cannot_be_is_refused(folds: int) -> None:
    with refuses(InputError, "folds", folds):
        out_of_fold_votes(DWACClassifier(), KINDS["table"][0], Y, folds=folds)
