"""The picture of one explanation: the explained example next to its voters, or the votes for a number."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

from dwac._checks import percent
from dwac.drawing.colours import COLOURS, INK, PAPER
from dwac.drawing.records import compared, image_of, kind_of
from dwac.drawing.sheet import Sheet, placed
from dwac.drawing.style import new, plain, tidy

_ROWS, _BESIDE, _WORDS = 24, 5, 120  # limits: columns and neighbours of a table, and words of a text


class Voter(Protocol):
    """The part of a `dwac.explain.Neighbor` that is drawn."""

    @property
    def label(self) -> Any: ...  # noqa: D102
    @property
    def share(self) -> float: ...  # noqa: D102
    @property
    def id(self) -> Any: ...  # noqa: D102
    @property
    def record(self) -> Any: ...  # noqa: D102
    @property
    def size(self) -> int: ...  # noqa: D102


class Explained(Protocol):
    """The part of a `dwac.explain.Explanation` that is drawn."""

    @property
    def label(self) -> Any: ...  # noqa: D102
    @property
    def probability(self) -> float: ...  # noqa: D102
    @property
    def typicality(self) -> float | None: ...  # noqa: D102
    @property
    def shown(self) -> Sequence[Voter]: ...  # noqa: D102
    @property
    def record(self) -> Any: ...  # noqa: D102
    @property
    def attention(self) -> Sequence[tuple[str, float]] | None: ...  # noqa: D102
    @property
    def private(self) -> bool: ...  # noqa: D102


def draw_explanation(explained: Explained) -> Any:
    """Draw images side by side, a text with words shaded by attention, or a table row with differences marked.

    Without a record, draw only the votes; if the explanation is private, one bar per label.
    """
    kind = "" if explained.private else kind_of(explained.record)
    draw = {"image": _images, "text": _text, "table": _table, "": _votes}[kind]
    return draw(explained)


def _title(explained: Explained) -> str:
    title = f"{explained.label!s:.24}: probability {explained.probability:.3f}"
    return title if explained.typicality is None else f"{title}, typicality {explained.typicality:.3f}"


def _name(voter: Voter) -> str:
    """Its label and share, and how many examples it represents; its id unless private."""
    vote = f"{plain(voter.label)}  {percent(voter.share)}" + (f", for {voter.size:,}" if voter.size > 1 else "")
    return vote if voter.id is None else f"{vote}\n{plain(voter.id, 16)}"


def _images(explained: Explained) -> Any:
    from matplotlib.image import imread

    figure, axes = new(1, len(explained.shown) + 1, width=1.35, height=1.75)
    figure.suptitle(plain(_title(explained), 80), fontsize=9, color=INK)
    shown = [(explained.record, "this example\n"), *((voter.record, _name(voter)) for voter in explained.shown)]
    for place, (panel, (record, title)) in enumerate(zip(axes[0], shown, strict=True)):
        png = image_of(record)
        if png is not None:
            panel.imshow(imread(io.BytesIO(png), format="png"), cmap="gray", interpolation="nearest")
        panel.set(xticks=[], yticks=[])
        panel.set_title(title, fontsize=7, color=INK)
        other = place > 0 and explained.shown[place - 1].label != explained.label
        # A vote for another label also has a dashed frame.
        look = (COLOURS[1], 2.0, (0, (3, 2))) if other else (INK, 1.5 if place == 0 else 0.4, "-")
        for spine in panel.spines.values():
            spine.set(edgecolor=look[0], linewidth=look[1], linestyle=look[2])
    return figure


def _votes(explained: Explained) -> Any:
    voters = explained.shown
    figure, axes = new(1, 1, width=4.6, height=0.7 + 0.26 * len(voters))
    panel = axes[0, 0]
    names = [f"{plain(v.label)}" if v.id is None else f"{plain(v.id, 16)}: {plain(v.label)}" for v in voters]
    for place, voter in enumerate(voters):
        mine = voter.label == explained.label
        look = {"color": COLOURS[0]} if mine else {"facecolor": "none", "edgecolor": COLOURS[1], "hatch": "////"}
        panel.barh(place, voter.share, height=0.7, **look)
        share = f"{percent(voter.share, 0)}" if explained.private else f"{percent(voter.share)}"
        panel.text(voter.share, place, f" {share}", fontsize=7, color=INK, va="center")
    panel.set_yticks(range(len(voters)), names)
    panel.invert_yaxis()
    panel.set_xlim(0, max((voter.share for voter in voters), default=0) * 1.18 or 1)
    tidy(panel, title=plain(_title(explained), 80), x="share of the vote")
    return figure


def _text(explained: Explained) -> Any:
    words = list(explained.attention or ((word, 0.0) for word in explained.record["text"].split()))
    most = max((weight for _, weight in words), default=0.0) or 1.0
    words = words[:_WORDS] + [("…", 0.0)] * (len(words) > _WORDS)
    places = list(placed([word for word, _ in words]))
    n_lines = places[-1][0] + 1 if places else 1
    sheet = Sheet(n_lines + len(explained.shown) + 1.5)
    sheet.write(_title(explained), bold=True)
    here = -1
    for (word, weight), (line, x, width) in zip(words, places, strict=True):
        sheet.down(line - here)
        here = line
        sheet.mark(x, width + 4, weight / most)
        sheet.write(word, x)
    sheet.down(0.5)
    for voter in explained.shown:
        sheet.down()
        _vote(sheet, voter, explained)
    return sheet.figure


def _vote(sheet: Sheet, voter: Voter, explained: Explained) -> None:
    """Draw a line for one neighbour: a bar for its share, its label, and the beginning of its text."""
    other = voter.label != explained.label
    look = {"facecolor": "none", "hatch": "/////"} if other else {"facecolor": COLOURS[0]}
    longest = max(v.share for v in explained.shown) or 1
    sheet.box(0, 56 * voter.share / longest, 8, edgecolor=COLOURS[other], **look)
    sheet.write(f"{percent(voter.share)}", 62)
    sheet.write(voter.label, 100, width=76, bold=True)
    sheet.write(voter.record["text"] if kind_of(voter.record) == "text" else voter.id, 180)


def _table(explained: Explained) -> Any:
    voters = explained.shown[:_BESIDE]
    every = compared(explained.record, [voter.record for voter in voters])
    columns = sorted(every, key=lambda column: not any(column.differs))[:_ROWS]
    sheet = Sheet(len(columns) + 3 + (len(every) > len(columns)))
    first = 116
    wide = (sheet.width - first) / (len(voters) + 1)
    sheet.write(_title(explained), bold=True)
    sheet.down(0.5)
    heads = ["this example", *(f"{percent(v.share, 0)} {v.label}" for v in voters)]
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
    if more := len(every) - len(columns):
        sheet.down()
        sheet.write(f"and {more} more column{'s' * (more > 1)}")
    return sheet.figure


# Numbers


class ExplainedNumber(Protocol):
    """The part of a `dwac.explain.NumberExplanation` that is drawn; tuples if several numbers are predicted."""

    @property
    def prediction(self) -> Any: ...  # noqa: D102
    @property
    def interval(self) -> Any: ...  # noqa: D102
    @property
    def epsilon(self) -> float | None: ...  # noqa: D102
    @property
    def histogram(self) -> Any: ...  # noqa: D102
    @property
    def names(self) -> Sequence[Any]: ...  # noqa: D102
    @property
    def neighbors(self) -> Sequence[Voter]: ...  # noqa: D102
    @property
    def headlines(self) -> Sequence[str]: ...  # noqa: D102


def draw_numbers(explained: ExplainedNumber) -> Any:
    """Draw a histogram of the votes for each number, with the prediction, the interval, and the voters above it."""
    several = isinstance(explained.prediction, tuple)
    figure, axes = new(len(explained.names), 1, width=5.2, height=2.5)
    for t, panel in enumerate(axes[:, 0]):

        def own(values: Any, t: int = t) -> Any:
            return values[t] if several and values is not None else values

        name = explained.names[t]
        title = plain(name) if several or name is not None else "number"
        voters = [(float(own(voter.label)), voter.share) for voter in explained.neighbors]
        _histogram(panel, own(explained.histogram), voters)
        _interval(panel, own(explained.prediction), own(explained.interval), explained.epsilon)
        tidy(panel, title=plain(explained.headlines[t], 90), x=title, y="share of the vote")
        panel.ticklabel_format(axis="x", style="plain", useOffset=False)
        panel.xaxis.set_major_formatter(_thousands)
        panel.legend(fontsize=7, frameon=False, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _thousands(value: float, _: Any = None) -> str:
    """A number on an axis; as in sentences, with thousands separators from 10,000 on."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:g}"


def _histogram(panel: Any, histogram: Any, voters: Sequence[tuple[float, float]]) -> None:
    """Draw the bars, and above them the voters, larger for larger shares."""
    if histogram is None:
        return
    edges, shares = histogram
    widths = [high - low for low, high in pairwise(edges)]
    panel.bar(edges[:-1], shares, width=widths, align="edge", color=COLOURS[5], edgecolor=PAPER, label="all votes")
    top = max(shares) or 1.0
    panel.set_ylim(0, 1.3 * top)
    if voters:
        most = max(share for _, share in voters) or 1.0
        sizes = [12 + 60 * share / most for _, share in voters]
        look = {"marker": "v", "facecolor": "none", "edgecolor": COLOURS[1], "linewidths": 1.2, "zorder": 3}
        panel.scatter([number for number, _ in voters], [1.2 * top] * len(voters), s=sizes, label="nearest", **look)


def _interval(panel: Any, prediction: float, interval: Any, epsilon: float | None) -> None:
    """Draw a line at the prediction, and a bar with caps for the interval; no bar if an end is infinite."""
    place = 1.08 * panel.get_ylim()[1] / 1.3
    panel.axvline(prediction, color=INK, linewidth=1.4, label="prediction")
    if interval is None or epsilon is None or not all(map(math.isfinite, interval)):
        return
    low, high = interval
    look = {"color": COLOURS[0], "linewidth": 1.6, "marker": "|", "markersize": 8}
    panel.plot([low, high], [place, place], label=f"{100 * (1 - epsilon):g} % interval", **look)
