"""Linear classifiers of texts, each fitted without one fold, whose scores become the embeddings.

history = cross_fit_lines(model, inputs, y, folds_of(len(y)))

A text has far more n-grams than there are texts, so a classifier is sure of every text that it was fitted to.
Therefore each text votes from the scores of the classifier that left it out: that one treats it like a new text.

A classifier is the sum of a support vector machine and of naive Bayes classifiers, which take the evidence of each
n-gram by itself. The factors of these parts minimise -log P(y) of the texts left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import log_softmax
from sklearn.svm import LinearSVC
from torch import Tensor

from dwac.nn import WeightedAverage
from dwac.nn.batches import Inputs, move_to
from dwac.training.cross_fit import FOLDS, fit_votes, remember_all

Floats = NDArray[np.float64]

_C = 0.5  # inverse penalty of the support vector machines
_PRIORS = (0.2, 2.0)  # of naive Bayes: texts that are added to those of each n-gram, with the usual shares of classes
_USUAL, _LEAST = np.array([3.0, 0.3, 0.3]), 0.1  # factors from which a few texts should not stray far; the least one


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
    """Fit a linear classifier without each fold, and return the history, one row per fold.

    The loss is the squared hinge loss of each class against the others; the history has that of the texts left out.
    The network gets the mean of the classifiers, and all texts become references, each at the score of the classifier
    that left it out. For this the last of the inputs, the shift, is filled in, and the one before it, how strange a
    text is, is set to 0. Arguments as for `cross_fit`.
    """
    network: Any = model.first_network
    texts, labels, fold_of = _sparse(inputs, len(network.weight)), y.cpu().numpy(), folds.cpu().numpy()
    counts = np.ones(len(labels)) if weights is None else weights.cpu().numpy()
    parts, size = 1 + len(_PRIORS), model.n_classes
    left_out, starts = np.zeros((parts, len(labels), size)), np.zeros((parts, size))
    lines = np.zeros((parts, texts.shape[1], size))
    rows: list[dict[str, Any]] = []
    for fold in range(FOLDS):
        begin, own = time.perf_counter(), fold_of == fold
        others = texts[~own], labels[~own], size, counts[~own]
        for part in range(parts):
            line, start = _fit_bayes(*others, _PRIORS[part - 1]) if part else _fit_machine(*others, seed)
            left_out[part, own] = texts[own] @ line + start
            line /= FOLDS
            lines[part] += line
            starts[part] += start / FOLDS
        signs = np.where(np.arange(size) == labels[own, None], 1, -1)
        loss = float(np.square(np.maximum(0, 1 - signs * left_out[0, own])).sum(axis=1).mean()) if own.any() else 0.0
        rows.append({"epoch": fold + 1, "loss": loss, "seconds": time.perf_counter() - begin})
        if on_batch is not None:
            on_batch(1, 1)
        if on_epoch is not None:
            on_epoch(rows[-1])
    factors = _join(left_out, labels, counts)
    line, start = np.tensordot(factors, lines, 1), factors @ starts
    network.weight.copy_(torch.as_tensor(line))
    network.bias.copy_(torch.as_tensor(start))
    inputs[-2].zero_()
    inputs[-1].copy_(torch.as_tensor(np.tensordot(factors, left_out, 1) - (texts @ line + start)))
    placed = move_to(inputs, model.device)
    model.eval()
    model.embed(tuple(part[:2] for part in placed))  # initialise the lazy layer
    model.embedding.weight.copy_(torch.eye(model.n_classes))
    model.embedding.bias.zero_()
    y, folds = y.to(model.device), folds.to(model.device)
    votes = fit_votes(model, placed, y, folds, class_weights, base_votes=base_votes) if rescale else None
    remember_all(model, placed, y, votes)
    history = pd.DataFrame(rows)
    history.attrs["ended"] = "finished"
    return history


def _sparse(inputs: Inputs, n_ngrams: int) -> csr_matrix:
    """(n, n_ngrams): the shares of the n-grams in each text."""
    ngrams, shares = (part.cpu().numpy() for part in inputs[:2])
    used = ngrams > 0
    ends = np.concatenate([[0], used.sum(axis=1).cumsum()])
    return csr_matrix((shares[used].astype(np.float64), ngrams[used], ends), shape=(len(ngrams), n_ngrams))


def _fit_machine(
    texts: csr_matrix, labels: NDArray[np.int64], n_classes: int, counts: Floats, seed: int
) -> tuple[Floats, Floats]:
    """The lines (p, K) and starts (K,) of a support vector machine; a class without texts scores -1."""
    line, start = np.zeros((texts.shape[1], n_classes)), np.full(n_classes, -1.0)
    present = np.unique(labels)
    if len(present) == 1:
        start[present] = 1.0
        return line, start
    fitted = LinearSVC(C=_C, random_state=seed % 2**31).fit(texts, labels, sample_weight=counts)
    line[:, present], start[present] = fitted.coef_.T, fitted.intercept_
    if len(present) == 2:  # scikit-learn fits the second
        line[:, present[0]] *= -1
        start[present[0]] *= -1
    return line, start


def _fit_bayes(
    texts: csr_matrix, labels: NDArray[np.int64], n_classes: int, counts: Floats, prior: float
) -> tuple[Floats, Floats]:
    """The lines (p, K) and starts (K,) of naive Bayes: the log-odds of each class against the others.

        W_gk = log (N_gk + a q_k) / (N_g - N_gk + a (1 - q_k)) - log q_k / (1 - q_k)

    N_gk: the sum of the shares of n-gram g in the texts of class k; N_g: in all texts; q_k: the share of class k in the
    sum over all n-grams. An n-gram without texts is no evidence.
    """
    of_class = np.eye(n_classes)[labels] * counts[:, None]
    shares = np.asarray(texts.T @ of_class)
    usual = ((shares.sum(axis=0) + 1) / (shares.sum() + n_classes)).clip(max=1 - 1e-6)
    rest = shares.sum(axis=1, keepdims=True) - shares
    line = _add_log(shares, prior * usual)
    line -= _add_log(rest.clip(min=0, out=rest), prior * (1 - usual))
    classes = (of_class.sum(axis=0) + 1) / (counts.sum() + n_classes)
    line -= np.log(usual / (1 - usual))
    return line, np.log(classes / (1 - classes).clip(min=1e-6))


def _add_log(table: Floats, prior: Floats) -> Floats:
    """log(table + prior), in place: tables of many classes are large."""
    table += prior
    return np.log(table, out=table)


def _join(left_out: NDArray[np.float64], labels: NDArray[np.int64], counts: Floats) -> Floats:
    """(V,): the factors of classifiers with scores (V, n, K), by -log P(y) of a softmax of their sum."""
    own = np.take_along_axis(left_out, labels[None, :, None], axis=2)[:, :, 0]
    counts = counts / counts.sum()

    def loss(factors: Floats) -> tuple[float, Floats]:
        log_p = log_softmax(np.tensordot(factors, left_out, 1), axis=1)
        value = -counts @ log_p[np.arange(len(labels)), labels] + np.square(factors / _USUAL).sum() / 2 / len(labels)
        expected = np.einsum("nk,vnk->vn", np.exp(log_p), left_out)
        return float(value), (expected - own) @ counts + factors / _USUAL**2 / len(labels)

    bounds = [(_LEAST, None)] + [(0, None)] * len(_PRIORS)
    return np.asarray(minimize(loss, _USUAL, jac=True, method="L-BFGS-B", bounds=bounds).x)
