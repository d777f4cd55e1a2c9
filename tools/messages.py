"""The catalogues of messages: finds all messages in the code, updates LANGUAGE.po, and compiles LANGUAGE.mo.

python -m tools.messages        # after a message changed, or a translation
python -m tools.messages fr     # begins a new language
"""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "src" / "dwac" / "languages"
KEYWORDS = {"message": None, "say": None, "say_of": ((1, "c"), 2), "count": (1, 2)}
METHODS = {".py": ("python", "from dwac.languages import"), ".html": ("jinja2", "say(")}  # how to read files, and which
_WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)  # the same file from the same messages, whenever it is written
MARKS = {"decimal mark": ".", "thousands separator": ","}


def find_messages() -> Catalog:
    """All messages of the package, from its modules and templates."""
    catalog = Catalog(fuzzy=False, creation_date=_WRITTEN)
    for meaning, mark in MARKS.items():
        catalog.add(mark, context=meaning)
    for path in sorted((ROOT / "src" / "dwac").rglob("*")):
        method, sign = METHODS.get(path.suffix, ("", ""))
        if not method or path.parent == FOLDER or sign not in path.read_text(encoding="utf-8"):
            continue
        with path.open("rb") as file:
            for line, text, _, context in extract(method, file, KEYWORDS):
                catalog.add(text, context=context, locations=[(str(path.relative_to(ROOT)), line)])
    return catalog


def read_catalog(language: str) -> Catalog:
    """A catalogue with its translations; empty for a new language."""
    path = FOLDER / f"{language}.po"
    catalog = read_po(io.BytesIO(path.read_bytes() if path.exists() else b""), locale=language)
    catalog.revision_date = _WRITTEN
    catalog.header_comment = f"# The texts of dwac in {catalog.locale.english_name if catalog.locale else language}."
    catalog.project, catalog.version, catalog.fuzzy = "dwac", "1", False
    catalog.last_translator = catalog.language_team = catalog.msgid_bugs_address = "dwac"
    return catalog


def compiled(catalog: Catalog) -> bytes:
    """A catalogue as gettext reads it."""
    file = io.BytesIO()
    write_mo(file, catalog)
    return file.getvalue()


def update(language: str) -> list[str]:
    """Update and compile the catalogue of a language; returns the messages that have no translation yet."""
    catalog = read_catalog(language)
    catalog.update(find_messages(), no_fuzzy_matching=True)
    with (FOLDER / f"{language}.po").open("wb") as file:
        write_po(file, catalog, ignore_obsolete=True, width=110, sort_by_file=True, include_lineno=False)
    (FOLDER / f"{language}.mo").write_bytes(compiled(catalog))
    return [str(each.id) for each in catalog if each.id and not all(forms(each.string))]


def forms(text: Any) -> list[str]:
    """The singular and the plural forms of a message, or the only form."""
    return list(text) if isinstance(text, list | tuple) else [text or ""]


if __name__ == "__main__":
    for name in {*sys.argv[1:], *(path.stem for path in FOLDER.glob("*.po"))}:
        missing = update(name)
        print(f"{name}: {len(missing)} messages without a translation", *missing, sep="\n  ")
