"""Claim: recorded decisions replay bit for bit; impact takes less time per million than two cores have in a minute.

Breast cancer: a default model of all rows, and decisions on rows drawn from them with noise. Processor time on one
thread; beside it, that of predicting all rows with the model and with the edited one, which gives the same decisions.

    python -m benchmarks.decisions          # two minutes
"""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_breast_cancer

import dwac
from benchmarks import record
from dwac import records

ROWS, REPLAYED, FORGOTTEN, NOISE = 100_000, 10_000, 20, 0.05


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds of processor time, result)."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def main() -> None:
    """Measure, and write the record."""
    torch.set_num_threads(1)
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    rng = np.random.default_rng(0)
    rows = X.iloc[rng.integers(0, len(X), ROWS)].reset_index(drop=True)
    rows *= 1 + NOISE * rng.standard_normal(rows.shape)
    with TemporaryDirectory() as name:
        folder = Path(name)
        fitted = dwac.DWACClassifier(random_state=0, device="cpu").fit(X, y)
        clf = dwac.load(fitted.save(folder / "model"), device="cpu")
        gone = clf.references_.ids[:FORGOTTEN].tolist()
        edited = copy(clf).forget(gone)
        few = rows[:REPLAYED]
        kept, _ = timed(lambda: records.record(folder / "all", clf, rows))
        records.record(folder / "few", clf, few)
        replayed, replay = timed(lambda: records.replay(folder / "few", clf, few))
        touched, impact = timed(lambda: records.impact(folder / "all", clf, rows, forget=gone))
        predicted, changed = timed(lambda: np.flatnonzero(clf.predict(rows) != edited.predict(rows)))
        sources = {name: name % 3 for name in clf.references_.ids.tolist()}
        summed, ledger = timed(lambda: records.ledger(folder / "all", clf, rows, by=sources))
    assert replay.same
    assert impact.decisions["id"].tolist() == list(map(str, changed))
    done = [
        ("record", ROWS, kept, f"{ROWS:,} rows"),
        ("replay", replay.n, replayed, f"{replay.n - len(replay.differences):,} the same bit for bit"),
        (f"impact of forgetting {FORGOTTEN}", impact.n, touched, f"{len(impact.decisions):,} change"),
        ("predict with both models", ROWS, predicted, f"{len(changed):,} differ: the same"),
        ("ledger of three sources", ROWS, summed, f"sums to {ledger['decisions'].sum():.6f}"),
    ]
    table = pd.DataFrame(done, columns=["", "decisions", "seconds", "result"])
    table.insert(3, "seconds per million", table["seconds"] / table["decisions"] * 1e6)
    claim = "Recorded decisions replay bit for bit; impact takes less time per million than two cores have in a minute."
    record.write("decisions", claim, {"voters": len(X), "noise": NOISE, "threads": 1}, table)


if __name__ == "__main__":
    main()
