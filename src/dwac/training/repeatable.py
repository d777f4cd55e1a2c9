"""Training that ends in the same bits whenever it is repeated: on the same machine, with the same versions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def repeatable(device: torch.device, threads: int) -> Iterator[None]:
    """Compute with so many threads of a CPU, and on a GPU by deterministic algorithms alone.

    Sums are rounded in the order in which they are added up: how many threads share a sum is part of its result.
    """
    before, asked = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(threads)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # which PyTorch requires of deterministic products
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.use_deterministic_algorithms(asked, warn_only=only_warned)
