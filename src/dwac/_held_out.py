"""What a model in training makes of held-out examples, at any scale of its embeddings; and who votes on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from dwac.kernels import full_precision, get_kernel, squared_distances
from dwac.nn import Model, SoftmaxTwin

SCALES = (0.5, 0.7, 1.0, 1.4, 2.0)
_CELLS = {"cpu": 2**22, "cuda": 2**26}  # votes in memory at once


class HeldOut(NamedTuple):
    """Embeddings of held-out examples, and what the model would say of them if all embeddings were scaled."""

    model: Model
    h: Tensor
    y: Tensor
    voters: tuple[Tensor, Tensor] | None  # embeddings and labels; None for a softmax
    class_weights: Tensor  # (K,) of their votes

    def some(self, most: int) -> HeldOut:
        """At most so many of the examples, from all over."""
        every = -(-len(self.y) // most)
        return self._replace(h=self.h[::every], y=self.y[::every])

    def judge(self, factors: Sequence[float]) -> Tensor:
        """At each factor: how well it fits, mean -log P(y), and the share of right labels, (factors, 3).

        The fit is -log P(y) with a prior on the factor, log-normal around 1 with deviation ½: where a few examples are
        all right, the likelihood alone would have ever larger factors, and ever surer probabilities. Shares of the
        vote below 10⁻³⁰ count as that: a loss that a single stray example cannot carry off.
        """
        size = _CELLS.get(self.h.device.type, 2**22) // (1 if self.voters is None else len(self.voters[1]))
        sums = torch.zeros(len(factors), 3, dtype=torch.float64, device=self.h.device)
        for h, y in zip(self.h.split(size), self.y.split(size), strict=True):
            for row, votes in enumerate(self._votes(h, factors)):
                p = votes.gather(1, y[:, None])[:, 0] / votes.sum(dim=1)
                sums[row, 1] -= p.clamp_min(1e-30).log().sum(dtype=torch.float64)
                sums[row, 2] += (votes.argmax(dim=1) == y).sum()
        prior = torch.tensor([math.log(factor) ** 2 / (2 * 0.5**2) for factor in factors])
        sums[:, 0] = sums[:, 1] + prior.to(sums)
        return sums / len(self.y)

    def _votes(self, h: Tensor, factors: Sequence[float]) -> Iterator[Tensor]:
        """The votes for each class, (n, K), in units of the largest vote, for each factor."""
        if isinstance(self.model, SoftmaxTwin):
            logits = self.model.logits(h).float()
            yield from (torch.softmax(factor * logits, dim=1) for factor in factors)
            return
        assert self.voters is not None
        ref_h, ref_y = self.voters
        kernel = get_kernel(self.model.kernel)
        squared, labels = squared_distances(h, ref_h), F.one_hot(ref_y, self.model.n_classes) * self.class_weights
        for factor in factors:
            log_w = kernel.log_weights(factor**2 * squared)
            with full_precision(h.device):
                yield (log_w - log_w.amax(dim=1, keepdim=True)).exp_() @ labels.to(log_w)


class Sampler:
    """Draws rows at random, each class in proportion and at least once; sorts them by class once for all draws."""

    def __init__(self, y: Tensor) -> None:
        self.by_class = torch.argsort(y, stable=True)
        changes = torch.nonzero(y[self.by_class][1:] != y[self.by_class][:-1])[:, 0] + 1
        self.firsts = torch.cat([changes.new_zeros(1), changes])

    def __call__(self, most: int, generator: torch.Generator) -> Tensor:
        """At most about `most` rows: one at a random place of each of so many equal stretches, and one a class."""
        n, device = len(self.by_class), self.by_class.device
        if n <= most:
            return torch.arange(n, device=device)
        places = (torch.arange(most) + torch.rand(most, generator=generator)) * (n / most)
        chosen = torch.cat([places.long().clamp_max(n - 1).to(device), self.firsts])
        rows: Tensor = torch.unique(self.by_class[chosen])
        return rows


def sample(y: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """A single draw."""
    return Sampler(y)(most, generator)
