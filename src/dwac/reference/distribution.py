"""VoteDistribution: the predicted distribution of a number, exactly: the weighted distribution of voters' targets."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac import engine
from dwac.engine.distributions import log_shares, log_tails, weighted_crps, weighted_ends
from dwac.engine.votes import influence, weighted_variances
from dwac.errors import InputError, ShapeError
from dwac.reference.voters import Voters

_HALF = math.log(0.5)


class InfluentialVoters(NamedTuple):
    """For n queries and T targets, the k voters whose removal moves the mean most; every field is (n, T, k).

    >>> from dwac import ReferenceSet
    >>> refs = ReferenceSet([[0.0], [1.0]], [0, 0], ids=["ann", "bob"], targets=[10.0, 20.0])
    >>> moved = refs.distribution([[0.5]]).influence(k=1)
    >>> moved.ids.tolist(), moved.moves.round(6).tolist()
    ([[['ann']]], [[[5.0]]])
    """

    ids: NDArray[Any]
    targets: NDArray[np.float64]  # the target of each voter
    shares: NDArray[np.float64]  # its share of all votes
    moves: NDArray[np.float64]  # mean without the voter - mean


class VoteDistribution:
    """The distribution of T targets by the votes of m examples on each of n queries: Σ_i p_i δ(y_i), p_i = w_i / Σ w.

    Values are computed on first use, and no (n, m) array is ever held. Later edits of the set change nothing. Tensor
    queries give tensors, others NumPy arrays; all in float64, to about 1e-9 of the spread of the targets. A query far
    from all voters has as exact an answer as any other.

    Get one from `ReferenceSet.distribution`.

    >>> from dwac import ReferenceSet
    >>> refs = ReferenceSet([[0.0], [1.0], [5.0]], [0, 0, 0], targets=[10.0, 20.0, 90.0])
    >>> d = refs.distribution([[0.5], [1000.0]])
    >>> d.mean.round(6).tolist()
    [[15.0], [90.0]]
    >>> d.quantiles([0.1, 0.9]).tolist()
    [[[10.0, 20.0]], [[90.0, 90.0]]]
    >>> d.cdf(15.0).round(6).tolist()
    [[0.5], [0.0]]
    """

    def __init__(self, voters: Voters, queries: Tensor, *, tensors: bool) -> None:
        if voters.targets is None:
            raise InputError("these examples have labels but no targets; give targets=… when the set is created")
        # A copy: later edits of the caller's array must not change the results.
        self._voters, self._queries, self._tensors = voters, queries.detach().clone(), tensors

    # Contents

    def __len__(self) -> int:
        """The number of queries n."""
        return len(self._queries)

    def __getitem__(self, rows: Any) -> VoteDistribution:
        """The distribution for some of the queries: a slice, a mask or a list of rows."""
        if isinstance(rows, int | np.integer):
            if not -len(self) <= rows < len(self):  # so that iteration ends
                raise IndexError(f"row must lie in 0 … {len(self) - 1}; got {rows}")
            rows = slice(rows, rows + 1 or None)
        chosen = rows if isinstance(rows, slice | Tensor) else torch.as_tensor(np.asarray(rows))
        return type(self)(self._voters, self._queries[chosen], tensors=self._tensors)

    def __repr__(self) -> str:
        """Its size, in words."""
        return f"VoteDistribution({len(self):,} queries, {self.n_targets} targets, {len(self._voters.labels):,} voters)"

    @property
    def n_targets(self) -> int:
        """T."""
        return self._targets.shape[1]

    @property
    def _targets(self) -> Tensor:
        assert self._voters.targets is not None
        return self._voters.targets

    @property
    def _references(self) -> engine.WeightedReferences:
        return self._voters.weighted_references

    @property
    def _ordered(self) -> list[engine.SortedTargets]:
        return self._voters.ordered

    # Moments

    @property
    def mean(self) -> Any:
        """Σ p_i y_i, (n, T)."""
        return self._like(self._means.means)

    @property
    def log_total(self) -> Any:
        """log Σ w_i, the log of all votes, (n,): small where no voter is near."""
        return self._like(self._means.log_total)

    @cached_property
    def _means(self) -> engine.WeightedMeans:
        return engine.weighted_means(self._references, self._queries, self._targets)

    @property
    def variance(self) -> Any:
        """Σ p_i (y_i - mean)², (n, T)."""
        return self._like(self._variances)

    @cached_property
    def _variances(self) -> Tensor:
        return weighted_variances(self._references, self._queries, self._targets)

    # Shares

    def cdf(self, values: Any) -> Any:
        """The share of votes for targets ≤ each value, (n, T). values: (n, T), (n,) of a single target, or a number."""
        table = self._per_query(values, "values", infinite=True)
        counts = [ordered.counts(column[:, None]) for ordered, column in zip(self._ordered, table.T, strict=True)]
        return self._like(torch.cat(self._log_shares(counts), dim=1).exp())

    def _log_shares(self, counts: list[Tensor]) -> list[Tensor]:
        """For each target, logs (n, C) of the shares of the first `counts` (n, C) votes, ordered by that target."""
        pairs = zip(self._ordered, counts, strict=True)
        return [log_shares(self._references, self._queries, ordered, first) for ordered, first in pairs]

    def tails(self, y: Any) -> tuple[Any, Any]:
        """Logs of the shares of votes for targets ≤ y and ≥ y, each (n, T); -inf where y is beyond all targets.

        y: as for `cdf`. A tail too small for a float still has an exact log.
        """
        columns = zip(self._ordered, self._per_query(y, "y", infinite=True).T[:, :, None], strict=True)
        tails = [log_tails(self._references, self._queries, *column) for column in columns]
        below, above = (torch.cat(column, dim=1) for column in zip(*tails, strict=True))
        return self._like(below), self._like(above)

    def histogram(self, edges: Any) -> Any:
        """The share of votes in each of B bins between B + 1 ascending edges, (n, T, B).

        As in NumPy, a bin includes its left edge, and the last bin both. Targets outside all bins are not counted.
        edges: (B + 1,), or (T, B + 1) for separate bins per target.
        """
        counts = []
        for ordered, row in zip(self._ordered, self._as_edges(edges), strict=True):
            first = ordered.counts(row, below=True)
            first[-1] = ordered.counts(row[-1:])[0]
            counts.append(first.expand(len(self), -1))
        bins = [log_shares.exp().diff(dim=1).clamp_min_(0) for log_shares in self._log_shares(counts)]
        return self._like(torch.stack(bins, dim=1))

    def _as_edges(self, edges: Any) -> Tensor:
        values = checks.scores(edges, "edges")
        if values.ndim not in (1, 2) or values.shape[-1] < 2 or (np.diff(values) <= 0).any():
            raise InputError(f"edges must be at least 2 ascending numbers; got {checks.listed(values.tolist())}")
        if values.ndim == 2 and len(values) != self.n_targets:
            raise ShapeError(f"edges must be (B + 1,) or ({self.n_targets}, B + 1); got shape {values.shape}")
        return self._tensor(np.broadcast_to(values, (self.n_targets, values.shape[-1])))

    # Quantiles

    def quantiles(self, levels: Any) -> Any:
        """The smallest target y with a share of votes ≤ y of at least each level, (n, T, Q).

        levels: (Q,) numbers in [0, 1]. Level 0 gives the smallest target, 1 the largest, however few votes they have.
        """
        shares = checks.scores(levels, "levels", ndim=1)
        if ((shares < 0) | (shares > 1)).any():
            raise InputError(f"levels must lie in [0, 1]; got {checks.listed(shares.tolist())}")
        log_levels = self._tensor(shares).log().expand(len(self), -1)
        columns = [
            engine.weighted_quantiles(self._references, self._queries, ordered, log_levels) for ordered in self._ordered
        ]
        answer = torch.stack(columns, dim=1)
        # Because of rounding, the sum may reach all votes before the last of them.
        largest = torch.stack([ordered.values[-1] for ordered in self._ordered])[None, :, None].expand_as(answer)
        return self._like(torch.where(self._tensor(shares) == 1, largest, answer))

    @property
    def median(self) -> Any:
        """The smallest target y with half of all votes ≤ y, (n, T)."""
        return self.quantiles([0.5])[:, :, 0]

    def ends(self, log_tail: Any) -> tuple[Any, Any]:
        """The ends of {y : share of votes ≤ y is ≥ a, and share of votes ≥ y is ≥ a}, a = exp(log_tail), at most ½.

        Both ends are targets. y lies between them exactly where both of `tails(y)` are at least log_tail. a = 0 gives
        the smallest and the largest target; a > ½ counts as ½ and gives the lower and the upper median.

        log_tail: a number or (n,), for ends (n, T); or (n, C), for ends (n, T, C).
        """
        logs = checks.scores(log_tail, "log_tail")
        if logs.ndim > 2 or (logs.ndim > 0 and len(logs) != len(self)):
            raise ShapeError(f"log_tail must be a number, ({len(self)},) or ({len(self)}, C); got shape {logs.shape}")
        table = logs if logs.ndim == 2 else np.broadcast_to(logs, len(self))[:, None]
        log_levels = self._tensor(table).clamp_max(_HALF)
        ends = [weighted_ends(self._references, self._queries, each, log_levels) for each in self._ordered]
        lower, upper = (torch.stack(side, dim=1) for side in zip(*ends, strict=True))
        single = logs.ndim < 2
        return self._like(lower[:, :, 0] if single else lower), self._like(upper[:, :, 0] if single else upper)

    # Scores

    def crps(self, y: Any) -> Any:
        """∫ (F(t) - 1{t ≥ y})² dt, the continuous ranked probability score of the outcome y, (n, T); 0 is perfect.

        y: as for `cdf`.
        """
        columns = zip(self._ordered, self._per_query(y, "y").T, strict=True)
        scores = [weighted_crps(self._references, self._queries, *column) for column in columns]
        return self._like(torch.stack(scores, dim=1))

    def influence(self, k: int) -> InfluentialVoters:
        """The k voters whose removal would move the mean of each target most, exactly, largest first.

        Without a voter of share p the mean moves by p (mean - y) / (1 - p). If one voter has all votes up to rounding,
        the others determine the mean without it, however far away they are. If it is the only voter, its move is 0. A
        representative is removed with all its votes. Equal moves are in the order of the set.
        """
        k = checks.positive_int(k, "k")
        rows, shares, moves = influence(self._references, self._queries, self._targets, k)
        targets = torch.stack([y[of] for y, of in zip(self._targets.T, rows.unbind(1), strict=True)], dim=1)
        ids = self._voters.ids_at(rows.cpu().numpy())
        return InfluentialVoters(ids, *(field.cpu().numpy() for field in (targets, shares, moves)))

    # Types

    def _like(self, answer: Tensor) -> Any:
        """A copy of the answer in the type of the queries."""
        return answer.clone() if self._tensors else answer.cpu().numpy().copy()

    def _tensor(self, values: NDArray[np.float64]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self._queries.device)

    def _per_query(self, values: Any, name: str, *, infinite: bool = False) -> Tensor:
        """(n, T) float64."""
        table = checks.scores(values, name)
        if not infinite and not np.isfinite(table).all():
            raise InputError(f"{name} must be finite; got {table[~np.isfinite(table)].flat[0]}")
        n, n_targets = len(self), self.n_targets
        if table.shape == (n,) and n_targets == 1:
            table = table[:, None]
        if table.ndim != 0 and table.shape != (n, n_targets):
            raise ShapeError(f"{name} must be a number or ({n}, {n_targets}); got shape {table.shape}")
        return self._tensor(np.broadcast_to(table, (n, n_targets)))
