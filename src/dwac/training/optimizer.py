"""The optimizer of every training: PyTorch's AdamW, without the parts that only `torch.compile` needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch


class AdamW(torch.optim.AdamW):
    """PyTorch's AdamW with the same steps, but without importing `torch._dynamo`.

    PyTorch wraps the methods of an optimizer so that `torch.compile` leaves them alone. The wrappers import its
    compiler on the first call: 1.5 s of processor time, more than training on many small tables takes. Nothing is
    compiled here (on a GPU steps are recorded as CUDA graphs), so the methods are used without their wrappers. The
    state, its names and the name of the class are PyTorch's, and so checkpoints are the same.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)
    _one_step: Callable[..., Any] = inspect.unwrap(torch.optim.AdamW.step)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step along the gradients."""
        return self._one_step(closure)
