"""Parts of report pages: tables, cells that are more than text, and figures as images."""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dwac._checks import listed
from dwac.drawing.legend import NO_LEGEND, Legend
from dwac.drawing.records import data_url, image_of, kind_of, shorten

_PIXELS = 112  # per inch of a plot; 96 on paper
_LARGEST_SIDE, _LARGEST_PICTURE = 128, 2**25  # pixels per side, pixels in total
_SMALL_PNG, _QUALITY = 4096, 80  # bytes up to which a PNG is kept unchanged; quality of a JPEG, in per cent
_LONGEST_TEXT, _MOST_COLUMNS = 300, 12  # characters and columns of an example in a cell


class ReportTable(NamedTuple):
    """A table whose first column names its rows; `numbers` are the right-aligned columns, `left` the rows left out."""

    caption: str
    head: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    numbers: Container[int] = ()
    left: int = 0

    @classmethod
    def of(
        cls, caption: str, rows: Sequence[Mapping[str, Any]], numbers: Container[int] = (), left: int = 0
    ) -> ReportTable:
        """A table of rows, each with its cells by the names of their columns; without rows there are no columns."""
        return cls(caption, list(rows[0]) if rows else [], [tuple(row.values()) for row in rows], numbers, left)


class RichCell(NamedTuple):
    """A cell that is more than text.

    kind: "bar", a share of the vote as a bar and a text, hatched if `is_other`, that is, for another label; "signed", a
    contribution as a bar from the middle, to the left if `is_other`, that is, against the prediction; "shaded", the
    darker the larger the share; "different", a value that differs from that of the explained example; or "named", a
    label above the name of the example that votes for it.
    """

    kind: str
    text: str
    share: float = 0.0
    is_other: bool = False
    size: int = 1  # examples that a voter represents
    name: str = ""


class Photo(NamedTuple):
    """A picture of an example: its data URL, or None if it cannot be shown."""

    src: str | None
    alt: str
    is_small: bool
    kind: str = "picture"


class Plot(NamedTuple):
    """A drawn figure: its data URL, and its width on a wide page."""

    src: str
    width: int


class Figure(NamedTuple):
    """A figure, its alternative text, and its caption."""

    drawn: Any
    alt: str
    caption: str

    @property
    def images(self) -> list[Plot]:
        """The figure as an image."""
        return images(self.drawn)


def images(*figures: Any) -> list[Plot]:
    """Figures as images. Each is as wide as it was drawn, or as the page if that is narrower."""
    return [
        Plot(
            "data:image/svg+xml;base64," + base64.b64encode(figure.svg().encode()).decode(),
            round(figure.get_figwidth() * _PIXELS),
        )
        for figure in figures
    ]


def labels_of(names: Iterable[Any]) -> str:
    """Labels with commas; "no label" if there are none."""
    return ", ".join(map(shorten, names)) or "no label"


def brief(record: Any, most: int = _MOST_COLUMNS, legend: Legend = NO_LEGEND) -> Photo | str:
    """A training example in a cell of a table; a table row is cut to `most` columns.

    legend: what columns and codes are called.
    """
    kind = kind_of(record)
    if kind == "image":
        return picture(record, "the training example")
    if kind == "text":
        return shorten(record["text"], _LONGEST_TEXT)
    if kind == "table":
        values = (f"{shorten(legend.head(name), 30)} {legend.value(name, value, 30)}" for name, value in record.items())
        return listed(values, most, str)
    return "–"


def picture(record: Any, alt: str) -> Photo:
    """The picture in a record, small enough for a page with many pictures."""
    png = image_of(record) if isinstance(record, Mapping) else None
    width, height = struct.unpack(">II", png[16:24]) if png is not None and len(png) > 24 else (0, 0)
    url = None if png is None or not 0 < width * height < _LARGEST_PICTURE else _small(png, max(width, height))
    return Photo(url, alt, max(width, height) < 64)


def _small(png: bytes, side: int) -> str | None:
    """A small picture as a data URL: a PNG, or a JPEG if that is smaller, as for photos; None if it is damaged."""
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
