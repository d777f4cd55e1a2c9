"""Record docs/pictures/recording.cast and recording.svg: commands that are run, and what they print, in 60 seconds.

python tools/pictures/recording.py       # `asciinema play docs/pictures/recording.cast` plays it in a terminal
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from html import escape
from pathlib import Path
from typing import NamedTuple

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
WIDTH, HEIGHT = 92, 27  # characters
SECONDS = 60.0
STILL = 2  # the scene that people see who want no motion
TYPING, ANSWER = 1.6, 0.6  # seconds for a command to be typed, and until the whole output is there
PREPARE = """
from sklearn.datasets import load_wine
wine = load_wine(as_frame=True).frame.sample(frac=1, random_state=0)
wine["target"] = wine["target"].map(dict(enumerate(("Barolo", "Grignolino", "Barbera"))))
wine[:140].to_csv("wine.csv", index=False)
wine[140:].to_csv("new.csv", index=False)
"""


class Scene(NamedTuple):
    """A screen: what a comment says, a command, and its output."""

    comment: str
    command: str
    seconds: float
    lines: tuple[str, ...] = ()


SCENES = (
    Scene("140 wines, 13 measurements, three kinds", "dwac train wine.csv --target target -o model/", 12),
    Scene(
        "38 other wines: probability, typicality, and a set that misses 5 % of the time",
        "dwac predict model/ new.csv | cut -d, -f1-3,6-8 | head -n 8",
        11,
    ),
    Scene("Why? Because of which training examples?", "dwac explain model/ new.csv --row 3 | head -n 24", 17),
    Scene("How good is it?", "dwac evaluate model/ new.csv | head -n 13", 12),
    Scene("A page to click through, in one file", "dwac explore model/ new.csv -o page.html --most 38", 8),
)


def main() -> None:
    """Run the commands in an empty folder, and write both files."""
    assert sum(scene.seconds for scene in SCENES) == SECONDS
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["python", "-c", PREPARE], cwd=folder, check=True)
        scenes = [scene._replace(lines=run(scene.command, folder)) for scene in SCENES]
    (PICTURES / "recording.cast").write_text(cast(scenes), encoding="utf-8")
    (PICTURES / "recording.svg").write_text(svg(scenes), encoding="utf-8")


def run(command: str, folder: str) -> tuple[str, ...]:
    """The lines that a command prints, cut where a terminal would break them."""
    environment = {**os.environ, "COLUMNS": str(WIDTH), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, check=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    lines = [line.rstrip() for line in done.stdout.rstrip().splitlines()]
    parts = (line[start : start + WIDTH] for line in lines for start in range(0, max(1, len(line)), WIDTH))
    kept = tuple(parts)
    assert len(kept) <= HEIGHT - 2, f"{command}: {len(kept)} lines, and {HEIGHT - 2} fit"
    return kept


def cast(scenes: list[Scene]) -> str:
    """The recording in the format of asciinema, version 2."""
    events: list[tuple[float, str, str]] = []
    begin = 0.0
    for scene in scenes:
        events.append((begin, "o", f"\x1b[2J\x1b[H\x1b[2m# {scene.comment}\x1b[0m\r\n$ "))
        step = TYPING / len(scene.command)
        events += [(begin + step * i, "o", letter) for i, letter in enumerate(scene.command, 1)]
        after, pause = begin + TYPING + 0.3, ANSWER / max(1, len(scene.lines))
        events += [(after + pause * i, "o", f"\r\n{line}") for i, line in enumerate(scene.lines)]
        begin += scene.seconds
    events.append((SECONDS, "o", "\r\n"))
    head = {"version": 2, "width": WIDTH, "height": HEIGHT, "title": "dwac: train, predict, explain, evaluate, explore"}
    lines = [
        json.dumps(head),
        *(json.dumps([round(at, 3), kind, text], ensure_ascii=False) for at, kind, text in events),
    ]
    return "\n".join(lines) + "\n"


def svg(scenes: list[Scene]) -> str:
    """The same screens, one after another, for a page in light or dark."""
    wide, high, pad = 8.4, 19.0, 16.0
    width, height = round(WIDTH * wide + 2 * pad), round(HEIGHT * high + 2 * pad)
    rules, groups, begin = [], [], 0.0
    for i, scene in enumerate(scenes):
        for name, start in ((f"c{i}", begin), (f"o{i}", begin + TYPING)):
            a, b = 100 * start / SECONDS, 100 * (begin + scene.seconds) / SECONDS
            hidden = "0%{opacity:0}" if a else ""
            rules.append(f"@keyframes {name}{{{hidden}{a:.3f}%{{opacity:1}}{b:.3f}%,100%{{opacity:0}}}}")
            rules.append(f".{name}{{animation:{name} {SECONDS:g}s step-end infinite}}")
        texts = [f"# {scene.comment}", f"$ {scene.command}", *scene.lines]
        drawn = [
            f'<text class="{("note", "command")[row] if row < 2 else "out"}" x="{pad:g}"'
            f' y="{pad + high * (row + 0.8):.0f}" textLength="{len(text) * wide:.0f}">{escape(text)}</text>'
            for row, text in enumerate(texts)
            if text.strip()
        ]
        groups.append(f'<g class="c{i}">{"".join(drawn[:2])}</g><g class="o{i}">{"".join(drawn[2:])}</g>')
        begin += scene.seconds
    still = f".c{STILL},.o{STILL}{{opacity:1}}"
    style = (
        "text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;fill:#1f2328}"
        "rect{fill:#f6f8fa;stroke:#d0d7de}.note{fill:#57606a}.command{font-weight:700;fill:#0b6e4f}g{opacity:0}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#161b22;stroke:#30363d}.note{fill:#9da7b3}"
        ".command{fill:#56d4a4}}"
        + "".join(rules)
        + f"@media(prefers-reduced-motion:reduce){{g{{animation:none!important}}{still}}}"
    )
    title = "A terminal: " + "; ".join(scene.command for scene in scenes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><title>{escape(title)}</title><style>{style}</style>'
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>{"".join(groups)}</svg>\n'
    )


if __name__ == "__main__":
    main()
