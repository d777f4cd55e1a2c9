"""Claim: the explorer draws 600,000 points in under 100 ms per frame, in headless Chromium without a GPU.

The page itself, as `dwac explore` serves it, is panned and zoomed. `draw` is the time of its script per frame, `frame`
the time from one frame to the next, including all other work of the browser. The peer is the usual method, in the same
browser and at the same size: a canvas with a separate arc or rectangle for every point.

    python -m benchmarks.explorer
"""

from __future__ import annotations

import secrets
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

import dwac
from benchmarks import record
from dwac.server.explorer import Explorer, explorer_app
from dwac.server.run import server_of

POINTS, CLASSES, FRAMES, SEED = 600_000, 10, 30, 0
SIZE: Any = {"width": 1400, "height": 900}

# The page is moved before every frame.
OURS = """async ([frames, move]) => {
  const { map } = window.explorer;
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  map.fit(); await frame(); await frame();
  const draws = [], all = [];
  let last = await frame();
  for (let i = 0; i < frames; i++) {
    if (move === "pan") map.pan(i % 2 ? 40 : -40, i % 3 ? 10 : -20);
    else map.zoom(i < frames / 2 ? 1.15 : 1 / 1.15);
    const now = await frame();
    draws.push(Number(map.ground.dataset.ms));
    all.push(now - last);
    last = now;
  }
  return { draws, all };
}"""
PLAIN = """async ([frames, way]) => {
  const { points, start, map } = window.explorer;
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: map.ground.width, height: map.ground.height });
  document.body.append(canvas);
  const context = canvas.getContext("2d");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const draws = [], all = [];
  map.fit();
  let last = await frame();
  for (let i = 0; i < frames; i++) {
    const began = performance.now(), { scale, x, y } = map.view;
    context.clearRect(0, 0, canvas.width, canvas.height);
    for (let p = 0; p < points.n; p++) {
      context.fillStyle = start.colours[points.label[p] % start.colours.length];
      const px = points.xy[2 * p] * scale + x + i, py = y - points.xy[2 * p + 1] * scale;
      if (way === "rectangle") context.fillRect(px, py, 2, 2);
      else { context.beginPath(); context.arc(px, py, 1, 0, 2 * Math.PI); context.fill(); }
    }
    context.getImageData(0, 0, 1, 1);  // until it is really drawn
    draws.push(performance.now() - began);
    const now = await frame();
    all.push(now - last);
    last = now;
  }
  canvas.remove();
  return { draws, all };
}"""


def main() -> None:
    from playwright.sync_api import sync_playwright

    rows: list[dict[str, Any]] = []
    with serving(crowd()) as url, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--disable-gpu"])
        page = chromium.new_page(viewport=SIZE)
        began = time.perf_counter()
        page.goto(url)
        page.wait_for_selector("body[data-ready]", timeout=120_000)
        loaded = time.perf_counter() - began
        for way, script, move, frames in (
            ("the explorer, panned", OURS, "pan", FRAMES),
            ("the explorer, zoomed in and out", OURS, "zoom", FRAMES),
            ("a rectangle a point", PLAIN, "rectangle", 3),
            ("an arc a point", PLAIN, "arc", 2),
        ):
            found = page.evaluate(script, [frames, move])
            rows.append({"way": way, **summary(found)})
            print(rows[-1])
        version = chromium.version
        chromium.close()
    table = pd.DataFrame(rows)
    table["times the explorer's"] = table["draw ms, median"] / table["draw ms, median"].iloc[0]
    config = {"points": POINTS, "classes": CLASSES, **SIZE, "seed": SEED, "chromium": version,
              "seconds until the page is drawn": round(loaded, 2)}  # fmt: skip
    record.write("explorer", (__doc__ or "").split("\n")[0], config, table)


def summary(found: dict[str, list[float]]) -> dict[str, float]:
    draws, frames = np.array(found["draws"]), np.array(found["all"])
    return {
        "draw ms, median": float(np.median(draws)),
        "draw ms, worst": float(draws.max()),
        "frame ms, median": float(np.median(frames)),
        "frame ms, worst": float(frames.max()),
    }


def crowd() -> Explorer:
    """Synthetic training examples in overlapping clusters, like the embeddings of a two-dimensional model."""
    rng = np.random.default_rng(SEED)
    labels = rng.integers(CLASSES, size=POINTS)
    centres = rng.normal(size=(CLASSES, 2)) * 3
    h = (centres[labels] + rng.normal(size=(POINTS, 2))).astype(np.float32)
    X = rng.normal(size=(400, 2))
    small = dwac.Training(embedding_size=2)
    clf = dwac.DWACClassifier(epochs=1, training=small, random_state=SEED, device="cpu", verbose=False)
    clf.fit(pd.DataFrame(X, columns=["a", "b"]), np.arange(400) % CLASSES)
    clf.model_.references = dwac.ReferenceSet(h, labels, n_classes=CLASSES)
    return Explorer.of(clf, most=200, private=False, title="crowd")


@contextmanager
def serving(explorer: Explorer) -> Iterator[str]:
    token = secrets.token_urlsafe(24)
    server = server_of(explorer_app(explorer, token=token))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/#token={token}"
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
