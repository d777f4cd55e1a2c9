"""Pictures: the same for the same numbers, readable in grey, and safe whatever names they show."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from dwac import ReferenceSet, report
from dwac.drawing import MARKERS, neighbors, style
from dwac.drawing.groups import draw_groups
from dwac.drawing.legend import compare
from dwac.drawing.records import kind_of, shorten
from dwac.errors import DwacError
from dwac.explain import Explanation, Neighbor, explain_numbers
from dwac.metrics import set_curve
from tests.named import refuses

GOLDEN = Path(__file__).parent / "golden"
DPI = 50
APART = 6.0  # of 255: what fonts and versions may move, and no wrong picture stays below


class Model:
    """As much of a classifier as a map asks for."""

    def __init__(self, n_dimensions: int = 2, n_classes: int = 3) -> None:
        rng = np.random.default_rng(0)
        labels = np.arange(240) % n_classes
        h = rng.normal(size=(240, n_dimensions)) + 4 * rng.normal(size=(n_classes, n_dimensions))[labels]
        self.references_ = ReferenceSet(h, labels, n_classes=n_classes)
        self.classes_ = np.array([f"class {k}" for k in range(n_classes)])


def png(grey: int) -> bytes:
    pixels = (np.add.outer(np.arange(8), np.arange(8)) * 16 + grey).clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def explanation(records: list[Any], attention: Any = None, private: bool = False) -> Explanation:
    """An explanation by hand: three neighbours, the second with another label."""
    votes = [("yes", 0.5), ("no", 0.3), ("yes", 0.1)]
    neighbors = tuple(
        Neighbor(label, float(np.log(share)), share, share, *((None,) * 3 if private else (f"r{i}", 0.1 * i, record)))
        for i, ((label, share), record) in enumerate(zip(votes, records[1:], strict=True))
    )
    chances = {"yes": 0.7, "no": 0.3}
    return Explanation(
        label="yes",
        probability=0.7,
        probabilities=chances,
        neighbors=neighbors,
        n_references=10,
        n_examples=10,
        confidence=0.9,
        credibility=0.7,
        typicality=0.4,
        private=private,
        record=records[0],
        attention=attention,
    )


def an_image() -> Any:
    return explanation([{"image": png(grey)} for grey in (0, 20, 120, 60)]).plot()


def a_text() -> Any:
    text = "the plot is thin , yet every scene of it moves along with such charm that one forgives all"
    words = text.split()
    attention = tuple((word, 0.01 + 0.1 * (word in ("thin", "charm", "forgives"))) for word in words)
    records = [{"text": each} for each in (text, "a charming film", "thin and long " * 20, "all is well")]
    return explanation(records, attention).plot()


def a_table() -> Any:
    rows = [(31, "baker", 2.5), (31, "cook", 2.5), (58, "baker", None), (30, "smith", 2.5)]
    return explanation([dict(zip(("age", "trade", "size"), row, strict=True)) for row in rows]).plot()


def votes_alone() -> Any:
    return explanation([None] * 4, private=True).plot()


def numbers_explained(n_targets: int = 1, name: Any = "price", **more: Any) -> Any:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(200, 2))
    targets = np.exp(points[:, :n_targets] + 5)
    refs = ReferenceSet(points, np.zeros(200, dtype=int), targets=targets)
    ends = np.tile([60.0, 300.0], (1, n_targets, 1))
    names = [name, "weight"][:n_targets]
    return explain_numbers(refs, [[0.1, 0.2]], intervals=ends, names=names, **more)[0]


def votes_for_a_number() -> Any:
    return numbers_explained().plot()


def votes_for_two_numbers() -> Any:
    return numbers_explained(2).plot()


def private_votes_for_a_number() -> Any:
    return numbers_explained(private=True).plot()


def a_reliability_diagram(seed: int = 0, too_sure: float = 0.1) -> Any:
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.5, 1, 400)
    y = (rng.random(400) > p - too_sure).astype(int)
    return report.reliability(y, np.stack([p, 1 - p], axis=1))


def curves_of_sets() -> Any:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    p_values = rng.random((300, 3)) * 0.2
    p_values[np.arange(300), y] = rng.random(300)
    return report.sets(set_curve(y, p_values, np.linspace(0.01, 0.5, 50)))


def histograms_of_typicality() -> Any:
    rng = np.random.default_rng(0)
    return report.typicality(rng.random(500), rng.beta(1, 12, 300))


def a_history() -> Any:
    epochs = np.arange(1, 16)
    frame = pd.DataFrame({"epoch": epochs, "loss": 1 / epochs, "validation_loss": 0.2 + (epochs - 9) ** 2 / 200})
    return report.history(frame.assign(validation_accuracy=0.9 - (epochs - 10) ** 2 / 1000))


def a_map(n_dimensions: int = 2, n_classes: int = 3) -> Any:
    model: Any = Model(n_dimensions, n_classes)
    h = model.references_.embeddings.numpy()[::7] + 0.7
    return report.embedding_map(model, y=model.classes_[np.arange(240)[::7] % n_classes], h=h)


def a_map_of_many() -> Any:
    return a_map(n_dimensions=6, n_classes=25)


PICTURES: list[Callable[[], Any]] = [
    an_image,
    a_text,
    a_table,
    votes_alone,
    votes_for_a_number,
    votes_for_two_numbers,
    private_votes_for_a_number,
    a_reliability_diagram,
    curves_of_sets,
    histograms_of_typicality,
    a_history,
    a_map,
    a_map_of_many,
]


def apart(one: bytes, other: bytes) -> float:
    """How far two pictures differ: root mean square of grey values, of patches of 4×4 pixels, where either has ink."""
    images = [Image.open(io.BytesIO(data)).convert("L") for data in (one, other)]
    if images[0].size != images[1].size:
        return float("inf")
    a, b = (np.asarray(image.reduce(4), dtype=float) for image in images)
    ink = (a < 250) | (b < 250)
    return float(np.sqrt(np.mean((a - b)[ink] ** 2)))


@cache
def drawn(draw: Callable[[], Any]) -> bytes:
    picture: bytes = draw().png(DPI)
    return picture


@pytest.mark.parametrize("draw", PICTURES, ids=lambda draw: draw.__name__)
def test_a_picture_looks_as_it_did(draw: Callable[[], Any]) -> None:
    path = GOLDEN / f"{draw.__name__}.png"
    if os.environ.get("DWAC_WRITE_GOLDEN"):  # then look at them
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(drawn(draw))
    assert apart(drawn(draw), path.read_bytes()) < APART


@pytest.mark.parametrize(
    ("draw", "other"),
    [
        (a_reliability_diagram, lambda: a_reliability_diagram(too_sure=0.3)),
        (a_map, lambda: a_map(n_classes=4)),
        (a_table, lambda: explanation([{"age": 1, "trade": "cook", "size": 2.5}] * 4).plot()),
        (votes_alone, lambda: explanation([None] * 4).plot()),
        (a_text, lambda: explanation([{"text": "other words"}] * 4).plot()),
    ],
)
def test_a_different_picture_looks_different(draw: Callable[[], Any], other: Callable[[], Any]) -> None:
    assert apart(drawn(draw), other().png(DPI)) > 2 * APART


@pytest.mark.slow
@pytest.mark.parametrize("draw", PICTURES, ids=lambda draw: draw.__name__)
def test_a_picture_is_the_same_every_time_and_holds_no_foreign_address(draw: Callable[[], Any]) -> None:
    picture = draw().svg()
    assert picture == draw().svg()
    tree = ElementTree.fromstring(picture)
    for element in tree.iter():
        assert not element.tag.endswith("script")
        for name, value in element.attrib.items():
            assert not name.lower().startswith("on")
            assert "href" not in name or value.startswith(("#", "data:image/png"))


def test_series_differ_without_colour() -> None:
    looks = [style.line(series) for series in range(4)]
    assert len({look["marker"] for look in looks}) == len({look["linestyle"] for look in looks}) == 4
    assert len({tuple(style.point(series).values()) for series in range(56)}) == 56


@pytest.mark.slow
def test_pictures_leave_no_global_state() -> None:
    script = "import sys, dwac.report; from tests.drawing.test_drawing import a_history; a_history().svg(); "
    script += "assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2])


def test_a_picture_shows_itself_in_a_notebook() -> None:
    assert a_history()._repr_png_().startswith(b"\x89PNG")


HOSTILE = ["$\\frac{", "$x$ and $y$", "_hidden", "<script>alert(1)</script>", "a\x00b\ud800", "日本語", "x" * 500, ""]


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_can_be_drawn(name: str) -> None:
    records = [{name: name, "b": 1}, {name: "other", "b": 1}, None, {name: name, "b": 2}]
    for found in (explanation(records), explanation([{"text": name}] * 4), explanation([None] * 4)):
        changed = Explanation(**{**vars(found), "label": name})
        ElementTree.fromstring(changed.plot().svg())
    for found in (numbers_explained(name=name), numbers_explained(2, name)):
        ElementTree.fromstring(found.plot().svg())
    model: Any = Model()
    model.classes_ = np.array([name, "b", "c"], dtype=object)
    ElementTree.fromstring(report.embedding_map(model).svg())


def test_a_long_text_is_cut_where_the_width_ends_after_few_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def wide(text: str, bold: bool = False) -> float:
        measured.append(text)
        return 5.0 * len(text)

    monkeypatch.setattr(neighbors, "text_width", wide)
    assert neighbors.cut("x" * 400, 52) == "x" * 9 + "…"
    assert len(measured) < 15
    assert neighbors.cut("xxxx", 1) == "…"
    assert neighbors.cut("xxxx", 20) == "xxxx"


def test_a_class_whose_name_begins_with_an_underscore_is_in_the_legend() -> None:
    model: Any = Model()
    model.classes_ = np.array(["_a", "b", "c"])
    shown = [text.get_text().strip() for text in report.embedding_map(model).legends[0].get_texts()]
    assert shown == ["_a", "b", "c"]


def test_without_its_extra_a_picture_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dwac.drawing.picture", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with refuses(DwacError, "pip install 'dwac[report]'"):
        votes_alone()


@pytest.mark.parametrize("marker", range(len(MARKERS)))
@pytest.mark.parametrize(
    ("size", "dpi"),
    [(1.5, 50), *(pytest.param(*look, marks=pytest.mark.slow) for look in [(1.5, 160), (7, 80), (16, 50)])],
)
def test_small_points_do_not_vanish(marker: int, size: float, dpi: int) -> None:
    points, names = np.random.default_rng(0).random((60, 2)), list(range(len(MARKERS)))
    figure, axes = style.new(1, 1, 3, 3)
    style.scatter(axes[0, 0], points, np.full(60, marker), names, np.full((len(names), 2), np.nan), s=size)
    axes[0, 0].set_axis_off()
    drawn = np.asarray(Image.open(io.BytesIO(figure.png(dpi))).convert("L"), dtype=float)
    inches = (255 - drawn).sum() / 255 / dpi**2  # of ink
    assert inches > 0.1 * 60 * size / 72**2  # a tenth of what filled, opaque squares would take


def test_the_kind_of_a_record_follows_from_its_content() -> None:
    assert [kind_of(r) for r in ({"image": png(0)}, {"text": "a"}, {"a": 1}, {"text": 1}, {}, None)] == [
        "image",
        "text",
        "table",
        "table",
        "",
        "",
    ]


def test_columns_differ_where_they_look_different() -> None:
    found = compare({"a": 1.00001, "b": None}, [{"a": 1.00002, "b": 2}, {"a": 3}])
    assert [column.differs for column in found] == [(False, True), (True, False)]
    assert [shorten(value) for value in (1234567.0, pd.NA, np.float64("nan"), png(0))] == [
        "1234567.0",
        "–",
        "–",
        "8×8 image",
    ]


def test_no_tick_of_a_picture_of_groups_is_cut_off() -> None:
    part = pd.DataFrame({"group": ["all rows", "Female", "Male"], "rows": [4000, 1323, 2677], "small": False})
    part = part.assign(value=[0.847, 0.921, 0.811], low=[0.83, 0.9055, 0.7952], high=[0.858, 0.935322, 0.825292])
    drawn = draw_groups(part, "accuracy", "sex").svg()
    width = float(re.findall(r'viewBox="0 0 ([\d.]+)', drawn)[0])
    ticks = [float(x) for x in re.findall(r'font-size: 7px[^>]*anchor: middle[^>]* x="([\d.]+)"', drawn)]
    assert len(ticks) > 3
    assert max(ticks) + 2.3 * 7 / 2 < width  # three digits and a point
