"""Prediction sets for classes: p-values, sets with a guaranteed error rate, confidence, credibility, typicality."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from dwac import _checks as checks
from dwac.conformal.guarantees import coverage_range, cross_guarantee, describe_bound, smallest_calibration
from dwac.errors import CalibrationWarning, InputError, NonFiniteError, ShapeError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_GROUPS = 20  # groups that are listed
_SHOWN = 10  # examples in a notebook


def nonconformity(log_class_weights: ArrayLike, kind: str = "weights") -> Floats:
    """η(x, k) of every label, (n, K), from log class weights or logits.

    "weights": -log Σ_i I(y_i=k) w, which ranks examples as the paper's -Σ_i I(y_i=k) w does, without underflow: an
    example far from all training data fits no label. "probability": -P(y=k given x), which ignores distance.
    "tails": -min(P(y≤k given x), P(y≥k given x)) for ordered labels; scores grow from the median of the votes to both
    sides. A class without references has log-weight -inf, hence score +inf or -0 ("tails": that of the tail beyond it).
    Votes by fold, (n, F, K), give scores by fold.
    """
    if np.ndim(log_class_weights) == 3:
        by_fold = np.asarray(log_class_weights)
        return nonconformity(by_fold.reshape(-1, by_fold.shape[2]), kind).reshape(by_fold.shape)
    votes = _table(log_class_weights, "log_class_weights")
    if kind == "weights":
        return -votes
    if kind in ("probability", "tails"):
        most = votes.max(axis=1, keepdims=True)
        if not np.isfinite(most).all():
            row = int(np.argmin(np.isfinite(most[:, 0])))
            raise NonFiniteError(
                f"probabilities need a finite largest log class weight in each row; row {row} has {most[row, 0]}; "
                'check the embeddings, or use nonconformity "weights"'
            )
        scaled = np.exp(votes - most)
        p = np.asarray(scaled / scaled.sum(axis=1, keepdims=True))
        return -p if kind == "probability" else -np.minimum(_at_most(p), _at_most(p[:, ::-1])[:, ::-1])
    raise InputError(f'unknown nonconformity {kind!r}; choose "weights", "probability" or "tails"')


def _at_most(p: Floats) -> Floats:
    """P(y ≤ k) of every k, summed from the outermost label inwards, so that small tails keep their digits."""
    return np.minimum(np.cumsum(p, axis=1), 1.0)


def true_label_scores(scores: ArrayLike, labels: ArrayLike) -> Floats:
    """η(x_j, y_j), the score of each example's true label, (n,): the scores to calibrate with."""
    scores = checks.scores(scores, "scores", ndim=2)
    y = checks.class_labels(labels, "labels", n=len(scores), n_classes=scores.shape[1])
    return np.take_along_axis(scores, y[:, None], axis=1)[:, 0]


class Calibration:
    """Calibration scores, sorted once; then any number of p-values by binary search.

    Args:
        scores: (n_cal,) score of each calibration example's true label.
        labels: (n_cal,) those labels. If given, p-values are class-conditional (Mondrian): label k is compared
            only with calibration examples of class k, so that the guarantee holds for each class separately. A class
            without calibration examples can never be rejected: its p-value, and so the credibility, is 1.
        tolerance: scores that differ by no more than this count as equal. Set it to the rounding error of the scores:
            ties broken by rounding would cost coverage, while counting too many ties never does.
        table: (n_cal, K) scores of every label of the calibration examples, which `expected_sets` uses to estimate
            the size of prediction sets.
    """

    def __init__(
        self,
        scores: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        tolerance: float = 0.0,
        table: ArrayLike | None = None,
    ) -> None:
        values = checks.scores(scores, "calibration scores", ndim=1)
        if len(values) == 0:
            raise InputError("calibration needs at least one score; got none; hold out some examples for calibration")
        self.class_conditional = labels is not None
        self.tolerance = float(tolerance)
        self._table = None if table is None else _table(table, "table")
        if labels is None:
            self._sorted = [np.sort(values)]
        else:
            y = checks.class_labels(labels, "calibration labels", n=len(values))
            by_class = np.lexsort((values, y))
            self._sorted = np.split(values[by_class], np.cumsum(np.bincount(y))[:-1])

    def n_calibration(self, n_classes: int) -> NDArray[np.int64]:
        """(K,): the number of calibration scores that each label is compared with."""
        if not self.class_conditional:
            return np.full(n_classes, len(self._sorted[0]))
        return np.array([len(self._for(k)) for k in range(n_classes)], dtype=np.int64)

    def p_values(
        self, scores: ArrayLike, *, finite_sample: bool = True, smoothed: bool = False, random_state: Any = None
    ) -> Floats:
        """The p-value of each score, in the same shape. Class-conditional calibration needs (n, K) scores.

        Args:
            scores: η(x, k).
            finite_sample: True gives (#{cal ≥ η} + 1) / (n_cal + 1), which the guarantee needs; False gives the
                paper's #{cal ≥ η} / n_cal.
            smoothed: count ties, including the example itself, with a uniform random share. This makes the
                finite-sample p-value of the true label exactly uniform.
            random_state: seed or `numpy.random.Generator` for the smoothing.
        """
        scores = checks.scores(scores, "scores")
        uniform = np.random.default_rng(random_state).random(scores.shape) if smoothed else None
        if not self.class_conditional:
            return _p_values(self._sorted[0], scores, finite_sample, uniform, self.tolerance)
        if scores.ndim != 2:
            raise ShapeError(f"class-conditional p-values need scores (n, K), one column per label; got {scores.shape}")
        if scores.shape[1] < len(self._sorted):
            raise ShapeError(
                f"scores must have one column per calibration class: at least {len(self._sorted)} required, "
                f"got {scores.shape[1]}"
            )
        columns = [
            _p_values(self._for(k), own, finite_sample, None if uniform is None else uniform[:, k], self.tolerance)
            for k, own in enumerate(scores.T)
        ]
        return np.stack(columns, axis=1)

    def expected_sets(self, epsilon: float, *, ordered: bool = False) -> ExpectedSets:
        """The prediction sets to expect at error rate ε, estimated from the calibration examples.

        ordered: labels are ordered, and sets are intervals.
        """
        epsilon = checks.epsilon(epsilon)
        n = int(self.n_calibration(len(self._sorted) if self._table is None else self._table.shape[1]).min())
        range_ = coverage_range(epsilon, n, crossed=isinstance(self, CrossCalibration))
        if self._table is None:
            return ExpectedSets(epsilon, n, self.class_conditional, range_)
        own = self._own_p_values()
        sizes = label_sets(own, epsilon, ordered=ordered).sum(axis=1)
        n_labels = self._table.shape[1]
        full = float((sizes == n_labels).mean()) if n_labels > 1 else 0.0
        return ExpectedSets(epsilon, n, self.class_conditional, range_, n_labels, float(sizes.mean()), full)

    def _own_p_values(self) -> Floats:
        """(n_cal, K): the p-values of the calibration examples."""
        assert self._table is not None
        return self.p_values(self._table)

    def predict(
        self,
        scores: ArrayLike,
        *,
        classes: NDArray[Any] | None = None,
        fold_scores: ArrayLike | None = None,
        ordered: bool = False,
        **options: Any,
    ) -> ConformalPrediction:
        """p-values of scores (n, K), and everything derived from them.

        `classes` (K,) are the names of the labels; `options` are those of `p_values`. `fold_scores` (n, F, K) are for
        `CrossCalibration`, which computes its p-values from them; `scores` then only decide ties. `ordered`: labels are
        ordered, so that prediction sets are intervals.
        """
        scores = _table(scores, "scores")
        sizes = self.n_calibration(scores.shape[1]).tolist()
        if 0 in sizes:
            checks.warn(
                f"class {sizes.index(0)} has no calibration example, so it can never be rejected: its p-value, and "
                "so the credibility, is 1 for every input. Calibrate with examples of every class",
                CalibrationWarning,
            )
        n_calibration: int | tuple[int, ...] | None = None
        if options.get("finite_sample", True) and not options.get("smoothed", False):
            n_calibration = tuple(sizes) if self.class_conditional else sizes[0]
        p = self.p_values(scores if fold_scores is None else fold_scores, **options)
        return ConformalPrediction(p, scores, n_calibration, classes, self, ordered=ordered)

    def tables(self, n_labels: int) -> list[list[Floats]]:
        """The sorted scores by fold, and then by label: one list for all labels unless they are calibrated apart."""
        return [[self._for(k) for k in range(n_labels if self.class_conditional else 1)]]

    def _count(self, scores: Floats) -> NDArray[np.int64]:
        """How many calibration scores are at least as large as each score, in the same shape."""
        if not self.class_conditional:
            return len(self._sorted[0]) - np.searchsorted(self._sorted[0], scores - self.tolerance, side="left")
        columns = ((self._for(k), scores[:, k]) for k in range(scores.shape[1]))
        return np.stack([len(own) - np.searchsorted(own, column - self.tolerance) for own, column in columns], axis=1)

    def _for(self, k: int) -> Floats:
        if not self.class_conditional:
            return self._sorted[0]
        return self._sorted[k] if k < len(self._sorted) else np.zeros(0)


class CrossCalibration(Calibration):
    """Cross-conformal calibration: every training example calibrates, scored by a model that left out its fold.

    p(x, k) = (1 + Σ_f #{i in fold f : η_i ≥ η_f(x, k)}) / (n + 1), where η_f are scores by the model without fold f.
    For exchangeable data and models that know nothing of the fold they left out, sets {k : p(x, k) > ε} contain the
    true label with a probability of at least `guarantee`(ε), a little below 1 - 2ε (Vovk 2015; Barber, Candès, Ramdas
    and Tibshirani 2021, theorem 4); measured coverage is about 1 - ε. The guarantee does not cover what a model learns
    from all rows.

    Args:
        scores: (n,) η_i, the score of each example's true label by the model without its fold.
        folds: (n,) the fold of each example, from 0.
        labels, tolerance, table: as for `Calibration`; the table also comes from the models without each example's
            fold.

    >>> CrossCalibration([0.1, 0.2, 0.3, 0.9], [0, 0, 1, 1]).p_values(np.array([[0.15, 0.5]]))
    array([0.6])
    """

    def __init__(
        self,
        scores: ArrayLike,
        folds: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        tolerance: float = 0.0,
        table: ArrayLike | None = None,
    ) -> None:
        super().__init__(scores, labels, tolerance=tolerance, table=table)
        values = checks.scores(scores, "calibration scores", ndim=1)
        self.folds = checks.class_labels(folds, "folds", n=len(values))
        y = None if labels is None else np.asarray(labels)
        self._folds_by_class = [self.folds] if y is None else [self.folds[y == k] for k in np.unique(y)]
        self._parts = [
            None if not own.any() else Calibration(values[own], None if y is None else y[own], tolerance=tolerance)
            for own in (self.folds == fold for fold in range(int(self.folds.max()) + 1))
        ]

    def guarantee(self, epsilon: float) -> float:
        """The minimum coverage of sets at error rate ε, on average over draws of the data.

        If class-conditional, that of the worst class: a class with few examples has a weaker guarantee than all
        together.
        """
        return min(cross_guarantee(epsilon, folds) for folds in self._folds_by_class)

    def p_values(
        self, scores: ArrayLike, *, finite_sample: bool = True, smoothed: bool = False, random_state: Any = None
    ) -> Floats:
        """The p-values of scores by fold: (n, F, K) gives (n, K), and (n, F) gives (n,)."""
        if smoothed or random_state is not None:
            raise InputError("cross-conformal p-values are not smoothed; leave smoothed at False")
        scores = checks.scores(scores, "scores")
        if scores.ndim not in (2, 3) or scores.shape[1] < len(self._parts):
            raise ShapeError(
                f"cross-conformal p-values need scores by fold, (n, {len(self._parts)}) or (n, {len(self._parts)}, K); "
                f"got {scores.shape}"
            )
        if self.class_conditional and (scores.ndim == 2 or scores.shape[2] < len(self._sorted)):
            raise ShapeError(
                f"class-conditional p-values need scores (n, {len(self._parts)}, K), one column per calibration class: "
                f"at least {len(self._sorted)}; got {scores.shape}"
            )
        parts = [(fold, part) for fold, part in enumerate(self._parts) if part is not None]
        at_least = sum(part._count(scores[:, fold]) for fold, part in parts)
        n = self.n_calibration(scores.shape[2]) if scores.ndim == 3 else len(self._sorted[0])
        itself = int(finite_sample)
        return np.asarray(np.where(n + itself > 0, (at_least + itself) / np.maximum(n + itself, 1), 1.0))

    def tables(self, n_labels: int) -> list[list[Floats]]:
        """As in `Calibration`; a fold without scores has empty lists."""
        empty = [np.zeros(0)] * (n_labels if self.class_conditional else 1)
        return [empty if part is None else part.tables(n_labels)[0] for part in self._parts]

    def expected_sets(self, epsilon: float, *, ordered: bool = False) -> ExpectedSets:
        """The prediction sets to expect at error rate ε, estimated from the examples, each out of fold."""
        return replace(super().expected_sets(epsilon, ordered=ordered), guarantee=self.guarantee(epsilon))

    def _own_p_values(self) -> Floats:
        assert self._table is not None
        # Only the model without its fold knows nothing of an example, so its scores are used for all folds.
        repeated = np.repeat(self._table[:, None, :], len(self._parts), axis=1)
        return self.p_values(repeated)


def _p_values(ordered: Floats, scores: Floats, finite_sample: bool, uniform: Floats | None, tolerance: float) -> Floats:
    n = len(ordered)
    at_least = n - np.searchsorted(ordered, scores - tolerance, side="left")
    own = int(finite_sample)
    if n + own == 0:  # the paper's formula with nothing to compare with: no evidence against the label
        return np.ones_like(scores)
    if uniform is None:
        return np.asarray((at_least + own) / (n + own))
    above = n - np.searchsorted(ordered, scores + tolerance, side="right")
    return np.asarray((above + uniform * (at_least - above + own)) / (n + own))


@dataclass(frozen=True)
class ExpectedSets:
    """The prediction sets to expect at error rate ε; `str` describes them in words.

    The guarantee is an average over calibration sets. For a given calibration set, coverage lies in `coverage_range`
    with probability 0.9, whatever the data (a beta distribution, if scores are distinct). If class-conditional, this is
    for the class with the fewest calibration examples. If every training example calibrates (`CrossCalibration`), no
    such law is known: the range is then as wide as in simulations of small tables without any signal, and wider than
    necessary for others. If examples belong to groups, the range counts groups instead of examples.

    >>> print(Calibration(np.arange(99) / 100).expected_sets(0.1))
    99 calibration examples: at epsilon=0.1 expect a coverage between 84.7 % and 94.4 %
    """

    epsilon: float
    n_calibration: int
    class_conditional: bool
    coverage_range: tuple[float, float]
    n_labels: int | None = None
    mean_size: float | None = None  # mean size of the calibration examples' sets; None if their scores are unknown
    full_share: float | None = None  # the share of these sets that contain every label
    guarantee: float | None = None  # cross-conformal: the theoretical minimum of mean coverage; otherwise it is 1 - ε
    n_groups: int | None = None  # groups of related examples: nothing is certain for new groups
    by_group: Mapping[Hashable, ExpectedSets] | None = None  # if calibration is within groups; this is the smallest
    n_rows: int | None = None  # of weighted calibration examples, whose effective number is n_calibration

    def of_groups(self, n_groups: int) -> ExpectedSets:
        """The expected sets for new examples of other groups, given calibration examples of `n_groups` groups."""
        range_ = coverage_range(self.epsilon, min(n_groups, self.n_calibration), crossed=self.guarantee is not None)
        return replace(self, coverage_range=range_, guarantee=None, n_groups=n_groups)

    def __str__(self) -> str:
        low, high = self.coverage_range
        smallest = ["class"] * self.class_conditional + ["group"] * (self.by_group is not None)
        where = f" in the smallest {' of the smallest '.join(smallest)}" if smallest else ""
        where += "" if self.n_groups is None else f", of {self.n_groups:,} groups"
        text = f"{counted(self.n_calibration, self.n_rows)}{where}: at epsilon={self.epsilon:g} expect "
        if self.mean_size is not None and self.full_share is not None:
            text += f"sets of {self.mean_size:.2g} of {self.n_labels} labels on average"
            every = f" ({checks.percent(self.full_share, 0)} of the sets hold every label)"
            text += f"{every if self.full_share >= 0.005 else ''} and "
        bound = describe_bound(self.guarantee)
        text += f"a coverage between {checks.percent(low)} and {checks.percent(high)}{bound}"
        return text + list_groups(self.by_group)


@dataclass(frozen=True, eq=False, repr=False)
class ConformalPrediction:
    """p-values (n, K) of n examples, and everything derived from them.

    >>> prediction = Calibration(np.arange(19) / 20).predict(np.array([[0.1, 0.95], [0.92, 0.99]]))
    >>> prediction
    <ConformalPrediction of 2 examples, 2 labels: p_values, labels, confidence, credibility, label_sets(epsilon)>
    >>> prediction.credibility.round(2), prediction.label_sets(0.06).sum(axis=1)
    (array([0.9 , 0.05]), array([1, 0]))
    """

    p_values: Floats
    scores: Floats
    # In total, per class, or in each group of the examples; None if p-values may be below 1/(n_cal + 1).
    n_calibration: int | tuple[int, ...] | Mapping[Hashable, int] | None
    classes: NDArray[Any] | None = None  # (K,) names of the labels; None: they are 0 … K-1
    calibration: Calibration | None = None  # the source of the p-values, for `ExpectedSets`
    unreadable: Bools | None = None  # (n,): rows that could not be read; None: all could be read
    # (n,): the share of calibration examples at least as novel; near 0: unlike anything known. None if not measured.
    typicality: Floats | None = None
    ordered: bool = False  # labels are ordered: prediction sets are intervals

    def __repr__(self) -> str:
        """The available attributes in one line; the arrays would fill pages."""
        n, k = self.p_values.shape
        names = "p_values, labels, confidence, credibility" + (", typicality" if self.typicality is not None else "")
        return f"<ConformalPrediction of {n:,} examples, {k:,} labels: {names}, label_sets(epsilon)>"

    def _repr_html_(self) -> str:
        """For notebooks: the first examples in a table; every label is escaped."""
        first = self.part(slice(0, _SHOWN))
        table = pd.DataFrame({"label": first.labels, "confidence": first.confidence, "credibility": first.credibility})
        if first.typicality is not None:
            table["typicality"] = first.typicality
        return f"{table.to_html(float_format='{:.3f}'.format)}<p>{escape(repr(self))}</p>"

    def without(self, unreadable: Bools) -> ConformalPrediction:
        """A copy in which nothing is known of the unreadable rows, (n,): no label, p = 0, everything else NaN."""
        if not unreadable.any():
            return self
        p = np.where(unreadable[:, None], 0.0, self.p_values)
        typical = None if self.typicality is None else np.where(unreadable, np.nan, self.typicality)
        return replace(self, p_values=p, unreadable=unreadable, typicality=typical)

    def part(self, rows: Any) -> ConformalPrediction:
        """The prediction for some examples: a slice, row numbers or a mask."""
        bad = None if self.unreadable is None else self.unreadable[rows]
        typical = None if self.typicality is None else self.typicality[rows]
        return replace(self, p_values=self.p_values[rows], scores=self.scores[rows], unreadable=bad, typicality=typical)

    @property
    def labels(self) -> NDArray[Any]:
        """(n,): the label with the largest p-value; ties go to the lowest score. None if the row could not be read."""
        best = np.lexsort((self.scores, -self.p_values))[:, 0]
        labels = np.asarray(best if self.classes is None else self.classes[best])
        return labels if self.unreadable is None else np.where(self.unreadable, np.array(None, dtype=object), labels)

    @property
    def confidence(self) -> Floats:
        """(n,): 1 - the second largest p-value. If high, every other label is rejected."""
        return self._if_readable(confidence(self.p_values))

    @property
    def credibility(self) -> Floats:
        """(n,): the largest p-value. If low, no label fits.

        By nonconformity "weights", it is also low for examples unlike any other, as in the paper; by "probability" it
        is not: see `typicality`.
        """
        return self._if_readable(credibility(self.p_values))

    def _if_readable(self, values: Floats) -> Floats:
        """(n,), NaN for rows that could not be read."""
        return values if self.unreadable is None else np.where(self.unreadable, np.nan, values)

    def atypical(self, epsilon: float) -> Bools:
        """(n,): which examples are unlike the calibration examples; at most a share ε of similar examples are flagged.

        Rows that could not be read are among them.
        """
        epsilon = checks.epsilon(epsilon)
        if self.typicality is None:
            raise InputError(
                "typicality needs the novelty of the examples, which was not measured; take the prediction of a fitted "
                "classifier: clf.conformal(X)"
            )
        needed = smallest_calibration(epsilon)
        known = None if isinstance(self.n_calibration, Mapping) else self.n_calibration  # groups are not all examples
        if known is not None and (n := int(np.sum(known))) < needed:
            checks.warn(
                f"at epsilon={epsilon:g} an example can be atypical only with at least {needed} calibration examples, "
                f"and the calibration set has {n}: none is. Calibrate with more examples or use a larger epsilon",
                CalibrationWarning,
            )
        return np.asarray(~(self.typicality > epsilon))

    def label_sets(self, epsilon: float, *, reject: float | None = None) -> Bools:
        """(n, K): the labels that cannot be rejected at error rate ε.

        reject: δ. Examples with a typicality of at most δ get the empty set, "none of the known labels". This happens
        to at most a share δ of examples like those of calibration, so sets contain the true label with probability at
        least 1 - ε - δ.

        If labels are `ordered`, all labels between two labels of the set belong to it: sets are intervals.
        """
        sets = label_sets(self.p_values, epsilon, ordered=self.ordered)
        if reject is not None:
            sets &= ~self.atypical(reject)[:, None]
        if self.n_calibration is not None:
            _warn_if_too_small(self.n_calibration, sets.shape[1], epsilon)
            if self.calibration is not None and sets.shape[1] > 1 and len(sets) and sets.all():
                _warn_if_all_full(self.calibration.expected_sets(epsilon, ordered=self.ordered), len(sets))
        return sets


def p_values(
    calibration_scores: ArrayLike,
    scores: ArrayLike,
    *,
    finite_sample: bool = True,
    smoothed: bool = False,
    random_state: Any = None,
) -> Floats:
    """The p-value of each score against calibration scores (n_cal,), in the shape of `scores`.

    Short for `Calibration(calibration_scores).p_values(scores, …)`, which documents the options.

    >>> p_values([1.0, 2.0, 3.0], [0.0, 2.0, 9.0])
    array([1.  , 0.75, 0.25])
    >>> p_values([1.0, 2.0, 3.0], [0.0, 2.0, 9.0], finite_sample=False).round(2)
    array([1.  , 0.67, 0.  ])
    """
    return Calibration(calibration_scores).p_values(
        scores, finite_sample=finite_sample, smoothed=smoothed, random_state=random_state
    )


def typicality(
    calibration_novelty: ArrayLike,
    novelty: ArrayLike,
    *,
    tolerance: float = 0.0,
    finite_sample: bool = True,
    folds: ArrayLike | None = None,
) -> Floats:
    """(n,): the share of calibration examples at least as novel as each example, itself included.

    This is the p-value of the hypothesis "this example is like those of calibration", whatever its label. folds: as for
    `CrossCalibration`; novelty is then (n, F), by the model without each fold.

    >>> typicality([0.1, 0.2, 0.2, 0.9], [0.2, 7.0])
    array([0.8, 0.2])
    """
    scores = checks.scores(novelty, "novelty", ndim=1 if folds is None else 2)
    cal = (
        Calibration(calibration_novelty, tolerance=tolerance)
        if folds is None
        else CrossCalibration(calibration_novelty, folds, tolerance=tolerance)
    )
    return cal.p_values(scores, finite_sample=finite_sample)


def label_sets(
    p_values: ArrayLike,
    epsilon: float,
    *,
    n_calibration: Sequence[int] | int | None = None,
    ordered: bool = False,
) -> Bools:
    """{k : p(x, k) > ε} as (n, K) booleans.

    ordered: labels are ordered; all labels between two labels of the set belong to it. With nonconformity "tails" and
    one calibration set for all labels, there are no gaps to fill. By class or by fold there may be gaps; filling them
    keeps the guarantee.

    If `n_calibration` is given, in total or per class, a `CalibrationWarning` reports a calibration set too small to
    reject anything at ε: with fewer than 1/ε - 1 scores every p-value exceeds ε.

    >>> label_sets([[0.8, 0.03], [0.4, 0.2]], epsilon=0.05)
    array([[ True, False],
           [ True,  True]])
    """
    p = checks.p_values(p_values)
    epsilon = checks.epsilon(epsilon)
    if n_calibration is not None:
        _warn_if_too_small(n_calibration, p.shape[1], epsilon)
    sets = np.asarray(p > epsilon)
    if ordered:
        sets = np.logical_or.accumulate(sets, axis=1) & np.logical_or.accumulate(sets[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(sets)


def _warn_if_too_small(
    n_calibration: Mapping[Hashable, int] | Sequence[int] | int, n_classes: int, epsilon: float
) -> None:
    """Warn if a label can never be left out; n_calibration: by group, per class or in total."""
    needed, small = smallest_calibration(epsilon), list[Any]()
    if isinstance(n_calibration, Mapping):
        small = [name for name, n in n_calibration.items() if n < needed]
        examples = f" of its group, and {groups_of_sizes(small, n_calibration)}"
    else:
        sizes = np.asarray(n_calibration)
        if sizes.shape not in ((), (n_classes,)):
            raise ShapeError(
                f"n_calibration must be one number, or one per label: {n_classes} required, got {sizes.size}"
            )
        small = np.flatnonzero(sizes < needed).tolist()
        if sizes.ndim == 0:
            examples = f", and the calibration set has {sizes}"
        else:
            examples = f" of its class, and {checks.listed(small, show=lambda k: f'class {k} has {sizes[k]}')}"
    if small:
        checks.warn(
            f"at epsilon={epsilon:g} a label can be left out only with at least {needed} calibration examples"
            f"{examples}: the affected labels are in every set. Calibrate with more examples or use a larger epsilon",
            CalibrationWarning,
        )


def counted(n: int, n_rows: int | None) -> str:
    """How many calibration examples there are; of weighted ones, their effective number."""
    weighted = "" if n_rows is None else f" (the effective number of {n_rows:,} that are weighted)"
    return f"{n:,} calibration examples{weighted}"


def list_groups(expected: Mapping[Hashable, Any] | None) -> str:
    """What to expect in each group, the smallest first, a line each; "" if there are none."""
    ordered = sorted((expected or {}).items(), key=lambda pair: (pair[1].n_calibration, str(pair[0])))
    more = [f"  … ({len(ordered) - _GROUPS:,} more groups)"] * (len(ordered) > _GROUPS)
    return "".join(f"\n{line}" for line in [*(f"  {name}: {each}" for name, each in ordered[:_GROUPS]), *more])


def groups_of_sizes(names: Sequence[Hashable], sizes: Mapping[Hashable, int]) -> str:
    """The sizes of groups, in words."""
    return checks.listed(names, show=lambda name: f"group {name!r} has {sizes.get(name) or 'none'}")


def _warn_if_all_full(expected: ExpectedSets, n: int) -> None:
    """Warn if all n sets contain every label because of the calibration, not because these examples are uncertain."""
    able = expected.n_calibration >= smallest_calibration(expected.epsilon)
    if able and expected.full_share is not None and expected.full_share > (0.9 if n < 10 else 0.5):
        checks.warn(
            f"every prediction set holds every label. {expected}. "
            "Calibrate with more examples, use a larger epsilon, or train longer",
            CalibrationWarning,
        )


def confidence(p_values: ArrayLike) -> Floats:
    """1 - the second largest p-value of each row, (n,); 1 if there is only one label.

    >>> confidence([[0.8, 0.03], [0.4, 0.2]])
    array([0.97, 0.8 ])
    """
    p = checks.p_values(p_values)
    if p.shape[1] == 1:
        return np.ones(len(p))
    return np.asarray(1 - np.partition(p, -2, axis=1)[:, -2])


def credibility(p_values: ArrayLike) -> Floats:
    """The largest p-value of each row, (n,).

    >>> credibility([[0.8, 0.03], [0.4, 0.2]])
    array([0.8, 0.4])
    """
    return np.asarray(checks.p_values(p_values).max(axis=1))


def _table(value: ArrayLike, name: str) -> Floats:
    """(n, K) numbers without NaN, with at least one label."""
    table = checks.scores(value, name, ndim=2)
    if table.shape[1] == 0:
        raise ShapeError(f"{name} must have one column per label, at least one; got shape {table.shape}")
    return table
