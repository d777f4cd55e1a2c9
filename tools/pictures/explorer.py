"""Draw docs/pictures/explorer.png, explorer-why.png and explorer-split.png: 1280 × 800, light.

python tools/pictures/explorer.py        # needs playwright and Chromium
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright
from sklearn.datasets import load_diabetes, load_digits, load_wine

from dwac import DWACClassifier
from dwac.server.explorer import Explorer, open_page

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
LARGEST = 200_000  # bytes
OPTIONS: dict[str, Any] = {"random_state": 0, "device": "cpu", "verbose": False}


def main() -> None:
    """Train for half a minute, open the pages, and keep what they show."""
    images, labels = load_digits().images, load_digits().target
    clf = DWACClassifier(epochs=8, **OPTIONS).fit(images[:1000], labels[:1000])
    draw("explorer.png", Explorer.of(clf, images[1000:1300], labels[1000:1300], title="digits"), 3, point_at_a_digit)
    wine = load_wine(as_frame=True)
    rows = wine.data.sample(frac=1, random_state=0)
    kinds = wine.target[rows.index].map(dict(enumerate(("Barolo", "Grignolino", "Barbera"))))
    wines = DWACClassifier(**OPTIONS).fit(rows[:140], kinds[:140])
    draw("explorer-why.png", Explorer.of(wines, rows[140:], kinds[140:], title="wines"), 8, change_a_wine)
    patients, progress = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    course = (progress > progress.median()).map({True: "fast", False: "slow"})
    model = DWACClassifier(**OPTIONS).fit(patients[:240], course[:240])
    draw("explorer-split.png", Explorer.of(model, patients[240:], course[240:], title="diabetes"), 5, split_by_age)


def draw(name: str, explorer: Explorer, row: int, act: Callable[[Any], None]) -> None:
    """Select a row of data, do something, and write the picture with few colours."""
    picture, page = PICTURES / name, open_page(explorer, show=False)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--disable-gpu"])
            shown = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
            shown.goto(page.url)
            shown.wait_for_selector("body[data-ready]")
            shown.evaluate(f"window.explorer.choose(window.explorer.start.n_training + {row})")
            act(shown)
            shown.screenshot(path=picture)
            browser.close()
    finally:
        page.stop()
    # Of 256 colours, those that leave no shade far from its own, not the most frequent ones.
    drawn = (
        Image.open(picture)
        .convert("RGB")
        .quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=5, dither=Image.Dither.NONE)
    )
    drawn.save(picture, optimize=True)
    size = picture.stat().st_size
    assert size < LARGEST, f"the picture must have less than {LARGEST:,} bytes; got {size:,}"


def point_at_a_digit(shown: Any) -> None:
    """Hold the pointer over another digit."""
    shown.wait_for_selector("#voters img")
    where = (
        "() => { const { map, points, start: { n_training: i } } = window.explorer; "
        "return map.pixelOf(points.xy[2 * (i + 7)], points.xy[2 * (i + 7) + 1]).map((v) => v / map.ratio); }"
    )
    x, y = shown.evaluate(where)
    box = shown.locator("#marks").bounding_box()
    shown.mouse.move(box["x"] + x, box["y"] + y)
    shown.wait_for_selector("#tip:not([hidden]) img")


def change_a_wine(shown: Any) -> None:
    """Take over the value of the precedent that counts most."""
    shown.wait_for_selector("#why")
    shown.click("#why")
    shown.wait_for_selector("#whatif .versus")
    shown.locator("#whatif button[aria-label^=Take]").first.click()
    shown.wait_for_selector("#what-result table")
    shown.wait_for_timeout(1000)  # the bars follow the vote
    shown.evaluate("document.getElementById('whatif').scrollIntoView()")


def split_by_age(shown: Any) -> None:
    """Divide the patients by age."""
    shown.select_option("#by", label="age")
    shown.wait_for_selector("#split table")
    shown.evaluate("document.getElementById('right').scrollTo(0, 0)")


if __name__ == "__main__":
    main()
