"""Shards: rows of a reference set that are asked on their own, here or on another machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd
import torch
from torch import Tensor

from dwac.kernels import get_kernel
from dwac.reference.distribution import VoteDistribution
from dwac.reference.parts import BetweenPart, MeanPart, TailPart, VariancePart, VotePart
from dwac.reference.state import LookAlikes, State, unit
from dwac.storage import FileRows

_GOLDEN = 0.6180339887498949  # of shards that are alike, each proposes other targets


@dataclass(frozen=True, eq=False)
class Shard:
    """The voters at positions start … stop of a set. Send it to a worker once, and ask it there.

    Its rows are read from files when it is asked, except those that were changed in memory. It computes in float64,
    whatever its rows are stored as, so that answers do not depend on how a set is divided.
    """

    start: int
    stop: int
    rows: Mapping[str, Tensor | FileRows]  # embeddings, labels, and weights, sizes and targets where there are any
    n_classes: int
    kernel: str
    class_weights: tuple[float, ...] | None
    look_alikes: LookAlikes | None
    turned: bool = False  # to embeddings of length 1

    def __len__(self) -> int:
        """The number of voters."""
        return self.stop - self.start

    @property
    def state(self) -> State:
        """Its voters as a set of their own, read anew."""
        held = {name: self._column(name) for name in self.rows}
        embeddings = unit(held["embeddings"]) if self.turned else held["embeddings"]
        return State(
            embeddings.double(),
            held["labels"].long(),
            pd.RangeIndex(self.start, self.stop),
            None,
            self.n_classes,
            get_kernel(self.kernel),
            self.class_weights,
            held.get("weights"),
            held.get("sizes"),
            self.look_alikes,
            targets=held.get("targets"),
        )

    def _column(self, name: str) -> Tensor:
        rows = self.rows[name]
        return rows if isinstance(rows, Tensor) else rows.read()

    # What it answers

    def votes(self, queries: Tensor, k: int = 0, backend: str = "auto") -> VotePart:
        """The votes for each class, and the k nearest."""
        state = self.state
        sums, rows, squared = state.query(queries.double(), min(k, len(self)), backend)
        keys = squared
        if state.weights is not None:
            keys = -(state.kernel.log_weights(squared) + state.log_factors[rows])
        return VotePart(sums, rows + self.start, squared, keys, k)

    def single_votes(self, query: Tensor) -> Tensor:
        """(stop - start,): log w of each voter on one query (d,)."""
        return self.state.log_votes(query)

    def means(self, queries: Tensor) -> MeanPart:
        """The means of the targets."""
        found = self._distribution(queries)
        return MeanPart(found.log_total, found.mean)

    def variances(self, queries: Tensor) -> VariancePart:
        """The means and variances of the targets."""
        found = self._distribution(queries)
        return VariancePart(found.log_total, found.mean, found.variance)

    def histogram(self, queries: Tensor, edges: Tensor) -> MeanPart:
        """Shares of the votes between edges (T, B + 1)."""
        found = self._distribution(queries)
        return MeanPart(found.log_total, found.histogram(edges.cpu().numpy()))

    def tails(self, queries: Tensor, values: Tensor, target: int) -> TailPart:
        """The votes for targets ≤ and ≥ values (n, C)."""
        found = self._distribution(queries, target)
        return TailPart(found.log_total, *(tail + found.log_total[:, None] for tail in found.log_tails(0, values)))

    def between(self, lower: Tensor, upper: Tensor, size: int, target: int) -> BetweenPart:
        """Up to `size` of the targets strictly between values (n, C) and (n, C), spread evenly over them."""
        ordered = self._column("targets")[:, target].sort()[0]
        first = torch.searchsorted(ordered, lower.contiguous(), right=True)
        counts = (torch.searchsorted(ordered, upper.contiguous()) - first).clamp_min_(0)
        offset = (self.start * _GOLDEN) % 1
        spread = (torch.arange(size, device=ordered.device, dtype=torch.float64) + offset) / size
        few = torch.arange(size, device=ordered.device)
        places = torch.where(counts[:, :, None] <= size, few, (spread * counts[:, :, None]).long())
        values = ordered[(first[:, :, None] + places).clamp_max_(len(ordered) - 1)]
        return BetweenPart(values.masked_fill_(places >= counts[:, :, None], torch.nan), counts)

    def _distribution(self, queries: Tensor, target: int | None = None) -> VoteDistribution:
        """Of all targets, or of one."""
        state = self.state
        if target is not None and state.targets is not None and state.targets.shape[1] > 1:
            state = replace(state, targets=state.targets[:, target : target + 1])
        return VoteDistribution(state, queries.double(), tensors=True)
