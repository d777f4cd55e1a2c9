"""Write the results of a benchmark: a JSON record with configuration, versions, machine and commit, and a table."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
import torch

import dwac
from dwac.storage.files import replace_file
from reproduction.records import commit
from reproduction.sources import digest, reached, sources

RESULTS = Path(__file__).parent.parent / "docs" / "results"
SCRIPTS = tuple(path.stem for path in Path(__file__).parent.glob("*.py"))
STARTED = (commit(), sources())  # both are cached: of the code that runs, not of what the checkout holds hours later


def write(name: str, claim: str, config: dict[str, Any], table: pd.DataFrame) -> None:
    """Print the table and save it as docs/results/NAME.json and NAME.md."""
    record: dict[str, Any] = {
        "claim": claim,
        "config": config,
        "versions": {
            "dwac": dwac.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "code": stamp(name),
        "commit": commit(),
        "rows": table.to_dict("records"),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1, default=float) + "\n")
    page(name)
    print(f"\n{claim}\n\n{table.to_string(index=False)}\n\nwritten: docs/results/{name}.json and .md")


def part(name: str, make: Callable[[], Any]) -> Any:
    """What make() returns, as JSON has it. `python -m benchmarks` keeps it, so that it is not made twice."""
    folder = os.environ.get("DWAC_PARTS")
    path = Path(folder or "") / f"{name.replace('/', ' ')}.json"
    if folder and path.exists():
        return json.loads(path.read_text())
    started, text = time.monotonic(), json.dumps(make(), default=float)
    if folder:
        replace_file(path, text.encode())
    print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    return json.loads(text)


def page(name: str) -> None:
    """Write docs/results/NAME.md from docs/results/NAME.json."""
    (RESULTS / f"{name}.md").write_text(paged(name, json.loads((RESULTS / f"{name}.json").read_text())))


def paged(name: str, record: dict[str, Any]) -> str:
    """The page of a record."""
    circumstances = {**record["config"], **record["machine"], **record["versions"]}
    return (
        f"<!-- written by benchmarks/, never by hand -->\n# {name}\n\n*{made(record)}*\n\n{record['claim']}\n\n"
        + f"{markdown(pd.DataFrame(record['rows']))}\n"
        + ", ".join(f"{key}: {value}" for key, value in circumstances.items())
        + "\n"
    )


def script(name: str) -> str:
    """The script that makes the record of this name: the one with the longest beginning of it."""
    found = (own for own in SCRIPTS if name.startswith(own))
    return "reasons" if name == "recourse" else max(found, key=len, default=name)


def stamp(name: str) -> str:
    """The stamp of a record: a hash of what the modules compute that its script can import."""
    return digest(reached(f"benchmarks.{script(name)}"))


def stale(name: str, record: dict[str, Any]) -> bool:
    """Whether a record was made by another version of the code; one without a stamp was."""
    return record.get("code") != stamp(name)


def made(record: dict[str, Any]) -> str:
    """By which code, when and where a record was made."""
    machine = record["machine"]
    where = f"{machine['cores']} cores of {machine['processor']}" + (f", {machine['gpu']}" if machine["gpu"] else "")
    if "code" not in record:
        return f"Made before records named their code, on {where}."
    by = f"commit {record['commit']}" if record["commit"] else "code outside a checkout"
    return f"Made with {by} (stamp {record['code']}) on {record['date'][:10]}, {where}."


def markdown(table: pd.DataFrame) -> str:
    """A data frame as a Markdown table."""
    lines = [list(map(str, table.columns)), ["---"] * table.shape[1]]
    lines += [[_text(value) for value in row] for row in table.itertuples(index=False, name=None)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def processor() -> str:
    """The processor's name as the system reports it."""
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        if info.exists()
        else []
    )
    return f"{platform.machine()} {names[0]}" if names else platform.machine()


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "–" if np.isnan(value) else f"{value:.4g}"
    return str(value)
