"""Figure 5 and the supplement: does a model notice data of a kind that it never saw?

Fashion-MNIST against MNIST's digits, CIFAR-10 against CIFAR-100, Covertype without its class 7 against that class,
texts against sentences of random words.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import metrics
from dwac.conformal import credibility, label_sets
from dwac.paper import figures, published, settings
from dwac.paper.cases import Case, plain_cases
from dwac.paper.fit import Fitted, Floats
from dwac.paper.tables import NOT_RUN, Draw, Found, Section, mean, number, paragraphs, picture, table, verdict
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


# The report


def report(found: Found) -> Section:
    """Credibility in and out of domain, scores against one another, and the claims; histograms."""
    parts = [
        f"Up to {MOST:,} test rows against as many strangers. Credibility is the largest p-value: about ½ or more in "
        "domain, near 0 on what is unlike anything seen. The true label's mean p-value in domain should be ½."
    ]
    drawn: dict[str, Draw] = {}
    for setting in settings.SETTINGS:
        title = "The paper's models" if setting == "paper" else "Our best models"
        parts.append(f"### {title}")
        head = ["dataset", "strangers", "score", "mean credibility in", "out", "published out"]
        head += [f"empty at ε = {EPSILON} in", "out", "true label's p-value"]
        parts.append(table(head, [_trust_row(found, name, setting, *who) for name in PLACES for who in WHO]))
        parts.append("AUROC of telling test rows from strangers, means over trials, the highest in bold:")
        parts.append(table(["dataset", *(title for title, *_ in SCORES)],
                           [_score_row(found, name, setting) for name in PLACES]))  # fmt: skip
        parts.append(table(["dataset", "claim", "measured", ""], _claims(found, setting)))
        if any(found.of(name, setting, head, **where) for name, where in PLACES.items() for head in settings.HEADS):
            parts.append(picture(f"domain-{setting}", f"Histograms of credibility in and out of domain; {title}"))
            drawn[f"domain-{setting}"] = partial(_draw, found, setting)
    return Section(TITLE, paragraphs(*parts), drawn)


PLACES: dict[str, dict[str, Any]] = {
    "fashion_mnist": {},
    "cifar10": {},
    "covertype": {"without": WITHOUT},
    **{name: {} for name in TEXTS},
}
WHO = (("dwac", "weights"), ("dwac", "probability"), ("softmax", "probability"))
SCORES = (
    ("DWAC: class weight", "dwac", "class_weight"),
    ("credibility, weights", "dwac", "credibility_weights"),
    ("credibility, probability", "dwac", "credibility_probability"),
    ("nearest neighbour", "dwac", "nearest_neighbour"),
    ("Mahalanobis", "dwac", "mahalanobis"),
    ("softmax: probability", "softmax", "probability"),
    ("energy", "softmax", "energy"),
    ("nearest neighbour", "softmax", "nearest_neighbour"),
    ("Mahalanobis", "softmax", "mahalanobis"),
)


def _values(found: Found, name: str, setting: str, head: str, *path: Any) -> list[float]:
    return found.values((name, setting, head), "domain", *path, **PLACES[name])


def _trust_row(found: Found, name: str, setting: str, head: str, kind: str) -> list[str]:
    first = f"credibility_{kind}"
    paths = [(first, what, place) for what in ("mean", "empty") for place in ("inside", "outside")]
    numbers = [mean(_values(found, name, setting, head, *path)) for path in (*paths, (first, "true_label"))]
    title, who = settings.DATASETS[name].title, f"{'DWAC' if head == 'dwac' else 'softmax'} {kind}"
    strangers = _name(Case(name, setting, head, **PLACES[name]))
    cells = [NOT_RUN if value is None else number(value) for value in numbers]
    own = kind == "weights" or head == "softmax"
    theirs = published.CREDIBILITY_OUTSIDE.get(name, {}).get(head) if own and setting == "paper" else None
    return [title, strangers, who, *cells[:2], number(theirs, 1), *cells[2:]]


def _score_row(found: Found, name: str, setting: str) -> list[str]:
    means = [mean(_values(found, name, setting, head, "scores", score, "auroc")) for _, head, score in SCORES]
    best = max((value for value in means if value is not None), default=None)
    cells = [NOT_RUN if m is None else f"**{m:.3f}**" if m == best else f"{m:.3f}" for m in means]
    return [settings.DATASETS[name].title, *cells]


def _claims(found: Found, setting: str) -> Iterator[list[str]]:
    """Our targets out of domain, each with what was measured."""
    middle, off = published.TRUE_LABEL
    for name in PLACES:
        of = partial(_values, found, name, setting, "dwac")
        trust = mean(of("credibility_weights", "mean", "outside"))
        auroc = mean(of("scores", "class_weight", "auroc"))
        half = mean(of("credibility_weights", "true_label"))
        claims = []
        if (most := published.CREDIBILITY_TARGETS.get(name)) is not None:
            claims.append((f"mean credibility out of domain ≤ {most}", trust, trust is not None and trust <= most))
        if (least := published.AUROC_TARGETS.get(name)) is not None:
            claims.append((f"AUROC of the class weight ≥ {least}", auroc, auroc is not None and auroc >= least))
        best = auroc is not None and auroc >= _best_rival(found, name, setting)
        claims.append(("AUROC of the class weight no lower than any score of others", auroc, best))
        near = half is not None and abs(half - middle) <= off
        claims.append((f"the true label's mean p-value is {middle} ± {off}", half, near))
        for claim, value, met in claims:
            judged = [NOT_RUN] * 2 if value is None else [number(value), verdict(met)]
            yield [settings.DATASETS[name].title, claim, *judged]


def _best_rival(found: Found, name: str, setting: str) -> float:
    """The highest AUROC of the scores that others use."""
    means = [mean(_values(found, name, setting, head, "scores", score, "auroc")) for _, head, score in SCORES[3:]]
    return max((value for value in means if value is not None), default=0.0)


def _draw(found: Found, setting: str) -> Any:
    shown = [name for name in PLACES if any(found.of(name, setting, head, **PLACES[name]) for head in settings.HEADS)]
    figure, axes = figures.new(len(shown), 2, width=3.4, height=1.8)
    edges = np.linspace(0, 1, BINS + 1)
    for row, name in zip(axes, shown, strict=True):
        for panel, (head, kind) in zip(row, (WHO[0], WHO[2]), strict=True):
            for place, look in (("inside", _IN), ("outside", _OUT)):
                counts = _values(found, name, setting, head, f"credibility_{kind}", "histogram", place)
                if counts:
                    total = np.sum(counts, axis=0)
                    panel.stairs(total / total.sum(), edges, label=f"{place} the domain", **look)
            who = "DWAC, weights" if head == "dwac" else "softmax, probability"
            figures.tidy(panel, title=f"{settings.DATASETS[name].title}: {who}", x="credibility", y="share of rows")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


_IN = {"color": figures.COLOURS[0], "linewidth": 1.5}
_OUT = {"color": figures.COLOURS[1], "fill": True, "alpha": 0.45, "hatch": "///"}
