"""The last resort: distances by direct difference, for the few queries that float64 products leave in doubt."""

from __future__ import annotations

import torch
from torch import Tensor

from dwac.engine.backends import merge
from dwac.engine.index import Index

MATRIX = 2**22  # distances held at once


def by_difference(index: Index, queries: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log class weights (n, K), rows (n, k) and squared distances (n, k) of the nearest, as in `QueryResult`.

    Slower than a sweep, but the error of a distance is a few units in its last place, whatever the query's norm, and
    any number of equal distances are ordered by their rows.
    """
    parts = [_chunk(index, part, k) for part in queries.split(max(1, MATRIX // len(index.labels)))]
    log_class_weights, rows, squared = (torch.cat(column) for column in zip(*parts, strict=True))
    return log_class_weights, rows, squared


def _chunk(index: Index, queries: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    n, queries = len(queries), queries.double()
    log_class_weights = queries.new_full((n, index.n_classes), -torch.inf)
    rows, nearest = index.labels.new_empty(n, 0), queries.new_empty(n, 0)
    for start in range(0, len(index.labels), MATRIX):
        part = slice(start, start + MATRIX)
        squared = queries.new_zeros(n, len(index.labels[part]))
        for h, ref_h in zip(queries.T, index.embeddings[part].T, strict=True):  # one dimension at a time
            squared.add_((h[:, None] - ref_h).square_())
        sums = merge(index.kernel.log_weights(squared), index.labels[part], index)
        sums = sums.masked_fill_(sums.isnan(), -torch.inf)  # a class is infinitely far away in this part
        log_class_weights = torch.logaddexp(log_class_weights, sums)
        places = smallest(squared, min(k, squared.shape[1]))
        rows = torch.cat([rows, places + start], dim=1)
        nearest = torch.cat([nearest, squared.gather(1, places)], dim=1)
        best = smallest(nearest, min(k, nearest.shape[1]))  # ties stay in the order of their rows
        rows, nearest = rows.gather(1, best), nearest.gather(1, best)
    return torch.minimum(log_class_weights, index.log_counts), rows, nearest  # not above the count by rounding


def smallest(squared: Tensor, k: int) -> Tensor:
    """Columns (n, k) of the k smallest values per row, smallest first; ties in the order of their columns."""
    if k == 0:
        return torch.empty(len(squared), 0, dtype=torch.int64, device=squared.device)
    kth = squared.kthvalue(k, dim=1, keepdim=True).values
    nearer, tied = squared < kth, squared == kth
    left = k - nearer.sum(dim=1, keepdim=True)
    chosen = nearer | (tied & (tied.cumsum(dim=1) <= left))
    columns = chosen.nonzero()[:, 1].view(len(squared), k)
    return columns.gather(1, squared.gather(1, columns).argsort(dim=1, stable=True))
