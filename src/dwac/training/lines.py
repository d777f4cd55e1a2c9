"""Linear classifiers of texts, each fitted without one fold, whose scores become the embeddings.

history = cross_fit_lines(model, inputs, y, folds_of(len(y)))

A text has far more n-grams than there are texts, so a classifier is sure of every text that it was fitted to. Here a
text votes from where the classifier places it that left it out, as it places new texts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.svm import LinearSVC
from torch import Tensor

from dwac.nn import WeightedAverage
from dwac.nn.batches import Inputs, batches_of, move_to
from dwac.training.cross_fit import FOLDS, fit_votes

Floats = NDArray[np.float64]

_C = 0.5  # inverse penalty of the classifiers


@torch.no_grad()
def cross_fit_lines(
    model: WeightedAverage,
    inputs: Inputs,
    y: Tensor,
    folds: Tensor,
    *,
    weights: Tensor | None = None,
    class_weights: Sequence[float] | None = None,
    rescale: bool = True,
    base_votes: bool = True,
    seed: int = 0,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    on_batch: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Fit a linear classifier without each fold, and return the history, a row for each.

    The loss is the squared hinge loss of each class against the others; that of the history is of the texts left out.
    The network gets the mean of the classifiers, and all texts become references, each at the score of the classifier
    that left it out: the last of the inputs, the shift, is filled for that, and none of them is strange. Arguments as
    for `cross_fit`.
    """
    network: Any = model.first_network
    texts, labels, fold_of = _sparse(inputs, len(network.weight)), y.cpu().numpy(), folds.cpu().numpy()
    left_out = np.zeros((len(labels), model.n_classes))
    lines, starts = np.zeros((texts.shape[1], model.n_classes)), np.zeros(model.n_classes)
    rows: list[dict[str, Any]] = []
    for fold in range(FOLDS):
        begin, own = time.perf_counter(), fold_of == fold
        line, start = _fit(
            texts[~own], labels[~own], model.n_classes, None if weights is None else weights.numpy()[~own], seed
        )
        left_out[own] = texts[own] @ line + start
        lines += line / FOLDS
        starts += start / FOLDS
        signs = np.where(np.arange(model.n_classes) == labels[own, None], 1, -1)
        loss = float(np.square(np.maximum(0, 1 - signs * left_out[own])).sum(axis=1).mean()) if own.any() else 0.0
        rows.append({"epoch": fold + 1, "loss": loss, "seconds": time.perf_counter() - begin})
        if on_batch is not None:
            on_batch(1, 1)
        if on_epoch is not None:
            on_epoch(rows[-1])
    network.weight.copy_(torch.as_tensor(lines))
    network.bias.copy_(torch.as_tensor(starts))
    inputs[-2].zero_()
    inputs[-1].copy_(torch.as_tensor(left_out - (texts @ lines + starts)))
    placed = move_to(inputs, model.device)
    model.eval()
    model.embed(tuple(part[:2] for part in placed))  # initialise the lazy layer
    model.embedding.weight.copy_(torch.eye(model.n_classes))
    model.embedding.bias.zero_()
    votes = (
        fit_votes(model, placed, y.to(model.device), folds.to(model.device), class_weights, base_votes=base_votes)
        if rescale
        else None
    )
    model.remember(batches_of(placed, y.to(model.device), torch.arange(len(y))))
    if votes is not None and votes.base > 0:
        model.references = model.references.replaced(look_alikes=(0.0, votes.base))
    history = pd.DataFrame(rows)
    history.attrs["ended"] = "finished"
    return history


def _sparse(inputs: Inputs, n_ngrams: int) -> csr_matrix:
    """(n, n_ngrams): the shares of the n-grams in each text."""
    ngrams, shares = (part.cpu().numpy() for part in inputs[:2])
    used = ngrams > 0
    ends = np.concatenate([[0], used.sum(axis=1).cumsum()])
    return csr_matrix((shares[used].astype(np.float64), ngrams[used], ends), shape=(len(ngrams), n_ngrams))


def _fit(
    texts: csr_matrix, labels: NDArray[np.int64], n_classes: int, weights: Floats | None, seed: int
) -> tuple[Floats, Floats]:
    """The lines (p, K) and starts (K,) of a classifier: a class that is not there scores -1."""
    line, start = np.zeros((texts.shape[1], n_classes)), np.full(n_classes, -1.0)
    here = np.unique(labels)
    if len(here) == 1:
        start[here] = 1.0
        return line, start
    fitted = LinearSVC(C=_C, random_state=seed % 2**31).fit(texts, labels, sample_weight=weights)
    both = np.array([[-1.0], [1.0]]) if len(here) == 2 else 1.0  # of two classes the second is fitted
    line[:, here], start[here] = (both * fitted.coef_).T, np.ravel(both * fitted.intercept_[:, None])
    return line, start
