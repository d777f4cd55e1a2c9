"""Processes that share one computation: each has a part of the rows, and all end with the same numbers.

    with join_ranks(Ranks()):                  # dwac.training.processes() does this
        with sharing() as ranks:               # from here on, embed() and others divide their rows
            share = ranks.share(len(batch))    # of a batch that every rank knows
            part = model.loss(x[share.own], y[share.own], share=share)
            part.backward()                    # the parts' gradients add up to that of the whole batch

Every rank must make the same calls in the same order, as always with torch.distributed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from dwac.errors import ProcessError

_JOINED: ContextVar[Ranks | None] = ContextVar("joined", default=None)
_SHARING: ContextVar[Ranks | None] = ContextVar("sharing", default=None)


class Ranks:
    """The processes of a torch.distributed group, and the rank of this one.

    Tensors that the group's backend cannot send, such as a GPU's with gloo, travel through the CPU.
    """

    def __init__(self, group: Any = None) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        backends = str(dist.get_backend_config(group))
        self._gpus, self._cpus = "nccl" in backends, "gloo" in backends or "mpi" in backends

    @property
    def first(self) -> bool:
        """Whether this is rank 0, the only one that prints and writes."""
        return self.rank == 0

    def sizes(self, n: int) -> list[int]:
        """How many of n rows each rank has: they differ by at most one."""
        return [n // self.size + (rank < n % self.size) for rank in range(self.size)]

    def own(self, n: int) -> slice:
        """Which of n rows this rank has."""
        sizes = self.sizes(n)
        start = sum(sizes[: self.rank])
        return slice(start, start + sizes[self.rank])

    def share(self, n: int) -> Share:
        """This rank's share of a batch of n rows."""
        return Share(self, n)

    # Communication

    def sum(self, values: Tensor) -> Tensor:
        """The sum over ranks, in place."""
        sent = self._sendable(values)
        self._call(dist.all_reduce, sent)
        return values if sent is values else values.copy_(sent)

    def gather(self, values: Tensor) -> Tensor:
        """(R, …): the values of every rank, all of the same shape."""
        sent = self._sendable(values.contiguous())
        parts = sent.new_empty(self.size, *sent.shape)
        self._call(dist.all_gather, list(parts.unbind(0)), sent)
        return parts.to(values.device)

    def gather_rows(self, part: Tensor, sizes: Sequence[int]) -> Tensor:
        """The rows of all ranks, concatenated; `sizes` gives the number of rows of each rank."""
        most = max(sizes)
        padded = part if len(part) == most else torch.cat([part, part.new_zeros(most - len(part), *part.shape[1:])])
        parts = self.gather(padded)
        return torch.cat([parts[rank, :size] for rank, size in enumerate(sizes)])

    def broadcast(self, values: Tensor) -> Tensor:
        """The values of rank 0, in place."""
        sent = self._sendable(values)
        self._call(dist.broadcast, sent, 0 if self.group is None else dist.get_global_rank(self.group, 0))
        return values if sent is values else values.copy_(sent)

    def broadcast_numbers(self, values: Sequence[float]) -> list[float]:
        """The numbers of rank 0."""
        return [float(value) for value in self.broadcast(torch.tensor(values, dtype=torch.float64)).tolist()]

    def broadcast_bytes(self, data: bytes | None) -> bytes | None:
        """The bytes of rank 0, or None."""
        size = int(self.broadcast_numbers([-1 if data is None else len(data)])[0])
        if size < 0:
            return None
        buffer = torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8) if self.first else torch.empty(size)
        return self.broadcast(buffer.to(torch.uint8)[:size].contiguous()).numpy().tobytes()

    def align(self, tensors: Iterable[Tensor]) -> None:
        """Give every rank the tensors of rank 0."""
        all_tensors = list(tensors)
        with torch.no_grad():
            for dtype in dict.fromkeys(part.dtype for part in all_tensors):
                parts = [part for part in all_tensors if part.dtype == dtype]
                values = self.broadcast(torch.cat([part.reshape(-1) for part in parts]))
                for part, new in zip(parts, values.split([part.numel() for part in parts]), strict=True):
                    part.copy_(new.view_as(part))

    def _sendable(self, values: Tensor) -> Tensor:
        """The values on a device that the group can send from, contiguous."""
        if values.is_cuda and not self._gpus:
            return values.cpu()
        if not values.is_cuda and not self._cpus:
            return values.cuda()
        return values

    def _call(self, function: Callable[..., Any], *values: Any) -> None:
        try:
            function(*values, group=self.group)
        except RuntimeError as error:  # gloo and nccl have no specific error class for this
            message = re.sub(r"^\[[^\]]*\]\s*|\. .*", "", " ".join(str(error).split()))  # without the source location
            raise ProcessError(
                f"rank {self.rank} of {self.size} lost another process, which stopped or cannot be reached ({message})"
            ) from error


class Share:
    """A rank's share of a batch of n rows that all ranks know.

    A rank without rows (n < R) computes with any one row, a stand-in that does not count, so that it takes part in the
    communication.
    """

    def __init__(self, ranks: Ranks, n: int) -> None:
        self.ranks, self.n = ranks, n
        self.sizes, self.own = ranks.sizes(n), ranks.own(n)
        self.size = self.sizes[ranks.rank]

    @property
    def empty(self) -> bool:
        """Whether this rank has only a stand-in."""
        return self.size == 0

    @property
    def rows(self) -> slice:
        """The rows to compute with: its own, or a stand-in."""
        return slice(0, 1) if self.empty else self.own

    def gather(self, h: Tensor, y: Tensor, ids: Tensor | None, weights: Tensor | None) -> Whole:
        """The whole batch from the parts of all ranks, sent at once; differentiable in h.

        The backward pass adds the gradients of all ranks, and each rank keeps those of its own rows.
        """
        columns = [part for part in (y, ids, weights) if part is not None]
        plain = [part.detach()[: self.size].reshape(-1, 1).contiguous().view(torch.uint8) for part in columns]
        ref_h, others = _Gather.apply(h[: self.size], torch.cat(plain, dim=1), self)  # type: ignore[no-untyped-call]
        widths = [part.element_size() for part in columns]
        parts = [
            values.clone(memory_format=torch.contiguous_format).view(column.dtype).reshape(self.n)
            for values, column in zip(others.split(widths, dim=1), columns, strict=True)
        ]
        rest = iter(parts[1:])
        return Whole(ref_h, parts[0], None if ids is None else next(rest), None if weights is None else next(rest))


class Whole(NamedTuple):
    """A whole batch of n rows, the same on every rank: embeddings, labels, ids and weights."""

    h: Tensor
    y: Tensor
    ids: Tensor | None
    weights: Tensor | None


class _Gather(torch.autograd.Function):
    """Gather the rows of all ranks: h (n, d), and accompanying bytes (n, w)."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, other_bytes: Tensor, share: Share) -> tuple[Tensor, Tensor]:
        ctx.share = share
        width, size = h.shape[1], h.element_size()
        sent = torch.cat([h.detach().contiguous().view(torch.uint8), other_bytes], dim=1)
        gathered = share.ranks.gather_rows(sent, share.sizes)
        all_h = gathered[:, : width * size].clone(memory_format=torch.contiguous_format).view(h.dtype)
        others = gathered[:, width * size :]
        ctx.mark_non_differentiable(others)
        return all_h, others

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        share = ctx.share
        return share.ranks.sum(grads[0].contiguous())[share.own], None, None


# Batch normalisation


class SharedNorms:
    """Inside this context, a network in training mode normalises by the statistics of the whole batch.

    `share` must be set before each batch.
    """

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        self.ranks = ranks
        self.share: Share | None = None
        self.norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]

    def __enter__(self) -> SharedNorms:
        for norm in self.norms:
            norm.forward = _SharedNorm(norm, self)  # type: ignore[method-assign,assignment]  # of this one
        return self

    def __exit__(self, *_: object) -> None:
        for norm in self.norms:
            del norm.forward


class _SharedNorm:
    """The forward pass of one batch normalisation layer."""

    def __init__(self, norm: _BatchNorm, norms: SharedNorms) -> None:
        self.norm, self.norms = norm, norms

    def __call__(self, x: Tensor) -> Tensor:
        norm, share = self.norm, self.norms.share
        if not norm.training or share is None or share.n < getattr(norm, "fewest", 0):
            return type(norm).forward(norm, x)
        norm._check_input_dim(x)
        normalised, mean, variance, n = _Normalise.apply(x, norm.weight, norm.bias, norm.eps, share)  # type: ignore[no-untyped-call]
        self._update_statistics(mean, variance * n / (n - 1).clamp_min(1))
        return normalised  # type: ignore[no-any-return]

    @torch.no_grad()
    def _update_statistics(self, mean: Tensor, variance: Tensor) -> None:
        norm = self.norm
        if not norm.track_running_stats or norm.running_mean is None or norm.running_var is None:
            return
        count: Any = norm.num_batches_tracked
        count.add_(1)
        momentum = 1 / float(count) if norm.momentum is None else norm.momentum
        norm.running_mean.lerp_(mean.to(norm.running_mean), momentum)
        norm.running_var.lerp_(variance.to(norm.running_var), momentum)


class _Normalise(torch.autograd.Function):
    """x̂ = (x - μ) / √(σ² + ε), times weight plus bias, where μ and σ² of each channel are those of all ranks' rows.

        ∂ loss / ∂ x = weight / √(σ² + ε) (g - Σ g / n - x̂ Σ g x̂ / n),    g = ∂ loss / ∂ (x̂ · weight + bias)

    Both sums are over all n numbers of a channel on all ranks. The gradients of weight and bias are this rank's parts.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, share: Share
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        mean, variance = torch.ops.aten.batch_norm_update_stats(wide, None, None, 0.0)
        count = mean.new_full((1,), 0 if share.empty else x.numel() // x.shape[1])  # a stand-in does not count
        means, variances, counts = share.ranks.gather(torch.cat([mean, variance, count])).split(
            [len(mean), len(mean), 1], dim=1
        )
        n = counts.sum()
        mean = (counts * means).sum(dim=0) / n
        variance = (counts * (variances + (means - mean).square())).sum(dim=0) / n
        ctx.save_for_backward(x, weight, mean, variance, n)
        ctx.eps, ctx.share = eps, share
        normalised = functional.batch_norm(wide, mean, variance, weight, bias, training=False, eps=eps).to(x.dtype)
        ctx.mark_non_differentiable(mean, variance, n)
        return normalised, mean, variance, n

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance, n = ctx.saved_tensors
        wide = x.to(mean.dtype)
        last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
        grad = (
            grads[0].to(mean.dtype).contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
        )
        shape = (1, -1, *[1] * (x.ndim - 2))
        inverse = (variance + ctx.eps).rsqrt()
        # A CPU reads mean and variance, a GPU the mean and the inverse deviation that a forward pass would have kept.
        _, by_weight, by_bias = torch.ops.aten.native_batch_norm_backward(
            grad, wide, weight, mean, variance, mean, inverse, False, ctx.eps, [False, True, True]
        )
        sums, sums_x = ctx.share.ranks.sum(torch.cat([by_bias, by_weight])).view(2, -1) / n
        if ctx.share.empty:  # the statistics do not depend on a stand-in
            sums, sums_x = torch.zeros_like(sums), torch.zeros_like(sums_x)
        scale = inverse if weight is None else inverse * weight
        slope = -scale * inverse * sums_x
        grad_x = torch.addcmul((-scale * sums - slope * mean).view(shape), grad, scale.view(shape))
        grad_x = grad_x.addcmul_(wide, slope.view(shape)).to(x.dtype)
        return grad_x, None if weight is None else by_weight, None if weight is None else by_bias, None, None


# Which ranks take part


@contextmanager
def join_ranks(ranks: Ranks | None) -> Iterator[Ranks | None]:
    """Let `sharing` find these ranks inside the context. A single rank does not share."""
    token = _JOINED.set(ranks if ranks is not None and ranks.size > 1 else None)
    try:
        yield ranks
    finally:
        _JOINED.reset(token)


@contextmanager
def sharing() -> Iterator[Ranks | None]:
    """Divide rows over the ranks inside the context, where all must make the same calls; None if alone.

    Rows are divided only there: a prediction on rank 0 alone must not wait for the others.
    """
    token = _SHARING.set(_JOINED.get())
    try:
        yield _SHARING.get()
    finally:
        _SHARING.reset(token)


@contextmanager
def alone() -> Iterator[None]:
    """Share nothing inside the context, for work of one rank only, such as callbacks."""
    token = _SHARING.set(None)
    try:
        yield
    finally:
        _SHARING.reset(token)


def sharing_ranks() -> Ranks | None:
    """The ranks that divide rows at the moment; None outside of `sharing`."""
    return _SHARING.get()


def over_ranks(function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """function(*rows), (n, …); every rank computes a part if ranks share the work.

    The function must treat every row separately.
    """
    ranks, n = sharing_ranks(), len(rows[0])
    if ranks is None or n < ranks.size:
        return function(*rows)
    own = ranks.own(n)
    return ranks.gather_rows(function(*(part[own] for part in rows)), ranks.sizes(n))


def agree(values: Sequence[float]) -> Sequence[float]:
    """The numbers of rank 0 if ranks share the work, so that rounding does not let them decide differently."""
    ranks = sharing_ranks()
    return values if ranks is None else ranks.broadcast_numbers(values)


def owns_gpu() -> bool:
    """Whether this process is alone, or each process has its own GPU, from which the group can send."""
    ranks = _JOINED.get()
    return ranks is None or ranks._gpus


def several_processes() -> bool:
    """Whether this is one of several processes."""
    return _JOINED.get() is not None


def is_first() -> bool:
    """Whether this process is alone or rank 0, and so prints and writes."""
    ranks = _JOINED.get()
    return ranks is None or ranks.first
