"""DWACRegressor: a scikit-learn regressor whose every prediction is a weighted vote of training examples.

reg = DWACRegressor(random_state=0).fit(X, y)
reg.predict(X); reg.predict_quantiles(X, [0.1, 0.5, 0.9])
reg.predict_interval(X, epsilon=0.1)   # intervals that miss the truth at most 10 % of the time
print(reg.explain(X, k=5)[0])          # who voted, with which number, and how much
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from dwac.estimator.fitting import DWACEstimator

Floats = NDArray[np.float64]


class DWACRegressor(RegressorMixin, DWACEstimator):  # type: ignore[misc]
    """TODO"""
