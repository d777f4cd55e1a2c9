"""The values of the report on several labels at once; the text is in `templates/labels.html`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac import metrics
from dwac.drawing.records import shorten
from dwac.errors import CalibrationWarning
from dwac.estimator.evaluation import Fact
from dwac.report import card, plots
from dwac.report.findings import EPSILONS, LabelFindings
from dwac.report.measures import MEASURES, Measure, percent, share
from dwac.report.parts import Plot, ReportTable, images, labels_of
from dwac.report.summary import label_summary

_MOST_LABELS, _DRAWN = 60, 6
_DECISIONS = {
    "wrongly_told_no": "decided no, but has it",
    "wrongly_told_yes": "decided yes, but lacks it",
    "undecided": "undecided",
}


def label_values(findings: LabelFindings) -> dict[str, Any]:
    """The values of the report on several labels that other reports do not have."""
    counts, auc = findings.result.by_label["n"], findings.scores.each["roc_auc"].to_numpy()
    drawn = np.sort(counts.sort_values(ascending=False, kind="stable").index[:_DRAWN].to_numpy())
    return {
        "target": _target(findings),
        "summary": label_summary(findings),
        "by_label": _by_label(findings),
        "n_without": findings.result.without_label,
        "roc": card.roc_images(findings, findings.truth, drawn[np.isfinite(auc[drawn])]),
        "group_tables": _groups(findings),
        "probabilities": _probabilities(findings, drawn),
        "reliability": _reliability(findings, drawn),
        "n_labels": len(findings.result.by_label),
        "sets": _sets(findings),
    }


def _target(findings: LabelFindings) -> Fact:
    references, tables = findings.clf.references_, findings.clf.target_.table
    counts = np.bincount(references.labels.cpu().numpy(), references.sizes, len(tables)) @ tables
    each = f"; an example has {counts.sum() / references.sizes.sum():.2g} labels on average"
    return card.balance(findings, "labels", counts, each)


def _by_label(findings: LabelFindings) -> ReportTable:
    every, scores = findings.result.by_label, findings.scores
    rows = every.assign(**{name: scores.each[name] for name in MEASURES})
    rows = rows.sort_values("n", ascending=False, kind="stable").head(_MOST_LABELS)
    titles = MEASURES | {name: title for name, title in _DECISIONS.items() if name in rows}
    total = int(findings.truth.sum())
    means: list[dict[Any, Any]] = [
        {"label": "macro average", "n": total, **scores.macro},
        {"label": "micro average", "n": total, **scores.micro},
    ]
    body = [
        {
            "label": shorten(row["label"]),
            "have it": f"{row['n']:,}",
            **{title: share(row.get(name)) for name, title in titles.items()},
        }
        for row in [*rows.to_dict("records"), *means]
    ]
    return ReportTable.of("Results per label", body, range(1, len(body[0])), len(every) - len(rows))


def _groups(findings: LabelFindings) -> list[ReportTable]:
    names, tables = findings.clf.classes_, findings.clf.target_.table > 0
    labels = [labels_of(names[tables[code]].tolist()) for code in findings.clf.references_.groups.labels]
    measure = Measure.of_labels(findings.predictions.has, findings.truth)
    odd = (findings.errors > 0) | findings.strange
    return card.group_tables(findings, labels, measure, odd, "wrong in some label")


def _probabilities(findings: LabelFindings, drawn: NDArray[np.int64]) -> list[Fact]:
    by_label = findings.result.by_label
    worst = by_label.iloc[int(by_label["calibration_error"].to_numpy().argmax())]
    facts = [
        Fact("Calibration error", f"{findings.result.calibration_error:.3f}", "The mean gap between stated and "
             f"observed probability, over all labels. The largest is that of {shorten(worst['label'])}, "
             f"{worst['calibration_error']:.3f}; with few examples chance alone makes gaps.")
    ]  # fmt: skip
    for place in drawn:
        p, has = findings.predictions.probabilities[:, place], findings.truth[:, place].astype(np.int64)
        error = metrics.calibration_test(has, np.stack([1 - p, p], axis=1)).error
        facts.append(Fact(f"Of {shorten(by_label['label'][place])}", f"{error.value:.3f}", card.beside_chance(error)))
    return facts


def _reliability(findings: LabelFindings, drawn: NDArray[np.int64]) -> list[Plot]:
    names = [findings.result.by_label["label"][place] for place in drawn]
    panels = plots.label_panels(findings.truth[:, drawn], findings.predictions.probabilities[:, drawn], names)
    return images(*(plots.alone(painter, 2.75, 2.8) for painter in panels))


def _sets(findings: LabelFindings) -> ReportTable | None:
    """Decisions and sets at several ε; None without calibration."""
    rows = []
    for epsilon in EPSILONS:
        with warnings.catch_warnings():  # the table shows if there are too few rows for an ε
            warnings.simplefilter("ignore", CalibrationWarning)
            decided, sets = findings.predictions.decisions(epsilon), findings.predictions.sets(epsilon)
        if decided is None or sets is None:
            return None
        shares = metrics.decision_shares(findings.truth, decided)
        rows.append(
            {
                "ε": f"{epsilon:g}",
                _DECISIONS["wrongly_told_no"]: percent(shares.wrong_of_having),
                _DECISIONS["wrongly_told_yes"]: percent(shares.wrong_of_lacking),
                _DECISIONS["undecided"]: percent(shares.undecided),
                "labels that sets miss": percent(metrics.missed_share(findings.truth, sets)),
                "labels per set": f"{sets.sum(axis=1).mean():.2f}",
            }
        )
    return ReportTable.of("On the test examples", rows, range(len(rows[0])))
