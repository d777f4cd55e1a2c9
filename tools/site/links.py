"""Links from pages to files outside docs/ lead to copies in the site, as plain text that any browser shows.

In the repository such a link opens the file itself, so `[kernels.py](../src/dwac/kernels.py)` works in both places,
and the site needs neither a network nor the address of a repository.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

LINK = re.compile(r"(?<=\]\()(?P<path>(?:\.\./)+[^)#:\s]+)(?P<anchor>#[^)\s]*)?(?=\))")


def on_files(files: Any, config: Any) -> Any:
    """Add a copy of every file outside docs/ to which a page links."""
    docs = Path(config["docs_dir"])
    for page in sorted(docs.rglob("*.md")):
        for found in LINK.finditer(page.read_text(encoding="utf-8")):
            source = outside(page, found["path"], docs)
            if source and source.is_file() and files.get_file_from_path(copied(source, docs)) is None:
                files.append(File.generated(config, copied(source, docs), content=source.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point such links to the copies."""
    docs = Path(config["docs_dir"])
    here = docs / page.file.src_uri

    def pointed(found: re.Match[str]) -> str:
        source = outside(here, found["path"], docs)
        if source is None or files.get_file_from_path(copied(source, docs)) is None:
            return found[0]
        return os.path.relpath(docs / copied(source, docs), here.parent)

    return LINK.sub(pointed, markdown)


def outside(page: Path, link: str, docs: Path) -> Path | None:
    """The file that a link from a page means, if it is not one of the documents."""
    source = Path(os.path.normpath(page.parent / link))
    return None if source.is_relative_to(docs) else source


def copied(source: Path, docs: Path) -> str:
    """Where the copy of a file is, below docs/."""
    return f"source/{source.relative_to(docs.parent).as_posix()}.txt"
