"""The report as people meet it: a first page without jargon, standard measures, and a page that fits phone and paper.

The pages are tested in Chromium, as the explorer is; with CI set it must be there.
"""

import base64
import os
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics as sk

from dwac import DWACClassifier, DWACRegressor, metrics, report
from dwac.report import measures, summary
from dwac.report.findings import ClassFindings, LabelFindings, NumberFindings
from dwac.report.grouped import every_group, strangest
from dwac.report.measures import likely_share, percent, scores
from dwac.report.plots import bars_across, bars_by_confidence, hundred, share_bar
from dwac.report.summary import class_summary, label_summary, number_summary
from tests.named import named
from tests.report.helpers import Reader, check_safe, facts

pytestmark = [
    pytest.mark.slow,  # five models, and a report on each
    pytest.mark.filterwarnings("ignore:.*have no label at all:UserWarning"),
]

KINDS = ("table", "image", "text", "number", "labels")
JARGON = (
    r"calibrat|coverage|conformal|typicality|credib|epsilon|ε|auc\b|roc\b|f1\b|recall|precision|quantile|embedding|"
    r"p-value|confidence|interval|macro|micro|hamming|rmse|mae\b|distribution|probabilit|variance|kernel|set size"
)


def rows(n: int, seed: int) -> tuple[pd.DataFrame, Any]:
    """Rows of three classes, of which "hard" cannot be told from "usual"."""
    rng = np.random.default_rng(seed)
    y = rng.choice(["usual", "hard", "other"], n, p=[0.6, 0.15, 0.25])
    frame = pd.DataFrame({"x": rng.normal(size=n) + 5 * (y == "other"), "z": rng.normal(size=n)})
    frame.index = [f"row{seed}-{i}" for i in range(n)]
    return frame, y


def drawn_digits(n: int, seed: int) -> tuple[Any, Any]:
    """Noisy pictures, as large as photos are shown, of which one half is bright."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    noise = rng.integers(120, size=(n, 32, 32, 3))
    noise[:, :16] += 130 * y[:, None, None, None]
    return noise.astype(np.uint8), np.where(y, "bright top", "dark top")


def sentences(n: int, seed: int) -> tuple[list[str], Any]:
    rng = np.random.default_rng(seed)
    y = rng.choice(["sport", "food"], n)
    own = {"sport": ["goal", "team", "match"], "food": ["bread", "salt", "oven"]}
    return [" ".join([*rng.choice(own[k], 3), f"number {i}"]) for i, k in enumerate(y)], y


def several(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"large": (frame["x"] > 2) * 1, "high": (frame["z"] > 0.5) * 1})


def asked(kind: str, seed: int) -> tuple[Any, Any]:
    """Examples of a kind, and what is true of them."""
    if kind == "image":
        return drawn_digits(120, seed)
    if kind == "text":
        return sentences(120, seed)
    X, y = rows(300 if seed == 0 else 160, seed)
    return X, {"table": y, "number": (100 + 20 * X["x"] + X["z"]).to_numpy(), "labels": several(X)}[kind]


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    made: dict[str, Any] = {
        kind: DWACRegressor(epochs=4, random_state=0, device="cpu") if kind == "number"
        else DWACClassifier("image:paper" if kind == "image" else "auto", epochs=3, random_state=0, device="cpu")
        for kind in KINDS
    }  # fmt: skip
    return {kind: model.fit(*asked(kind, 0)) for kind, model in made.items()}


@pytest.fixture(scope="module")
def pages(models: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {
        kind: report.write(model, *asked(kind, 1), folder / f"{kind}.html", title=f"On {kind}", epsilon=0.1, cases=2,
                           ids=range(5000, 5000 + len(asked(kind, 1)[1])), k=3)
        for kind, model in models.items()
    }  # fmt: skip


@pytest.fixture(scope="module")
def found(models: dict[str, Any]) -> ClassFindings:
    return ClassFindings.of(models["table"], *asked("table", 1), epsilon=0.1)


# The first page


def first(page: str) -> str:
    """The first section."""
    return page.partition('<section id="summary">')[2].partition("</section>")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_page_has_five_sentences_three_pictures_and_no_jargon(pages: dict[str, Path], kind: str) -> None:
    page = pages[kind].read_text()
    check_safe(page)
    shown = Reader(first(page))
    heads = re.findall(r"<dt>(.*?)</dt>", first(page))
    said_of_each = re.findall(r"<dd>(.*?)</dd>", first(page))
    assert heads == list(summary.HEADS)
    for sentence in said_of_each:
        assert sentence.endswith(".")
        assert not re.search(r"[.!?] ", sentence), sentence
        assert "nan" not in sentence
    assert len(shown.all("img")) == 3
    assert not re.search(JARGON, shown.words, flags=re.IGNORECASE)
    drawn = "".join(str(a["alt"]) for a in shown.all("img"))
    assert not re.search(JARGON, drawn, flags=re.IGNORECASE)


def test_the_first_page_on_classes_says_what_is_measured(models: dict[str, Any], found: Any) -> None:
    clf, (X, y) = models["table"], asked("table", 1)
    told = class_summary(found).sentences
    right = clf.predict(X) == y
    low, high = likely_share(right)
    shares = (f"{100 * share:.0f}" for share in (clf.score(X, y), low, high))
    assert named(told[1], "160 tests", *shares)
    assert named(told[0], f"{len(clf.references_)} examples")
    sure = clf.predict_proba(X).max(axis=1) >= 0.9
    assert named(told[2], f"{summary.frequency(sure)} cases", f"{summary.frequency(right[sure])} times")
    sets = clf.predict_set(X, epsilon=0.1)
    codes = np.searchsorted(clf.classes_, y)
    alone = measures.of_100(float((sets.sum(axis=1) == 1).mean()))
    assert named(told[3], alone, "several", "none", measures.of_100(metrics.coverage(codes, sets)))
    clear = ClassFindings.of(clf, *(part[sets.sum(axis=1) == 1] for part in (X, y)), epsilon=0.1)
    assert named(class_summary(clear).sentences[3], "every case")
    assert not named(class_summary(clear).sentences[3], "several")
    assert named(told[4], "weakest for hard", f"{100 * right[y == 'hard'].mean():.0f} right")


def test_labels_in_an_order_have_their_distances_and_one_test_is_one(tmp_path: Path, undrawn: None) -> None:
    X, y = rows(150, 0)
    order = pd.Categorical(y, ["usual", "hard", "other"], ordered=True)
    clf = DWACClassifier(epochs=1, random_state=0, device="cpu").fit(X, pd.Series(order, index=X.index))
    first, label = (part[:1] for part in rows(5, 1))
    few = ClassFindings.of(clf, first, label)
    assert named(class_summary(few).sentences[1], "1 test")
    assert named(class_summary(few).sentences[4], "no class")
    page = report.write(clf, first, label, tmp_path / "page.html").read_text()
    assert {"Mean distance", "Ranked probability score"} <= facts(page).keys()


def test_a_model_no_better_than_guessing_is_said_to_be_so(models: dict[str, Any]) -> None:
    X, y = asked("table", 1)
    shuffled = np.random.default_rng(0).permutation(y)
    told = class_summary(ClassFindings.of(models["table"], X, shuffled)).sentences
    assert named(told[1], "no better", "usual")
    assert named(told[2], "nothing") or named(told[2], "rough guide")


def test_unfamiliar_cases_are_named_where_there_are_some(models: dict[str, Any]) -> None:
    X, y = asked("table", 1)
    X = X.assign(x=np.where(np.arange(160) < 40, 500.0, X["x"]))
    odd = ClassFindings.of(models["table"], X, y)
    assert odd.strange[:40].all()
    told = class_summary(odd).sentences[4]
    known = f"{summary.frequency(odd.right[odd.strange])} of these right"
    assert named(told, f"{100 * odd.strange.mean():.0f} of 100 cases", "unlike", known)


def test_the_first_page_on_numbers_says_what_is_measured(models: dict[str, Any]) -> None:
    X, y = asked("number", 1)
    told = number_summary(NumberFindings.of(models["number"], X, y, epsilon=0.1)).sentences
    off = np.abs(models["number"].predict(X) - y)
    assert named(told[1], f"{np.median(off):.4g}", "9 of 10", f"{np.quantile(off, 0.9):.4g}")
    ends = models["number"].predict_interval(X, 0.1)
    assert named(told[2], "90 of 100", measures.of_100(metrics.interval_coverage(y, ends)))
    assert named(told[3], f"{np.median(ends[:, 1] - ends[:, 0]):.4g} wide")


def test_the_first_page_on_labels_says_what_is_measured(models: dict[str, Any]) -> None:
    X, Y = asked("labels", 1)
    of = LabelFindings.of(models["labels"], X, Y, epsilon=0.1)
    told = label_summary(of).sentences
    right = models["labels"].predict(X) == Y.to_numpy()
    assert named(told[1], f"{100 * right.all(axis=1).mean():.0f}", f"{100 * right.mean():.0f}", "single labels")
    assert of.result.undecided is not None
    assert named(told[3], f"{measures.of_100(1 - of.result.undecided)} labels")


def test_several_numbers_have_a_first_page_too() -> None:
    X, y = asked("number", 0)
    both = DWACRegressor(epochs=1, random_state=0, device="cpu").fit(X[:120], np.stack([y, X["z"]], axis=1)[:120])
    X, y = asked("number", 1)
    found = NumberFindings.of(both, X, np.stack([y, X["z"]], axis=1), epsilon=0.2)
    told = number_summary(found).sentences
    assert "2 numbers" in told[0]
    assert named(told[1], "times", "guess")
    assert found.result.coverage_range is None  # the intervals of a row depend on each other
    assert found.chance(0.2) is None
    assert not any("chance" in sentence for sentence in told)


def test_bars_that_are_left_out_are_counted(
    models: dict[str, Any], pages: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert named(pages["table"].read_text(), "weakest first.")
    monkeypatch.setattr(summary, "MOST_BARS", 1)
    of_classes = class_summary(ClassFindings.of(models["table"], *asked("table", 1)))
    assert named(of_classes.pictures[2].caption, "weakest first", "(1 of 3 classes)")
    of = LabelFindings.of(models["labels"], *asked("labels", 1))
    assert named(label_summary(of).pictures[2].caption, "(1 of 2 labels)")


def test_the_page_says_once_how_to_read_its_map(pages: dict[str, Path]) -> None:
    page = pages["table"].read_text()
    drawn = [base64.b64decode(code).decode() for code in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page)]
    assert sum(text.count("mean little") for text in (page, *drawn)) == 1


# Pictures


def test_a_hundred_squares_are_filled_for_those_that_are_right() -> None:
    squares = hundred(0.934).axes[0].patches
    assert len(squares) == 100
    assert sum(square.get_hatch() is None for square in squares) == 93


def test_bars_show_how_often_it_was_right_and_what_it_said() -> None:
    stated = np.array([0.55, 0.55, 0.95, 0.95, 1.0, 0.3])
    panel = bars_by_confidence(stated, [True, False, True, True, False, False]).axes[0]
    assert [bar.get_height() for bar in panel.patches] == pytest.approx([0, 50, 100 * 2 / 3])
    asked_for = [
        line.get_ydata()[0] for line in panel.lines if len(line.get_xdata()) == 2 and line.get_linewidth() == 2
    ]
    assert asked_for == pytest.approx([30, 55, 100 * (0.95 + 0.95 + 1) / 3])


def test_a_bar_is_bad_if_chance_does_not_explain_it() -> None:
    assert share_bar("x", [True] * 5 + [False] * 45, 0.5).bad
    assert not share_bar("x", [True] * 2 + [False] * 3, 0.5).bad
    bars = [share_bar("x", [True] * 5 + [False] * 45, 0.5), share_bar("y", [True] * 30 + [False] * 20, 0.5)]
    panel = bars_across(bars, "of 100", 0.5).axes[0]
    assert [patch.get_hatch() is not None for patch in panel.patches] == [True, False]
    panel.figure.canvas.draw()
    for text in panel.texts:  # beside the bars and their margins, not on them
        assert text.get_window_extent().x0 > panel.bbox.x1


# Quality and trust


def test_scores_are_those_of_scikit_learn_on_the_page(models: dict[str, Any], pages: dict[str, Path]) -> None:
    clf, (X, y) = models["table"], asked("table", 1)
    text, p, told = Reader(pages["table"].read_text()).words, clf.predict_proba(X), clf.predict(X)
    auc = sk.roc_auc_score(y, p, multi_class="ovr", labels=clf.classes_)
    macro = sk.precision_recall_fscore_support(y, told, average="macro", zero_division=np.nan)[:3]
    assert "macro average 160 " + " ".join(f"{value:.3f}" for value in (*macro, auc)) in text
    assert f"ROC AUC {auc:.3f}" in text
    for code, label in enumerate(clf.classes_):
        one = sk.precision_recall_fscore_support(y, told, labels=[label], zero_division=np.nan)
        row = [f"{value[0]:.3f}".replace("nan", "–") for value in one[:3]]
        row.append(f"{sk.roc_auc_score(y == label, p[:, code]):.3f}")
        assert f"{label} {(y == label).sum()} {' '.join(row)}" in text
        counts = sk.confusion_matrix(y, told, labels=clf.classes_)[code]
        assert f"{label} {' '.join(map(str, counts))} " in text


def test_scores_of_labels_that_nobody_or_everybody_has_are_undefined() -> None:
    found = scores([[1, 0], [1, 0], [1, 0]], [[1, 0], [0, 0], [1, 0]], np.full((3, 2), 0.5))
    assert np.isnan(found.each["roc_auc"]).all()
    assert np.isnan(found.macro["roc_auc"])
    assert np.isnan(found.each["recall"][1])
    assert found.each["recall"][0] == pytest.approx(2 / 3)


def test_coverage_of_each_class_has_its_interval(models: dict[str, Any], pages: dict[str, Path]) -> None:
    clf, (X, y) = models["table"], asked("table", 1)
    text, sets = Reader(pages["table"].read_text()).words, clf.predict_set(X, epsilon=0.1)
    for code, label in enumerate(clf.classes_):
        hits = sets[y == label, code]
        low, high = likely_share(hits)
        row = f"{label} {len(hits)} {percent(hits.mean())} {percent(low)} to {percent(high)}"
        assert row.replace("\u00a0", " ") in text


def test_test_examples_rely_on_the_heaviest_group_of_their_label(models: dict[str, Any], found: Any) -> None:
    groups = every_group(models["table"], found.h, found.predictions.codes)
    assert sorted(row for group in groups for row in group.rows) == list(range(160))
    place = {row: group for group in groups for row in group.rows}
    for row, explained in enumerate(models["table"].explain(asked("table", 1)[0][:12])):
        mine = [group for group in explained.groups if group.label == explained.label]
        assert place[row].size == max(mine, key=lambda group: group.share).size
    odd = ~found.right
    worst = strangest(groups, odd, 3)
    assert all(odd[group.rows].any() for group in worst)
    least = [likely_share(odd[group.rows])[0] for group in worst]
    assert all(a >= b for a, b in pairwise(least))


# In a browser


@pytest.fixture(scope="module")
def sheet() -> Iterator[Any]:
    """An empty page of a browser."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        path = None
    if path is None:
        why = "the report is tested with Chromium and playwright: apt-get install chromium; pip install playwright"
        if os.environ.get("CI"):
            pytest.fail(f"in continuous integration this may not be skipped; {why}")
        pytest.skip(why)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--disable-gpu"])
        page = chromium.new_page()
        page.set_default_timeout(600_000)  # only what hangs fails
        yield page
        chromium.close()


MEASURED = """() => ({
  cases: [...document.querySelectorAll('details article')].filter(e => e.checkVisibility()).length,
  wide: document.documentElement.scrollWidth,
  out: [...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1
    && !e.closest('.wide')).map(e => e.outerHTML.slice(0, 80)),
  scale: [...document.querySelectorAll('.chart img')].map(e => e.clientWidth / +e.getAttribute('width')),
})"""
OPEN = "document.querySelectorAll('details').forEach(e => { e.open = true; })"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_a_phone_and_a_desk(sheet: Any, pages: dict[str, Path], kind: str, width: int) -> None:
    sheet.set_viewport_size({"width": width, "height": 844})
    sheet.goto(pages[kind].as_uri())
    assert sheet.evaluate(MEASURED)["cases"] == 0  # folded
    sheet.evaluate(OPEN)
    measured = sheet.evaluate(MEASURED)
    assert measured["cases"] >= 4
    assert measured["wide"] == width  # the page never moves sideways
    assert measured["out"] == []
    assert len(measured["scale"]) >= 6
    assert min(measured["scale"]) > (0.7 if width == 390 else 0.85)  # letters of 8 points stay legible
    assert max(measured["scale"]) <= 1.01


@pytest.mark.parametrize("kind", ["table", "number"])
def test_an_interval_in_a_table_breaks_nowhere(models: dict[str, Any], tmp_path: Path, kind: str) -> None:
    page = report.write(models[kind], *asked(kind, 1), tmp_path / "page.html", by="x", cases=0).read_text("utf-8")
    cells = re.findall(r'<td class="number"[^>]*>(.*?)</td>', page, re.S)
    assert sum("\u00a0to\u00a0" in cell for cell in cells) > 5
    assert [cell for cell in cells if re.search(r"\d(\u00a0%)? to \d", cell)] == []


PRINTED = """() => [...document.querySelectorAll('figure, .case')].map(e => e.getBoundingClientRect().height)"""


@pytest.mark.parametrize("kind", ["image", "number"])
def test_the_report_prints_with_its_summary_on_one_page_and_nothing_folded(
    sheet: Any, pages: dict[str, Path], kind: str
) -> None:
    pdfium = pytest.importorskip("pypdfium2") if not os.environ.get("CI") else __import__("pypdfium2")
    sheet.set_viewport_size({"width": 688, "height": 1017})  # A4 less its margins, in pixels of 1/96 inch
    sheet.goto(pages[kind].as_uri())
    content = sheet.pdf(format="A4", prefer_css_page_size=True)
    sheet.emulate_media(media="print")
    assert sheet.evaluate("document.documentElement.scrollWidth") <= 688
    assert max(sheet.evaluate(PRINTED)) < 1017  # no figure or case is longer than a page, where it would be cut
    sheet.emulate_media(media="null")
    printed = pdfium.PdfDocument(content)
    texts = [re.sub(r"\s+", " ", each.get_textpage().get_text_range()) for each in printed]
    assert 4 <= len(texts) <= 24
    assert all(head in texts[0] for head in (f"On {kind}", *summary.HEADS))
    assert "Quality:" not in texts[0]  # the first page is one page
    assert texts[1].strip().startswith("Quality:")
    everything = " ".join(texts)
    chosen = re.findall(r"<h4>(Example \d+: predicted )", pages[kind].read_text())
    assert len(chosen) >= 4
    assert all(each.strip() in everything for each in chosen)  # what is folded on a screen is open on paper
    assert "What to keep in mind" in texts[-1]
    assert all(len(text) > 20 for text in texts)  # no empty page


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_small_enough_to_mail(pages: dict[str, Path], kind: str) -> None:
    assert pages[kind].stat().st_size < 3e6
