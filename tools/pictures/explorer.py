"""Draw docs/pictures/explorer.png: the explorer on handwritten digits, 1280 × 800, light.

python tools/pictures/explorer.py        # needs playwright and Chromium
"""

from __future__ import annotations

import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from sklearn.datasets import load_digits

from dwac import DWACClassifier
from dwac.server.explorer import Explorer, open_page

PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "explorer.png"
LARGEST = 200_000  # bytes
ROW = 3  # of the new digits: the example that is selected


def main() -> None:
    """Train for half a minute, open the page, and keep what it shows."""
    images, labels = load_digits().images, load_digits().target
    clf = DWACClassifier(epochs=8, random_state=0, device="cpu", verbose=False).fit(images[:1000], labels[:1000])
    page = open_page(Explorer.of(clf, images[1000:1300], labels[1000:1300], title="digits"), show=False)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--disable-gpu"])
            shown = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
            shown.goto(page.url)
            shown.wait_for_selector("body[data-ready]")
            shown.evaluate(f"window.explorer.choose(window.explorer.start.n_training + {ROW})")
            shown.wait_for_selector("#voters img")
            where = (
                "() => { const { map, points, start: { n_training: i } } = window.explorer; "
                "return map.pixelOf(points.xy[2 * (i + 7)], points.xy[2 * (i + 7) + 1]).map((v) => v / map.ratio); }"
            )
            x, y = shown.evaluate(where)
            box = shown.locator("#marks").bounding_box()
            assert box is not None
            shown.mouse.move(box["x"] + x, box["y"] + y)
            shown.wait_for_selector("#tip:not([hidden]) img")
            shown.screenshot(path=PICTURE)
            browser.close()
    finally:
        page.stop()
    # Of 256 colours, those that leave no shade far from its own, not the most frequent ones.
    drawn = (
        Image.open(PICTURE)
        .convert("RGB")
        .quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=5, dither=Image.Dither.NONE)
    )
    drawn.save(PICTURE, optimize=True)
    size = PICTURE.stat().st_size
    assert size < LARGEST, f"the picture must have less than {LARGEST:,} bytes; got {size:,}"


if __name__ == "__main__":
    main()
