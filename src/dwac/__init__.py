"""dwac: deep classifiers whose every prediction is a weighted vote of training examples.

Method: Card, Zhang and Smith, "Deep Weighted Averaging Classifiers", FAT* 2019.
"""

from dwac import conformal, datasets, encoders, engine, errors, explain, kernels, metrics, nn, report, training
from dwac.classifier import DWACClassifier, load
from dwac.explain import Explanation
from dwac.reference import ReferenceSet

__version__ = "0.1.0"

__all__ = [
    "DWACClassifier",
    "Explanation",
    "ReferenceSet",
    "conformal",
    "datasets",
    "encoders",
    "engine",
    "errors",
    "explain",
    "kernels",
    "load",
    "metrics",
    "nn",
    "report",
    "training",
]
