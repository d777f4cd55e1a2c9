"""Tell wrong labels from those that are only hard to predict: a rule for labels and their out-of-fold probabilities.

noise = label_noise(log_probabilities, y)      # (n, K) and (n,); arrays in, arrays out: knows no model
noise.issues                                   # rows whose label is more likely wrong than right

An unlikely label need not be a mistake if the votes themselves are uncertain: one man in ten earns more than men like
him. So the threshold follows from the data, in three steps over all n K pairs of a row and a class.

1. g(p), how often a row has a label that the votes give the probability p: the monotone curve fitted to all pairs
   (isotonic regression). Only the order of the probabilities matters, not their calibration.
2. r, how often a row has a label that the votes all but exclude: the frequency among the pairs of lowest probability,
   as many pairs as have no higher frequency than the fewest do.
   These labels are not uncertain but noise. If a wrong label is equally likely to be any of the K-1 others, noise
   gives every row each wrong label with this frequency, and a share ε = (K-1) r of the labels is wrong.
3. Of the labels seen at p, the share r / g(p) is noise. A label is an issue if that is at least a half: a local false
   discovery rate.

Votes that never exclude a class cannot tell noise from uncertainty. Then r would be the share of that class, and
every rare label an issue. So at most a third of the labels of a class count as noise, unless the noise (at least half
of it) also shows in a class of which it is less than a third.

Models that were trained on a label cannot tell how many labels are wrong, since they may have learned some of them. But
they help to tell which: several models know more than one (docs/decisions/0019-label-issues.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import gamma
from sklearn.isotonic import IsotonicRegression

from dwac import _checks as checks
from dwac.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LOWEST = (0.05, 0.1, 0.2, 0.4)  # shares of the pairs, of lowest probability, that may show the noise
_MOST = 1 / 3  # share of the labels of a class that may be noise, at most
_LIMIT, _FAR = 0.8413, 0.975  # upper limits of a count, one and two standard errors above it


class LabelNoise(NamedTuple):
    """The wrong ones among n labels.

    `issues`: the rows whose label is more likely wrong than right, the most doubtful first. `wrong`: (n,) the estimated
    probability that each label is wrong. `rate`: the estimated share of wrong labels, cautiously high.
    """

    issues: Ints
    wrong: Floats
    rate: float


def label_noise(log_probabilities: ArrayLike, y: ArrayLike, seen: ArrayLike | None = None) -> LabelNoise:
    """Find the wrong ones among labels y (n,), from log-probabilities (n, K) of models that were not trained on them.

    Log class weights work too: each row is normalised. -inf is allowed, but not for all classes of a row. The most
    probable label of a row is never an issue. The rule assumes that noise is the same for all rows and classes, and
    that votes are nearly certain of some rows.

    seen: (n,) probabilities of the labels by models that were trained on them, if any. Then the mean of both
    probabilities ranks the labels, lowest first: the probabilities of being wrong are those without `seen`, reassigned
    in that order among labels that are not the most probable one.

    >>> p = np.full(1000, 0.999)
    >>> y = np.repeat([0, 1], 500)
    >>> log_p = np.log(np.where(np.arange(2) == y[:, None], p[:, None], 1 - p[:, None]))
    >>> y[[3, 700]] = [1, 0]
    >>> label_noise(log_p, y).issues
    array([  3, 700])
    """
    votes = np.asarray(log_probabilities, dtype=np.float64)
    if votes.ndim != 2 or votes.shape[1] < 2:
        raise InputError(f"log_probabilities must be (n, K) with two classes or more; got shape {votes.shape}")
    if np.isnan(votes).any() or not np.isfinite(votes.max(axis=1, initial=-np.inf)).all():
        raise InputError("log_probabilities must not be NaN, and each row needs a finite one; drop the other rows")
    n, n_classes = votes.shape
    labels = checks.class_labels(y, "y", n=n, n_classes=n_classes)
    if n == 0:
        return LabelNoise(np.zeros(0, dtype=np.int64), np.zeros(0), 0.0)
    log_p = votes - np.logaddexp.reduce(votes, axis=1, keepdims=True)
    own = log_p[np.arange(n), labels]
    has = np.arange(n_classes) == labels[:, None]
    floor = _floor(log_p, has)
    frequency = _frequency(log_p, has)[np.arange(n), labels]
    wrong = np.minimum(_believed(floor, log_p, has)[labels] / frequency, 1.0)
    wrong[own == log_p.max(axis=1)] = 0.0
    if seen is not None:
        own = np.exp(own) + _probabilities(seen, n)
        wrong = _reassigned(wrong, own)
    issues = np.flatnonzero(wrong >= 0.5)
    return LabelNoise(issues[np.argsort(own[issues], kind="stable")], wrong, min((n_classes - 1) * floor, 1.0))


def _probabilities(seen: ArrayLike, n: int) -> Floats:
    found = np.asarray(seen, dtype=np.float64)
    if found.shape != (n,) or not ((found >= 0) & (found <= 1)).all():
        raise InputError(
            f"seen must be {n} probabilities, one per label; got shape {found.shape}, or not all in [0, 1]"
        )
    return found


def _reassigned(wrong: Floats, belief: Floats) -> Floats:
    """The same probabilities of being wrong, reassigned: the highest for the least believed label; zeros stay."""
    doubtful = np.flatnonzero(wrong > 0)
    found = np.zeros_like(wrong)
    found[doubtful[np.argsort(belief[doubtful], kind="stable")]] = np.sort(wrong[doubtful])[::-1]
    return found


def _frequency(log_p: Floats, seen: NDArray[np.bool_]) -> Floats:
    """(n, K): g, how often a row has a label of that probability; monotone in the probability."""
    values, place = np.unique(log_p, return_inverse=True)
    place = place.reshape(-1)
    counts = np.bincount(place)
    hits = np.bincount(place, weights=seen.reshape(-1))
    curve = IsotonicRegression().fit_transform(np.arange(len(values)), hits / counts, sample_weight=counts)
    return np.asarray(curve[place].reshape(log_p.shape))


def _floor(log_p: Floats, seen: NDArray[np.bool_]) -> float:
    """r: how often a row has a label of the lowest probabilities; an upper limit, one standard error above.

    More pairs are more precise; fewer mix less uncertainty with the noise. So this takes the most pairs whose frequency
    is within two standard errors of those of all smaller sets: chance alone may explain the difference. (The least of
    several upper limits would be as low as the luckiest handful of pairs.) The limits are those of a Poisson count,
    which are not 0 if nothing was seen: few rows show little.
    """
    order = np.argsort(log_p, axis=None, kind="stable")
    sizes = np.array([max(int(share * len(order)), 1) for share in _LOWEST])
    hits = np.cumsum(seen.reshape(-1)[order])[sizes - 1]
    highest = np.minimum.accumulate(gamma.ppf(_FAR, hits + 1) / sizes)
    alike = np.append(True, hits[1:] / sizes[1:] <= highest[:-1])
    most = int(np.logical_and.accumulate(alike).sum()) - 1
    return float(gamma.ppf(_LIMIT, hits[most] + 1) / sizes[most])


def _believed(floor: float, log_p: Floats, seen: NDArray[np.bool_]) -> Floats:
    """(K,): how much of r is accepted for each class: all if a class within limits shows at least half of it."""
    most = _MOST * seen.mean(axis=0)
    shown = np.array([_floor(log_p[:, k], seen[:, k]) for k in range(len(most))])
    if ((shown <= most) & (shown >= floor / 2)).any():
        return np.full(len(most), floor)
    return np.asarray(np.minimum(floor, most))
