"""Claim: sets hold within groups that overlap (race and sex on Adult), and are smaller than unions of the groups' sets.

One model of 2,000 rows, and its probabilities of 20,000 others. In each draw, 1,000 of these calibrate at ε = 0.1, and
the rest is covered or not: over all rows, within each combination of groups (Mondrian, as crepes has it), by the union
of the sets of each group, and by conditional calibration, as MAPIE has it too. Peers calibrate the same probabilities.
Seconds of processor time, on one thread, are of the first draw; MAPIE's are of 40 rows, and scaled to all. "Same sets"
is the share of these rows with the sets of conditional calibration.

    python -m benchmarks.accountable_within          # three minutes; needs crepes, mapie and cvxpy
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import dwac
from benchmarks import record
from dwac.conformal import Calibration, GroupCalibration
from reproduction import datasets

EPSILON, TRAINED, POOL, CALIBRATION, DRAWS, ASKED = 0.1, 2_000, 20_000, 1_000, 20, 40
BY = ["race", "sex"]
Bools = NDArray[np.bool_]


class Draw(NamedTuple):
    """Rows that calibrate and rows that are asked about, by number; scores (n, K), labels and groups of all."""

    scores: Any
    truth: Any
    names: Any
    cal: Any
    new: Any

    @property
    def own(self) -> Any:
        """The scores of the true labels of the calibration rows."""
        return self.scores[self.cal, self.truth[self.cal]]

    def calibrate(self, names: Any) -> Bools:
        """The sets within these groups."""
        own = self.own
        by_group = GroupCalibration(names[self.cal], lambda rows: Calibration(own[rows]))
        return by_group.of(names[self.new]).p_values(self.scores[self.new]) > EPSILON

    @property
    def words(self) -> Any:
        """The combination of groups of each row as one name."""
        return np.array([" ".join(sorted(groups)) for groups in self.names])


def main() -> None:
    """Measure and record."""
    torch.set_num_threads(1)
    data = datasets.load("adult")
    labels = np.asarray(data.y_train)
    settings: dict[str, Any] = {"cross_fit": False, "random_state": 0, "verbose": False}
    clf = dwac.DWACClassifier(**settings).fit(data.X_train.iloc[:TRAINED], labels[:TRAINED])
    X, y = data.X_train.iloc[TRAINED:][:POOL], labels[TRAINED:][:POOL]
    scores, truth = -clf.predict_proba(X), np.searchsorted(clf.classes_, y)
    columns = [X[name].astype(str).to_numpy() for name in BY]
    names = np.array([frozenset(each) for each in zip(*columns, strict=True)])
    rows = []
    for draw in range(DRAWS):
        order = np.random.default_rng(draw).permutation(POOL)
        rows += measure(Draw(scores, truth, names, order[:CALIBRATION], order[CALIBRATION:]), first=draw == 0)
    table = pd.DataFrame(rows)
    result = table.groupby("method", sort=False).mean().reset_index()
    config = {"data": "adult", "epsilon": EPSILON, "calibration": CALIBRATION, "draws": DRAWS}
    record.write("accountable_within", (__doc__ or "").split("\n")[0], config, result)


def measure(draw: Draw, *, first: bool) -> list[dict[str, Any]]:
    """Set size and coverage in each group, by method."""
    ways = {"all rows": marginal, "combinations (Mondrian)": combined, "crepes (Mondrian)": crepes}
    ways |= {"union of groups": union, "conditional": conditional} | ({"MAPIE (conditional)": mapie} if first else {})
    rows = []
    for name, way in ways.items():
        asked = draw._replace(new=draw.new[:ASKED]) if way is mapie else draw
        start = time.process_time()
        sets = way(asked)
        seconds = (time.process_time() - start) * len(draw.new) / len(asked.new)
        row: dict[str, Any] = {"method": name, "labels per set": np.nan if way is mapie else sets.sum(axis=1).mean()}
        covered = sets[np.arange(len(sets)), draw.truth[asked.new]]
        for group in sorted(set().union(*draw.names)):
            here = np.array([group in groups for groups in draw.names[asked.new]])
            row[group] = np.nan if way is mapie else covered[here].mean()
        same = (sets == conditional(asked)).all(axis=1).mean() if way is mapie else np.nan
        rows.append({**row, "seconds": seconds if first else np.nan, "same sets": same})
    return rows


def marginal(draw: Draw) -> Bools:
    """One threshold."""
    return Calibration(draw.own).p_values(draw.scores[draw.new]) > EPSILON


def combined(draw: Draw) -> Bools:
    """Each combination of groups alone."""
    return draw.calibrate(draw.words)


def conditional(draw: Draw) -> Bools:
    """All groups at once."""
    return draw.calibrate(draw.names)


def union(draw: Draw) -> Bools:
    """Each group alone; sets are unions of those of a row's groups."""
    sets = np.zeros((len(draw.new), draw.scores.shape[1]), dtype=bool)
    for group in set().union(*draw.names):
        alone = np.array([group if group in groups else "" for groups in draw.names])
        sets |= draw.calibrate(alone) & (alone[draw.new] == group)[:, None]
    return sets


def crepes(draw: Draw) -> Bools:
    """crepes, with each combination of groups as a Mondrian category."""
    from crepes import ConformalClassifier

    fitted = ConformalClassifier().fit(draw.own, bins=draw.words[draw.cal])
    p = fitted.predict_p(draw.scores[draw.new], bins=draw.words[draw.new], smoothing=False)
    return np.asarray(p > EPSILON)


def mapie(draw: Draw) -> Bools:
    """MAPIE's conditional classifier, on the same probabilities and groups; rows are their numbers.

    Its exact cutoff fails here (a singular matrix), so that it is the one by binary search, to 0.001.
    """
    from mapie.conditional_conformal_prediction import ConditionalSplitConformalClassifier
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Known(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        """A model that was fitted before."""

        classes_ = np.arange(draw.scores.shape[1])

        def fit(self, *_: Any) -> Known:
            return self

        def predict_proba(self, X: Any) -> Any:
            return -draw.scores[np.asarray(X)[:, 0].astype(int)]

        def predict(self, X: Any) -> Any:
            return self.predict_proba(X).argmax(axis=1)

        def __sklearn_is_fitted__(self) -> bool:
            return True

    every = sorted(set().union(*draw.names))

    def features(X: Any) -> Any:
        chosen = draw.names[np.asarray(X)[:, 0].astype(int)]
        return np.array([[float(name in groups) for name in every] for groups in chosen])

    fitted = ConditionalSplitConformalClassifier(features, Known(), confidence_level=1 - EPSILON, exact=False)
    fitted.conformalize(draw.cal[:, None].astype(float), draw.truth[draw.cal])
    return np.asarray(fitted.predict_set(draw.new[:, None].astype(float))[1][:, :, 0])


if __name__ == "__main__":
    main()
