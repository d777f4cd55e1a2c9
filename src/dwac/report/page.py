"""The report: one HTML file that needs no network, runs no script, and contains nothing unescaped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dwac.estimator.targets import NUMBERS
from dwac.report import card, words
from dwac.report.classes import class_story
from dwac.report.findings import ClassFindings, Findings
from dwac.report.label_findings import LabelFindings
from dwac.report.markup import Html, joined, tag
from dwac.report.number_findings import NumberFindings
from dwac.report.numbers import number_story
from dwac.report.parts import Section
from dwac.report.several import label_story

CSS = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
# Nothing may be fetched or run, whatever a record contains: a second defence behind the escaping.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STORIES: dict[type, Callable[[Any, int, int, str | None], list[Section]]] = {
    ClassFindings: class_story,
    NumberFindings: number_story,
    LabelFindings: label_story,
}


def page(found: Findings, *, title: str, k: int, n_cases: int, note: str = "", by: str | None = None) -> str:
    """The whole file."""
    (first, *sections), kind = _STORIES[type(found)](found, k, n_cases, by), found.clf.target_.kind
    foot = tag("footer", f"Written by dwac {card.version()}.")
    limits = joined((tag("ul", *(tag("li", text) for text in words.limits(kind))), foot))
    kept = [part for part in (*sections, ("limits", "What to keep in mind", limits)) if part[2]]
    links = [tag("li", tag("a", head, href=f"#{name}")) for name, head, _ in (first, *kept)]
    nav = tag("nav", tag("ul", *links), aria_label="Contents")
    summary, *parts = [tag("section", tag("h2", head), body, id=name) for name, head, body in (first, *kept)]
    rounded = words.PRIVATE_NUMBERS if kind == NUMBERS else ""
    texts = (note, words.PRIVATE + rounded if found.private else "", _met(found))
    notes = [tag("p", tag("strong", "Note: "), text, class_="warning") for text in texts if text]
    top = tag("header", tag("h1", title), *notes)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        Html(f"<style>{CSS}</style>"),
    )
    return (
        "<!doctype html>\n" + tag("html", head, tag("body", top, tag("main", summary, nav, *parts)), lang="en") + "\n"
    )


def _met(found: Findings) -> str:
    n = int(found.met.sum())
    if n and found.private:
        return "Some of the test examples were used in training, so the results are too optimistic."
    return (
        f"{n:,} of the {len(found.met):,} test examples were used in training, so the results are too optimistic."
        if n
        else ""
    )
