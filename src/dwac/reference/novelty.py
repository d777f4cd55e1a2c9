"""Novelty: how unlike all voters an example is, from its embedding alone; no label is looked at."""

from __future__ import annotations

import torch
from torch import Tensor

from dwac.reference.references import ReferenceSet

NEAREST = 5  # voters: one alone may be a coincidence
_LEAST = 1e-12  # squared distance: below that it is rounding


@torch.no_grad()
def novelty(references: ReferenceSet, h: Tensor, *, own: bool = False) -> Tensor:
    """(n,) float64: how unlike those of all voters embeddings h (n, d) are.

    The log of the mean squared distance to the 5 nearest; where voters have weights, to the 5 with the heaviest votes.

    own: the examples vote themselves, and are compared with the others: the nearest voter, which is the example or a
    copy of it, is left out.

    >>> references = ReferenceSet([[0.0], [1.0], [2.0]], [0, 0, 1])
    >>> novelty(references, torch.tensor([[1.0], [9.0]])).exp()
    tensor([ 0.6667, 64.6667], dtype=torch.float64)
    """
    k = min(NEAREST + own, len(references))
    squared = torch.as_tensor(references.nearest(h, k).squared_distances, device=h.device)
    squared = squared.sort(dim=1).values[:, 1:] if own and k > 1 else squared
    return squared.mean(dim=1).clamp_min(_LEAST).log()
