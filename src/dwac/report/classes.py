"""What the report says of classes, and of labels in an order."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix

from dwac.drawing.records import written
from dwac.errors import EPSILON
from dwac.report import card, plots, words
from dwac.report.cases import brief, told_cases
from dwac.report.chance import likely_share
from dwac.report.findings import EPSILONS, ClassFindings
from dwac.report.group_tables import group_tables
from dwac.report.label_issues import OUT_OF_FOLD
from dwac.report.maps import map_figures
from dwac.report.markup import Html, joined, table, tag
from dwac.report.measures import Measure
from dwac.report.parts import Section, fact_table, figure, folded, model, number, tiles, typicality
from dwac.report.scores import MEASURES, one_hot
from dwac.report.summaries import class_summary
from dwac.report.summary import summary_page
from dwac.report.words import percent
from dwac.report.worthy import worth_section

_MOST_ISSUES = 24
_MOST_CLASSES, _MOST_CONFUSED, _DRAWN = 60, 20, 8
_KINDS = {
    "typical": "Correct predictions of examples of average typicality.",
    "doubtful": "The least typical examples, and the predictions of lowest confidence. A person should check these.",
    "wrong": "Wrong predictions, the most confident first.",
}


def class_story(found: ClassFindings, k: int, n_cases: int, by: str | None) -> list[Section]:
    """The report on classes: summary, quality, trust, cases, and the model behind them.

    One line is one section. by: a column of the training data whose groups are compared by worth.
    """
    explained = told_cases(found, found.cases(n_cases), _KINDS, _said, k=k, epsilon=found.result.epsilon)
    return [
        ("summary", "Summary", summary_page(class_summary(found))),
        ("quality", "Quality: how often it is right", _quality(found)),
        ("map", "Quality: the map", None if found.private else _map(found)),
        ("groups", "Typical and strange groups", _groups(found)),
        ("calibration", "Trust: calibration of probabilities", _calibration(found)),
        ("coverage", "Trust: prediction sets and their coverage", _sets(found)),
        ("typicality", "Trust: unfamiliar data", typicality(found)),
        ("cases", "Cases: explained predictions", explained),
        ("worth", "Cases: the most and the least helpful training examples", worth_section(found, by)),
        ("labels", "Cases: training labels to check", _labels(found)),
        ("model", "The model", model(found, card.classes(found))),
    ]


# Quality


def _quality(found: ClassFindings) -> Html:
    return joined((tiles(card.headline(found)), _by_class(found), _confusion(found), _roc(found)))


def _by_class(found: ClassFindings) -> Html:
    """Precision, recall, F1 and ROC AUC of each class, and their means."""
    rows = found.result.by_class.assign(**{name: found.scores.each[name] for name in MEASURES})
    kept = rows.sort_values("n", ascending=False, kind="stable").head(_MOST_CLASSES)
    trusted = "typicality" in rows
    body = [
        (
            written(row["label"]),
            f"{row['n']:,}",
            *(number(row[name], 3) for name in MEASURES),
            *((number(row["typicality"]),) if trusted else ()),
        )
        for row in kept.to_dict("records")
    ]
    means = (number(found.scores.macro[name], 3) for name in MEASURES)
    body.append(("macro average", f"{found.result.n:,}", *means, *(("–",) if trusted else ())))
    head = ("class", "test examples", "precision", "recall", "F1", "ROC AUC", *(("typicality",) if trusted else ()))
    explained = (
        "Precision is the share of predictions of a class that are correct, recall the share of its examples that are "
        "found, F1 their harmonic mean. ROC AUC is that of the class against all others. The macro average is the mean "
        "over classes. A class far below the others needs more or clearer training examples."
    )
    left = len(rows) - len(kept)
    return joined(
        (
            table(head, body, caption="Results per class", numbers=range(1, len(head))),
            tag("p", explained + (f" {left:,} rarer classes are not shown." if left else ""), class_="note"),
        )
    )


def _confusion(found: ClassFindings) -> Html:
    """The confusion matrix; of many classes, those with most errors."""
    names, codes = found.predictions.classes.tolist(), found.predictions.codes
    wrong = np.bincount(np.concatenate([found.truth[~found.right], codes[~found.right]]), minlength=len(names))
    chosen = np.sort(np.argsort(-wrong, kind="stable")[:_MOST_CONFUSED])
    counts = confusion_matrix(found.truth, codes, labels=np.arange(len(names)))[np.ix_(chosen, chosen)]
    of = np.maximum(np.bincount(found.truth, minlength=len(names))[chosen], 1)
    body = [
        (
            written(names[code], 30),
            *(
                tag("td", f"{count:,}", class_="number", style=f"--share:{count / of[row]:.2f}")
                for count in counts[row].tolist()
            ),
        )
        for row, code in enumerate(chosen)
    ]
    left = len(names) - len(chosen)
    some = f" The {len(chosen)} classes with most errors; {left:,} others are not shown." if left else ""
    head = ("true ↓ predicted →", *(written(names[code], 30) for code in chosen))
    matrix = table(head, body, caption="Confusion matrix", numbers=range(1, len(head)))
    confused = [
        tag("li", f"{written(true)} predicted as {written(predicted)}: {words.times(count)}")
        for true, predicted, count in found.confusions()
    ]
    return joined(
        (
            tag("div", matrix, class_="confusion"),
            tag("p", f"Numbers of test examples. The darker, the larger the share of the true class.{some}",
                class_="note"),
            tag("h3", "Most frequent errors"),
            tag("ol", *confused) if confused else tag("p", "All test examples are predicted correctly."),
        )
    )  # fmt: skip


def _roc(found: ClassFindings) -> Html | None:
    """ROC curves: one of two classes, or of the most frequent ones against all others."""
    auc, names = found.scores.each["roc_auc"], found.predictions.classes.tolist()
    known = np.flatnonzero(np.isfinite(auc))
    if len(names) == 2:
        known = known[1:]
    if len(known) == 0:
        return None
    drawn = np.sort(known[np.argsort(-found.scores.each["n"].to_numpy()[known], kind="stable")][:_DRAWN])
    truth = one_hot(found.truth, len(names))[:, drawn]
    labels = [f"{written(names[code])}: {auc[code]:.3f}" for code in drawn]
    painter = plots.roc_panel(truth, found.predictions.probabilities[:, drawn], labels)
    some = f" The {len(drawn)} most frequent classes." if len(drawn) < len(known) else ""
    return joined(
        (
            tag("h3", "ROC curve"),
            figure(plots.alone(painter, 3.6, 3.2 + 0.1 * len(drawn)), "ROC curves",
                   f"The share of a class that is found against the share of others taken for it, for every threshold "
                   f"of its probability; and the area under each curve.{some}"),
        )
    )  # fmt: skip


# Trust


def _calibration(found: ClassFindings) -> Html:
    drawn = plots.alone(plots.reliability_panel(found.truth, found.predictions.probabilities), 3.8, 3.6)
    caption = (
        "x-axis: stated probability; y-axis: share that was correct. On the dashed line, 80 % means 80 %. Below it the "
        "model is overconfident, above it underconfident. Error bars are 95 % confidence intervals; pale bars show "
        "the share of predictions."
    )
    return joined(
        (
            fact_table(card.probabilities(found), "Probabilities"),
            figure(drawn, "Share of correct predictions against the stated probability", caption),
        )
    )


def _covered(found: ClassFindings) -> Html:
    """Coverage of each class, with its interval."""
    covered, rows = found.covered, found.result.by_class
    assert covered is not None
    body = []
    for row in rows.sort_values("n", ascending=False, kind="stable").head(_MOST_CLASSES).to_dict("records"):
        if not row["n"]:
            continue
        low, high = likely_share(covered[found.truth == rows.index[rows["label"] == row["label"]][0]])
        interval = f"{percent(low)} to {percent(high)}"
        body.append(
            (written(row["label"]), f"{row['n']:,}", percent(row["coverage"]), interval, number(row["mean_set_size"]))
        )
    head = ("class", "test examples", "coverage", "95 % interval", "labels per set")
    return table(head, body, caption=f"Coverage by class at ε = {found.result.epsilon:g}", numbers=range(1, 5))


def _sets(found: ClassFindings) -> Html | None:
    curve = found.set_curve()
    if curve is None:
        return None
    asked = found.set_curve(EPSILONS)
    assert asked is not None
    body = [
        (
            f"{row['epsilon']:g}",
            percent(1 - row["epsilon"]),
            percent(row["coverage"]),
            f"{row['mean']:.2f}",
            percent(row["single"]),
            percent(row["empty"]),
        )
        for row in asked.to_dict("records")
    ]
    head = ("allowed error rate ε", "asked for", "coverage", "labels per set", "one label", "no label")
    n = found.count(len(found.clf.calibration_y_))
    what = (
        "Instead of one label, the model can give a set of labels that misses the true one no more often than the "
        "error rate ε that you allow. A smaller ε is safer and gives larger sets. "
        f"With {n:,} calibration examples, sets at an ε below {1 / (n + 1):.2g} contain every label."
    )
    if found.clf.cross_fitted_:
        least = found.clf.expected_sets(EPSILON).guarantee
        what += (
            " As every training example calibrates, judged by networks that left it out, the error rate is about ε. "
            f"This is measured, not proved; theory has at most {percent(1 - (least or 0))} at ε = {EPSILON:g}."
        )
    alt = "Coverage, mean set size, and shares of sets with one, several and no labels, against the allowed error rate"
    caption = "Coverage is as asked for if the solid line is on or above the dashed one, up to chance."
    outcome = table(head, body, caption="Prediction sets on the test examples", numbers=range(6))
    figures = [plots.alone(painter, 2.75, 2.6) for painter in plots.set_panels(curve)]
    return joined((tag("p", what), outcome, _covered(found), figure(figures, alt, caption)))


def _map(found: ClassFindings) -> Html:
    drawn = map_figures(found.clf, found.predictions.classes[found.truth], found.h)
    caption = (
        "Examples near each other are similar to the model, and count most in each other's votes. Separate groups of "
        "one class are easy to predict; where classes overlap, predictions are uncertain. Rings mark errors. "
    )
    alt = f"Map of training examples and {len(found.truth):,} test examples, by class, in two dimensions"
    references = found.clf.references_
    unchanged, groups = references.embeddings.shape[1] <= 2, references.groups
    shown = words.what_map_shows(unchanged=unchanged, discs=len(groups.parents), groups=len(groups))
    return figure(drawn, alt, caption + shown)


def _groups(found: ClassFindings) -> Html | None:
    facts = card.groups(found)
    if not facts:
        return None
    parts = [fact_table(facts, "Groups")]
    if not found.private:
        names = found.clf.classes_.tolist()
        labels = [written(names[code]) for code in found.clf.references_.groups.labels]
        measure = Measure.of_labels(found.predictions.codes, found.truth)
        odd = ~found.right | found.strange
        parts.append(group_tables(found, labels, measure, odd, "predicted wrongly", found.predictions.codes))
    return joined(parts)


# Cases


def _said(found: ClassFindings, row: int) -> tuple[str, str]:
    """The label predicted of a row, and how it compares with the truth."""
    names, right = found.predictions.classes.tolist(), found.right[row]
    verdict = "✓ correct" if right else f"✗ wrong: the label is {written(names[found.truth[row]])}"
    return written(names[found.predictions.codes[row]]), verdict


def _labels(found: ClassFindings) -> Html:
    summary = tag("p", words.issues(found))
    if found.issues.empty or found.private:
        return summary
    head = ["training example", "label", "suggested label", "probability"]
    rows: list[list[Any]] = [
        [*(written(row[name]) for name in ("id", "label", "suggested")), percent(row["suggested_probability"])]
        for row in found.issues.head(_MOST_ISSUES).to_dict("records")
    ]
    head.append("example")
    for row, name in zip(rows, found.issues["id"], strict=False):
        row.append(brief(found.clf.examples_.get(name)))
    caption = f"{len(rows)} of {len(found.issues):,}, the most doubtful first"
    note = (
        "`dwac.report.label_issues(clf, X, y)` lists all of them, judged out of fold."
        if found.issues.attrs.get("judged") == OUT_OF_FOLD
        else "Votes exclude the example itself. `dwac.report.label_issues(clf)` lists all of them, and with the "
        "training data, `label_issues(clf, X, y)`, those that are found out of fold."
    )
    listed = (table(head, rows, caption=caption, numbers=[3]), tag("p", note, class_="note"))
    return joined((summary, folded(f"Labels to check ({len(found.issues):,})", None, *listed)))
