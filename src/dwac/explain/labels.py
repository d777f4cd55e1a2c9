"""LabelExplanations: several labels per example, each a yes/no vote of the same voters with its own explanation.

explanations = explain_labels(model.references, h, table, names=["calm", "sad"])[0]
print(explanations["sad"])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dwac import _checks as checks
from dwac.conformal import LabelPrediction
from dwac.drawing.legend import NO_LEGEND, Legend
from dwac.drawing.pages import render
from dwac.drawing.records import plain_dict
from dwac.errors import EPSILON, ShapeError
from dwac.explain.base import series, set_sentences, typicality_sentences, unknown_sentences, unread_sentences
from dwac.explain.classes import Explanation, make_explanation, unreadable
from dwac.explain.comparing import Inquiry
from dwac.explain.reasons import Reasoner
from dwac.explain.rendering import Rendered, example_values, line_width, percent, wrap
from dwac.explain.voters import Source, nearest_voters, read_query
from dwac.explain.votes import LabelVotes, Votes
from dwac.languages import YesNo, message, say, spoken
from dwac.metrics import Agreement
from dwac.reference import ReferenceSet
from dwac.reference.references import with_classes

Floats = NDArray[np.float64]
_MOST_LISTED = 12  # labels named in a sentence
_COLUMNS = 6  # labels with a column of their own in a table of many explanations


@dataclass(eq=False, repr=False)
class LabelExplanations(Rendered, Mapping[Any, Explanation]):
    """Why one example gets each of several labels, or does not: label → `Explanation` of a yes/no vote.

    The explanation of the label "sad" chooses between "sad" and "not sad". It is made on first access, unless it is
    private: then it is made at once, and the votes behind it are not kept.

    `labels` are the predicted ones, with at least half of the votes; probabilities are NaN if unreadable.

    >>> import pandas as pd
    >>> from dwac import DWACClassifier
    >>> X = pd.DataFrame({"age": range(20, 80)})
    >>> y = [{"young"} if age < 50 else {"old", "retired"} for age in X["age"]]
    >>> clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, y)
    >>> e = clf.explain(X[-1:])[0]
    >>> sorted(e), e["retired"].label
    (['old', 'retired', 'young'], 'retired')
    """

    probabilities: dict[Any, float]  # P(label) by label
    _make: Callable[[int], Explanation] | None  # returns the explanation of the label at a position
    # As in the explanation of every label:
    private: bool = False
    unreadable: str | None = None
    typicality: float | None = None
    record: Any = None
    attention: tuple[tuple[str, float], ...] | None = None
    unknown: str | None = None
    legend: Legend = NO_LEGEND
    label_set: tuple[Any, ...] | None = None  # of `predict_set`; misses a share `epsilon` of labels on average
    epsilon: float = EPSILON

    def __post_init__(self) -> None:
        self.labels: tuple[Any, ...] = tuple(label for label, p in self.probabilities.items() if p >= 0.5)
        self._places = {label: place for place, label in enumerate(self.probabilities)}
        self._made: dict[Any, Explanation] = {}
        if self.private:
            made = list(self.values())
            self._make, self.attention = None, made[0].attention
            if not self.unreadable:
                self.probabilities = {label: e.probabilities[has_it(label)] for label, e in self._made.items()}

    def __getitem__(self, label: Any) -> Explanation:
        """The explanation of one label."""
        if label not in self._made:
            place = self._places[label]
            assert self._make is not None
            self._made[label] = self._make(place)
        return self._made[label]

    def __iter__(self) -> Iterator[Any]:
        """All labels."""
        return iter(self._places)

    def __len__(self) -> int:
        """The number of labels."""
        return len(self._places)

    def __repr__(self) -> str:
        """The labels that are predicted."""
        prediction = "could not be read" if self.unreadable else self._list(self.labels) or "no label"
        return f"<{type(self).__name__}: {prediction}, of {len(self):,} labels>"

    # Words

    @spoken
    def sentences(self, *, language: str | None = None) -> list[str]:
        """Which labels are predicted, and the probabilities of the others, in plain words; language: such as "de"."""
        del language  # see `spoken`
        if self.unreadable:
            return unread_sentences(self.unreadable)
        others = sorted((label for label in self if label not in self.labels), key=lambda n: -self.probabilities[n])
        facts = [
            say("Predicted {labels}.", labels=self._list(self.labels)) if self.labels else say("Predicted no label.")
        ]
        if others:
            facts.append(say("Not predicted: {labels}.", labels=self._list(others)))
        return [
            *facts,
            *unknown_sentences(self.unknown),
            *set_sentences(self.label_set, self.epsilon),
            *typicality_sentences(self.typicality, private=self.private),
        ]

    def lead(self) -> list[str]:
        """The same: all of them come before the votes on each label."""
        return [] if self.unreadable else self.sentences()

    def details(self) -> list[str]:
        """Nothing: each label has its own."""
        return []

    def _list(self, labels: Sequence[Any]) -> str:
        """Labels with their probabilities."""
        parts = [f"{label} ({self._probability(label)})" for label in labels[:_MOST_LISTED]]
        if len(labels) > _MOST_LISTED:
            parts.append(say("{n} others", n=len(labels) - _MOST_LISTED))
        return series(parts)

    def _probability(self, label: Any) -> str:
        return percent(self.probabilities[label], private=self.private)

    @property
    def _shown(self) -> tuple[Any, ...]:
        """The labels whose explanations are printed: the predicted ones, or the most probable one."""
        return self.labels or (max(self, key=lambda label: self.probabilities[label]),)

    @spoken
    def to_text(self, width: int | None = None, *, language: str | None = None) -> str:
        """The sentences, then the explanations of the predicted labels, or of the most probable one.

        width: of lines, by default that of the terminal. language: of the text, such as "de".
        """
        del language  # see `spoken`
        width = line_width() if width is None else width
        facts = "\n".join(wrap(self.sentences(), width))
        if self.unreadable:
            return facts
        return "\n\n".join([facts, *(f"{label}\n{self[label].to_text(width, again=False)}" for label in self._shown)])

    def _summary(self) -> dict[str, Any]:
        """One line of a table of many explanations, for `Explanations`."""
        columns: dict[str, Any] = {"labels": ", ".join(map(str, self.labels)) or "–"}
        columns |= {f"P({label})": self.probabilities[label] for label in list(self)[:_COLUMNS]}
        return columns | ({} if self.typicality is None else {"typicality": self.typicality})

    # Plain values and pages

    @spoken
    def to_dict(self, labels: Iterable[Any] | None = None, *, language: str | None = None) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON; makes the explanations of all labels, or of these.

        language: of the texts, such as "de".
        """
        del language  # see `spoken`
        return plain_dict(
            {
                "labels": None if self.unreadable else self.labels,
                "probabilities": self.probabilities,
                "label_set": self.label_set,
                "epsilon": self.epsilon,
                "typicality": self.typicality,
                "unreadable": self.unreadable,
                "unknown": self.unknown,
                "private": self.private,
                "record": self.record,
                "attention": self.attention,
                "explanations": {label: self[label].to_dict() for label in (self if labels is None else labels)},
                **({"columns": self.legend.to_dict()} if self.legend else {}),
            }
        )

    @spoken
    def to_html(self, *, language: str | None = None) -> str:
        """A self-contained HTML fragment: the example, and each label's explanation to unfold; every value escaped.

        language: of the texts, such as "de".
        """
        del language  # see `spoken`
        shown = [] if self.unreadable else self
        labels = [
            (f"{label}: {self._probability(label)}", label in self._shown, self._folded(label).to_html(example=False))
            for label in shown
        ]
        example = example_values(self.record, self.attention, self.legend)
        return render("explain/templates/labels.html", sentences=self.sentences(), labels=labels, **example)

    def _folded(self, label: Any) -> Explanation:
        """The explanation of a label; of one that is folded away, without asking the model for reasons."""
        return self[label] if label in self._shown else replace(self[label], _question=Reasoner())


def has_it(label: Any) -> str:
    """The name of the class of examples that have a label."""
    return label if isinstance(label, str) else YesNo(message("label {label}"), label)


def has_it_not(label: Any) -> str:
    """The name of the class of examples that do not have it."""
    text = message("not {label}") if isinstance(label, str) else message("not label {label}")
    return YesNo(text, label)


def explain_labels(
    references: ReferenceSet,
    queries: Any,
    table: ArrayLike,
    *,
    names: Sequence[Any],
    probabilities: ArrayLike,
    k: int = 5,
    prediction: LabelPrediction | None = None,
    typicality: Floats | None = None,
    records: Any = None,
    private: bool = False,
    shown: Sequence[Mapping[str, Any]] | None = None,
    alike: Callable[[int, list[Any]], Floats] | None = None,
    inquire: Callable[[int, int], Inquiry] | None = None,
    descriptions: Callable[[int, ReferenceSet], Sequence[str | None] | None] | None = None,
    agreement: Agreement | None = None,
    sets: NDArray[np.bool_] | None = None,
    epsilon: float = EPSILON,
) -> list[LabelExplanations]:
    """Explain the labels of each query embedding (n, d).

    Args:
        references, queries, k, typicality, records, private, shown, alike, agreement: as for `explain`.
        inquire: the same; takes the position of the label, too.
        table: (K, L) of 0 and 1: which labels the label set of each code 0 … K-1 of the references holds.
        names: (L,) of the labels. probabilities: (n, L) of the labels.
        sets: (n, L) prediction sets at error rate `epsilon`.
        prediction: p-values of having and of not having each label; already rounded if private.
        descriptions: what sets the groups of a label's yes/no vote apart, in words: takes the position of the label and
            the references with these groups.

    >>> refs = ReferenceSet([[0.1], [0.9], [3.0]], [0, 1, 1], ids=["ann", "bob", "eve"])
    >>> e = explain_labels(refs, [[0.0]], [[1, 0], [1, 1]], names=["calm", "sad"], probabilities=[[1.0, 0.31]])[0]
    >>> e.labels, e["sad"].label, e["sad"].flip_set()
    (('calm',), 'not sad', ['ann'])
    """
    references, h, k = read_query(references, queries, k, records)
    has = np.asarray(table) > 0
    p = checks.scores(probabilities, "probabilities", ndim=2)
    if has.shape != (references.n_classes, len(names)) or p.shape != (len(h), len(names)):
        raise ShapeError(
            f"table must be ({references.n_classes}, {len(names)}) and probabilities ({len(h)}, {len(names)}); "
            f"got {has.shape} and {p.shape}"
        )
    near, shown = references.nearest(h, k), shown or [{}] * len(h)
    described: dict[int, Sequence[str | None] | None] = {}

    def make(row: int, votes: Votes, label: int) -> Explanation:
        yes_no = with_classes(references, np.where(has[:, label], 0, 1), 2)
        if label not in described:
            described[label] = None if descriptions is None or private else descriptions(label, yes_no)
        words = (has_it(names[label]), has_it_not(names[label]))
        source = Source(
            words,
            None if private else records,
            None if alike is None else partial(alike, row),
            described[label],
            shown[row].get("record"),
        )
        own = LabelVotes(yes_no, h[row], 0 if p[row, label] >= 0.5 else 1, same=votes)
        more: dict[str, Any] = {} if prediction is None else _trust(prediction, row, label, words)
        sides = [words[0 if has[code, label] else 1] for code in near.labels[row]]
        voters = nearest_voters(near, row, own.log_total, sides, source.records)
        chances = np.array([p[row, label], 1 - p[row, label]])
        more |= {"private": private, "agreement": agreement, "epsilon": epsilon, **common(row)}
        inquiry = None if inquire is None else inquire(row, label)
        return make_explanation(own, source, chances, voters, inquiry, **more)

    def common(row: int) -> dict[str, Any]:
        known = None if typicality is None else float(typicality[row])
        return {"typicality": known, **shown[row]}

    return [
        LabelExplanations(
            dict(zip(names, p[row].tolist(), strict=True)),
            partial(make, row, Votes(references, h[row])),
            private=private,
            label_set=None
            if sets is None
            else tuple(name for name, inside in zip(names, sets[row], strict=True) if inside),
            epsilon=epsilon,
            **common(row),
        )
        for row in range(len(h))
    ]


def unreadable_labels(why: str, names: Sequence[Any], references: ReferenceSet, *, private: bool) -> LabelExplanations:
    """The explanations of an example that could not be read: the reason, no label and no voters."""
    chances = dict.fromkeys(names, math.nan)
    none = partial(unreadable, why, references, private=private)
    return LabelExplanations(chances, lambda _: none(), private=private, unreadable=why)


def _trust(prediction: LabelPrediction, row: int, label: int, words: tuple[str, str]) -> dict[str, Any]:
    p_values = (float(prediction.p_yes[row, label]), float(prediction.p_no[row, label]))
    confidence = 1 - min(p_values)
    return {
        "p_values": dict(zip(words, p_values, strict=True)),
        "confidence": round(confidence, 12),
        "credibility": max(p_values),
    }
