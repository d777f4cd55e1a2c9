"""Do most rows of a table have near-copies with the same outcomes? Then these rows may belong together."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dwac.nn.batches import Inputs

_ROWS, _ASKED, _NEIGHBOURS = 2_000, 200, 100  # compared at most
_FEWEST, _VALUES = 40, 20  # rows; different values of a numeric column, below which equal rows are normal
_JUMP = 3.0  # how much farther the next row is than the farthest near-copy
_SHARE = 0.5  # of rows that have near-copies
_ALIKE, _UNLIKE = 0.2, 0.4  # of the usual difference of outcomes: at most to near-copies, at least to the next row


def have_near_copies(inputs: Inputs, codes: NDArray[np.int64], exact: NDArray[np.float64]) -> bool:
    """Whether most rows of a table have near-copies with the same outcomes, unlike those of the rows just beyond.

    A near-copy is a neighbour before a jump: the next one is three times as far. (Among independent rows in d
    dimensions, a share of about 3^-d has a jump after the first neighbour.) Well-separated classes jump, too: a row
    whose near-copies are all rows of its label does not count. Outcomes differ by 0 or 1, or by the difference of
    their numbers. A sample decides.

    inputs: numeric (n, p), categorical (n, q). codes: (n,) outcomes; exact: (n, T) numbers, or T = 0 for codes.
    """
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(codes))[:_ROWS]
    numeric, categorical = (part[torch.as_tensor(rows)].float() for part in inputs)
    if len(rows) < _FEWEST or not any(len(column.unique()) >= _VALUES for column in numeric.T):
        return False
    asked = np.arange(min(_ASKED, len(rows)))
    squared = torch.cdist(numeric[asked], numeric) ** 2 + 2 * torch.cdist(categorical[asked], categorical, p=0)
    squared[asked, asked] = torch.inf
    near, places = squared.topk(min(_NEIGHBOURS, len(rows) - 1), largest=False)
    distance = near.sqrt().clamp_min(1e-6 * float(near[:, -1].median().sqrt()) + 1e-12)
    jump, last = (distance[:, 1:] / distance[:, :-1]).max(dim=1)  # after the neighbour `last`
    copied, y = jump.numpy() >= _JUMP, exact[rows] if exact.shape[1] else codes[rows]
    if not exact.shape[1]:
        same = (y[places.numpy()] == y[asked, None]) & (np.arange(places.shape[1]) <= last.numpy()[:, None])
        copied &= same.sum(axis=1) + 1 < np.bincount(y)[y[asked]]
    if copied.mean() < _SHARE:
        return False
    apart = np.abs if exact.shape[1] else np.sign  # the difference between outcomes

    def differ(others: Any) -> float:
        return float(apart(np.abs(y[asked] - y[others]))[copied].mean())

    usual = differ(rng.permutation(len(rows))[asked])
    first, beyond = differ(places[:, 0].numpy()), differ(places[asked, last + 1].numpy())
    return first <= _ALIKE * usual and beyond >= max(_UNLIKE * usual, 1e-300)
