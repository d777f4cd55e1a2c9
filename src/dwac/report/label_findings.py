"""All that the report says of several labels at once, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac.estimator import DWACClassifier
from dwac.estimator.evaluation import LabelEvaluation, LabelPredictions
from dwac.estimator.targets import read_labels
from dwac.report.findings import Findings
from dwac.report.scores import Scores, scores


@dataclass(frozen=True, eq=False)
class LabelFindings(Findings):
    """Predicted labels, and which ones examples have, (n, L)."""

    clf: DWACClassifier
    truth: NDArray[np.bool_]
    predictions: LabelPredictions
    outside: LabelPredictions | None
    result: LabelEvaluation

    @staticmethod
    def _truth(clf: Any, y: Any, n: int) -> NDArray[np.bool_]:
        return np.asarray(read_labels(y, n, clf.classes_, listed=clf.target_.listed)[0] > 0)

    @cached_property
    def scores(self) -> Scores:
        """Precision, recall, F1 and ROC AUC by label."""
        return scores(self.truth, self.predictions.has, self.predictions.probabilities)

    @property
    def wrong(self) -> NDArray[np.int64]:
        """(n,): how many labels are wrong."""
        return np.asarray((self.predictions.has != self.truth).sum(axis=1))

    def cases(self, most: int) -> dict[str, list[int]]:
        """Rows of typical, doubtful and wrong predictions, each once."""
        wrong = [row for row in np.argsort(-self.wrong, kind="stable").tolist() if self.wrong[row]][:most]
        doubtful = [row for row in self.unusual if row not in wrong][:most]
        trust = -self.wrong if self.typicality is None else self.typicality
        usual = np.argsort(np.abs(trust - np.median(trust)), kind="stable").tolist()
        right = [row for row in usual if not self.wrong[row] and row not in doubtful]
        return {"typical": right[:most], "doubtful": doubtful, "wrong": wrong}
