"""Condensing: a few real examples vote for all, chosen so that validation rows hardly notice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.engine.groups import Tree, divide
from dwac.errors import InputError
from dwac.metrics import Agreement, agreement, log_loss
from dwac.reference import ReferenceSet

SAME_LABEL = 0.995  # the least share of validation rows with the label that all voters give
LOG_LOSS = 1.005  # the most that their log-loss may grow by, as a factor
_FEWEST, _MOST = 4, 2048
_AUTOMATIC = 20_000  # voters from which voters="auto" condenses


def condense(references: ReferenceSet, size: int | None, h: Tensor, y: NDArray[np.int64]) -> ReferenceSet:
    """The references represented by `size` of them.

    By default by the fewest, among ever more, with which validation rows h (n, d) of labels y (n,) keep their labels
    (99.5 %) and their log-loss (0.5 %); if no number does, by the most that were tried.
    """
    whole = references if references.members is None else references.members
    m, embeddings = len(whole), whole.embeddings
    if size is not None:
        tree = divide(embeddings, whole.labels, whole.n_classes, min(size, m))
        return whole.condensed(tree.leaves)
    if len(y) == 0:
        raise InputError(
            "choosing the number of voters needs validation rows, and the model has none; give a number: size=…"
        )
    tree = divide(embeddings, whole.labels, whole.n_classes, max(_FEWEST * whole.n_classes, min(_MOST, m // 4)))
    full = whole.log_probabilities(h).cpu().numpy()
    few = whole
    for few in _candidates(whole, tree):
        votes = few.log_probabilities(h).cpu().numpy()
        same = (votes.argmax(axis=1) == full.argmax(axis=1)).mean()
        if same >= SAME_LABEL and _loss(votes, y) <= LOG_LOSS * _loss(full, y):
            break
    return few


def _candidates(whole: ReferenceSet, tree: Tree) -> Iterator[ReferenceSet]:
    """Represented by ever more: half as many again each time."""
    size, most = float(_FEWEST * len(np.unique(tree.labels))), len(tree.labels)
    while True:
        yield whole.condensed(tree.cut(round(size))[tree.leaves])
        if size >= most:
            return
        size = min(1.5 * size, most)


def _loss(log_probabilities: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    return log_loss(y, log_probabilities)


def wanted(voters: Any, m: int, n_validation: int) -> bool:
    """Whether the setting `voters` asks for m voters to be condensed; "auto" does only where validation rows choose."""
    return m > _AUTOMATIC and n_validation > 0 if voters == "auto" else voters != "all" and voters < m


def agreement_on(references: ReferenceSet, h: Tensor) -> Agreement | None:
    """How often those who vote give the label that all their members would, on rows h (n, d); None without rows."""
    if references.members is None or len(h) == 0:
        return None
    with torch.no_grad():
        labels = [some.log_class_weights(h).argmax(dim=1).cpu().numpy() for some in (references, references.members)]
    return agreement(*labels)
