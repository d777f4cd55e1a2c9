"""Values of players by their definition: all sets of players, in float64."""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Worth = Callable[[tuple[int, ...]], float]


def by_all_sets(m: int, worth: Worth, method: str) -> NDArray[np.float64]:
    """(m,): the average of worth(with i) - worth(without i), over sets as the method weighs them."""
    known = {some: worth(some) for size in range(m + 1) for some in itertools.combinations(range(m), size)}
    found = np.zeros(m)
    for some, before in known.items():
        for i in set(range(m)) - set(some):
            found[i] += weight(len(some), m, method) * (known[tuple(sorted((*some, i)))] - before)
    return found


def weight(size: int, m: int, method: str) -> float:
    """Of a set of `size` of the m - 1 others."""
    if method == "leave_one_out":
        return float(size == m - 1)
    if method == "banzhaf":
        return 0.5 ** (m - 1)
    return math.factorial(size) * math.factorial(m - size - 1) / math.factorial(m)


def mean(w: Sequence[float], a: Sequence[float], empty: float) -> Worth:
    def worth(some: tuple[int, ...]) -> float:
        if not some:
            return empty
        most = max(w[i] for i in some)  # logs
        votes = [math.exp(w[i] - most) for i in some]
        return math.fsum(vote * a[i] for vote, i in zip(votes, some, strict=True)) / math.fsum(votes)

    return worth
