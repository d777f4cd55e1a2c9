"""The manifest of an output folder: what was asked, of which data, in which pieces. It is written before any shard.

A run that was stopped finds it, and goes on with the pieces that have no shard yet. A run that asks for something else
is refused. A file that changed is divided anew, unless some of it was scored already.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dwac.errors import InputError
from dwac.reading.places import File, Place
from dwac.scoring.pieces import Piece
from dwac.scoring.request import Request

NAME = "_dwac.json"
_FORMAT, _VERSION = "dwac-scores", 1
_PLACES = ("model", "device")  # of a request: what may differ between runs that give the same answers
_FACTS = ("url", "name", "size", "version")  # of a file
_KEYS = ("start", "stop", "row", "line", "size")  # of a piece: what is not that of its file


@dataclass(frozen=True)
class Manifest:
    """What the shards of a folder are, or will be."""

    asked: dict[str, Any]
    files: list[tuple[File, str]]  # each with its format
    pieces: list[list[Piece]]  # of each file

    def packed(self) -> bytes:
        """As the bytes of a file: the same for the same run."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "asked": self.asked,
            "files": [{**asdict(file), "form": form} for file, form in self.files],
            "pieces": [[[getattr(piece, key) for key in _KEYS] for piece in pieces] for pieces in self.pieces],
        }
        return json.dumps(content, ensure_ascii=False, indent=None, sort_keys=True).encode()


def asked_of(request: Request, encoding: str, *, strict: bool) -> dict[str, Any]:
    """What decides the answers, in plain values: the model by what it holds, not by where it is."""
    kept = {name: value for name, value in asdict(request).items() if name not in _PLACES}
    return {**kept, "quantiles": list(request.quantiles), "encoding": encoding, "strict": strict}


def read(out: Place, shard_of: Any) -> Manifest | None:
    """The manifest in a folder; None if it has none. shard_of: (file, part) → the name of a shard."""
    there = out / NAME
    if not there.exists():
        return None
    try:
        content = json.loads(there.read())
        if (content["format"], content["version"]) != (_FORMAT, _VERSION):
            raise ValueError(f"{content['format']} version {content['version']}")
        files = [(File(**{key: each[key] for key in _FACTS}), each["form"]) for each in content["files"]]
        pieces = [
            [
                Piece(0, shard_of(index, part), file.url, file.name, form, **dict(zip(_KEYS, facts, strict=True)))
                for part, facts in enumerate(parts)
            ]
            for index, ((file, form), parts) in enumerate(zip(files, content["pieces"], strict=True))
        ]
        return Manifest(content["asked"], files, pieces)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{there.url} is damaged ({error!s:.100}); choose a new folder, or use --overwrite") from None


def differences(known: Manifest, asked: dict[str, Any], files: Sequence[tuple[File, str]]) -> list[str]:
    """In what another run differs from the one that a folder holds, in words; nothing if it may go on."""
    names = {"expect": "the model", **{name: f"--{name.replace('_', '-')}" for name in asked if name != "expect"}}
    found = []
    for name in asked:
        before, now = known.asked.get(name), asked[name]
        if before != now:
            found.append(names[name] if name == "expect" else f"{names[name]} was {before!r}, is {now!r}")
    old, new = ({(file.name, form) for file, form in each} for each in (known.files, files))
    for what, few in (("has new files", new - old), ("lacks files", old - new)):
        if few:
            more = f" and {len(few) - 1:,} more" if len(few) > 1 else ""
            found.append(f"the data {what}: {min(few)[0]}{more}")
    return found


def changed(known: Manifest, files: Sequence[tuple[File, str]]) -> list[int]:
    """The files, by place, that are not as they were."""
    facts = {file.name: (file.size, file.version) for file, _ in known.files}
    return [place for place, (file, _) in enumerate(files) if facts.get(file.name) != (file.size, file.version)]


def moved(known: Manifest, files: Sequence[tuple[File, str]]) -> Manifest:
    """The same, with files where they are now."""
    pieces = [
        [replace(piece, file=file.url) for piece in parts] for (file, _), parts in zip(files, known.pieces, strict=True)
    ]
    return replace(known, pieces=pieces)
