"""The values of the report on classes and ordered labels; the text is in `templates/classes.html`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix

from dwac.drawing.records import shorten
from dwac.errors import EPSILON
from dwac.estimator.evaluation import Fact
from dwac.report import card, plots
from dwac.report.findings import EPSILONS, ClassFindings
from dwac.report.maps import describe_map, map_figures
from dwac.report.measures import MEASURES, Measure, likely_share, number, on_one_line, one_hot, percent
from dwac.report.parts import Plot, ReportTable, RichCell, brief, images
from dwac.report.summary import class_summary
from dwac.report.wrong_labels import HOW_JUDGED, IN_SAMPLE, OUT_OF_FOLD
from dwac.tasks import CLASSES

_MOST_ISSUES = 24
_MOST_CLASSES, _MOST_CONFUSED, _DRAWN = 60, 20, 8


def class_values(findings: ClassFindings) -> dict[str, Any]:
    """The values of the report on classes that other reports do not have."""
    confusion, wrong_ones = _confusion(findings), findings.confusions()
    drawn, n_known = _roc(findings)
    reliability = plots.reliability_panel(findings.truth, findings.predictions.probabilities)
    return {
        "target": classes(findings),
        "is_ordered": findings.clf.target_.kind != CLASSES,
        "summary": class_summary(findings),
        "calibrated": calibration(findings),
        "covered": "" if findings.result.coverage is None else coverage(findings),
        "accuracy_range": likely_share(findings.right),
        "typical_probability": float(np.exp(-findings.result.log_loss)),
        "by_class": _by_class(findings),
        "confusion": confusion,
        "confused": [(shorten(true), shorten(predicted), n) for true, predicted, n in wrong_ones],
        "roc": drawn,
        "roc_of": n_known,
        "most_drawn": _DRAWN,
        "map": []
        if findings.private
        else images(*map_figures(findings.clf, findings.predictions.classes[findings.truth], findings.h)),
        "map_words": "" if findings.private else _map_words(findings),
        "has_group_facts": True,
        "group_tables": _groups(findings),
        "beside_chance": card.beside_chance,
        "reliability": images(plots.alone(reliability, 3.8, 3.6)),
        **_sets(findings),
        "issues": issues(findings),
        "issue_table": _issue_table(findings),
        "out_of_fold": findings.issues.attrs.get("judged") == OUT_OF_FOLD,
    }


# Quality


def calibration(findings: ClassFindings) -> str:
    """How far stated probabilities are from observed frequencies, and what that means."""
    test = findings.calibration
    return (
        f"On average, stated probabilities differ from observed frequencies by {card.points(test.error.value)} "
        f"percentage points; those of the predicted label by {card.points(test.top_label.value)}. "
        f"{_judge_calibration(findings)}"
    )


def _judge_calibration(findings: ClassFindings) -> str:
    """What the errors imply: that probabilities are uninformative, that they are fine, or how far off they are."""
    test = findings.calibration
    if not test.informative:
        off = "This is more than chance explains. Also," if test.miscalibrated else "However,"
        return (
            f"{off} the probabilities distinguish these examples no better than chance: at best they show how "
            "common each label is, and nothing about a single example."
        )
    if not test.miscalibrated:
        few = (
            " More test examples would give a more precise estimate."
            if max(test.error.high, test.top_label.high) > card.OFF
            else ""
        )
        return f"Chance alone explains this: there is no evidence against the probabilities.{few}"
    excess = max(error.excess for error in (test.error, test.top_label) if error.beyond)
    bias = "overconfident" if findings.probability.mean() > findings.right.mean() else "underconfident"
    grades = (
        (0.01, "but close to correct"),
        (card.OFF, "and somewhat off"),
        (np.inf, "and only a rough guide"),
    )
    grade = next(text for most, text in grades if excess < most)
    return f"This is more than chance explains: overall, the probabilities are {bias}, {grade}."


def coverage(findings: ClassFindings) -> str:
    """Whether prediction sets have the requested coverage, and which classes fall short, if any."""
    advice = "" if findings.result.advice is None else f" {findings.result.advice}."
    return card.coverage_meaning(findings, "Prediction sets", "the true label", "sets could be smaller", advice)


def classes(findings: ClassFindings) -> Fact:
    """The classes, and how many training examples each has."""
    references = findings.clf.references_
    counts = np.bincount(references.labels.cpu().numpy(), references.sizes, len(findings.clf.classes_))
    return card.balance(findings, "classes" if findings.clf.target_.kind == CLASSES else "labels in an order", counts)


def _by_class(findings: ClassFindings) -> ReportTable:
    """Precision, recall, F1 and ROC AUC of each class, and their means."""
    rows = findings.result.by_class.assign(**{name: findings.scores.each[name] for name in MEASURES})
    shown = rows.sort_values("n", ascending=False, kind="stable").head(_MOST_CLASSES)
    means: dict[Any, Any] = {"label": "macro average", "n": findings.result.n, "typicality": np.nan}
    means |= findings.scores.macro
    body = [
        {
            "class": shorten(row["label"]),
            "test examples": f"{row['n']:,}",
            **{title: number(row[name]) for name, title in MEASURES.items()},
            **({"typicality": number(row["typicality"], 2)} if "typicality" in rows else {}),
        }
        for row in [*shown.to_dict("records"), means]
    ]
    return ReportTable.of("Results per class", body, range(1, len(body[0])), len(rows) - len(shown))


def _confusion(findings: ClassFindings) -> ReportTable:
    """The confusion matrix; with many classes, only those with most errors."""
    names, codes = findings.predictions.classes.tolist(), findings.predictions.codes
    wrong = ~findings.right
    errors = np.bincount(np.concatenate([findings.truth[wrong], codes[wrong]]), minlength=len(names))
    chosen = np.sort(np.argsort(-errors, kind="stable")[:_MOST_CONFUSED])
    counts = confusion_matrix(findings.truth, codes, labels=np.arange(len(names)))[np.ix_(chosen, chosen)]
    of = np.maximum(np.bincount(findings.truth, minlength=len(names))[chosen], 1)
    body = [
        (
            shorten(names[code], 30),
            *(RichCell("shaded", f"{count:,}", count / of[row]) for count in counts[row].tolist()),
        )
        for row, code in enumerate(chosen)
    ]
    head = ("true ↓ predicted →", *(shorten(names[code], 30) for code in chosen))
    return ReportTable("Confusion matrix", head, body, range(1, len(head)), len(names) - len(chosen))


def _roc(findings: ClassFindings) -> tuple[list[Plot], int]:
    """ROC curves (one for two classes, else the most frequent ones against all others), and how many there could be."""
    auc, names = findings.scores.each["roc_auc"], findings.predictions.classes.tolist()
    known = np.flatnonzero(np.isfinite(auc))
    if len(names) == 2:
        known = known[1:]
    drawn = np.sort(known[np.argsort(-findings.scores.each["n"].to_numpy()[known], kind="stable")][:_DRAWN])
    truth = one_hot(findings.truth, len(names))
    return card.roc_images(findings, truth, drawn), len(known)


def _map_words(findings: ClassFindings) -> str:
    references = findings.clf.references_
    unchanged, groups = references.embeddings.shape[1] <= 2, references.groups
    return describe_map(unchanged=unchanged, discs=len(groups.parents), groups=len(groups))


def _groups(findings: ClassFindings) -> list[ReportTable]:
    names = findings.clf.classes_.tolist()
    labels = [shorten(names[code]) for code in findings.clf.references_.groups.labels]
    measure = Measure.of_labels(findings.predictions.codes, findings.truth)
    odd = ~findings.right | findings.strange
    return card.group_tables(findings, labels, measure, odd, "predicted wrongly", findings.predictions.codes)


# Trust


def _sets(findings: ClassFindings) -> dict[str, Any]:
    """Prediction sets at several ε and by class, and their curves; empty without calibration."""
    curve, table = findings.set_curve(), findings.set_curve(EPSILONS)
    if curve is None or table is None:
        return {"sets": None}
    sizes = findings.set_curve([findings.result.epsilon])
    body = [
        {
            "allowed error rate ε": f"{row['epsilon']:g}",
            "requested": percent(1 - row["epsilon"]),
            "coverage": percent(row["coverage"]),
            "labels per set": f"{row['mean']:.2f}",
            "one label": percent(row["single"]),
            "no label": percent(row["empty"]),
        }
        for row in table.to_dict("records")
    ]
    guarantee = findings.clf.expected_sets(EPSILON).guarantee if findings.clf.cross_fitted_ else 0
    return {
        "sets": ReportTable.of("Prediction sets on the test examples", body, range(6)),
        "sets_by_class": _covered(findings),
        "set_plots": images(*(plots.alone(painter, 2.75, 2.6) for painter in plots.set_panels(curve))),
        "theory": percent(1 - (guarantee or 0)),
        "usual_epsilon": EPSILON,
        "set_sizes": None if sizes is None else sizes.iloc[0].to_dict(),
    }


def _covered(findings: ClassFindings) -> ReportTable:
    """Coverage of each class, with its interval."""
    covered, rows = findings.covered, findings.result.by_class
    assert covered is not None
    body = []
    for row in rows.sort_values("n", ascending=False, kind="stable").head(_MOST_CLASSES).to_dict("records"):
        if not row["n"]:
            continue
        low, high = likely_share(covered[findings.truth == rows.index[rows["label"] == row["label"]][0]])
        body.append(
            {
                "class": shorten(row["label"]),
                "test examples": f"{row['n']:,}",
                "coverage": percent(row["coverage"]),
                "95 % interval": on_one_line(f"{percent(low)} to {percent(high)}"),
                "labels per set": number(row["mean_set_size"], 2),
            }
        )
    return ReportTable.of(f"Coverage by class at ε = {findings.result.epsilon:g}", body, range(1, 5))


# Cases


def issues(findings: ClassFindings) -> str:
    """How many labels look wrong, and how they were judged."""
    how_judged = findings.issues.attrs
    n = findings.count(len(findings.issues))
    m = findings.count(how_judged.get("checked", len(findings.clf.references_)))
    represents = findings.clf.references_.voters.represents and "folds" not in how_judged
    who = "representative" if represents else "training example"
    how = HOW_JUDGED[how_judged.get("judged", IN_SAMPLE)]
    if n == 0:
        return f"No label of the {m:,} {who}s looks wrong. {how}"
    return (
        f"{n:,} of {m:,} {who}s ({percent(n / m)}) have labels that are more likely wrong than right, by the votes of "
        f"others and by how often labels occur that the votes exclude. Start with the first ones. {how} Correct them "
        "with relabel or silence (dwac silence), which change only votes. Forgetting them would also remove them from "
        "calibration, and prediction sets would then promise too much."
    )


def _issue_table(findings: ClassFindings) -> ReportTable | None:
    """The labels to check, the most doubtful first; None if private."""
    if findings.issues.empty or findings.private:
        return None
    rows = [
        {
            "training example": shorten(row["id"]),
            "label": shorten(row["label"]),
            "suggested label": shorten(row["suggested"]),
            "probability": percent(row["suggested_probability"]),
            "example": brief(findings.clf.examples_.get(row["id"]), legend=findings.clf.legend_),
        }
        for row in findings.issues.head(_MOST_ISSUES).to_dict("records")
    ]
    caption = f"{len(rows)} of {len(findings.issues):,}, the most doubtful first"
    return ReportTable.of(caption, rows, [3], len(findings.issues) - len(rows))
