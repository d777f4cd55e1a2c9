"""All numbers of a report, computed once: predictions of any kind, and how they compare with the truth."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dwac import metrics
from dwac.drawing.records import shorten
from dwac.errors import EPSILON, CalibrationWarning, InputError
from dwac.estimator import DWACClassifier, DWACRegressor
from dwac.estimator.evaluation import (
    ClassPredictions,
    Evaluation,
    LabelEvaluation,
    LabelPredictions,
    NumberEvaluation,
    NumberPredictions,
    amount,
    evaluate,
    predict,
    read_groups,
)
from dwac.estimator.observed import Observed
from dwac.estimator.preparation import row_ids, rows_of, take
from dwac.explain import privacy
from dwac.explain.base import STRANGE
from dwac.languages import numeral, say
from dwac.report.grouped import Deciding, deciding
from dwac.report.measures import Estimator, Scores, one_hot, scores, used_in_training
from dwac.report.parts import Photo, brief, labels_of
from dwac.report.wrong_labels import label_issues
from dwac.tasks import read_labels, read_numbers
from dwac.tasks.classes import encode_known

Floats = NDArray[np.float64]

EPSILONS = (0.01, 0.05, 0.1, 0.2)
_GRID = np.linspace(0.005, 0.5, 100)
_LEVEL = 0.99  # how often chance leaves the coverage of valid sets in its range


@dataclass(frozen=True, eq=False)
class Findings:
    """A model's predictions on test examples, and what follows from them, for any kind of target."""

    clf: Estimator
    X: Any
    ids: pd.Index[Any]
    truth: Any  # as codes (n,) of classes, a table (n, L) of labels, or numbers (n, T)
    predictions: Any  # of the same kind
    outside: Any  # predictions on out-of-distribution examples, or None
    result: Any  # how predictions compare with the truth
    observed: Observed  # the same examples
    language: str | None = field(default=None, kw_only=True)  # of explained cases
    tolerance: ClassVar[float] = 0.0  # the largest error of a typical prediction

    @classmethod
    def of(
        cls,
        clf: Any,
        X: Any,
        y: Any,
        *,
        ids: Iterable[Hashable] | None = None,
        unlike: Any = None,
        epsilon: float = EPSILON,
        private: bool | None = None,
        by: Any = None,
        costs: Any = None,
        **more: Any,
    ) -> Self:
        """Predict test examples X, compare them with the truth y, and predict out-of-distribution examples `unlike`.

        private: show only labels and rounded numbers; the default for a model saved without its training examples.
        by, costs: the groups to compare and the costs of errors, as for `evaluate` of an estimator. more: other fields.
        """
        check_is_fitted(clf, "model_")
        if isinstance(X, Observed):
            if not X.readable.all():
                bad = int((~X.readable).sum())
                raise InputError(f"observed rows must all be readable; {bad:,} of {len(X):,} are not; give X itself")
            observed, X = X, X.rows.X
        else:
            X = rows_of(list(X) if isinstance(X, tuple) and clf.encoder_.kind != "module" else X)
            observed = clf.observe(X, private=private)
        predictions = predict(clf, observed, private=private)
        outside = None if unlike is None else predict(clf, unlike, private=private)
        groups = None if by is None else read_groups(by, X, len(predictions), clf.legend_)
        result = evaluate(predictions, y, epsilon, by=groups, costs=costs)
        names, readable = row_ids(X, ids, len(predictions)), predictions.readable
        truth = cls._truth(clf, y, len(readable))[readable]
        if result.unreadable:
            rows = np.flatnonzero(readable)
            X, names, predictions, observed = take(X, rows), names[rows], predictions.part(rows), observed.take(rows)
        outside = None if outside is None or not outside.readable.any() else outside.part(outside.readable)
        return cls(clf, X, names, truth, predictions, outside, result, observed, **more)

    @staticmethod
    def _truth(clf: Any, y: Any, n: int) -> Any:
        """The truth y of n examples, as stored in the findings."""
        raise NotImplementedError

    @property
    def private(self) -> bool:
        """Whether only labels and rounded numbers are shown."""
        return bool(self.predictions.private)

    def count(self, n: int) -> int:
        """A number of training examples; rounded if private."""
        return privacy.count(n) if self.private else n

    @property
    def typicality(self) -> Floats | None:
        """(n,); None if the model is not calibrated."""
        values: Floats | None = self.predictions.typicality
        return values

    @property
    def typicality_outside(self) -> Floats | None:
        """Typicality of the out-of-distribution examples, if given."""
        values: Floats | None = None if self.outside is None else self.outside.typicality
        return values

    @cached_property
    def h(self) -> NDArray[Any]:
        """(n, d): embeddings of the test examples."""
        return np.asarray(self.predictions.h.cpu().numpy())

    @cached_property
    def in_training(self) -> NDArray[np.bool_]:
        """(n,): which test examples were used in training, although they should be new.

        Calibration rows are allowed, unless they were trained on (cross-fitting): accuracy is fair on them.
        """
        known = used_in_training(self.clf, self.ids, self.h)
        return known if self.clf.cross_fitted_ else known & ~self.ids.isin(self.clf.calibration_ids_)

    @property
    def represented(self) -> bool:
        """Whether representatives vote for all training examples."""
        return self.clf.references_.voters.represents

    @property
    def n_examples(self) -> int:
        """Number of training examples that vote or are represented; rounded if private."""
        return self.count(round(float(self.clf.references_.sizes.sum())))

    @property
    def agreement(self) -> metrics.Agreement | None:
        """How often representatives predict the same label as all examples; rounded if private, None if all vote."""
        known = self.clf.agreement_
        return privacy.agreement(known) if known is not None and self.private else known

    @property
    def auroc(self) -> float | None:
        """How often a test example is more typical than an out-of-distribution one."""
        if self.typicality is None or self.typicality_outside is None:
            return None
        return metrics.ood_scores(self.typicality, self.typicality_outside).auroc

    def chance(self, epsilon: float) -> tuple[float, float] | None:
        """The range of coverage that chance allows valid sets or intervals; None if it is not known.

        It is not known if calibration is by class or group.
        """
        if getattr(self.clf, "class_conditional", False) or self.clf.fitted_.settings.within is not None:
            return None
        return metrics.coverage_interval(epsilon, len(self.clf.calibration_y_), len(self.truth), _LEVEL)

    @property
    def deciding(self) -> Deciding | None:
        """How many groups and voters decide a label; None unless classes are predicted."""
        return None

    @property
    def strange(self) -> NDArray[np.bool_]:
        """(n,): which test examples are unlike anything the model has learned from; all False if unknown."""
        return np.zeros(len(self.truth), dtype=bool) if self.typicality is None else self.typicality <= STRANGE

    @property
    def unusual(self) -> list[int]:
        """All rows, the least typical first."""
        return [] if self.typicality is None else np.argsort(self.typicality, kind="stable").tolist()

    @property
    def errors(self) -> NDArray[Any]:
        """(n,): how wrong each prediction is; 0 if it is right."""
        raise NotImplementedError

    def answer(self, row: int) -> tuple[str, str]:
        """What is predicted for a row, and how it compares with the truth, in words."""
        raise NotImplementedError

    def example(self, row: int) -> Photo | str:
        """A test example, in a cell of a table."""
        records = self.clf.encoder_.records(take(self.X, np.array([row]))).to_dict("records")
        return brief(records[0] if records else None, legend=self.clf.legend_)

    def cases(self, most: int) -> dict[str, list[int]]:
        """Rows of typical, doubtful and wrong predictions, each once."""
        errors = self.errors
        wrong = [row for row in np.argsort(-errors, kind="stable").tolist() if errors[row]][:most]
        doubtful = [row for row in self.unusual if row not in wrong][:most]
        trust = -errors if self.typicality is None else self.typicality
        usual = np.argsort(np.abs(trust - np.median(trust)), kind="stable").tolist()
        typical = [row for row in usual if errors[row] <= self.tolerance and row not in (*wrong, *doubtful)]
        return {"typical": typical[:most], "doubtful": doubtful, "wrong": wrong}


@dataclass(frozen=True, eq=False)
class ClassFindings(Findings):
    """Predicted classes, and the true ones."""

    clf: DWACClassifier
    predictions: ClassPredictions
    outside: ClassPredictions | None
    result: Evaluation
    known_issues: pd.DataFrame | None = None  # suspicious labels, if already computed

    @staticmethod
    def _truth(clf: Any, y: Any, n: int) -> NDArray[np.int64]:
        return encode_known(y, n, clf.classes_)

    @property
    def right(self) -> NDArray[np.bool_]:
        """(n,): whether the predicted label is the true one."""
        return np.asarray(self.predictions.codes == self.truth)

    @property
    def probability(self) -> Floats:
        """(n,): probability of the predicted label."""
        return np.asarray(self.predictions.probabilities.max(axis=1))

    @cached_property
    def calibration(self) -> metrics.CalibrationTest:
        """Calibration errors, and those of chance alone with the same numbers of examples and classes."""
        return metrics.calibration_test(self.truth, self.predictions.probabilities)

    @cached_property
    def deciding(self) -> Deciding | None:
        """How many groups and voters decide a label; None if private."""
        return None if self.private else deciding(self.clf, self.h)

    @cached_property
    def issues(self) -> pd.DataFrame:
        """Suspicious labels: those given, else those that the model's own votes find among its training examples."""
        return label_issues(self.clf) if self.known_issues is None else self.known_issues

    def set_curve(self, epsilons: Iterable[float] | None = None) -> pd.DataFrame | None:
        """Coverage and set sizes per ε, by default for every ε that can exclude a label; None if not calibrated."""
        trust = self.predictions.conformal
        if trust is None:
            return None
        least = 1 / (len(self.clf.calibration_y_) + 1)  # no smaller ε excludes a label
        grid = [e for e in _GRID if e >= least] if epsilons is None else epsilons
        return metrics.set_curve(self.truth, trust.p_values, grid)

    @cached_property
    def scores(self) -> Scores:
        """Precision, recall, F1 and ROC AUC by class."""
        k = len(self.predictions.classes)
        return scores(one_hot(self.truth, k), one_hot(self.predictions.codes, k), self.predictions.probabilities)

    @property
    def covered(self) -> NDArray[np.bool_] | None:
        """(n,): whether the prediction set contains the true label; None if not calibrated."""
        trust = self.predictions.conformal
        if trust is None:
            return None
        return np.asarray(trust.label_sets(self.result.epsilon)[np.arange(len(self.truth)), self.truth])

    @property
    def commonest(self) -> tuple[Any, float]:
        """The most frequent class of the test examples, and its share."""
        counts = np.bincount(self.truth, minlength=len(self.predictions.classes))
        return self.predictions.classes.tolist()[counts.argmax()], float(counts.max() / counts.sum())

    def confusions(self, most: int = 8) -> list[tuple[Any, Any, int]]:
        """(true, predicted, how often) of the most frequent mistakes."""
        wrong = pd.DataFrame({"true": self.truth, "predicted": self.predictions.codes})[~self.right]
        counts = wrong.value_counts().head(most)
        names = self.predictions.classes.tolist()
        pairs = zip(counts.index.tolist(), counts.tolist(), strict=True)
        return [(names[true], names[predicted], count) for (true, predicted), count in pairs]

    def answer(self, row: int) -> tuple[str, str]:
        """The label predicted for a row, and how it compares with the truth."""
        names, verdict = self.predictions.classes.tolist(), say("✓ correct")
        if not self.right[row]:
            verdict = say("✗ wrong: the label is {label}", label=shorten(names[self.truth[row]]))
        return shorten(names[self.predictions.codes[row]]), verdict

    def cases(self, most: int = 3) -> dict[str, list[int]]:
        """Rows of typical, doubtful and wrong predictions."""
        wrong = [int(row) for row in np.argsort(-self.probability, kind="stable") if not self.right[row]][:most]
        return {"typical": self._typical(most), "doubtful": self._doubtful(most, wrong), "wrong": wrong}

    def _typical(self, most: int) -> list[int]:
        """Correct predictions of median typicality, from different classes first."""
        trust = self.probability if self.typicality is None else self.typicality
        right = np.flatnonzero(self.right)
        if len(right) == 0:
            return []
        right = right[np.argsort(np.abs(trust[right] - np.median(trust[right])), kind="stable")]
        firsts = np.sort(np.unique(self.truth[right], return_index=True)[1])
        ordered = np.concatenate([right[firsts], np.delete(right, firsts)])
        return [int(row) for row in ordered[:most]]

    def _doubtful(self, most: int, but: list[int]) -> list[int]:
        """The least typical examples, and predictions with the least confidence."""
        trust = self.predictions.conformal
        strange = np.argsort(self.probability if self.typicality is None else self.typicality, kind="stable")
        unsure = np.argsort(self.probability if trust is None else trust.confidence, kind="stable")
        rows = [int(row) for row in strange if row not in but][: -(-most // 2)]
        return rows + [int(row) for row in unsure if row not in [*but, *rows]][: most - len(rows)]


@dataclass(frozen=True, eq=False)
class LabelFindings(Findings):
    """Predicted labels, and the true ones, (n, L)."""

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
    def errors(self) -> NDArray[np.int64]:
        """(n,): how many labels are wrong."""
        return np.asarray((self.predictions.has != self.truth).sum(axis=1))

    def answer(self, row: int) -> tuple[str, str]:
        """The labels predicted for a row, and how they compare with the truth."""
        names, has, truth = self.clf.classes_, self.predictions.has[row], self.truth[row]
        verdict = say("✓ correct")
        if (has != truth).any():
            verdict = say("✗ wrong: has {labels}", labels=labels_of(names[truth].tolist()))
        return labels_of(names[has].tolist()), verdict


@dataclass(frozen=True, eq=False)
class NumberFindings(Findings):
    """Predicted numbers, and how they compare with the true ones (n, T)."""

    clf: DWACRegressor
    truth: Floats
    predictions: NumberPredictions
    outside: NumberPredictions | None
    result: NumberEvaluation
    tolerance: ClassVar[float] = np.inf  # no number is exact

    @staticmethod
    def _truth(clf: Any, y: Any, n: int) -> Floats:
        del clf
        return np.asarray(read_numbers(y, n)[0])

    @property
    def names(self) -> list[str]:
        """(T,): the names of the numbers; a single one may have no known name."""
        return ["the number" if name is None else shorten(name) for name in self.predictions.names]

    @property
    def values(self) -> Floats:
        """(n, T): predictions; rounded if private."""
        return self.predictions.shown

    @property
    def errors(self) -> Floats:
        """(n,): the largest absolute error of each row, in units of the spread of each number."""
        return np.asarray((np.abs(self.values - self.truth) / self.clf.target_.scale[1]).max(axis=1))

    def answer(self, row: int) -> tuple[str, str]:
        """The numbers predicted for a row, and how they compare with the truth."""
        predicted, true = self.values[row], self.truth[row]
        known = (
            ", ".join(numeral(amount(each)) for each in some) for some in (predicted, true, np.abs(true - predicted))
        )
        shown, right, off = known
        return shown, say("true: {true}; off by {off}", true=right, off=off)

    def chance(self, epsilon: float) -> tuple[float, float] | None:
        """As for others; None for several numbers, because the intervals of a row depend on each other."""
        return super().chance(epsilon) if len(self.names) == 1 else None

    @property
    def calibrated(self) -> bool:
        """Whether there are intervals."""
        return self.result.coverage is not None

    def intervals(self, epsilon: float) -> Floats | None:
        """(n, T, 2): intervals at any ε; None without calibration."""
        with warnings.catch_warnings():  # the page shows if there are too few rows for an ε
            warnings.simplefilter("ignore", CalibrationWarning)
            return self.predictions.intervals(epsilon)
