"""Claim: default training takes less processor time than it did, at the same accuracy.

Two source trees in the same run: the one before (`--before FOLDER`, the src folder of an earlier commit) and this one.
`accuracy`: `DWACClassifier()` on the same rows with five seeds, judged once on test rows that no setting was chosen by;
one thread. `commands`: processor time (user and system, all threads) of the whole command `dwac train`, with as many
threads as it takes by default, both trees in turn. `join` writes the record from the files of
both, or of one. Under other load, processor time is larger, above all that of threads that spin.

Data: Adult's 8,000 rows, and 1,200 titles of Stack Overflow, as in `reproduction.datasets`; `--data FOLDER` holds
adult.data, adult.test, title_StackOverflow.txt and label_StackOverflow.txt.

    python -m benchmarks.defaults accuracy --data DATA --before OLD/src --out PARTS --jobs 8
    python -m benchmarks.defaults commands --data DATA --before OLD/src --out PARTS
    python -m benchmarks.defaults join --out PARTS
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import record

SEEDS, BEFORE, NOW = 5, "before", "now"
OWN = Path(__file__).parent.parent / "src"
COLUMNS = [
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship", "race",
    "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income",
]  # fmt: skip
TARGETS, TRAINED, TESTED = {"adult": "income", "titles": "label"}, {"adult": 8000, "titles": 1200}, 2000
# Rows of titles from 6,200 on: the ones before were seen when settings were chosen.
FIRST_TEST = 6200

FIT = """
import json, sys
import pandas as pd, numpy as np, torch
torch.set_num_threads(1)
import dwac
train, test, target, seed = pd.read_csv(sys.argv[1]), pd.read_csv(sys.argv[2]), sys.argv[3], int(sys.argv[4])
def x(frame): return frame["text"].tolist() if "text" in frame else frame.drop(columns=target)
clf = dwac.DWACClassifier(random_state=seed, verbose=False, device="cpu").fit(x(train), train[target].to_numpy())
y = np.searchsorted(clf.classes_, test[target].to_numpy())
p = np.clip(clf.predict_proba(x(test)), 1e-6, 1)
p /= p.sum(axis=1, keepdims=True)
print(json.dumps({"accuracy": float((p.argmax(axis=1) == y).mean()),
    "log-loss": float(-np.log(p[np.arange(len(y)), y]).mean()),
    "calibration error": float(dwac.metrics.calibration_error(y, p)), "epochs": len(clf.history_)}))
"""


def adult(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """8,000 training rows, and test rows of the official test file."""
    parts = [
        pd.read_csv(folder / name, names=COLUMNS, skipinitialspace=True, na_values="?", comment="|")
        for name in ("adult.data", "adult.test")
    ]
    for part in parts:
        part["income"] = part["income"].str.rstrip(".")
    rows = np.random.RandomState(0).permutation(len(parts[0]))[: TRAINED["adult"]]
    return parts[0].iloc[rows], parts[1].sample(TESTED, random_state=0)


def titles(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """1,200 titles to train on, and others to test on."""
    texts = (folder / "title_StackOverflow.txt").read_text(encoding="utf-8").split("\n")[:20000]
    labels = (folder / "label_StackOverflow.txt").read_text().split()
    rows = np.random.RandomState(0).permutation(len(labels))
    frame = pd.DataFrame({"text": [texts[i] for i in rows], "label": [f"c{labels[i]}" for i in rows]})
    return frame[: TRAINED["titles"]], frame[FIRST_TEST : FIRST_TEST + TESTED]


def files(folder: Path, into: Path) -> None:
    """Write NAME.csv and NAME_test.csv of every dataset."""
    for name, read in (("adult", adult), ("titles", titles)):
        for title, frame in zip((name, f"{name}_test"), read(folder), strict=True):
            frame.to_csv(into / f"{title}.csv", index=False)


def accuracy(trees: dict[str, Path], into: Path, jobs: int) -> list[dict[str, Any]]:
    """One row per dataset, tree and seed."""

    def one(job: tuple[str, str, int]) -> dict[str, Any]:
        name, tree, seed = job
        arguments = [into / f"{name}.csv", into / f"{name}_test.csv", TARGETS[name], seed]
        environment = os.environ | {"PYTHONPATH": str(trees[tree]), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", FIT, *map(str, arguments)], env=environment, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        row: dict[str, Any] = {"data": name, "source": tree, "seed": seed} | json.loads(done.stdout)
        print(row, flush=True)
        return row

    tasks = [(name, tree, seed) for seed in range(SEEDS) for name in TARGETS for tree in trees]
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, tasks))


def commands(trees: dict[str, Path], into: Path, times: int) -> list[dict[str, Any]]:
    """Processor time of `dwac train`: one row per dataset, tree and time."""
    rows = []
    for number in range(times):
        for name, target in TARGETS.items():
            for tree, source in trees.items():
                words = ["train", str(into / f"{name}.csv"), "--target", target, "-o", str(into / "model")]
                words += ["--overwrite", "--device", "cpu", *(["--text", "text"] if name == "titles" else [])]
                start = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(
                    [sys.executable, "-c", "from dwac.cli import main; main()", *words],
                    env=os.environ | {"PYTHONPATH": str(source)},
                    check=True,
                    stdout=subprocess.DEVNULL,
                )
                end = resource.getrusage(resource.RUSAGE_CHILDREN)
                seconds = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
                rows.append({"data": name, "source": tree, "time": number, "processor seconds of command": seconds})
                print(rows[-1], flush=True)
    return rows


def join(parts: Path) -> None:
    """Write the record from what was measured: the means over seeds and over runs of the commands."""
    files = [parts / f"{name}.json" for name in ("commands", "accuracy")]
    held = {file.stem: json.loads(file.read_text()) for file in files if file.exists()}
    config: dict[str, Any] = {}
    for name, part in held.items():
        config |= {f"{name}, {what}": value for what, value in part["about"].items()}
    frames = [pd.DataFrame(part["rows"]) for part in held.values()]
    rows = []
    for data in TARGETS:
        for tree in (BEFORE, NOW):
            row: dict[str, Any] = {"data": data, "rows": TRAINED[data], "source": tree}
            for frame in frames:
                own = frame[(frame["data"] == data) & (frame["source"] == tree)]
                means = own.drop(columns=["data", "source", "seed", "time"], errors="ignore").mean()
                row |= {str(name): float(value) for name, value in means.items()}
            rows.append(row)
    if "accuracy" in held:
        config |= {"seeds": int(frames[-1]["seed"].nunique()), "test rows": TESTED} | changes(frames[-1])
    claim = "Default training: processor time of the whole command `dwac train`, before and now."
    if "accuracy" in held:
        claim += " Accuracy, log-loss and calibration error on the same test rows, means over seeds."
    record.write("defaults", claim, config, pd.DataFrame(rows))


def changes(judged: pd.DataFrame) -> dict[str, str]:
    """How much the accuracy on each dataset changed: mean over seeds, and its standard error."""
    found = {}
    for name in TARGETS:
        apart = judged[judged["data"] == name].set_index(["source", "seed"])["accuracy"]
        change = apart[NOW] - apart[BEFORE]
        found[f"change of accuracy, {name}"] = f"{change.mean():+.4f} ± {change.sem():.4f}"
    return found


def main() -> None:
    """Measure a part, or join the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["accuracy", "commands", "join"])
    parser.add_argument("--data", type=Path, help="where the files of the datasets are")
    parser.add_argument("--before", type=Path, help="the src folder of an earlier commit")
    parser.add_argument("--commit", default="", help="which commit that is")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the parts")
    parser.add_argument("--jobs", type=int, default=1, help="fits side by side, each with one thread")
    parser.add_argument("--times", type=int, default=1, help="how often each command runs")
    asked = parser.parse_args()
    if asked.part == "join":
        return join(asked.out)
    trees = {BEFORE: asked.before.absolute(), NOW: OWN}
    with tempfile.TemporaryDirectory() as folder:
        files(asked.data, Path(folder))
        if asked.part == "accuracy":
            rows = accuracy(trees, Path(folder), asked.jobs)
        else:
            rows = commands(trees, Path(folder), asked.times)
    about = {
        "before": asked.commit,
        "processor": record.processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[2],
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / f"{asked.part}.json").write_text(json.dumps({"about": about, "rows": rows}, indent=1))
    return None


if __name__ == "__main__":
    main()
