"""Explain predictions from embeddings: the votes of a reference set on each query."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac import _checks as checks
from dwac.conformal import Calibration, ConformalPrediction, nonconformity
from dwac.errors import EPSILON, InputError, ShapeError
from dwac.explain import privacy
from dwac.explain.base import unread_counts
from dwac.explain.explanation import Explanation
from dwac.explain.voters import Neighbor, Source, plain_ids, record_of
from dwac.explain.votes import LabelVotes
from dwac.metrics import Agreement
from dwac.reference import Neighbors, ReferenceSet


def explain(
    references: ReferenceSet,
    queries: Any,
    *,
    k: int = 5,
    calibration: Calibration | None = None,
    nonconformity_kind: str = "weights",
    fold_votes: NDArray[np.float64] | None = None,
    typicality: NDArray[np.float64] | None = None,
    classes: Sequence[Any] | None = None,
    records: Mapping[Any, Any] | pd.DataFrame | pd.Series[Any] | None = None,
    private: bool = False,
    shown: Sequence[Mapping[str, Any]] | None = None,
    alike: Callable[[int, list[Any]], NDArray[np.float64]] | None = None,
    descriptions: Sequence[str | None] | None = None,
    agreement: Agreement | None = None,
    epsilon: float = EPSILON,
    ordered: bool = False,
) -> list[Explanation]:
    """Explain the prediction of each query embedding (n, d).

    Args:
        references: the examples that vote.
        queries: (n, d) embeddings.
        k: how many neighbours to show; all of them if there are fewer.
        calibration: adds p-values, confidence and credibility.
        nonconformity_kind: the score of the calibration, "weights" or "probability".
        fold_votes: (n, F, K) votes of the fold models, if the calibration is a `CrossCalibration`.
        typicality: (n,) the share of calibration examples at least as novel as each query, already rounded if private.
        classes: names of the labels 0 … K-1.
        records: the training examples by id, shown next to their votes.
        private: keep only labels and their rounded shares of the vote (see `dwac.explain.privacy`), whatever k is: no
            training id, record, distance or exact number.
        shown: how each query appears to a person: its "record" and, for a text, its "attention".
        alike: how different training examples are from a query in the input: takes the row of the query and ids,
            returns one number per id, smaller for more similar ones. By default group members are ordered by weight.
        descriptions: what sets each group of the references apart, in words.
        agreement: how often representatives predict the same label as all examples, if they vote for all.
        epsilon: the error rate of prediction sets. ordered: whether classes are ordered, so that sets have no gaps.

    >>> refs = ReferenceSet([[0.1], [0.9], [3.0]], [0, 0, 1], ids=["ann", "bob", "eve"])
    >>> e = explain(refs, [[0.0]], k=2, classes=["no", "yes"])[0]
    >>> e.label, e.deciding, e.flip_set()
    ('no', 1, ['ann', 'bob'])
    >>> e.to_frame()[["id", "label", "share"]].round(3)
        id label  share
    0  ann    no   0.69
    1  bob    no   0.31
    """
    references = copy(references)
    k, epsilon = min(checks.positive_int(k, "k"), len(references)), checks.epsilon(epsilon)
    h = checks.float_tensor(queries, "queries").detach().to(references.embeddings.device)
    names = list(range(references.n_classes)) if classes is None else _class_names(classes, references.n_classes)
    check_records(records)
    log_class_weights, near = references.query(h, k=k)
    votes = log_class_weights.cpu().numpy()
    probabilities = -nonconformity(votes, "probability")  # identical to `predict_proba`, to the last bit
    log_total = np.logaddexp.reduce(votes, axis=1)
    trust: list[dict[str, Any]] = [{}] * len(votes)
    if calibration is not None:
        if private:
            prediction: ConformalPrediction = privacy.conformal(
                calibration, votes, nonconformity_kind, fold_votes=fold_votes
            )
        else:
            by_fold = None if fold_votes is None else nonconformity(fold_votes, nonconformity_kind)
            prediction = calibration.predict(nonconformity(votes, nonconformity_kind), fold_scores=by_fold)
        trust = _trust(prediction, names)
    if typicality is not None:
        known = checks.scores(typicality, "typicality", ndim=1)
        if len(known) != len(votes):
            raise ShapeError(f"typicality must have one entry per query: {len(votes)} required, got {len(known)}")
        trust = [{**each, "typicality": value} for each, value in zip(trust, known.tolist(), strict=True)]
    explanations = []
    for row, log_votes in enumerate(votes):
        label = int(log_votes.argmax())
        source = Source(
            names, None if private else records, None if alike is None else partial(alike, row), descriptions
        )
        voters = neighbors(near, row, float(log_total[row]), [names[code] for code in near.labels[row]], source.records)
        more = {"epsilon": epsilon, "ordered": ordered, **trust[row], **({} if shown is None else shown[row])}
        own = LabelVotes(references, h[row], label)
        explanations.append(
            explanation(own, source, probabilities[row], voters, private=private, agreement=agreement, **more)
        )
    return explanations


def explanation(
    votes: LabelVotes,
    source: Source,
    probabilities: NDArray[np.float64],
    voters: tuple[Neighbor, ...],
    *,
    private: bool,
    **more: Any,
) -> Explanation:
    """The explanation of one query, from all votes on it, the (K,) probabilities and the neighbours."""
    found = Explanation(
        label=source.names[votes.label],
        probability=float(probabilities[votes.label]),
        probabilities=dict(zip(source.names, probabilities.tolist(), strict=True)),
        neighbors=voters,
        n_references=len(votes.references),
        n_examples=round(float(votes.references.sizes.sum())),
        _votes=votes,
        _source=source,
        **more,
    )
    return _hidden(found) if private else found


def _hidden(exact: Explanation) -> Explanation:
    """The private form of an explanation; its p-values were rounded when they were computed."""
    rounded = privacy.shares(list(exact.probabilities.values())).tolist()
    probabilities = dict(zip(exact.probabilities, rounded, strict=True))
    words = exact.attention and tuple((word, privacy.share(weight)) for word, weight in exact.attention)
    flip_size = exact.flip_size
    # All examples of a label together: the share of a single one would reveal how close it is.
    voters = [
        Neighbor(label, None, None, share) for label, share in probabilities.items() if share or label == exact.label
    ]
    return replace(
        exact,
        probability=probabilities[exact.label],
        probabilities=probabilities,
        neighbors=tuple(sorted(voters, key=lambda voter: -voter.share)),
        n_references=privacy.count(exact.n_references),
        n_examples=privacy.count(exact.n_examples),
        attention=words,
        agreement=exact.agreement and privacy.agreement(exact.agreement),
        private=True,
        _votes=None,
        _source=None,
        _counts=(privacy.few(exact.deciding), None if flip_size is None else privacy.few(flip_size)),
    )


def unreadable(why: str, references: ReferenceSet, *, private: bool) -> Explanation:
    """The explanation of an example that could not be read: the reason, no label and no voters."""
    return Explanation(
        label=None,
        probability=math.nan,
        probabilities={},
        **unread_counts(references, private=private),
        private=private,
        unreadable=why,
        _counts=(0, None),
    )


def _class_names(classes: Sequence[Any], n_classes: int) -> list[Any]:
    names = list(classes)
    if len(names) != n_classes:
        raise ShapeError(f"classes must name all {n_classes} labels; got {len(names)} names")
    if not all(isinstance(name, Hashable) for name in names) or len(set(names)) < n_classes:
        raise InputError(f"classes must be distinct names, such as strings or numbers; got {names}")
    return names


def check_records(records: Any) -> None:
    """Raise an error unless records can be looked up by id."""
    if records is not None and not isinstance(records, Mapping | pd.DataFrame | pd.Series):
        raise InputError(
            f"records must be a dict by id, or a DataFrame or Series indexed by id; got {type(records).__name__}"
        )
    if isinstance(records, pd.DataFrame | pd.Series) and not records.index.is_unique:
        repeated = records.index[records.index.duplicated()].tolist()[0]
        raise InputError(f"records must have one row per id; {repeated!r} has several; set a unique index")


def _trust(prediction: ConformalPrediction, names: list[Any]) -> list[dict[str, Any]]:
    columns = zip(
        prediction.p_values.tolist(), prediction.confidence.tolist(), prediction.credibility.tolist(), strict=True
    )
    return [
        {"p_values": dict(zip(names, p, strict=True)), "confidence": confidence, "credibility": credibility}
        for p, confidence, credibility in columns
    ]


def neighbors(near: Neighbors, row: int, log_total: float, labels: Sequence[Any], records: Any) -> tuple[Neighbor, ...]:
    """The nearest references of a query; labels: what each of them votes for."""
    found = []
    for i, (name, log_w) in enumerate(zip(plain_ids(near.ids[row]), near.log_weights[row].tolist(), strict=True)):
        found.append(
            Neighbor.of(
                labels[i],
                log_w,
                log_total,
                squared_distance=float(near.squared_distances[row, i]),
                id=name,
                record=record_of(records, name),
                size=round(float(near.sizes[row, i])),
            )
        )
    return tuple(found)
