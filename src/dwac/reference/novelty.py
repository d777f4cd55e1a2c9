"""Novelty: how unlike all voters an example is, from its embedding alone; no label is looked at."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.reference.references import ReferenceSet
from dwac.reference.state import unit

NEAREST = 5  # voters: one alone may be a coincidence, and would give away who votes
# The least distance that counts. Without it, one that has the direction of a voter would be known however far away.
_LEAST = 0.01


@torch.no_grad()
def novelty(references: ReferenceSet, h: Any, *, own: bool = False, directions: bool = False) -> Tensor:
    """ν(h) = log (d² + ε²), d² the mean squared distance to the 5 nearest voters, ε = 0.01: (n,) float64, exact.

    With directions, ν also has the same term for u = h / ‖h‖: far from every voter, and in a direction that none has.
    In most measured pairs of images and texts the h of strangers was shorter than that of test rows, where distances
    are small and directions still differ (docs/notes/novelty-scores.md). Weights do not matter. Nothing is fitted.

    Args:
        references: the voters.
        h: (n, d) embeddings; far ones are novel, never NaN.
        own: h are the voters' own: the nearest, which is the voter or a copy of it, is left out.
        directions: compare directions too.

    >>> references = ReferenceSet([[0.0], [1.0], [2.0]], [0, 0, 1])
    >>> novelty(references, torch.tensor([[1.0], [9.0]])).exp()
    tensor([ 0.6668, 64.6668], dtype=torch.float64)
    """
    queries = checks.float_tensor(h, "h").to(references.embeddings.device)
    found = (_near(references.each_once, queries, own) + _LEAST**2).log()
    return found + (_near(references.directions, unit(queries), own) + _LEAST**2).log() if directions else found


def _near(references: ReferenceSet, queries: Tensor, own: bool) -> Tensor:
    """(n,) float64: the mean squared distance to the nearest references; where `own`, to those after the first."""
    k = min(NEAREST + own, len(references))
    squared = torch.as_tensor(references.nearest(queries, k).squared_distances, device=queries.device)
    squared = squared[:, 1:] if own and k > 1 else squared
    return squared.mean(dim=1).clamp(max=torch.finfo(torch.float64).max)
