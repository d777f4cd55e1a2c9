"""Several labels at once: a decision with a guarantee for each label, and sets that miss few of a row's labels.

Label by label (`LabelCalibration`), "has it" and "has it not" are two classes, each compared with the calibration rows
of its own kind. At most a share ε of the rows with a label get the decision "has it not", and vice versa.

Row by row (`MissControl`), the set {l : P(l) ≥ t} misses at most a share α of a row's labels on average (conformal risk
control: Angelopoulos, Bates, Fisch, Lei and Schuster 2024).

>>> import numpy as np
>>> P = np.array([[0.9, 0.2], [0.8, 0.3], [0.1, 0.1], [0.2, 0.6]])
>>> Y = np.array([[1, 0], [1, 0], [0, 0], [0, 1]])
>>> LabelCalibration(P, Y).predict([[0.85, 0.2]]).p_yes.round(2)
array([[0.67, 0.5 ]])
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dwac import _checks as checks
from dwac.conformal.classes import Bools, Calibration, CrossCalibration, Floats, groups_of_sizes, list_groups
from dwac.conformal.groups import GroupCalibration, rows_by_group
from dwac.conformal.guarantees import allowed_misses, cross_guarantee, smallest_calibration
from dwac.errors import CalibrationWarning, InputError, LabelError, ShapeError

Ints = NDArray[np.int64]


class LabelCalibration:
    """p-values of "has it" and "has it not" for each of L labels, from the probabilities of calibration rows.

    p_yes compares -P(l) with the calibration rows that have label l, p_no compares -(1 - P(l)) with those that do not.
    A label that no calibration row has (or lacks) can never be ruled out (or in): its p-value is 1.

    Args:
        probabilities: (n_cal, L) the probability of each label for each calibration row.
        Y: (n_cal, L) which labels each row has: booleans, or 0 and 1.
        folds: (n_cal,) the fold of each row, if every training row calibrates, with probabilities from the model that
            left out its fold (`CrossCalibration`). New rows then have probabilities by fold, (n, F, L).
        tolerance: probabilities that differ by no more than this count as equal.
        within: (n_cal,) the group of each row, or a frozenset of its groups. Rows are then compared with those of their
            own groups, so that decisions have their guarantee within each; of several p-values, the largest counts.
    """

    def __init__(
        self,
        probabilities: ArrayLike,
        Y: ArrayLike,
        *,
        folds: ArrayLike | None = None,
        tolerance: float = 1e-6,
        within: Iterable[Hashable] | None = None,
    ) -> None:
        self._probabilities, self._has = _rows(probabilities, Y)
        n, n_labels = self._has.shape
        self.folds = None if folds is None else checks.class_labels(folds, "folds", n=n)
        self._within = None if within is None else list(within)
        self._rows = rows_by_group(self._within, n)
        self.n_yes: Ints = self._has.sum(axis=0)
        self.n_no: Ints = n - self.n_yes
        self._labels = [self._label(label, tolerance) for label in range(n_labels)]

    def _label(self, label: int, tolerance: float) -> Calibration | GroupCalibration:
        p, has = self._probabilities[:, label], self._has[:, label]
        scores, kinds = -np.where(has, p, 1 - p), has.astype(np.int64)

        def calibrate(rows: Ints) -> Calibration:
            if self.folds is None:
                return Calibration(scores[rows], kinds[rows], tolerance=tolerance)
            return CrossCalibration(scores[rows], self.folds[rows], kinds[rows], tolerance=tolerance)

        # A program for each label, kind and combination of groups would take minutes.
        rows = np.arange(len(p))
        return calibrate(rows) if self._within is None else GroupCalibration(self._within, calibrate, union=True)

    def predict(
        self,
        probabilities: ArrayLike,
        fold_probabilities: ArrayLike | None = None,
        labels: NDArray[Any] | None = None,
        within: Iterable[Hashable] | None = None,
    ) -> LabelPrediction:
        """The p-values (n, L) of every label for rows with these probabilities.

        Args:
            probabilities: (n, L).
            fold_probabilities: (n, F, L) the same from the model without each fold; required if there are folds.
            labels: (L,) their names; None: they are 0 … L-1.
            within: (n,) the groups of the rows, if calibration is within groups.
        """
        p = _shares(probabilities, "probabilities", 2, len(self._labels))
        if (fold_probabilities is None) != (self.folds is None):
            raise InputError(
                "calibration has no folds, so fold_probabilities must be None"
                if self.folds is None
                else "calibration is by fold, so fold_probabilities (n, F, L) are required; got none"
            )
        if labels is not None and len(labels) != p.shape[1]:
            raise ShapeError(f"labels must have one name per label: {p.shape[1]} required, got {len(labels)}")
        by_fold = p
        if fold_probabilities is not None:
            by_fold = _shares(fold_probabilities, "fold_probabilities", 3, len(self._labels))
            if len(by_fold) != len(p):
                raise ShapeError(
                    f"fold_probabilities must have one entry per row: {len(p)} required, got {len(by_fold)}"
                )
        names = None if within is None else list(within)
        n_yes, n_no = self._fewest(names)
        _warn_of_absent(n_yes, n_no, labels)
        p_no, p_yes = self._p_values(by_fold, names)
        return LabelPrediction(p_yes, p_no, p, n_yes, n_no, labels)

    def _fewest(self, within: list[Hashable] | None) -> tuple[Ints, Ints]:
        """(L,), twice: how many rows have each label and how many do not; in the smallest of the groups of new rows."""
        if within is None or self._within is None:
            return self.n_yes, self.n_no
        no_rows = np.zeros(0, dtype=np.int64)
        rows = [self._rows.get(name, no_rows) for name in rows_by_group(within, len(within))]
        has = [self._has[some] for some in rows]
        yes, no = ([kind.sum(axis=0) for kind in kinds] for kinds in (has, [~each for each in has]))
        return np.min(yes, axis=0), np.min(no, axis=0)

    def expected(self, epsilon: float, labels: NDArray[Any] | None = None) -> ExpectedDecisions:
        """The decisions to expect at error rate ε, estimated from the calibration rows, each out of fold."""
        epsilon, own = checks.epsilon(epsilon), self._probabilities
        if self.folds is not None:
            own = np.repeat(own[:, None], int(self.folds.max()) + 1, axis=1)
        p_no, p_yes = self._p_values(own, self._within)
        decided = float((_decisions(p_yes, p_no, epsilon) >= 0).mean())
        needed = smallest_calibration(epsilon)
        n_yes, n_no = self._fewest(self._within)
        rare = np.flatnonzero((n_yes < needed) | (n_no < needed))
        names = tuple(_names(labels, len(self._labels))[label] for label in rare)
        n, n_labels = self._has.shape
        return ExpectedDecisions(epsilon, n, n_labels, decided, names, self._guarantee(epsilon))

    def _guarantee(self, epsilon: float) -> float | None:
        """The worst case of `cross_guarantee` over groups and labels with examples of a kind; None without folds."""
        if self.folds is None:
            return None
        pairs = [(self.folds[some], label) for some in self._rows.values() for label in self._has[some].T]
        kinds = [folds[rows] for folds, label in pairs for rows in (label, ~label) if rows.any()]
        return min(cross_guarantee(epsilon, folds) for folds in kinds)

    def _p_values(self, p: Floats, within: list[Hashable] | None) -> tuple[Floats, Floats]:
        """(p_no, p_yes), each (n, L), from probabilities (n, L) or (n, F, L)."""
        if (within is None) != (self._within is None):
            raise InputError("the groups of new rows are required if, and only if, calibration is within groups")
        labels = [own.of(within or ()) if isinstance(own, GroupCalibration) else own for own in self._labels]
        both = np.stack([p - 1, -p], axis=-1)
        table = np.stack([own.p_values(both[..., label, :]) for label, own in enumerate(labels)], axis=1)
        return table[..., 0], table[..., 1]


@dataclass(frozen=True, eq=False)
class LabelPrediction:
    """p-values (n, L) of "has it" and "has it not" for n rows and L labels, and the decisions they allow.

    >>> P, Y = np.array([[0.9, 0.2], [0.8, 0.3], [0.1, 0.1], [0.2, 0.6]]), [[1, 0], [1, 0], [0, 0], [0, 1]]
    >>> prediction = LabelCalibration(P, Y).predict([[0.85, 0.05]])
    >>> prediction.p_no.round(2)
    array([[0.33, 1.  ]])
    """

    p_yes: Floats
    p_no: Floats
    probabilities: Floats
    n_yes: Ints  # (L,): how many calibration rows have each label, for p_yes
    n_no: Ints  # (L,): how many do not, for p_no
    labels: NDArray[Any] | None = None  # (L,) names; None: they are 0 … L-1
    typicality: Floats | None = None  # (n,): near 0, unlike anything known; None if it was not measured

    def part(self, rows: Any) -> LabelPrediction:
        """The prediction for some rows: a slice, row numbers or a mask."""
        known = None if self.typicality is None else self.typicality[rows]
        return replace(
            self,
            p_yes=self.p_yes[rows],
            p_no=self.p_no[rows],
            probabilities=self.probabilities[rows],
            typicality=known,
        )

    def without(self, rows: Bools) -> LabelPrediction:
        """A copy without decisions for these rows (n,), which could not be read: their typicality is NaN."""
        where = np.asarray(rows)[:, None]
        known = None if self.typicality is None else np.where(rows, np.nan, self.typicality)
        p_yes, p_no = (np.where(where, 1.0, p) for p in (self.p_yes, self.p_no))
        return replace(self, p_yes=p_yes, p_no=p_no, typicality=known)

    def decisions(self, epsilon: float) -> NDArray[np.int8]:
        """(n, L): 1 has the label, 0 has it not, -1 undecided (both or neither can be rejected at error rate ε).

        For exchangeable rows and each label, at most a share ε of the rows that have it get a 0, and at most a share ε
        of the others get a 1. With folds, the measured share is about ε; the theoretical bound is a little above 2ε
        (`CrossCalibration`).
        """
        epsilon = checks.epsilon(epsilon)
        _warn_if_rare(self.n_yes, self.n_no, epsilon, self.labels)
        return _decisions(self.p_yes, self.p_no, epsilon)


@dataclass(frozen=True)
class ExpectedDecisions:
    """The decisions on several labels to expect at error rate ε; `str` describes them in words.

    >>> P = np.tile(np.linspace(0.01, 0.99, 80)[:, None], (1, 2))
    >>> print(LabelCalibration(P, P > 0.5).expected(0.1))
    80 calibration examples: at epsilon=0.1 expect a decision on 92.5 % of the labels, of which each is wrong for
    at most 10.0 % of those who have it, and of those who do not
    """

    epsilon: float
    n_calibration: int
    n_labels: int
    decided: float  # the share of the calibration rows' labels with a decision
    rare: tuple[Any, ...]  # labels that too few calibration rows have (or lack) to rule them out (or in)
    guarantee: float | None = None  # with folds: 1 - the theoretical maximum of wrong decisions; otherwise 1 - ε

    def __str__(self) -> str:
        text = f"{self.n_calibration:,} calibration examples: at epsilon={self.epsilon:g} expect a decision on "
        text += f"{checks.percent(self.decided)} of the labels, of which each is "
        text += f"wrong for at most {checks.percent(self.epsilon)} of those who "
        text += "have it, and of those who do not"
        if self.guarantee is not None:
            text += f" (at most {checks.percent(1 - self.guarantee)} in theory)"
        if self.rare:
            needed, few = smallest_calibration(self.epsilon), checks.listed(self.rare)
            text += f"; fewer than {needed} examples have or lack {few}, so that these are often undecided"
        return text


class MissControl:
    """Sets {l : P(l) ≥ t} that miss at most a share α of a row's labels, on average: conformal risk control.

    A row's loss is the share of its labels with P < t, and 0 if it has none. The largest t with
    (Σ_i loss_i(t) + 1) / (n_cal + 1) ≤ α keeps the expected loss of a new exchangeable row at α or below. Out-of-fold
    probabilities also work; α is then observed, not guaranteed (`certain`).

    Args:
        probabilities: (n_cal, L) of calibration rows.
        Y: (n_cal, L) which labels each has.
        tolerance: subtracted from t, so that labels stay in the set if rounding makes their probability slightly
            smaller.
        certain: whether the probabilities come from one model that was not trained on these rows.
        within: (n_cal,) the group of each row, or a frozenset of its groups. Each group then has its own t, and a row
            of several groups the smallest: its set misses at most a share α on average within each.

    >>> control = MissControl([[0.9, 0.2], [0.6, 0.7], [0.1, 0.8]], [[1, 0], [1, 1], [0, 1]], tolerance=0.0)
    >>> control.threshold(0.25), control.threshold(0.5)
    (0.6, 0.8)
    """

    def __init__(
        self,
        probabilities: ArrayLike,
        Y: ArrayLike,
        *,
        tolerance: float = 1e-6,
        certain: bool = True,
        within: Iterable[Hashable] | None = None,
    ) -> None:
        self._probabilities, has = _rows(probabilities, Y)
        options: dict[str, Any] = {"tolerance": tolerance, "certain": certain}
        rows = {} if within is None else rows_by_group(within, len(has))
        self.by_group = {
            name: MissControl(self._probabilities[some], has[some], **options) for name, some in rows.items()
        }
        self.tolerance, self.certain = float(tolerance), certain
        loss = has / np.maximum(has.sum(axis=1, keepdims=True), 1)  # the cost of missing each label
        order = np.argsort(self._probabilities[has], kind="stable")
        self._values = self._probabilities[has][order]
        self._lost = np.concatenate([[0.0], loss[has][order].cumsum()])  # total cost of the first 0, 1, 2, … of these

    @property
    def n_calibration(self) -> int:
        """The number of calibration rows."""
        return len(self._probabilities)

    def threshold(self, alpha: float) -> float:
        """t: 0 (every label) if there are too few rows for α, inf (no label) if even that misses few enough."""
        alpha = checks.epsilon(alpha, "alpha")
        _warn_if_too_few(self.n_calibration, alpha)
        return self._threshold(alpha)

    def sets(self, probabilities: ArrayLike, alpha: float, within: Iterable[Hashable] | None = None) -> Bools:
        """(n, L): which labels have a probability of at least `threshold`(α), from probabilities (n, L).

        within: (n,) the groups of the rows, if there are groups.
        """
        alpha = checks.epsilon(alpha, "alpha")
        p = _shares(probabilities, "probabilities", 2, self._probabilities.shape[1])
        names = None if within is None else list(within)
        if names is None:
            _warn_if_too_few(self.n_calibration, alpha)
        else:
            groups = rows_by_group(names, len(p))
            sizes = {name: self.by_group[name].n_calibration if name in self.by_group else 0 for name in groups}
            _warn_if_too_few(min(sizes.values(), default=self.n_calibration), alpha, sizes)
        return np.asarray(p >= self.thresholds(alpha, names, len(p)))

    def thresholds(self, alpha: float, within: Iterable[Hashable] | None, n: int) -> Floats:
        """(n, 1): t of each of n rows, by their groups; 0 (every label) in a group without calibration rows."""
        if within is None:
            return np.full((n, 1), self._threshold(alpha))
        t = np.full((n, 1), np.inf)
        for name, rows in rows_by_group(within, n).items():
            group = self.by_group.get(name)
            t[rows] = np.minimum(t[rows], 0.0 if group is None else group._threshold(alpha))
        return t

    def expected(self, alpha: float) -> ExpectedMisses:
        """The sets to expect at a share α of missed labels, estimated from the calibration rows, in each group."""
        if self.by_group:
            each = {name: group.expected(alpha) for name, group in self.by_group.items()}
            return replace(min(each.values(), key=lambda one: one.n_calibration), by_group=each)
        t = self._threshold(checks.epsilon(alpha, "alpha"))
        size = float((self._probabilities >= t).sum(axis=1).mean())
        n, n_labels = self._probabilities.shape
        return ExpectedMisses(float(alpha), n, n_labels, t, size, self.certain)

    def _threshold(self, alpha: float) -> float:
        n = self.n_calibration
        if allowed_misses(alpha, n) == 0:  # 1 / (n + 1) > α
            return 0.0
        spare = alpha * (n + 1) - 1 + 1e-9  # the sums of shares are rounded
        if self._lost[-1] <= spare:
            return float(np.inf)
        # At t = v every label with P < v is missed, and none with P = v.
        before = self._lost[np.searchsorted(self._values, self._values, side="left")]
        t = self._values[np.searchsorted(before, spare, side="right") - 1]
        return max(float(t) - self.tolerance, 0.0)


@dataclass(frozen=True)
class ExpectedMisses:
    """The sets of labels to expect at a share α of missed labels; `str` describes them in words.

    >>> P = np.tile(np.linspace(0.01, 0.99, 80)[:, None], (1, 2))
    >>> print(MissControl(P, P > 0.5).expected(0.1))
    80 calibration examples: at alpha=0.1 expect sets of 0.82 of 2 labels on average, those with a probability of
    at least 0.59, which miss at most 10.0 % of a row's labels on average
    """

    alpha: float
    n_calibration: int
    n_labels: int
    threshold: float
    mean_size: float  # of the calibration rows' own sets
    certain: bool = True  # whether α is guaranteed on average over draws of the data, not just observed (cross-fitting)
    by_group: Mapping[Hashable, ExpectedMisses] | None = None  # those of each group, if any; this is the smallest

    def __str__(self) -> str:
        where = "" if self.by_group is None else " in the smallest group"
        return self._describe(where) + list_groups(self.by_group)

    def _describe(self, where: str) -> str:
        text = f"{self.n_calibration:,} calibration examples{where}: at alpha={self.alpha:g} "
        if self.n_calibration < (needed := smallest_calibration(self.alpha)):
            return text + f"sets hold every label; at least {needed:,} examples are needed"
        text += f"expect sets of {self.mean_size:.2g} of {self.n_labels} labels on average, "
        if np.isinf(self.threshold):
            return text + f"as most rows have no label: missing all of them misses at most {checks.percent(self.alpha)}"
        share = f"at most {checks.percent(self.alpha)} of a row's labels on average"
        text += f"those with a probability of at least {self.threshold:.2g}, "
        return text + (f"which miss {share}" if self.certain else f"which missed {share}: observed, not guaranteed")


def _decisions(p_yes: Floats, p_no: Floats, epsilon: float) -> NDArray[np.int8]:
    yes, no = p_yes > epsilon, p_no > epsilon
    return np.where(yes == no, -1, yes).astype(np.int8)


def _shares(value: ArrayLike, name: str, ndim: int, n_labels: int | None = None) -> Floats:
    """Numbers in [0, 1], with one column per label; they need not sum to 1."""
    p = checks.scores(value, name, ndim=ndim)
    if p.shape[-1] == 0 or (n_labels is not None and p.shape[-1] != n_labels):
        raise ShapeError(f"{name} must have one column per label, {n_labels or 'at least one'}; got shape {p.shape}")
    if ((p < -1e-6) | (p > 1 + 1e-6)).any():
        wrong = p[(p < -1e-6) | (p > 1 + 1e-6)][0]
        raise InputError(f"{name} must lie in [0, 1]; got {wrong:.6g}; give probabilities, not their logs")
    return np.clip(p, 0, 1)


def _rows(probabilities: ArrayLike, Y: ArrayLike) -> tuple[Floats, Bools]:
    """Probabilities and labels of calibration rows, checked."""
    p, has = _shares(probabilities, "probabilities", 2), np.asarray(Y)
    if has.shape != p.shape:
        raise ShapeError(f"Y must have the shape of the probabilities, {p.shape}; got {has.shape}")
    if len(p) == 0:
        raise InputError("calibration needs at least one row; got none; hold out some examples for calibration")
    if has.dtype.kind not in "biuf" or not np.isin(has, (0, 1)).all():
        raise LabelError("Y must say which labels each row has, by booleans or by 0 and 1; got other values")
    return p, has.astype(bool)


def _names(labels: NDArray[Any] | None, n_labels: int) -> list[Any]:
    return list(range(n_labels)) if labels is None else np.asarray(labels).tolist()


def _few(verb: str, counts: Ints, least: int, labels: NDArray[Any] | None) -> list[str]:
    """Words that name the labels with fewer rows than `least`, if any: "have 'a' (3), 'b' (0)"."""
    names, few = _names(labels, len(counts)), np.flatnonzero(counts < least)
    listed = checks.listed(few, show=lambda label: f"{names[label]!r} ({counts[label]})")
    return [f"{verb} {listed}"] if len(few) else []


def _warn_of_absent(n_yes: Ints, n_no: Ints, labels: NDArray[Any] | None) -> None:
    if parts := _few("have", n_yes, 1, labels) + _few("lack", n_no, 1, labels):
        checks.warn(
            f"no calibration examples {' and none '.join(parts)}, so this can never be rejected: its p-value is 1 for "
            "every input. Calibrate with examples that have each label and others that lack it",
            CalibrationWarning,
        )


def _warn_if_rare(n_yes: Ints, n_no: Ints, epsilon: float, labels: NDArray[Any] | None) -> None:
    needed = smallest_calibration(epsilon)
    if parts := _few("have", n_yes, needed, labels) + _few("lack", n_no, needed, labels):
        checks.warn(
            f"at epsilon={epsilon:g} a label can be ruled out only with at least {needed} calibration examples that "
            f"have it, and confirmed only with as many that lack it; too few {' and too few '.join(parts)}. "
            "Calibrate with more examples or use a larger epsilon",
            CalibrationWarning,
        )


def _warn_if_too_few(n: int, alpha: float, sizes: Mapping[Hashable, int] | None = None) -> None:
    if n < (needed := smallest_calibration(alpha)):
        there, where = f"there are {n}: every label is in every set", ""
        if sizes is not None:
            few, where = [name for name, size in sizes.items() if size < needed], " of its group"
            there = f"{groups_of_sizes(few, sizes)}: every label is in its sets"
        checks.warn(
            f"at alpha={alpha:g} a label can be left out only with at least {needed} calibration examples{where}, and "
            f"{there}. Calibrate with more examples or use a larger alpha",
            CalibrationWarning,
        )
