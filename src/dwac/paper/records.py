"""Records: what was measured of each case, a JSON file each, and under what circumstances.

records = Records("docs/results/paper")
record = records.read(case)                # None until it was run
records.merge("from_another_machine")
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterator
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dwac.paper.cases import Case, PaperError

Record = dict[str, Any]
_IN_CHECKOUT = Path("docs/results/paper")
_ELSEWHERE = Path("dwac-paper")


def default_folder(*, quick: bool = False) -> Path:
    """docs/results/paper in a checkout of dwac, else dwac-paper; a quick run's is never among real ones."""
    if quick:
        return Path("build/dwac-paper-quick") if _in_checkout() else Path("dwac-paper-quick")
    return _IN_CHECKOUT if _in_checkout() else _ELSEWHERE


def _in_checkout() -> bool:
    return Path("src/dwac/paper").is_dir() and Path("pyproject.toml").is_file()


class Records:
    """A folder of records: FOLDER/DATASET/KEY.json."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)

    def path(self, case: Case) -> Path:
        """Where a case's record is or will be."""
        return self.folder / case.dataset / f"{case.key}.json"

    def read(self, case: Case) -> Record | None:
        """A case's record, or None."""
        path = self.path(case)
        return _read(path) if path.exists() else None

    def __iter__(self) -> Iterator[Record]:
        """All records, by name."""
        for path in sorted(self.folder.glob("*/*.json")):
            yield _read(path)

    def write(self, case: Case, record: Record) -> Path:
        """Write a record whole or not at all."""
        path = self.path(case)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        part.write_text(_text(plain(record)), encoding="utf-8")
        os.replace(part, path)
        return path

    def merge(self, other: str | PathLike[str]) -> int:
        """Take in another folder's records; of two of a case the later stays. How many were taken."""
        taken = 0
        for record in Records(other):
            case = Case(**record["case"])
            mine = self.read(case)
            if mine is None or mine["date"] < record["date"]:
                self.write(case, record)
                taken += 1
        return taken

    def require(self, *, quick: bool) -> None:
        """Refuse a folder that holds records of the other kind."""
        for record in self:
            if record["quick"] != quick:
                kinds = ("quick", "real") if record["quick"] else ("real", "quick")
                raise PaperError(
                    f"{self.folder} holds records of {kinds[0]} runs, and this is a {kinds[1]} one: "
                    "they must not mix; give another folder with --records"
                )
            return


def _read(path: Path) -> Record:
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        Case(**record["case"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise PaperError(f"{path} is no record: {error}; remove it, and run its experiment again") from None
    return record


def _text(record: Record) -> str:
    """JSON with a line a field, and a line an experiment: short files that still show what changed."""

    def lines(values: Record, indent: str) -> str:
        parts = [f"{indent}{json.dumps(name)}: {_compact(value)}" for name, value in values.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent[1:]}}}"

    fields = [
        f" {json.dumps(name)}: {lines(value, '  ') if name == 'metrics' and value else _compact(value)}"
        for name, value in record.items()
    ]
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """A value as JSON knows it: NumPy's numbers as Python's, with six digits; None for what is not finite."""
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def versions(*more: str) -> dict[str, str]:
    """Of what a fit rests on."""
    names = ("dwac", "torch", "numpy", "pandas", "scikit-learn", *more)
    found = {name: metadata.version(name) for name in names if _installed(name)}
    return {"python": platform.python_version(), **found}


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def device_name(device: torch.device | None) -> str:
    """The GPU's name, or "CPU (model, threads)"."""
    if device is not None and device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU ({_processor()}, {torch.get_num_threads()} threads)"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
