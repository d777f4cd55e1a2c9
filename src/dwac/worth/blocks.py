"""The votes of a reference set on many queries, as many at a time as fit into memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.reference import ReferenceSet

VOTES = {"cpu": 2**21, "cuda": 2**25}  # in memory at once; computing values takes about 15 arrays of that size


def vote_blocks(
    references: ReferenceSet, h: Tensor, own: NDArray[np.int64] | None = None
) -> Iterator[tuple[slice, Tensor]]:
    """The rows of each block of queries h (n, d), and the log of every vote on them, (b, m).

    own: (n,) which of the references a query is, -1 for none: a reference's vote on itself is -inf.
    """
    device = references.embeddings.device
    size = max(1, VOTES.get(device.type, 2**21) // len(references))
    for start in range(0, len(h), size):
        rows = slice(start, min(start + size, len(h)))
        log_w = references.voters.every_vote(h[rows].to(device))
        if own is not None:
            known = np.flatnonzero(own[rows] >= 0)
            log_w[known, own[rows][known]] = -torch.inf
        yield rows, log_w
