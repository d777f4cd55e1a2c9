"""Claim: measures by group equal those of fairlearn's MetricFrame on the same predictions, to 1e-12.

Adult: a default model of the first 3,000 training rows, and its predictions on all test rows, by sex, race and both.
Largest differences and smallest ratios are compared, too. Processor time, on one thread, is of everything that
`evaluate` adds for groups (intervals, tests, all measures) and of MetricFrame's five measures without intervals.

    python -m benchmarks.accountable          # a minute
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from fairlearn.metrics import MetricFrame, false_negative_rate, false_positive_rate, selection_rate
from sklearn.metrics import accuracy_score, roc_auc_score

import dwac
from benchmarks import record
from dwac.estimator.evaluation import predict, read_groups
from reproduction import datasets

ROWS, MOST = 3000, 1e-12
BY = (["sex"], ["race"], ["sex", "race"])


def main() -> None:
    """Measure and record."""
    torch.set_num_threads(1)
    data = datasets.load("adult")
    assert data.X_test is not None
    labels = np.asarray(data.y_train)[:ROWS]
    clf = dwac.DWACClassifier(random_state=0, verbose=False).fit(data.X_train.iloc[:ROWS], labels)
    predictions, truth = predict(clf, data.X_test), np.asarray(data.y_test)
    rows = [compare(predictions, data.X_test, truth, clf.classes_.tolist(), by) for by in BY]
    record.write("accountable", (__doc__ or "").split("\n")[0], {"data": "adult", "rows": ROWS}, pd.DataFrame(rows))


def compare(predictions: Any, X: pd.DataFrame, truth: Any, classes: list[Any], by: list[str]) -> dict[str, Any]:
    """Both on the same predictions: the largest difference between their numbers, and the time of each."""
    positive, groups = classes[1], read_groups(by, X, len(X))
    start = time.process_time()
    predictions.evaluate(truth)
    alone = time.process_time()
    found = predictions.evaluate(truth, by=groups).groups
    ours = time.process_time() - alone - (alone - start)
    metrics = {
        "accuracy": accuracy_score,
        f"rate of {positive}": selection_rate,
        f"false positives of {positive}": false_positive_rate,
        f"false negatives of {positive}": false_negative_rate,
    }
    start = time.process_time()
    said, true = ((np.asarray(each) == positive).astype(int) for each in (predictions.labels, truth))
    frame = MetricFrame(metrics=metrics, y_true=true, y_pred=said, sensitive_features=groups.astype(str))
    area = MetricFrame(metrics={"ROC AUC": roc_auc_score}, y_true=true, y_pred=predictions.probabilities[:, 1],
                       sensitive_features=groups.astype(str))  # fmt: skip
    theirs, name = time.process_time() - start, " × ".join(by)
    found_by = frame.by_group.join(area.by_group)
    expected = found_by.set_axis([", ".join(map(str, np.atleast_1d(key))) for key in found_by.index])
    values = found.table[found.table["by"] == name].set_index(["measure", "group"])["value"]
    largest = found.differences[found.differences["by"] == name].set_index("measure")
    gaps = [
        max(np.abs(values[measure].loc[expected.index] - expected[measure]).max() for measure in expected),
        np.abs(largest.loc[list(metrics), "difference"] - frame.difference()).max(),
        np.abs(largest.loc[list(metrics), "ratio"] - frame.ratio()).max(),
    ]
    verdict = "met" if max(gaps) <= MOST else "missed"
    columns = dict(zip(("values apart by", "differences apart by", "ratios apart by"), map(float, gaps), strict=True))
    return {
        "by": name,
        "groups": len(expected),
        **columns,
        "ours (s)": ours,
        "fairlearn (s)": theirs,
        "verdict": verdict,
    }


if __name__ == "__main__":
    main()
