"""Log class weights, nearest neighbours and averages of targets of queries against references: exact.

    index = build_index(embeddings, labels, n_classes, get_kernel("gaussian"))
    result = query(index, queries, k=10)     # .log_class_weights (n, K), .rows and .squared_distances (n, k)

    voters = WeightedReferences(embeddings, get_kernel("gaussian"))     # references that vote for targets (m, T)
    result = weighted_means(voters, queries, targets)         # .log_total (n,), .means (n, T)
    lower = weighted_quantiles(voters, queries, sort_targets(targets[:, 0]), log_levels)     # (n, C)

Most code should use `dwac.ReferenceSet`, which also checks its inputs: finite numbers, labels in range. The engine
expects checked tensors; use it directly to write another backend.
"""

from typing import Any

from dwac.engine.backends import Backend, Sweep, sum_by_label
from dwac.engine.choice import answers_alone, backends
from dwac.engine.distributions import (
    SortedTargets,
    log_shares,
    log_tails,
    sort_targets,
    weighted_crps,
    weighted_ends,
    weighted_quantiles,
)
from dwac.engine.exact import QueryResult, answer_again, check_queries, query, smallest
from dwac.engine.index import Index, build_index
from dwac.engine.stack import MOST_STACKED, Stack, StackResult
from dwac.engine.votes import (
    RowInfluence,
    WeightedMeans,
    WeightedReferences,
    every_vote,
    influence,
    weighted_means,
    weighted_variances,
)

__all__ = [
    "BACKENDS",
    "MOST_STACKED",
    "Backend",
    "Index",
    "QueryResult",
    "RowInfluence",
    "SortedTargets",
    "Stack",
    "StackResult",
    "Sweep",
    "WeightedMeans",
    "WeightedReferences",
    "answer_again",
    "answers_alone",
    "build_index",
    "check_queries",
    "every_vote",
    "influence",
    "log_shares",
    "log_tails",
    "query",
    "smallest",
    "sort_targets",
    "sum_by_label",
    "weighted_crps",
    "weighted_ends",
    "weighted_means",
    "weighted_quantiles",
    "weighted_variances",
]


BACKENDS: dict[str, Backend]
"""Those that this machine has, by name; looking them up imports Triton."""


def __getattr__(name: str) -> Any:
    if name != "BACKENDS":
        raise AttributeError(f"module 'dwac.engine' has no attribute {name!r}")
    return backends()
