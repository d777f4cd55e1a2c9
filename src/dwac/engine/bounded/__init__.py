"""Class sums within a tolerance, for less work: the public interface of the bounded search."""

from dwac.engine.bounded.search import BoundedResult, check_tolerance, query_within
from dwac.engine.bounded.tree import Cells, build_cells

__all__ = ["BoundedResult", "Cells", "build_cells", "check_tolerance", "query_within"]
