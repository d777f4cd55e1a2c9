"""Explanation: who voted, how much, how few suffice, and whose removal would change the label.

references = model.references
explanation = explain(references, h, k=5)[0]
print(explanation)
"""

from __future__ import annotations

import html
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac import privacy
from dwac.conformal import Calibration, ConformalPrediction, nonconformity
from dwac.drawing.neighbors import draw_explanation
from dwac.drawing.records import data_url, is_png, written
from dwac.engine import Index
from dwac.errors import InputError, PrivacyError, ShapeError
from dwac.reference import Neighbors, ReferenceSet


@dataclass(frozen=True)
class Neighbor:
    """One training example's part in a prediction. When private, the share of all examples of that label together."""

    label: Any
    log_weight: float | None  # log w(h, h_i), with the weight of its class where classes have weights
    weight: float | None  # w, 0.0 where it underflows: `share` does not
    share: float  # of the whole vote, all classes together
    id: Any = None
    distance: float | None = None  # ‖h - h_i‖
    record: Any = None


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why one example got its label: made by `dwac.explain.explain`.

    `confidence`, `credibility` and `p_values` are None where no calibration was given. `private`: labels, and numbers
    as `dwac.privacy` rounds them; no id, record, distance, weight or exact vote is held in any attribute.
    """

    label: Any
    probability: float
    probabilities: dict[Any, float]
    neighbors: tuple[Neighbor, ...]  # nearest first; where private, the labels with votes, largest share first
    n_references: int
    confidence: float | None = None
    credibility: float | None = None
    p_values: dict[Any, float] | None = None
    private: bool = False
    record: Any = None  # the explained example itself
    attention: tuple[tuple[str, float], ...] | None = None  # a text's words, and how much the network read each
    unreadable: str | None = None  # why the example could not be read: then nobody voted, and all else is the prior
    _votes: Votes | None = field(default=None, repr=False)
    _settled: tuple[int, int | None] | None = field(default=None, repr=False)

    @cached_property
    def deciding(self) -> int:
        """How few nearest examples fix the label, whatever labels all the others might have (certified)."""
        return self._settled[0] if self._settled else self._held.deciding()

    @cached_property
    def flip_size(self) -> int | None:
        """How many training examples must go to change the label; None if no removal can."""
        return self._settled[1] if self._settled else self._held.flip_size()

    def flip_set(self) -> list[Any] | None:
        """Ids of a smallest set of training examples whose removal changes the label; None if there is none.

        No smaller set does it: only votes for the label can be missed, and these are the heaviest.
        """
        if self.private:
            raise PrivacyError("a private explanation holds no ids; flip_size says how many examples it takes")
        rows = None if self.unreadable else self._held.flip_rows()
        return None if rows is None else self._held.ids[rows].tolist()

    @property
    def _held(self) -> Votes:
        assert self._votes is not None
        return self._votes

    def to_frame(self) -> pd.DataFrame:
        """The neighbours, a row each: id, label, weight, share, distance, and the columns of their records."""
        if self.unreadable:
            return pd.DataFrame(columns=["label", "weight", "log_weight", "share"])
        rows = []
        for n in self.neighbors:
            if self.private:
                votes = {"label": n.label, "share": n.share}
            else:
                votes = {"label": n.label, "weight": n.weight, "log_weight": n.log_weight, "share": n.share}
                record = dict(n.record) if isinstance(n.record, Mapping) else {"record": n.record}
                # A record may have a column called like one of ours: both are kept.
                extra = {f"record.{k}" if k in {"id", "distance", *votes} else k: v for k, v in record.items()}
                has_record = n.record is not None
                votes = {"id": n.id, **votes, "distance": n.distance, **(extra if has_record else {})}
            rows.append(votes)
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON."""
        neighbors = [
            {"label": n.label, "share": n.share}
            if self.private
            else {"label": n.label, "weight": n.weight, "log_weight": n.log_weight, "share": n.share}
            | {"id": n.id, "distance": n.distance, "record": n.record}
            for n in self.neighbors
        ]
        shown: dict[str, Any] = plain(
            {
                "label": self.label,
                "probability": self.probability,
                "probabilities": self.probabilities,
                "confidence": self.confidence,
                "credibility": self.credibility,
                "p_values": self.p_values,
                "unreadable": self.unreadable,
                "deciding": None if self.unreadable else self.deciding,
                "flip_size": self.flip_size,
                "n_references": self.n_references,
                "private": self.private,
                "record": self.record,
                "attention": self.attention,
                "neighbors": neighbors,
            }
        )
        return shown

    def sentences(self) -> list[str]:
        """The explanation in plain words, a sentence a fact."""
        told = (privacy.percent, privacy.credibility, privacy.confidence) if self.private else ("{:.3f}".format,) * 3
        if self.unreadable:
            return [
                f"This example could not be read: {self.unreadable}.",
                f"Nobody voted on it. {self.label} is the commonest label, with {told[0](self.probability)} of all "
                "votes; no label fits, and none is credible.",
            ]
        said = [f"Predicted {self.label} with probability {told[0](self.probability)}."]
        if self.credibility is not None and self.confidence is not None:
            said.append(
                f"Credibility {told[1](self.credibility)}: the share of calibration examples that fit their own label "
                f"no better than this one fits its best. Confidence {told[2](self.confidence)}: how firmly every other "
                "label is rejected."
            )
        if self.private:
            said.append(
                f"The nearest {_about(self.deciding)} settle it: whatever labels all others had, it would stay. "
                f"There are {_about(self.n_references)}."
            )
        elif self.n_references == self.deciding:
            said.append(f"It takes all {self.n_references:,} training examples to settle the label.")
        else:
            few = "example settles" if self.deciding == 1 else f"{self.deciding:,} examples settle"
            said.append(
                f"The nearest {few} it: whatever labels the other {self.n_references - self.deciding:,} training "
                "examples had, it would stay."
            )
        if self.flip_size is None:
            said.append("No removal of training examples would change it.")
        else:
            n = f"{self.flip_size:,} training example{'s' * (self.flip_size != 1)}"
            said.append(f"Removing {_about(self.flip_size) if self.private else n} would change it.")
        return said

    def __str__(self) -> str:
        """Sentences, then the neighbours as a table."""
        if self.unreadable:
            return "\n".join(self.sentences())
        shown = self.to_frame().drop(columns="log_weight", errors="ignore").map(_brief)
        if self.private:
            shown["share"] = shown["share"].map(privacy.percent)
        table = shown.to_string(index=False, float_format=lambda v: f"{v:.4g}")
        return "\n".join([*self.sentences(), "", table])

    def to_html(self) -> str:
        """A self-contained piece of HTML: no scripts, no links, every value escaped."""
        frame = self.to_frame().drop(columns="log_weight", errors="ignore")
        head = "".join(f'<th scope="col">{html.escape(str(name))}</th>' for name in frame.columns)
        body = "".join(
            "<tr>" + "".join(_cell(str(name), row[i], self.private) for i, name in enumerate(frame.columns)) + "</tr>"
            for row in frame.itertuples(index=False, name=None)
        )
        words = _attention(self.attention) if self.attention else _shown(self.record)
        words += "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.sentences())
        table = "" if self.unreadable else f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f'<div class="dwac-explanation">{_STYLE}{words}{table}</div>'

    def _repr_html_(self) -> str:
        return self.to_html()

    def plot(self) -> Any:
        """A matplotlib figure: the example beside those that voted on it. Needs the extra `dwac[report]`.

        Images stand side by side, a text's words are shaded by attention, columns of a table that differ are marked.
        """
        return draw_explanation(self)


class Votes:
    """Every reference's vote on one query, in float64: what `deciding` and `flip_set` are certified from.

    A vote is w(h, h_i) times the weight c of its class. Where two classes have equally many votes, the first one is the
    label: what must go to change it is found by exact sums (`math.fsum`), which tell a tie from rounding.
    """

    def __init__(self, index: Index, h: Tensor, label: int, ids: NDArray[Any], class_weights: NDArray[Any]) -> None:
        self.index, self.h, self.label, self.ids = index, h, label, ids
        self.class_weights = class_weights

    @cached_property
    def ordered(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """log w(h, h_i) without class weights, nearest first, with the labels and rows they belong to."""
        h = self.h.double()
        squared = torch.cat([(part.double() - h).square().sum(1) for part in self.index.embeddings.split(65_536)])
        log_w, rows = self.index.kernel.log_weights(squared).sort(descending=True, stable=True)
        return log_w.cpu().numpy(), self.index.labels[rows].cpu().numpy(), rows.cpu().numpy()

    def deciding(self) -> int:
        """The least j such that the j nearest keep the label, whatever labels all the others might have.

        The worst that can happen is that all others, Σ w in total, join one rival k: j is enough if the label leads
        each k among the j nearest by more than c_k Σ w. One more example never undoes that. A tie settles nothing.
        """
        log_w, labels, _ = self.ordered
        weights = np.exp(log_w - log_w[0])
        votes = weights * self.class_weights[labels]
        rest = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
        rivals = [k for k in range(self.index.n_classes) if k != self.label]

        def settled(j: int) -> bool:
            counts = np.bincount(labels[:j], votes[:j], self.index.n_classes)
            leads = counts[self.label] - counts[rivals] - self.class_weights[rivals] * rest[j]
            return bool((leads > 1e-12 * (counts.sum() + self.class_weights.max() * rest[j])).all())

        low, high = 0, len(labels)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if settled(middle) else (middle + 1, high)
        return low

    def flip_rows(self) -> NDArray[np.int64] | None:
        """Rows of the fewest references without which the label changes: the nearest that voted for it."""
        log_w, labels, rows = self.ordered
        mine = labels == self.label
        if mine.all():
            return None
        votes = log_w + np.log(self.class_weights)[labels]
        rival, most = self._rival(votes, labels)
        # In units of the rival's largest vote: neither side underflows. What is beyond e⁷⁰⁰ times that must go anyway.
        theirs = math.fsum(np.exp(votes[labels == rival] - most))
        own = np.exp(np.minimum(votes[mine] - most, 700.0))
        remaining = np.append(np.cumsum(own[::-1])[::-1], 0.0)

        def changed(size: int) -> bool:
            left = remaining[size]
            if abs(left - theirs) <= 1e-9 * theirs:
                left = math.fsum(own[size:])
            return bool(left < theirs or (left == theirs and rival < self.label))

        size = max(1, int(np.searchsorted(-remaining, -theirs * (1 + 1e-9))))  # here or a few places on
        while not changed(size):
            size += 1
        return np.asarray(rows[mine][:size])

    def flip_size(self) -> int | None:
        """How many those are; None where no removal changes the label."""
        rows = self.flip_rows()
        return None if rows is None else len(rows)

    def _rival(self, votes: NDArray[np.float64], labels: NDArray[np.int64]) -> tuple[int, float]:
        """The class with the most votes beside the label, the first of several; and the log of its largest vote."""
        largest = np.full(self.index.n_classes, -np.inf)
        np.maximum.at(largest, labels, votes)
        largest[self.label] = -np.inf
        most = float(largest.max())
        sums = [
            -1.0 if largest[k] == -np.inf else math.fsum(np.exp(votes[labels == k] - most))
            for k in range(self.index.n_classes)
        ]
        return int(np.argmax(sums)), most


def explain(
    references: ReferenceSet,
    queries: Any,
    *,
    k: int = 5,
    calibration: Calibration | None = None,
    nonconformity_kind: str = "weights",
    classes: Sequence[Any] | None = None,
    records: Mapping[Any, Any] | pd.DataFrame | pd.Series[Any] | None = None,
    private: bool = False,
    shown: Sequence[Mapping[str, Any]] | None = None,
) -> list[Explanation]:
    """Explain the prediction of each query embedding (n, d).

    Args:
        references: who votes.
        queries: (n, d) embeddings.
        k: how many neighbours to show (all, if there are fewer).
        calibration: adds p-values, confidence and credibility.
        nonconformity_kind: the score the calibration was made from, "weights" or "probability".
        classes: names of the labels 0 … K-1.
        records: the training examples by id, to show beside their votes.
        private: tell labels and their rounded shares of the vote alone, as `dwac.privacy` has them, whatever k is: no
            training id, record, distance or exact number is held.
        shown: what each query is to a person: its "record" and, for a text, its "attention".

    >>> refs = ReferenceSet([[0.1], [0.9], [3.0]], [0, 0, 1], ids=["ann", "bob", "eve"])
    >>> e = explain(refs, [[0.0]], k=2, classes=["no", "yes"])[0]
    >>> e.label, e.deciding, e.flip_set()
    ('no', 1, ['ann', 'bob'])
    >>> e.to_frame()[["id", "label", "share"]].round(3)
        id label  share
    0  ann    no   0.69
    1  bob    no   0.31
    """
    references = references.snapshot()
    k = min(checks.positive_int(k, "k"), len(references))
    h = checks.float_tensor(queries, "queries").detach().to(references.embeddings.device)
    names = list(range(references.n_classes)) if classes is None else _class_names(classes, references.n_classes)
    _check_records(records)
    index, ids = references.index, references.ids
    log_class_weights, near = references.query(h, k=k)
    votes = log_class_weights.cpu().numpy()
    probabilities = -nonconformity(votes, "probability")  # as `predict_proba` has them, to the last bit
    log_total = np.logaddexp.reduce(votes, axis=1)
    trust: list[dict[str, Any]] = [{}] * len(votes)
    if calibration is not None:
        if private:
            prediction: ConformalPrediction = privacy.conformal(calibration, votes, nonconformity_kind)
        else:
            prediction = calibration.predict(nonconformity(votes, nonconformity_kind))
        trust = _trust(prediction, names)
    explanations = []
    for row, log_votes in enumerate(votes):
        label = int(log_votes.argmax())
        ballot = Votes(index, h[row], label, ids, references.class_weights)
        explanation = Explanation(
            label=names[label],
            probability=float(probabilities[row, label]),
            probabilities=dict(zip(names, probabilities[row].tolist(), strict=True)),
            neighbors=_neighbors(near, row, float(log_total[row]), names, None if private else records),
            n_references=len(references),
            _votes=ballot,
            **trust[row],
            **({} if shown is None else shown[row]),
        )
        explanations.append(_hidden(explanation) if private else explanation)
    return explanations


def _hidden(exact: Explanation) -> Explanation:
    """What private leaves of an explanation; its p-values are rounded already, where they are made."""
    told = privacy.shares(list(exact.probabilities.values())).tolist()
    probabilities = dict(zip(exact.probabilities, told, strict=True))
    words = exact.attention and tuple((word, privacy.share(weight)) for word, weight in exact.attention)
    flip_size = exact.flip_size
    # All examples of a label together: a single share would tell how near the nearest one is.
    voters = [
        Neighbor(label, None, None, share) for label, share in probabilities.items() if share or label == exact.label
    ]
    return replace(
        exact,
        probability=probabilities[exact.label],
        probabilities=probabilities,
        neighbors=tuple(sorted(voters, key=lambda voter: -voter.share)),
        n_references=privacy.count(exact.n_references),
        attention=words,
        private=True,
        _votes=None,
        _settled=(privacy.few(exact.deciding), None if flip_size is None else privacy.few(flip_size)),
    )


def _about(n: int) -> str:
    """A rounded number of training examples."""
    said = f"{n:,} training examples"
    return f"{said} or fewer" if n == privacy.FEWEST else f"about {said}" if n >= 100 else said


def unreadable(
    why: str, shares: NDArray[np.float64], classes: Sequence[Any], n_references: int, *, calibrated: bool, private: bool
) -> Explanation:
    """Of an example that could not be read: why, (K,) shares of the classes, and no voters."""
    best = int(shares.argmax())
    if private:
        shares, n_references = privacy.shares(shares), privacy.count(n_references)
    return Explanation(
        label=classes[best],
        probability=float(shares[best]),
        probabilities=dict(zip(classes, shares.tolist(), strict=True)),
        neighbors=(),
        n_references=n_references,
        confidence=0.0 if calibrated else None,
        credibility=0.0 if calibrated else None,
        p_values=dict.fromkeys(classes, 0.0) if calibrated else None,
        private=private,
        unreadable=why,
        _settled=(0, None),
    )


def _class_names(classes: Sequence[Any], n_classes: int) -> list[Any]:
    names = list(classes)
    if len(names) != n_classes:
        raise ShapeError(f"classes must name all {n_classes} labels; got {len(names)}")
    if not all(isinstance(name, Hashable) for name in names) or len(set(names)) < n_classes:
        raise InputError(f"classes must be distinct names, such as strings or numbers; got {names}")
    return names


def _check_records(records: Any) -> None:
    if records is not None and not isinstance(records, Mapping | pd.DataFrame | pd.Series):
        raise InputError(f"records must be a dict, a DataFrame or a Series by id; got {type(records).__name__}")
    if isinstance(records, pd.DataFrame | pd.Series) and not records.index.is_unique:
        repeated = records.index[records.index.duplicated()].tolist()[0]
        raise InputError(f"records must have one row an id; {repeated!r} has several; set a unique index")


def _trust(prediction: ConformalPrediction, names: list[Any]) -> list[dict[str, Any]]:
    columns = zip(
        prediction.p_values.tolist(), prediction.confidence.tolist(), prediction.credibility.tolist(), strict=True
    )
    return [
        {"p_values": dict(zip(names, p, strict=True)), "confidence": confidence, "credibility": credibility}
        for p, confidence, credibility in columns
    ]


def _neighbors(near: Neighbors, row: int, log_total: float, names: list[Any], records: Any) -> tuple[Neighbor, ...]:
    found = []
    for i, log_w in enumerate(near.log_weights[row].tolist()):
        name = near.ids[row, i].item() if isinstance(near.ids[row, i], np.generic) else near.ids[row, i]
        found.append(
            Neighbor(
                label=names[near.labels[row, i]],
                log_weight=log_w,
                weight=float(np.exp(log_w)),
                share=float(np.exp(log_w - log_total)),
                id=name,
                distance=float(np.sqrt(near.squared_distances[row, i])),
                record=_record(records, name),
            )
        )
    return tuple(found)


def _record(records: Any, name: Any) -> Any:
    """The training example of that id, a row of a data frame as a dict; None where there is none."""
    if records is None:
        return None
    if not isinstance(records, pd.DataFrame | pd.Series):
        return records.get(name) or None
    if name not in records.index:
        return None
    found = records.loc[name]
    return found.to_dict() if isinstance(records, pd.DataFrame) else found


def plain(value: Any) -> Any:
    """A value as JSON knows it: NumPy scalars become Python's, other objects their text."""
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(plain(key)): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no NaN
    if is_png(value):
        return data_url(value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _brief(value: Any) -> Any:
    """A value as it fits into a column of text."""
    return written(value) if isinstance(value, str) or is_png(value) else value


_STYLE = (
    "<style>.dwac-explanation{font-family:system-ui,sans-serif;max-width:60em}"
    ".dwac-explanation table{border-collapse:collapse}"
    ".dwac-explanation th,.dwac-explanation td{padding:.2em .8em;text-align:left;border-bottom:1px solid #8884}"
    ".dwac-explanation meter{width:6em;margin-right:.5em}</style>"
)


def _attention(words: Sequence[tuple[str, float]]) -> str:
    """The words of a text, each on a ground as strong as the network's attention to it."""
    most = max(weight for _, weight in words) or 1.0
    marked = (
        f'<span style="background:rgba(255,165,0,{weight / most:.2f})" title="{weight:.3f}">{html.escape(word)}</span>'
        for word, weight in words
    )
    return f"<p>{' '.join(marked)}</p>"


def _shown(record: Any) -> str:
    """The explained example, above what is said of it."""
    if not record:
        return ""
    parts = record.items() if isinstance(record, Mapping) else [("", record)]
    return "<p>" + ", ".join((f"{html.escape(str(name))} " if name else "") + _value(v) for name, v in parts) + "</p>"


def _value(value: Any) -> str:
    if is_png(value):
        return f'<img src="{data_url(value)}" alt="the image" height="64" style="image-rendering:pixelated">'
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))


def _cell(name: str, value: Any, private: bool) -> str:
    text = html.escape(privacy.percent(value)) if private and name == "share" else _value(value)
    bar = f'<meter value="{value:.6f}" aria-label="share of the vote"></meter>' if name == "share" else ""
    return f"<td>{bar}{text}</td>"
