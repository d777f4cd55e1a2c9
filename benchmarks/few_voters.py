"""Claim: ten groups decide a label, and a few voters give the labels and probabilities of all.

For the paper's datasets at hand, our best models: how few groups decide the label of a test row and what share of the
vote the five heaviest hold, exactly; and a condensed model beside the model it came from, in the same run: labels,
accuracy, log-loss, coverage at ε = .05 with the interval that chance allows, the size of the folders and the seconds
that condensing took. Models are trained once (minutes each, on a GPU) and kept in a folder.

    python -m benchmarks.few_voters --models FOLDER
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch

import dwac
from benchmarks import record
from dwac import metrics
from dwac.errors import InputError
from dwac.reference.references import without_look_alikes
from reproduction.cases import Case
from reproduction.fit import fit
from reproduction.rows import Library, Trial

DATASETS = ("adult", "covertype", "fashion_mnist", "stackoverflow")
EPSILON = 0.05
MOST = 2560  # representatives, where no smaller number keeps labels and probabilities
EXPLAINED = 200  # test rows on which the number of deciding groups is measured


def model_of(name: str, folder: Path, library: Library) -> tuple[dwac.DWACClassifier, Trial]:
    """The best model of a dataset's first trial, from the folder if it is there."""
    case = Case(name, "best", "dwac", 0)
    if (folder / name).is_dir():
        return dwac.load(folder / name), library.trial(case)
    fitted, _ = fit(case, library)
    fitted.clf.save(folder / name)
    return fitted.clf, fitted.trial


def judged(clf: dwac.DWACClassifier, h: torch.Tensor, y: Any, folder: Path) -> dict[str, Any]:
    """What a model says of test rows h with labels y, and the size of its folder."""
    votes = clf.references_.log_class_weights(h).cpu().numpy()
    codes = np.searchsorted(clf.classes_, y)
    sets = clf.conformal_of(votes).label_sets(EPSILON)
    log_p = votes - np.logaddexp.reduce(votes, axis=1, keepdims=True)
    clf.save(folder)
    return {
        "labels": votes.argmax(axis=1),
        "accuracy": metrics.accuracy(codes, votes.argmax(axis=1)),
        "log_loss": metrics.log_loss(codes, log_p),
        "coverage": metrics.coverage(codes, sets),
        "set_size": float(sets.sum(axis=1).mean()),
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
    }


def judged_loud(clf: dwac.DWACClassifier, trial: Trial) -> tuple[float, float]:
    """Accuracy and log-loss where look-alikes speak up."""
    votes = clf.log_class_weights(trial.X_test)
    log_p = votes - np.logaddexp.reduce(votes, axis=1, keepdims=True)
    codes = np.searchsorted(clf.classes_, trial.y_test)
    return metrics.accuracy(codes, votes.argmax(axis=1)), metrics.log_loss(codes, log_p)


def grouped(clf: dwac.DWACClassifier, h: torch.Tensor) -> dict[str, Any]:
    """How far groups explain: exact shares on all test rows, certified numbers on some."""
    log_w = clf.references_.log_group_weights(h).cpu().numpy()
    shares = np.exp(log_w - np.logaddexp.reduce(log_w, axis=1, keepdims=True))
    some = np.linspace(0, len(h) - 1, EXPLAINED).astype(int)
    explained = clf.explain_of(h[some], 5, private=False)
    return {
        "groups": log_w.shape[1],
        "deciding_groups": float(np.median([e.deciding_groups for e in explained])),
        "deciding_examples": float(np.median([e.deciding for e in explained])),
        "top5_share": float(np.sort(shares, axis=1)[:, -5:].sum(axis=1).mean()),
    }


def measured(name: str, models: Path, library: Library, keep: Path | None) -> dict[str, Any]:
    """One row of the table."""
    clf, trial = model_of(name, models, library)
    near = clf.references_.voters.look_alikes
    loud = None if near is None else judged_loud(clf, trial)
    if near is not None:  # representatives have no look-alikes: they are compared with the vote of the crowd
        clf.model_.references = without_look_alikes(clf.references_)
    start = time.perf_counter()
    try:
        few = clf.condense()
    except InputError as error:  # no number keeps enough
        print(name, error, flush=True)
        few = clf.condense(MOST)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    h, few_h = (torch.as_tensor(some.embed(trial.X_test)).to(some.model_.device) for some in (clf, few))
    if keep is not None:
        few.save(keep / name)
    with TemporaryDirectory() as folder:
        whole = judged(clf, h, trial.y_test, Path(folder) / "whole")
        condensed = judged(few, few_h, trial.y_test, Path(folder) / "few")
        network = sum(part.nbytes for part in clf.model_.state_dict().values()) - sum(
            part.nbytes for name, part in clf.model_.state_dict().items() if "ref_" in name
        )
    groups = grouped(clf, h)
    decided = [e.deciding for e in few.explain_of(few_h[:: max(1, len(few_h) // EXPLAINED)], 5, private=False)]
    chance = metrics.coverage_interval(EPSILON, len(few.calibration_y_), len(h))
    assert chance is not None  # there are calibration rows enough for this ε
    loss, same = condensed["log_loss"] / whole["log_loss"], float((whole["labels"] == condensed["labels"]).mean())
    kept = abs(condensed["accuracy"] - whole["accuracy"]) < 0.0010001 and loss <= 1.01 and same >= 0.995
    told = groups["deciding_groups"] <= 10 and groups["top5_share"] >= 0.5
    return {
        "dataset": name,
        "voters": len(clf.references_),
        "deciding examples": groups["deciding_examples"],
        "groups": groups["groups"],
        "deciding groups": groups["deciding_groups"],
        "top-5 share": groups["top5_share"],
        "told": "met" if told else "missed",
        "representatives": len(few.references_),
        "deciding of these": float(np.median(decided)),
        "same label": same,
        "accuracy, all": whole["accuracy"],
        "accuracy, few": condensed["accuracy"],
        "log-loss, all": whole["log_loss"],
        "log-loss ratio": loss,
        "kept": "met" if kept else "missed",
        "accuracy, look-alikes": float("nan") if loud is None else loud[0],
        "log-loss, look-alikes": float("nan") if loud is None else loud[1],
        "coverage": condensed["coverage"],
        "by chance": f"{chance[0]:.3f} to {chance[1]:.3f}",
        "set size, all": whole["set_size"],
        "set size, few": condensed["set_size"],
        "MB, all": whole["bytes"] / 1e6,
        "MB, few": condensed["bytes"] / 1e6,
        "MB, network": network / 1e6,
        "folder ratio": condensed["bytes"] / whole["bytes"],
        "seconds": seconds,
    }


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True, help="folder of trained models; filled if empty")
    parser.add_argument("--datasets", default=",".join(DATASETS), help="names with commas between")
    parser.add_argument("--keep", type=Path, help="folder to save the condensed models in")
    chosen = parser.parse_args()
    chosen.models.mkdir(parents=True, exist_ok=True)
    library, rows = Library(), []
    for name in chosen.datasets.split(","):
        rows.append(record.part(name, partial(measured, name, chosen.models, library, chosen.keep)))
    place = "gpu" if torch.cuda.is_available() else "cpu"
    record.write(f"few_voters_{place}", str(__doc__).split("\n\n")[0], {"epsilon": EPSILON}, pd.DataFrame(rows))


if __name__ == "__main__":
    main()
