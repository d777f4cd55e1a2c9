"""The sweep and its gradient as fused kernels on a GPU. Needs Triton: import it only where that is there."""

from dwac.engine.triton.sweep import TritonBackend, serves

__all__ = ["TritonBackend", "serves"]
