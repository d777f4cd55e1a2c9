"""The picture of one explanation: the explained example next to its voters, or the votes for a number."""

from __future__ import annotations

import io
import math
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from dwac import _checks as checks
from dwac.drawing import COLOURS, INK, PAPER
from dwac.drawing.legend import compare
from dwac.drawing.records import image_of, kind_of
from dwac.drawing.style import blank, new, plain, tidy
from dwac.languages import count, label_name, numeral, say

_ROWS, _BESIDE, _WORDS = 24, 5, 120  # limits: columns and neighbours of a table, and words of a text
_LEADING, _MARGIN, _WIDTH = 16, 14, 560  # line spacing, margin and total width of a sheet of text, in points
_MARK = "#F2C14E"  # the highlight
_SIZE = 8.5


def draw_explanation(explanation: Any) -> Any:
    """Draw images side by side, a text with words shaded by attention, or a table row with differences marked.

    Without a record, draw only the votes; if the explanation is private, one bar per label.
    """
    kind = "" if explanation.private else kind_of(explanation.record)
    draw = {"image": _images, "text": _text, "table": _table, "": _votes}[kind]
    return draw(explanation)


def _title(explanation: Any) -> str:
    known = {
        "label": f"{label_name(explanation.label):.24}",
        "probability": numeral(f"{explanation.probability:.3f}"),
    }
    if explanation.typicality is None:
        return say("{label}: probability {probability}", **known)
    typicality = numeral(f"{explanation.typicality:.3f}")
    return say("{label}: probability {probability}, typicality {typicality}", typicality=typicality, **known)


def percent(share: float, digits: int = 1) -> str:
    """A share as text, in the current language."""
    return numeral(checks.percent(share, digits))


def _name(voter: Any) -> str:
    """Its label and share, and how many examples it represents; its id unless private."""
    vote = f"{plain(label_name(voter.label))}  {percent(voter.share)}"
    if voter.size > 1:
        vote = say("{vote}, for {n}", vote=vote, n=numeral(f"{voter.size:,}"))
    return vote if voter.id is None else f"{vote}\n{plain(voter.id, 16)}"


def _images(explanation: Any) -> Any:
    from matplotlib.image import imread

    figure, axes = new(1, len(explanation.shown) + 1, width=1.35, height=1.75)
    figure.suptitle(plain(_title(explanation), 80), fontsize=9, color=INK)
    shown = [
        (explanation.record, f"{say('this example')}\n"),
        *((voter.record, _name(voter)) for voter in explanation.shown),
    ]
    for place, (panel, (record, title)) in enumerate(zip(axes[0], shown, strict=True)):
        png = image_of(record)
        if png is not None:
            panel.imshow(imread(io.BytesIO(png), format="png"), cmap="gray", interpolation="nearest")
        panel.set(xticks=[], yticks=[])
        panel.set_title(title, fontsize=7, color=INK)
        other = place > 0 and explanation.shown[place - 1].label != explanation.label
        # A vote for another label also has a dashed frame.
        look = (COLOURS[1], 2.0, (0, (3, 2))) if other else (INK, 1.5 if place == 0 else 0.4, "-")
        for spine in panel.spines.values():
            spine.set(edgecolor=look[0], linewidth=look[1], linestyle=look[2])
    return figure


def _votes(explanation: Any) -> Any:
    voters = explanation.shown
    figure, axes = new(1, 1, width=4.6, height=0.7 + 0.26 * len(voters))
    panel = axes[0, 0]
    labels = [plain(label_name(voter.label)) for voter in voters]
    names = [a if v.id is None else f"{plain(v.id, 16)}: {a}" for a, v in zip(labels, voters, strict=True)]
    for place, voter in enumerate(voters):
        mine = voter.label == explanation.label
        look = {"color": COLOURS[0]} if mine else {"facecolor": "none", "edgecolor": COLOURS[1], "hatch": "////"}
        panel.barh(place, voter.share, height=0.7, **look)
        share = percent(voter.share, 0 if explanation.private else 1)
        panel.text(voter.share, place, f" {share}", fontsize=7, color=INK, va="center")
    panel.set_yticks(range(len(voters)), names)
    panel.invert_yaxis()
    panel.set_xlim(0, max((voter.share for voter in voters), default=0) * 1.18 or 1)
    tidy(panel, title=plain(_title(explanation), 80), x=say("share of the vote"))
    return figure


def _text(explanation: Any) -> Any:
    words = list(explanation.attention or ((word, 0.0) for word in explanation.record["text"].split()))
    most = max((weight for _, weight in words), default=0.0) or 1.0
    words = words[:_WORDS] + [("…", 0.0)] * (len(words) > _WORDS)
    places = list(place_words([word for word, _ in words]))
    n_lines = places[-1][0] + 1 if places else 1
    sheet = Sheet(n_lines + len(explanation.shown) + 1.5)
    sheet.write(_title(explanation), bold=True)
    here = -1
    for (word, weight), (line, x, width) in zip(words, places, strict=True):
        sheet.down(line - here)
        here = line
        sheet.mark(x, width + 4, weight / most)
        sheet.write(word, x)
    sheet.down(0.5)
    for voter in explanation.shown:
        sheet.down()
        _vote(sheet, voter, explanation)
    return sheet.figure


def _vote(sheet: Sheet, voter: Any, explanation: Any) -> None:
    """Draw a line for one neighbour: a bar for its share, its label, and the beginning of its text."""
    other = voter.label != explanation.label
    look = {"facecolor": "none", "hatch": "/////"} if other else {"facecolor": COLOURS[0]}
    longest = max(v.share for v in explanation.shown) or 1
    sheet.box(0, 56 * voter.share / longest, 8, edgecolor=COLOURS[other], **look)
    sheet.write(percent(voter.share), 62)
    sheet.write(label_name(voter.label), 100, width=76, bold=True)
    sheet.write(voter.record["text"] if kind_of(voter.record) == "text" else voter.id, 180)


def _table(explanation: Any) -> Any:
    voters = explanation.shown[:_BESIDE]
    compared = compare(explanation.record, [voter.record for voter in voters], legend=explanation.legend)
    columns = sorted(compared, key=lambda column: not any(column.differs))[:_ROWS]
    sheet = Sheet(len(columns) + 3 + (len(compared) > len(columns)))
    first = 116
    wide = (sheet.width - first) / (len(voters) + 1)
    sheet.write(_title(explanation), bold=True)
    sheet.down(0.5)
    heads = [say("this example"), *(f"{percent(v.share, 0)} {label_name(v.label)}" for v in voters)]
    for row in (heads, ["", *(v.id for v in voters)]):
        sheet.down()
        for place, text in enumerate(row):
            sheet.write(text, first + place * wide, width=wide - 6, bold=True)
    for column in columns:
        sheet.down()
        sheet.write(column.name, width=first - 6)
        cells = zip((column.value, *column.others), (False, *column.differs), strict=True)
        for place, (text, differs) in enumerate(cells):
            x = first + place * wide
            if differs:
                sheet.mark(x, wide - 3)
            sheet.write(f"≠ {text}" if differs else text, x, width=wide - 6, bold=differs)
    if more := len(compared) - len(columns):
        sheet.down()
        sheet.write(count("and {n} more column", "and {n} more columns", more))
    return sheet.figure


# Numbers


def draw_numbers(explanation: Any) -> Any:
    """Draw a histogram of the votes for each number, with the prediction, the interval, and the voters above it."""
    several = isinstance(explanation.prediction, tuple)
    figure, axes = new(len(explanation.names), 1, width=5.2, height=2.5)
    for t, panel in enumerate(axes[:, 0]):

        def own(values: Any, t: int = t) -> Any:
            return values[t] if several and values is not None else values

        name = explanation.names[t]
        title = plain(name) if several or name is not None else say("number")
        voters = [(float(own(voter.label)), voter.share) for voter in explanation.neighbors]
        _histogram(panel, own(explanation.histogram), voters)
        _interval(panel, own(explanation.prediction), own(explanation.interval), explanation.epsilon)
        tidy(panel, title=plain(explanation.headlines[t], 90), x=title, y=say("share of the vote"))
        panel.ticklabel_format(axis="x", style="plain", useOffset=False)
        panel.xaxis.set_major_formatter(_thousands)
        panel.legend(fontsize=7, frameon=False, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _thousands(value: float, _: Any = None) -> str:
    """A number on an axis; as in sentences, with thousands separators from 10,000 on."""
    return numeral(f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:g}")


def _histogram(panel: Any, histogram: Any, voters: Sequence[tuple[float, float]]) -> None:
    """Draw the bars, and above them the voters, larger for larger shares."""
    if histogram is None:
        return
    edges, shares = histogram
    widths = [high - low for low, high in pairwise(edges)]
    panel.bar(edges[:-1], shares, width=widths, align="edge", color=COLOURS[5], edgecolor=PAPER, label=say("all votes"))
    top = max(shares) or 1.0
    panel.set_ylim(0, 1.3 * top)
    if voters:
        most = max(share for _, share in voters) or 1.0
        sizes = [12 + 60 * share / most for _, share in voters]
        look = {"marker": "v", "facecolor": "none", "edgecolor": COLOURS[1], "linewidths": 1.2, "zorder": 3}
        panel.scatter(
            [number for number, _ in voters], [1.2 * top] * len(voters), s=sizes, label=say("nearest"), **look
        )


def _interval(panel: Any, prediction: float, interval: Any, epsilon: float | None) -> None:
    """Draw a line at the prediction, and a bar with caps for the interval; no bar if an end is infinite."""
    place = 1.08 * panel.get_ylim()[1] / 1.3
    panel.axvline(prediction, color=INK, linewidth=1.4, label=say("prediction"))
    if interval is None or epsilon is None or not all(map(math.isfinite, interval)):
        return
    low, high = interval
    look = {"color": COLOURS[0], "linewidth": 1.6, "marker": "|", "markersize": 8}
    panel.plot(
        [low, high], [place, place], label=say("{share} % interval", share=numeral(f"{100 * (1 - epsilon):g}")), **look
    )


# A sheet of text, drawn line by line


class Sheet:
    """A figure with a given number of lines. `y` is the middle of the current line; `x` starts at the margin."""

    def __init__(self, lines: float) -> None:
        height = 2 * _MARGIN + lines * _LEADING
        self.figure = blank(_WIDTH / 72, height / 72)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(-_MARGIN, _WIDTH - _MARGIN), ylim=(height - _MARGIN, -_MARGIN))
        self.axes.set_axis_off()
        self.y = _LEADING / 2
        self.width = _WIDTH - 2 * _MARGIN

    def down(self, lines: float = 1) -> None:
        """Move to the next line."""
        self.y += lines * _LEADING

    def write(self, text: Any, x: float = 0, *, width: float | None = None, bold: bool = False) -> None:
        """Write a text, cut to `width`."""
        drawn = cut(plain(text, 400), self.width - x if width is None else width, bold)
        look = {"fontsize": _SIZE, "color": INK, "va": "center", "weight": "bold" if bold else "normal"}
        self.axes.text(x, self.y, drawn, **look)

    def mark(self, x: float, width: float, alpha: float = 0.6) -> None:
        """Highlight a part of the line."""
        self.box(x - 2, width, _LEADING - 2, facecolor=_MARK, linewidth=0, alpha=alpha)

    def box(self, x: float, width: float, height: float, **look: Any) -> None:
        """Draw a box in the middle of the line."""
        from matplotlib.patches import Rectangle

        self.axes.add_patch(Rectangle((x, self.y - height / 2), width, height, **look))


def cut(text: str, width: float, bold: bool = False) -> str:
    """A text, cut to a width in points."""
    if text_width(text, bold) <= width:
        return text
    n = bisect_right(range(len(text)), width, key=lambda n: text_width(f"{text[:n]}…", bold)) - 1
    return text[: max(n, 0)].removesuffix("\\") + "…"


def text_width(text: str, bold: bool = False) -> float:
    """The width of a drawn text, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", size=_SIZE, weight="bold" if bold else "normal")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a character missing in the font has the width of a box
        return float(text_to_path.get_text_width_height_descent(text.replace(r"\$", "$"), font, ismath=False)[0])


def place_words(words: list[str]) -> Iterator[tuple[int, float, float]]:
    """The line, x and width of each word of a text."""
    line, x = 0, 0.0
    for word in words:
        width = text_width(plain(word, 400))
        if x and x + width > _WIDTH - 2 * _MARGIN:
            line, x = line + 1, 0.0
        yield line, x, width
        x += width + 5
