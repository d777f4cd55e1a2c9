"""The number of CPU threads for training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dwac._machine import cores


@contextmanager
def few_threads(most: int | None) -> Iterator[None]:
    """Let torch use at most `most` threads, and at most half the processors; None changes nothing.

    The matrices of a small network are so small that threads mostly wait for one another, spinning. On
    16 processors a default table of 8,000 rows trained no faster with 16 threads than with 2, at five times the
    processor time. Why half the processors: if other programs run too, threads spin until one that lost its processor
    gets it back, and training is slower than with one thread.
    """
    before = torch.get_num_threads()
    now = before if most is None else max(1, min(before, most, cores() // 2))
    if now == before:
        yield
        return
    torch.set_num_threads(now)
    try:
        yield
    finally:
        torch.set_num_threads(before)
