"""Judge a model on held-out examples during training, at any scale of its embeddings; and sample the voters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from dwac.engine.backends import exp_
from dwac.kernels import full_precision, get_kernel, squared_distances
from dwac.nn import Model, SoftmaxTwin, WeightedAverage
from dwac.nn.ranks import over_ranks, shared

SCALES = (0.5, 0.7, 1.0, 1.4, 2.0)
FINE_SCALES = tuple(1.1**step for step in range(-15, 16))  # 0.24 … 4.2
_CELLS = {"cpu": 2**18, "cuda": 2**26}  # votes in memory at once; on a CPU, in its cache


class Judged(NamedTuple):
    """How well each of C candidates predicts n held-out examples; every field is (C, n).

    Shares of the vote below 10⁻³⁰ count as 10⁻³⁰, so that a single outlier cannot dominate the loss.
    """

    losses: Tensor  # -log P(y), or how far the average of the voters' values is from its own
    rivals: Tensor  # -log P of the most likely other label: what a wrong answer would cost; 0 where values are averaged
    right: Tensor  # whether y is the predicted label

    def choose(self, usual: int, prior: Sequence[float]) -> int:
        """The candidate with the lowest loss, if it is clearly better than the usual one; else the usual one.

        However few mistakes there are among n examples, another one must be expected (Laplace's rule of
        succession): one mistake, at its average cost, is added to the losses. And every example is judged by the
        candidate that the other examples would choose: this gives the out-of-sample gain, which must exceed its
        standard error.
        """
        n, mistakes = self.losses.shape[1], self.rivals.mean(dim=1)
        totals = self.losses.sum(dim=1) + mistakes + torch.tensor(prior).to(self.losses)
        best = _agreed(int(totals.argmin()))
        if best == usual or n < 2:
            return usual
        others = (totals[:, None] - self.losses).argmin(dim=0)
        gain = self.losses[usual] - self.losses.gather(0, others[None])[0]
        dearer = (mistakes[best] - mistakes[usual]).clamp_min(0) / (n + 2)
        return _agreed(best if gain.mean() - dearer > gain.std() / math.sqrt(n) else usual)


def _agreed(choice: int) -> int:
    """The choice of rank 0, if several processes choose: rounding must not let them differ."""
    ranks = shared()
    return choice if ranks is None else int(ranks.agreed([choice])[0])


def judge_votes(votes: Tensor, y: Tensor, averaged: Tensor | None = None) -> Tensor:
    """`Judged`, (3, n), of votes (n, K) with labels (n,); averaged: (K, B) what is, of an example of each."""
    p = (votes / votes.sum(dim=1, keepdim=True)).double()
    if averaged is not None:
        losses = average_losses(p, y, averaged)
        return torch.stack([losses, torch.zeros_like(losses), (votes.argmax(dim=1) == y).double()])
    own = p.gather(1, y[:, None])
    rival = p.scatter(1, y[:, None], -1.0).amax(dim=1).clamp_min(1e-30)
    right = (votes.argmax(dim=1) == y).double()
    return torch.stack([-own[:, 0].clamp_min(1e-30).log(), -rival.log(), right])


def average_losses(p: Tensor, y: Tensor, averaged: Tensor) -> Tensor:
    """(…, n): ‖Σ_k p_k v(k) - v(y)‖² of probabilities (…, n, K), as the leave-one-out loss has it."""
    return (p @ averaged.to(p) - averaged.to(p)[y]).square().sum(dim=-1)


class HeldOut(NamedTuple):
    """Embeddings of held-out examples, and what the model would predict for them if all embeddings were scaled."""

    model: Model
    h: Tensor
    y: Tensor
    voters: tuple[Tensor, Tensor] | None  # embeddings and labels; None for a softmax
    class_weights: Tensor  # (K,) factors on the votes

    def some(self, most: int) -> HeldOut:
        """At most `most` of the examples, evenly spaced."""
        every = -(-len(self.y) // most)
        return self._replace(h=self.h[::every], y=self.y[::every])

    def judge(self, factors: Sequence[float]) -> Judged:
        """How well each factor predicts every example."""
        if isinstance(self.model, SoftmaxTwin) and self.model.targets is not None:  # these are not scaled
            losses = self.model.target_losses(self.model.logits(self.h).float(), self.y).double()
            same = losses.expand(len(factors), -1)
            return Judged(same, torch.zeros_like(same), torch.zeros_like(same))
        size = _CELLS.get(self.h.device.type, 2**18) // (1 if self.voters is None else len(self.voters[1]))
        return Judged(
            *over_ranks(lambda h, y: self._judge(h, y, factors, max(1, size)), self.h, self.y).permute(1, 2, 0)
        )

    def _judge(self, h: Tensor, y: Tensor, factors: Sequence[float], size: int) -> Tensor:
        """`Judged` of some rows, (n, 3, C), so many rows at a time."""
        judge = self._judge_averages if getattr(self.model, "averaged", None) is not None else self._judge_classes
        parts = [
            torch.stack(list(judge(*rows, factors)), dim=1) for rows in zip(h.split(size), y.split(size), strict=True)
        ]
        return torch.cat(parts, dim=2).permute(2, 0, 1)

    def _judge_classes(self, h: Tensor, y: Tensor, factors: Sequence[float]) -> Iterator[Tensor]:
        """`Judged`, (3, n), for each factor."""
        return (judge_votes(votes, y) for votes in self._votes(h, factors))

    def _judge_averages(self, h: Tensor, y: Tensor, factors: Sequence[float]) -> Iterator[Tensor]:
        """The same where values are averaged: without the votes for each label, of which there may be many."""
        assert isinstance(self.model, WeightedAverage)
        assert self.model.averaged is not None
        assert self.voters is not None
        values = torch.cat([self.model.averaged, torch.ones_like(self.model.averaged[:, :1])], dim=1)
        for sums in self._sums(h, values[self.voters[1]] * self.class_weights[self.voters[1], None], factors):
            missed = sums[:, :-1] / sums[:, -1:] - self.model.averaged[y]
            losses = missed.square().sum(dim=1).double()
            yield torch.stack([losses, torch.zeros_like(losses), torch.zeros_like(losses)])

    def best_scale(self, factors: Sequence[float]) -> float:
        """The factor with the lowest loss, if it is also better out of sample; else 1.

        A log-normal prior around 1 with standard deviation ½ keeps a few correct answers from favouring ever larger
        factors.
        """
        prior = [math.log(factor) ** 2 / (2 * 0.5**2) for factor in factors]
        return factors[self.judge(factors).choose(factors.index(1.0), prior)]

    def _votes(self, h: Tensor, factors: Sequence[float]) -> Iterator[Tensor]:
        """The votes for each class, (n, K), in units of the largest vote, for each factor."""
        if isinstance(self.model, SoftmaxTwin):
            logits = self.model.logits(h).float()
            yield from (torch.softmax(factor * logits, dim=1) for factor in factors)
            return
        assert self.voters is not None
        labels = F.one_hot(self.voters[1], self.model.n_classes) * self.class_weights
        yield from self._sums(h, labels, factors)

    def _sums(self, h: Tensor, values: Tensor, factors: Sequence[float]) -> Iterator[Tensor]:
        """Σ_i w_i values_i of voters' values (m, B): (n, B), in units of the largest vote, for each factor."""
        assert self.voters is not None
        assert isinstance(self.model, WeightedAverage)
        if self.model.kernel == "gaussian":
            yield from _gaussian_sums(h, self.voters[0], values, factors)
            return
        kernel, squared = get_kernel(self.model.kernel), squared_distances(h, self.voters[0])
        for factor in factors:
            log_w = kernel.log_weights(factor**2 * squared)
            with full_precision(h.device):
                yield exp_(log_w.sub_(log_w.amax(dim=1, keepdim=True))) @ values.to(log_w)


def _gaussian_sums(h: Tensor, ref_h: Tensor, values: Tensor, factors: Sequence[float]) -> Iterator[Tensor]:
    """`HeldOut._sums` of gaussian weights, in fewer passes: the nearest voter is the same at every scale."""
    dtype = torch.promote_types(torch.promote_types(h.dtype, ref_h.dtype), torch.float32)
    h, ref_h = h.to(dtype), ref_h.to(dtype)
    with full_precision(h.device):
        centre = ref_h.mean(dim=0)
        ref_h = ref_h - centre
        # ‖h‖² - ‖h - h_i‖²; ‖h‖² is the same for all voters, and the largest is subtracted anyway.
        gains = torch.addmm(ref_h.square().sum(dim=1), h - centre, ref_h.mT, beta=-1, alpha=2)
    gains.sub_(gains.amax(dim=1, keepdim=True))
    log_w, values = gains if len(factors) == 1 else torch.empty_like(gains), values.to(dtype)
    for factor in factors:
        exp_(torch.mul(gains, factor**2, out=log_w))
        with full_precision(h.device):
            sums = log_w @ values
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
        chosen = torch.cat([places.long().clamp_max(n - 1).to(device), self.firsts])
        rows: Tensor = torch.unique(self.by_class[chosen])
        return rows


def sample(y: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """A single draw of `Sampler`."""
    return Sampler(y)(most, generator)
