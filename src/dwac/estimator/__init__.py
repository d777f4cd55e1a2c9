"""The scikit-learn interface: DWACClassifier and DWACRegressor, their data before and after training, and on disk.

`dwac.DWACClassifier`, `dwac.DWACRegressor` and `dwac.load` are public; the rest of this package is internal.
"""

from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.loading import load
from dwac.estimator.regressor import DWACRegressor

__all__ = ["DWACClassifier", "DWACRegressor", "load"]
