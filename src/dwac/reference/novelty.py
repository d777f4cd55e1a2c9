"""Novelty: how unlike all voters an example is, from its embedding alone; no label is looked at."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dwac import _checks as checks
from dwac.reference.references import ReferenceSet
from dwac.reference.state import unit

# The least distance that counts. Without it, one that has the direction of a voter would be known however far away.
_LEAST = 0.01


@torch.no_grad()
def novelty(references: ReferenceSet, h: Any, *, own: bool = False) -> Tensor:
    """ν(h) = log (min_i ‖h - h_i‖² + ε²) + log (min_i ‖u - u_i‖² + ε²), u = h / ‖h‖, ε = 0.01: (n,) float64, exact.

    Far from every voter, and in a direction that none has. In most measured pairs the h of strangers was shorter than
    that of test rows, where distances are small and directions still differ; in one it was longer, and directions
    misled (docs/notes/novelty-scores.md). The nearest voter may be another one for each term; weights do not matter.
    Nothing is fitted. Any vectors of the voters will do, such as features before h, and scores of several may be added.

    Args:
        references: the voters.
        h: (n, d) embeddings; far ones are novel, never NaN.
        own: h are the voters' own: the nearest, which is the voter or a copy of it, is left out.

    >>> references = ReferenceSet([[0.0, 1.0], [2.0, 0.0]], [0, 1])
    >>> novelty(references, [[0.0, 1.0], [0.0, 2.0], [1.5, 1.5], [-9.0, 0.0]])
    tensor([-18.4207,  -9.2102,   0.3817,   5.0999], dtype=torch.float64)
    """
    queries = checks.float_tensor(h, "h").to(references.embeddings.device)
    near = _nearest(references.each_once, queries, own)
    aligned = _nearest(references.directions, unit(queries), own)
    return (near + _LEAST**2).log() + (aligned + _LEAST**2).log()


def _nearest(references: ReferenceSet, queries: Tensor, own: bool) -> Tensor:
    """(n,) float64: squared distances to the nearest reference; where `own`, to the next one, if there is one."""
    k = min(1 + own, len(references))
    squared = torch.as_tensor(references.nearest(queries, k).squared_distances[:, -1], device=queries.device)
    return squared.clamp(max=torch.finfo(torch.float64).max)
