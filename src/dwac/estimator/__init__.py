"""The scikit-learn interface: DWACClassifier, what happens to data before and after training, and the model on disk.

`dwac.DWACClassifier` and `dwac.load` are public; the rest of this package is internal.
"""

from dwac.estimator.classifier import DWACClassifier, load

__all__ = ["DWACClassifier", "load"]
