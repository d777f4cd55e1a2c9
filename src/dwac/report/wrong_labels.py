"""Training labels that look wrong, judged out of sample if possible.

label_issues(clf, X, y)                    # out of fold: each label by a classifier trained on the other folds
label_issues(clf)                          # without training: out-of-fold votes if there are any, else in-sample ones
noise = label_noise(log_probabilities, y)  # the rule, for probabilities (n, K) and labels (n,) from anywhere
noise.issues                               # rows whose label is more likely wrong than right

The rule tells wrong labels from those that are only hard to predict. An unlikely label need not be a mistake if the
votes themselves are uncertain: one man in ten earns more than men like him. So the threshold follows from the data, in
three steps over all n K pairs of a row and a class.

1. g(p), how often a row has a label that the votes give the probability p: the monotone curve fitted to all pairs
   (isotonic regression). Only the order of the probabilities matters, not their calibration.
2. r, how often a row has a label that the votes all but exclude: the frequency among the pairs of lowest probability,
   as many pairs as have no higher frequency than the fewest do.
   These labels are not uncertain but noise. If a wrong label is equally likely to be any of the K-1 others, noise
   gives every row each wrong label with this frequency, and a share ε = (K-1) r of the labels is wrong.
3. Of the labels seen at p, the share min(1, r / g(p)) is noise: a local false discovery rate. A label is an issue if
   that is at least a half for the upper limit of r, one standard error above. `wrong` is its mean over what r may be,
   which the upper limit would put at 1 for labels that are right; for an issue it is a half at least.

Votes that never exclude a class cannot tell noise from uncertainty. Then r would be the share of that class, and
every rare label an issue. So at most a third of the labels of a class count as noise, unless the noise (at least half
of it) also shows in a class of which it is less than a third.

Models that were trained on a label cannot tell how many labels are wrong, since they may have learned some of them. But
they help to tell which: several models know more than one (docs/decisions/0019-label-issues.md).

In-sample votes on a training example exclude its own:

    L_k = log Σ_{i≠j} I(y_i=k) w(h_j, h_i)

This is not how a new example is treated: the network was trained on the label y_j, which may have shaped h_j. So
wrong labels that the network has memorised are not found.

One sweep gives the sums including an example's own vote, w(h_j, h_j) = 1. Subtracting 1 is safe if the others weigh
enough. If the own vote is nearly all the weight of its class, the difference would be rounding error: then the others
are summed directly, in float64.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import gamma
from sklearn.isotonic import IsotonicRegression
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import InputError
from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.out_of_fold import fold_classifiers, rows_and_labels, votes_for
from dwac.estimator.preparation import count, row_ids, take
from dwac.kernels import squared_distances
from dwac.reference import ReferenceSet
from dwac.tasks.classes import encode_labels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COLUMNS = ("id", "label", "suggested", "probability", "suggested_probability", "log_odds", "wrong")
OUT_OF_FOLD, IN_SAMPLE = "out of fold", "in sample"
LEARNED = (  # a limit of checking training labels
    "The network was trained on these labels, including wrong ones, so wrong labels that it has memorised are not "
    "found; judged out of fold, by a model not trained on them, they would be."
)
UNSEEN = "Each label was judged by votes of a model that was not trained on it."
HOW_JUDGED = {OUT_OF_FOLD: UNSEEN, IN_SAMPLE: LEARNED}
_LEAST = 0.25  # share of the own vote: if the others weigh more, the difference is exact to about 1e-4
_CELLS = 2**22  # weights in memory at once
_LOWEST = (0.05, 0.1, 0.2, 0.4)  # shares of the pairs, of lowest probability, that may show the noise
_MOST = 1 / 3  # share of the labels of a class that may be noise, at most
_LIMIT, _FAR = 0.8413, 0.975  # upper limits of a count, one and two standard errors above it


def label_issues(
    clf: DWACClassifier,
    X: Any = None,
    y: Any = None,
    folds: int = 5,
    *,
    ids: Iterable[Hashable] | None = None,
    rows: Ints | None = None,
) -> pd.DataFrame:
    """Labels that are more likely wrong than right, the most doubtful first; one row per example.

    Columns: `id`; its `label`; the label `suggested` by the votes; the `probability` that they give to its own label;
    the `suggested_probability`; `log_odds`, the log of the ratio of the suggested and the own probability; and `wrong`,
    the estimated probability that the label is wrong, at least a half. Each is worth a look; some are right and rare.

    `attrs["judged"]` is "out of fold", by votes of a model that was not trained on the label, or "in sample".
    In-sample votes miss wrong labels that the network has memorised. `attrs["checked"]` is the number of labels that
    were judged, `attrs["noise_rate"]` the estimated share of wrong ones, cautiously high.

    Args:
        clf: a classifier; it must be fitted unless X is given.
        X: examples whose labels y to judge out of fold, usually those of fit. `folds` classifiers with the settings of
            `clf` are trained, each on all folds but one: about four times the time of fit. The one that was not trained
            on a label decides how many are listed; the others help to decide which. Without X, existing votes judge the
            training examples: out-of-fold ones if `clf.out_of_fold_` has them.
        y: their labels.
        folds: the number of parts of X.
        ids: names of the rows of X; by default the index of a DataFrame or Series, else 0 … n-1.
        rows: the training examples to check without X, by position in `references_`; by default all.
    """
    if X is None:
        if y is not None or ids is not None:
            raise InputError("y and ids belong to X; give X too, or neither for the training examples of the model")
        return _training_issues(clf, rows)
    if rows is not None:
        raise InputError("rows are positions among the training examples; with X, leave out rows of X instead")
    X, y = rows_and_labels(clf, X, y)
    codes, classes = encode_labels(y, count(X))
    votes, seen = votes_of_all(clf, X, y, folds)
    issues = _frame(votes, codes, classes, row_ids(X, ids, len(votes)), seen)
    issues.attrs.update(judged=OUT_OF_FOLD, folds=folds)
    return issues


def votes_of_all(clf: DWACClassifier, X: Any, y: Any, folds: int) -> tuple[Floats, Floats]:
    """(n, K): log class weights out of fold; and (n,): the mean probability of each label by the other classifiers.

    Those were trained on the label, unless its row was a validation row. Its own vote does not count.
    """
    codes, classes = encode_labels(y, count(X))
    votes, seen = np.empty((len(codes), len(classes))), np.zeros(len(codes))
    for inside, outside, other in fold_classifiers(clf, X, y, folds):
        votes[inside] = votes_for(classes, other, take(X, inside))
        seen[outside] += _without_own_vote(other, X, outside, codes, classes) / (folds - 1)
    return votes, seen.clip(0, 1)


def _without_own_vote(other: DWACClassifier, X: Any, rows: Ints, codes: Ints, classes: NDArray[Any]) -> Floats:
    """(r,): the probability of the labels of rows that the classifier was trained on; ids of voters are row numbers."""
    references, probabilities = other.references_, np.zeros(len(codes))
    voters = references.ids.astype(np.int64)
    probabilities[voters] = _label_probability(leave_one_out(references), references.labels.cpu().numpy())
    others = np.setdiff1d(rows, voters)
    if len(others):
        probabilities[others] = _label_probability(votes_for(classes, other, take(X, others)), codes[others])
    return probabilities[rows]


def _label_probability(votes: Floats, labels: Ints) -> Floats:
    """(n,): the probability of each row's label by votes (n, K); 0 without votes."""
    total = np.logaddexp.reduce(votes, axis=1)
    own = votes[np.arange(len(votes)), labels]
    return np.asarray(np.exp(own - np.where(np.isfinite(total), total, 0.0)))


def _training_issues(clf: DWACClassifier, rows: Ints | None) -> pd.DataFrame:
    """The issues of `label_issues`, from votes that need no training."""
    references = clf.references_
    rows = np.arange(len(references)) if rows is None else rows
    known: Any = getattr(clf, "out_of_fold_", None)
    free = known is not None and len(known) == len(references)
    votes = np.asarray(known, dtype=np.float64)[rows] if free else leave_one_out(references, rows)
    issues = _frame(votes, references.labels.cpu().numpy()[rows], clf.classes_, references.ids[rows])
    issues.attrs["judged"] = OUT_OF_FOLD if free else IN_SAMPLE
    return issues


def _frame(
    votes: Floats, labels: NDArray[Any], classes: NDArray[Any], ids: Any, seen: Floats | None = None
) -> pd.DataFrame:
    """The issues among labels (n,), given as codes, by votes (n, K); a row without any vote is not judged."""
    judged = np.isfinite(votes.max(axis=1))
    votes, labels, ids = votes[judged], labels[judged], ids[judged]
    noise = label_noise(votes, labels, None if seen is None else seen[judged])
    listed = noise.issues
    log_p = votes[listed] - np.logaddexp.reduce(votes[listed], axis=1, keepdims=True)
    suggested, each = log_p.argmax(axis=1), np.arange(len(listed))
    own, best = log_p[each, labels[listed]], log_p[each, suggested]
    issues = pd.DataFrame(
        {
            "id": pd.Series(list(ids[listed]), dtype=object),
            "label": classes[labels[listed]],
            "suggested": classes[suggested],
            "probability": np.exp(own),
            "suggested_probability": np.exp(best),
            "log_odds": best - own,
            "wrong": noise.wrong[listed],
        },
        columns=list(COLUMNS),
    )
    issues.attrs.update(checked=len(labels), noise_rate=noise.rate)
    return issues


def leave_one_out(references: ReferenceSet, rows: Ints | None = None) -> Floats:
    """(m, K): log class weights of each reference without its own vote; -inf if it is the only one of its class.

    rows: positions of the references; by default all.

    >>> leave_one_out(ReferenceSet([[0.0], [1.0], [2.0]], [0, 0, 1])).round(2)
    array([[-1.  , -4.  ],
           [-1.  , -1.  ],
           [-0.95,  -inf]])
    """
    h, every = references.embeddings, references.labels.cpu().numpy()
    rows = np.arange(len(every)) if rows is None else rows
    votes = np.array(references.log_class_weights(h[torch.as_tensor(rows, device=h.device)]).cpu().numpy())
    labels, each = every[rows], np.arange(len(rows))
    # The votes of its class in units of its own vote, so that 1 is the example itself.
    own = float(references.voters.log_weights_at(torch.zeros(1, dtype=torch.float64))) + np.log(
        references.weights[rows]
    )
    log_all = votes[each, labels] - np.log(references.class_weights)[labels] - own
    with np.errstate(divide="ignore"):
        others = log_all + np.log(-np.expm1(-np.maximum(log_all, 0))) + own
    doubtful = log_all < np.log1p(_LEAST)
    for label in np.unique(labels[doubtful]):
        mine, some = np.flatnonzero(every == label), np.flatnonzero(doubtful & (labels == label))
        others[some] = _without_self(references, mine, np.searchsorted(mine, rows[some]))
    votes[each, labels] = others + np.log(references.class_weights)[labels]
    return votes


def _without_self(references: ReferenceSet, mine: NDArray[Any], some: NDArray[Any]) -> Floats:
    """log Σ w over the other members of a class, for some of its members; exact, in float64."""
    members = references.embeddings[torch.as_tensor(mine, device=references.embeddings.device)].double()
    factors = torch.as_tensor(np.log(references.weights[mine]), device=members.device)
    sums: list[Tensor] = []
    for part in torch.as_tensor(some, device=members.device).split(max(1, _CELLS // len(mine))):
        log_w = references.voters.log_weights_at(squared_distances(members[part], members)) + factors
        log_w[torch.arange(len(part)), part] = -torch.inf
        sums.append(log_w.logsumexp(dim=1))
    return np.asarray(torch.cat(sums).cpu().numpy())


# The rule


class LabelNoise(NamedTuple):
    """The wrong ones among n labels.

    `issues`: the rows whose label is more likely wrong than right, the most doubtful first. `wrong`: (n,) the estimated
    probability that each label is wrong. `rate`: the estimated share of wrong labels, cautiously high.

    >>> p = np.tile([[0.99, 0.01], [0.01, 0.99]], (20, 1))
    >>> noise = label_noise(np.log(p), [1, *([1, 0] * 20)[:-1]])
    >>> noise.issues
    array([0])
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
    hits, size = _lowest_pairs(log_p, has)
    floor = _upper_limit(hits, size)
    accepted = _accepted_floor(floor, log_p, has)[labels]
    frequency = _frequency(log_p, has)[np.arange(n), labels]
    wrong = _noise_share(hits, size * frequency * floor / accepted)
    listed = accepted / frequency >= 0.5
    wrong[listed] = wrong[listed].clip(min=0.5)
    wrong[own == log_p.max(axis=1)] = 0.0
    if seen is not None:
        own = np.exp(own) + _check_probabilities(seen, n)
        wrong = _reassign(wrong, own)
    issues = np.flatnonzero(wrong >= 0.5)
    return LabelNoise(issues[np.argsort(own[issues], kind="stable")], wrong, min((n_classes - 1) * floor, 1.0))


def _check_probabilities(seen: ArrayLike, n: int) -> Floats:
    p = np.asarray(seen, dtype=np.float64)
    if p.shape != (n,) or not ((p >= 0) & (p <= 1)).all():
        raise InputError(f"seen must be {n} probabilities, one per label; got shape {p.shape}, or not all in [0, 1]")
    return p


def _reassign(wrong: Floats, belief: Floats) -> Floats:
    """The same probabilities of being wrong, reassigned: the highest for the least believed label; zeros stay."""
    doubtful = np.flatnonzero(wrong > 0)
    reassigned = np.zeros_like(wrong)
    reassigned[doubtful[np.argsort(belief[doubtful], kind="stable")]] = np.sort(wrong[doubtful])[::-1]
    return reassigned


def _frequency(log_p: Floats, seen: NDArray[np.bool_]) -> Floats:
    """(n, K): g, how often a row has a label of that probability; monotone in the probability."""
    values, place = np.unique(log_p, return_inverse=True)
    place = place.reshape(-1)
    counts = np.bincount(place)
    hits = np.bincount(place, weights=seen.reshape(-1))
    curve = IsotonicRegression().fit_transform(np.arange(len(values)), hits / counts, sample_weight=counts)
    return np.asarray(curve[place].reshape(log_p.shape))


def _lowest_pairs(log_p: Floats, seen: NDArray[np.bool_]) -> tuple[int, int]:
    """The labels among the pairs of lowest probability, and the number of those pairs: their ratio is r.

    More pairs are more precise; fewer mix less uncertainty with the noise. So this takes the most pairs whose frequency
    is within two standard errors of those of all smaller sets: chance alone may explain the difference. (The least of
    several upper limits would be as low as the luckiest handful of pairs.)
    """
    order = np.argsort(log_p, axis=None, kind="stable")
    sizes = np.array([max(int(share * len(order)), 1) for share in _LOWEST])
    hits = np.cumsum(seen.reshape(-1)[order])[sizes - 1]
    highest = np.minimum.accumulate(gamma.ppf(_FAR, hits + 1) / sizes)
    alike = np.append(True, hits[1:] / sizes[1:] <= highest[:-1])
    most = int(np.logical_and.accumulate(alike).sum()) - 1
    return int(hits[most]), int(sizes[most])


def _upper_limit(hits: int, size: int) -> float:
    """One standard error above r: the limit of a Poisson count, not 0 if nothing was seen, as few rows show little."""
    return float(gamma.ppf(_LIMIT, hits + 1) / size)


def _noise_share(hits: int, expected: Floats) -> Floats:
    """The mean of min(1, r / g) over what r may be after `hits`; `expected` is how many labels the pairs have at g.

    The number of labels that r expects among the pairs, given the hits, has a gamma distribution: the posterior of a
    Poisson mean.
    """
    below = (hits + 1) / expected * gamma.cdf(expected, hits + 2)
    return np.asarray(below + gamma.sf(expected, hits + 1))


def _accepted_floor(floor: float, log_p: Floats, seen: NDArray[np.bool_]) -> Floats:
    """(K,): how much of r is accepted for each class: all if a class within limits shows at least half of it."""
    most = _MOST * seen.mean(axis=0)
    shown = np.array([_upper_limit(*_lowest_pairs(log_p[:, k], seen[:, k])) for k in range(len(most))])
    if ((shown <= most) & (shown >= floor / 2)).any():
        return np.full(len(most), floor)
    return np.asarray(np.minimum(floor, most))
