"""Which labels are wrong, and which are only hard to predict: a rule for labels and their out-of-fold probabilities.

noise = label_noise(log_probabilities, y)      # (n, K) and (n,); arrays in, arrays out: knows no model
noise.issues                                   # rows whose label is more likely wrong than right

A label that the votes find unlikely is no mistake where the votes themselves are uncertain: one man in ten earns more
than men like him. So the threshold follows from the data, in three steps over all n K pairs of a row and a class.

1. g(p), how often a row has a label that the votes give the probability p: the monotone curve fitted to all pairs
   (isotonic regression). Only the order of the probabilities matters, not their calibration.
2. r, how often a row has a label that the votes all but exclude: the frequency among the pairs of lowest probability,
   of which there may be as many as show no more than the fewest do.
   What is left there is not uncertainty. It is noise, and if a wrong label is as likely to be any of the K-1 others,
   noise gives every row each wrong label with this frequency, and a share ε = (K-1) r of the labels is wrong.
3. Of the labels seen at p, the share r / g(p) is noise. A label is an issue if that is at least a half: a local false
   discovery rate.

Votes that exclude a class nowhere cannot tell noise from uncertainty. Then r would be the share of that class, and
every rare label an issue. So at most a third of the labels of a class are taken for noise, unless the noise shows (at
least half of it) in a class of which it is less than a third.

Models that were trained on a label cannot say how many are wrong, since they may have learned some of these. But they
can help to say which: several models know more than one (docs/decisions/0019-label-issues.md).
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
_MOST = 1 / 3  # of the labels of a class may be noise
_LIMIT, _FAR = 0.8413, 0.975  # upper limits of a count, one and two standard errors above it


class LabelNoise(NamedTuple):
    """What is wrong with n labels.

    `issues`: the rows whose label is more likely wrong than right, the most doubtful first. `wrong`: (n,) the estimated
    probability that each label is wrong. `rate`: the estimated share of wrong labels, cautiously high.
    """

    issues: Ints
    wrong: Floats
    rate: float


def label_noise(log_probabilities: ArrayLike, y: ArrayLike, seen: ArrayLike | None = None) -> LabelNoise:
    """Find the wrong ones among labels y (n,), from log-probabilities (n, K) of models that were not trained on them.

    Log class weights will do: each row is normalised. -inf is allowed, not for all classes of a row. A label that is
    the most probable one is never an issue. The noise is assumed to be the same for all rows and classes, and votes to
    be nearly certain of some rows.

    seen: (n,) probabilities of the labels by models that were trained on them, if there are any. Then labels are as
    doubtful as the mean of both probabilities is low: the probabilities of being wrong are as without `seen`, but go,
    in that order, to other labels among those that are not the most probable one.

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
    """The same probabilities of being wrong, the highest for the label that is believed least; those of 0 stay."""
    doubtful = np.flatnonzero(wrong > 0)
    found = np.zeros_like(wrong)
    found[doubtful[np.argsort(belief[doubtful], kind="stable")]] = np.sort(wrong[doubtful])[::-1]
    return found


def _frequency(log_p: Floats, seen: NDArray[np.bool_]) -> Floats:
    """(n, K): g, how often a row has a label of so low a probability; monotone in the probability."""
    values, place = np.unique(log_p, return_inverse=True)
    place = place.reshape(-1)
    counts = np.bincount(place)
    hits = np.bincount(place, weights=seen.reshape(-1))
    curve = IsotonicRegression().fit_transform(np.arange(len(values)), hits / counts, sample_weight=counts)
    return np.asarray(curve[place].reshape(log_p.shape))


def _floor(log_p: Floats, seen: NDArray[np.bool_]) -> float:
    """r: how often a row has a label of the lowest probabilities; an upper limit, one standard error above.

    The more pairs, the more precise; the fewer, the less uncertainty there is beside the noise. So the most pairs whose
    frequency is within two standard errors of that of all fewer ones: then chance alone may tell them apart. (The least
    of several upper limits would be as low as the luckiest handful of pairs.) The limits are those of a Poisson count,
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
    """(K,): how much of r is believed of each class: all if a class shows at least half of it, itself within limits."""
    most = _MOST * seen.mean(axis=0)
    shown = np.array([_floor(log_p[:, k], seen[:, k]) for k in range(len(most))])
    if ((shown <= most) & (shown >= floor / 2)).any():
        return np.full(len(most), floor)
    return np.asarray(np.minimum(floor, most))
