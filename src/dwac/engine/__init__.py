"""Log class weights, nearest neighbours and averages of targets of queries against references: exact.

Most code should use `dwac.ReferenceSet`, which also checks its inputs: finite numbers, labels in range. The engine
expects checked tensors; use it directly to write another backend.

>>> import torch
>>> from dwac.kernels import get_kernel
>>> embeddings, labels = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 1])
>>> index = build_index(embeddings, labels, 2, get_kernel("gaussian"))
>>> result = query(index, torch.tensor([[4.0]]), k=2)
>>> result.log_class_weights.argmax(dim=1), result.rows
(tensor([1]), tensor([[2, 1]]))
>>> voters = WeightedReferences(embeddings, get_kernel("gaussian"))  # references that vote for numbers
>>> targets = torch.tensor([[10.0], [20.0], [90.0]]).double()
>>> weighted_means(voters, torch.tensor([[0.5]]), targets).means.round(decimals=3)
tensor([[15.]], dtype=torch.float64)
>>> log_levels = torch.tensor([[0.1, 0.9]]).double().log()
>>> weighted_quantiles(voters, torch.tensor([[0.5]]), sort_targets(targets[:, 0]), log_levels)
tensor([[10., 20.]], dtype=torch.float64)
"""

from typing import Any

from dwac.engine.backends import Backend, Sweep
from dwac.engine.choice import backends
from dwac.engine.distributions import SortedTargets, sort_targets, weighted_quantiles
from dwac.engine.exact import QueryResult, query
from dwac.engine.index import Index, build_index
from dwac.engine.votes import WeightedMeans, WeightedReferences, every_vote, weighted_means

__all__ = [
    "BACKENDS",
    "Backend",
    "Index",
    "QueryResult",
    "SortedTargets",
    "Sweep",
    "WeightedMeans",
    "WeightedReferences",
    "build_index",
    "every_vote",
    "query",
    "sort_targets",
    "weighted_means",
    "weighted_quantiles",
]


BACKENDS: dict[str, Backend]
"""Those that this machine has, by name; looking them up imports Triton."""


def __getattr__(name: str) -> Any:
    if name != "BACKENDS":
        raise AttributeError(f"module 'dwac.engine' has no attribute {name!r}")
    return backends()
