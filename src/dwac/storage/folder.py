"""One folder per model: its configuration, its numbers, and the examples it may show.

    model.json                          format, version, config and its SHA-256; name, size and SHA-256 of the others
    weights-<sha256>.safetensors        every tensor
    examples-<sha256>.parquet           training records, if kept
    rows-<sha256>.parquet               all rows of fit, for a model that may retrain networks

The other files are named after their content, so new ones never overwrite old ones. `model.json` is replaced last and
in one step: at every moment the folder holds a complete model, old or new. Only then are old files removed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd
from torch import Tensor

from dwac.errors import InputError, StorageError
from dwac.storage.files import (
    TEMPORARY,
    digest_of,
    locked,
    make_folder,
    read_file,
    remove_files,
    replace_file,
    sync_folder,
)
from dwac.storage.hub import local_folder
from dwac.storage.parquet import MOST_BYTES, pack_examples, unpack_examples
from dwac.storage.tensors import FileRows, pack_tensors, read_tensors, tensor_rows, unpack_tensors
from dwac.storage.values import json_text

FORMAT = "dwac-model"
VERSION = 1  # the version that is written; all versions up to it can be read
MANIFEST = "model.json"
COLUMNS = "columns.json"  # how commands read data for the model; the model itself does not need it
_LARGEST_MANIFEST = 2**28  # 256 MiB
_MOST_UNPACKED = 100  # bytes of records in memory per byte of the folder's files
_ENDINGS = {"weights": "safetensors", "examples": "parquet", "rows": "parquet"}
_OURS = re.compile(
    rf"(weights-[0-9a-f]{{16}}\.safetensors|(examples|rows)-[0-9a-f]{{16}}\.parquet|{TEMPORARY.pattern})"
)
_LARGEST_COLUMNS = 2**24
_MARK = "fingerprint"  # the key of a manifest's own fingerprint, once it was read
_FINGERPRINT = 32  # hexadecimal digits, 128 bits
_REPAIR = "restore the folder from a copy, or save the model again"


class _Contents(NamedTuple):
    """The contents that can be written again unchanged."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    examples: pd.DataFrame | None
    all_rows: pd.DataFrame | None = None


class Stored(_Contents):
    """The contents of a model folder: plain values, tensors on the CPU, and the examples if kept."""

    rows: Mapping[str, FileRows] = MappingProxyType({})  # tensors that stay in their file, by name
    fingerprint: str = ""


def write_model(
    path: str | os.PathLike[str],
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    examples: pd.DataFrame | None = None,
    all_rows: pd.DataFrame | None = None,
    *,
    overwrite: bool = True,
) -> Path:
    """Write a model folder, replacing any model in it if overwrite, and return its path.

    Whatever interrupts it (an error, a full disk, Ctrl-C, kill -9), the folder holds the old model or the new one.
    Other files in it are left alone.

    Args:
        path: a folder to create, an empty one, or one with a dwac model; parents are created.
        config: JSON values: None, bool, int, finite float, str, list, dict with string keys.
        tensors: dense tensors on any device; shared memory is written once per name.
        examples: training records with ids as their index; None to keep none.
        all_rows: every row of fit, in the same form.
    """
    folder = Path(path)
    parts = {"weights": pack_tensors(tensors)}
    if examples is not None:
        parts["examples"] = pack_examples(examples)
    if all_rows is not None:
        parts["rows"] = pack_examples(all_rows)
    digests = {part: hashlib.sha256(data).hexdigest() for part, data in parts.items()}
    names = {part: f"{part}-{digest[:16]}.{_ENDINGS[part]}" for part, digest in digests.items()}
    files = {part: {"name": names[part], "size": len(parts[part]), "sha256": digests[part]} for part in parts}
    manifest = _manifest(config, files)
    try:
        make_folder(folder)
        with locked(folder):
            _refuse_occupied(folder, overwrite=overwrite)
            try:
                for part, data in parts.items():
                    replace_file(folder / names[part], data)
                sync_folder(folder)  # the files must exist before the model.json that names them
                replace_file(folder / MANIFEST, manifest)
            finally:
                _tidy(folder)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"could not write a model to {folder}: {error}; any earlier model is unharmed") from error
    return folder


def read_model(
    path: str | os.PathLike[str],
    *,
    most_examples: Callable[[dict[str, Tensor]], int] | None = None,
    mapped: Collection[str] = (),
    expect: str | None = None,
) -> Stored:
    """Read a model folder; the config and every file are checked against their SHA-256.

    most_examples: tensors → the most training records the model can have; more are refused unread. mapped: names of
    tensors to leave in their file, which is mapped into memory or read by rows. expect: the fingerprint that the folder
    must have; with another one, an error comes before any file but the manifest is read.
    """
    folder = Path(path)
    try:
        manifest, data = _read_parts(folder, mapped=bool(mapped), expect=expect)
    except StorageError:
        raise
    except (OSError, MemoryError) as error:
        raise StorageError(f"could not read a model from {folder}: {error}") from error
    names = {part: str(folder / facts["name"]) for part, facts in manifest["files"].items()}
    sizes = {part: facts["size"] for part, facts in manifest["files"].items()}
    rows: dict[str, FileRows] = {}
    examples = all_rows = None
    try:
        if mapped:
            rows = {name: own for name, own in tensor_rows(names["weights"]).items() if name in mapped}
            tensors = read_tensors(names["weights"], without=rows) | {name: own.mapped for name, own in rows.items()}
        else:
            tensors, _ = unpack_tensors(data["weights"], names["weights"])
        if "examples" in data:
            most_rows = math.inf if most_examples is None else most_examples(tensors)
            most_bytes = max(MOST_BYTES, _MOST_UNPACKED * sum(sizes.values()))
            examples = unpack_examples(data["examples"], names["examples"], most_rows=most_rows, most_bytes=most_bytes)
        if "rows" in data:
            most_bytes = max(MOST_BYTES, _MOST_UNPACKED * sizes["rows"])
            all_rows = unpack_examples(data["rows"], names["rows"], most_bytes=most_bytes)
    except MemoryError as error:
        raise StorageError(f"{folder} needs more memory than is available: {error}") from error
    stored = Stored(manifest["config"], tensors, examples, all_rows)
    stored.rows, stored.fingerprint = rows, manifest[_MARK]
    return stored


def _read_parts(folder: Path, *, mapped: bool, expect: str | None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest, and the bytes of each file that it names; mapped: weights are checked, but stay in their file."""
    manifest = _read_manifest(folder)
    while True:
        _require(folder, manifest[_MARK], expect)
        files = manifest["files"]
        try:
            data = {part: read_part(folder, facts) for part, facts in files.items() if part != "weights" or not mapped}
            if mapped:
                weights = folder / files["weights"]["name"]
                _check_part(weights, *digest_of(weights), files["weights"])
            return manifest, data
        except FileNotFoundError as error:  # perhaps a writer has just replaced the model
            before, manifest = manifest, _read_manifest(folder)
            if manifest == before:
                name = Path(error.filename).name
                raise StorageError(
                    f"{folder} must contain {name}, which {MANIFEST} names; it is missing; {_REPAIR}"
                ) from None


def fingerprint(path: str | os.PathLike[str]) -> str:
    """Half of the SHA-256, in 32 digits, of a model folder's contents: its manifest names the digests of its files.

    Different contents have a different one, even if someone altered a file and repaired the checksums in the folder.
    Keep it where people who can write to the folder cannot change it, and require it: `dwac.load(path, expect=…)`.
    """
    try:
        return str(_read_manifest(Path(local_folder(path)))[_MARK])
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"could not read a model from {path}: {error}") from error


def _require(folder: Path, fingerprint: str, expect: str | None) -> None:
    if expect is not None and fingerprint != expect.strip().lower():
        raise StorageError(
            f"{folder} must have the fingerprint {expect!r:.80}; it has {fingerprint!r}: it is another model, or was "
            "altered; nothing was loaded; restore the folder from a copy, or ask whoever wrote it for its fingerprint"
        )


@cache
def dwac_version() -> str:
    """The version of dwac, for people who read the file."""
    try:
        return metadata.version("dwac")
    except metadata.PackageNotFoundError:
        return "unknown"


def _manifest(config: Mapping[str, Any], files: dict[str, Any]) -> bytes:
    json_text(config, "config")  # raises an error that names an invalid value
    content = {"format": FORMAT, "version": VERSION, "dwac": dwac_version(), "files": files}
    content |= {"config_sha256": config_digest(config), "config": dict(config)}
    data = json_text(content, "model.json").encode() + b"\n"
    if len(data) > _LARGEST_MANIFEST:
        raise InputError(
            f"config takes {len(data):,} bytes of JSON; at most {_LARGEST_MANIFEST:,} are allowed; use tensors"
        )
    return data


def config_digest(config: Mapping[str, Any]) -> str:
    """The SHA-256 of a config, independent of the layout of its JSON."""
    return hashlib.sha256(json.dumps(dict(config), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _refuse_occupied(folder: Path, *, overwrite: bool) -> None:
    """Raise an error if data could be lost: the folder must be empty, or hold a model that may be replaced."""
    foreign = sorted(name for name in os.listdir(folder) if not _OURS.fullmatch(name))
    if not foreign:
        return
    if MANIFEST not in foreign:
        raise StorageError(
            f"{folder} must be empty or hold a model; it has {foreign[0]!r}; choose a new or empty folder"
        )
    if _parse(folder / MANIFEST)[0].get("format") != FORMAT:
        raise StorageError(f"{folder / MANIFEST} was not written by dwac and would be lost; choose another folder")
    if not overwrite:
        raise StorageError(f"{folder} already holds a model; replace it with overwrite=True, or choose another folder")


def _tidy(folder: Path) -> None:
    """Remove dwac's files that model.json does not name: those of the old model or of a failed write."""
    sync_folder(folder)
    keep: set[str] = set()
    if os.path.lexists(folder / MANIFEST):
        try:
            keep = {facts["name"] for facts in _read_manifest(folder)["files"].values()}
        except (StorageError, OSError):  # it cannot be read: leave everything
            return
    remove_files(folder, _OURS, keep)


def _read_manifest(folder: Path) -> dict[str, Any]:
    """A checked model.json: `files` and `config` have the form that this version writes."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise StorageError(
            f"{folder} must be a model folder; {'it is a file' if folder.exists() else 'it does not exist'}"
        )
    if not os.path.lexists(path):
        raise StorageError(f"{folder} has no {MANIFEST}; give the folder to which a model was saved")
    content, data = _parse(path)
    if (form := content.get("format")) != FORMAT:
        raise StorageError(f"{path} must have format {FORMAT!r}; got {form!r:.50}; it was not written by dwac")
    version = content.get("version")
    if type(version) is int and version > VERSION:
        raise StorageError(
            f"{path} was written by a newer version of dwac, in format {version}; this one reads up to {VERSION}; "
            "upgrade dwac"
        )
    files, config = content.get("files"), content.get("config")
    if version != 1 or not isinstance(files, dict) or not isinstance(config, dict):
        raise StorageError(f"{path} lacks a version, files or config; it is damaged: {_REPAIR}")
    if not {"weights"} <= set(files) <= set(_ENDINGS):
        raise StorageError(
            f"{path} must name weights, and may name examples and rows; got {sorted(files)!r:.100}; {_REPAIR}"
        )
    digest, written = config_digest(config), content.get("config_sha256")
    if digest != written:
        raise StorageError(
            f"{path}: its config has SHA-256 {digest}, but {written!r:.70} was written; it was altered: {_REPAIR}"
        )
    for part, facts in files.items():
        if not _is_part(part, facts):
            raise StorageError(f"{path}: {part} must be a valid name, size and sha256; got {facts!r:.200}; {_REPAIR}")
    content[_MARK] = _fingerprint_of(folder, data)
    return content


def _fingerprint_of(folder: Path, manifest: bytes) -> str:
    columns = folder / COLUMNS
    parts = {MANIFEST: manifest, COLUMNS: read_file(columns, largest=_LARGEST_COLUMNS) if columns.exists() else b""}
    digest = hashlib.sha256()
    for name, data in parts.items():
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return digest.hexdigest()[:_FINGERPRINT]


def _is_part(part: str, facts: Any) -> bool:
    """Whether this is an entry that dwac wrote: a name made from the digest, without path parts, and a size."""
    if not isinstance(facts, dict) or set(facts) != {"name", "size", "sha256"}:
        return False
    name, size, digest = facts["name"], facts["size"], facts["sha256"]
    if type(size) is not int or size < 0 or not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        return False
    return bool(name == f"{part}-{digest[:16]}.{_ENDINGS[part]}")


def read_part(folder: Path, facts: dict[str, Any]) -> bytes:
    """The bytes of one file of a model; an error if they differ from those written."""
    path = folder / facts["name"]
    data = read_file(path)
    _check_part(path, len(data), hashlib.sha256(data).hexdigest(), facts)
    return data


def _check_part(path: Path, size: int, digest: str, facts: dict[str, Any]) -> None:
    """Raise an error unless a file has the size and the SHA-256 that were written."""
    if size != facts["size"]:
        raise StorageError(f"{path} has {size:,} bytes, but {facts['size']:,} were written; {_REPAIR}")
    if digest != facts["sha256"]:
        raise StorageError(f"{path} has SHA-256 {digest}, but {facts['sha256']} was written; it was altered: {_REPAIR}")


def _parse(path: Path) -> tuple[dict[str, Any], bytes]:
    data = read_file(path, largest=_LARGEST_MANIFEST)
    try:
        content = json.loads(data.decode(), parse_constant=_finite, parse_float=_finite)
        if not isinstance(content, dict):
            raise ValueError("not an object")
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path} is damaged ({error!s:.200}); {_REPAIR}") from error
    return content, data


def _finite(token: str) -> float:
    number = float(token)
    if not math.isfinite(number):
        raise ValueError(f"{token:.20} is not a finite number")
    return number
