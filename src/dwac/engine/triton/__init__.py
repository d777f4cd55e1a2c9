"""The sweep and its gradient as fused kernels on a GPU. Importing this module requires Triton."""

from dwac.engine.triton.sweep import TritonBackend, serves

__all__ = ["TritonBackend", "serves"]
