"""The common base of `DWACClassifier` and `DWACRegressor`: a thin interface to a `Fitted` model."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dwac import _checks as checks
from dwac import storage
from dwac.conformal.decisions import CONFIDENCE
from dwac.drawing.legend import NO_LEGEND, Legend
from dwac.encoders import Encoder
from dwac.encoders.tabular import TabularEncoder
from dwac.errors import EPSILON, InputError, PrivacyError
from dwac.estimator import editing, saving
from dwac.estimator.certificate import Certificate
from dwac.estimator.containers import native
from dwac.estimator.fit import fit
from dwac.estimator.fit.sharded import forget_exactly
from dwac.estimator.fitted import Fitted, StreamReport
from dwac.estimator.inquiry import RowInquiry, find_recourse, measure_importance
from dwac.estimator.observed import Observed, has_columns, input_distances, judge_rows, observe, rows_for
from dwac.estimator.preparation import Examples, FitInput
from dwac.estimator.readable import warn_of
from dwac.estimator.settings import FitSettings, Training, flat, refuse_moved
from dwac.explain import Explanations, Importance, Letter, Recourse
from dwac.explain.descriptions import GroupTexts
from dwac.explain.letters import make_letter
from dwac.explain.many import ids_of
from dwac.explain.recourse import Constraints
from dwac.explain.ways import find_ways
from dwac.metrics import Agreement
from dwac.nn import WeightedAverage, batches
from dwac.nn.batches import Inputs
from dwac.reference import ReferenceSet
from dwac.tasks.base import Evidence, Reasons
from dwac.tasks.by_group import read_groups
from dwac.tasks.decisions import Decisions, control_of, decide_rows, list_strangers, stake_of
from dwac.tasks.goals import goal_of
from dwac.tasks.sets import sets_of
from dwac.tasks.shift import ShiftReport, shift_report

if TYPE_CHECKING:
    from dwac.estimator.export import Exported

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_NESTED = "training__"


class DWACEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn estimator that holds a `Fitted` model; `fitted_` is that value."""

    training: Training | None
    unknown: str
    device: str
    verbose: bool | str
    fitted_: Fitted

    # Fitting

    def check_settings(self) -> None:
        """Raise an error that names the first invalid setting; `fit` does so, too."""
        self._settings().check()

    def _settings(self) -> FitSettings:
        """The parameters as they are now."""
        return FitSettings(regression=isinstance(self, RegressorMixin), **flat(self.get_params(deep=False)))

    def set_params(self, **given: Any) -> Self:
        """Change parameters as in scikit-learn; `training__learning_rate=…` changes one setting of `training`.

        Other estimators with the same `Training` object do not change.
        """
        refuse_moved(given)
        changed = {name.removeprefix(_NESTED): given.pop(name) for name in list(given) if name.startswith(_NESTED)}
        super().set_params(**given)
        if changed:
            self.training = replace(self.training or Training(), **changed)
        return self

    def _fit(self, rows: FitInput, names: Any) -> Self:
        """Fit and keep the result; a fit that fails or is interrupted leaves the estimator as it was.

        names: what columns and codes are called, as for `fit`.
        """
        legend, X = NO_LEGEND if names is None else Legend.read(names), rows.X
        table = X if isinstance(X, pd.DataFrame) else None
        if isinstance(X, np.ndarray) and X.ndim == 2:
            table = pd.DataFrame(X)
        if table is not None and legend:
            legend = legend.of(table.columns, None if legend is names else table)  # one that was read is checked
        fitted = fit(self._settings(), rows)
        if table is None and legend:
            legend = legend.of(_columns_of(fitted))
        self.fitted_ = replace(fitted, legend=legend or fitted.legend, target_columns=_names_of(rows.y))
        return self

    @property
    def partial_fit(self) -> Never:
        """Deliberately missing: hasattr is False, and the error says what to do instead (decision 0024)."""
        raise AttributeError(
            f"{type(self).__name__} has no partial_fit: trained batch by batch, a network forgets what it read first, "
            "and calibration rows must be drawn from all rows. Use fit(batches) for more rows than memory holds, and "
            "add_references(X, y) to let more examples vote without training; see docs/decisions/0024-python-habits.md"
        )

    # The fitted model

    @property
    def _fitted(self) -> Fitted:
        """The fitted model; an error if there is none."""
        if "fitted_" not in vars(self):
            check_is_fitted(self, "fitted_")
        return self.fitted_

    @property
    def model_(self) -> WeightedAverage:
        """The network."""
        return self.fitted_.model

    @property
    def encoder_(self) -> Encoder:
        """The fitted encoder."""
        return self.fitted_.encoder

    @property
    def target_(self) -> Any:
        """The target: a `dwac.tasks.Target`."""
        return self.fitted_.target

    @property
    def history_(self) -> pd.DataFrame:
        """One row per epoch; `history_.attrs["ended"]` says why training ended."""
        return self.fitted_.history

    @property
    def references_(self) -> ReferenceSet:
        """The training examples that vote: their embeddings, labels (as codes into `classes_`) and ids."""
        return self._fitted.references

    @property
    def examples_(self) -> Examples:
        """The records of the voters, by id."""
        return self.fitted_.examples

    @property
    def private_(self) -> bool:
        """Whether the model was saved without its training examples; its answers are then private by default."""
        return self.fitted_.private

    @property
    def deletions_(self) -> list[Certificate]:
        """Certificates of exact deletions, as `forget` made them."""
        return list(self.fitted_.deletions)

    @property
    def stream_(self) -> StreamReport:
        """What was measured on all rows of a stream, and what on a sample; only models fitted on a stream have it."""
        if self.fitted_.stream is None:
            raise AttributeError(f"{type(self).__name__} was not fitted on rows that are read in batches")
        return self.fitted_.stream

    @property
    def n_features_in_(self) -> int:
        """The number of columns of a table."""
        if self.fitted_.features.n is None:
            raise AttributeError(f"{type(self).__name__} was fitted on rows without columns")
        return self.fitted_.features.n

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The names of the columns, if these are strings."""
        if self.fitted_.features.names is None:
            raise AttributeError(f"{type(self).__name__} was fitted on columns without names")
        return self.fitted_.features.names

    @property
    def validation_ids_(self) -> pd.Index[Any]:
        """The ids of the validation rows."""
        return self.fitted_.validation_ids

    @property
    def validation_y_(self) -> Ints:
        """The labels of the validation rows, as codes; empty if the model was saved with representatives alone."""
        return self.fitted_.validation.y

    @property
    def calibration_ids_(self) -> pd.Index[Any]:
        """The ids of the calibration rows."""
        return self.fitted_.calibration.ids

    @property
    def calibration_y_(self) -> Ints:
        """The labels of the calibration rows, as codes into `classes_`; -1 for a label that was not in training."""
        return self.fitted_.calibration.y

    @property
    def calibration_h_(self) -> torch.Tensor:
        """The embeddings of the calibration rows."""
        return self.fitted_.calibration.h

    @property
    def fingerprint_(self) -> str | None:
        """The fingerprint of the folder that the model was loaded from; None if there is none, or after an edit."""
        return self.fitted_.fingerprint

    @property
    def cross_fitted_(self) -> bool:
        """Whether every voter is also a calibration row, judged by networks that left it out."""
        return self._fitted.folds is not None

    @property
    def out_of_fold_(self) -> Floats | None:
        """(m, K): log class weights of each voter by the networks and voters that left it out; None if there are none.

        In the order of `references_`. Only a cross-fitted model has them; they help to find wrong training labels.
        """
        folds, references = self._fitted.folds, self.references_
        return None if folds is None or references.voters.represents else folds.out_of_fold(references)

    @property
    def shift_(self) -> ShiftReport | None:
        """How `calibrate_for` weighs the calibration rows; None if they all count the same."""
        return shift_report(self._fitted)

    @property
    def agreement_(self) -> Agreement | None:
        """How often the representatives predict what all voters would, on the calibration rows; None if all vote.

        A number counts as the same within a tenth of the standard deviation of its votes.
        """
        return self._fitted.agreement

    @property
    def legend_(self) -> Legend:
        """What columns and codes are called, as `fit(names=…)` was given."""
        return self._fitted.legend

    @property
    def descriptions_(self) -> GroupTexts | None:
        """What sets each group of voters apart, in words; None where there is nothing to say."""
        return self._fitted.descriptions

    # Rows

    def _check_columns(self, X: Any) -> None:
        """Raise an error unless X has the columns of fit."""
        fitted = self.fitted_
        if has_columns(X, fitted.encoder) and not fitted.features.match(X):
            validate_data(self, X, reset=False, skip_check_array=True)

    def observe(self, X: Any, *, private: bool | None = None, within: Any = None, local: bool = False) -> Observed:
        """The rows of X, read, encoded and embedded once; within: their groups, and local: as for `predict_set`."""
        check, unknown = self._check_columns, self.unknown
        return observe(self._fitted, X, unknown=unknown, private=private, check=check, within=within, local=local)

    def _read(self, X: Any) -> tuple[Any, Inputs]:
        """The rows of X, and the tensors that the network takes; an error names a column or row that does not fit."""
        X = rows_for(X, self._fitted.encoder)
        self._check_columns(X)
        return X, judge_rows(self.fitted_, X, self.unknown, private=False).inputs

    def unreadable(self, X: Any) -> dict[int, str]:
        """The numbers of the rows of X that cannot be read, and why."""
        return {row: why for row, why in enumerate(self.observe(X).reasons) if why is not None}

    def embed(self, X: Any) -> NDArray[np.float32]:
        """(n, d): the embeddings used in the vote: of all networks of the ensemble, with raw features if they count."""
        return batches.embed(self._fitted.model, self._read(X)[1]).cpu().numpy()

    def transform(self, X: Any) -> NDArray[np.float32]:
        """(n, d): the embeddings, as `embed` gives them, so that an estimator can be a pipeline step.

        Follows `set_output`: a pandas or polars DataFrame on request. The embeddings of training rows were learned
        with their labels: hold rows out to train another model on top of them.
        """
        return self.embed(X)

    @property
    def _n_features_out(self) -> int:
        return int(self.model_.vector_size)

    def embed_with_novelty(self, X: Any) -> tuple[NDArray[np.float32], Floats]:
        """The embeddings, (n, d), and the novelty of the rows, as in `evidence`."""
        inputs = self._read(X)[1]
        h = batches.embed(self.model_, inputs)
        return h.cpu().numpy(), self.fitted_.novelty_of(h, inputs)

    # Votes

    def votes(self, X: Any) -> tuple[Floats, Reasons]:
        """(log_class_weights (n, K), reasons (n,)): a reason says why a row could not be read, and is None for others.

        A row that could not be read, such as an empty text or a damaged file, has NaN.
        """
        observed = self.observe(X)
        return observed.votes, observed.reasons

    def evidence(self, X: Any) -> Evidence:
        """The same, with everything that p-values and typicality need; an unreadable row has novelty inf."""
        return self.observe(X).evidence()

    # Sets and explanations

    @property
    def sets_(self) -> Any:
        """The calibrated prediction sets or, for numbers, intervals of the model; see `dwac.tasks.sets`."""
        return sets_of(self._fitted, self)

    def _explain(
        self, X: Any, k: int, epsilon: float, private: bool | None, within: Any = None, **options: Any
    ) -> Explanations[Any]:
        """The explanations of the rows of X; options: as for `explain_of`."""
        fitted, k, epsilon = self._fitted, checks.positive_int(k, "k"), checks.epsilon(epsilon)
        private = fitted.private if private is None else private
        observed = self.observe(X, private=private, within=within)
        sets, readable = self.sets_, observed.readable
        explanations: Iterator[Any] = iter([])
        if len(observed.h):
            rows: dict[str, Any] = {
                "shown": observed.shown(),
                "X": observed.rows.X,
                "novelty": observed.novelty[readable],
                "within": None if observed.within is None else observed.within[readable],
            }
            explanations = iter(self.explain_of(observed.h, k, epsilon=epsilon, private=private, **rows, **options))
        all_rows = [
            next(explanations) if why is None else sets.unreadable(why, private=private, **options)
            for why in observed.reasons
        ]
        return Explanations(all_rows, ids_of(X, len(all_rows)))

    def explain_of(
        self,
        h: Any,
        k: int = 5,
        *,
        epsilon: float = EPSILON,
        private: bool | None = None,
        shown: Any = None,
        references: ReferenceSet | None = None,
        descriptions: Sequence[str | None] | None = None,
        X: Any = None,
        novelty: Floats | None = None,
        **options: Any,
    ) -> list[Any]:
        """The same as `explain` from embeddings (n, d) that are already computed.

        shown: each example as a person would see it, as for `dwac.explain.explain`. references: the voters, and
        descriptions of their groups; by default all. X: the rows, to show the members of a group that look like them.
        novelty: as in `evidence`, for their typicality. options: for a classifier, `fold_votes`, by default computed
        from h, and `label`, as in `explain`; for all, `within`: the groups of the rows, for guarantees within each.
        """
        fitted = self._fitted
        private = fitted.private if private is None else private
        typicality = None
        if novelty is not None and fitted.calibrated:
            typicality = fitted.typicality(novelty, private=private)
        sets, alike = self.sets_, None if X is None else input_distances(fitted, X)
        inquire = None
        if X is not None:
            voting = fitted if references is None else fitted.edited(references)
            inquire = partial(RowInquiry, voting, sets_of(voting, self), self.unknown, X, alike, private, shown=shown)
        explanations: list[Any] = sets.explain(
            h,
            references,
            descriptions,
            k=k,
            epsilon=epsilon,
            typicality=typicality,
            records=fitted.examples,
            private=private,
            shown=shown,
            alike=None if private else alike,
            inquire=inquire,
            agreement=fitted.agreement,
            **options,
        )
        return explanations

    def recourse(
        self,
        X: Any,
        label: Any,
        *,
        frozen: Collection[Any] = (),
        only: Collection[Any] | None = None,
        bounds: Mapping[Any, Any] | None = None,
        tied: Sequence[Collection[Any]] = (),
        least: bool = False,
        k: int = 3,
        probability: float | None = None,
        alone: bool = False,
        epsilon: float = EPSILON,
        private: bool | None = None,
    ) -> Explanations[Recourse]:
        """The smallest changes of each row that give it a label, towards real training examples with that label.

        Columns take the values of a precedent, a voter that the model gives the label. Of the sets of columns that
        are enough, the smallest are sought: in all combinations, or step by step if more than 11 columns may change.
        Every answer is checked with the model. A way to a row unlike the training data is marked and comes last.

        Args:
            label: the wanted label; for several labels one of them, or "not …"; for a number a range (low, high), or
                {name: range} if there are several.
            frozen: columns that cannot change. only: columns that can; by default all.
            bounds: columns that can only "grow" or "fall", or have to stay in a range: {"income": "grow", "debt":
                (0, 500)}.
            tied: groups of columns that change together, such as [["amount", "price"]].
            least: change numbers and dates only as far towards the precedent as needed. By default they take its
                values, so that each is one that occurs, and the change is not at the edge of the decision.
            k: how many ways to give at most, with different columns if possible.
            probability: the least probability of the label; by default it has to win. alone: the prediction set at
                `epsilon` must hold nothing else (for a number: its interval must lie in the range).
            private: give the names of columns only, as in `explain`.

        Returns:
            A list with one `dwac.explain.Recourse` per row; its `ways` are empty if there is none, and it then says
            which columns stand in the way.
        """
        fitted, k, epsilon = self._fitted, checks.positive_int(k, "k"), checks.epsilon(epsilon)
        private = fitted.private if private is None else private
        if private and bounds:
            raise PrivacyError(
                "a private answer takes no bounds: with many of them anybody could find the values of training "
                "examples; use frozen and only"
            )
        observed, sets = self.observe(X, private=private), self.sets_
        goal = goal_of(sets, label, probability, epsilon if alone else None)
        limits = Constraints(frozen, only, bounds, tied)
        ways = partial(find_ways, goal=goal, limits=limits, k=k, least=least)
        return Explanations(
            find_recourse(sets, self.unknown, observed, goal, ways, private=private), ids_of(X, len(observed))
        )

    def letter(self, X: Any, wanted: Any = None, **options: Any) -> Letter:
        """One page of plain words for the person whom the only row of X is about; print it, or `write` it to a file.

        It says the decision, the main reasons, what would change it, how sure the program is, and whom to ask; if the
        row is atypical or its prediction set does not hold exactly one label, that a person decides.

        Args:
            wanted: the label or range that the person would want, as for `recourse`; by default the runner-up.
            options: sender, contact; case, the id of the row; words, the decision in words by label, or a CSV file with
                the columns label and words; risk, to leave to a person what `decide` hands over; about, the label that
                the letter is about, of several; epsilon, private; and the limits of `recourse`, such as frozen.
        """
        return make_letter(self, X, wanted, **options)

    def importance(
        self,
        X: Any,
        *,
        label: Any = None,
        name: Any = None,
        tied: Sequence[Collection[Any]] = (),
        private: bool | None = None,
        seconds: float | None = None,
        random_state: int = 0,
    ) -> Importance:
        """How much each column contributes to predictions: the mean size of its contributions over the rows of X.

        Every row is compared with a voter drawn at random from those with another label, or for a number from all;
        contributions are those of `reasons` against it. (The voter most like a row shares much with it, so columns
        that decide on average would contribute little.) That takes about 30 ms per row, so give a sample.

        Args:
            label: contributions are to the log-odds of this label against each row's next one; by default the second
                of two classes, and otherwise the label of each row. For several labels it must be given.
            name: which of several numbers. tied: columns that move together. private: round contributions, as in
                `explain`. seconds: after this time no further row is compared. random_state: of the draws.
        """
        private = self._fitted.private if private is None else private
        limits = {"tied": tied, "seconds": seconds, "random_state": random_state}
        explain_rows = partial(self._explain, X, 1, EPSILON, False)
        return measure_importance(self._fitted, explain_rows, label, name, private=private, **limits)

    # Decisions

    def decide(
        self,
        X: Any,
        risk: float = 0.05,
        *,
        measure: str = "error",
        label: Any = None,
        tolerance: Any = None,
        confidence: float = CONFIDENCE,
        private: bool | None = None,
    ) -> Decisions:
        """Decide as many rows of X as possible with few errors among them, and hand the others over, with why.

        Among decided rows, at most a share `risk` has an error, for new rows like those of fit. This holds with
        probability `confidence` over draws of the calibration rows, whose errors are counted (exact binomial tests; for
        a cross-fitted model, whose calibration rows also vote, it is measured, not proved). A row's decision does not
        depend on the other rows of X.

        Args:
            measure: what counts: any "error", or "false positives" or "false negatives" of a label alone.
            label: that label; by default the second of two classes. For several labels, an error is any wrong label or,
                with a label, that one.
            tolerance: for numbers: an error is being off by more than this; one number, or one for each.
            private: round expected losses, as in `explain`, before rows are decided by them.
        """
        fitted, sets = self._fitted, self.sets_
        private = fitted.private if private is None else private
        stake = stake_of(sets, measure, label, tolerance, private=private)
        rule = control_of(fitted, stake).rule(risk, confidence)
        observed = X if isinstance(X, Observed) else self.observe(X, private=private)
        ids = pd.Index(ids_of(X, len(observed)), tupleize_cols=False)
        return decide_rows(sets, observed, stake, rule, ids)

    def strangers(self, X: Any, rate: float = 0.1) -> pd.DataFrame:
        """The rows of X that are unlike the training data: on average at most a share `rate` of the list is wrong.

        Which rows are listed depends on all of X (Benjamini and Hochberg, on typicality); many rows need many
        calibration rows. Returns id, position and typicality, the strangest first.
        """
        observed = X if isinstance(X, Observed) else self.observe(X)
        return list_strangers(self._fitted, observed, rate, ids_of(X, len(observed)), private=self.private_)

    def evaluate(
        self,
        X: Any,
        y: Any,
        *,
        by: Any = None,
        epsilon: float = EPSILON,
        costs: Any = None,
        strict: bool = True,
        within: Any = None,
    ) -> Any:
        """Measure the model on rows X with known targets y, which must be new to it; by group and by cost on request.

        The result has every number as an attribute, `groups` and `costs`; print it, show it in a notebook, or take
        `to_frame()`, `to_dict()` and `to_html()`. Rows that cannot be read are only counted.

        Args:
            by: the groups to compare: names of columns of X, or one value per row (an array, a Series, a DataFrame, or
                a mapping of names to these). Several columns are compared one by one and as intersections. A missing
                value is a group of its own; numbers and dates with more than 12 values are cut at their quartiles.
            epsilon: the error rate of prediction sets and intervals.
            costs: what a wrong label costs: {(true, decided): cost}, a DataFrame or an array (K, K) with true labels as
                rows; of several labels {label: (cost of a false positive, of a false negative)}. The decisions with the
                smallest expected cost are then compared with the predicted labels.
            strict: refuse labels that were not in training. Otherwise their rows count as wrong and not covered.
            within: the groups of the rows, for guarantees within each, if fit was given them.
        """
        observed = X if isinstance(X, Observed) else self.observe(X, within=within)
        groups = None if by is None else read_groups(by, native(observed.rows.X if observed is X else X), len(observed))
        predictions = self.sets_.predict(observed, private=self.private_)
        return predictions.evaluate(y, checks.epsilon(epsilon), strict=strict, by=groups, costs=costs)

    # Edits, without training

    def condense(self, size: int | None = None) -> Self:
        """Keep few voters: real examples, each with the votes of the examples similar to it.

        They explain a prediction in few lines, and predict in a fraction of the time. Calibration is updated, so
        prediction sets, intervals and typicality keep their guarantees: calibration rows take no part in the choice.
        (In a cross-fitted model, where every row calibrates, each fold has representatives chosen without its rows.)
        `agreement_` says how often the prediction stays the same. A saved model holds the records of the
        representatives alone; until then `forget` and `add_references` act on all examples: when a representative is
        forgotten, another takes its place.

        size: how many vote, at least one for each class, label set or bin of numbers; by default as few as validation
        rows allow: 99.5 % keep their label, or their number within a tenth of the spread of its votes, and the loss
        grows by at most 0.5 %. If no size up to a quarter of all voters achieves this, dwac warns and takes the
        smallest size with which 99 %, 98 %, 95 % or 90 % keep it.
        """
        other = copy(self)
        other.fitted_ = editing.condense(self._fitted, size)
        return other

    def add_references(self, X: Any, y: Any, *, ids: Iterable[Hashable] | None = None) -> Self:
        """Let more examples vote, without training. Calibration is updated.

        ids: names that are new to the model; by default the index of a DataFrame or Series, else new numbers.
        """
        self.fitted_ = editing.add(self._fitted, *self._read(X), y, ids)
        return self

    def forget(self, ids: Iterable[Hashable], *, exact: bool = False) -> Self:
        """Delete examples by id, for deletion requests: from votes, calibration, validation and records.

        The network is not retrained: its weights hold no example, but all examples shaped it. Statistics over all rows
        stay as well, and may contain values of the deleted ones: quantiles of each numeric column with its smallest
        and largest value, words of texts, labels, and names of categories. A category that no other voter has loses
        its name, if the model holds the records of all voters and has no shards. `exact` leaves nothing.

        Afterwards the guarantees of prediction sets, intervals and typicality hold for rows like the remaining ones. So
        do not choose by outcome what to forget: without its wrong or difficult rows, calibration is too optimistic. To
        clean the votes, use `silence` or `relabel`.

        exact: for a model with `shards`, retrain the networks that saw these rows, or rows that were forgotten earlier
        without `exact`: forget([], exact=True) retrains for those alone. The model is then, bit for bit, the one that
        `fit` gives without the rows: on the same machine and device, with the same versions. `deletions_` gets a
        certificate. If it is interrupted, the model stays as it was.
        """
        if exact:
            self.fitted_ = forget_exactly(self._fitted, ids, self.device, self.verbose)
        else:
            self.fitted_ = editing.forget(self._fitted, ids)
        return self

    def silence(self, ids: Iterable[Hashable]) -> Self:
        """Stop examples from voting, however they were chosen, and keep the guarantee of prediction sets.

        For cleaning: wrong labels, harmful examples. The rows of a cross-fitted model still calibrate, with their
        original labels and judged by the models that left them out; so the guarantee allows for new rows with errors
        as frequent as theirs. Their records are no longer shown. To undo it, give the rows to `add_references` with
        the same ids. To delete a person's data, use `forget`.
        """
        self.fitted_ = editing.silence(self._fitted, ids)
        return self

    def relabel(self, ids: Iterable[Hashable], y: Any) -> Self:
        """Let examples vote for other labels or numbers, one per id, without training.

        The rows of a cross-fitted model calibrate with their original labels, since new rows are labelled like them: so
        prediction sets keep their guarantee, whichever labels are corrected.
        """
        self.fitted_ = editing.relabel(self._fitted, ids, y)
        return self

    def recalibrate(
        self, X: Any, y: Any, *, within: Any = None, ids: Iterable[Hashable] | None = None, half: bool = False
    ) -> Self:
        """Calibrate with these rows instead of those held out by `fit`. They must not be training rows.

        Do not drop rows whose labels were not in training: they count as misses here, as they will among new rows.

        within: the groups of these rows, as for `fit`; they replace the groups given to `fit`, which belong to other
        rows. ids: as for `add_references`. half: first round the weights of the network to half precision, in which a
        folder then stores them; that takes half the space. An error, and nothing changes, unless 99.9 % of these rows
        keep their label, or their number within a tenth of the spread of its votes, and the loss grows by at most
        0.1 %.
        """
        self.fitted_ = editing.recalibrate(self._fitted, *self._read(X), y, ids, within, half=half)
        return self

    def calibrate_for(self, X: Any) -> Self:
        """A copy whose sets and intervals are for rows like X, which need no labels: calibration under covariate shift.

        Calibration rows count by how likely they are among the rows of X, which is estimated from embeddings. If labels
        depend on a row there as they do here, sets and intervals miss a share ε of rows like X, approximately: with the
        exact ratio of densities it would be at most ε. `shift_` has the effective number of calibration rows, which
        `expected_sets` uses; an error if too few are like the new rows. Typicality is as before, and `decide` refused.
        """
        observed = self.observe(X)
        warn_of(observed.reasons)
        other = copy(self)
        other.fitted_ = editing.calibrate_for(self._fitted, observed.h)
        return other

    # The page and the folder

    def explore(self, X: Any = None, y: Any = None, **options: Any) -> Any:
        """Open a local page to see and question every prediction: `dwac.explore(self, X, y, …)`."""
        from dwac import explore  # late: the explorer imports the classifier, not the other way round

        return explore(self, X, y, **options)

    def save(
        self,
        path: str | PathLike[str],
        *,
        include_examples: bool = True,
        include_members: bool = False,
        overwrite: bool = False,
    ) -> Path:
        """Write the model to a folder: settings as JSON, numbers as safetensors, training examples as Parquet.

        include_examples: False saves no training record and makes the saved model private: it only shows labels and
        rounded shares. Embeddings, labels and ids of the voters are saved, so examples can still be forgotten by id.
        (Where raw features vote, the embeddings of a table hold its numbers.) Typicality is then measured by embeddings
        alone, and may differ; nothing else does.

        include_members: for a condensed model, also save the represented examples, so that each can still be forgotten.
        By default the folder holds the representatives alone.

        overwrite: replace a model in the folder; otherwise that is an error, even if the folder is this model's own.
        """
        check_is_fitted(self, "fitted_")
        contents = saving.pack(self, include_examples=include_examples, include_members=include_members)
        return storage.write_model(path, *contents, overwrite=overwrite)

    def export(self, path: str | PathLike[str], *, epsilon: float = EPSILON, k: int = 5, X: Any = None) -> Exported:
        """Write the model with its vote to one file: .onnx, or .pt2 for torch.export; it is checked against Python.

        The file takes columns and gives what `predict`, `predict_proba` and `predict_set` give (for numbers,
        `predict_interval`), typicality, and the ids and shares of the k heaviest voters. docs/how-to/export.md has the
        names of inputs and outputs. A file .onnx needs the extra onnx: pip install 'dwac[onnx]'.

        epsilon: the error rate of the sets or intervals. X: rows to check the file with; by default training rows. A
        file whose answers differ by more than 1e-5 is refused and removed.
        """
        check_is_fitted(self, "fitted_")
        from dwac.estimator.export import export  # late: few need it

        return export(self, path, epsilon=epsilon, k=k, X=X)

    def push_to_hub(self, repo: str, X: Any = None, y: Any = None, **options: Any) -> str:
        """Upload the model folder and a model card to the Hugging Face Hub; `dwac.load` reads what this returns.

        Needs the extra `dwac[hub]` and a login (`hf auth login`, or HF_TOKEN).

        Args:
            repo: owner/name, made if it does not exist; owner/name@branch for another branch.
            X, y: test rows and their targets, on which the card's results are measured; without them it has none.
            private: whether only you may read the repository (default); a public one is refused then.
            include_examples: as for `save`; by default True, but for a public repository it must be stated. What is
                uploaded is logged before.
            card: a Markdown file instead, such as `dwac report … -o README.md` writes.
            message: of the commit. token: instead of the login. options: others are for `dwac.report.write`, such as
                purpose="…" and licence="mit".
        """
        check_is_fitted(self, "fitted_")
        from dwac.report.hub import push  # late: the card uses the classifier, not the other way round

        return push(self, repo, X, y, **options)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The settings; for a condensed model also how many vote for how many, and how often they agree with all."""
        settings: str = super().__repr__(N_CHAR_MAX)
        if hasattr(self, "fitted_") and self.fitted_.shift is not None:
            settings += f"\n# {self.shift_}"
        if not hasattr(self, "fitted_") or not self.references_.voters.represents:
            return settings
        few, known = self.references_, self.agreement_
        voters = f"{len(few):,} representatives vote for {round(float(few.sizes.sum())):,} training examples"
        return f"{settings}\n# {voters}" + ("" if known is None else f"; the {self.target_.noun} of all on {known}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []  # embeddings are float32, whatever X is
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _names_of(y: Any) -> tuple[str, ...]:
    """The name of a Series or the columns of a frame; none if one of them is not text."""
    names = getattr(y, "columns", [getattr(y, "name", None)])
    return tuple(names) if all(isinstance(name, str) and name for name in names) else ()


def _columns_of(fitted: Fitted) -> list[Any]:
    """The columns of the table that a model was fitted on."""
    if not isinstance(fitted.encoder, TabularEncoder):
        raise InputError(
            f"names are for the columns of a table; this model reads {fitted.encoder.kind}s; leave them out"
        )
    return [column.name for column in fitted.encoder.columns]
