"""Votes: the vote of every reference on one query, and what can be certified from them."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.engine import Index


class Votes:
    """The vote of every reference on one query, in float64: `deciding` and `flip_set` are certified from these.

    A vote is w(h, h_i) times the weight c of its class. If two classes have equal votes, the first one is the label.
    `flip_set` therefore uses exact sums (`math.fsum`), which distinguish a tie from rounding.
    """

    def __init__(self, index: Index, h: Tensor, label: int, ids: NDArray[Any], class_weights: NDArray[Any]) -> None:
        self.index, self.h, self.label, self.ids = index, h, label, ids
        self.class_weights = class_weights

    @cached_property
    def ordered(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """log w(h, h_i) without class weights, nearest first, and the labels and rows of these references."""
        h = self.h.double()
        squared = torch.cat([(part.double() - h).square().sum(1) for part in self.index.embeddings.split(65_536)])
        log_w, rows = self.index.kernel.log_weights(squared).sort(descending=True, stable=True)
        return log_w.cpu().numpy(), self.index.labels[rows].cpu().numpy(), rows.cpu().numpy()

    def deciding(self) -> int:
        """The least j such that the j nearest decide the label, whatever labels all the others have.

        In the worst case all others, Σ w in total, vote for one rival k: j is enough if, among the j nearest, the label
        leads each k by more than c_k Σ w. If j is enough, so is j + 1. A tie decides nothing.
        """
        log_w, labels, _ = self.ordered
        weights = np.exp(log_w - log_w[0])
        votes = weights * self.class_weights[labels]
        rest = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
        rivals = [k for k in range(self.index.n_classes) if k != self.label]

        def decided(j: int) -> bool:
            counts = np.bincount(labels[:j], votes[:j], self.index.n_classes)
            leads = counts[self.label] - counts[rivals] - self.class_weights[rivals] * rest[j]
            return bool((leads > 1e-12 * (counts.sum() + self.class_weights.max() * rest[j])).all())

        low, high = 0, len(labels)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if decided(middle) else (middle + 1, high)
        return low

    def flip_rows(self) -> NDArray[np.int64] | None:
        """Rows of the smallest set of references whose removal changes the label: the nearest that voted for it."""
        log_w, labels, rows = self.ordered
        mine = labels == self.label
        if mine.all():
            return None
        votes = log_w + np.log(self.class_weights)[labels]
        rival, most = self._rival(votes, labels)
        # In units of the rival's largest vote, neither side underflows. Votes above e⁷⁰⁰ times that must go anyway.
        theirs = math.fsum(np.exp(votes[labels == rival] - most))
        own = np.exp(np.minimum(votes[mine] - most, 700.0))
        remaining = np.append(np.cumsum(own[::-1])[::-1], 0.0)

        def changed(size: int) -> bool:
            left = remaining[size]
            if abs(left - theirs) <= 1e-9 * theirs:
                left = math.fsum(own[size:])
            return bool(left < theirs or (left == theirs and rival < self.label))

        size = max(1, int(np.searchsorted(-remaining, -theirs * (1 + 1e-9))))  # here or a few places on
        while not changed(size):
            size += 1
        return np.asarray(rows[mine][:size])

    def flip_size(self) -> int | None:
        """The number of these rows; None if no removal changes the label."""
        rows = self.flip_rows()
        return None if rows is None else len(rows)

    def _rival(self, votes: NDArray[np.float64], labels: NDArray[np.int64]) -> tuple[int, float]:
        """The class with the most votes after the label (the first of several), and the log of its largest vote."""
        largest = np.full(self.index.n_classes, -np.inf)
        np.maximum.at(largest, labels, votes)
        largest[self.label] = -np.inf
        most = float(largest.max())
        sums = [
            -1.0 if largest[k] == -np.inf else math.fsum(np.exp(votes[labels == k] - most))
            for k in range(self.index.n_classes)
        ]
        return int(np.argmax(sums)), most
