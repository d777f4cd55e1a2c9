"""Stack: small indexes on a CPU, queried in one pass: one set of voters, or the folds of a cross-fitted model.

Large arrays are computed for a few queries at a time, so that they stay in the cache; everything that is small per
query for many at once. No answer depends on the other queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from dwac._machine import few_threads
from dwac.engine.backends import ROWS, TorchBackend, exp_, multiply, sum_by_label
from dwac.engine.exact import exact_distances
from dwac.engine.index import Index
from dwac.engine.precision import PLAIN, lost_queries, rounding_unit
from dwac.kernels import full_precision

MOST_STACKED = 2**16  # padded references of all indexes together
_TILE = 2**18  # products in the cache
_TOGETHER = 512  # queries
_SPARE = 3  # candidates kept beyond k, so that rounding rarely hides a neighbour
_SORTED = 2**14  # products up to which sorting takes less time than finding groups
_SURE = 1e8  # ‖q‖² of queries that are never in doubt in float64, unless every reference is a million times as far away
_BACKEND = TorchBackend()
_VOID = -1e30  # ‖q‖² - ‖q - g‖² of blocks that pad an index to the size of the largest; finite, so that no NaN occurs


class StackResult(NamedTuple):
    """For n queries to each of F indexes."""

    log_class_weights: Tensor  # (n, F, K) float64
    rows: Tensor  # (n, F, k) int64: the nearest, nearest first; as positions in all indexes one after the other
    squared_distances: Tensor  # (n, F, k) float64
    rounding: Tensor  # (n, F) float64: a bound on the error of the distances by which neighbours were chosen
    unsure: Tensor  # (n, F, 2): where rounding leaves doubt, of votes and of neighbours


@dataclass(frozen=True, eq=False)
class Stack:
    """F indexes with the same classes, precision and block size, and gaussian weights."""

    indexes: tuple[Index, ...]

    @classmethod
    def of(cls, indexes: Sequence[Index]) -> Stack | None:
        """The stack of these indexes; None if they are too large or too different."""
        first = indexes[0]
        layouts = {(index.block_size, index.folded.dtype) for index in indexes}
        large = max(len(index.rows) for index in indexes) * len(indexes) > MOST_STACKED
        serves = first.embeddings.device.type == "cpu" and first.kernel.name == "gaussian"
        return cls(tuple(indexes)) if serves and len(layouts) == 1 and not large else None

    @cached_property
    def _n_blocks(self) -> int:
        return max(len(index.block_labels) for index in self.indexes)

    @cached_property
    def _columns(self) -> Tensor:
        """(F, d + 1, B · block_size): the folded references of each index, padded."""
        first, size = self.indexes[0], self._n_blocks * self.indexes[0].block_size
        columns = first.folded.new_zeros(len(self.indexes), first.folded.shape[1], size)
        columns[:, -1] = _VOID
        for place, index in enumerate(self.indexes):
            columns[place, :, : len(index.rows)] = index.folded.mT
        return columns

    @cached_property
    def _codes(self) -> Tensor:
        """(F · B,): index · K + label of each block; F · K for padding."""
        n, k = len(self.indexes), self.indexes[0].n_classes
        codes = torch.full((n, self._n_blocks), n * k)
        for place, index in enumerate(self.indexes):
            codes[place, : len(index.block_labels)] = index.block_labels + place * k
        return codes.flatten()

    @cached_property
    def _centres(self) -> Tensor:
        """(F, 1, d) float64."""
        return torch.stack([index.centre for index in self.indexes])[:, None]

    @cached_property
    def _log_counts(self) -> Tensor:
        """(F · K,) float64."""
        return torch.cat([index.log_counts for index in self.indexes])

    @cached_property
    def _joined(self) -> Index:
        """All references, one index after the other; `rows` has B · block_size places for each index."""
        first, rows, start = self.indexes[0], [], 0
        for index in self.indexes:
            own = torch.full((self._n_blocks * first.block_size,), -1)
            own[: len(index.rows)] = torch.where(index.rows < 0, -1, index.rows + start)
            rows.append(own)
            start += len(index.labels)
        embeddings, labels = (
            torch.cat([getattr(index, name) for index in self.indexes]) for name in ("embeddings", "labels")
        )
        return replace(first, embeddings=embeddings, labels=labels, rows=torch.cat(rows))

    @cached_property
    def _doubled(self) -> Stack:
        """The same in float64."""
        return Stack(tuple(index.doubled for index in self.indexes))

    @torch.no_grad()
    def query(self, queries: Tensor, k: int, *, votes: bool = True) -> StackResult:
        """The votes and the k nearest of queries (F, n, d). votes: False computes only the nearest."""
        parts = self._query_parts(queries.detach().split(_TOGETHER, dim=1), k, votes)
        result = parts[0] if len(parts) == 1 else StackResult(*map(torch.cat, zip(*parts, strict=True)))
        if self._columns.dtype == torch.float64 or not result.unsure.any():
            return result
        left = result.unsure.flatten(1).any(dim=1).nonzero()[:, 0]
        better, unsure = self._doubled.query(queries[:, left], k, votes=votes), result.unsure[left]
        # If only neighbours were in doubt, votes stay, so that they do not depend on k.
        result.log_class_weights[left] = torch.where(unsure[..., :1], better[0], result.log_class_weights[left])
        for field, values in zip(result[1:3], better[1:3], strict=True):
            field[left] = torch.where(unsure[..., 1:], values, field[left])
        result.rounding[left] = torch.where(unsure[..., 1], better.rounding, result.rounding[left])
        result.unsure[left] &= better.unsure
        return result

    def _query_parts(self, queries: Sequence[Tensor], k: int, votes: bool) -> list[StackResult]:
        """Answer each part on one thread: arrays are so small that threads would mostly wait for one another."""
        workers = min(torch.get_num_threads(), len(queries) // 2)

        def answer(part: Tensor) -> StackResult:
            with few_threads(1), torch.no_grad():
                return self._query(part, k, votes)

        if workers < 2:
            return [answer(part) for part in queries]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(answer, queries))

    def _query(self, queries: Tensor, k: int, votes: bool) -> StackResult:
        n_sets, n, d = queries.shape
        # [q, 1], to multiply with folded references; padded by queries at the centre.
        ones = self._columns.new_zeros(n_sets, n + -n % ROWS, d + 1)
        ones[..., d] = 1
        centred = torch.sub(queries, self._centres, out=ones[:, :n, :d])
        norms: Tensor = torch.linalg.vector_norm(centred, dim=2, dtype=torch.float64).square_()
        best, units, near, places = self._sweep(ones, n, k, votes)
        unit, single = rounding_unit(d, ones.dtype, _BACKEND), ones.dtype != torch.float64
        log_class_weights, unsure = norms.new_empty(n, n_sets, 0), torch.zeros_like(norms, dtype=torch.bool)
        if votes:
            log_class_weights, unsure = self._votes(best, units, norms, unit, single)
        rows, squared, rounding = places.new_empty(n_sets, n, 0), norms.new_empty(n_sets, n, 0), norms
        hidden = unsure
        if k:
            rows, squared = self._rank(queries, places, k)
            farthest = squared[:, :, -1]
            rounding = (2 * norms.sqrt() + farthest.sqrt()).square_().mul_(unit)
            # No reference that was not compared exactly is nearer than this, up to rounding.
            reach = torch.inf if near.shape[2] == self._columns.shape[2] else norms - near.amin(dim=2)
            hidden = unsure | (reach - rounding <= farthest)
        doubt = torch.stack([unsure, hidden], dim=2)
        fields = (field.transpose(0, 1) for field in (rows, squared, rounding, doubt))
        return StackResult(log_class_weights, *fields)

    def _sweep(self, ones: Tensor, n: int, k: int, votes: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The largest product of each block and Σ w in units of it, (F, n, B); the largest products and their places.

        Of the products ‖q‖² - ‖q - g‖², the largest (F, n, c), a few more than k, belong to the nearest references.
        """
        columns, n_sets = self._columns, len(ones)
        kept, n_blocks = min(k + _SPARE, columns.shape[2]) if k else 0, self._n_blocks if votes else 0
        best, units = (ones.new_empty(n_sets, n, n_blocks) for _ in range(2))
        near, places = ones.new_empty(n_sets, n, kept), torch.empty(n_sets, n, kept, dtype=torch.int64)
        step = max(ROWS, min(ones.shape[1], _TILE // columns[:, 0].numel() // ROWS * ROWS))
        memory = ones.new_empty(n_sets, step, columns.shape[2])
        for start in range(0, n, step):
            part = slice(start, min(start + step, n))
            with full_precision(ones.device):
                for own, index, product in zip(ones[:, start : start + step], columns, memory, strict=True):
                    multiply(own, index, product, ROWS)
            tile = memory[:, : part.stop - start]
            if k:
                near[:, part], places[:, part] = _largest(tile, kept)
            if votes:
                blocks = tile.unflatten(2, (n_blocks, -1))
                torch.amax(blocks, dim=3, out=best[:, part])
                torch.sum(exp_(blocks.sub_(best[:, part, :, None])), dim=3, out=units[:, part])
        return best, units, near, places

    def _votes(self, best: Tensor, units: Tensor, norms: Tensor, unit: float, single: bool) -> tuple[Tensor, Tensor]:
        """Log class weights (n, F, K), and which rounding leaves in doubt, (F, n)."""
        first, shape = self.indexes[0], norms.shape
        # ‖q‖² cancels in every difference of logs, so it is only subtracted here.
        log_sums = units.log_().add_(best).double().sub_(norms[:, :, None]).transpose(0, 1).flatten(1)
        sums = sum_by_label(log_sums, self._codes, len(self._log_counts) + 1)[:, :-1]
        votes = torch.minimum(sums, self._log_counts).view(shape[1], shape[0], first.n_classes)
        if not single and bool((norms < _SURE).all()):  # float64 leaves no doubt about them
            return votes, torch.zeros_like(norms, dtype=torch.bool)
        nearest = (norms - best.amax(dim=2)).clamp_min_(0)
        flat = votes.transpose(0, 1).flatten(0, 1)
        unsure = PLAIN.unsure(first, flat, norms.flatten(), nearest.flatten(), unit, single).view(shape)
        return votes, unsure | lost_queries(norms, unit) if single else unsure

    def _rank(self, queries: Tensor, places: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Rows and exact squared distances (F, n, k) of the k nearest candidates; ties in the order of their rows."""
        index, shape = self._joined, places.shape[:2]
        starts = torch.arange(0, len(index.rows), self._columns.shape[2])[:, None, None]
        rows = index.rows[places + starts].flatten(0, 1)
        rows = torch.where(rows < 0, len(index.labels), rows).sort(dim=1).values  # padding last
        distances = exact_distances(index, queries.flatten(0, 1), rows)
        squared, order = distances.sort(dim=1, stable=True)
        return rows.gather(1, order[:, :k]).view(*shape, k), squared[:, :k].view(*shape, k)


def _largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of values (…, c) and their places, in any order.

    They are among the k groups with the largest maxima. A group has every (c / g)th value: its maximum takes a tenth of
    the time that sorting takes.
    """
    c, g = values.shape[-1], 1
    while values.numel() > _SORTED and c % (2 * g) == 0 and 4 * g * g * k <= c:
        g *= 2
    if g == 1:
        top = values.topk(k, sorted=False)
        return top.values, top.indices
    groups, half = values.unflatten(-1, (g, c // g)), g
    while half > 1:
        half //= 2
        groups = torch.maximum(groups[..., :half, :], groups[..., half : 2 * half, :])
    best = groups[..., 0, :].topk(k, sorted=False).indices
    places = (best[..., None, :] + torch.arange(0, c, c // g)[:, None]).flatten(-2)
    top = values.gather(-1, places).topk(k, sorted=False)
    return top.values, places.gather(-1, top.indices)
