"""Writing and rounding predicted numbers: the number of digits follows from their usual range."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dwac.explain.claims import NumberScale

Floats = NDArray[np.float64]
Interval = tuple[float, float]

_FINE = 2000  # a shown number is rounded to about this part of the usual range
_PRIVATE_BINS = 8  # bins of a private histogram, at most
_STEPS = 50  # private numbers are rounded to at most this many steps of the usual range


class Numerals:
    """Writes and rounds the numbers of a reference set: the digits follow from their usual range.

    >>> numerals = Numerals(np.linspace(100_000, 500_000, 50))
    >>> numerals.text(213_437.2), numerals.text(-12.345), numerals.text(1e-9), numerals.exact(1_234.5)
    ('213,400', '-12.3', '0', '1234.5')
    >>> numerals.interval((171_000.0, math.inf)), numerals.step
    ('at least 171,000', 10000.0)
    """

    def __init__(self, x: Floats) -> None:
        self._fine = NumberScale(x, parts=_FINE, whole=False)
        low, high = map(float, np.quantile(x, (0.05, 0.95)))
        low, high = (low, high) if low < high else (float(x.min()), float(x.max()))
        whole = bool((x == np.round(x)).all())
        self.step = step_of(high - low, _STEPS, whole=whole)  # private numbers are rounded to this
        self.edges = edges_of(low, high, _PRIVATE_BINS, whole=whole)  # of a private histogram

    def text(self, value: float) -> str:
        """A predicted number, rounded to the digits worth reading; at least three."""
        step = self._fine.step
        if abs(value) < step / 100:
            return "0"
        if abs(value) < 100 * step:
            return self._fine.exact(float(f"{value:.3g}"))
        return self._fine.text(self._fine.start(value))

    def exact(self, value: float) -> str:
        """The number of a training example, with all its digits."""
        return self._fine.exact(value)

    def interval(self, ends: Interval) -> str:
        """An interval in words; "at least" or "at most" if one end is infinite."""
        low, high = ends
        if math.isinf(low) and math.isinf(high):
            return "any number"
        if math.isinf(low) or math.isinf(high):
            return f"at most {self.text(high)}" if math.isinf(low) else f"at least {self.text(low)}"
        return f"{self.text(low)} to {self.text(high)}"


def step_of(span: float, parts: int, *, whole: bool) -> float:
    """1, 2 or 5 times a power of ten, such that at most `parts` steps make the span; at least 1 for whole numbers.

    >>> step_of(220.0, 50, whole=False), step_of(9.0, 50, whole=False), step_of(9.0, 50, whole=True)
    (5.0, 0.2, 1.0)
    """
    if not 1e-290 < span / parts < 1e290:
        return 0.0
    exponent = math.floor(math.log10(span / parts))
    found = next(
        step
        for step in (float(f"{m}e{e}") for e in (exponent, exponent + 1) for m in (1, 2, 5))
        if step * parts >= span * (1 - 1e-9)
    )
    return max(found, 1.0) if whole else found


def edges_of(low: float, high: float, most: int, *, whole: bool) -> Floats:
    """Edges of about `most` bins at most, at round numbers; a few whole numbers get one bin each.

    >>> edges_of(0.0, 3.0, 8, whole=True).tolist(), edges_of(0.3, 1.7, 8, whole=False).tolist()
    ([-0.5, 0.5, 1.5, 2.5, 3.5], [0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8])
    """
    step = step_of(high - low, most, whole=whole)
    if step <= 8 * np.spacing(max(abs(low), abs(high))):  # one number, up to rounding
        return np.array([low - 0.5, high + 0.5]) if abs(low) < 1e15 else np.sort(np.array([low / 2, low * 2]))
    shift = step / 2 if whole and step == 1 else 0.0
    first = math.floor((low + shift) / step + 1e-9)
    last = max(math.ceil((high + shift) / step - 1e-9), first + 1)
    if whole and step == 1:
        last = math.floor(high + shift) + 1
    digits = max(0, -math.floor(math.log10(step)))
    return np.round(np.arange(first, last + 1) * step, digits) - shift


def coverage(share: float) -> str:
    """A coverage in per cent, with no more digits than it needs; rounded down.

    >>> coverage(0.9), coverage(0.995), coverage(1 - 0.1)
    ('90 %', '99.5 %', '90 %')
    """
    return f"{math.floor(share * 1000 + 1e-9) / 10:g} %"
