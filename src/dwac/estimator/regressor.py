"""DWACRegressor: a scikit-learn regressor whose every prediction is a weighted vote of training examples.

reg = DWACRegressor(random_state=0).fit(X, y)
reg.predict(X); reg.predict_quantiles(X, [0.1, 0.5, 0.9])
reg.predict_interval(X, epsilon=0.05)  # intervals that miss the truth at most 5 % of the time
print(reg.explain(X, k=5)[0])          # who voted, with which number, and how much
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import copy
from os import PathLike
from typing import Any, Literal, Self, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from dwac import _checks as checks
from dwac.conformal import ExpectedIntervals
from dwac.errors import EPSILON
from dwac.estimator.base import DWACEstimator
from dwac.estimator.containers import native
from dwac.estimator.preparation import FitInput, row_weights
from dwac.estimator.readable import require_some, warn_of
from dwac.estimator.settings import Training, takes_training
from dwac.estimator.worth import Options, worth_of
from dwac.explain import Explanations, NumberExplanation
from dwac.explain.many import ids_of
from dwac.tasks.base import complete_rows
from dwac.tasks.predicted_numbers import PredictedDistribution

Floats = NDArray[np.float64]


class DWACRegressor(RegressorMixin, DWACEstimator):  # type: ignore[misc]
    """A deep regressor whose every prediction is a weighted vote of training examples.

    Each training example votes for its own number with a weight that falls with distance. The votes form a
    distribution: its mean is the prediction; its quantiles, calibrated on held-out rows, are intervals with a
    guarantee. The scale of the numbers does not matter: the loss measures how far the distribution is from the number
    (the continuous ranked probability score), in logs if the numbers are skewed.

    Rows are divided as in `DWACClassifier`; a table of fewer than 4,000 rows is cross-fitted, too, and one of up to
    30,000 rows if that predicts better. Settings that are not listed are those of `DWACClassifier`.

    Args:
        average: whether `predict` returns the "mean" or the "median" of the votes.

    >>> X = pd.DataFrame({"x": range(60)}, index=[f"row{i}" for i in range(60)])
    >>> reg = DWACRegressor(random_state=0, device="cpu").fit(X, 2.0 * X["x"])
    >>> bool(abs(reg.predict(X.iloc[[30]])[0] - 60) < 6)
    True
    """

    @takes_training
    def __init__(
        self,
        encoder: Any = "auto",
        *,
        average: str = "mean",
        kernel: str = "gaussian",
        shards: int | None = None,
        epochs: int | None = None,
        training: Training | None = None,
        validation_size: float | None = None,
        calibration_size: float | None = None,
        cross_fit: bool | str = "auto",
        within: Any = None,
        unknown: str = "atypical",
        voters: str | int | None = None,
        checkpoint: str | PathLike[str] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool | str = "auto",
    ) -> None:
        self.encoder = encoder
        self.average = average
        self.kernel = kernel
        self.shards = shards
        self.epochs = epochs
        self.training = training
        self.validation_size = validation_size
        self.calibration_size = calibration_size
        self.cross_fit = cross_fit
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
        ids: Iterable[Hashable] | None = None,
        names: Any = None,
    ) -> Self:
        """Train on X and y. Arguments as for `DWACClassifier.fit`; `within` is for `predict_interval`.

        Args:
            y: one finite number per row, or a table of several.
        """
        return self._fit(FitInput(X, y, sample_weight, ids, within, groups), names)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # Predicting

    def predict(self, X: Any) -> Floats:
        """The mean (or the median: `average`) of the votes, (n,), or (n, T) for several numbers.

        A row that cannot be read, such as an empty text, has NaN, with a warning.
        """
        observed = self.observe(X)
        warn_of(observed.reasons)
        values: Floats = self.sets_.values(observed)
        return values[:, 0] if self.target_.single else values

    @property
    def out_of_fold_(self) -> Floats | None:
        """(m, T): each voter's number as predicted by the networks and voters that left it out; None if there are none.

        In the order of `references_`. Voters added after `fit` have NaN: every network may have seen them.
        """
        folds, references = self._fitted.folds, self.references_
        if folds is None or references.voters.represents:
            return None
        predictions = np.full((len(references), self.target_.table.shape[1]), np.nan)
        for rows, votes in folds.out_of_fold_votes(references):
            predictions[rows] = self.sets_.average_of(votes)
        return predictions

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R². Rows that cannot be read are left out, with a warning."""
        predictions, truth = self.predict(X), np.asarray(native(y, "y"), dtype=np.float64)
        rows = complete_rows(predictions)
        require_some(rows)
        weights = row_weights(sample_weight, len(predictions))[rows]
        return float(r2_score(truth[rows], predictions[rows], sample_weight=weights))

    def predict_distribution(self, X: Any) -> PredictedDistribution:
        """The distribution of the votes for each row: mean, quantiles, cdf and crps, computed on request."""
        observed = self.observe(X)
        warn_of(observed.reasons)
        voters = copy(self.references_)
        return PredictedDistribution(voters, observed.h, observed.readable, single=self.target_.single)

    def predict_quantiles(self, X: Any, levels: ArrayLike = (0.05, 0.25, 0.5, 0.75, 0.95)) -> Floats:
        """(n, Q), or (n, T, Q): quantiles of the votes. `predict_interval` has a guarantee, these have none."""
        return self.predict_distribution(X).quantiles(levels)

    @overload
    def predict_interval(
        self,
        X: Any,
        epsilon: float = ...,
        *,
        within: Any = ...,
        local: bool = ...,
        as_frame: Literal[False] = ...,
    ) -> Floats: ...
    @overload
    def predict_interval(
        self, X: Any, epsilon: float = ..., *, within: Any = ..., local: bool = ..., as_frame: Literal[True]
    ) -> pd.DataFrame: ...
    def predict_interval(
        self, X: Any, epsilon: float = EPSILON, *, within: Any = None, local: bool = False, as_frame: bool = False
    ) -> Floats | pd.DataFrame:
        """(n, 2), or (n, T, 2): lower and upper ends of intervals, which miss the truth with probability ≤ `epsilon`.

        Quantiles of the votes, with tails chosen by the calibration rows. The guarantee holds on average over draws of
        the data, for new rows like those of fit, and for each of several numbers alone. (For a cross-fitted model this
        is measured, not proved; the proved bound is `expected_intervals(epsilon).guarantee`.) With too few calibration
        rows intervals are infinite; rows that cannot be read have NaN.

        within: the groups of the rows, if fit was given `within`: the guarantee then holds within each. Not needed if
        the setting `within` names columns.
        local: let calibration rows near a row count more, by the kernel of the vote. The guarantee is the same, over
        all rows; intervals are wider where numbers are hard to predict, and narrower elsewhere.
        as_frame: a DataFrame with the columns low and high, for each of several numbers, and the index of X.
        """
        epsilon = checks.epsilon(epsilon)
        observed = self.observe(X, within=within, local=local)
        warn_of(observed.reasons)
        groups = None if observed.within is None else observed.within[observed.readable]
        ends = self.sets_.ends(observed.h, epsilon, within=groups, local=local)
        ends = observed.spread(ends, (self.target_.table.shape[1], 2))
        if not as_frame:
            return ends[:, 0] if self.target_.single else ends
        sides = ["low", "high"]
        columns = pd.Index(sides) if self.target_.single else pd.MultiIndex.from_product([self.target_.names, sides])
        index = pd.Index(ids_of(native(X), len(ends)), tupleize_cols=False)
        return pd.DataFrame(ends.reshape(len(ends), -1), index=index, columns=columns)

    def expected_intervals(self, epsilon: float = EPSILON) -> ExpectedIntervals:
        """What to expect of intervals at `epsilon`: how far coverage may be from 1 - ε by chance; `str` says it."""
        expected: ExpectedIntervals = self.sets_.expected(epsilon)
        return expected

    def typicality(self, X: Any) -> Floats:
        """(n,): the share of calibration rows at least as unlike the voters as each row; near 0: unlike anything seen.

        At most a share δ of rows like those of fit have a typicality of at most δ. A row that cannot be read has NaN.
        """
        self._fitted.calibration.require()
        return self.observe(X).typicality(private=self.private_)

    # Worth

    def worth(
        self,
        X: Any,
        y: Any,
        *,
        method: str = "shapley",
        tolerance: float = 1e-4,
        groups: Any = None,
        ids: Iterable[Hashable] | None = None,
    ) -> pd.DataFrame:
        """The worth of each voter for the numbers y of rows X: how much it lowers the squared error.

        These are exact Shapley values of the vote itself, for the error of the voters' mean in units of the variance of
        the training numbers. They sum to what all voters together gain over predicting the overall mean: about the R²
        of these rows. For several numbers, the average. Similar voters share their worth.

        This is the worth of a vote given the embeddings. The network was trained on these examples, too, and the worth
        leaves out what it learned from them: retraining without an example may change more, or less.

        Arguments and result as for `DWACClassifier.worth`. The tolerance is in units of the largest squared difference
        between a voter's number and the true one.
        """
        options = Options(method, "squared_error", tolerance)
        return worth_of(self, X, y, options, groups=groups, ids=ids, show=self.verbose)

    # Explaining

    def explain(
        self, X: Any, k: int = 5, *, epsilon: float = EPSILON, private: bool | None = None, within: Any = None
    ) -> Explanations[NumberExplanation]:
        """Why each row gets its number: the voters and their numbers, how votes split, and whose removal would matter.

        A list with one `dwac.explain.NumberExplanation` per row, which prints as a table.

        k: how many of the nearest training examples to show.
        epsilon, within: for the interval, as in `predict_interval`.
        private: give rounded numbers only; no training id, record, distance or number. By default for a model that was
        saved without its training examples. See `dwac.explain.privacy`.
        """
        return self._explain(X, k, epsilon, private, within)
