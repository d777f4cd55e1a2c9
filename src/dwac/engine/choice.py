"""Which backend serves a query."""

from __future__ import annotations

import os

import torch

from dwac.engine.backends import Backend, TorchBackend
from dwac.errors import BackendError

BACKENDS: dict[str, Backend] = {"torch": TorchBackend()}
try:
    from dwac.engine.triton import TritonBackend
except ImportError:  # no Triton for this machine
    pass
else:
    BACKENDS["triton"] = TritonBackend()


def choose_backend(name: str, device: torch.device) -> Backend:
    """The backend of that name. "auto" is torch: triton has passed the suite in its interpreter, not yet on a GPU."""
    if name == "auto":
        return BACKENDS["torch"]
    if name == "triton" and device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise BackendError(
            f"the backend triton needs its data on a CUDA GPU; they are on {device}; choose torch or auto"
        )
    try:
        return BACKENDS[name]
    except (KeyError, TypeError):
        raise BackendError(f"unknown backend {name!r}; choose auto, {', '.join(BACKENDS)}") from None
