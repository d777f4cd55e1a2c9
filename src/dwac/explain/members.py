"""Which members of a group of voters to show: those most like the query."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dwac import _checks as checks


def most_alike(distances: ArrayLike, k: int) -> NDArray[np.int64]:
    """(min(k, n),): positions of the k smallest distances (n,), nearest first; equal ones in their given order.

    The members of a group vote nearly alike, so an explanation shows those that resemble the query in the input
    (`Encoder.input_distances`). Give candidates in order of their weight: where several are equally like the query,
    the heavier ones come first.

    >>> most_alike([0.3, 0.1, 0.3, 0.2], k=3).tolist()
    [1, 3, 0]
    """
    d: NDArray[Any] = checks.scores(distances, "distances", ndim=1)
    return np.argsort(d, kind="stable")[: checks.positive_int(k, "k")].astype(np.int64)
