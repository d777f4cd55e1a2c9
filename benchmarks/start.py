"""Claim: `dwac predict` starts within 1.3 times `import torch, sklearn, pandas`, and so does the import of dwac.

Processor time of whole processes, in turns, on one thread: the import of the three libraries alone, of dwac, `dwac
predict` on twenty rows, and `dwac train` on 300 rows, which may take 2 s more than the import.

    python -m benchmarks.start                # two minutes
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

import dwac
from benchmarks import record

TURNS, MOST, MOST_SECONDS = 3, 1.3, 2.0
BASE = "import torch, sklearn, pandas"
RUNS = "dwac.cli.app"  # in other processes: a stamp covers what is named


def main() -> None:
    """Measure and record."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        taken: dict[str, list[float]] = {}
        for turn, commands in enumerate([commands_in(folder)] * (TURNS + 1)):
            for who, command in commands.items():
                seconds = processor_seconds([part.replace("TURN", str(turn)) for part in command])
                if turn:  # the first reads files from the disk
                    taken.setdefault(who, []).append(seconds)
    middle = {who: float(np.median(each)) for who, each in taken.items()}
    rows: list[dict[str, Any]] = []
    for who, seconds in middle.items():
        ratio, more = seconds / middle[BASE], seconds - middle[BASE]
        met = more <= MOST_SECONDS if "train" in who else ratio <= MOST
        verdict = "" if who == BASE else "met" if met else "missed"
        row = {"what": who, "processor s": seconds, "ratio": ratio, "s above the imports": more, "verdict": verdict}
        rows.append(row)
    record.write("start", (__doc__ or "").split("\n")[0], {"turns": TURNS, "threads": 1}, pd.DataFrame(rows))


def commands_in(folder: Path) -> dict[str, list[str]]:
    """What is measured, by name, with the files that it reads."""
    data = load_breast_cancer(as_frame=True)
    model, small, table = folder / "model", folder / "small.csv", folder / "train.csv"
    dwac.DWACClassifier(random_state=0, verbose=False).fit(data.data, data.target).save(model)
    data.data.head(20).to_csv(small, index=False)
    data.data.assign(diagnosis=data.target).head(300).to_csv(table, index=False)
    command = str(Path(sys.executable).parent / "dwac")
    return {
        BASE: [sys.executable, "-c", BASE],
        "import dwac; dwac.DWACClassifier": [sys.executable, "-c", "import dwac; dwac.DWACClassifier"],
        "dwac predict": [command, "predict", str(model), str(small)],
        "dwac train, 300 rows": [command, "train", str(table), "--target", "diagnosis", "-o", f"{folder}/trainedTURN"],
    }


def processor_seconds(command: list[str]) -> float:
    """Of one process, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
