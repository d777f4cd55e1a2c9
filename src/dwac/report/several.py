"""What the report says of several labels at once: each label, its probability, decisions on it, and sets."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac import metrics
from dwac.drawing.records import written
from dwac.errors import CalibrationWarning
from dwac.estimator import DWACClassifier
from dwac.estimator.evaluation import Fact, LabelEvaluation, LabelPredictions
from dwac.estimator.targets import read_labels
from dwac.report import plots, words
from dwac.report.cases import told_cases
from dwac.report.findings import EPSILONS, Findings, measured
from dwac.report.markup import Html, joined, table, tag
from dwac.report.parts import Section, fact_table, figure, model, share, tiles, typicality
from dwac.report.words import percent

_MOST_LABELS, _DRAWN = 60, 8
_KINDS = {
    "typical": "Examples of average typicality with every label right.",
    "doubtful": "The least typical examples. A person should check these.",
    "wrong": "The examples with the most wrong labels.",
}


@dataclass(frozen=True, eq=False)
class LabelFindings(Findings):
    """Predicted labels, and which ones examples have, (n, L)."""

    clf: DWACClassifier
    truth: NDArray[np.bool_]
    predictions: LabelPredictions
    outside: LabelPredictions | None
    result: LabelEvaluation

    @property
    def wrong(self) -> NDArray[np.int64]:
        """(n,): how many labels are wrong."""
        return np.asarray((self.predictions.has != self.truth).sum(axis=1))

    def cases(self, most: int) -> dict[str, list[int]]:
        """Rows of typical, doubtful and wrong predictions, each once."""
        wrong = [row for row in np.argsort(-self.wrong, kind="stable").tolist() if self.wrong[row]][:most]
        doubtful = [row for row in self.unusual if row not in wrong][:most]
        trust = -self.wrong if self.typicality is None else self.typicality
        usual = np.argsort(np.abs(trust - np.median(trust)), kind="stable").tolist()
        right = [row for row in usual if not self.wrong[row] and row not in doubtful]
        return {"typical": right[:most], "doubtful": doubtful, "wrong": wrong}


def find(
    clf: DWACClassifier,
    X: Any,
    y: Any,
    *,
    ids: Iterable[Hashable] | None = None,
    unlike: Any = None,
    epsilon: float = 0.05,
    private: bool | None = None,
) -> LabelFindings:
    """Predict test examples X with labels y, and out-of-distribution examples `unlike`."""
    found = measured(clf, X, y, ids=ids, unlike=unlike, epsilon=epsilon, private=private)
    truth = read_labels(y, len(found.kept), clf.classes_, listed=clf.target_.listed)[0][found.kept] > 0
    return LabelFindings(clf, found.X, found.ids, truth, found.predictions, found.outside, found.result)


def label_sections(found: LabelFindings, k: int, n_cases: int) -> list[Section]:
    """What is said of several labels."""
    explained = told_cases(found, found.cases(n_cases), _KINDS, _said, k=k)
    return [
        ("short", "In short", tiles(_headline(found))),
        ("model", "The model", model(found, _target(found))),
        ("labels", "How accurate is it?", _labels(found)),
        ("probabilities", "Can its probabilities be trusted?", _probabilities(found)),
        ("sets", "Decisions and sets with guarantees", _sets(found)),
        ("typicality", "Does it notice unfamiliar data?", typicality(found)),
        ("predictions", "Explained predictions", explained),
    ]


def _headline(found: LabelFindings) -> list[Fact]:
    result = found.result
    none = float(found.truth.mean())
    hamming = (
        f"The share of wrong entries in the table of examples and labels. Predicting no label at all would give "
        f"{percent(none)}."
    )
    facts = [
        Fact("Micro F1", f"{result.micro_f1:.3f}", "Precision and recall, all labels together. 1 is perfect."),
        Fact("Macro F1", f"{result.macro_f1:.3f}", "The same for each label alone, then the mean."),
        Fact("Hamming loss", percent(result.hamming_loss), hamming),
        Fact("Every label right", percent(result.subset_accuracy), "The share of examples without any wrong label."),
    ]  # fmt: skip
    if result.missed_share is not None and result.undecided is not None:
        epsilon = f"ε\u00a0=\u00a0{result.epsilon:g}"
        missed = (
            f"The share of an example's labels that its set misses; built to be at most {percent(result.epsilon)} on "
            f"average. Sets hold {result.mean_set_size:.2f} of {len(result.by_label):,} labels on average."
        )
        wrong = (
            f"On so many labels there is no decision. {share(result.wrong_of_having)} of those who have a label are "
            f"told no, {share(result.wrong_of_lacking)} of those who lack it yes; each is built to be at most "
            f"{percent(result.epsilon)}, for every label."
        )
        facts += [
            Fact(f"Missed at {epsilon}", percent(result.missed_share), missed),
            Fact(f"Undecided at {epsilon}", percent(result.undecided), wrong),
        ]
    if result.typicality is not None:
        facts.append(Fact("Mean typicality", f"{result.typicality:.2f}", words.typicality(found)))
    return facts


def _target(found: LabelFindings) -> Fact:
    names = found.clf.classes_.tolist()
    references, tables = found.clf.references_, found.clf.target_.table
    counts = np.bincount(references.labels.cpu().numpy(), references.sizes, len(tables)) @ tables
    few, many = written(names[counts.argmin()]), written(names[counts.argmax()])
    fewest, most = (found.count(round(float(count))) for count in (counts.min(), counts.max()))
    balance = f"From {fewest:,} training examples ({few}) to {most:,} ({many}); an example has "
    balance += f"{counts.sum() / references.sizes.sum():.2g} labels on average."
    return Fact(f"{len(names)} labels", written(", ".join(written(name) for name in names), 200), balance)


def _labels(found: LabelFindings) -> Html:
    rows = found.result.by_label.sort_values("n", ascending=False, kind="stable").head(_MOST_LABELS)
    shares = ["precision", "recall", "f1", "wrongly_told_no", "wrongly_told_yes", "undecided"]
    shown = [name for name in shares if name in rows]
    body = [
        (written(row["label"]), f"{row['n']:,}", *(share(row[name]) for name in shown))
        for row in rows.to_dict("records")
    ]
    heads = {"f1": "F1", "wrongly_told_no": "told no, but has it", "wrongly_told_yes": "told yes, but lacks it"}
    head = ("label", "have it", *(heads.get(name, name) for name in shown))
    explained = (
        "Recall is the share of the examples with a label that are predicted to have it. Precision is the share of "
        "those predicted to have it that do. F1 combines the two. The last columns are about decisions with a "
        f"guarantee, at ε = {found.result.epsilon:g}: wrong ones, and labels left undecided."
    )
    left = len(found.result.by_label) - len(rows)
    without = found.result.without_label
    explained += f" {without:,} of {found.result.n:,} test examples have no label at all." if without else ""
    explained += f" {left:,} rarer labels are not shown." if left else ""
    return joined(
        (
            table(head, body, caption="Results per label", numbers=range(1, len(head))),
            tag("p", explained, class_="note"),
        )
    )


def _probabilities(found: LabelFindings) -> Html:
    by_label = found.result.by_label
    drawn = by_label["n"].sort_values(ascending=False, kind="stable").index[:_DRAWN].to_numpy()
    drawn = np.sort(drawn)
    worst = by_label.iloc[int(by_label["calibration_error"].to_numpy().argmax())]
    facts = [
        Fact(
            "Calibration error",
            f"{found.result.calibration_error:.3f}",
            "The mean gap between stated and observed probability, over all labels. The largest is that of "
            f"{written(worst['label'])}, {worst['calibration_error']:.3f}; with few examples chance alone makes gaps.",
        )
    ]
    names = [by_label["label"][place] for place in drawn]
    plot = plots.label_reliability(found.truth[:, drawn], found.predictions.probabilities[:, drawn], names)
    caption = (
        "x-axis: stated probability of a label; y-axis: share of examples that have it. On the dashed line, 80 % means "
        "80 %. Error bars are 95 % confidence intervals; dotted bars show the share of examples."
    )
    caption += f" The {len(drawn)} most frequent of {len(by_label):,} labels." if len(drawn) < len(by_label) else ""
    alt = "Share of examples with a label against its stated probability, per label"
    return joined((fact_table(facts, "Probabilities"), figure(plot, alt, caption)))


def _sets(found: LabelFindings) -> Html | None:
    rows = []
    for epsilon in EPSILONS:
        with warnings.catch_warnings():  # nobody asked for these ε: too few rows for one are seen in the table
            warnings.simplefilter("ignore", CalibrationWarning)
            decided, sets = found.predictions.decisions(epsilon), found.predictions.sets(epsilon)
        if decided is None or sets is None:
            return None
        told = metrics.decision_shares(found.truth, decided)
        rows.append(
            (
                f"{epsilon:g}",
                percent(told.wrong_of_having),
                percent(told.wrong_of_lacking),
                percent(told.undecided),
                percent(metrics.missed_share(found.truth, sets)),
                f"{sets.sum(axis=1).mean():.2f}",
            )
        )
    head = (
        "ε",
        "told no, but has it",
        "told yes, but lacks it",
        "undecided",
        "labels that sets miss",
        "labels per set",
    )
    what = (
        "Two kinds of answers have guarantees. A decision on each label, yes, no or undecided: among those who have "
        "it, at most a share ε is told no, and among those who lack it, at most a share ε yes. And a set of labels "
        "that misses at most a share ε of an example's labels on average. A smaller ε is safer, and "
        "leaves more undecided."
    )
    if found.clf.cross_fitted_:
        what += " As every training example calibrates, judged by networks that left it out, these shares are about ε."
    return joined((tag("p", what), table(head, rows, caption="On the test examples", numbers=range(len(head)))))


def _said(found: LabelFindings, row: int) -> tuple[str, str]:
    """The labels predicted of a row, and how they compare with the truth."""
    names = found.clf.classes_

    def listed(has: NDArray[np.bool_]) -> str:
        return ", ".join(written(name) for name in names[has].tolist()) or "no label"

    has, truth = found.predictions.has[row], found.truth[row]
    return listed(has), "✓ correct" if (has == truth).all() else f"✗ wrong: has {listed(truth)}"
