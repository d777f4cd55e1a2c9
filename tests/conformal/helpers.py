"""Which rank covers, and how many cases are drawn."""

from fractions import Fraction

import numpy as np
from hypothesis import settings
from numpy.typing import NDArray

Floats = NDArray[np.float64]

relaxed = settings(max_examples=40)


def first_covering_rank(n: int, epsilon: str) -> int:
    """k = ⌈(1-ε)(n+1)⌉ without rounding: the truth is covered if its score is among the k lowest of n+1."""
    return int(-(-(1 - Fraction(epsilon)) * (n + 1) // 1))
