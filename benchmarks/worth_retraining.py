"""Claim: what a vote is worth given the embedding agrees in part with what retraining without the example would say.

`clf.worth` values votes; the network was trained on all examples and stays as it is. Here the network is trained again,
with default settings, on other sets of the same 60 rows of two tables, with right labels and with a tenth of them
flipped; and each time the mean probability of the true labels of rows that never train is measured:

- leave-one-out: all rows less one, for each row and each of several seeds;
- Banzhaf: sets that have each row with probability one half, each set with a seed of its own. A row's value is the mean
  over sets that have it, less the mean over those that do not (Wang and Jia 2023). No set is too small to train on.

Beside them, the same two values and the Shapley value of the vote given the embedding, from models of all rows. The
rank correlation is that of one model with what retraining says, the mean over several models; its interval is that of
rows drawn again (bootstrap). What retraining says is itself noisy, as one row changes a network less than a seed does:
`halves` is the rank correlation of two halves of the same fits, and `ceiling` the root of what that makes for all fits
(Spearman and Brown): what a measure without any error could be expected to reach.

    python -m benchmarks.worth_retraining --jobs 16
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.datasets import load_breast_cancer, load_wine

from benchmarks import record
from benchmarks.label_issues import flipped
from dwac import DWACClassifier

TABLES = {"wine": load_wine, "breast cancer": load_breast_cancer}
RATES = (0.0, 0.1)
ROWS, JUDGES, MODELS = 60, 200, 5
SEEDS, SETS = 5, 600  # of leave-one-out, and of Banzhaf values
METHODS = {"leave-one-out": "leave_one_out", "Banzhaf": "banzhaf"}
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Table(NamedTuple):
    """Rows that train, with labels of which some may be flipped, and rows that judge."""

    X: pd.DataFrame
    y: NDArray[np.int64]
    judges: pd.DataFrame
    truths: NDArray[np.int64]


class Job(NamedTuple):
    """One fit."""

    table: str
    rate: float
    kind: str  # of sets: "leave-one-out" or "Banzhaf"
    seed: int
    row: int  # that is left out; -1 for none. Of Banzhaf values the number of the set


def load(name: str, rate: float) -> Table:
    """The same rows whatever the rate."""
    X, y = TABLES[name](return_X_y=True, as_frame=True)
    order = np.random.default_rng(0).permutation(len(y))
    rows, judges = order[:ROWS], order[ROWS : ROWS + JUDGES]
    return Table(X.iloc[rows], flipped(y.to_numpy()[rows], rate, 0)[0], X.iloc[judges], y.to_numpy()[judges])


def members(job: Job) -> Bools:
    """(n,): the rows of which a fit learns."""
    if job.kind == "leave-one-out":
        return np.asarray(np.arange(ROWS) != job.row)
    return np.asarray(np.random.default_rng([1, job.row]).random(ROWS) < 0.5)


def retrained(job: Job) -> tuple[Job, float]:
    """The mean probability of the judges' labels after training on some of the rows."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    table, kept = load(job.table, job.rate), members(job)
    clf = DWACClassifier(random_state=job.seed, device="cpu", verbose=False).fit(table.X[kept], table.y[kept])
    p = clf.predict_proba(table.judges)
    return job, float(np.where(clf.classes_ == table.truths[:, None], p, 0.0).sum(axis=1).mean())


def jobs() -> list[Job]:
    """All fits, of all tables in turn, so that an early end leaves as many of each."""
    tables = [(name, rate) for name in TABLES for rate in RATES]
    alone = [
        Job(*table, "leave-one-out", seed, row) for seed in range(SEEDS) for row in range(-1, ROWS) for table in tables
    ]
    sets = [Job(*table, "Banzhaf", SEEDS + number, number) for number in range(SETS) for table in tables]
    return alone + sets


def without_one(found: dict[Job, float], name: str, rate: float) -> Floats:
    """(seeds, n): what leaving each row out takes away, by seed."""
    u = np.array(
        [[found[Job(name, rate, "leave-one-out", seed, row)] for row in range(-1, ROWS)] for seed in range(SEEDS)]
    )
    return np.asarray(u[:, :1] - u[:, 1:])


def contributions(found: dict[Job, float], name: str, rate: float) -> Floats:
    """(sets, n): what each set says of each row; their sum over any many sets is its value, up to a factor."""
    sets = [job for job in found if (job.table, job.rate, job.kind) == (name, rate, "Banzhaf")]
    u = np.array([found[job] for job in sets])
    return np.asarray((u - u.mean())[:, None] * np.where([members(job) for job in sets], 1.0, -1.0))


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's."""
    return float(spearmanr(a, b).statistic)


def halves(parts: Floats, rng: np.random.Generator, times: int = 100) -> float:
    """The mean rank correlation of the means of two random halves of parts (p, n)."""
    found = []
    for _ in range(times):
        order = rng.permutation(len(parts))
        one, other = (parts[half].mean(axis=0) for half in np.array_split(order, 2))
        found.append(rank_correlation(one, other))
    return float(np.mean(found))


def agreement(name: str, rate: float, found: dict[Job, float]) -> list[dict[str, Any]]:
    """One row for each way of retraining and each value of the vote."""
    table, rng, rows = load(name, rate), np.random.default_rng(0), []
    fits = [DWACClassifier(random_state=seed, device="cpu", verbose=False) for seed in range(100, 100 + MODELS)]
    models = [clf.fit(table.X, table.y) for clf in fits]
    for kind, method in METHODS.items():
        parts = {"leave-one-out": without_one, "Banzhaf": contributions}[kind](found, name, rate)
        truth, half = parts.mean(axis=0), halves(parts, rng)
        ceiling = np.sqrt(max(0.0, 2 * half / (1 + half)))
        for value in dict.fromkeys(("shapley", method)):
            worth = [clf.worth(table.judges, table.truths, method=value)["worth"].loc[table.X.index] for clf in models]
            drawn = rng.integers(0, ROWS, (1000, ROWS))
            again = [np.mean([rank_correlation(w.to_numpy()[d], truth[d]) for w in worth]) for d in drawn]
            rows.append(
                {
                    "table": name,
                    "flipped": rate,
                    "retrained": kind,
                    "fits": len(parts) * (ROWS + 1 if kind == "leave-one-out" else 1),
                    "worth": value.replace("_", "-"),
                    "rank correlation": np.mean([rank_correlation(w.to_numpy(), truth) for w in worth]),
                    "low": np.quantile(again, 0.025),
                    "high": np.quantile(again, 0.975),
                    "halves": half,
                    "ceiling": ceiling,
                }
            )
    return rows


def main() -> None:
    """Train, compare, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="fits side by side, each with one thread")
    parser.add_argument("--seconds", type=float, default=np.inf, help="stop training after so long")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    started, found = time.monotonic(), {}
    with multiprocessing.get_context("fork").Pool(asked.jobs) as pool:
        for job, value in pool.imap_unordered(retrained, jobs(), chunksize=4):
            found[job] = value
            if time.monotonic() - started > asked.seconds:
                pool.terminate()
                break
    print(len(found), "fits in", round(time.monotonic() - started), "s", flush=True)
    warnings.simplefilter("ignore")
    table = pd.DataFrame([row for name in TABLES for rate in RATES for row in agreement(name, rate, found)]).round(3)
    claim = (
        "How far the worth of a vote, given the embedding, agrees with what retraining says of the same examples: rank "
        "correlation, its 95 % interval, and the ceiling that the noise of retraining sets."
    )
    config = {"training rows": ROWS, "judging rows": "up to 200", "models": MODELS, "seeds of leave-one-out": SEEDS}
    record.write("worth_retraining", claim, config, table)


if __name__ == "__main__":
    main()
