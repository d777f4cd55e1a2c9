"""What votes about targets must give, by the definitions."""

from typing import Any

import numpy as np

from dwac import ReferenceSet
from tests import oracle


def wanted(refs: ReferenceSet, queries: Any) -> list[list[oracle.Distribution]]:
    """For each query and each target its distribution, from the distances alone."""
    points, h = refs.embeddings.double().cpu().numpy(), np.asarray(queries, np.float64)
    log_votes = oracle.log_weights(h, points, refs.kernel)
    if refs.voters.look_alikes is not None:
        factor, weight = refs.voters.look_alikes
        log_votes = np.logaddexp(
            log_votes, oracle.log_weights(factor * h, factor * points, refs.kernel) + np.log(weight)
        )
    log_votes = log_votes + np.log(refs.weights) + np.log(refs.class_weights)[refs.labels.cpu().numpy()]
    assert refs.targets is not None
    return [[oracle.Distribution(row, y) for y in refs.targets.cpu().numpy().T] for row in log_votes]


def each(want: list[list[oracle.Distribution]], ask: Any) -> Any:
    """The answer of an oracle for each query and target."""
    return np.array([[ask(d) for d in row] for row in want])
