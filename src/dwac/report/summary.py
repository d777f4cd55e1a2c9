"""The first page: what, how good, how sure, where not to trust, in five sentences and three pictures.

It is for readers who decide whether to use the model; none of its words needs a glossary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dwac.drawing.records import written
from dwac.report.findings import Findings
from dwac.report.markup import Html, joined, tag
from dwac.report.parts import Shown, shown

HEADS = ("What it does", "How good it is", "How sure it is", "When in doubt", "Where not to trust it")
_THINGS = {"tabular": "rows of a table", "image": "images", "text": "texts", "huggingface": "texts"}
_FEW = 20  # cases of which shares of 100 would be a pretence


class Summary(NamedTuple):
    """Five sentences, one for each of HEADS, and three pictures."""

    sentences: tuple[str, str, str, str, str]
    pictures: tuple[Shown, Shown, Shown]


def summary_page(summary: Summary) -> Html:
    """The first page."""
    points = [
        tag("div", tag("dt", head), tag("dd", sentence))
        for head, sentence in zip(HEADS, summary.sentences, strict=True)
    ]
    return joined(
        (tag("dl", *points, class_="points"), tag("div", *map(shown, summary.pictures), class_="strip-of-charts"))
    )


def things(found: Findings) -> str:
    """What an example is, in the plural."""
    return _THINGS.get(found.clf.encoder_.kind, "cases")


def of_100(share: float) -> str:
    """A share as so many of 100, with what is nearly all or nothing said as such.

    >>> of_100(0.934), of_100(0.998), of_100(1), of_100(0.002)
    ('93 of 100', 'more than 99 of 100', '100 of 100', 'less than 1 of 100')
    """
    if np.isnan(share):
        return "an unknown number"  # none was tested
    if 0.995 <= share < 1:
        return "more than 99 of 100"
    return "less than 1 of 100" if 0 < share < 0.005 else f"{100 * share:.0f} of 100"


def counted(hits: Any) -> str:
    """How often something was so: of 100, or as it is counted where cases are few."""
    n = len(hits)
    return f"{int(hits.sum())} of {n}" if n < _FEW else of_100(float(hits.mean()))


def named(names: Any, most: int = 6) -> str:
    """Names in a sentence, not too many."""
    texts = [written(name, 30) for name in names]
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more:,} more" if more > 0 else "")


def unfamiliar(found: Findings, told: Callable[[NDArray[np.bool_]], str]) -> str:
    """What is said of cases unlike anything learned from. told: how they went, in words, from their rows (n,)."""
    if found.typicality is None:
        return "it cannot tell when a case is unlike anything it has learned from"
    if not found.strange.any():
        return "no tested case looked unlike what it has learned from"
    share = counted(found.strange)
    return (
        f"{share} cases look unlike anything it has learned from, and {told(found.strange)}: let a person check those"
    )
