"""Conformal prediction: p-values, prediction sets with a guaranteed error rate, confidence and credibility.

Let η(x, k) be a nonconformity score: high if example x fits label k badly. Calibration examples are examples not used
for training; each has one score, that of its true label. The p-value of label k is the share of calibration scores at
least as high as η(x, k). If the data are exchangeable, the true label's p-value is at most ε with probability at
most ε, so the set {k : p(x, k) > ε} misses the true label at most that often.

Whether an example is like anything known is another question, with its own p-value. Let ν(x) be a novelty score, which
does not depend on labels. The typicality of x is the share of calibration examples at least as novel as x: for examples
like those of calibration, it is at most ε with probability at most ε.

The same idea gives intervals for numbers (`intervals`), and decisions and sets for several labels at once (`labels`).

Arrays in, arrays out: this package does not depend on any model.

>>> import numpy as np
>>> calibration = Calibration([0.1, 0.2, 0.2, 0.9])
>>> calibration.p_values(np.array([[0.2, 0.95]]))
array([[0.8, 0.2]])
>>> prediction = calibration.predict(np.array([[0.2, 0.95]]))
>>> prediction.labels, prediction.credibility, prediction.confidence
(array([0]), array([0.8]), array([0.8]))
>>> prediction.label_sets(0.3)
array([[ True, False]])
"""

from dwac.conformal.classes import (
    Calibration,
    ConformalPrediction,
    CrossCalibration,
    ExpectedSets,
    confidence,
    credibility,
    label_sets,
    nonconformity,
    p_values,
    true_label_scores,
    typicality,
)
from dwac.conformal.classes import Floats as Floats
from dwac.conformal.conditional import ConditionalThresholds
from dwac.conformal.decisions import DecisionRule, RiskControl, strange
from dwac.conformal.groups import GroupCalibration
from dwac.conformal.guarantees import smallest_calibration
from dwac.conformal.intervals import (
    CrossIntervalCalibration,
    ExpectedIntervals,
    IntervalCalibration,
    distance_beyond,
    extended_range,
    tail_scores,
    tails_of,
)
from dwac.conformal.labels import ExpectedDecisions, ExpectedMisses, LabelCalibration, LabelPrediction, MissControl

__all__ = [
    "Calibration",
    "ConditionalThresholds",
    "ConformalPrediction",
    "CrossCalibration",
    "CrossIntervalCalibration",
    "DecisionRule",
    "ExpectedDecisions",
    "ExpectedIntervals",
    "ExpectedMisses",
    "ExpectedSets",
    "GroupCalibration",
    "IntervalCalibration",
    "LabelCalibration",
    "LabelPrediction",
    "MissControl",
    "RiskControl",
    "confidence",
    "credibility",
    "distance_beyond",
    "extended_range",
    "label_sets",
    "nonconformity",
    "p_values",
    "smallest_calibration",
    "strange",
    "tail_scores",
    "tails_of",
    "true_label_scores",
    "typicality",
]
