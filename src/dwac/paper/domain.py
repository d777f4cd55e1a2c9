"""Figure 5 and the supplement: does a model notice data of a kind that it never saw?

Fashion-MNIST against MNIST's digits, CIFAR-10 against CIFAR-100, Covertype without its class 7 against that class,
texts against sentences of random words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import metrics
from dwac.conformal import credibility, label_sets
from dwac.paper.cases import Case, plain_cases
from dwac.paper.fit import Fitted, Floats
from dwac.reference import ReferenceSet

TITLE = "In and out of domain (Figure 5)"
COMPANIONS = {"fashion_mnist": "mnist", "cifar10": "cifar100"}
TEXTS = ("subjectivity", "stackoverflow", "imdb")
WITHOUT = 6  # Covertype's class 7
EPSILON = 0.05
K = 50  # nearest neighbours
MOST = 10_000  # rows of each kind
BINS = 20


def cases(*, quick: bool = False) -> Iterator[Case]:
    """Both heads in every setting; Covertype's without a class."""
    del quick
    yield from plain_cases([*COMPANIONS, *TEXTS])
    for case in plain_cases(["covertype"]):
        yield Case(case.dataset, case.setting, case.head, case.trial, without=WITHOUT)


def needs(case: Case) -> tuple[str, ...]:
    """The dataset that strangers come from."""
    return (COMPANIONS[case.dataset],) if case.dataset in COMPANIONS else ()


def measure(fitted: Fitted) -> dict[str, Any]:
    """Credibility of rows in and out of domain, and how well each score tells them apart."""
    inside, y = _inside(fitted)
    outside = fitted.embed(_strangers(fitted))
    votes = [fitted.votes_of(h) for h in (inside, outside)]
    found: dict[str, Any] = {"outside": _name(fitted.case), "rows": {"inside": len(inside), "outside": len(outside)}}
    for kind in fitted.kinds:
        found[f"credibility_{kind}"] = _credibility(fitted.p_values(kind, votes[0]), fitted.p_values(kind, votes[1]), y)
    scores = {
        name: [score(v) for v in votes] for name, score in _VOTE_SCORES[fitted.case.head].items()
    } | _distance_scores(fitted, inside, outside)
    for kind in fitted.kinds:
        scores[f"credibility_{kind}"] = [credibility(fitted.p_values(kind, v)) for v in votes]
    found["scores"] = {name: metrics.ood_scores(*pair)._asdict() for name, pair in scores.items()}
    return found


def _inside(fitted: Fitted) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    chosen = fitted.library.sample(np.arange(len(fitted.trial.y_test)), MOST, fitted.case.trial)
    return fitted.test_h[chosen], fitted.trial.y_test[chosen]


def _strangers(fitted: Fitted) -> Any:
    case, library, trial = fitted.case, fitted.library, fitted.trial
    if case.without is not None:
        return library.sample(trial.strangers, MOST, case.trial)
    if case.dataset in COMPANIONS:
        return library.sample(library.load(COMPANIONS[case.dataset]).X_test, MOST, case.trial)
    return library.sample(trial.random_words, MOST, case.trial)


def _name(case: Case) -> str:
    if case.without is not None:
        return f"class {case.without + 1}, held out"
    return COMPANIONS.get(case.dataset, "random words")


def _credibility(inside: Floats, outside: Floats, y: NDArray[np.int64]) -> dict[str, Any]:
    """From p-values (n, K): means, shares of empty sets, the true label's mean p-value, histograms."""
    trust = {"inside": credibility(inside), "outside": credibility(outside)}
    edges = np.linspace(0, 1, BINS + 1)
    return {
        "mean": {place: values.mean() for place, values in trust.items()},
        "empty": {
            place: metrics.set_sizes(label_sets(p, EPSILON)).empty
            for place, p in (("inside", inside), ("outside", outside))
        },
        "true_label": float(inside[np.arange(len(y)), y].mean()),  # ½, if calibration rows and test rows are alike
        "histogram": {place: np.histogram(values, edges)[0].tolist() for place, values in trust.items()},
    }


def _largest_probability(votes: Floats) -> Floats:
    return np.asarray(votes.max(axis=1) - np.logaddexp.reduce(votes, axis=1))


def _energy(votes: Floats) -> Floats:
    return np.asarray(np.logaddexp.reduce(votes, axis=1))


def _largest_vote(votes: Floats) -> Floats:
    return np.asarray(votes.max(axis=1))


# High inside the domain. "class_weight" orders as credibility by weights does, without its ties.
_VOTE_SCORES: dict[str, dict[str, Any]] = {
    "dwac": {"class_weight": _largest_vote, "probability": _largest_probability},
    "softmax": {"probability": _largest_probability, "energy": _energy},
}


def _distance_scores(fitted: Fitted, *queries: NDArray[np.float32]) -> dict[str, list[Floats]]:
    """Scores by distance from the training embeddings, for any head."""
    h, y = fitted.training_h()
    references = ReferenceSet(h, y, n_classes=len(fitted.trial.classes))
    k = min(K, len(references))
    near = [-references.nearest(query, k).squared_distances[:, -1] for query in queries]
    return {"nearest_neighbour": near, "mahalanobis": [mahalanobis(h, y, query) for query in queries]}


def mahalanobis(h: Tensor, y: Tensor, queries: Any) -> Floats:
    """-min_k (q - μ_k)ᵀ Σ⁻¹ (q - μ_k): class means μ_k and one covariance Σ of embeddings h (m, d), labels y (m,)."""
    h, q = h.double(), torch.as_tensor(queries).to(h.device).double()
    present = y.unique()
    means = torch.stack([h[y == k].mean(dim=0) for k in present])
    centred = h - means[torch.searchsorted(present, y)]
    covariance = centred.T @ centred / len(h)
    # A direction without spread would make everything infinitely far.
    covariance += 1e-6 * covariance.diagonal().mean().clamp_min(1e-12) * torch.eye(h.shape[1]).to(covariance)
    root = torch.linalg.cholesky(covariance)
    a, b = (torch.linalg.solve_triangular(root, x.T, upper=False).T for x in (q, means))
    return np.asarray(-torch.cdist(a, b).square().amin(dim=1).cpu().numpy())
