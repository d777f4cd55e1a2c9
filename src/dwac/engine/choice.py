"""The choice of a backend for a query."""

from __future__ import annotations

import os

from torch import Tensor

from dwac.engine.backends import Backend, TorchBackend
from dwac.errors import BackendError

BACKENDS: dict[str, Backend] = {"torch": TorchBackend()}
try:
    from dwac.engine.triton import TritonBackend, serves
except ImportError:  # no Triton for this machine
    pass
else:
    BACKENDS["triton"] = TritonBackend()


def choose_backend(name: str, queries: Tensor) -> Backend:
    """The backend of that name for queries (n, d). "auto" is triton on a GPU, up to its largest d, and torch otherwise.

    On an H200 torch takes 34 to 98 times as long for many queries, 3 times for one (docs/results/engine_gpu.md).
    """
    device = queries.device
    if name == "auto":
        fused = device.type == "cuda" and "triton" in BACKENDS and serves(device, queries.shape[1])
        return BACKENDS["triton" if fused else "torch"]
    if name == "triton" and device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise BackendError(f"the backend triton needs data on a CUDA GPU; got data on {device}; choose torch or auto")
    try:
        return BACKENDS[name]
    except (KeyError, TypeError):
        raise BackendError(f"unknown backend {name!r}; choose auto, {', '.join(BACKENDS)}") from None
