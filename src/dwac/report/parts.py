"""Sections of a report that do not depend on what is predicted."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

from dwac.estimator.evaluation import Fact
from dwac.estimator.targets import CLASSES, LABELS, NUMBERS, ORDERED
from dwac.report import card, plots, words
from dwac.report.findings import Findings
from dwac.report.markup import Html, joined, table, tag
from dwac.report.words import percent

Section = tuple[str, str, Html | None]  # name, heading and content; left out without content

_PIXELS = 112  # per inch of a plot; 96 on paper
_STOPPED = " Training stops when the loss on validation examples, which are not trained on, stops improving."
_LOSS = {
    CLASSES: "The loss is large if the true label has a low probability",
    ORDERED: "The loss is large if the votes are far from the true label in the order",
    LABELS: "The loss is the squared error of the probabilities of labels, 1 if nothing is known",
    NUMBERS: "The loss is large if the votes are far from the true number",
}


def tiles(facts: list[Fact]) -> Html:
    """The most important facts, large."""
    shown = [
        tag("div", tag("dt", fact.name), tag("dd", tag("strong", fact.value), tag("p", fact.meaning))) for fact in facts
    ]
    return tag("dl", *shown, class_="tiles")


def fact_table(facts: list[Fact], caption: str) -> Html:
    """Facts as a table: name, value, meaning."""
    return tag("div", table(("fact", "value", "what it means"), facts, caption=caption), class_="facts")


class Shown(NamedTuple):
    """A figure, or several that belong together; what it shows, for those who cannot see it; and its caption."""

    drawn: Any
    alt: str
    caption: str


def shown(content: Shown) -> Html:
    """Figures with their caption. Each is as wide as it was drawn, or as the page if that is narrower."""
    figures: Sequence[Any] = content.drawn if isinstance(content.drawn, list) else [content.drawn]
    images = []
    for place, drawn in enumerate(figures, 1):
        url = "data:image/svg+xml;base64," + base64.b64encode(drawn.svg().encode()).decode()
        alt = content.alt if len(figures) == 1 else f"{content.alt} ({place} of {len(figures)})"
        images.append(tag("img", src=url, alt=alt, width=round(drawn.get_figwidth() * _PIXELS)))
    return tag("figure", tag("div", *images, class_="panels"), tag("figcaption", content.caption), class_="chart")


def figure(drawn: Any, alt: str, caption: str) -> Html:
    """The same from its parts."""
    return shown(Shown(drawn, alt, caption))


def folded(head: str, note: str | None, *parts: Any) -> Html:
    """A part that is opened by a click, and on paper always is."""
    said = None if note is None else tag("span", note, class_="note")
    return tag("details", tag("summary", tag("h3", head), said), *parts)


def model(found: Findings, target: Fact) -> Html:
    """The data, the model and its training. target: what is said of what is predicted."""
    history = found.clf.history_
    parts = [
        tag("p", words.LEADS.get(found.clf.target_.kind, words.LEAD)),
        fact_table(card.data(found, target), "Data"),
        fact_table(card.model(found), "Model"),
    ]
    if len(history) > 1:
        what = "Loss and accuracy" if "validation_accuracy" in history else "Loss"
        caption = f"Training by epoch. {_LOSS[found.clf.target_.kind]}; lower is better."
        caption += "" if found.clf.cross_fitted_ else _STOPPED
        drawn = [plots.alone(painter) for painter in plots.history_panels(history)]
        parts.append(figure(drawn, f"{what} over {len(history)} epochs of training", caption))
    return joined(parts)


def typicality(found: Findings) -> Html | None:
    """Typicality, and that of out-of-distribution examples, if any."""
    if found.typicality is None:
        return None
    outside = found.typicality_outside
    caption = "Distribution of typicality." + (
        ""
        if outside is None
        else " The further the hatched area is to the left, the better unfamiliar data is detected."
    )
    drawn = plots.alone(plots.typicality_panel(found.typicality, outside), width=4.0)
    alt = "Histogram of typicality" + ("" if outside is None else ", of test examples and of out-of-distribution data")
    return joined((fact_table(card.typicality(found), "Typicality"), figure(drawn, alt, caption)))


def share(value: float | None) -> str:
    """A share in per cent; a dash if there is none."""
    return percent(value) if value is not None and value == value else "–"


def number(value: float, digits: int = 2) -> str:
    """A number; a dash if there is none."""
    return f"{value:.{digits}f}" if value == value else "–"
