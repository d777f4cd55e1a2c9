"""What the report says of classes, and of labels in an order."""

from __future__ import annotations

from typing import Any

import numpy as np

from dwac.drawing.records import written
from dwac.estimator.preparation import take
from dwac.report import card, plots, words
from dwac.report.cases import brief, case
from dwac.report.findings import EPSILONS, ClassFindings
from dwac.report.grouped import largest
from dwac.report.label_issues import OUT_OF_FOLD
from dwac.report.maps import embedding_map
from dwac.report.markup import Html, joined, table, tag
from dwac.report.parts import Section, fact_table, figure, model, number, share, tiles, typicality
from dwac.report.words import percent

_MOST_ISSUES = 24
_USUAL = 0.05  # error rate
_MOST_CLASSES = 60
_MOST_GROUPS = 36  # rows of a table
_KINDS = {
    "typical": "Correct predictions of examples of average typicality.",
    "doubtful": "The least typical examples, and the predictions of lowest confidence. A person should check these.",
    "wrong": "Wrong predictions, the most confident first.",
}


def class_sections(found: ClassFindings, k: int, n_cases: int) -> list[Section]:
    """What is said of classes."""
    return [
        ("short", "In short", tiles(card.headline(found))),
        ("model", "The model", model(found, card.classes(found))),
        ("classes", "How accurate is it?", _classes(found)),
        ("probabilities", "Can its probabilities be trusted?", _probabilities(found)),
        ("sets", "Prediction sets with guaranteed coverage", _sets(found)),
        ("typicality", "Does it notice unfamiliar data?", typicality(found)),
        ("map", "The map", None if found.private else _map(found)),
        ("groups", "Who votes alike?", _groups(found)),
        ("predictions", "Explained predictions", _predictions(found, k, n_cases)),
        ("labels", "Training labels to check", _labels(found)),
    ]


def _classes(found: ClassFindings) -> Html:
    result = found.result
    rows = result.by_class.sort_values("n", ascending=False, kind="stable").head(_MOST_CLASSES)
    measured = [name for name in ("coverage", "mean_set_size", "typicality") if name in rows]
    heads = {
        "coverage": f"coverage (ε = {result.epsilon:g})",
        "mean_set_size": "labels per set",
        "typicality": "typicality",
    }
    body = [
        (
            written(row["label"]),
            f"{row['n']:,}",
            share(row["recall"]),
            share(row["precision"]),
            *(share(row[name]) if name == "coverage" else number(row[name]) for name in measured),
        )
        for row in rows.to_dict("records")
    ]
    head = ("class", "test examples", "recall", "precision", *(heads[name] for name in measured))
    explained = (
        "Recall is the share of the examples of a class that are predicted as that class. Precision is the share of "
        "predictions of that class that are correct. Coverage is the share of prediction sets that contain the true "
        "label. A class far below the others needs more or clearer training examples."
    )
    left = len(result.by_class) - len(rows)
    confused = [
        tag("li", f"{written(true)} predicted as {written(predicted)}: {words.times(count)}")
        for true, predicted, count in found.confusions()
    ]
    return joined(
        (
            table(head, body, caption="Results per class", numbers=range(1, len(head))),
            tag("p", explained + (f" {left:,} rarer classes are not shown." if left else ""), class_="note"),
            tag("h3", "Most frequent errors") if confused else None,
            tag("ol", *confused) if confused else tag("p", "All test examples are predicted correctly."),
        )
    )


def _probabilities(found: ClassFindings) -> Html:
    drawn = plots.reliability(found.truth, found.predictions.probabilities)
    caption = (
        "x-axis: stated probability; y-axis: share that was correct. On the dashed line, 80 % means 80 %. Below it the "
        "model is overconfident, above it underconfident. Error bars are 95 % confidence intervals; dotted bars show "
        "the share of predictions."
    )
    return joined(
        (
            fact_table(card.probabilities(found), "Probabilities"),
            figure(drawn, "Share of correct predictions against the stated probability", caption),
        )
    )


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
    promised = "asked for" if found.clf.cross_fitted_ else "guaranteed"
    head = ("allowed error rate ε", promised, "coverage", "labels per set", "one label", "no label")
    n = found.count(len(found.clf.calibration_y_))
    what = (
        "Instead of one label, the model can give a set of labels that misses the true one no more often than the "
        "error rate ε that you allow. A smaller ε is safer and gives larger sets. "
        f"With {n:,} calibration examples, sets at an ε below {1 / (n + 1):.2g} contain every label."
    )
    if found.clf.cross_fitted_:
        least = found.clf.expected_sets(_USUAL).guarantee
        what += (
            " As every training example calibrates, judged by networks that left it out, the error rate is about ε, "
            f"and certain to be at most {percent(1 - (least or 0))} at ε = {_USUAL:g}."
        )
    alt = "Coverage, mean set size, and shares of sets with one, several and no labels, against the allowed error rate"
    caption = f"Coverage is as {promised} if the solid line is on or above the dashed one, up to chance."
    outcome = table(head, body, caption="Prediction sets on the test examples", numbers=range(6))
    return joined((tag("p", what), outcome, figure(plots.sets(curve), alt, caption)))


def _map(found: ClassFindings) -> Html:
    drawn = embedding_map(found.clf, y=found.predictions.classes[found.truth], h=found.h)
    caption = (
        "Examples near each other are similar to the model, and count most in each other's votes. Separate groups of "
        "one class are easy to predict; where classes overlap, predictions are uncertain. Rings mark errors. "
    )
    alt = f"Map of training examples and {len(found.truth):,} test examples, by class, in two dimensions"
    unchanged = found.clf.references_.embeddings.shape[1] <= 2
    return figure(drawn, alt, caption + words.what_map_shows(unchanged=unchanged))


def _groups(found: ClassFindings) -> Html | None:
    facts = card.groups(found)
    if not facts:
        return None
    parts = [fact_table(facts, "Groups")]
    if not found.private:
        parts.append(_largest(found))
    return joined(parts)


def _largest(found: ClassFindings) -> Html:
    """The largest groups of each class, three or fewer."""
    present = len(np.unique(found.clf.references_.labels.cpu().numpy()))
    each = int(np.clip(_MOST_GROUPS // present, 1, 3))
    groups = list(largest(found.clf, each))[:_MOST_CLASSES]
    described = any(group.description for group in groups)
    rows = [
        (
            written(group.label),
            f"{group.size:,}",
            (group.description or "–") if described else percent(group.share),
            written(group.representative),
            brief(found.clf.examples_.get(group.representative)),
        )
        for group in groups
    ]
    third = "what sets it apart" if described else "of all"
    head = ("class", "examples", third, "most central", "example")
    caption = f"The largest group{'s' * (each > 1)} of each class" + (f", up to {each}" if each > 1 else "")
    return table(head, rows, caption=caption, numbers=[1])


def _predictions(found: ClassFindings, k: int, n_cases: int) -> Html:
    parts: list[Html] = []
    names = found.predictions.classes.tolist()
    for kind, rows in found.cases(n_cases).items():
        parts += [tag("h3", kind.capitalize()), tag("p", _KINDS[kind], class_="note")]
        if not rows:
            parts.append(tag("p", "None."))
            continue
        explained = found.clf.explain(take(found.X, np.array(rows)), k, private=found.private)
        shown = zip(explained, rows, strict=True)
        ids = range(len(found.ids)) if found.private else found.ids
        parts += [case(e, ids[row], names[found.truth[row]]) for e, row in shown]
    return joined(parts)


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
    return joined((summary, table(head, rows, caption=caption, numbers=[3]), tag("p", note, class_="note")))
