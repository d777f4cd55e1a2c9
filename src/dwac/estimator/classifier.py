"""DWACClassifier: a scikit-learn classifier for tables, images, texts or any tensors.

clf = DWACClassifier(random_state=0).fit(X, y)
clf.predict(X); clf.predict_proba(X)
clf.predict_set(X, epsilon=0.05)       # prediction sets that miss the truth at most 5 % of the time
print(clf.explain(X, k=5)[0])          # who voted, and how much
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from os import PathLike
from typing import Any, Literal, Self, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from dwac import _checks as checks
from dwac.errors import EPSILON
from dwac.estimator.base import DWACEstimator
from dwac.estimator.containers import native
from dwac.estimator.preparation import FitInput, row_weights
from dwac.estimator.readable import require_some, warn_of
from dwac.estimator.reweighing import Reweighing, reweigh
from dwac.estimator.settings import Training, takes_training
from dwac.estimator.worth import Options, next_labels, worth_of
from dwac.explain import Explanations
from dwac.explain.many import ids_of
from dwac.tasks.base import Evidence, Reasons, complete_rows

Floats = NDArray[np.float64]


class DWACClassifier(ClassifierMixin, DWACEstimator):  # type: ignore[misc]
    """A deep classifier whose every prediction is a weighted vote of training examples.

    Rows are divided into three parts: training rows vote, validation rows decide when training stops, and calibration
    rows give prediction sets their guarantee. A table of fewer than 4,000 rows, or fewer than 30,000 texts, are
    cross-fitted instead: every row trains, votes and calibrates (see `cross_fit`). A table of up to 30,000 rows
    with one label each is fitted both ways, and the better one is kept. Settings left at None
    follow the encoder's recipe.

    Args:
        encoder: "auto" infers it from X: a DataFrame or 2-D array is a table, 3-D or 4-D arrays and image files images,
            strings are texts. Or name it: "tabular", "image", "text"; with a network: "tabular:paper",
            "image:resnet18"; a pretrained one: "image:FOLDER", "huggingface:FOLDER". Or give an `Encoder` with its own
            settings, or any nn.Module.
        kernel: how votes fall with distance: "gaussian", "laplace" or "inverse_quadratic".
        shards: train this many networks, each alone and on its own part of the rows; all rows vote. Then
            `forget(ids, exact=True)` retrains only those that saw a row. The role of a row follows from its id: give
            rows permanent ids. `validation_size` and `calibration_size` are then shares, by default a tenth each.
        epochs: the maximum number of passes over the training rows.
        training: how to train in detail; see `dwac.Training`.
        validation_size: share or number of rows for early stopping; 0 for none. By default 10 % of the rows up to 1,000
            rows, then 5 % up to 5,000.
        calibration_size: share or number of rows for conformal prediction. By default the same, but up to 10,000, and
            at least 100 if that is at most 20 % of the rows. With 0 the validation rows serve for both, as in the
            paper; the guarantee of prediction sets is then slightly too optimistic.
        cross_fit: for tables of few rows. Ten small networks train together, each without one of five folds of the
            rows; the networks that left a row out choose scales, calibrate and judge its label. Every row trains and
            votes. For texts with one label each, five linear classifiers of n-grams take the place of the networks, and
            a text votes from where the one that left it out places it. In measurements, prediction sets then miss about
            a share ε; `expected_sets(epsilon).guarantee` is the bound of cross-conformal theory, for models that know
            nothing of the rows that they left out.
            "auto": with fewer than 4,000 rows or 30,000 texts, unless a setting says how to train, such as `epochs`;
            with 4,000 to 30,000 rows of a table, if that predicts the validation rows better than one network that did
            not see them (`cross_fitted_` says which was kept).
        nonconformity: what makes a label fit badly: a low "probability", which gives the smallest prediction sets, or
            low "weights", as in the paper, where credibility is also low for unusual rows. "auto": probability.
            `typicality` measures how unusual a row is, whatever the nonconformity.
        ordered: whether the labels have an order: True for their sorted order, "auto" for that of an ordered pandas
            Categorical. Prediction sets are then intervals, and the loss counts how far off a prediction is (ranked
            probability score).
        class_conditional: calibrate each class separately, so that sets miss a share ε within each class.
        within: the name of a column, such as "region", or a list of names: sets (of a regressor: intervals) miss a
            share ε within each of its values; a missing value is a group of its own. With several columns this holds
            within each value of each of them (`dwac.conformal.ConditionalThresholds`). A group with fewer than 1/ε - 1
            calibration rows gets sets of all labels. A column that the model should not learn from is also named in
            `training=dwac.Training(ignored=…)`, or its values are given to `fit` and `predict_set` instead.
        class_weight: a dict of weights by label, or "balanced". An example of a class with weight 2 counts twice, in
            the loss and in the vote.
        unknown: how to read a category that was not in training: "atypical": as missing, and the row is less typical;
            "missing": as missing; "refuse": the row cannot be read. Answers name it in every case.
        voters: the voters after training: "all" training examples; a number of representatives, each with the votes of
            the examples similar to it; or "auto": all up to 20,000, beyond that as few as validation rows allow. See
            `condense`. By default all; for rows that are read in batches, "auto".
        checkpoint: a file that training writes after every epoch, and from which an interrupted fit resumes.
        device: "auto" (a GPU if available), "cpu", "cuda", …
        random_state: an integer makes fits on a CPU repeat exactly, unless other threads use torch's generator.
        verbose: show a progress bar: True, False, or "auto" (in a terminal or notebook).

    >>> import pandas as pd
    >>> X = pd.DataFrame({"x": range(60)}, index=[f"row{i}" for i in range(60)])
    >>> y = ["low" if x < 30 else "high" for x in X["x"]]
    >>> clf = DWACClassifier(epochs=20, random_state=0, device="cpu").fit(X, y)
    >>> clf.predict(X.iloc[[3, 57]])
    array(['low', 'high'], dtype='<U4')
    """

    @takes_training
    def __init__(
        self,
        encoder: Any = "auto",
        *,
        kernel: str = "gaussian",
        shards: int | None = None,
        epochs: int | None = None,
        training: Training | None = None,
        validation_size: float | None = None,
        calibration_size: float | None = None,
        cross_fit: bool | str = "auto",
        nonconformity: str = "auto",
        ordered: bool | str = "auto",
        class_conditional: bool = False,
        class_weight: Any = None,
        within: Any = None,
        unknown: str = "atypical",
        voters: str | int | None = None,
        checkpoint: str | PathLike[str] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool | str = "auto",
    ) -> None:
        self.encoder = encoder
        self.kernel = kernel
        self.shards = shards
        self.epochs = epochs
        self.training = training
        self.validation_size = validation_size
        self.calibration_size = calibration_size
        self.cross_fit = cross_fit
        self.nonconformity = nonconformity
        self.ordered = ordered
        self.class_conditional = class_conditional
        self.class_weight = class_weight
        self.within = within
        self.unknown = unknown
        self.voters = voters
        self.checkpoint = checkpoint
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # Training

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Iterable[Hashable] | None = None,
        within: Any = None,
        apart: Any = None,
        ids: Iterable[Hashable] | None = None,
        names: Any = None,
    ) -> Self:
        """Train on X and y.

        Ctrl-C ends training early and keeps the best model so far; `history_.attrs["ended"]` is then "interrupted". To
        a caller such as `cross_val_score` this is a normal fit.

        Args:
            X: a table, images, texts, tensors, a Dataset or a DataLoader; see `encoder`. Tables may be pandas, polars,
                Arrow, NumPy or sparse; a sparse one must fit into memory once it is dense. Or a table or texts that are
                read in batches because memory does not hold them: a `pyarrow.dataset.Dataset`, a path, glob or URL of
                Parquet files, or an iterable of batches: record batches, DataFrames or pairs (X, y). Then y,
                sample_weight, within and ids are names of columns; only ids of voters and held-out rows are checked;
                and `stream_` says what was measured on all rows and what on a sample.
            y: one hashable label per row; or several labels: a table of 0 and 1 with a column per label, or a list of
                labels for each row. Not needed for a Dataset of (x, y) items, or batches of them.
            sample_weight: (n,) weights of the rows in the loss. Votes, validation and calibration ignore them.
            groups: (n,) hashable names of what rows belong to, such as a patient with several visits. Rows of a group
                stay together in folds, validation and calibration, as in scikit-learn's GroupKFold, so that
                measurements and guarantees hold for new groups. At least 5; not for rows that are read in batches.
            within: (n,) hashable names, or sets of names, of groups; or a table, whose columns are groups that overlap.
                `predict_set(…, within=…)` then has its guarantee within each. By default, the columns that the setting
                `within` names.
            apart: groups that the embedding is to tell apart, named as `by` of `evaluate` is, so that `reweigh` can
                bring their rates together at a lower price. No group is needed to predict. For classes, and rows in
                memory.
            ids: unique names of the rows; by default the index of a DataFrame or Series, else 0 … n-1.
            names: what the columns of a table are called in explanations: a CSV file or a DataFrame with the columns
                column, title, unit and codes, such as "dmi,insurance denied,,0=no; 1=yes"; or a dict by column, of
                titles or of {"title": …, "unit": …, "codes": {1: "yes"}}.
        """
        return self._fit(FitInput(X, y, sample_weight, ids, within, groups, apart), names)

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels: sorted, or in their order."""
        return self.fitted_.target.names

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def reweigh(
        self, X: Any, y: Any, *, by: Any, measure: str = "demographic parity", at_most: float = 0.02, label: Any = None
    ) -> Reweighing:
        """Change the weights of voters as little as possible, so that the rates of groups differ by at most a bound.

        The new model is `.model` of the result, and needs no group to predict; this one stays as it is. The result also
        has the difference and the price, on rows not used to find the weights, and whose weight changed by how much.
        Prediction sets and intervals are calibrated again: with rows of `fit` that took no part in the choice, so they
        keep their guarantee (in a cross-fitted model it is measured, not proved, once its own rows choose).

        Args:
            X, y: rows that the model was not trained on. The rows of a cross-fitted model may be given, too, with their
                ids (the index of a frame): networks and voters that left them out judge them.
            by: the groups, as for `evaluate`; several columns give their intersections.
            measure: "demographic parity" compares how often the label is predicted; "equal opportunity" among rows that
                have it; "false positives" among those that do not; "equalized odds" both of these.
            at_most: the largest difference between two groups, on the rows of X.
            label: the label; by default the second of two classes.
        """
        return reweigh(self, X, y, by, measure, at_most, label)

    # Predicting

    def log_class_weights(self, X: Any) -> Floats:
        """log Σ_i I(y_i=k) w(h, h_i), the votes for each class, (n, K).

        Rows that cannot be read, such as empty texts, have NaN, with a warning; `unreadable` says why.
        """
        votes, reasons = self.votes(X)
        warn_of(reasons)
        return votes

    def predict_proba(self, X: Any) -> Floats:
        """P(y=k given x), (n, K), in the order of `classes_`; for several labels, the probability of each, (n, L).

        Rows that cannot be read have NaN, with a warning.
        """
        votes = self.log_class_weights(X)
        probabilities: Floats = self.target_.predict_proba(votes)
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """The label with the most votes, (n,).

        For several labels, all labels with at least half of the votes: (n, L) of 0 and 1, in the order of `classes_`;
        or, if `fit` was given lists of labels, an array of tuples.

        A row that cannot be read has no label, with a warning: None in an array of objects, or a row of NaN in a table
        of 0 and 1. It does not affect the labels of the other rows.
        """
        votes = self.log_class_weights(X)
        labels: NDArray[Any] = self.target_.predict(votes)
        return labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy. Labels that were not in training count as wrong; of several labels, all must be right.

        Rows that cannot be read are left out, with a warning.
        """
        votes = self.log_class_weights(X)
        correct, rows = self.target_.correct(votes, native(y, "y")), complete_rows(votes)
        require_some(rows)
        return float(np.average(correct[rows], weights=row_weights(sample_weight, len(correct))[rows]))

    def decision_function(self, X: Any) -> Floats:
        """How strongly the votes support a class: log-odds (n,) of the second of two classes, else log P (n, K).

        As in scikit-learn: `predict` gives the class with the largest value or, of two classes, the second if the value
        is above 0. For several labels, the log-odds of each, (n, L). A class without votes gets the least float32.
        """
        votes = self.log_class_weights(X)
        scores: Floats = self.target_.decision_function(votes)
        return scores

    def conformal(self, X: Any, *, within: Any = None, local: bool = False) -> Any:
        """p-values, prediction sets, confidence, credibility and typicality. Rows that cannot be read are flagged.

        A `dwac.conformal.ConformalPrediction`. For several labels a `LabelPrediction`: a decision on each label, with
        its own guarantee: `.decisions(epsilon)`. within, local: as for `predict_set`.
        """
        return self.sets_.conformal(self.observe(X, within=within, local=local).evidence())

    def conformal_of(
        self,
        log_class_weights: Any,
        reasons: Reasons | None = None,
        novelty: Floats | None = None,
        fold_votes: Floats | None = None,
        within: NDArray[Any] | None = None,
        h: Any = None,
        local: bool = False,
        *,
        private: bool = False,
    ) -> Any:
        """The same from the result of `evidence`, without computing it again; no typicality without novelty.

        private: round as `dwac.explain.privacy` does.
        """
        evidence = Evidence(log_class_weights, reasons, novelty, fold_votes, within, h, local)
        return self.sets_.conformal(evidence, private=private)

    @overload
    def predict_set(
        self,
        X: Any,
        epsilon: float = ...,
        *,
        within: Any = ...,
        local: bool = ...,
        as_labels: Literal[False] = ...,
        as_frame: Literal[False] = ...,
    ) -> NDArray[np.bool_]: ...
    @overload
    def predict_set(
        self,
        X: Any,
        epsilon: float = ...,
        *,
        within: Any = ...,
        local: bool = ...,
        as_labels: Literal[True],
        as_frame: Literal[False] = ...,
    ) -> list[list[Any]]: ...
    @overload
    def predict_set(
        self,
        X: Any,
        epsilon: float = ...,
        *,
        within: Any = ...,
        local: bool = ...,
        as_labels: Literal[False] = ...,
        as_frame: Literal[True],
    ) -> pd.DataFrame: ...
    @overload
    def predict_set(
        self,
        X: Any,
        epsilon: float = ...,
        *,
        within: Any = ...,
        local: bool = ...,
        as_labels: Literal[True],
        as_frame: Literal[True],
    ) -> pd.Series[Any]: ...
    def predict_set(
        self,
        X: Any,
        epsilon: float = EPSILON,
        *,
        within: Any = None,
        local: bool = False,
        as_labels: bool = False,
        as_frame: bool = False,
    ) -> NDArray[np.bool_] | list[list[Any]] | pd.DataFrame | pd.Series[Any]:
        """(n, K): prediction sets, which miss the true label with probability at most `epsilon`.

        This holds on average over draws of the data, for new rows like those of fit, if calibration has its own rows.
        (For a cross-fitted model it is measured, not proved; the proved bound is `expected_sets(epsilon).guarantee`.) A
        row whose label `fit` never saw is a miss; if these rows are more frequent than ε, no sets can do better.
        `expected_sets` says what to expect.

        For several labels, (n, L): sets that miss at most a share `epsilon` of a row's labels, on average. (Those of a
        cross-fitted model did so on its own rows, each judged by networks that left it out; that is no proof.)

        within: the groups of the rows, if fit was given `within`: the guarantee then holds within each. Not needed if
        the setting `within` names columns.

        local: let calibration rows near a row count more, by the kernel of the vote. The guarantee is the same, over
        all rows; sets are larger where labels are hard to tell apart, and smaller elsewhere.

        as_labels: return a list of the labels in each row's set, most often just one. as_frame: a DataFrame with a
        column for each class and the index of X; with as_labels, a Series of lists.
        """
        observed = self.observe(X, within=within, local=local)
        sets: NDArray[np.bool_] = self.sets_.label_sets(observed, checks.epsilon(epsilon))
        if not (as_labels or as_frame):
            return sets
        names, index = self.target_.plain_names, pd.Index(ids_of(native(X), len(sets)), tupleize_cols=False)
        if not as_labels:
            return pd.DataFrame(sets, index=index, columns=pd.Index(names, tupleize_cols=False))
        labels = [[name for name, here in zip(names, row, strict=True) if here] for row in sets.tolist()]
        return pd.Series(labels, index=index, name="labels", dtype=object) if as_frame else labels

    def expected_sets(self, epsilon: float = EPSILON) -> Any:
        """What to expect of prediction sets at `epsilon`: their size, and how far coverage may be from 1 - ε by chance.

        With few calibration rows, sets are large and coverage is uncertain. If fit was given groups (`within`), this is
        for the smallest of them, and `by_group` has each.
        """
        return self.sets_.expected(epsilon)

    # Worth

    def worth(
        self,
        X: Any,
        y: Any,
        *,
        method: str = "shapley",
        utility: str = "probability",
        tolerance: float = 1e-4,
        label: Any = None,
        groups: Any = None,
        ids: Iterable[Hashable] | None = None,
    ) -> pd.DataFrame:
        """The worth of each voter for the labels y of rows X: which voters help or harm, and how much.

        These are exact Shapley values of the vote itself: how much a voter raises the probability of the true label,
        averaged over all orders in which voters may come, and over the rows. They sum to what all voters together add
        to the prior, the shares of the classes if all voters are equally near. Similar voters share their worth: each
        of many duplicates is worth little, and so is each of very many voters.

        This is the worth of a vote given the embeddings. The network was trained on these examples, too, and the worth
        leaves out what it learned from them: retraining without an example may change more, or less.

        Args:
            X, y: rows that do not vote, such as held-out ones; rows that cannot be read are left out.
            method: "shapley"; "banzhaf": the average over all sets of others, which does not sum to anything;
                "leave_one_out": what removing this one voter would change.
            utility: "probability" of the true label, "log_probability", or "accuracy", whose worth follows a rule and
                is not a Shapley value, except by leave-one-out; see `dwac.worth.of_labels`. For several labels, the
                probability of being right, averaged over labels.
            tolerance: the largest sum of the absolute errors of all voters for one row.
            label: with several labels, the one to value.
            groups: value groups of voters, each added or removed as a whole: the name of a column of the training
                data, such as `groups="clinic"`; a Series or dict by id; or the group of each voter, in their order.
            ids: the names of the rows of X. Rows that vote do not vote on themselves.

        Returns:
            One row per voter by id, or per group: worth, the average over the rows of X; its standard deviation over
            these rows; the standard error of the average; the relative worth, best for comparing voters: how
            many standard deviations it is above the mean of all voters of the class, since a whole class may be worth
            less than 0 where it is rare (for several labels: of voters with the same labels; for numbers: of voters in
            the same fifth); the label. `attrs["error"]` is the largest estimated sum of errors for a row.
        """
        options = Options(method, utility, tolerance, label)
        return worth_of(self, X, y, options, groups=groups, ids=ids, show=self.verbose)

    def label_next(
        self, pool: Any, n: int = 10, *, X: Any = None, ids: Iterable[Hashable] | None = None
    ) -> pd.DataFrame:
        """Choose n rows of an unlabelled pool to label next, the most useful first.

        From the 5 n rows with the smallest margins, takes those with the largest expected worth: how much their votes
        would raise the log-probability of other rows' labels, averaged over the labels that they may have. Each is
        chosen as if those before it voted already, so that a batch holds no duplicates. The network does not change:
        fit again with the new labels, or let them vote with `add_references`. In measurements it beat small margins
        and random choice with many classes; with two classes no difference was found.

        Args:
            pool: rows without labels.
            X: the rows whose predictions should improve; by default the pool itself, or 1,000 of its rows.
            ids: names of the rows of the pool; by default the index of a DataFrame or Series, else 0 … n-1.

        Returns:
            One row per row to label, by id: expected_worth, given those before it; the prediction, its probability, and
            its margin over the second label.
        """
        return next_labels(self, pool, n, X, ids)

    # Explaining

    def explain(
        self,
        X: Any,
        k: int = 5,
        *,
        epsilon: float = EPSILON,
        label: Any = None,
        private: bool | None = None,
        within: Any = None,
    ) -> Explanations[Any]:
        """Why each example gets its label: the k nearest training examples, their votes, and how few decide it.

        A list with one `dwac.Explanation` per row, which prints as a table (`dwac.explain.Explanations`). For several
        labels, one `dwac.explain.LabelExplanations` per row, which has an `Explanation` for each label; label: explain
        this one alone.

        epsilon, within: for the prediction set, as in `predict_set`.
        private: give labels and rounded shares only; no training id, record, distance or weight. By default for a model
        that was saved without its training examples. See `dwac.explain.privacy`.
        """
        if label is None:
            return self._explain(X, k, epsilon, private, within)
        self._fitted.target.require_label(label)
        return self._explain(X, k, epsilon, private, within, label=label)
