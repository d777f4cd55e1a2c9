"""placeholder"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import dwac
from benchmarks import record
from benchmarks.label_issues import FOLDS, NAMES, SETTINGS, flipped, load
from dwac.estimator.out_of_fold import fold_classifiers
from dwac.estimator.preparation import take

RATE, MOST = 0.1, 5000
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def rows_for(seed: int) -> slice:
    """Seeds from 100 on, by which the form was chosen, have other rows."""
    return slice(MOST, 2 * MOST) if seed >= 100 else slice(MOST)


def save_embeddings(name: str, X: Any, y: Any, folder: Path, seed: int) -> None:
    """What each fold's network, trained without it, makes of all rows; and its votes on the rows of the fold."""
    folder.mkdir(parents=True, exist_ok=True)
    noisy, _ = flipped(y, RATE, seed)
    n_classes, started = int(y.max()) + 1, time.perf_counter()
    clf = dwac.DWACClassifier(random_state=seed, ensemble_size=1, **SETTINGS.get(name, {}))
    fold_of, log_p, h, second = np.empty(len(y), int), np.full((len(y), n_classes), -np.inf), [], []
    for fold, (inside, _, other) in enumerate(fold_classifiers(clf, X, noisy, FOLDS)):
        votes = other.log_class_weights(take(X, inside))
        fold_of[inside] = fold
        log_p[np.ix_(inside, other.classes_)] = votes - np.logaddexp.reduce(votes, axis=1, keepdims=True)
        h.append(other.embed(X).astype(np.float32))
        second.append(other.references_.look_alikes or (1.0, 0.0))
    seconds = time.perf_counter() - started
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else record.processor()
    np.savez_compressed(
        folder / f"{name}-{seed}.npz",
        fold_of=fold_of,
        log_p=log_p.astype(np.float32),
        look_alikes=np.array(second),
        seconds=seconds,
        device=device,
        **{f"h{fold}": each for fold, each in enumerate(h)},
    )
    found = float(np.mean(log_p.argmax(axis=1) == y))
    print(f"{name} seed {seed}: accuracy {found:.4f}, {h[0].shape}, {seconds:.0f} s on {device}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("embeddings", "judge"))
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--embeddings", type=Path, default=Path("embeddings"), help="the folder, written and read")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    options = parser.parse_args()
    for name in options.names or NAMES:
        for seed in options.seeds:
            X, y = load(name, rows_for(seed))
            save_embeddings(name, X, y, options.embeddings, seed)


if __name__ == "__main__":
    main()
