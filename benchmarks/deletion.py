"""Claim: an exact deletion costs 1/S of a fit and a little, and S shards are about as accurate as S networks.

Adult. Rows of fit are deleted one by one with `forget([row], exact=True)`, and the model must then be, bit for bit,
what `fit` gives without them: for the first seed it is fitted again, and the hashes are compared. Cost: the mean
seconds of a deletion over those of a fit, which does the same work for all shards. The peer is the unsharded ensemble
of as many networks on the same rows, with the settings of its recipe.

`SETTINGS` were chosen with `choose`, on a quarter of the training rows and another seed: 128, 256 and 512 rows per
batch, and twice the epochs. Test rows were looked at once.

    python -m benchmarks.deletion measure --shards 4 --seed 0 --out FOLDER     # for each; --alone leaves out the peer
    python -m benchmarks.deletion report --out FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import dwac
from benchmarks import record
from dwac.estimator.settings import parameters
from reproduction import datasets

DELETED = 4
SETTINGS: dict[int, dict[str, Any]] = {4: {}, 8: {"batch_size": 256}}
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"batch_size": 128},
    {"batch_size": 256},
    {"batch_size": 256, "epochs": 40, "patience": 10},
)


def fitted(X: pd.DataFrame, y: Any, device: str, **settings: Any) -> tuple[dwac.DWACClassifier, float]:
    """A model, and the seconds of its fit."""
    start = time.perf_counter()
    clf = dwac.DWACClassifier(device=device, verbose=False, **parameters(settings)).fit(X, y)
    return clf, time.perf_counter() - start


def judged(clf: dwac.DWACClassifier, X: pd.DataFrame, y: Any) -> dict[str, float]:
    """Accuracy in percent, and log-loss."""
    p = clf.predict_proba(X)
    truth = np.searchsorted(clf.classes_, y)
    own = p[np.arange(len(p)), truth]
    return {"accuracy": 100 * float((p.argmax(axis=1) == truth).mean()), "log-loss": float(-np.log(own).mean())}


def choose(X: pd.DataFrame, y: Any, device: str) -> None:
    """Print how each variant does on training rows that are held out, beside the ensemble."""
    order = np.random.RandomState(100).permutation(len(X))
    held, rest = order[: len(X) // 4], order[len(X) // 4 :]
    for n in SETTINGS:
        for settings in ({"ensemble_size": n}, *({"shards": n, **each} for each in VARIANTS)):
            clf, _ = fitted(X.iloc[rest], y[rest], device, random_state=100, **settings)
            print(settings, judged(clf, X.iloc[held], y[held]), flush=True)


def deleted(clf: dwac.DWACClassifier, X: pd.DataFrame, y: Any, *, verified: bool) -> dict[str, float]:
    """The mean seconds of an exact deletion, and the share of networks that it trains."""
    places = np.linspace(0, len(clf.references_) - 1, DELETED).astype(int)
    gone = [clf.references_.ids[place] for place in places]
    for row in gone:
        clf.forget([row], exact=True)
    if verified:
        again = dwac.DWACClassifier(**clf.get_params(deep=False)).fit(X.drop(gone), y[~X.index.isin(gone)])
        if not clf.deletions_[-1].verify(again):
            raise SystemExit("the model after deletion is not the one that fit gives without the rows")
    seconds = [certificate.seconds for certificate in clf.deletions_]
    networks = [len(certificate.retrained) / certificate.shards for certificate in clf.deletions_]
    return {"deletion (s)": float(np.mean(seconds)), "networks trained": float(np.mean(networks))}


def measure(given: argparse.Namespace) -> None:
    """One row of the record, before the means over seeds, as a file."""
    data = datasets.load("adult")
    X, y = data.X_train.iloc[: given.rows], np.asarray(data.y_train)[: given.rows]
    assert data.X_test is not None
    X_test, y_test, n, seed = data.X_test, np.asarray(data.y_test), given.shards, given.seed
    if given.choose:
        choose(X, y, given.device)
        return
    fitted(X[:2000], y[:2000], given.device, shards=n, random_state=0, epochs=1)  # what is done once is not counted
    clf, seconds = fitted(X, y, given.device, shards=n, random_state=seed, **SETTINGS[n])
    row = {"device": clf.model_.device.type, "shards": n, "seed": seed, "rows": len(X), "machine": machine()}
    row |= judged(clf, X_test, y_test) | {"fit (s)": seconds} | deleted(clf, X, y, verified=seed == 0)
    if not given.alone:
        whole, seconds = fitted(X, y, given.device, ensemble_size=n, random_state=seed)
        row |= {f"{name} of the ensemble": value for name, value in judged(whole, X_test, y_test).items()}
        row["ensemble's fit (s)"] = seconds
    given.out.mkdir(parents=True, exist_ok=True)
    name = f"deletion-{row['device']}-{n}-{seed}.json"
    (given.out / name).write_text(json.dumps(row))
    print(row, flush=True)


def machine() -> str:
    """Where it is measured, and with what."""
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{os.cpu_count()} cores of {record.processor()}{gpu}, torch {torch.__version__}"


def report(folder: Path) -> None:
    """The record: means over the seeds, each with the peer of the same seed."""
    found = pd.DataFrame([json.loads(path.read_text()) for path in sorted(folder.glob("deletion-*.json"))])
    rows = []
    for n, runs in found.groupby("shards"):
        peers = runs.groupby("seed")[[f"{name} of the ensemble" for name in ("accuracy", "log-loss")]].mean()
        own = runs[runs["device"] == "cpu"].groupby("seed")[["accuracy", "log-loss"]].mean()
        both = own.join(peers).mean()
        row = {"shards": n, **both, "points behind": both["accuracy of the ensemble"] - both["accuracy"]}
        for device, some in runs.dropna(subset="fit (s)").groupby("device"):
            timed = some[some["seed"] > 0] if device == "cuda" else some  # the first fit on a GPU compiles its kernels
            fit, deletion = timed["fit (s)"].mean(), timed["deletion (s)"].mean()
            row |= {f"fit, {device} (s)": fit, f"deletion, {device} (s)": deletion, f"share, {device}": deletion / fit}
        rows.append(row | {"networks trained": runs["networks trained"].mean()})
    ensembles = found.dropna(subset="accuracy of the ensemble").groupby("device")["seed"].unique()
    config = {
        "data": "adult",
        "training rows": int(found["rows"].max()),
        "seeds": sorted(found["seed"].unique().tolist()),
        "settings": {str(n): settings or "recipe" for n, settings in SETTINGS.items()},
        "deleted": f"{DELETED} rows, one by one",
        "measured on": sorted(found["machine"].unique().tolist()),
        "shards judged on": "cpu",
        "timed on a GPU": "seeds above 0, after kernels were compiled",
        "ensembles judged on": {device: sorted(seeds.tolist()) for device, seeds in ensembles.items()},
    }
    claim = (
        "An exact deletion costs 1/S of a fit, plus what is computed anew for all networks; S shards are within half a "
        "point of the accuracy of an ensemble of S networks. After deletion the model of seed 0 was, bit for bit, the "
        "one that fit gives without the rows, on the CPU and on the GPU."
    )
    record.write("deletion", claim, config, pd.DataFrame(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["measure", "report"])
    parser.add_argument("--out", type=Path, default=Path("deletion"))
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--alone", action="store_true", help="without the ensemble")
    parser.add_argument("--choose", action="store_true", help="print how variants do on held-out training rows")
    parser.add_argument("--rows", type=int, default=None, help="of the training rows, for a trial")
    given = parser.parse_args()
    report(given.out) if given.what == "report" else measure(given)


if __name__ == "__main__":
    main()
