"""Stack: small indexes on a CPU, queried in one pass: one set of voters, or the folds of a cross-fitted model.

Large arrays are computed for a few queries at a time, so that they stay in the cache; everything that is small per
query for many at once. No answer depends on the other queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac._machine import few_threads
from dwac.engine.backends import TorchBackend
from dwac.engine.exact import query as query_index
from dwac.engine.index import Index
from dwac.engine.precision import PLAIN, lost_queries, rounding_unit
from dwac.kernels import full_precision

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

MOST_STACKED = 2**16  # references of all indexes together
_ROWS = 16  # queries in a product: always as many, because rounding depends on the shape
_CACHE = 2**21  # bytes of products
_VECTORS = 256  # bytes: torch reduces so many neighbouring numbers at once
_DEEPEST = 128  # references in a lane
_TOGETHER = 512  # queries
_EXACT = 4096  # distances at once
_LANES = 8  # for each class: neighbours are often of one class, and the largest of each lane bound them
_MOST = 16  # times so many candidates
_SPARE = 2  # candidates kept beyond k, so that rounding rarely hides a neighbour
_SURE = 1e8  # ‖q‖² of queries that are never in doubt in float64, unless every reference is a million times as far away
# Exponents: the largest that a reference may have, so that no sum overflows, and that of padding, above which exp is
# fast on a CPU; see `backends.exp_`. A class whose mean weight is not _CLEAR above padding is in doubt.
_RANGE = {torch.float32: (62.0, -86.0), torch.float64: (690.0, -706.0)}
_CLEAR = 20.0
_BACKEND, _NONE = TorchBackend(), np.empty(0, np.int64)
_VOID = -1e30  # of padding, where only neighbours are wanted; finite, so that no NaN occurs


class StackResult(NamedTuple):
    """For n queries to each of F indexes."""

    log_class_weights: Tensor  # (n, F, K) float64
    rows: Tensor  # (n, F, k) int64: the nearest, nearest first; as positions in all indexes one after the other
    squared_distances: Tensor  # (n, F, k) float64
    rounding: Tensor  # (n, F) float64: a bound on the error of the distances by which neighbours were chosen
    unsure: Tensor  # (n, F, 2): where rounding leaves doubt, of votes and of neighbours


@dataclass(frozen=True, eq=False)
class Stack:
    """F indexes with the same classes and precision, and gaussian weights."""

    indexes: tuple[Index, ...]

    @classmethod
    def of(cls, indexes: Sequence[Index]) -> Stack | None:
        """The stack of these indexes; None if they are too large or too different."""
        first = indexes[0]
        large = max(len(index.labels) for index in indexes) * len(indexes) > MOST_STACKED
        serves = first.embeddings.device.type == "cpu" and first.kernel.name == "gaussian"
        alike = len({index.folded.dtype for index in indexes}) == 1
        return cls(tuple(indexes)) if serves and alike and not large else None

    @cached_property
    def _shape(self) -> tuple[int, int]:
        """(D, B): D references in each of B lanes; the fewest lanes that are not too deep and hardly need padding."""
        counts = np.stack([index.counts.numpy() for index in self.indexes])
        m, unit = int(counts.sum(axis=1).max()), _VECTORS // self.indexes[0].folded.element_size()
        fewest = max(-(-m // _DEEPEST), min(m, _LANES * int((counts > 0).sum(axis=1).max())))
        for lanes in range(fewest + -fewest % unit, m + unit, unit):
            for depth in range(-(-m // lanes), max(1, 5 * m // (4 * lanes)) + 1):
                if (-(-counts // depth)).sum(axis=1).max() <= lanes:
                    return depth, lanes
        raise AssertionError("a lane for each reference is always enough")

    @cached_property
    def _sources(self) -> Tensor:
        """(F, D · B): the position among all folded references of each place; -1 for padding.

        Places next to each other are in different lanes; the references of a lane are in one class.
        """
        depth, lanes = self._shape
        sources, start = torch.full((len(self.indexes), depth, lanes), -1), 0
        for own, index in zip(sources, self.indexes, strict=True):
            at = (index.rows >= 0).nonzero()[:, 0]  # by class
            labels, needed = index.labels[index.rows[at]], -(-index.counts // depth)
            within = torch.arange(len(at)) - (index.counts.cumsum(0) - index.counts)[labels]
            own[within % depth, (needed.cumsum(0) - needed)[labels] + within // depth] = at + start
            start += len(index.rows)
        return sources.flatten(1)

    @cached_property
    def _columns(self) -> Tensor:
        """(F, d + 2, D · B): [2g, -‖g‖², 1] of the references of each index."""
        folded = torch.cat([index.folded for index in self.indexes])[self._sources.clamp_min(0)]
        folded = torch.cat([folded, torch.ones_like(folded[..., :1])], dim=2)
        folded[self._sources < 0] = 0
        folded[..., -2].masked_fill_(self._sources < 0, _VOID)
        return folded.mT.contiguous()

    @cached_property
    def _voting_columns(self) -> Tensor:
        """The same with padding of hardly any weight, for any query."""
        columns = self._columns.clone()
        columns[:, -2].masked_fill_(self._sources < 0, _RANGE[columns.dtype][1])
        return columns

    @cached_property
    def _radius(self) -> Tensor:
        """(F,) float64: the largest ‖g‖ of each index."""
        norms = self._columns[:, -2].double()
        return norms.masked_fill(self._sources < 0, 0).amin(dim=1).neg_().sqrt_()

    @cached_property
    def _rows(self) -> Tensor:
        """(F, D · B): the reference at each place, as a position in all indexes; their number for padding."""
        sizes = torch.tensor([len(index.labels) for index in self.indexes])
        starts = sizes.cumsum(0) - sizes
        rows = torch.cat([index.rows + start for index, start in zip(self.indexes, starts, strict=True)])
        return rows[self._sources.clamp_min(0)].masked_fill_(self._sources < 0, int(sizes.sum()))

    @cached_property
    def _codes(self) -> Tensor:
        """(F · B,): index · K + label of each lane; F · K for padding."""
        n, k, first = len(self.indexes), self.indexes[0].n_classes, self._sources[:, : self._shape[1]]
        labels = torch.cat([index.block_labels.repeat_interleave(index.block_size) for index in self.indexes])
        codes = labels[first.clamp_min(0)] + k * torch.arange(n)[:, None]
        return codes.masked_fill_(first < 0, n * k).flatten()

    @cached_property
    def _centres(self) -> Tensor:
        """(F, 1, d) float64."""
        return torch.stack([index.centre for index in self.indexes])[:, None]

    @cached_property
    def _log_counts(self) -> Tensor:
        """(F · K,) float64."""
        return torch.cat([index.log_counts for index in self.indexes])

    @cached_property
    def _clear(self) -> Tensor:
        """(F, K) float64: the log sum from which the members of a class outweigh padding."""
        return (self._log_counts + _RANGE[self._columns.dtype][1] + _CLEAR).view(len(self.indexes), -1)

    @cached_property
    def _points(self) -> Tensor:
        """(M + 1, d) float64: all references, one index after the other, and infinity for padding."""
        points = torch.cat([index.embeddings.double() for index in self.indexes])
        return torch.cat([points, points.new_full((1, points.shape[1]), torch.inf)])

    @cached_property
    def _doubled(self) -> Stack | None:
        """The same in float64; None if it is in float64, or too large to be kept in it."""
        doubled = tuple(index.doubled for index in self.indexes)
        same = any(now is before for now, before in zip(doubled, self.indexes, strict=True))
        return None if same else Stack(doubled)

    @torch.no_grad()
    def query(self, queries: Tensor, k: int, *, votes: bool = True) -> StackResult:
        """The votes and the k nearest of queries (F, n, d). votes: False computes only the nearest."""
        queries = queries.detach()
        parts = self._query_parts(queries.split(_TOGETHER, dim=1), k, votes)
        result = parts[0] if len(parts) == 1 else StackResult(*map(torch.cat, zip(*parts, strict=True)))
        if not result.unsure.any():
            return result
        self._answer_in_float64(result, queries, k, votes)
        for place, (index, rows) in enumerate(zip(self.indexes, result.unsure[..., 0].unbind(1), strict=True)):
            if votes and rows.any():
                result.log_class_weights[rows, place] = query_index(index, queries[place][rows]).log_class_weights
        result.unsure[..., 0] = False
        return result

    def _answer_in_float64(self, result: StackResult, queries: Tensor, k: int, votes: bool) -> None:
        """Replace answers that are in doubt; some may stay so."""
        if (doubled := self._doubled) is None:
            return
        left = result.unsure.flatten(1).any(dim=1).nonzero()[:, 0]
        unsure = result.unsure[left]
        better = StackResult(*map(torch.cat, zip(*doubled._query_parts([queries[:, left]], k, votes), strict=True)))
        # If only neighbours were in doubt, votes stay, so that they do not depend on k.
        result.log_class_weights[left] = torch.where(unsure[..., :1], better[0], result.log_class_weights[left])
        for field, values in zip(result[1:3], better[1:3], strict=True):
            field[left] = torch.where(unsure[..., 1:], values, field[left])
        result.rounding[left] = torch.where(unsure[..., 1], better.rounding, result.rounding[left])
        result.unsure[left] &= better.unsure

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
        # [q, 1, c], to multiply with [2g, -‖g‖², 1]; padded by queries at the centre.
        ones = self._columns.new_zeros(n_sets, n + -n % _ROWS, d + 2)
        ones[..., d] = 1
        centred = torch.sub(queries, self._centres, out=ones[:, :n, :d])
        norms: Tensor = torch.linalg.vector_norm(centred, dim=2, dtype=torch.float64).square_().T
        lengths, (top, void) = norms.sqrt(), _RANGE[ones.dtype]
        # The exponent c + ‖q‖² - ‖q - g‖² is at most `top`: no reference is nearer than ‖q‖ - max ‖g‖.
        nearest = (lengths - self._radius).clamp_min_(0).square_()
        ones[:, :n, d + 1] = (nearest + top).sub_(norms).T
        shift = ones[:, :n, d + 1].T.double()
        far = votes and not bool(((lengths + self._radius).square_() - nearest <= top - void - 1).all())
        units, least, near = self._sweep(ones, n, k, votes, least=void if far else None)
        unit, single = rounding_unit(d, ones.dtype, _BACKEND), ones.dtype != torch.float64
        log_class_weights, unsure = norms.new_empty(n, n_sets, 0), torch.zeros_like(norms, dtype=torch.bool)
        if votes:
            log_class_weights, unsure = self._votes(units, norms, shift, unit, single)
        rows, squared, rounding, hidden = torch.empty(n, n_sets, 0).long(), norms.new_empty(n, n_sets, 0), norms, unsure
        if k:
            rows, squared = self._rank(queries, near, k)
            farthest = squared[:, :, -1]
            rounding = (2 * lengths + farthest.sqrt()).square_().add_(top).mul_(unit)
            # No reference that was not compared exactly is nearer than this, up to rounding.
            hidden = unsure | ~(norms + shift - least - rounding > farthest)
        return StackResult(log_class_weights, rows, squared, rounding, torch.stack([unsure, hidden], dim=2))

    def _sweep(
        self, ones: Tensor, n: int, k: int, votes: bool, *, least: float | None
    ) -> tuple[Tensor, Tensor, tuple[Ints, Ints]]:
        """Σ e^product of each lane, (n, F, B); the largest products and their places, (n, F, c).

        A few more than k products, which belong to the nearest references. least: if products may be smaller, they
        count as this.
        """
        n_sets, shape, rows = len(ones), self._shape, min(n, _ROWS)  # a single query takes no more
        tiles = ones.unflatten(1, (-1, _ROWS)).transpose(0, 1).contiguous()
        best, units = (ones.new_empty(len(tiles), n_sets, rows, shape[1]) for _ in range(2))
        nearest: list[tuple[Floats, Ints, Ints]] = []
        columns = self._voting_columns if votes else self._columns
        step = max(1, min(len(tiles), _CACHE // (_ROWS * columns[:, 0].numel() * ones.element_size())))
        memory = ones.new_empty(step, n_sets, _ROWS, *shape)
        for start in range(0, len(tiles), step):
            part = slice(start, start + step)
            multiply(tiles[part], columns, memory)
            products = memory[: len(tiles) - start, :, :rows]
            if k:
                torch.amax(products, dim=3, out=best[part])
                values, lanes = products.flatten(3).flatten(0, 2).numpy(), best[part].flatten(0, 2).numpy()
                nearest.append(_largest(values, lanes, k))
            if votes:
                weights = products if least is None else products.clamp_min_(least)
                torch.sum(weights.exp_(), dim=3, out=units[part])
        units = _by_query(units)[:n]
        if not k:
            return units, units, (_NONE, _NONE)
        least_of, numbers, places = zip(*nearest, strict=True)
        starts = range(0, len(tiles) * n_sets * rows, step * n_sets * rows)
        number = np.concatenate([part + start for part, start in zip(numbers, starts, strict=True)])
        tile, number = np.divmod(number, n_sets * rows)
        index, row = np.divmod(number, rows)
        owner = (tile * _ROWS + row) * n_sets + index
        limits = torch.from_numpy(np.concatenate(least_of)).view(best.shape[:3])[..., None]
        return units, _by_query(limits)[:n, :, 0], (owner, np.concatenate(places))

    def _votes(self, units: Tensor, norms: Tensor, shift: Tensor, unit: float, single: bool) -> tuple[Tensor, Tensor]:
        """Log class weights (n, F, K), and which rounding leaves in doubt, (n, F)."""
        first, shape, log_counts = self.indexes[0], norms.shape, self._log_counts.view(norms.shape[1], -1)
        sums = norms.new_zeros(shape[0], log_counts.numel() + 1)
        sums.scatter_add_(1, self._codes.expand(shape[0], -1), units.double().flatten(1))
        log_sums = sums.log_()[:, :-1].view(*shape, -1)
        short = ~(log_sums >= self._clear).all(dim=2)
        # ‖q‖² cancels in every difference of logs, so it is only subtracted here.
        votes = torch.minimum(log_sums.sub_((norms + shift)[:, :, None]), log_counts)
        if not single and bool((norms < _SURE).all()):  # float64 leaves no other doubt about them
            return votes, short
        # The nearest member of a class has at least the average weight of the class.
        nearest = (votes - log_counts).nan_to_num_(nan=-torch.inf).amax(dim=2).neg_()
        unsure = PLAIN.unsure(first, votes.flatten(0, 1), norms.flatten(), nearest.flatten(), unit, single).view(shape)
        return votes, unsure | short | lost_queries(norms, unit) if single else unsure | short

    def _rank(self, queries: Tensor, near: tuple[Ints, Ints], k: int) -> tuple[Tensor, Tensor]:
        """Rows and exact squared distances (n, F, k) of the k nearest candidates; ties in the order of their rows.

        near: number of the query · F + that of the index, and place, of each candidate (h,).
        """
        (n_sets, n, _), (owner, place), padding = queries.shape, near, len(self._points) - 1
        if n % _ROWS:
            owner, place = (values[near[0] < n * n_sets] for values in near)
        rows = self._rows.numpy()[owner % n_sets, place]
        owner, row = np.divmod(np.sort(owner * (padding + 1) + rows), padding + 1)
        counts = np.bincount(owner, minlength=n * n_sets)
        column = np.arange(len(owner)) - (counts.cumsum() - counts)[owner]
        table = np.full((n * n_sets, max(k, counts.max())), padding)
        squared, table[owner, column] = np.full(table.shape, np.inf), row
        squared[owner, column] = self._exact(queries.transpose(0, 1).flatten(0, 1).double(), owner, row)
        order = squared.argsort(axis=1, kind="stable")[:, :k]
        found = (np.take_along_axis(values, order, axis=1).reshape(n, n_sets, k) for values in (table, squared))
        nearest, distances = map(torch.from_numpy, found)
        return nearest, distances

    def _exact(self, queries: Tensor, owner: Ints, row: Ints) -> Floats:
        """(h,): the squared distances of pairs by direct difference."""
        at, to = (torch.from_numpy(values).split(_EXACT) for values in (owner, row))
        parts = ((queries.index_select(0, q), self._points.index_select(0, g)) for q, g in zip(at, to, strict=True))
        return torch.cat([q.sub_(g).square_().sum(dim=1) for q, g in parts]).numpy()


def multiply(tiles: Tensor, columns: Tensor, products: Tensor) -> None:
    """Store the products of tiles (t, F, rows, d + 1) with columns (F, d + 1, D · B) in (≥ t, F, rows, D, B)."""
    products = products[: len(tiles)].flatten(3)
    with full_precision(tiles.device):
        if len(columns) == 1:
            torch.bmm(tiles[:, 0], columns.expand(len(tiles), -1, -1), out=products[:, 0])
            return
        for tile, product in zip(tiles, products, strict=True):
            torch.bmm(tile, columns, out=product)


def _largest(values: Floats, lanes: Floats, k: int) -> tuple[Floats, Ints, Ints]:
    """A number for each row of values (q, D · B), and a few more than its k largest: their rows and places, in order.

    Nothing at another place is larger than that number. lanes: (q, B), the largest value of each lane.
    """
    k = min(k + _SPARE, values.shape[1])
    least = np.sort(lanes, axis=1)[:, -k] if k <= lanes.shape[1] else np.partition(values, -k, axis=1)[:, -k]
    near = values >= least[:, None]
    rows, places = np.divmod(np.flatnonzero(near), values.shape[1])
    if len(rows) > _MOST * k and (counts := np.bincount(rows)).max() > _MOST * k:  # most of them are equal
        many = np.flatnonzero(counts > _MOST * k)
        chosen = np.argpartition(values[many], -k, axis=1)[:, -k:]
        near[many] = False
        near[many[:, None], chosen] = True
        least[many] = np.take_along_axis(values[many], chosen, axis=1).min(axis=1)
        rows, places = np.divmod(np.flatnonzero(near), values.shape[1])
    return least, rows, places


def _by_query(values: Tensor) -> Tensor:
    """(t, F, rows, c) as (t · rows, F, c)."""
    return values.transpose(1, 2).flatten(0, 1)
