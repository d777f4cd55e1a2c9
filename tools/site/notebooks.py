"""Notebooks: run in this process by IPython, and shown in the site as pages of the gallery.

    python tools/site/notebooks.py examples/*.ipynb      # runs them and stores what they print and draw

A page docs/gallery/NAME.md with `<!-- notebook: examples/NAME.ipynb -->` shows that notebook with its stored outputs.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARK = re.compile(r"<!-- notebook: (\S+) -->")
ROOT = Path(__file__).parents[2]
SHOWN = ("text/plain", "text/html", "image/png")
Cell = dict[str, Any]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Fill in a notebook where a page asks for one."""
    del page, config, files
    return MARK.sub(
        lambda found: "\n\n".join(shown(json.loads((ROOT / found[1]).read_text(encoding="utf-8")))), markdown
    )


def shown(notebook: dict[str, Any]) -> Iterator[str]:
    """The cells of a notebook as Markdown: text, code, and what the code showed."""
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        yield f"```python\n{source}\n```"
        for output in cell["outputs"]:
            yield _output(output)


def _output(output: Cell) -> str:
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        picture = "".join(data["image/png"]).strip()
        return f'<img class="picture" alt="what this cell draws" src="data:image/png;base64,{picture}">'
    if "text/html" in data:
        page = re.sub(r"\n\s*\n", "\n", "".join(data["text/html"]))  # a blank line would end the HTML for Markdown
        return f'<div class="output">{page}</div>'
    return '<div class="output" markdown>\n\n```text\n' + "".join(data["text/plain"]).rstrip() + "\n```\n\n</div>"


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of every cell, run one after another. An error in a cell is raised."""
    from IPython.core.interactiveshell import InteractiveShell

    os.environ.setdefault("MPLBACKEND", "agg")
    InteractiveShell.clear_instance()
    shell: Any = InteractiveShell.instance(history_manager=None)
    shell.display_formatter.active_types = list(SHOWN)
    try:
        return {**notebook, "cells": [_ran(cell, shell) for cell in notebook["cells"]]}
    finally:
        InteractiveShell.clear_instance()


def _ran(cell: Cell, shell: Any) -> Cell:
    if cell["cell_type"] != "code":
        return cell
    source = "".join(cell["source"])
    results: list[Any] = []
    shell.display_trap.hook = results.append  # the value of a last line
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        done = shell.run_cell(source)
    done.raise_error()
    outputs = [_stream(printed.getvalue())] if printed.getvalue() else []
    if not source.endswith(";"):
        outputs += [_display(shell.display_formatter.format(value)[0]) for value in results if value is not None]
    outputs += [_display({"image/png": picture}) for picture in _drawn()]
    return {**cell, "outputs": outputs}


def _drawn() -> Iterator[bytes]:
    """The open figures of pyplot, which a notebook shows after a cell and then closes."""
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    for number in pyplot.get_fignums() if pyplot else ():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, format="png", dpi=90)
        pyplot.close(number)
        yield file.getvalue()


def _stream(text: str) -> Cell:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def _display(data: dict[str, Any]) -> Cell:
    coded = {kind: base64.b64encode(x).decode() if isinstance(x, bytes) else x for kind, x in data.items()}
    return {"output_type": "display_data", "metadata": {}, "data": {k: coded[k] for k in SHOWN if k in coded}}


def main(paths: list[str]) -> None:
    """Run notebooks and store their outputs."""
    for path in map(Path, paths):
        notebook = run(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
