"""Log class weights and exact nearest neighbours of queries against references: one call, exact backends.

    index = build_index(embeddings, labels, n_classes, get_kernel("gaussian"))
    result = query(index, queries, k=10)     # .log_class_weights (n, K), .rows and .squared_distances (n, k)

    cells = build_cells(index)
    result = query_within(cells, queries, tolerance=1e-2)     # less work: .log_class_weights, .bounds (n,)

Most code should use `dwac.ReferenceSet`, which also checks its inputs: finite numbers, labels in range. The engine
expects checked tensors; use it directly to write another backend.
"""

from dwac.engine.backends import Backend, Sweep
from dwac.engine.bounded import BoundedResult, Cells, build_cells, check_tolerance, query_within
from dwac.engine.choice import BACKENDS
from dwac.engine.exact import QueryResult, query
from dwac.engine.index import Index, build_index

__all__ = [
    "BACKENDS",
    "Backend",
    "BoundedResult",
    "Cells",
    "Index",
    "QueryResult",
    "Sweep",
    "build_cells",
    "build_index",
    "check_tolerance",
    "query",
    "query_within",
]
