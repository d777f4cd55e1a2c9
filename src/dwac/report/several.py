"""What the report says of several labels at once: each label, its probability, decisions on it, and sets."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from dwac import metrics
from dwac.drawing.records import written
from dwac.errors import CalibrationWarning
from dwac.estimator.evaluation import Fact
from dwac.report import plots, words
from dwac.report.cases import told_cases
from dwac.report.findings import EPSILONS
from dwac.report.group_tables import group_tables
from dwac.report.label_findings import LabelFindings
from dwac.report.markup import Html, joined, table, tag
from dwac.report.measures import Measure
from dwac.report.parts import Section, fact_table, figure, model, number, share, tiles, typicality
from dwac.report.scores import MEASURES
from dwac.report.summaries import label_summary
from dwac.report.summary import summary_page
from dwac.report.words import percent
from dwac.report.worthy import worth_section

_MOST_LABELS, _DRAWN = 60, 6
_KINDS = {
    "typical": "Examples of average typicality with every label right.",
    "doubtful": "The least typical examples. A person should check these.",
    "wrong": "The examples with the most wrong labels.",
}


def label_story(found: LabelFindings, k: int, n_cases: int, by: str | None) -> list[Section]:
    """The report on several labels: summary, quality, trust, cases, and the model behind them."""
    explained = told_cases(found, found.cases(n_cases), _KINDS, _said, k=k, epsilon=found.result.epsilon)
    return [
        ("summary", "Summary", summary_page(label_summary(found))),
        ("quality", "Quality: how often it is right", joined((tiles(_headline(found)), _labels(found), _roc(found)))),
        ("groups", "Typical and strange groups", _groups(found)),
        ("calibration", "Trust: calibration of probabilities", _probabilities(found)),
        ("coverage", "Trust: decisions and sets, and their errors", _sets(found)),
        ("typicality", "Trust: unfamiliar data", typicality(found)),
        ("cases", "Cases: explained predictions", explained),
        ("worth", "Cases: the most and the least helpful training examples", worth_section(found, by)),
        ("model", "The model", model(found, _target(found))),
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
        Fact("Macro ROC AUC", number(found.scores.macro["roc_auc"], 3), "How often a random example that has a label "
             "gets a higher probability of it than one that lacks it; the mean over labels. 0.5 is chance."),
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
    table_of = found.result.by_label.assign(**{name: found.scores.each[name] for name in MEASURES})
    rows = table_of.sort_values("n", ascending=False, kind="stable").head(_MOST_LABELS)
    shares = [*MEASURES, "wrongly_told_no", "wrongly_told_yes", "undecided"]
    shown = [name for name in shares if name in rows]
    body = [
        (written(row["label"]), f"{row['n']:,}", *(share(row[name]) for name in shown))
        for row in rows.to_dict("records")
    ]
    total, blank = f"{int(found.truth.sum()):,}", ["–"] * (len(shown) - len(MEASURES))
    body += [
        (f"{name} average", total, *(share(average[measure]) for measure in MEASURES), *blank)
        for name, average in (("macro", found.scores.macro), ("micro", found.scores.micro))
    ]
    heads = {
        "f1": "F1",
        "roc_auc": "ROC AUC",
        "wrongly_told_no": "told no, but has it",
        "wrongly_told_yes": "told yes, but lacks it",
    }
    head = ("label", "have it", *(heads.get(name, name) for name in shown))
    explained = (
        "Recall is the share of the examples with a label that are predicted to have it. Precision is the share of "
        "those predicted to have it that do. F1 is their harmonic mean. The last columns are about decisions with a "
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


def _drawn(found: LabelFindings) -> NDArray[np.int64]:
    """The most frequent labels, in their order."""
    return np.sort(found.result.by_label["n"].sort_values(ascending=False, kind="stable").index[:_DRAWN].to_numpy())


def _roc(found: LabelFindings) -> Html | None:
    drawn = [place for place in _drawn(found) if np.isfinite(found.scores.each["roc_auc"][place])]
    names = [f"{written(found.clf.classes_.tolist()[i])}: {found.scores.each['roc_auc'][i]:.3f}" for i in drawn]
    if not names:
        return None
    painter = plots.roc_panel(found.truth[:, drawn], found.predictions.probabilities[:, drawn], names)
    figures = plots.alone(painter, 3.6, 3.2 + 0.1 * len(names))
    return figure(figures, "ROC curve of each label", "ROC curves, and the area under each.")


def _groups(found: LabelFindings) -> Html | None:
    if found.private:
        return None
    names, tables = found.clf.classes_, found.clf.target_.table > 0
    labels = [
        ", ".join(written(name) for name in names[tables[code]].tolist()) or "no label"
        for code in found.clf.references_.groups.labels
    ]
    measure = Measure.of_labels(found.predictions.has, found.truth)
    return group_tables(found, labels, measure, (found.wrong > 0) | found.strange, "wrong in some label")


def _probabilities(found: LabelFindings) -> Html:
    by_label, drawn = found.result.by_label, _drawn(found)
    worst = by_label.iloc[int(by_label["calibration_error"].to_numpy().argmax())]
    tests = {
        place: metrics.calibration_test(found.truth[:, place].astype(np.int64), np.stack([1 - p, p], axis=1)).error
        for place, p in ((place, found.predictions.probabilities[:, place]) for place in drawn)
    }
    facts = [
        Fact(
            "Calibration error",
            f"{found.result.calibration_error:.3f}",
            "The mean gap between stated and observed probability, over all labels. The largest is that of "
            f"{written(worst['label'])}, {worst['calibration_error']:.3f}; with few examples chance alone makes gaps.",
        ),
        *(
            Fact(f"Of {written(by_label['label'][place])}", f"{error.value:.3f}", words.beside_chance(error))
            for place, error in tests.items()
        ),
    ]
    names = [by_label["label"][place] for place in drawn]
    panels = plots.label_panels(found.truth[:, drawn], found.predictions.probabilities[:, drawn], names)
    plot = [plots.alone(painter, 2.75, 2.8) for painter in panels]
    caption = (
        "x-axis: stated probability of a label; y-axis: share of examples that have it. On the dashed line, 80 % means "
        "80 %. Error bars are 95 % confidence intervals; pale bars show the share of examples."
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
        "Two kinds of answers keep to an error rate ε. A decision on each label, yes, no or undecided: among those who "
        "have it, at most a share ε is told no, and among those who lack it, at most a share ε yes. And a set of "
        "labels that misses at most a share ε of an example's labels on average. A smaller ε is safer, and "
        "leaves more undecided."
    )
    if found.clf.cross_fitted_:
        what += (
            " As every training example calibrates, judged by networks that left it out, these shares are about ε. "
            "This is measured, not proved."
        )
    return joined((tag("p", what), table(head, rows, caption="On the test examples", numbers=range(len(head)))))


def _said(found: LabelFindings, row: int) -> tuple[str, str]:
    """The labels predicted of a row, and how they compare with the truth."""
    names = found.clf.classes_

    def listed(has: NDArray[np.bool_]) -> str:
        return ", ".join(written(name) for name in names[has].tolist()) or "no label"

    has, truth = found.predictions.has[row], found.truth[row]
    return listed(has), "✓ correct" if (has == truth).all() else f"✗ wrong: has {listed(truth)}"
