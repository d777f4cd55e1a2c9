"""Whether most rows of a table have near-copies, so that rows may belong together, such as visits of one patient."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dwac.nn.batches import Inputs

_ROWS, _QUERIES, _NEIGHBOURS = 2_000, 200, 100  # compared at most
_FEWEST, _VALUES = 40, 20  # rows; different values of a numeric column, below which equal rows are normal
_JUMP = 3.0  # how much farther the next row is than the farthest near-copy
_SHARE = 0.5  # of rows that have near-copies
_ALIKE, _UNLIKE = 0.2, 0.4  # of the usual difference of outcomes: at most to near-copies, at least to the next row


def have_near_copies(inputs: Inputs, codes: NDArray[np.int64], numbers: NDArray[np.float64] | None) -> bool:
    """Whether most rows of a table have near-copies with the same outcomes, unlike those of the rows just beyond.

    A near-copy is a neighbour before a jump: the next one is three times as far. (Among independent rows in d
    dimensions, a share of about 3^-d has a jump after the first neighbour.) Well-separated classes jump, too: a row
    whose near-copies are all rows of its label does not count. Outcomes differ by 0 or 1, or by the difference of
    their numbers. A sample decides.

    inputs: numeric (n, p), categorical (n, q). codes: (n,) outcomes; numbers: (n, T), if numbers are predicted.
    """
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(codes))[:_ROWS]
    numeric, categorical = (part[torch.as_tensor(rows)].float() for part in inputs)
    if len(rows) < _FEWEST or not any(len(column.unique()) >= _VALUES for column in numeric.T):
        return False
    queries = np.arange(min(_QUERIES, len(rows)))
    squared = torch.cdist(numeric[queries], numeric) ** 2 + 2 * torch.cdist(categorical[queries], categorical, p=0)
    squared[queries, queries] = torch.inf
    near, places = squared.topk(min(_NEIGHBOURS, len(rows) - 1), largest=False)
    distance = near.sqrt().clamp_min(1e-6 * float(near[:, -1].median().sqrt()) + 1e-12)
    jump, last = (distance[:, 1:] / distance[:, :-1]).max(dim=1)  # after the neighbour `last`
    copied, y = jump.numpy() >= _JUMP, codes[rows] if numbers is None else numbers[rows]
    if numbers is None:
        same = (y[places.numpy()] == y[queries, None]) & (np.arange(places.shape[1]) <= last.numpy()[:, None])
        copied &= same.sum(axis=1) + 1 < np.bincount(y)[y[queries]]
    if copied.mean() < _SHARE:
        return False
    apart = np.sign if numbers is None else np.abs  # the difference between outcomes

    def differ(others: Any) -> float:
        return float(apart(np.abs(y[queries] - y[others]))[copied].mean())

    usual = differ(rng.permutation(len(rows))[queries])
    first, beyond = differ(places[:, 0].numpy()), differ(places[queries, last + 1].numpy())
    return first <= _ALIKE * usual and beyond >= max(_UNLIKE * usual, 1e-300)
