"""One training step, eager or recorded once as a CUDA graph and replayed: optimizer, learning rate and threads."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from dwac.nn import Model
from dwac.nn.batches import Inputs
from dwac.nn.ranks import Ranks, Share, SharedNorms


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


def one_cycle(progress: float) -> float:
    """The learning rate as a share of its peak: up in the first tenth of training, then down to 0, both as a cosine.

    >>> one_cycle(0.0), one_cycle(0.1), round(one_cycle(0.55), 3), one_cycle(1.0)
    (0.04, 1.0, 0.5, 0.0)
    """
    if progress < 0.1:
        return 0.04 + 0.96 * (1 - math.cos(math.pi * progress / 0.1)) / 2
    return (1 + math.cos(math.pi * (progress - 0.1) / 0.9)) / 2


class TrainingStep:
    """One step of the optimiser on one batch; returns the loss of the batch, on the device."""

    def __init__(self, model: Model, optimizer: torch.optim.Optimizer, mixed_precision: bool) -> None:
        self.model, self.optimizer, self.mixed_precision = model, optimizer, mixed_precision

    def __call__(self, x: Inputs, y: Tensor, weights: Tensor | None) -> Tensor:
        """Take the step."""
        loss = self._backward(x, y, weights)
        self.optimizer.step()
        return loss

    def _backward(self, x: Inputs, y: Tensor, weights: Tensor | None, share: Share | None = None) -> Tensor:
        """Compute the gradients, and return the loss."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(y.device.type, torch.bfloat16, enabled=self.mixed_precision):
            loss = self.model.loss(x, y, weights=weights, share=share)
        loss.backward()
        return loss.detach()


class SharedStep(TrainingStep):
    """A step on a batch that several processes share: x, y and weights are this rank's part of it.

    Every rank takes the step of the whole batch. The gradients of all parameters are sent together with the loss and
    whether Ctrl-C was pressed.
    """

    def __init__(
        self, model: Model, optimizer: torch.optim.Optimizer, mixed_precision: bool, norms: SharedNorms
    ) -> None:
        super().__init__(model, optimizer, mixed_precision)
        self.norms, self.stop = norms, False

    def take(self, x: Inputs, y: Tensor, weights: Tensor | None, share: Share) -> tuple[Tensor, Tensor]:
        """Take the step; return the loss of the whole batch, and how many ranks want to stop."""
        self.norms.share = share
        loss = self._backward(x, y, weights, share)
        self.norms.share = None
        grads = [part.grad for part in self.model.parameters() if part.grad is not None]
        facts = torch.stack([loss, torch.full_like(loss, float(self.stop))])
        loss, stops = _sum_over_ranks(grads, facts, share.ranks)
        self.optimizer.step()
        return loss, stops


def _sum_over_ranks(grads: list[Tensor], facts: Tensor, ranks: Ranks) -> Tensor:
    """Sum gradients over the ranks in place, and facts, which are returned: one message per dtype."""
    for dtype in {part.dtype: None for part in grads} | {facts.dtype: None}:
        parts = [part for part in grads if part.dtype == dtype]
        with_facts = facts.dtype == dtype
        flat = ranks.sum(torch.cat([part.reshape(-1) for part in [*parts, *[facts] * with_facts]]))
        *sums, rest = flat.split([*(part.numel() for part in parts), facts.numel() * with_facts])
        if parts:
            torch._foreach_copy_(parts, [new.view_as(part) for new, part in zip(sums, parts, strict=True)])
        facts = rest if with_facts else facts
    return facts


class GraphStep(TrainingStep):
    """A step recorded once as a CUDA graph and replayed: in small networks, launching kernels takes most of the time.

    The first steps run eagerly, as a warm-up for the recording; so do batches of another size.
    """

    _WARM_UP = 3

    def __init__(self, model: Model, optimizer: torch.optim.Optimizer, mixed_precision: bool, batch_size: int) -> None:
        super().__init__(model, optimizer, mixed_precision)
        self.batch_size, self.steps = batch_size, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.stream = torch.cuda.Stream(model.device)
        self.buffers: list[Tensor | None] = []

    def __call__(self, x: Inputs, y: Tensor, weights: Tensor | None) -> Tensor:
        """Take the step."""
        with torch.cuda.device(y.device):
            return self._step(x, y, weights)

    def _step(self, x: Inputs, y: Tensor, weights: Tensor | None) -> Tensor:
        if len(y) != self.batch_size or not self.model.training:
            return self._eager(x, y, weights)
        self.steps += 1
        if self.steps <= self._WARM_UP:
            return self._eager(x, y, weights)
        if self.graph is None:
            self._record(x, y, weights)
        assert self.graph is not None
        for buffer, value in zip(self.buffers, (*x, y, weights), strict=True):
            if buffer is not None and value is not None:
                buffer.copy_(value)
        self.graph.replay()
        return self.loss

    def _eager(self, x: Inputs, y: Tensor, weights: Tensor | None) -> Tensor:
        # On a separate stream, which recording requires of the steps before it.
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            loss = super().__call__(x, y, weights)
        torch.cuda.current_stream().wait_stream(self.stream)
        return loss

    def _record(self, x: Inputs, y: Tensor, weights: Tensor | None) -> None:
        self.buffers = [None if part is None else part.clone() for part in (*x, y, weights)]
        self.graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        *inputs, labels, row_weights = self.buffers
        with torch.cuda.graph(self.graph):
            self.loss = super().__call__(tuple(part for part in inputs if part is not None), labels, row_weights)  # type: ignore[arg-type]


@contextmanager
def repeatable(device: torch.device, threads: int) -> Iterator[None]:
    """Compute with this many CPU threads, and on a GPU with deterministic algorithms only.

    Rounding depends on the order of a sum, so the number of threads that share it changes the result.
    """
    before, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(threads)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # PyTorch requires it for deterministic products
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if device.type == "cuda":  # calling it imports PyTorch's compiler, which takes seconds
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
