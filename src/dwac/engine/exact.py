"""`query`: log class weights and exact nearest neighbours of queries against an index.

Precision policy, for every backend. References in float32 are swept in float32. The squared distance of a
query q to a point at distance d then has a rounding error of at most about r · u · (2‖q‖ + d)², u = 2⁻²⁴,
r u = `rounding_unit`, and the log of a sum a few units more. A query is swept again in float64 if that bound exceeds
`precision.TOLERANCE`, if its two leading classes are closer than twice the bound (so a label never depends on
rounding), or if the bound does not separate its k nearest from the next. Queries far away, which need it most, are
always included. Queries that even float64 leaves in doubt (ties at the k-th neighbour; norms about 1e5 times the
distances) are computed by direct differences.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dwac.engine.backends import Backend, Sweep, merge, squared_norms
from dwac.engine.choice import choose_backend
from dwac.engine.index import Index
from dwac.engine.precision import PLAIN, Policy, lost_queries, rounding_unit
from dwac.errors import InputError, ShapeError

SPARE = 8  # candidates kept beyond k, so that rounding rarely hides a neighbour
_CANDIDATES = {"cpu": 2**20, "cuda": 2**24}  # ranked at once, and also the limit in bytes of those kept
COTANGENTS = 2**22  # log class weights differentiated at once
MATRIX = 2**22  # distances by direct difference held at once


class QueryResult(NamedTuple):
    """For n queries: `log_class_weights` (n, K), and rows and squared distances (n, k) of the nearest.

    All are float64 (rows int64). Neighbours are ordered nearest first, ties in the order of their rows.

    >>> from dwac.engine import build_index
    >>> from dwac.kernels import get_kernel
    >>> index = build_index(torch.tensor([[0.0], [2.0]]), torch.tensor([0, 1]), 2, get_kernel("gaussian"))
    >>> result = query(index, torch.tensor([[0.5]]), k=1)
    >>> result.log_class_weights, result.rows
    (tensor([[-0.2500, -2.2500]], dtype=torch.float64), tensor([[0]]))
    """

    log_class_weights: Tensor
    rows: Tensor
    squared_distances: Tensor


def query(index: Index, queries: Tensor, *, k: int = 0, backend: str = "auto") -> QueryResult:
    """The votes for every class and the k nearest references (k = 0: none) of queries (n, d).

    `log_class_weights` is differentiable in `queries`.
    """
    check_queries(index.embeddings, queries, k)
    chosen = choose_backend(backend, queries)
    if queries.requires_grad and torch.is_grad_enabled():
        answer = _Differentiable.apply(queries, index, chosen, k)  # type: ignore[no-untyped-call]
        return QueryResult(*cast(tuple[Tensor, Tensor, Tensor], answer))
    if k == 0 and (votes := _answer_few(index, queries, chosen)) is not None:
        return QueryResult(votes, index.rows.new_empty(len(queries), 0), votes.new_empty(len(queries), 0))
    return _query(index, queries, _centred(index, queries), chosen, k)


def _answer_few(index: Index, queries: Tensor, backend: Backend) -> Tensor | None:
    """The votes, if the backend has a shorter way for so few queries and no vote is in doubt."""
    few: Any = getattr(backend, "few", None)
    return None if few is None else few(index, queries)


def check_queries(embeddings: Tensor, queries: Tensor, k: int = 0) -> None:
    """Raise an error unless queries (n, d) fit references (m, d) of which k are wanted."""
    if queries.shape[1] != embeddings.shape[1]:
        raise ShapeError(
            f"queries must have {embeddings.shape[1]} columns, like the references; got shape {tuple(queries.shape)}"
        )
    if queries.device != embeddings.device:
        raise InputError(
            f"queries must be on the device of the references, {embeddings.device}; got {queries.device}; "
            "move one to the other"
        )
    if not 0 <= k <= len(embeddings):
        raise InputError(f"k must lie in 0 … {len(embeddings)}, the number of references; got {k}")


def _centred(index: Index, queries: Tensor) -> Tensor:
    """Queries minus the centre, subtracted in float64, in the precision of the first sweep."""
    dtype = torch.promote_types(torch.promote_types(queries.dtype, torch.float32), index.embeddings.dtype)
    centred = torch.empty_like(queries, dtype=dtype if index.kernel.smooth else torch.float64)
    return torch.sub(queries.detach(), index.centre, out=centred)  # rounded once, in one operation


@torch.no_grad()
def _query(index: Index, queries: Tensor, centred: Tensor, backend: Backend, k: int) -> QueryResult:
    if len(queries) == 0:
        return _empty(index, k)
    if centred.dtype == torch.float64 or centred.device.type != "cpu":  # a GPU would wait longer than a sweep takes
        return _sweep(index, queries, centred, backend, k)
    lost = lost_queries(squared_norms(centred), rounding_unit(centred.shape[1], centred.dtype, backend))
    if not lost.any():
        return _sweep(index, queries, centred, backend, k)
    # Their norms alone show that float32 is not enough, wherever the references are.
    precise = _sweep(index, queries[lost], queries[lost] - index.centre, backend, k)
    if lost.all():
        return precise
    result = QueryResult(*(field.new_empty(len(queries), *field.shape[1:]) for field in precise))
    rest = _sweep(index, queries[~lost], centred[~lost], backend, k)
    for field, again, first in zip(result, precise, rest, strict=True):
        field[lost], field[~lost] = again, first
    return result


def _sweep(index: Index, queries: Tensor, centred: Tensor, backend: Backend, k: int) -> QueryResult:
    """The answer in the precision of `centred`, and in higher precision where that leaves doubt."""
    result, unsure = _pass(index, queries, centred, backend, k)
    if not unsure.any():
        return result
    left = unsure.any(dim=1).nonzero()[:, 0]
    if centred.dtype != torch.float64:
        again, still = _pass(index, queries[left], queries[left] - index.centre, backend, k)
        _replace(result, left, again, unsure[left])
        unsure[left] &= still
        left = left[unsure[left].any(dim=1)]
    if len(left):
        _replace(result, left, QueryResult(*by_difference(index, queries[left], k)), unsure[left])
    return result


@torch.no_grad()
def answer_again(result: QueryResult, index: Index, queries: Tensor, unsure: Tensor) -> None:
    """Replace the answers to queries of which votes or neighbours are in doubt, (n, 2)."""
    left = unsure.any(dim=1).nonzero()[:, 0]
    _replace(result, left, query(index, queries[left], k=result.rows.shape[1]), unsure[left])


def _replace(result: QueryResult, where: Tensor, better: QueryResult, unsure: Tensor) -> None:
    """Replace doubtful results. If only neighbours were in doubt, votes stay, so that they do not depend on k."""
    votes, neighbours = unsure[:, 0], unsure[:, -1]
    result.log_class_weights[where[votes]] = better.log_class_weights[votes]
    for field, values in zip(result[1:], better[1:], strict=True):
        field[where[neighbours]] = values[neighbours]


def _pass(index: Index, queries: Tensor, centred: Tensor, backend: Backend, k: int) -> tuple[QueryResult, Tensor]:
    """One sweep in the precision of `centred`, and where rounding leaves doubt, (n, 2): of votes and neighbours.

    Without neighbours, the doubt is (n, 1).
    """
    n_blocks = k + SPARE if k else 0
    sweep = backend.sweep(index, centred, n_blocks)
    unit = rounding_unit(centred.shape[1], centred.dtype, backend)
    single = centred.dtype != torch.float64
    votes = _policy(backend).unsure(index, sweep.log_class_weights, sweep.norms, sweep.nearest, unit, single)
    if k == 0:
        nothing = sweep.norms.new_empty(len(queries), 0)
        return QueryResult(sweep.log_class_weights, sweep.blocks, nothing), votes[:, None]
    rows, squared, reach = _rank(index, queries, centred, sweep, backend, k)
    farthest = squared[:, -1]
    neighbours = votes | (reach - unit * (2 * sweep.norms.sqrt() + farthest.sqrt()).square() <= farthest)
    return QueryResult(sweep.log_class_weights, rows, squared), torch.stack([votes, neighbours], dim=1)


def _policy(backend: Backend) -> Policy:
    """The backend's own policy, or the one in plain operations."""
    policy: Policy = getattr(backend, "policy", PLAIN)
    return policy


def _rank(
    index: Index, queries: Tensor, centred: Tensor, sweep: Sweep, backend: Backend, k: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The k nearest rows among the blocks a sweep chose, their exact squared distances, and `reach`.

    The k nearest references lie in the k blocks whose nearest members are nearest. No reference that was
    skipped is nearer than `reach`, up to rounding.
    """
    assert sweep.next_block is not None
    rows = sweep.blocks.new_empty(len(queries), k)
    squared = sweep.norms.new_empty(len(queries), k)
    reach = sweep.next_block.clone()
    candidates = sweep.blocks.shape[1] * index.block_size
    kept = min(k + SPARE, candidates)
    most = _CANDIDATES.get(queries.device.type, 2**20)
    step = max(1, most // max(candidates, 8 * kept * queries.shape[1]))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        blocks = sweep.blocks[part]
        near = backend.products(index, centred[part], blocks).topk(kept, dim=1, sorted=False)
        block = blocks.gather(1, near.indices // index.block_size)
        nearest = index.rows[block * index.block_size + near.indices % index.block_size]
        nearest = torch.where(nearest < 0, len(index.labels), nearest).sort(dim=1).values  # padding last
        distances = exact_distances(index, queries[part], nearest)
        order = distances.argsort(dim=1, stable=True)[:, :k]
        rows[part], squared[part] = nearest.gather(1, order), distances.gather(1, order)
        if kept < candidates:
            reach[part] = reach[part].minimum(sweep.norms[part] - near.values.amin(dim=1))
    return rows, squared, reach


def exact_distances(index: Index, queries: Tensor, rows: Tensor) -> Tensor:
    """Squared distances (n, c) in float64, by direct difference; inf where the row is padding."""
    padding = rows >= len(index.labels)
    points = index.embeddings.index_select(0, rows.masked_fill(padding, 0).flatten()).double().view(*rows.shape, -1)
    return (queries.double()[:, None] - points).square_().sum(dim=2).masked_fill(padding, torch.inf)


def _empty(index: Index, k: int) -> QueryResult:
    """The result for no queries."""
    rows = index.rows.new_empty(0, k)
    return QueryResult(index.centre.new_empty(0, index.n_classes), rows, index.centre.new_empty(0, k))


def by_difference(index: Index, queries: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log class weights (n, K), rows (n, k) and squared distances (n, k) of the nearest, as in `QueryResult`.

    Slower than a sweep, but the error of a distance is a few units in its last place, whatever the query's norm, and
    any number of equal distances are ordered by their rows.
    """
    parts = [_chunk_by_difference(index, part, k) for part in queries.split(max(1, MATRIX // len(index.labels)))]
    log_class_weights, rows, squared = (torch.cat(column) for column in zip(*parts, strict=True))
    return log_class_weights, rows, squared


def _chunk_by_difference(index: Index, queries: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
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


class _Differentiable(torch.autograd.Function):
    """Log class weights with a gradient in the queries; neither ever holds the (n, m) matrix."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, index: Index, backend: Backend, k: int) -> tuple[Tensor, ...]:
        centred = _centred(index, queries)
        result = _query(index, queries, centred, backend, k)
        ctx.index, ctx.backend = index, backend
        ctx.save_for_backward(queries, centred, result.log_class_weights)
        ctx.mark_non_differentiable(result.rows, result.squared_distances)
        ctx.set_materialize_grads(False)
        return tuple(result)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        (queries, centred, log_class_weights), cotangent = ctx.saved_tensors, grads[0]
        if cotangent is None:
            return None, None, None, None
        gradient = torch.empty_like(queries)
        step = max(1, COTANGENTS // max(queries.shape[1], ctx.index.n_classes))
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            given = queries[part], centred[part], log_class_weights[part], cotangent[part]
            _gradient(ctx.index, *given, ctx.backend, gradient[part])
        return gradient, None, None, None


def _gradient(
    index: Index,
    queries: Tensor,
    centred: Tensor,
    log_class_weights: Tensor,
    cotangent: Tensor,
    backend: Backend,
    answer: Tensor,
) -> None:
    """Store ∂/∂queries of Σ cotangent · log_class_weights in `answer`, (n, d), in the precision that each query needs.

    Gaussian weights of float32 references are differentiated in float32, anything else in float64. The share of a
    reference in a class at distance r is off by a factor of exp(e), e the rounding of its squared distance,
    u (2‖q‖ + r)² as in a sweep. The mean of exp(e) - 1 over the classes, weighted by the pull of each cotangent, is
    compared with `precision.GRADIENT_TOLERANCE`: queries above it, which are far away or pulled by far classes, are
    differentiated again in float64.
    """
    single = index.kernel.name == "gaussian" and centred.dtype == torch.float32
    if not single:
        centred = queries - index.centre
    # Gradients never split long products, so these round more.
    unit = 2 * rounding_unit(centred.shape[1], torch.float32, backend) if single else None
    scaled, largest, strained = _policy(backend).scale(index, centred, log_class_weights, cotangent, unit)
    gradient = backend.gradient(index, centred, log_class_weights, scaled)
    if strained is not None and strained.any():
        left, gradient = strained.nonzero()[:, 0], gradient.double()
        precise = queries[left] - index.centre
        again = backend.sweep(index, precise, 0).log_class_weights  # so that far classes are precise too
        gradient[left] = backend.gradient(index, precise, again, scaled[left])
    torch.mul(gradient, largest, out=answer)
