"""Search names pages that show how to do something before those that say why it was decided or what was measured."""

from __future__ import annotations

from typing import Any

FIRST = ("concepts/", "how-to/", "tutorials/", "faq.md", "glossary.md", "start.md")
LAST = ("decisions/", "notes/", "results/", "paper.md")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Say how much a match on this page counts."""
    del config, files
    here = page.file.src_uri
    page.meta["search"] = {"boost": 2.0 if here.startswith(FIRST) else 0.5 if here.startswith(LAST) else 1.0}
    return markdown
