"""Every record: when and by which code it was made, whether it is stale; and the command that makes stale ones anew.

A record is stale if a source that can change it has changed since: its stamp is another than today's.

    python -m benchmarks                                       # list the records
    python -m benchmarks --stale --device cpu --minutes 60     # make stale ones anew, the cheapest first
    python -m benchmarks --stale --only worth reasons          # of these names

What takes longer than the time left is not begun. What is interrupted goes on with the same command, where the
benchmark keeps parts of its work (in build/benchmarks). Data are read from $DWAC_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from benchmarks import record

WORK = Path(__file__).parent.parent / "build" / "benchmarks"


class Plan(NamedTuple):
    """How a record is made: about how many minutes, and the arguments of its script, one list per step.

    {data} stands for $DWAC_DATA, {work} for a folder that keeps parts, {jobs} for the number of cores.
    """

    minutes: float
    steps: str
    device: str = "cpu"


PLANS = {
    "conformal": Plan(3, ""),
    "deletion": Plan(12, "measure --out {work} --shards 4; measure --out {work} --shards 8; report --out {work}"),
    "engine_cpu": Plan(10, "--device cpu"),
    "engine_gpu": Plan(5, "--device cuda", device="cuda"),
    "explorer": Plan(3, ""),
    "few_voters_gpu": Plan(8, "--models {work}", device="cuda"),
    "gradient_gpu": Plan(2, "", device="cuda"),
    "label_issues": Plan(15, "votes --votes {work}; judge --votes {work}"),
    "latency": Plan(10, "--texts"),
    "local_coverage": Plan(12, "--data {data}"),
    "middle_tables": Plan(6, ""),
    "numbers": Plan(10, "--data {data}", device="cuda"),
    "pretrained_test_gpu": Plan(8, "--part test", device="cuda"),
    "processes_cpu": Plan(4, ""),
    "reasons": Plan(15, ""),
    "recourse": Plan(15, ""),
    "reweighing": Plan(15, "{work}/points.jsonl"),
    "scoring": Plan(5, ""),
    "service": Plan(3, ""),
    "several_labels": Plan(10, "--data {data} --processes {jobs}"),
    "small_tables": Plan(10, "--jobs {jobs}"),
    "small_texts": Plan(6, "{data}/texts"),
    "start": Plan(2, ""),
    "strangers": Plan(2, ""),
    "table_peers": Plan(22, "", device="cuda"),
    "training_cost_cpu": Plan(12, "--device cpu --data {data}"),
    "training_cost_gpu": Plan(7, "--device cuda --data {data}", device="cuda"),
    "wide_tables": Plan(10, "--jobs {jobs}"),
    "worth": Plan(3, ""),
    "worth_curves": Plan(12, "--jobs {jobs}"),
    "worth_next": Plan(10, "--jobs {jobs}"),
}


def overview() -> pd.DataFrame:
    """One row per record in docs/results."""
    kept = {path.stem: json.loads(path.read_text()) for path in sorted(record.RESULTS.glob("*.json"))}
    rows = [
        {
            "record": name,
            "date": found.get("date", "–")[:10],
            "commit": (found.get("commit") or "–")[:12],
            "stamp": found.get("code", "–"),
            "GPU of the machine": found["machine"]["gpu"] or "–",
            "stale": "stale" if record.stale(name, found) else "",
        }
        for name, found in kept.items()
    ]
    return pd.DataFrame(rows)


def commands(name: str) -> list[list[str]]:
    """The command lines that make a record, in their order."""
    plan = PLANS[name]
    places = {"data": os.environ.get("DWAC_DATA", "data"), "work": WORK / name, "jobs": os.cpu_count()}
    script = f"benchmarks.{record.script(name)}"
    return [[sys.executable, "-m", script, *step.format(**places).split()] for step in plan.steps.split(";")]


def renew(names: list[str], minutes: float) -> dict[str, str]:
    """Make records anew, the cheapest first, while there is time; what became of each."""
    end, fates = time.monotonic() + 60 * minutes, {}
    for number, name in enumerate(sorted(names, key=lambda name: PLANS[name].minutes), start=1):
        left = end - time.monotonic()
        if not record.stale(name, json.loads((record.RESULTS / f"{name}.json").read_text())):
            fates[name] = "made with another"  # one script may write two records
            continue
        if 60 * PLANS[name].minutes > left:
            fates[name] = f"not begun: takes about {PLANS[name].minutes:g} minutes, {left / 60:.0f} are left"
            continue
        (WORK / name).mkdir(parents=True, exist_ok=True)
        print(f"\n== {number} of {len(names)}: {name}, about {PLANS[name].minutes:g} minutes", flush=True)
        fates[name] = "made"
        for command in commands(name):
            try:
                code = subprocess.run(command, timeout=max(end - time.monotonic(), 1)).returncode
            except subprocess.TimeoutExpired:
                code = -1
            if code:
                fates[name] = "interrupted: no time is left" if code == -1 else f"failed: {' '.join(command[2:])}"
                break
    return fates


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--stale", action="store_true", help="make stale records anew")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="the kind of machine this is")
    parser.add_argument("--minutes", type=float, default=60.0, help="the time there is")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=sorted(PLANS), help="of these records")
    chosen = parser.parse_args()
    table = overview()
    if not chosen.stale:
        print(record.markdown(table))
        print(f"{(table['stale'] != '').sum()} of {len(table)} records are stale")
        return
    stale = table.loc[table["stale"] != "", "record"]
    fates = renew(
        [name for name in stale if PLANS[name].device == chosen.device and name in (chosen.only or PLANS)],
        chosen.minutes,
    )
    print("\n" + "\n".join(f"{name}: {fate}" for name, fate in fates.items()))
    sys.exit(any(fate.startswith("failed") for fate in fates.values()))


if __name__ == "__main__":
    main()
