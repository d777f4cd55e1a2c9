"""The choice of a backend for a query."""

from __future__ import annotations

import os
from functools import cache

from torch import Tensor

from dwac.engine.backends import Backend, TorchBackend
from dwac.engine.index import Index
from dwac.errors import BackendError

_TORCH = TorchBackend()


@cache
def backends() -> dict[str, Backend]:
    """All backends by name. Importing Triton takes time, and queries on a CPU do not need it."""
    try:
        from dwac.engine.triton import TritonBackend
    except ImportError:  # no Triton for this machine
        return {"torch": _TORCH}
    return {"torch": _TORCH, "triton": TritonBackend()}


def _fits(queries: Tensor) -> bool:
    from dwac.engine.triton import serves

    return serves(queries.device, queries.shape[1])


def choose_backend(name: str, queries: Tensor) -> Backend:
    """The backend of that name for queries (n, d). "auto" is triton on a GPU, up to its largest d, and torch otherwise.

    On an H200 torch takes 34 to 98 times as long for many queries, 3 times for one (docs/results/engine_gpu.md).
    """
    device = queries.device
    if name == "torch" or (name == "auto" and device.type != "cuda"):
        return _TORCH
    if name == "auto":
        return backends()["triton"] if "triton" in backends() and _fits(queries) else _TORCH
    if name == "triton" and device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise BackendError(f"the backend triton needs data on a CUDA GPU; got data on {device}; choose torch or auto")
    try:
        return backends()[name]
    except (KeyError, TypeError):
        raise BackendError(f"unknown backend {name!r}; choose auto, {', '.join(backends())}") from None


def answers_alone(index: Index, name: str) -> bool:
    """Whether the votes on each of up to 1,024 queries are the same whatever the other queries are."""
    alone = getattr(choose_backend(name, index.embeddings), "answers_alone", None)
    return alone is not None and alone(index)
