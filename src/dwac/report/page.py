"""The report: one HTML file that needs no network, runs no script, and contains nothing unescaped."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from dwac.drawing.records import written
from dwac.estimator.preparation import take
from dwac.report import card, plots, words
from dwac.report.cases import brief, case
from dwac.report.findings import EPSILONS, Findings
from dwac.report.grouped import largest
from dwac.report.label_issues import OUT_OF_FOLD
from dwac.report.maps import embedding_map
from dwac.report.markup import Html, joined, table, tag
from dwac.report.style import CSS
from dwac.report.words import percent

# Nothing may be fetched or run, whatever a record contains: a second defence behind the escaping.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_PIXELS = 112  # per inch of a plot; 96 on paper
_MOST_ISSUES = 24
_USUAL = 0.05  # error rate
_STOPPED = " Training stops when the loss on validation examples, which are not trained on, stops improving."
_MOST_CLASSES = 60
_MOST_GROUPS = 36  # rows of a table
_KINDS = {
    "typical": "Correct predictions of examples of average typicality.",
    "doubtful": "The least typical examples, and the predictions of lowest confidence. A person should check these.",
    "wrong": "Wrong predictions, the most confident first.",
}


def page(found: Findings, *, title: str, k: int, n_cases: int, note: str = "") -> str:
    """The whole file."""
    sections = [
        ("short", "In short", _in_short(found)),
        ("model", "The model", _model(found)),
        ("classes", "How accurate is it?", _classes(found)),
        ("probabilities", "Can its probabilities be trusted?", _probabilities(found)),
        ("sets", "Prediction sets with guaranteed coverage", _sets(found)),
        ("typicality", "Does it notice unfamiliar data?", _typicality(found)),
        ("map", "The map", None if found.private else _map(found)),
        ("groups", "Who votes alike?", _groups(found)),
        ("predictions", "Explained predictions", _predictions(found, k, n_cases)),
        ("labels", "Training labels to check", _labels(found)),
        ("limits", "What to keep in mind", tag("ul", *(tag("li", text) for text in words.LIMITS))),
    ]
    kept = [(name, head, body) for name, head, body in sections if body]
    items = [tag("li", tag("a", head, href=f"#{name}")) for name, head, _ in kept]
    links = tag("nav", tag("ul", *items), aria_label="Contents")
    parts = [tag("section", tag("h2", head), body, id=name) for name, head, body in kept]
    texts = (note, words.PRIVATE if found.private else "", _met(found))
    notes = [tag("p", tag("strong", "Note: "), text, class_="warning") for text in texts if text]
    top = tag("header", tag("h1", title), tag("p", words.LEAD, class_="lead"), *notes, links)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        Html(f"<style>{CSS}</style>"),
    )
    foot = tag("footer", f"Written by dwac {card.version()}.")
    return "<!doctype html>\n" + tag("html", head, tag("body", top, tag("main", *parts), foot), lang="en") + "\n"


def _met(found: Findings) -> str:
    n = int(found.met.sum())
    if n and found.private:
        return "Some of the test examples were used in training, so the results are too optimistic."
    return (
        f"{n:,} of the {len(found.met):,} test examples were used in training, so the results are too optimistic."
        if n
        else ""
    )


def _facts(facts: list[card.Fact], caption: str) -> Html:
    """Facts as a table: name, value, meaning."""
    return tag("div", table(("fact", "value", "what it means"), facts, caption=caption), class_="facts")


def _in_short(found: Findings) -> Html:
    tiles = [
        tag("div", tag("dt", fact.name), tag("dd", tag("strong", fact.value), tag("p", fact.meaning)))
        for fact in card.headline(found)
    ]
    return tag("dl", *tiles, class_="tiles")


def _figure(drawn: Any, alt: str, caption: str) -> Html:
    url = "data:image/svg+xml;base64," + base64.b64encode(drawn.svg().encode()).decode()
    image = tag("img", src=url, alt=alt, width=round(drawn.get_figwidth() * _PIXELS))
    scrolled = tag("div", image, class_="scroll", tabindex="0", role="region", aria_label=alt)
    return tag("figure", scrolled, tag("figcaption", caption), class_="chart")


def _model(found: Findings) -> Html:
    history = found.clf.history_
    parts = [_facts(card.data(found), "Data"), _facts(card.model(found), "Model")]
    if len(history) > 1:
        parts.append(
            _figure(
                plots.history(history),
                f"Loss and accuracy over {len(history)} epochs of training",
                "Training by epoch. The loss is large if the true label has a low probability; lower is better."
                + ("" if found.clf.cross_fitted_ else _STOPPED),
            )
        )
    return joined(parts)


def _classes(found: Findings) -> Html:
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
            _share(row["recall"]),
            _share(row["precision"]),
            *(_share(row[name]) if name == "coverage" else _number(row[name]) for name in measured),
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


def _share(value: float) -> str:
    return percent(value) if value == value else "–"


def _number(value: float) -> str:
    return f"{value:.2f}" if value == value else "–"


def _probabilities(found: Findings) -> Html:
    drawn = plots.reliability(found.truth, found.predictions.probabilities)
    caption = (
        "x-axis: stated probability; y-axis: share that was correct. On the dashed line, 80 % means 80 %. Below it the "
        "model is overconfident, above it underconfident. Error bars are 95 % confidence intervals; dotted bars show "
        "the share of predictions."
    )
    return joined(
        (
            _facts(card.probabilities(found), "Probabilities"),
            _figure(drawn, "Share of correct predictions against the stated probability", caption),
        )
    )


def _sets(found: Findings) -> Html | None:
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
    return joined((tag("p", what), outcome, _figure(plots.sets(curve), alt, caption)))


def _typicality(found: Findings) -> Html | None:
    if found.typicality is None:
        return None
    outside = found.typicality_outside
    caption = "Distribution of typicality." + (
        ""
        if outside is None
        else " The further the hatched area is to the left, the better unfamiliar data is detected."
    )
    drawn = plots.typicality(found.typicality, outside)
    alt = "Histogram of typicality" + ("" if outside is None else ", of test examples and of out-of-distribution data")
    return joined((_facts(card.typicality(found), "Typicality"), _figure(drawn, alt, caption)))


def _map(found: Findings) -> Html:
    drawn = embedding_map(found.clf, y=found.predictions.classes[found.truth], h=found.h)
    caption = (
        "Examples near each other are similar to the model, and count most in each other's votes. Separate groups of "
        "one class are easy to predict; where classes overlap, predictions are uncertain. Rings mark errors. "
    )
    alt = f"Map of training examples and {len(found.truth):,} test examples, by class, in two dimensions"
    unchanged = found.clf.references_.embeddings.shape[1] <= 2
    return _figure(drawn, alt, caption + words.what_map_shows(unchanged=unchanged))


def _groups(found: Findings) -> Html | None:
    facts = card.groups(found)
    if not facts:
        return None
    parts = [_facts(facts, "Groups")]
    if not found.private:
        parts.append(_largest(found))
    return joined(parts)


def _largest(found: Findings) -> Html:
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


def _predictions(found: Findings, k: int, n_cases: int) -> Html:
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


def _labels(found: Findings) -> Html:
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
