"""Single predictions on a page: the example, its explanation, and the training examples that voted."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dwac._checks import listed
from dwac.drawing.records import Column, compared, data_url, image_of, kind_of, written
from dwac.estimator.evaluation import amount
from dwac.estimator.preparation import take
from dwac.explain import Explanation, Neighbor, privacy
from dwac.explain.base import VoteExplanation
from dwac.report.findings import Findings
from dwac.report.markup import Html, joined, table, tag
from dwac.report.parts import folded
from dwac.report.words import percent

_LONGEST_TEXT, _MOST_WORDS, _MOST_COLUMNS, _MOST_LISTED = 600, 150, 20, 12
Say = Callable[[Any, int], tuple[str, str]]

_LARGEST_SIDE, _LARGEST_PICTURE = 128, 2**25  # pixels, pixels in all
_SMALL_PNG, _QUALITY = 4096, 80  # bytes up to which a PNG is kept as it is; quality of a JPEG, in per cent


def _body(explained: VoteExplanation) -> Html | None:
    """Who voted, beside the example."""
    if explained.private and not isinstance(explained, Explanation):
        return _ranges(explained)
    kind = "" if explained.private else kind_of(explained.record)
    body: Html = {"image": _images, "text": _text, "table": _table, "": _votes}[kind](explained)
    return body if explained.few_suffice else joined((_groups(explained), body if kind else None))


def _ranges(explained: VoteExplanation) -> Html | None:
    """The votes on a private number, in ranges."""
    frame = explained.to_frame()
    if not len(frame):
        return None
    rows = [
        (*map(str, cells), bar(share, text=privacy.percent(share)))
        for *cells, share in frame.itertuples(index=False, name=None)
    ]
    return table((*map(str, frame.columns[:-1]), "share of the vote"), rows, caption="Votes by range")


def vote(value: Any) -> str:
    """What a voter votes for, or a group: a label, a number, the mean and range of numbers, or several of these."""
    if hasattr(value, "low") and hasattr(value, "high"):
        alone = value.low == value.high
        return amount(value.mean) if alone else f"{amount(value.mean)} ({amount(value.low)} to {amount(value.high)})"
    if isinstance(value, tuple):
        return ", ".join(map(vote, value))
    return amount(value) if isinstance(value, float) else written(value)


def _what(explained: VoteExplanation) -> str:
    return "label" if isinstance(explained, Explanation) else "number"


def _apart(voter: Neighbor, explained: VoteExplanation) -> bool:
    """Whether a voter has another label than the predicted one; numbers have no such."""
    return isinstance(explained, Explanation) and voter.label != explained.label


def _shown_share(explained: Explanation) -> str:
    voters = explained.shown
    share = sum(voter.share for voter in voters)
    if not explained.few_suffice:
        mine = len([voter for voter in voters if voter.label == explained.label])
        return (
            f"{len(voters)} of {len(explained.groups)} groups are shown, each by its member most like this example; "
            f"they have {percent(share)} of the vote, and {mine} of them the predicted label."
        )
    mine = sum(voter.label == explained.label for voter in voters)
    weighted = explained.n_examples != explained.n_references
    order, who = ("heaviest", "representatives") if weighted else ("nearest", "training examples")
    few = f"The {order}" if len(voters) == 1 else f"The {len(voters)} {order}"
    return (
        f"{few} of {explained.n_references:,} {who}, shown here, have {percent(share)} of the vote; "
        f"{mine} of {len(voters)} have the predicted label."
    )


def bar(share: float, *, other: bool = False, text: str = "") -> Html:
    """A share as a number and as a bar, of the whole vote; hatched if it goes to another label."""
    look = {"class_": "bar other" if other else "bar", "style": f"width:{100 * share:.1f}%"}
    track = tag("span", tag("span", **look), class_="track", aria_hidden="true")
    return joined((track, tag("span", text or percent(share), class_="share")))


def _groups(explained: VoteExplanation) -> Html:
    """The heaviest groups, and the heaviest for another label."""
    groups = explained.shown_groups
    described = any(group.description for group in groups)
    rows = [
        (
            vote(group.label),
            _bar(group.face, explained),
            f"{group.size:,}",
            *((group.description or "–",) if described else ()),
            _name(group.face),
        )
        for group in groups
    ]
    head = (
        _what(explained),
        "share of the vote",
        "examples",
        *(("what sets it apart",) if described else ()),
        "most alike",
    )
    return table(head, rows, caption="Votes by group, heaviest first", numbers=[2])


def _order(explained: VoteExplanation) -> str:
    """Who is shown, and in which order."""
    if not explained.few_suffice:
        return "Of each group the member most like this example"
    weighted = explained.n_examples != explained.n_references
    return f"Votes, {'heaviest representative' if weighted else 'nearest training example'} first"


def _votes(explained: VoteExplanation) -> Html:
    first = 1 if explained.private else 0  # labels only
    rows = [
        (_name(voter), vote(voter.label), joined((_bar(voter, explained), _for(voter))))[first:]
        for voter in explained.shown
    ]
    head = ("training example", _what(explained), "share of the vote")[first:]
    return table(head, rows, caption="Votes per label" if explained.private else _order(explained))


def _bar(voter: Neighbor, explained: VoteExplanation) -> Html:
    text = privacy.percent(voter.share) if explained.private else ""
    return bar(voter.share, other=_apart(voter, explained), text=text)


def _for(voter: Neighbor) -> Html | None:
    """How many examples a voter stands for."""
    return tag("span", f" for {voter.size:,} examples", class_="note") if voter.size > 1 else None


def _name(voter: Neighbor) -> str:
    return "–" if voter.id is None else written(voter.id)


def _images(explained: VoteExplanation) -> Html:
    asked = tag("figure", picture(explained.record, "this example"), tag("figcaption", "this example"))
    voters = [
        tag(
            "figure",
            picture(voter.record, f"training example {_name(voter)}"),
            tag(
                "figcaption",
                tag("strong", vote(voter.label)),
                f" ({_name(voter)})",
                _bar(voter, explained),
                _for(voter),
            ),
            class_="other" if _apart(voter, explained) else None,
        )
        for voter in explained.shown
    ]
    return tag("div", asked, *voters, class_="strip")


def _text(explained: VoteExplanation) -> Html:
    if explained.attention:
        words = explained.attention[:_MOST_WORDS]
        most = max(weight for _, weight in explained.attention) or 1.0
        spans = [
            tag("span", word, style=f"--read:{weight / most:.2f}", title=percent(weight)) for word, weight in words
        ]
        more = " …" if len(explained.attention) > len(words) else ""
        asked = tag("p", *(part for span in spans for part in (span, " ")), more, class_="words")
        note = tag("p", "The stronger the colour of a word, the more attention the model pays to it.", class_="note")
    else:
        asked, note = tag("p", written(explained.record["text"], _LONGEST_TEXT), class_="words"), None
    rows = [
        (_name(voter), vote(voter.label), joined((_bar(voter, explained), _for(voter))), brief(voter.record))
        for voter in explained.shown
    ]
    head = ("training example", _what(explained), "share of the vote", "text")
    return joined((asked, note, table(head, rows, caption=_order(explained))))


def _table(explained: VoteExplanation) -> Html:
    voters = explained.shown
    columns = compared(explained.record, [voter.record for voter in voters], most=40)
    differing = [column for column in columns if any(column.differs)]
    same = [f"{column.name} {column.value}" for column in columns if not any(column.differs)]
    heads = [joined((tag("strong", vote(v.label)[:40]), tag("br"), _name(v))) for v in voters]
    shares = ("share of the vote", "–", *(joined((_bar(voter, explained), _for(voter))) for voter in voters))
    rows = [shares, *(_compared_row(column) for column in differing[:_MOST_COLUMNS])]
    shown = table(("column", "this example", *heads), rows, caption=f"{_order(explained)}; ≠ marks values that differ")
    more = differing[_MOST_COLUMNS:]
    left = f" {len(more)} more column{'s differ' if len(more) > 1 else ' differs'}." if more else ""
    noted = f"Same in all: {listed(same, _MOST_LISTED, str)}." if same else ""
    return joined((tag("div", shown, class_="votes"), tag("p", noted + left, class_="note") if noted or left else None))


def _compared_row(column: Column) -> tuple[Any, ...]:
    cells = [
        tag("td", tag("mark", "≠ ", text)) if differs else tag("td", text)
        for text, differs in zip(column.others, column.differs, strict=True)
    ]
    return column.name, column.value, *cells


def brief(record: Any, most: int = _MOST_LISTED) -> Html | str:
    """A training example in a table cell; of a row of a table, `most` columns."""
    kind = kind_of(record)
    if kind == "image":
        return picture(record, "the training example")
    if kind == "text":
        return written(record["text"], _LONGEST_TEXT // 2)
    if kind == "table":
        return listed((f"{written(name, 30)} {written(value, 30)}" for name, value in record.items()), most, str)
    return "–"


def picture(record: Any, alt: str) -> Html:
    """The picture in a record, small enough for a page with many."""
    png = image_of(record) if isinstance(record, Mapping) else None
    width, height = struct.unpack(">II", png[16:24]) if png is not None and len(png) > 24 else (0, 0)
    url = None if png is None or not 0 < width * height < _LARGEST_PICTURE else _small(png, max(width, height))
    if url is None:
        return tag("span", "no picture", class_="note")
    return tag("img", src=url, alt=alt, class_="pixels" if max(width, height) < 64 else None)


def _small(png: bytes, side: int) -> str | None:
    """A small picture as a data URL: a PNG, or a JPEG where that is smaller, as of a photo; None if it is damaged."""
    from PIL import Image

    if side <= _LARGEST_SIDE and len(png) <= _SMALL_PNG:
        return data_url(png)
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            image.thumbnail((_LARGEST_SIDE, _LARGEST_SIDE))
            clear = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
            shown, files = image.convert("RGBA" if clear else "RGB"), {"png": io.BytesIO(), "jpeg": io.BytesIO()}
            shown.save(files["png"], "PNG", optimize=True)
            if not clear:
                shown.save(files["jpeg"], "JPEG", quality=_QUALITY)
    except (OSError, ValueError, SyntaxError, struct.error):  # raised for damaged pictures
        return None
    kind, file = min(((k, f) for k, f in files.items() if f.tell()), key=lambda pair: pair[1].tell())
    return data_url(file.getvalue(), kind)


def told(explained: Any, name: Any, predicted: str, verdict: str) -> Html:
    """One prediction, explained. Of several labels: the votes on each that is predicted."""
    verdict = tag("span", verdict, class_="verdict")
    head = tag("h4", f"Example {written(name)}: predicted ", tag("strong", predicted), " ", verdict)
    body = _body(explained) if isinstance(explained, VoteExplanation) else joined(_by_label(explained))
    whole = isinstance(explained, Explanation) and not explained.private
    sentences = explained.sentences() + ([_shown_share(explained)] if whole else [])
    paragraphs = [tag("p", sentence) for sentence in sentences]
    return tag("article", head, body, tag("div", *paragraphs, class_="sentences"), class_="case")


def _by_label(explained: Any) -> list[Html | None]:
    """The votes on each label that is predicted, or else on the most probable one."""
    shown = explained.labels or sorted(explained, key=lambda label: -explained[label].probability)[:1]
    parts: list[Html | None] = []
    for label in shown:
        parts += [tag("p", "Votes on ", tag("strong", written(label))), _body(explained[label])]
    return parts


def told_cases(
    found: Findings, rows: dict[str, list[int]], kinds: dict[str, str], say: Say, **settings: Any
) -> Html | None:
    """Explained predictions of each kind; None if no rows are chosen.

    say: the prediction of a row, and how it compares with the truth, in words. settings: of `explain`.
    """
    if not any(rows.values()):
        return None
    parts: list[Html] = []
    ids: Any = range(len(found.ids)) if found.private else found.ids
    for kind, chosen in rows.items():
        explained: list[Any] = []
        if chosen:
            explained = found.clf.explain(take(found.X, np.array(chosen)), private=found.private, **settings)
        cases = [told(each, ids[row], *say(found, row)) for each, row in zip(explained, chosen, strict=True)]
        parts.append(folded(f"{kind.capitalize()} ({len(cases)})", kinds[kind], *cases))
    return joined(parts)
