"""The scikit-learn interface: DWACClassifier and DWACRegressor, their data before and after training, and on disk.

`DWACClassifier`, `DWACRegressor`, `Training` and `load` are public, as names of `dwac`; the rest is internal.
"""

from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.loading import load
from dwac.estimator.regressor import DWACRegressor
from dwac.estimator.settings import Training

__all__ = ["DWACClassifier", "DWACRegressor", "Training", "load"]
