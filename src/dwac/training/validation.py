"""Judge a model on held-out examples during training, at any scale of its embeddings; and sample the voters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from dwac.engine.backends import exp_
from dwac.kernels import Kernel, full_precision, get_kernel, squared_distances
from dwac.nn import Model, SoftmaxTwin
from dwac.nn.ranks import agree, over_ranks

SCALES = (0.5, 0.7, 1.0, 1.4, 2.0)
FINE_SCALES = tuple(1.1**step for step in range(-15, 16))  # 0.24 … 4.2
_VoteFunction = Callable[[Tensor, Sequence[float]], Iterator[Tensor]]
_CELLS = {"cpu": 2**18, "cuda": 2**26}  # votes in memory at once; on a CPU, in its cache


class Candidates(NamedTuple):
    """How well each of C candidates predicts n held-out examples; every field is (C, n).

    Shares of the vote below 10⁻³⁰ count as 10⁻³⁰, so that a single outlier cannot dominate the loss.
    """

    losses: Tensor  # -log P(y), or the distance of the voters' average from y's own values
    rivals: Tensor  # -log P of the most likely other label: what a wrong answer would cost; 0 if values are averaged
    right: Tensor  # whether y is the predicted label

    def choose(self, default: int, prior: Sequence[float]) -> int:
        """The candidate with the lowest loss, if it is clearly better than the default one; else the default one.

        However few mistakes there are among n examples, another one must be expected (Laplace's rule of
        succession): one mistake, at its average cost, is added to the losses. Every example is judged by the candidate
        that the other examples would choose: this gives the out-of-sample gain, which must exceed its standard error.
        """
        n, mistakes = self.losses.shape[1], self.rivals.mean(dim=1)
        totals = self.losses.sum(dim=1) + mistakes + torch.tensor(prior).to(self.losses)
        best = int(agree([int(totals.argmin())])[0])
        if best == default or n < 2:
            return default
        others = (totals[:, None] - self.losses).argmin(dim=0)
        gain = self.losses[default] - self.losses.gather(0, others[None])[0]
        extra_cost = (mistakes[best] - mistakes[default]).clamp_min(0) / (n + 2)
        return int(agree([best if gain.mean() - extra_cost > gain.std() / math.sqrt(n) else default])[0])


def judge_votes(votes: Tensor, y: Tensor, averaged: Tensor | None = None) -> Tensor:
    """`Candidates`, (3, n), of votes (n, K) with labels (n,); averaged: (K, B) values of each label, if averaged."""
    p = (votes / votes.sum(dim=1, keepdim=True)).double()
    if averaged is not None:
        losses = average_losses(p, y, averaged)
        return torch.stack([losses, torch.zeros_like(losses), (votes.argmax(dim=1) == y).double()])
    own = p.gather(1, y[:, None])
    rival = p.scatter(1, y[:, None], -1.0).amax(dim=1).clamp_min(1e-30)
    right = (votes.argmax(dim=1) == y).double()
    return torch.stack([-own[:, 0].clamp_min(1e-30).log(), -rival.log(), right])


def average_losses(p: Tensor, y: Tensor, averaged: Tensor) -> Tensor:
    """(…, n): ‖Σ_k p_k v(k) - v(y)‖² of probabilities (…, n, K), as in the leave-one-out loss."""
    return (p @ averaged.to(p) - averaged.to(p)[y]).square().sum(dim=-1)


class HeldOut(NamedTuple):
    """Embeddings of held-out examples, and the model's predictions for them if all embeddings were scaled."""

    model: Model
    h: Tensor
    y: Tensor
    voters: tuple[Tensor, Tensor] | None  # embeddings and labels; None for a softmax
    class_weights: Tensor  # (K,) factors on the votes

    def some(self, most: int) -> HeldOut:
        """At most `most` of the examples, evenly spaced."""
        step = -(-len(self.y) // most)
        return self._replace(h=self.h[::step], y=self.y[::step])

    def judge(self, factors: Sequence[float]) -> Candidates:
        """How well each factor predicts every example."""
        if isinstance(self.model, SoftmaxTwin) and self.model.targets is not None:  # targets are not scaled
            losses = self.model.target_losses(self.model.logits(self.h).float(), self.y).double()
            same = losses.expand(len(factors), -1)
            return Candidates(same, torch.zeros_like(same), torch.zeros_like(same))
        size = _CELLS.get(self.h.device.type, 2**18) // (1 if self.voters is None else len(self.voters[1]))
        return Candidates(
            *over_ranks(lambda h, y: self._judge(h, y, factors, max(1, size)), self.h, self.y).permute(1, 2, 0)
        )

    def _judge(self, h: Tensor, y: Tensor, factors: Sequence[float], size: int) -> Tensor:
        """`Candidates` of some rows, (n, 3, C), `size` rows at a time."""
        averaged: Tensor | None = getattr(self.model, "averaged", None)
        votes = self._votes(averaged)
        judge = judge_votes if averaged is None else partial(_judge_averages, averaged=averaged)
        parts = [
            torch.stack([judge(sums, labels) for sums in votes(part, factors)], dim=1)
            for part, labels in zip(h.split(size), y.split(size), strict=True)
        ]
        return torch.cat(parts, dim=2).permute(2, 0, 1)

    def best_scale(self, factors: Sequence[float]) -> float:
        """The factor with the lowest loss, if it is also better out of sample; else 1.

        A log-normal prior around 1 with standard deviation ½ keeps a few correct answers from favouring ever larger
        factors.
        """
        prior = [math.log(factor) ** 2 / (2 * 0.5**2) for factor in factors]
        return factors[self.judge(factors).choose(factors.index(1.0), prior)]

    def _votes(self, averaged: Tensor | None) -> _VoteFunction:
        """A function from rows (n, d) to class votes (n, K), in units of the largest vote, for each factor.

        If values are averaged, it gives their sums, (n, B), and that of the votes, because there may be many labels.
        """
        if isinstance(self.model, SoftmaxTwin):
            return partial(_softmax_votes, self.model)
        assert self.voters is not None
        ref_h, labels = self.voters
        if averaged is None:
            values = F.one_hot(labels, self.model.n_classes) * self.class_weights
        else:
            values = torch.cat([averaged, torch.ones_like(averaged[:, :1])], dim=1)[labels]
            values *= self.class_weights[labels, None]
        if self.model.kernel == "gaussian":
            return _GaussianSums(ref_h, values, torch.promote_types(self.h.dtype, ref_h.dtype))
        return partial(_sums, get_kernel(self.model.kernel), ref_h, values)


def _judge_averages(sums: Tensor, y: Tensor, *, averaged: Tensor) -> Tensor:
    """`Candidates`, (3, n), of sums of values and of votes, (n, B + 1)."""
    losses = (sums[:, :-1] / sums[:, -1:] - averaged[y]).square().sum(dim=1).double()
    return torch.stack([losses, torch.zeros_like(losses), torch.zeros_like(losses)])


def _softmax_votes(model: SoftmaxTwin, h: Tensor, factors: Sequence[float]) -> Iterator[Tensor]:
    logits = model.logits(h).float()
    return (torch.softmax(factor * logits, dim=1) for factor in factors)


def _sums(kernel: Kernel, ref_h: Tensor, values: Tensor, h: Tensor, factors: Sequence[float]) -> Iterator[Tensor]:
    """Σ_i w_i values_i of voters' values (m, B): (n, B), in units of the largest vote, for each factor."""
    squared = squared_distances(h, ref_h)
    for factor in factors:
        log_w = kernel.log_weights(factor**2 * squared)
        with full_precision(h.device):
            yield exp_(log_w.sub_(log_w.amax(dim=1, keepdim=True))) @ values.to(log_w)


class _GaussianSums:
    """`_sums` of gaussian weights, in fewer passes: the nearest voter is the same at every scale."""

    def __init__(self, ref_h: Tensor, values: Tensor, dtype: torch.dtype) -> None:
        dtype = torch.promote_types(dtype, torch.float32)
        ref_h = ref_h.to(dtype)
        with full_precision(ref_h.device):
            self.centre = ref_h.mean(dim=0)
        self.ref_h, self.values = ref_h - self.centre, values.to(dtype)
        self.norms = self.ref_h.square().sum(dim=1)

    def __call__(self, h: Tensor, factors: Sequence[float]) -> Iterator[Tensor]:
        with full_precision(h.device):
            # ‖h‖² - ‖h - h_i‖²; ‖h‖² is the same for all voters, and the largest is subtracted anyway.
            gains = torch.addmm(self.norms, h.to(self.ref_h) - self.centre, self.ref_h.mT, beta=-1, alpha=2)
        gains.sub_(gains.amax(dim=1, keepdim=True))
        log_w = gains if len(factors) == 1 else torch.empty_like(gains)
        for factor in factors:
            exp_(torch.mul(gains, factor**2, out=log_w))
            with full_precision(h.device):
                sums = log_w @ self.values
            yield sums


class Sampler:
    """Draws random rows, each class in proportion and at least once; sorts rows by class once for all draws."""

    def __init__(self, y: Tensor) -> None:
        self.by_class = torch.argsort(y, stable=True)
        changes = torch.nonzero(y[self.by_class][1:] != y[self.by_class][:-1])[:, 0] + 1
        self.firsts = torch.cat([changes.new_zeros(1), changes])

    def __call__(self, most: int, generator: torch.Generator) -> Tensor:
        """About `most` rows at most: one random row from each of `most` equal segments, plus one per class."""
        n, device = len(self.by_class), self.by_class.device
        if n <= most:
            return torch.arange(n, device=device)
        places = (torch.arange(most) + torch.rand(most, generator=generator)) * (n / most)
        positions = torch.cat([places.long().clamp_max(n - 1).to(device), self.firsts])
        rows: Tensor = torch.unique(self.by_class[positions])
        return rows


def sample(y: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """A single draw of `Sampler`."""
    return Sampler(y)(most, generator)
