"""Every record: when and by which code it was made, whether it is stale; and the command that makes stale ones anew.

A record is stale if what its script can run computes something else since: its stamp is another than today's.

    python -m benchmarks                                       # list the records
    python -m benchmarks --stale --device cpu --minutes 60     # make stale ones anew, the cheapest first
    python -m benchmarks --stale --only worth reasons          # of these names
    python -m benchmarks --summary                             # write what they say into docs/results.md and README.md

What takes longer than the time left is not begun. What is interrupted goes on with the same command: the parts that are
done are in build/benchmarks, in a folder for each stamp. One that fails does not stop the others, and is named in the
end with its error. Data are read from $DWAC_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from benchmarks import record, summary

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
    "numbers": Plan(20, "--data {data}"),
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
    "start": Plan(3, ""),
    "strangers": Plan(2, ""),
    "table_peers": Plan(45, "", device="cuda"),
    "talent": Plan(15, "{data}/talent"),
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


def stale(name: str) -> bool:
    """Whether a record was made by other code, or not yet."""
    path = record.RESULTS / f"{name}.json"
    return not path.exists() or record.stale(name, json.loads(path.read_text()))


def parts(name: str) -> Path:
    """The folder of what is done of a record, by the code of today."""
    return WORK / record.script(name) / record.stamp(name)


def commands(name: str) -> list[list[str]]:
    """The command lines that make a record, in their order."""
    places = {"data": os.environ.get("DWAC_DATA", "data"), "work": parts(name), "jobs": os.cpu_count()}
    script = f"benchmarks.{record.script(name)}"
    return [[sys.executable, "-m", script, *step.format(**places).split()] for step in PLANS[name].steps.split(";")]


def renew(names: list[str], minutes: float) -> dict[str, str]:
    """Make records anew, the cheapest first, while there is time; what became of each."""
    end, fates = time.monotonic() + 60 * minutes, {}
    for number, name in enumerate(sorted(names, key=lambda name: PLANS[name].minutes), start=1):
        left, spent = max(end - time.monotonic(), 0) / 60, parts(name) / "minutes"
        before = float(spent.read_text()) if spent.exists() else 0.0
        needed = max(PLANS[name].minutes - before, 1)
        if not stale(name):
            fates[name] = "made with another"  # one script may write two records
        elif needed > left:
            fates[name] = f"not begun: takes about {needed:.0f} minutes, {left:.0f} are left"
        else:
            print(f"\n== {number} of {len(names)}: {name}, about {needed:.0f} minutes", flush=True)
            parts(name).mkdir(parents=True, exist_ok=True)
            begun = time.monotonic()
            try:
                fates[name] = made(name, end)
            finally:  # what has no parts begins again, and takes as long
                if any(parts(name).glob("*.json*")):
                    spent.write_text(f"{before + (time.monotonic() - begun) / 60:.2f}")
    return fates


def made(name: str, end: float) -> str:
    """Run the steps of a record; what became of it. Nothing of them runs on when this ends."""
    errors = parts(name) / "errors.txt"
    for command in commands(name):
        with errors.open("w") as file:
            process = subprocess.Popen(
                command, env={**os.environ, "DWAC_PARTS": str(parts(name))}, stderr=file, start_new_session=True
            )
            try:
                code = process.wait(max(end - time.monotonic(), 1))
            except subprocess.TimeoutExpired:
                return "interrupted: no time is left"
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if code:
            said = errors.read_text().strip().splitlines() or [f"exit code {code}"]
            return f"failed: {said[-1]} ({errors} has all)"
    return "made"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--stale", action="store_true", help="make stale records anew")
    parser.add_argument("--summary", action="store_true", help="write what the records say into the pages")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="the kind of machine this is")
    parser.add_argument("--minutes", type=float, default=60.0, help="the time there is")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=sorted(PLANS), help="of these records")
    chosen = parser.parse_args()
    if chosen.summary:
        summary.main()
        return
    table = overview()
    if not chosen.stale:
        print(record.markdown(table))
        print(f"{(table['stale'] != '').sum()} of {len(table)} records are stale")
        return
    asked = [name for name, plan in PLANS.items() if plan.device == chosen.device and name in (chosen.only or PLANS)]
    try:
        fates = renew([name for name in asked if stale(name)], chosen.minutes)
    except KeyboardInterrupt:
        sys.exit("\nstopped: the same command goes on")
    if "made" in fates.values():
        summary.main()
    print("\n" + "\n".join(f"{name}: {fate}" for name, fate in fates.items()))
    sys.exit(any(fate.startswith("failed") for fate in fates.values()))


if __name__ == "__main__":
    main()
