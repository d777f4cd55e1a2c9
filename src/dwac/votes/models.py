"""The weights of scikit-learn's forests, nearest neighbours, kernel ridge and Gaussian processes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import csr_array, vstack
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted

from dwac.errors import CalibrationError, InputError, KindError, ShapeError
from dwac.estimator.preparation import take
from dwac.votes.voters import VotingModel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ids = Iterable[Hashable] | None

_SAME = 1e-9  # the most that averages may differ from the model's, in units of its largest number
_ENTRIES = 2**21  # of a block
_CHECKED = 200  # training rows on which votes are compared with predictions


class Forest:
    """RF-GAP: the weights with which training examples vote in the leaves of a forest.

    A tree gives a row the average of the examples in its leaf, each with its weight s_i in the tree: how often it was
    drawn, times its sample weight. The forest averages its trees, so w_i(x) is the mean of s_i / Σ_leaf s over trees.
    """

    def __init__(self, forest: Any, X: Any, trees: list[csr_array], drawn: NDArray[np.bool_]) -> None:
        self._forest, self._X, self._drawn = forest, X, drawn
        self._leaves = vstack(trees, format="csr")
        self._starts = np.cumsum([0, *(tree.shape[0] for tree in trees[:-1])])

    def weights(self, X: Any) -> Iterator[csr_array]:
        """(b, m), sparse."""
        leaves = self._forest.apply(X)
        return self._blocks(leaves, np.zeros(leaves.shape, dtype=bool))

    def own_weights(self) -> Iterator[csr_array]:
        """The same on the training rows, by the trees that did not draw a row: its out-of-bag vote."""
        return self._blocks(self._forest.apply(self._X), self._drawn)

    def _blocks(self, leaves: Ints, left_out: NDArray[np.bool_]) -> Iterator[csr_array]:
        n, n_trees = leaves.shape
        members = np.diff(self._leaves.indptr).astype(np.float64)
        mean = np.square(members).sum() / members.sum()  # of the leaves that rows meet: large ones are met often
        size = max(1, int(_ENTRIES / (n_trees * mean)))
        for start in range(0, n, size):
            places, voting = leaves[start : start + size] + self._starts, ~left_out[start : start + size]
            shares = voting / np.maximum(voting.sum(axis=1, keepdims=True), 1)
            yield _rows(shares, places, self._leaves.shape[0]) @ self._leaves


def from_forest(
    forest: Any, X: Any, y: Any, *, sample_weight: Any = None, ids: Ids = None, output: int = 0
) -> VotingModel:
    """The voters of scikit-learn's RandomForest or ExtraTrees, classifier or regressor, fitted to X and y.

    They give the forest's `predict_proba`, or `predict`, and its out-of-bag vote on training rows (RF-GAP; Rhodes,
    Cutler and Moon 2023). Every leaf is checked.

    Args:
        forest: a fitted forest. X, y, sample_weight: as given to `fit`.
        ids: names of the rows, by default the index of X.
        output: of a classifier with several outputs, the one to explain.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> forest = RandomForestClassifier(n_estimators=10, random_state=0).fit(X, y)
    >>> voters = from_forest(forest, X, y)
    >>> bool(abs(voters.predict_proba(X) - forest.predict_proba(X)).max() < 1e-9)
    True
    """
    check_is_fitted(forest, "estimators_")
    if not all(hasattr(forest, name) for name in ("apply", "bootstrap")):
        raise KindError(
            f"from_forest reads RandomForest and ExtraTrees; got {type(forest).__name__}, which is no average of "
            "leaves; a model that is a vote in another way needs weights(X): see dwac.votes.Weights"
        )
    n, values, regression = _length(X), np.asarray(y), not hasattr(forest, "classes_")
    if len(values) != n or np.shape(sample_weight) not in ((), (n,)):
        raise ShapeError(f"X, y and sample_weight must have one entry per row; X has {n}, y has {len(values)}")
    outputs, names = values.reshape(n, -1), [None] * forest.n_outputs_
    if not regression:
        names = forest.classes_ if forest.n_outputs_ > 1 else [forest.classes_]
    columns = [one[:, None] if own is None else one[:, None] == own for one, own in zip(outputs.T, names, strict=True)]
    samples = forest.estimators_samples_ if forest.bootstrap else [np.arange(n)] * len(forest.estimators_)
    counts = np.stack([np.bincount(rows, minlength=n) for rows in samples], axis=1)
    leaves, wanted, trees = forest.apply(X), np.hstack(columns).astype(np.float64), []
    for number, tree in enumerate(forest.estimators_):
        means = [
            part[:, : own.shape[1]] for part, own in zip(tree.tree_.value.transpose(1, 0, 2), columns, strict=True)
        ]
        means = means if regression else [part / part.sum(axis=1, keepdims=True) for part in means]
        tries = _tree_weights(forest, values, sample_weight, samples[number], counts[:, number])
        trees.append(_tree(leaves[:, number], np.hstack(means), wanted, tries))
    source = Forest(forest, X, trees, counts > 0)
    return VotingModel.of(source, _chosen(y, output, regression=regression), X=X, ids=ids, regression=regression)


def _tree_weights(forest: Any, y: NDArray[Any], given: Any, rows: Ints, drawn: Ints) -> Iterator[Floats]:
    """The weights that examples may have in a tree: versions of scikit-learn draw by weights, or multiply by them."""
    how, n = getattr(forest, "class_weight", None), len(y)
    weights = np.ones(n) if given is None else np.asarray(given, dtype=np.float64)
    yield drawn.astype(np.float64)
    yield drawn * weights
    factors = [] if how is None or isinstance(how, str) else [compute_sample_weight(how, y)]
    if isinstance(how, str):
        totals = [pd.Series(weights).groupby(column).transform("sum") for column in y.reshape(n, -1).T]
        balanced = [compute_sample_weight("balanced", y, indices=some) for some in (rows, None)]
        factors = [*balanced, 1 / np.prod(totals, axis=0)]
    yield from (drawn * factor * each for factor in factors for each in (1.0, weights))


def _tree(leaf: Ints, means: Floats, wanted: Floats, tries: Iterable[Floats]) -> csr_array:
    """(nodes, m): the share of each example in its leaf, by the first weights that give the averages of the leaves."""
    apart, here = np.inf, np.unique(leaf)
    for weights in tries:
        used = np.flatnonzero(weights)
        shares = weights[used] / np.bincount(leaf, weights, len(means))[leaf[used]]
        tree = csr_array((shares, (leaf[used], used)), (len(means), len(leaf)))
        apart = min(apart, _apart(tree[here] @ wanted, means[here]))
        if apart <= _SAME:
            return tree
    raise InputError(
        "X, y and sample_weight must be those of the forest's fit, and its leaves averages of their rows; a leaf is "
        f"off by {apart:.3g}; give the rows of fit in their order. Leaves of criterion='absolute_error' are medians, "
        "and those of monotonic_cst are clipped: these are no votes"
    )


class NearestNeighbors:
    """The weights of the k nearest neighbours, as scikit-learn chooses and weighs them."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def weights(self, X: Any) -> Iterator[csr_array]:
        """(n, m), sparse; without X, on the training rows, each without itself."""
        distances, places = self._model.kneighbors(X)
        how, weights = self._model.weights, np.ones(places.shape)
        if callable(how):
            weights = np.asarray(how(distances), dtype=np.float64)
        elif how == "distance":  # examples at the same place outvote all others
            same = distances == 0
            weights = np.where(same.any(axis=1, keepdims=True), same, 1 / np.where(same, 1.0, distances))
        yield _rows(weights, places, self._model.n_samples_fit_)

    def own_weights(self) -> Iterator[csr_array]:
        """The same on the training rows, each without itself."""
        if (k := self._model.n_neighbors) >= (n := self._model.n_samples_fit_):
            raise CalibrationError(
                f"a training row without itself has {n - 1:,} neighbors, and the model asks for {k:,}; give X and y of "
                "new rows, or fit with fewer neighbors"
            )
        return self.weights(None)


def from_neighbors(model: Any, X: Any, y: Any, *, ids: Ids = None, output: int = 0) -> VotingModel:
    """The voters of scikit-learn's KNeighborsClassifier or KNeighborsRegressor; arguments as for `from_forest`.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> e = from_neighbors(KNeighborsClassifier(5).fit(X, y), X, y).explain(X[:1], k=5)[0]
    >>> e.label, len(e.neighbors)
    (0, 5)
    """
    if not all(hasattr(model, name) for name in ("kneighbors", "predict")):
        raise KindError(f"from_neighbors takes KNeighborsClassifier or -Regressor; got {type(model).__name__}")
    check_is_fitted(model, "n_samples_fit_")
    regression = not hasattr(model, "classes_")
    chosen = _chosen(y, output, regression=regression)
    voters = VotingModel.of(NearestNeighbors(model), chosen, X=X, ids=ids, regression=regression)
    _check_same(voters, X, model.predict if regression else model.predict_proba, output)
    return voters


class Smoother:
    """w(x) = S k(x), S the inverse of the kernel matrix plus noise: kernel ridge, and means of Gaussian processes.

    kernel: of rows and training rows, (n, m). factor: of the matrix, by Cholesky. Without example i, the prediction
    falls by w_i(x) times `removal`_i = (S y)_i / S_ii.
    """

    def __init__(self, kernel: Callable[[Any], Floats], factor: tuple[Floats, bool], y: Floats) -> None:
        self._kernel, self._factor, self._inverse = kernel, factor, cho_solve(factor, np.eye(len(y)))
        self.removal = (self._inverse @ y) / np.diag(self._inverse)

    def weights(self, X: Any) -> Iterator[Floats]:
        """(b, m)."""
        n, size = _length(X), max(1, _ENTRIES // len(self._inverse))
        for start in range(0, n, size):
            yield cho_solve(self._factor, self._kernel(take(X, np.arange(start, min(n, start + size)))).T).T

    def own_weights(self) -> Iterator[Floats]:
        """(m, m): the same on the training rows, by the model fitted without each, in closed form."""
        yield np.eye(len(self._inverse)) - self._inverse / np.diag(self._inverse)[:, None]


def from_kernel_ridge(model: Any, X: Any, y: Any, *, sample_weight: Any = None, ids: Ids = None) -> VotingModel:
    """The voters of KernelRidge, for one number. Weights may be negative: see `VotingModel.contributions`.

    A prediction is Σ w_i(x) y_i but no average, so there are no shares, no flip sets and no worth. Exact are the
    contributions, the prediction of a model fitted without any one example, and intervals.

    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.kernel_ridge import KernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> ridge = KernelRidge(kernel="rbf").fit(X, y)
    >>> bool(abs(from_kernel_ridge(ridge, X, y).predict(X) - ridge.predict(X)).max() < 1e-6)
    True
    """
    check_is_fitted(model, "dual_coef_")
    options = model.kernel_params or {}
    if not callable(model.kernel):
        options = {"filter_params": True, "gamma": model.gamma, "degree": model.degree, "coef0": model.coef0}

    def kernel(rows: Any) -> Floats:
        return np.array(pairwise_kernels(rows, model.X_fit_, metric=model.kernel, **options), dtype=np.float64)

    matrix = kernel(X)
    weights = np.ones(len(matrix)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if not np.all(weights > 0):
        row = int(np.argmin(weights))
        raise InputError(
            f"sample_weight must be above 0; got {weights.min():g} at row {row}; leave such rows out, they have no vote"
        )
    matrix[np.diag_indices_from(matrix)] += np.asarray(model.alpha) / weights
    try:
        factor = cho_factor(matrix, lower=True)
    except LinAlgError:
        raise InputError(
            "the kernel matrix plus alpha must be positive definite; fit with a larger alpha or another kernel"
        ) from None
    return _smoother(model, kernel, factor, X, y, ids)


def from_gaussian_process(model: Any, X: Any, y: Any, *, ids: Ids = None) -> VotingModel:
    """The voters of the mean of scikit-learn's GaussianProcessRegressor; as for `from_kernel_ridge`.

    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> X, y = [[0.0], [1.0], [2.0]], [0.0, 1.0, 0.5]
    >>> process = GaussianProcessRegressor(optimizer=None).fit(X, y)
    >>> from_gaussian_process(process, X, y).predict([[0.5]]).round(3) == process.predict([[0.5]]).round(3)
    array([ True])
    """
    check_is_fitted(model, "L_")
    if model.normalize_y:
        raise InputError(
            "normalize_y=True adds the mean of all numbers to the vote; centre y yourself, and fit without"
        )
    return _smoother(model, lambda rows: model.kernel_(rows, model.X_train_), (model.L_, True), X, y, ids)


def _smoother(model: Any, kernel: Any, factor: Any, X: Any, y: Any, ids: Ids) -> VotingModel:
    if np.ndim(y) != 1:
        raise ShapeError(f"a smoother is read for one number per row; y has shape {np.shape(y)}; fit one per number")
    source = Smoother(kernel, factor, np.asarray(y, dtype=np.float64))
    voters = VotingModel.of(source, y, X=X, ids=ids, regression=True, signed=True)
    _check_same(voters, X, model.predict)
    return voters


def _length(X: Any) -> int:
    """The number of rows, also of a sparse table."""
    return int(X.shape[0] if hasattr(X, "shape") else len(X))


def _rows(weights: NDArray[Any], places: Ints, m: int) -> csr_array:
    """(n, m): weights (n, k) at the places (n, k)."""
    ends = np.arange(len(places) + 1) * places.shape[1]
    return csr_array((weights.ravel(), places.ravel(), ends), (len(places), m))


def _chosen(y: Any, output: int, *, regression: bool) -> Any:
    """The labels of one output; of a regression, all numbers."""
    several = np.ndim(y) == 2 and not regression
    return np.asarray(y)[:, output] if several else y


def _apart(own: Floats, other: Floats) -> float:
    """The largest difference, in units of the largest number."""
    return float(np.abs(own - other).max() / max(1.0, np.abs(other).max()))


def _check_same(voters: VotingModel, X: Any, predict: Callable[[Any], Any], output: int = 0) -> None:
    """Raise an error unless the votes on some training rows give what the model predicts."""
    rows = take(X, np.unique(np.linspace(0, _length(X) - 1, _CHECKED).round().astype(np.int64)))
    own = voters.predict(rows) if voters.regression else voters.predict_proba(rows)
    model = predict(rows)
    apart = _apart(own, np.reshape(model[output] if isinstance(model, list) else model, own.shape))
    if apart > 1e3 * _SAME:  # the kernel matrix may be nearly singular
        raise InputError(
            f"X, y and sample_weight must be those of the model's fit; predictions differ by {apart:.3g}; give the "
            "rows of fit in their order"
        )
