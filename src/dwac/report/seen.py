"""Which test examples were used in training: results on them would be too optimistic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac.estimator import DWACClassifier, DWACRegressor

Estimator = DWACClassifier | DWACRegressor
CLOSE = 1e-3  # relative difference of embeddings between batches or machines


def seen(clf: Estimator, ids: pd.Index[Any], h: NDArray[Any]) -> NDArray[np.bool_]:
    """(n,): whether each example, by its id and embedding (n, d), was used for training, validation or calibration.

    Ids alone prove nothing: rows of any file may be numbered from 0. So the data count as training data only if most
    ids that voters have too come with the same embeddings; then ids decide which rows are new.
    """
    references = clf.references_.members or clf.references_
    voters: pd.Index[Any] = pd.Index(list(references.ids), tupleize_cols=False)
    where = voters.get_indexer(pd.Index(list(ids), tupleize_cols=False))
    known = where >= 0
    if not known.any():
        return known
    ref_h = references.embeddings.cpu().numpy()[where[known]].astype(np.float64)
    apart = np.linalg.norm(h[known] - ref_h, axis=1)
    same = apart <= CLOSE * (1 + np.linalg.norm(ref_h, axis=1))
    if same.mean() <= 0.5:
        return np.zeros(len(known), dtype=bool)
    return np.asarray(known | ids.isin(clf.validation_ids_) | ids.isin(clf.calibration_ids_))
