"""The manifest of an output folder: the request, the data and its pieces. It is written before any shard.

An interrupted run finds it, and continues with the pieces that have no shard yet. A run with a different request is
refused. A file that changed is divided again, unless part of it was scored already.
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
_PLACES = ("model", "device", "record")  # fields of a request that may differ between runs with the same answers
_FACTS = ("url", "name", "size", "version")  # of a file
_KEYS = ("start", "stop", "row", "line", "size")  # fields of a piece that differ from those of its file


@dataclass(frozen=True)
class Manifest:
    """A description of the shards in a folder, written or to come."""

    request: dict[str, Any]  # everything that determines the answers
    files: list[tuple[File, str]]  # each with its format
    pieces: list[list[Piece]]  # of each file

    def pack(self) -> bytes:
        """The manifest as the bytes of a file: the same for the same run."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "asked": self.request,
            "files": [{**asdict(file), "form": form} for file, form in self.files],
            "pieces": [[[getattr(piece, key) for key in _KEYS] for piece in pieces] for pieces in self.pieces],
        }
        return json.dumps(content, ensure_ascii=False, indent=None, sort_keys=True).encode()


def request_facts(request: Request, encoding: str, *, strict: bool) -> dict[str, Any]:
    """Everything that determines the answers, in plain values: the model by its contents, not by its path."""
    facts = {name: value for name, value in asdict(request).items() if name not in _PLACES}
    return {**facts, "quantiles": list(request.quantiles), "encoding": encoding, "strict": strict}


def read(out: Place, shard_of: Any) -> Manifest | None:
    """The manifest in a folder; None if there is none. shard_of: (file, part) → the name of a shard."""
    file = out / NAME
    if not file.exists():
        return None
    try:
        content = json.loads(file.read())
        if (content["format"], content["version"]) != (_FORMAT, _VERSION):
            raise ValueError(f"{content['format']} version {content['version']}")
        files = [(File(**{key: each[key] for key in _FACTS}), each["form"]) for each in content["files"]]
        pieces = [
            [
                Piece(0, shard_of(index, part), data.url, data.name, form, **dict(zip(_KEYS, facts, strict=True)))
                for part, facts in enumerate(parts)
            ]
            for index, ((data, form), parts) in enumerate(zip(files, content["pieces"], strict=True))
        ]
        return Manifest(content["asked"], files, pieces)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file.url} is damaged ({error!s:.100}); choose a new folder, or use --overwrite") from None


def differences_of(known: Manifest, request: dict[str, Any], files: Sequence[tuple[File, str]]) -> list[str]:
    """How a run differs from the one in the folder, in words; nothing if it may continue."""
    differences = []
    for name, now in request.items():
        before = known.request.get(name)
        if before != now:
            option = f"--{name.replace('_', '-')}"
            differences.append("the model" if name == "expect" else f"{option} was {before!r}, is {now!r}")
    old, new = ({(file.name, form) for file, form in each} for each in (known.files, files))
    for what, few in (("has new files", new - old), ("lacks files", old - new)):
        if few:
            others = f" and {len(few) - 1:,} more" if len(few) > 1 else ""
            differences.append(f"the data {what}: {min(few)[0]}{others}")
    return differences


def changed_files(known: Manifest, files: Sequence[tuple[File, str]]) -> list[int]:
    """The positions of the files that changed."""
    facts = {file.name: (file.size, file.version) for file, _ in known.files}
    return [place for place, (file, _) in enumerate(files) if facts.get(file.name) != (file.size, file.version)]


def with_locations(known: Manifest, files: Sequence[tuple[File, str]]) -> Manifest:
    """The same manifest, with the current locations of the files."""
    pieces = [
        [replace(piece, file=file.url) for piece in parts] for (file, _), parts in zip(files, known.pieces, strict=True)
    ]
    return replace(known, pieces=pieces)
