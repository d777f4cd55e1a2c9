"""The report: one HTML file that needs no network, runs no script, and contains nothing unescaped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dwac.estimator.targets import LABELS, NUMBERS
from dwac.report import card, words
from dwac.report.classes import class_sections
from dwac.report.findings import ClassFindings, Findings
from dwac.report.markup import Html, tag
from dwac.report.numbers import NumberFindings, number_sections
from dwac.report.parts import Section
from dwac.report.several import LabelFindings, label_sections
from dwac.report.style import CSS

# Nothing may be fetched or run, whatever a record contains: a second defence behind the escaping.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_LEADS = {NUMBERS: words.NUMBER_LEAD, LABELS: words.LABEL_LEAD}
_SECTIONS: dict[type, Callable[[Any, int, int], list[Section]]] = {
    ClassFindings: class_sections,
    NumberFindings: number_sections,
    LabelFindings: label_sections,
}


def page(found: Findings, *, title: str, k: int, n_cases: int, note: str = "") -> str:
    """The whole file."""
    lead, sections = _LEADS.get(found.clf.target_.kind, words.LEAD), _SECTIONS[type(found)](found, k, n_cases)
    limits = tag("ul", *(tag("li", text) for text in words.limits(found.clf.target_.kind)))
    kept = [part for part in (*sections, ("limits", "What to keep in mind", limits)) if part[2]]
    items = [tag("li", tag("a", head, href=f"#{name}")) for name, head, _ in kept]
    links = tag("nav", tag("ul", *items), aria_label="Contents")
    parts = [tag("section", tag("h2", head), body, id=name) for name, head, body in kept]
    rounded = words.PRIVATE_NUMBERS if found.clf.target_.kind == NUMBERS else ""
    texts = (note, words.PRIVATE + rounded if found.private else "", _met(found))
    notes = [tag("p", tag("strong", "Note: "), text, class_="warning") for text in texts if text]
    top = tag("header", tag("h1", title), tag("p", lead, class_="lead"), *notes, links)
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
