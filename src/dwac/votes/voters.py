"""Voters: training examples with the votes that any model gives them, explained, calibrated and valued like our own.

A vote of weight w is that of an example at the distance √(-log w), because w = exp(-d²). So the votes on one row are a
`ReferenceSet` of one dimension with the row at 0, and every explanation holds for them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from dwac import _checks as checks
from dwac.conformal import Calibration, ConformalPrediction, IntervalCalibration, tail_scores, tails_of
from dwac.errors import EPSILON, CalibrationError, InputError, KindError, ShapeError
from dwac.estimator.preparation import read_known, row_ids
from dwac.estimator.worth import Judges, Options, column_of_voters, worth_by
from dwac.explain import Explanations, explain_numbers
from dwac.explain.classes import make_explanation
from dwac.explain.descriptions import GroupTexts, describe
from dwac.explain.many import ids_of
from dwac.explain.voters import Source, nearest_voters
from dwac.explain.votes import LabelVotes
from dwac.reference import ReferenceSet
from dwac.reference.references import set_of
from dwac.tasks import LABELS, NUMBERS
from dwac.tasks.base import Target
from dwac.tasks.targets import read_target
from dwac.worth.tally import VOTES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Blocks = Iterable[Any]  # (b, m) weights each, arrays or sparse, in the order of the rows

_ROUNDING = 1e-9  # scores closer than this are equal
EXACT = "Sets and intervals miss the truth with probability at most ε, on average over draws of the calibration rows."
OWN = (
    "Sets and intervals should miss about a share ε or less; this is not proved. Each training row is judged by a part "
    "of the model that did not see it, and a new row by all of it. For a proof, calibrate(X, y) with new rows."
)


@runtime_checkable
class Weights(Protocol):
    """A model whose prediction is a weighted average of m training labels or numbers.

    It may also have `own_weights()`: blocks for its training rows, each without itself; zeros where no other row votes.

    >>> class Nearby:
    ...     def weights(self, X):
    ...         yield np.exp(-((np.asarray(X)[:, None] - np.array([0.0, 1.0, 5.0])) ** 2))
    >>> isinstance(Nearby(), Weights)
    True
    >>> VotingModel.of(Nearby(), ["low", "low", "high"]).predict([0.4, 4.0])
    array(['low', 'high'], dtype='<U4')
    """

    def weights(self, X: Any) -> Blocks:
        """The weights of the m training examples on the rows of X, in blocks (b, m), in order."""


@dataclass(frozen=True, eq=False, repr=False)
class VotingModel:
    """m training examples that vote on rows with the weights of any model. `calibrate` and `silence` return another."""

    source: Weights
    references: ReferenceSet  # labels, numbers and ids of the voters; embeddings only divide them into groups
    target: Target
    records: pd.DataFrame | None = None  # the training examples by id
    signed: bool = False  # whether weights may be negative, and need not sum to 1
    kept: Ints | None = None  # columns of the weights that vote; None for all
    calibration: tuple[Any, ...] = ()  # of labels, or of each number
    guarantee: str | None = None  # what sets and intervals promise; None before `calibrate`

    @classmethod
    def of(
        cls,
        source: Weights,
        y: Any,
        *,
        X: Any = None,
        ids: Iterable[Hashable] | None = None,
        regression: bool = False,
        signed: bool = False,
    ) -> VotingModel:
        """The voters of a model.

        Args:
            source: the model; see `Weights`.
            y: the labels (m,) of its training examples; of a regression, numbers (m,) or (m, T).
            X: the training examples: records to show, and columns of numbers by which similar ones are grouped.
            ids: their names, by default the index of X, else 0 … m-1.
            regression: whether numbers are predicted.
            signed: for smoothers, whose weights may be negative: no shares of a vote, and no explanation by them.
        """
        if not isinstance(source, Weights):
            raise KindError(f"source must have a method weights(X), for blocks (b, m); got {type(source).__name__}")
        values = read_target(y, len(y), regression=regression, ordered=False)
        target, names = values.target(np.arange(len(y))), row_ids(X, ids, len(y))
        if target.kind == LABELS or (signed and not regression):
            raise InputError("y must have one label per row, by weights of one sign; make one for each label")
        frame = pd.DataFrame(X).set_axis(names, axis=0) if np.ndim(X) == 2 and not issparse(X) else None
        points, labels = _standardised(frame, len(y)), np.zeros(len(y), int) if regression else values.strata
        n_classes, numbers = (1, values.exact) if regression else (target.n_codes, None)
        return cls(source, ReferenceSet(points, labels, names, n_classes, targets=numbers), target, frame, signed)

    def __repr__(self) -> str:
        """Its size, in words."""
        calibrated = "calibrated" if self.calibration else "not calibrated"
        return (
            f"<VotingModel: {len(self.references):,} training examples of {type(self.source).__name__}, {calibrated}>"
        )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"Voters have no {name!r}: saving, records, reports, the service and the explorer need a dwac model; ask "
            "the votes of another model by explain, contributions, conformal, predict_set, predict_interval or worth"
        )

    @property
    def regression(self) -> bool:
        """Whether numbers are predicted."""
        return self.target.kind == NUMBERS

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, sorted."""
        return self.target.names

    @cached_property
    def _values(self) -> Floats:
        """(m, T) numbers, or (m, K) of 0 and 1: what each example votes for."""
        numbers, labels = self.references.targets, self.references.labels.numpy()
        return np.eye(self.target.n_codes)[labels] if numbers is None else numbers.numpy()

    # Weights

    def weights(self, X: Any) -> Iterator[csr_array]:
        """The weights on the rows of X, in blocks (b, m) whose rows sum to 1; those of a smoother as they are."""
        return self._read(self.source.weights(X))

    def own_weights(self) -> Iterator[csr_array]:
        """The same on the training rows, each without itself; zeros where no other has a vote."""
        own: Any = getattr(self.source, "own_weights", None)
        if own is None:
            raise CalibrationError("the model has no votes on its training rows without themselves; give new X and y")
        return self._read(own(), own=True)

    def _read(self, blocks: Blocks, *, own: bool = False) -> Iterator[csr_array]:
        start, m = 0, len(self.references)
        whole: Any = blocks
        for block in [whole] if issparse(whole) or (isinstance(whole, np.ndarray) and whole.ndim == 2) else blocks:
            rows, n = csr_array(block, dtype=np.float64), np.shape(block)[0]
            if self.kept is not None:
                here = self.kept[(self.kept >= start) & (self.kept < start + n)] - start
                rows = rows[here][:, self.kept] if own else rows[:, self.kept]
            if rows.shape[1] != m or not np.isfinite(rows.data).all():
                raise ShapeError(f"weights must be finite, with a column for each of {m} voters; got {rows.shape}")
            yield rows if self.signed else _shares(rows, start, own=own)
            start += n

    def _votes(self, blocks: Iterable[csr_array]) -> Iterator[tuple[Ints, Floats]]:
        """Each row as the places of its voters, in order, and their weights."""
        for rows in blocks:
            ordered = rows.sorted_indices()
            for a, b in zip(ordered.indptr[:-1], ordered.indptr[1:], strict=True):
                yield ordered.indices[a:b], ordered.data[a:b]

    # Predictions

    def predict_proba(self, X: Any) -> Floats:
        """(n, K): the share of the vote for each of `classes_`."""
        if self.regression:
            raise KindError("predict_proba is for labels; these voters vote for numbers; use predict")
        return self._sums(self.weights(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,): the label with most votes, the first of several; or the weighted sum of numbers, (n,) or (n, T)."""
        sums = self._sums(self.weights(X))
        if not self.regression:
            return np.asarray(self.classes_[_first_largest(sums)])
        return sums[:, 0] if self.target.single else sums

    def _sums(self, blocks: Iterable[csr_array]) -> Floats:
        return np.concatenate([self._values[:0], *(rows @ self._values for rows in blocks)])

    # Prediction sets

    def calibrate(self, X: Any = None, y: Any = None) -> VotingModel:
        """A copy with prediction sets, or intervals; its `guarantee` says what they promise.

        X, y: rows that the model never saw, for an exact guarantee. Without them: the training rows, each judged by
        what did not see it, such as the trees of a forest that did not draw it.
        """
        blocks, codes, exact = self._judge(X, y)
        if self.regression:
            scores = np.array([self._score(*each) for each in zip(self._votes(blocks), exact, strict=True)])
            scores = scores[~np.isnan(scores).any(axis=1)]
            calibration: tuple[Any, ...] = tuple(map(IntervalCalibration, scores.T)) if len(scores) else ()
        else:
            p = self._sums(blocks)
            voted = p.any(axis=1)
            scores = np.where(codes < 0, np.inf, -p[np.arange(len(p)), codes])[voted]  # unknown labels fit worst
            calibration = (Calibration(scores, tolerance=_ROUNDING, table=-p[voted]),) if len(scores) else ()
        if len(scores) == 0:
            raise CalibrationError("every part of the model saw every training row; give X and y of new rows")
        return replace(self, calibration=calibration, guarantee=OWN if X is None else EXACT)

    def _judge(self, X: Any, y: Any) -> tuple[Iterator[csr_array], Ints, Floats]:
        """Votes on rows with known outcomes: blocks, codes (n,), numbers (n, T); without X, the training rows."""
        if (X is None) != (y is None):
            raise InputError("X and y belong together; got one of them; give both, or neither for the training rows")
        if X is not None:
            return self.weights(X), *read_known(self.target, y, len(y), strict=False)
        return self.own_weights(), self.references.labels.numpy(), self._values

    def conformal(self, X: Any) -> ConformalPrediction:
        """p-values, prediction sets, confidence and credibility of labels; see `dwac.conformal`."""
        return self._conformal(self.predict_proba(X))

    def _conformal(self, p: Floats) -> ConformalPrediction:
        prediction: ConformalPrediction = self._calibrations()[0].predict(-p, classes=self.classes_)
        return prediction

    def _calibrations(self) -> tuple[Any, ...]:
        if not self.calibration:
            raise CalibrationError("sets and intervals need calibration; call calibrate(X, y), or calibrate(), first")
        return self.calibration

    def predict_set(self, X: Any, epsilon: float = EPSILON) -> NDArray[np.bool_]:
        """(n, K): prediction sets, as `guarantee` says."""
        return self.conformal(X).label_sets(checks.epsilon(epsilon))

    def predict_interval(self, X: Any, epsilon: float = EPSILON) -> Floats:
        """(n, 2), or (n, T, 2): intervals for numbers, between quantiles of the vote; of a smoother, equally far."""
        ends = self._intervals(self.weights(X), checks.epsilon(epsilon))
        return ends[:, 0] if self.target.single else ends

    def _intervals(self, blocks: Iterable[csr_array], epsilon: float) -> Floats:
        if not self.regression:
            raise KindError("intervals are for numbers; these voters vote for labels; use predict_set")
        at = [float(each.score_at(epsilon)) for each in self._calibrations()]
        ends = [[self._ends(vote, t, score) for t, score in enumerate(at)] for vote in self._votes(blocks)]
        return np.array(ends).reshape(-1, len(at), 2)

    def _score(self, vote: tuple[Ints, Floats], true: Floats) -> Floats:
        """(T,): how badly true numbers fit: by the tails of the vote, or the error of a smoother."""
        y, w = self._values[vote[0]], vote[1]
        if self.signed:
            return np.abs(w @ y - true)
        if len(w) == 0:
            return np.full(len(true), np.nan)
        with np.errstate(divide="ignore"):
            at_most, at_least = (np.log(np.minimum(w @ side, 1.0)) for side in (y <= true, y >= true))
        beyond = np.maximum(np.maximum(y.min(axis=0) - true, true - y.max(axis=0)), 0.0)
        return tail_scores(at_most, at_least, beyond)

    def _ends(self, vote: tuple[Ints, Floats], t: int, score: float) -> tuple[float, float]:
        """The smallest and the largest number with at most this score."""
        y, w = self._values[vote[0], t], vote[1]
        if self.signed:
            return float(w @ y - score), float(w @ y + score)
        (log_tail, beyond), order = tails_of(score), np.argsort(y, kind="stable")
        ends = []
        for way in (order, order[::-1]):
            reached = np.searchsorted(np.cumsum(w[way]), np.exp(log_tail) * (1 - _ROUNDING))
            ends.append(y[way[min(int(reached), len(w) - 1)]])
        return float(ends[0] - beyond), float(ends[1] + beyond)

    # Explanations

    def explain(self, X: Any, k: int = 5, *, epsilon: float = EPSILON) -> Explanations[Any]:
        """Why each row gets its label or number: the k heaviest voters, how few decide, and whose removal changes it.

        Removal takes votes away and leaves the weights of others: nothing is fitted again. A distance is √(-log w).
        """
        if self.signed:
            raise KindError("explanations are by shares of a vote; weights here may be negative; use contributions(X)")
        blocks, k, epsilon = list(self.weights(X)), checks.positive_int(k, "k"), checks.epsilon(epsilon)
        sums, votes = self._sums(blocks), list(self._votes(blocks))
        records: list[Any] = [None] * len(votes) if self.records is None else pd.DataFrame(X).to_dict("records")
        known: Any = None
        if self.calibration:
            known = self._intervals(blocks, epsilon) if self.regression else self._conformal(sums)
        explain_row = self._explain_number if self.regression else self._explain_label
        rows = enumerate(zip(votes, sums, records, strict=True))
        every = [explain_row(self._set(vote), k, own, known, row, epsilon, record) for row, (vote, own, record) in rows]
        return Explanations(every, ids_of(X, len(votes)))

    def _explain_label(
        self, voters: ReferenceSet, k: int, p: Floats, known: Any, row: int, epsilon: float, record: Any
    ) -> Any:
        names, h = self.target.plain_names, torch.zeros(1, 1, dtype=torch.float64)
        options: dict[str, Any] = {"epsilon": epsilon, "record": record}
        if known is not None:
            options["p_values"] = dict(zip(names, known.p_values[row].tolist(), strict=True))
            options |= {"confidence": float(known.confidence[row]), "credibility": float(known.credibility[row])}
        near = voters.nearest(h, min(k, len(voters)))
        heaviest = nearest_voters(near, 0, 0.0, [names[code] for code in near.labels[0]], self.records)
        source = Source(names, self.records, None, self._texts(voters), record)
        votes = LabelVotes(voters, h[0], int(_first_largest(p[None])[0]))
        return make_explanation(votes, source, p, heaviest, private=False, **options)

    def _explain_number(
        self, voters: ReferenceSet, k: int, mean: Floats, known: Any, row: int, epsilon: float, record: Any
    ) -> Any:
        options: dict[str, Any] = {
            "records": self.records,
            "shown": [{"record": record}],
            "descriptions": self._texts(voters),
            "names": self.target.plain_names,
            "single": self.target.single,
            "epsilon": epsilon,
        }
        if known is not None:
            options |= {"intervals": known[row][None], "guarantee": 1 - epsilon if self.guarantee == EXACT else 0.0}
        explanation = explain_numbers(voters, torch.zeros(1, 1, dtype=torch.float64), k=k, **options)[0]
        return replace(explanation, prediction=float(mean[0]) if self.target.single else tuple(mean.tolist()))

    def _set(self, vote: tuple[Ints, Floats]) -> ReferenceSet:
        """The voters on one row, at the distances √(-log w) from it, in the groups of all voters."""
        silent = np.ones(len(self.references), dtype=bool)
        silent[vote[0]] = False
        self.references.groups  # noqa: B018 - computed once, of all voters
        distances = torch.as_tensor(np.sqrt(-np.log(np.minimum(vote[1], 1.0))))[:, None]
        return set_of(replace(self.references.voters.removed(np.flatnonzero(silent)), embeddings=distances))

    @cached_property
    def _descriptions(self) -> GroupTexts | None:
        groups = self.references.groups
        return None if self.records is None else describe(self.records, groups.of, len(groups), {})

    def _texts(self, voters: ReferenceSet) -> GroupTexts | None:
        """What sets the groups apart that have a voter among these."""
        places = self.references.voters.positions(voters.ids.tolist())
        known = self._descriptions
        return None if known is None else known.take(np.unique(self.references.groups.of[places]).tolist())

    def contributions(self, X: Any, k: int = 5) -> list[pd.DataFrame]:
        """For each row, the k largest of weight × number: over all examples, they add up to `predict`.

        Columns: id, weight, number, contribution; of a smoother, also `without`: the prediction if it were fitted
        without this example, with the same kernel.
        """
        if not self.regression or not self.target.single:
            raise KindError("contributions are to one number; for labels and several numbers use explain")
        y, removal, tables = self._values[:, 0], getattr(self.source, "removal", None), []
        for places, w in self._votes(self.weights(X)):
            most = np.argsort(-np.abs(w * y[places]), kind="stable")[: checks.positive_int(k, "k")]
            who, own = places[most], w[most]
            table = pd.DataFrame({"id": self.references.ids[who], "weight": own, "number": y[who]})
            table["contribution"] = own * y[who]
            tables.append(table if removal is None else table.assign(without=float(w @ y[places]) - own * removal[who]))
        return tables

    # Worth, and removal

    def worth(
        self,
        X: Any = None,
        y: Any = None,
        *,
        method: str = "shapley",
        utility: str = "probability",
        tolerance: float = 1e-4,
        groups: Any = None,
    ) -> pd.DataFrame:
        """The worth of each vote for rows with known outcomes, as `DWACClassifier.worth` has it, with its arguments.

        X, y: rows that the model never saw; without them, the training rows, as in `calibrate`.
        """
        if self.signed:
            raise KindError("worth is by shares of a vote; weights here may be negative; use contributions(X)")
        votes, codes, exact = self._judge(X, y)
        blocks = list(votes)
        voted = [np.diff(rows.indptr) > 0 for rows in blocks]  # a training row may have no votes but its own
        codes, exact = codes[np.concatenate(voted)], exact[np.concatenate(voted)]
        judges, options = Judges(torch.zeros(len(codes), 0), codes, exact, codes), Options(method, utility, tolerance)
        groups = column_of_voters(self.records, groups, self.references) if isinstance(groups, str) else groups
        known = self._log_votes(rows[here] for rows, here in zip(blocks, voted, strict=True))
        return worth_by(self, judges, options, groups=groups, votes=known)

    def _log_votes(self, blocks: Iterable[csr_array]) -> Iterator[tuple[slice, torch.Tensor]]:
        """As `dwac.worth.vote_blocks`: the rows of each block, and the log of every vote on them."""
        start, size = 0, max(1, VOTES["cpu"] // len(self.references))
        for rows in blocks:
            for first in range(0, rows.shape[0], size):
                part = torch.as_tensor(rows[first : first + size].toarray()).log()
                yield slice(start, start + len(part)), part
                start += len(part)

    def silence(self, ids: Iterable[Hashable]) -> VotingModel:
        """A copy without the votes of these examples, to be calibrated again; the model is not fitted again."""
        if self.signed:
            raise KindError("weights of a smoother depend on all examples; fit it again without them")
        names, references = list(ids), copy(self.references)
        places = self.references.voters.positions(names)
        self.references.groups  # noqa: B018 - the others stay in theirs
        references.remove(names)
        kept = np.delete(np.arange(len(self.references)) if self.kept is None else self.kept, places)
        return replace(self, references=references, kept=kept, calibration=(), guarantee=None)


def _shares(rows: csr_array, start: int, *, own: bool) -> csr_array:
    """Weights as shares, 1 in sum; start: the number of the first row. own: a row may have no votes."""
    if (rows.data == 0).any():
        rows = rows.copy()  # the caller's stays as it is
        rows.eliminate_zeros()
    totals = np.asarray(rows.sum(axis=1))
    if (rows.data < 0).any() or (not own and (totals == 0).any()):
        row = start + int(np.argmin(totals))
        raise InputError(
            f"a vote needs weights of at least 0, one of them above 0; on row {row} their sum is {totals.min():.3g}; "
            "leave such rows out or, if the model is a smoother with negative weights, say signed=True"
        )
    shares = rows.data / np.repeat(np.where(totals > 0, totals, 1.0), np.diff(rows.indptr))
    return csr_array((shares, rows.indices, rows.indptr), rows.shape)


def _first_largest(p: Floats) -> Ints:
    """(n,): the place of the largest in each row, the first of several that differ by rounding alone."""
    return np.asarray((p >= p.max(axis=1, keepdims=True) - 1e-12).argmax(axis=1))


def _standardised(frame: pd.DataFrame | None, n: int) -> Floats:
    """(n, d): the columns of numbers in standard deviations from their means; zeros if there are none."""
    numbers = pd.DataFrame(index=range(n)) if frame is None else frame.select_dtypes(["number", "bool"]).astype(float)
    scaled = (numbers - numbers.mean()) / numbers.std(ddof=0).replace(0.0, 1.0)
    return np.nan_to_num(scaled.to_numpy(), posinf=0.0, neginf=0.0) if scaled.shape[1] else np.zeros((n, 1))
