"""What errors cost, and the decisions with the smallest expected cost by the model's probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac._checks import listed
from dwac.errors import InputError, ShapeError
from dwac.tasks.base import Bools, Floats


@dataclass(frozen=True, eq=False)
class CostEvaluation:
    """Decisions that minimise expected cost, beside the predicted labels.

    decisions: one row per label: label, threshold (decide for it where its probability is larger; NaN if there are more
        than two classes, whose decision compares expected costs), the share of rows it is predicted and decided for.
    """

    costs: pd.DataFrame  # of a true label (rows) decided as another (columns); of several labels: of each kind of error
    mean: float  # cost per row of these decisions
    mean_predicted: float  # the same of the predicted labels
    changed: float  # share of rows whose decision is not the predicted label
    decisions: pd.DataFrame

    @property
    def rule(self) -> str:
        """The decision in words."""
        known = self.decisions.dropna(subset=["threshold"])
        if known.empty:
            return "decide for the label with the smallest expected cost"
        parts = [
            f"{row['label']} where its probability is over {row['threshold']:.3g}" for row in known.to_dict("records")
        ]
        return f"decide for {listed(parts, 6, str)}"


def read_costs(costs: Any, classes: NDArray[Any]) -> Floats:
    """(K, K): the cost of each true label (row) decided as another (column).

    costs: {(true, decided): cost}, 0 for pairs that are not named; a DataFrame with labels as index and columns; or an
    array in the order of the classes.
    """
    names: list[Any] = classes.tolist()
    if isinstance(costs, Mapping):
        matrix = np.zeros((len(names), len(names)))
        for pair, cost in costs.items():
            if not (isinstance(pair, tuple) and len(pair) == 2 and all(label in names for label in pair)):
                raise InputError(f"costs must be by (true label, decided label), of {listed(names)}; got {pair!r}")
            matrix[names.index(pair[0]), names.index(pair[1])] = cost
    else:
        if isinstance(costs, pd.DataFrame):
            if set(costs.index) != set(names) or set(costs.columns) != set(names):
                raise InputError(f"costs must have the labels {listed(names)} as index and as columns")
            costs = costs.loc[names, names]
        matrix = np.array(costs, dtype=np.float64)
        if matrix.shape != (len(names), len(names)):
            raise ShapeError(f"costs must have one row and one column per label, {len(names)}; got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise InputError("costs must be finite numbers")
    if (matrix < np.diag(matrix)[:, None]).any():
        raise InputError("no wrong decision may cost less than the right one: then it would not be wrong")
    return matrix


def decide_by_cost(p: Floats, costs: Floats) -> NDArray[np.int64]:
    """(n,): the decision with the smallest expected cost Σ_k p_k C[k, j]; of several, the most probable label.

    >>> decide_by_cost(np.array([[0.8, 0.2], [0.9, 0.1]]), np.array([[0.0, 1.0], [5.0, 0.0]]))
    array([1, 0])
    """
    expected = p @ costs
    ties = expected <= expected.min(axis=1, keepdims=True) + 1e-12 * np.abs(costs).max(initial=0.0)
    return np.asarray(np.where(ties, p, -1.0).argmax(axis=1))


def threshold_of(false_positive: float, false_negative: float) -> float:
    """The probability over which a decision for a label costs less; NaN if neither error costs anything."""
    total = false_positive + false_negative
    return false_positive / total if total > 0 else float("nan")


def threshold_table(truth: Bools, p: Floats) -> pd.DataFrame:
    """What deciding for a label where its probability (n,) is over a threshold gives, one row per tenth.

    cost_ratio: what a false positive costs, in false negatives, where this threshold costs least.

    >>> threshold_table(np.array([False, True]), np.array([0.55, 0.8])).iloc[5].round(2).tolist()
    [0.6, 0.5, 0.0, 0.0, 1.5]
    """
    rows = []
    for threshold in np.arange(1, 10) / 10:
        chosen = p > threshold
        errors = [float(part.mean()) if len(part) else float("nan") for part in (chosen[~truth], ~chosen[truth])]
        rows.append([threshold, float(chosen.mean()), *errors, threshold / (1 - threshold)])
    return pd.DataFrame(rows, columns=["threshold", "rate", "false_positives", "false_negatives", "cost_ratio"])


def class_costs(
    costs: Floats, classes: NDArray[Any], truth: NDArray[np.int64], codes: NDArray[np.int64], p: Floats
) -> tuple[CostEvaluation, NDArray[np.int64]]:
    """The evaluation of classes (n,), and the decisions (n,). Rows whose truth is -1 cost nothing."""
    decided, seen, names = decide_by_cost(p, costs), truth >= 0, classes.tolist()
    thresholds = np.full(len(names), np.nan)
    if len(names) == 2:
        thresholds[1] = threshold_of(costs[0, 1] - costs[0, 0], costs[1, 0] - costs[1, 1])
    shares = [np.bincount(chosen, minlength=len(names)) / len(chosen) for chosen in (codes, decided)]
    decisions = {"label": names, "threshold": thresholds, "predicted": shares[0], "decided": shares[1]}
    table = pd.DataFrame(costs, index=pd.Index(names, name="true"), columns=names)
    mean, predicted = (float(costs[truth[seen], chosen[seen]].mean()) for chosen in (decided, codes))
    changed = float((decided != codes).mean())
    return CostEvaluation(table, mean, predicted, changed, pd.DataFrame(decisions)), decided


def label_costs(costs: Any, names: NDArray[Any], truth: Bools, has: Bools, p: Floats) -> tuple[CostEvaluation, Bools]:
    """The evaluation of several labels (n, L), and the decisions. costs: {label: (false positive, false negative)}."""
    labels = names.tolist()
    if not isinstance(costs, Mapping) or not all(
        label in labels and np.shape(cost) == (2,) for label, cost in costs.items()
    ):
        raise InputError(
            "costs of several labels must be {label: (cost of a false positive, of a false negative)}, with labels "
            f"of {listed(labels)}; got {costs!r}"
        )
    each = np.array([costs.get(label, (0.0, 0.0)) for label in labels], dtype=np.float64)
    if not np.isfinite(each).all() or (each < 0).any():
        raise InputError("costs must be finite and not negative")
    thresholds = np.array([threshold_of(*pair) for pair in each])
    decided = np.where(np.isnan(thresholds), has, p > np.nan_to_num(thresholds))
    mean, predicted = (
        float(((chosen & ~truth) @ each[:, 0] + (~chosen & truth) @ each[:, 1]).mean()) for chosen in (decided, has)
    )
    rows = {"label": labels, "threshold": thresholds, "predicted": has.mean(axis=0), "decided": decided.mean(axis=0)}
    table = pd.DataFrame(each, index=pd.Index(labels, name="label"), columns=["false positive", "false negative"])
    changed = float((decided != has).any(axis=1).mean())
    return CostEvaluation(table, mean, predicted, changed, pd.DataFrame(rows)), decided
