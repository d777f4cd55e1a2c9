"""Records: what was measured of each case, a JSON file each, and under what circumstances.

records = Records("docs/results/paper")
record = records.read(case)                # None until it was run
records.merge("from_another_machine")
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any

import torch

import dwac
from dwac.drawing.records import plain
from dwac.storage.files import replace_file
from reproduction.cases import Case, PaperError, known
from reproduction.sources import meaning

Record = dict[str, Any]
FIELDS = ("case", "quick", "settings", "seed", "versions", "device", "date", "seconds", "rows", "classes", "metrics")


def default_folder(*, quick: bool = False) -> Path:
    """docs/results/paper in a checkout of dwac, else dwac-paper; a separate folder for quick runs."""
    checkout = Path("reproduction").is_dir() and Path("pyproject.toml").is_file()
    if quick:
        return Path("build/dwac-paper-quick" if checkout else "dwac-paper-quick")
    return Path("docs/results/paper" if checkout else "dwac-paper")


class Records:
    """A folder of records: FOLDER/DATASET/KEY.json."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)

    def path(self, case: Case) -> Path:
        """The path of the record of a case."""
        return self.folder / case.dataset / f"{case.key}.json"

    def read(self, case: Case) -> Record | None:
        """A case's record, or None."""
        path = self.path(case)
        return _read(path) if path.exists() else None

    def __iter__(self) -> Iterator[Record]:
        """All records, by name; a `PaperError` names a file that is not a record."""
        for path in sorted(self.folder.glob("*/*.json")):
            yield _read(path)

    def journal(self, case: Case) -> Path:
        """Where the scores of a search are kept until its record is written."""
        return self.folder / case.dataset / f"{case.key}.tuning.jsonl"

    def write(self, case: Case, record: Record) -> Path:
        """Write a record completely or not at all."""
        path = self.path(case)
        write_text(path, _text(rounded(record)))
        return path

    def merge(self, other: str | PathLike[str]) -> int:
        """Import the records of another folder, keeping the later of two for a case; returns how many were imported."""
        taken = 0
        for record in Records(other):
            case = Case(**record["case"])
            mine = self.read(case)
            if mine is None or mine["date"] < record["date"]:
                self.write(case, record)
                taken += 1
        return taken

    def require(self, *, quick: bool) -> None:
        """Refuse a folder that holds a record of the other kind, or that cannot be written to."""
        for record in self:
            if record["quick"] != quick:
                kinds = ("quick", "full") if record["quick"] else ("full", "quick")
                raise PaperError(
                    f"{self.folder} holds records of {kinds[0]} runs, and this is a {kinds[1]} run; "
                    "they must not be mixed; give another folder with --records"
                )
        write_text(self.folder / ".writable", "")
        (self.folder / ".writable").unlink()


def write_text(path: Path, text: str) -> None:
    """Write a file completely or not at all, and create its folders."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as error:
        raise PaperError(
            f"{path} cannot be written: {error.strerror}; choose another folder, or make this one writable"
        ) from None


def _read(path: Path) -> Record:
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict) or (lacking := [name for name in FIELDS if name not in record]):
            raise PaperError(f"it lacks {', '.join(lacking)}" if isinstance(record, dict) else "an object is required")
        case = Case(**record["case"])
        known(case)
        if path.name != f"{case.key}.json":
            raise PaperError(f"the file must be named {case.key}.json")
    except (ValueError, TypeError, OSError) as error:
        raise PaperError(f"{path} is not a valid record: {error}; remove it, and run its experiment again") from None
    return record


def _text(record: Record) -> str:
    """JSON with one line per field and per experiment: short files with readable diffs."""

    def lines(values: Record, indent: str) -> str:
        parts = (
            f"{indent}{json.dumps(name)}: "
            + (lines(value, "  ") if name == "metrics" and value else json.dumps(value, ensure_ascii=False))
            for name, value in values.items()
        )
        return "{\n" + ",\n".join(parts) + f"\n{indent[1:]}}}"

    return lines(record, " ") + "\n"


def rounded(value: Any) -> Any:
    """A value in the form of a record: JSON types, numbers with six digits."""
    return plain(value, digits=6)


def versions(*more: str) -> dict[str, str]:
    """Versions of the packages that a fit depends on."""
    found = {"python": platform.python_version()}
    for name in ("dwac", "torch", "numpy", "pandas", "scikit-learn", *more):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


# What a fit of the paper never runs, and what `reproduction.fit.current` compares by value: `settings` and `variants`.
# Files of the package by their path in it, those of the reproduction by their path in the checkout.
APART = (
    "__init__.py",  # the public names and the version
    *("cli", "mlflow", "monitoring", "reading", "records", "report", "scoring", "server", "worth"),
    *(f"conformal/{name}.py" for name in ("decisions", "groups", "guarantees", "intervals", "labels", "local")),
    *(f"drawing/{name}.py" for name in ("groups", "layout", "neighbors", "pages", "picture", "reasons", "style")),
    *(f"encoders/{name}.py" for name in ("hf_tokenizer", "huggingface", "image_pretrained", "table_graph")),
    *(f"estimator/{name}.py" for name in ("certificate", "condensing", "evaluation", "inquiry", "loading", "saving")),
    *(f"estimator/{name}.py" for name in ("out_of_fold", "regressor", "reweighing", "shards", "stored", "worth")),
    *("estimator/export", "estimator/fit/sharded.py", "estimator/fit/stream.py"),
    *(f"explain/{name}.py" for name in ("comparing", "hybrids", "importance", "labels", "letters", "numbers")),
    *(f"explain/{name}.py" for name in ("privacy", "recourse", "rendering", "turning", "ways")),
    *("storage/folder.py", "storage/hub.py", "storage/tensors.py"),
    *("training/__main__.py", "training/checkpoint.py", "training/lines.py", "votes/models.py"),
    *("reproduction/__init__.py", "reproduction/__main__.py", "reproduction/app.py", "reproduction/commands"),
    *(
        f"reproduction/{name}.py"
        for name in ("figures", "published", "report", "settings", "sources", "tables", "variants")
    ),
)
# All that fits a peer and measures it.
OF_PEERS = (
    *("metrics.py", "estimator/preparation.py", "reproduction/datasets"),
    *(f"reproduction/{name}.py" for name in ("accuracy", "cases", "fit", "peers", "records", "rows", "runner")),
    "reproduction/tuning.py",
)
REPORT_BELOW = "\n# The report\n"  # in an experiment's file, what follows only reports on records


@cache
def code(*, peer: bool = False) -> str:
    """The stamp: a hash of what the sources compute that can change the content of a record (`sources.meaning`).

    peer: only what a peer's record needs.
    """
    package, here = Path(dwac.__file__).parent, Path(__file__).parent
    names = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    names |= {path.relative_to(here.parent).as_posix(): path for path in here.rglob("*.py")}
    digest = hashlib.sha256()
    for name, path in sorted(names.items()):
        if _within(name, APART) or (peer and not _within(name, OF_PEERS)):
            continue
        text = path.read_text(encoding="utf-8")
        text = text.partition(REPORT_BELOW)[0] if name.startswith("reproduction/") else text
        digest.update(f"{name}\0{meaning(text)}\0".encode())
    return digest.hexdigest()[:12]


def _within(name: str, parts: Iterable[str]) -> bool:
    return any(name == part or name.startswith(f"{part}/") for part in parts)


@cache
def commit() -> str | None:
    """The commit of the checkout that runs, with "-dirty" if its sources differ from it; None outside a checkout.

    Where a checkout travels without its history, the variable DWAC_COMMIT names the commit.
    """
    if given := os.environ.get("DWAC_COMMIT"):
        if not re.fullmatch("[0-9a-f]{7,40}(-dirty)?", given):
            raise PaperError(
                f"DWAC_COMMIT must be the hash of a commit, 7 to 40 hexadecimal digits; got {given!r}; "
                "set it to what `git rev-parse HEAD` prints"
            )
        return given
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():  # a repository around a copy is not its own
        return None
    try:
        head, changes = (
            subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", "src", "benchmarks", "reproduction"])
        )
    except (OSError, subprocess.CalledProcessError):  # no git, or a checkout that it refuses to read
        return None
    return f"{head}-dirty" if changes else head


def device_name(device: torch.device | None) -> str:
    """The GPU's name, or "CPU (model, threads)"."""
    if device is not None and device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"CPU ({models[0] if models else platform.machine()}, {torch.get_num_threads()} threads)"
