"""What this machine offers: processor cores and memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def cores() -> int:
    """The number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """The memory of this machine in bytes; 16 GiB where the system does not say (Windows)."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**34


@contextmanager
def few_threads(most: int | None) -> Iterator[None]:
    """Let torch use at most `most` threads, and at most half the processors; None changes nothing.

    The matrices of a small network are so small that threads mostly wait for one another, spinning. On
    16 processors a default table of 8,000 rows trained no faster with 16 threads than with 2, at five times the
    processor time. Why half the processors: if other programs run too, threads spin until one that lost its processor
    gets it back, and training is slower than with one thread. The number belongs to the calling thread: others that
    compute at the same time keep theirs.
    """
    import torch

    before = torch.get_num_threads()
    now = before if most is None or before == 1 else max(1, min(before, most, cores() // 2))
    if now == before:
        yield
        return
    torch.set_num_threads(now)
    try:
        yield
    finally:
        torch.set_num_threads(before)
