"""The explorer of the gallery: the page that the code of docs/gallery/wines.md writes, run when the site is built."""

from __future__ import annotations

import re
import tempfile
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

PAGE = Path(__file__).parents[2] / "docs" / "gallery" / "wines.md"
NAME = "wines-explorer.html"
MARK = "<!-- explorer: wines -->"
SHOWN = (
    f'<p><a class="md-button md-button--primary" href="{NAME}">Open it in the whole window</a></p>\n'
    f'<iframe class="explorer" src="{NAME}" title="The explorer with 178 wines" loading="lazy"></iframe>'
)


def on_files(files: Any, config: Any) -> Any:
    """Add the page."""
    files.append(File.generated(config, f"gallery/{NAME}", content=written()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Show it where the mark is."""
    del page, config, files
    return markdown.replace(MARK, SHOWN)


@cache
def written() -> str:
    """What the code of the gallery's page writes: it takes half a minute."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        exec(compile(code, str(PAGE), "exec"), {})
        return Path(NAME).read_text("utf-8")
