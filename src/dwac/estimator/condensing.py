"""Condensing: a few real examples vote for all, chosen so that predictions on held-out rows hardly change.

K-means divides the references of each class into leaves; the most central member of each leaf votes for it. Its weight
is the number of members times a factor, fitted without labels so that, on training rows, the few give the
probabilities of all. Other rows decide how many are needed. What was tried: docs/notes/few-voters.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest
from torch import Tensor

from dwac.engine.groups import divide, nearest_centres
from dwac.kernels import squared_distances
from dwac.metrics import Agreement, agreement, log_loss
from dwac.nn.ranks import over_ranks, sharing_ranks
from dwac.reference import ReferenceSet
from dwac.reference.references import with_groups, without_look_alikes
from dwac.tasks import Target, class_target
from dwac.training.steps import AdamW

Floats = NDArray[np.float64]

# The least share s of rows that must keep their label, with 90 % confidence. 1 - s limits the growth of the log-loss
# and the divergence from all voters, both as shares of the log-loss.
SAME_LABEL = 0.995
LESS = (0.99, 0.98, 0.95, 0.9)  # tried in turn if no small number of voters keeps that many
_NOTHING = 1e-4  # nats: if all predictions are certain, a share of the log-loss is below rounding
_FEWEST, _MOST = 10, 2560
AUTOMATIC = 20_000  # the number of voters from which voters="auto" condenses
ROWS = 2_000  # that decide the number of voters: the least, and the most if there are many voters
PAIRS = 10**9  # of rows and voters
_CELLS = 2**22  # pairs of rows and representatives, while weights are fitted
STEPS, _RATE, _RIDGE = 150, 0.02, 1e-4


class Condenser:
    """Represents references by a few of them. h, y: (n, d) and (n,) held-out rows that decide how many.

    target: the kind of target, by default classes. Labels must stay the same; numbers may move by a tenth of the
    spread of their votes.
    """

    def __init__(self, references: ReferenceSet, h: Tensor, y: NDArray[np.int64], target: Target | None = None) -> None:
        self.target = class_target(np.arange(references.n_classes)) if target is None else target
        labels = references.labels.cpu().numpy()
        known = np.isin(y, labels)  # without a voter for its label, a row has infinite log-loss
        h, y = h[torch.as_tensor(known, device=h.device)], y[known]
        averaged = self.target.loss(labels).averaged
        self.averaged = None if averaged is None else averaged.double().numpy()
        self.every_voter = references if references.members is None else references.members
        self.whole = without_look_alikes(self.every_voter)  # representatives are rarely near enough to a query
        most = int(np.clip(PAIRS // len(self.whole), ROWS // 2, 2 * ROWS))
        some = _spread(len(y), most)  # not the first rows, which may be sorted by label
        self.h, self.y = (h[some.to(h.device)] if len(y) else self.whole.embeddings[:0]), y[some.numpy()]
        training = self.whole.embeddings[_spread(len(self.whole), 2 * most).to(h.device)]
        # Every second row decides, the others fit. If held-out rows are few, voters may decide too.
        self.fitting = training[::2]
        self.judging = torch.cat([self.h, training[1::2][: max(0, ROWS - len(self.h))]])
        self.log_p_fitting = over_ranks(self.whole.log_probabilities, self.fitting)
        self.log_p_judging = over_ranks(self.whole.log_probabilities, self.judging).cpu().numpy()

    def represent(self, size: int) -> ReferenceSet:
        """The references, represented by `size` of them."""
        return self.every_voter.condensed(*_leaves(self.whole, size, self.fitting, self.log_p_fitting))

    def fewest(self) -> ReferenceSet | None:
        """The fewest representatives that keep labels and probabilities; None if no number up to a quarter of all does.

        The number is doubled until one suffices; then the size between it and the one before is tried.
        """
        self.tried = []
        for place, size in enumerate(self.sizes()):
            few = self.represent(size)
            if self._all_keep(few):
                between = round(size / np.sqrt(2))
                fewer = self.represent(between) if place else None
                return fewer if fewer is not None and self._all_keep(fewer) else few
            self.tried.append(few)
        return None

    def nearly(self) -> tuple[ReferenceSet | None, float]:
        """After `fewest` found none: (the fewest that keep the largest share of `LESS` that any keeps, this share).

        (None, 0) if none keeps the smallest.
        """
        fitting = ((few, share) for share in LESS for few in self.tried if self._all_keep(few, share))
        return next(fitting, (None, 0.0))

    def sizes(self) -> list[int]:
        """The numbers to try, each twice the one before."""
        present = int(np.count_nonzero(np.bincount(self.whole.labels.cpu().numpy())))
        size, most = max(_FEWEST, present), min(_MOST, len(self.whole) // 4)
        return [size * 2**step for step in range(20) if size * 2**step <= most]

    def _all_keep(self, few: ReferenceSet, share: float = SAME_LABEL) -> bool:
        return bool(_agreed(np.array([float(self.keeps(few, share))]))[0])

    def keeps(self, few: ReferenceSet, share: float = SAME_LABEL) -> bool:
        """Whether this share of rows keep their label, and the probabilities are near enough to those of all voters."""
        log_p, full = few.log_probabilities(self.judging).cpu().numpy(), self.log_p_judging
        same = int(self.target.same(log_p, full).sum())
        certain = binomtest(same, len(full)).proportion_ci(0.8).low >= share  # one-sided: 90 %
        certain = certain or same == len(full)  # fewer than 460 rows cannot show more
        if self.averaged is not None:
            return bool(certain and self._keeps_averages(log_p, 1 - share))
        with np.errstate(invalid="ignore"):
            divergence = np.nansum(np.exp(full) * (full - log_p), axis=1).mean()
        n = len(self.y)
        if n == 0:  # a cross-fitted model: the entropy of all voters' probabilities replaces their log-loss
            entropy = -np.nansum(np.exp(full) * full, axis=1).mean()
            return bool(certain and divergence <= max((1 - share) * entropy, _NOTHING))
        before, after = log_loss(self.y, full[:n]), log_loss(self.y, log_p[:n])
        change = max((1 - share) * before, _NOTHING)
        return bool(certain and after <= before + change and divergence <= change)

    def _keeps_averages(self, log_p: Floats, change: float) -> bool:
        """The same for averaged values: compares the averages with one another and with the truth."""
        assert self.averaged is not None
        few, full = (np.exp(part) @ self.averaged for part in (log_p, self.log_p_judging))
        n = len(self.y)
        apart = np.square(few - full).sum(axis=1).mean()
        if n == 0:  # a cross-fitted model: the variance of the votes replaces their loss
            spread = (np.exp(self.log_p_judging) @ np.square(self.averaged) - np.square(full)).sum(axis=1).mean()
            return bool(apart <= max(change * spread, _NOTHING))
        before, after = (np.square(part[:n] - self.averaged[self.y]).sum(axis=1).mean() for part in (full, few))
        change = max(change * before, _NOTHING)
        return bool(after <= before + change and apart <= change)


def represent(whole: ReferenceSet, size: int) -> ReferenceSet:
    """Represent references by `size` of them, chosen and weighted from these references alone."""
    whole = without_look_alikes(whole)
    fitting = whole.embeddings[_spread(len(whole), ROWS).to(whole.embeddings.device)][::2]
    return whole.condensed(*_leaves(whole, size, fitting, over_ranks(whole.log_probabilities, fitting)))


def _leaves(whole: ReferenceSet, size: int, fitting: Tensor, log_p: Tensor) -> tuple[NDArray[Any], NDArray[Any]]:
    """The leaf of each reference (m,), and the factor of each leaf (L,)."""
    leaves = _agreed(divide(whole.embeddings, whole.labels, whole.n_classes, min(size, len(whole))).leaves)
    return leaves, _agreed(_factors(whole.condensed(leaves), fitting, log_p))


def _factors(few: ReferenceSet, fitting: Tensor, log_p: Tensor) -> NDArray[np.float64]:
    """(R,): the factors of the weights with which the few best match the probabilities of all.

    Minimises the mean Kullback-Leibler divergence from the log probabilities of all, log_p (n, K), on training rows
    `fitting` (n, d), without using labels. A small penalty keeps the factors of representatives that hardly matter
    at 1.
    """
    rows = slice(None, max(256, _CELLS // len(few)))
    labels, by_class = few.labels, torch.as_tensor(few.class_weights, device=few.labels.device)
    votes = few.voters.log_weights_at(squared_distances(fitting[rows].double(), few.embeddings.double()))
    votes = votes + torch.as_tensor(np.log(few.weights), device=votes.device)
    of_class = torch.nn.functional.one_hot(labels, few.n_classes).double()
    p = log_p[rows].exp()
    factors = torch.zeros(len(few), dtype=torch.float64, device=votes.device, requires_grad=True)
    optimizer = AdamW([factors], lr=_RATE, weight_decay=0)
    for _ in range(STEPS):
        log_w = votes + factors.detach()
        w = log_w.sub_(log_w.amax(dim=1, keepdim=True)).exp_()
        sums = (w @ of_class).clamp_min_(1e-300)
        # The gradient of KL by the log of a vote w for class k: w (c_k / Σ c W - p_k / W_k), W the class sums.
        slope = by_class / (sums @ by_class)[:, None] - p / sums
        factors.grad = (w * slope[:, labels]).mean(dim=0).add_(factors.detach(), alpha=2 * _RIDGE / len(few))
        optimizer.step()
    return np.asarray(factors.detach().exp().cpu().numpy())


def _agreed(values: NDArray[Any]) -> NDArray[Any]:
    """The values of rank 0, where ranks share the work: rounding must not make their groups differ."""
    ranks = sharing_ranks()
    return values if ranks is None else np.asarray(ranks.broadcast(torch.tensor(values)).numpy())


def _spread(m: int, most: int) -> Tensor:
    """Rows 0 … m-1, or `most` of them drawn at random, always the same."""
    return torch.randperm(m, generator=torch.Generator().manual_seed(0))[:most]


def should_condense(voters: Any, m: int, n_validation: int) -> bool:
    """Whether the setting `voters` asks to condense m voters; "auto" does only if validation rows can choose."""
    return m > AUTOMATIC and n_validation > 0 if voters == "auto" else voters != "all" and voters < m


@torch.no_grad()
def agreement_of(
    few: ReferenceSet,
    every_voter: ReferenceSet,
    h: Tensor,
    target: Target,
    judge: Callable[[ReferenceSet, Tensor], Floats] | None = None,
) -> Agreement | None:
    """How often a few voters predict what all would, on rows h (n, d); None without rows.

    judge: the log votes (n, K) that voters give to the rows; by default they vote on the rows directly.
    """
    if len(h) == 0:
        return None
    votes = [
        np.asarray(some.log_class_weights(h).cpu().numpy()) if judge is None else judge(some, h)
        for some in (few, every_voter)
    ]
    log_p = [part - np.logaddexp.reduce(part, axis=1, keepdims=True) for part in votes]
    same = target.same(log_p[0], log_p[1])
    return agreement(same, np.ones_like(same))


# When there are too many represented rows to keep


@torch.no_grad()
def count_votes(few: ReferenceSet, blocks: Iterable[tuple[Tensor, Tensor]]) -> ReferenceSet:
    """Representatives of a sample, with the votes of all rows, given in blocks of h (n, d) and labels (n,).

    Each row counts for the leaf of its label whose mean, over its members in the sample, is nearest; so the counts are
    exact. The result has no members. Where ranks share the work, each rank gives different blocks.
    """
    members, n_leaves = few.members, len(few)
    assert members is not None
    centre = members.embeddings.double().mean(dim=0)
    leaves = torch.as_tensor(members.groups.leaves, device=centre.device)
    totals = centre.new_zeros(n_leaves, len(centre)).index_add_(0, leaves, members.embeddings.double())
    means = (totals / torch.bincount(leaves, minlength=n_leaves)[:, None] - centre).float()
    sizes = torch.zeros(n_leaves, dtype=torch.int64, device=centre.device)
    for h, labels in blocks:
        points = (h.double() - centre).float()
        for label in labels.unique():
            own = (few.labels == label).nonzero()[:, 0]
            own = own if len(own) else torch.arange(n_leaves, device=own.device)  # no leaf has that label: use any
            nearest = nearest_centres(points[labels == label], means[own])
            sizes += torch.bincount(own[nearest], minlength=n_leaves)
    if (ranks := sharing_ranks()) is not None:
        sizes = ranks.sum(sizes)
    here = np.flatnonzero(sizes.cpu().numpy())
    factors, counts = (few.weights / few.sizes)[here], sizes.cpu().numpy()[here].astype(np.float64)
    parents = np.unique(few.groups.parents[here], return_inverse=True)[1]
    return with_groups(_weighted(few, here, counts * factors, counts), np.arange(len(here)), parents, factors)


def shared_votes(sample: ReferenceSet, counts: NDArray[np.int64]) -> ReferenceSet:
    """A sample of the rows, with the votes of all: voters of a label share its count (K,) equally."""
    labels = sample.labels.cpu().numpy()
    votes = (counts / np.maximum(np.bincount(labels, minlength=len(counts)), 1))[labels]
    return _weighted(sample, np.arange(len(labels)), votes, votes)


def _weighted(references: ReferenceSet, rows: NDArray[np.int64], weights: Floats, sizes: Floats) -> ReferenceSet:
    """Some of the references, with new weights and without look-alikes."""
    places = torch.as_tensor(rows, device=references.labels.device)
    return ReferenceSet(
        references.embeddings[places],
        references.labels[places],
        list(references.ids[rows]),
        references.n_classes,
        references.kernel,
        references.class_weights,
        weights,
        sizes,
        targets=None if references.targets is None else references.targets[places],
    )
