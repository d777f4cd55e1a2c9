"""Votes: the vote of every reference and every group on one query, and what can be certified from them."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta
from scipy.stats import t as student
from torch import Tensor

from dwac.reference import ReferenceSet, VoteDistribution

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ENDS = (0.025, 0.975)  # of intervals under redrawn voters


class Votes:
    """The vote of every reference on one query, in float64: w(h, h_i), times its weight and that of its class."""

    def __init__(self, references: ReferenceSet, h: Tensor, *, same: Votes | None = None) -> None:
        self.references, self.h, self._same = references, h, same
        self.class_weights, self.n_classes = references.class_weights, references.n_classes

    @cached_property
    def log_w(self) -> Floats:
        """(m,): log w(h, h_i) with the reference's weight, without its class's; those of `same`, if given."""
        return self.references.voters.log_votes(self.h).cpu().numpy() if self._same is None else self._same.log_w

    @cached_property
    def labels(self) -> Ints:
        """(m,): the labels of the references."""
        return self.references.labels.cpu().numpy()

    @cached_property
    def group_votes(self) -> tuple[Floats, Ints]:
        """(G,): log Σ w over the members of each group, without class weights, and its label."""
        groups = self.references.groups
        return _log_sums(self.log_w, groups.of, len(groups)), groups.labels

    @cached_property
    def leaf_votes(self) -> Floats:
        """(L,): log Σ w over the members of each leaf."""
        groups = self.references.groups
        return _log_sums(self.log_w, groups.leaves, len(groups.parents))

    @cached_property
    def log_total(self) -> float:
        """The log of all votes, with class weights."""
        return float(np.logaddexp.reduce(self._weigh(*self.group_votes)))

    @cached_property
    def group_order(self) -> Ints:
        """The groups by their votes, with class weights, heaviest first."""
        return np.argsort(-self._weigh(*self.group_votes), kind="stable")

    def _weigh(self, log_w: Floats, labels: Ints) -> Floats:
        return np.asarray(log_w + np.log(self.class_weights)[labels])

    @cached_property
    def n_effective(self) -> float:
        """1 / Σ share²: how many examples with equal votes weigh as much; a representative counts for all its own."""
        shares = self.shares(self.log_w, self.labels)
        return _n_effective(shares, self.references.sizes)

    def sides(self, sizes: Floats) -> tuple[Floats, Floats]:
        """(G,), (G,): the shares of groups in the vote for the prediction; and the sizes of the groups of others."""
        return self.shares(*self.group_votes), np.asarray(sizes, dtype=np.float64)

    def shares(self, log_w: Floats, labels: Ints) -> Floats:
        """Shares of the whole vote."""
        return np.asarray(np.exp(self._weigh(log_w, labels) - self.log_total))


class LabelVotes(Votes):
    """Votes on a label, from which `deciding` and `flip_set` are certified.

    If two classes have equal votes, the first one is the label. `flip_set` therefore uses exact sums (`math.fsum`),
    which distinguish a tie from rounding. With different class weights, rounding may decide a tie: it changes nothing.
    """

    def __init__(self, references: ReferenceSet, h: Tensor, label: int, *, same: Votes | None = None) -> None:
        super().__init__(references, h, same=same)
        self.label = label

    def sides(self, sizes: Floats) -> tuple[Floats, Floats]:
        """The same for the label."""
        mine = self.group_votes[1] == self.label
        shares, others = super().sides(sizes)
        return np.where(mine, shares, 0.0), np.where(mine, 0.0, others)

    def interval(self) -> tuple[float, float]:
        """A 95 % interval for the probability of the label under redrawn voters.

        Voters are draws from a population; all of it, with the same embedding, would give the label the probability
        P*. The vote is read as n equal votes, n being their effective number without class weights, of which a share P
        is for the label (see `share_interval`); class weights then shift the log-odds.
        """
        log_w, labels = self.group_votes
        mine, weighted = labels == self.label, self._weigh(log_w, labels)
        (own, others), (own_weighted, others_weighted) = (
            (np.logaddexp.reduce(votes[mine]), np.logaddexp.reduce(votes[~mine], initial=-np.inf))
            for votes in (log_w, weighted)
        )
        p = 1 / (1 + math.exp(min(others - own, 700.0)))
        n = _n_effective(np.exp(self.log_w - self.log_w.max()), self.references.sizes)
        ends = np.array(share_interval(n, p))
        shift = 0.0 if others == -np.inf else (own_weighted - others_weighted) - (own - others)
        odds = ends * math.exp(shift)
        low, high = (odds / (odds + 1 - ends)).tolist()
        return low, high

    @cached_property
    def ordered(self) -> tuple[Floats, Ints, Ints]:
        """The log-weights, heaviest first, and the labels and rows of these references."""
        rows = np.argsort(-self.log_w, kind="stable")
        return self.log_w[rows], self.labels[rows], rows

    def deciding(self) -> int:
        """The least j such that the j heaviest votes decide the label, whatever labels all the others have."""
        log_w, labels, _ = self.ordered
        return self._least(log_w, labels)

    def deciding_groups(self) -> int:
        """The same for groups: the least j such that the j heaviest decide it, whatever labels all others have."""
        rows, (log_w, labels) = self.group_order, self.group_votes
        return self._least(log_w[rows], labels[rows])

    def _least(self, log_w: Floats, labels: Ints) -> int:
        """The least j such that the first j votes decide the label, whatever labels all the others have.

        In the worst case all others, Σ w in total, vote for one rival k: j is enough if, among the first j, the label
        leads each k by more than c_k Σ w. If j is enough, so is j + 1. A tie decides nothing.
        """
        weights = np.exp(log_w - log_w.max())
        votes = weights * self.class_weights[labels]
        rest = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
        rivals = [k for k in range(self.n_classes) if k != self.label]

        def decided(j: int) -> bool:
            counts = np.bincount(labels[:j], votes[:j], self.n_classes)
            leads = counts[self.label] - counts[rivals] - self.class_weights[rivals] * rest[j]
            return bool((leads > 1e-12 * (counts.sum() + self.class_weights.max() * rest[j])).all())

        low, high = 0, len(labels)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if decided(middle) else (middle + 1, high)
        return low

    def flip_ids(self) -> list[Any] | None:
        """Ids of the smallest set of references whose removal changes the label; None if there is none.

        If references represent others, the ids of all members of those leaves.
        """
        rows, members = self.flip_rows(), self.references.members
        if rows is None:
            return None
        if members is None:
            return list(self.references.ids[rows].tolist())
        removed = np.isin(members.groups.leaves, rows)  # the number of a leaf is the row of its representative
        return list(members.ids[removed].tolist())

    def flip_rows(self) -> Ints | None:
        """Rows of the smallest set of references whose removal changes the label: the heaviest that voted for it."""
        log_w, labels, rows = self.ordered
        mine = labels == self.label
        if mine.all():
            return None
        votes = self._weigh(log_w, labels)
        rival, most = self._rival(votes, labels)
        # In units of the rival's largest vote, neither side underflows. Votes above e⁷⁰⁰ times that must go anyway.
        theirs = math.fsum(np.exp(votes[labels == rival] - most))
        own = np.exp(np.minimum(votes[mine] - most, 700.0))
        remaining = np.append(np.cumsum(own[::-1])[::-1], 0.0)

        first = rival < self.label and self.class_weights[rival] == self.class_weights[self.label]

        def changed(size: int) -> bool:
            left = remaining[size]
            if abs(left - theirs) <= 1e-9 * theirs:
                left = math.fsum(own[size:])
            return bool(left < theirs * (1 - 1e-12) or (first and left == theirs))

        size = max(1, int(np.searchsorted(-remaining, -theirs * (1 + 1e-9))))  # here or a few places on
        while not changed(size):
            size += 1
        return np.asarray(rows[mine][:size])

    def flip_size(self) -> int | None:
        """The number of these rows; None if no removal changes the label."""
        rows = self.flip_rows()
        return None if rows is None else len(rows)

    def _rival(self, votes: Floats, labels: Ints) -> tuple[int, float]:
        """The class with the most votes after the label (the first of several), and the log of its largest vote."""
        largest = np.full(self.n_classes, -np.inf)
        np.maximum.at(largest, labels, votes)
        largest[self.label] = -np.inf
        most = float(largest.max())
        sums = [
            -1.0 if largest[k] == -np.inf else math.fsum(np.exp(votes[labels == k] - most))
            for k in range(self.n_classes)
        ]
        return int(np.argmax(sums)), most


class NumberRange(NamedTuple):
    """The numbers of a group: their mean, weighted by the votes, and the lowest and the highest of them."""

    mean: float
    low: float
    high: float


class NumberVotes(Votes):
    """Votes for numbers (m, T), and their distribution.

    references: the voters, in the groups to show. distribution: of the votes on this query.
    """

    def __init__(self, references: ReferenceSet, h: Tensor, distribution: VoteDistribution, average: str) -> None:
        super().__init__(references, h)
        self.distribution, self.average = distribution, average

    @cached_property
    def targets(self) -> Floats:
        """(m, T)."""
        assert self.references.targets is not None
        return self.references.targets.cpu().numpy()

    def ranges(self, rows: Ints) -> tuple[NumberRange, ...]:
        """The numbers of these references, for each of T."""
        log_w = self._weigh(self.log_w[rows], self.labels[rows])
        weights = np.exp(log_w - log_w.max())
        means = weights @ self.targets[rows] / weights.sum()
        columns = zip(means.tolist(), self.targets[rows].T, strict=True)
        # Rounding may move the mean of equal numbers off them.
        return tuple(
            NumberRange(min(max(mean, float(y.min())), float(y.max())), float(y.min()), float(y.max()))
            for mean, y in columns
        )

    def interval(self, t: int) -> tuple[float, float]:
        """A 95 % interval for the mean, or median, of the t-th number under redrawn voters.

        Of the mean: m ± t_n √V, where V = (n Σ s²(y-m)² + S²/n) / (n + 1), n is the effective number of voters and S²
        the variance of all numbers: one voter more, with the spread of all, as few tell little about their own spread.
        It ends at the lowest and highest number of all.
        Of the median: the numbers between which n fair coins would put it.
        """
        n = self.n_effective
        if self.average == "median":
            levels = beta.ppf(_ENDS, n / 2 + 0.5, n / 2 + 0.5)
            low, high = self.distribution.quantiles(levels.tolist())[0, t].tolist()
            return float(low), float(high)
        shares, y, sizes = self.shares(self.log_w, self.labels), self.targets[:, t], self.references.sizes
        mean = float(shares @ y)
        spread = float(np.square(shares) / sizes @ np.square(y - mean))
        half = float(student.ppf(_ENDS[1], n)) * math.sqrt((n * spread + self.deviation(t) ** 2 / n) / (n + 1))
        return max(mean - half, float(y.min())), min(mean + half, float(y.max()))

    def spread(self, t: int) -> float:
        """The standard deviation of the votes for the t-th number, in units of that of all numbers."""
        shares, y = self.shares(self.log_w, self.labels), self.targets[:, t]
        return math.sqrt(float(shares @ np.square(y - shares @ y))) / (self.deviation(t) or 1.0)

    def deviation(self, t: int) -> float:
        """The standard deviation of the t-th number of all training examples."""
        y, sizes = self.targets[:, t], self.references.sizes
        return math.sqrt(np.average(np.square(y - np.average(y, weights=sizes)), weights=sizes))

    def influence(self, k: int) -> list[list[tuple[int, float, float]]]:
        """For each of T numbers, the k references whose removal moves the prediction most: row, share and move."""
        if self.average == "median":
            return [self._median_moves(t, k) for t in range(self.targets.shape[1])]
        influence = self.distribution.influence(k)
        return [
            list(zip(self.references.voters.positions(ids).tolist(), shares.tolist(), moves.tolist(), strict=True))
            for ids, shares, moves in zip(influence.ids[0], influence.shares[0], influence.moves[0], strict=True)
        ]

    def _median_moves(self, t: int, k: int) -> list[tuple[int, float, float]]:
        """The same for the median, the first number with half of the votes at or below it.

        With C the sums of shares p in the order of the numbers, the median without i is at the first j with
        C_j ≥ (1 - p_i) / 2 if that is before i, else at the first with C_j ≥ (1 + p_i) / 2.
        """
        order = np.argsort(self.targets[:, t], kind="stable")
        y, log_w = self.targets[order, t], self._weigh(self.log_w, self.labels)[order]
        p = np.exp(log_w - self.log_total)
        sums, last = np.cumsum(p), len(p) - 1
        before, after = (np.minimum(np.searchsorted(sums, (1 + sign * p) / 2), last) for sign in (-1, 1))
        without = y[np.where(before < np.arange(len(p)), before, after)]
        if p.max() > 0.5:  # the other votes may be below rounding error: sum them separately
            heaviest = int(p.argmax())
            others = np.delete(log_w, heaviest)
            rest = np.cumsum(np.exp(others - others.max()))
            without[heaviest] = np.delete(y, heaviest)[np.searchsorted(rest, rest[-1] / 2)]
        moves = without - float(self.distribution.median[0, t])
        most = np.argsort(-np.abs(moves), kind="stable")[: min(k, len(p))]
        return list(zip(order[most].tolist(), p[most].tolist(), moves[most].tolist(), strict=True))


def share_interval(n: float, p: float) -> tuple[float, float]:
    """A 95 % interval for a share of which n equal votes show p: Beta(n p + ½, n (1 - p) + ½), Jeffreys' posterior.

    It contains p itself.

    >>> [round(end, 2) for end in share_interval(3, 1.0)], [round(end, 2) for end in share_interval(100, 0.5)]
    ([0.46, 1.0], [0.4, 0.6])
    """
    low, high = beta.ppf(_ENDS, n * p + 0.5, n * (1 - p) + 0.5).tolist()
    return min(low, p), max(high, p)


def _n_effective(votes: Floats, sizes: Floats) -> float:
    """(Σ votes)² / Σ votes²; a vote of a representative is that of `sizes` equal ones."""
    return float(votes.sum() ** 2 / (np.square(votes) / sizes).sum())


def _log_sums(log_w: Floats, codes: Ints, n: int) -> Floats:
    """(n,): log Σ exp(log_w) over the entries of each code; every code occurs."""
    largest = np.full(n, -np.inf)
    np.maximum.at(largest, codes, log_w)
    return np.asarray(largest + np.log(np.bincount(codes, np.exp(log_w - largest[codes]), n)))
