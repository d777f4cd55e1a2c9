"""Bitwise repeatable training, on the same machine with the same versions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def repeatable(device: torch.device, threads: int) -> Iterator[None]:
    """Compute with this many CPU threads, and on a GPU with deterministic algorithms only.

    Rounding depends on the order of a sum, so the number of threads that share it changes the result.
    """
    before, asked = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(threads)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # PyTorch requires it for deterministic products
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.use_deterministic_algorithms(asked, warn_only=only_warned)
