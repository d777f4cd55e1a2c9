"""Claim: the map of groups keeps neighbours together better than the principal plane, in under a minute on one core.

For 600,000 examples in 96 dimensions the minute includes t-SNE and the placement of all examples, but not their
division into groups, which the reference set holds. The peer, in the same run, is the plane of the first two principal
components. Seconds are those of the processor, on one thread, so that a busy machine does not count. `trust` is scikit-
learn's trustworthiness of 2,000 new examples on the map: 1 if nearest neighbours there are neighbours in the embedding.
`5-NN` is the share of new examples whose label is that of the five nearest training examples on the map, beside the
same in the whole embedding. `silhouette` is that of the new examples' classes. New examples are placed by
the label that the model predicts for them, never by their own: their 5-NN on the map of groups is the model's accuracy.

    python -m benchmarks.map
    python -m benchmarks.map --embeddings adult.npz covertype.npz     # h_train, y_train, h_test, y_test of a model
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness
from sklearn.metrics import silhouette_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits

import dwac
from benchmarks import record
from dwac.report.maps import layout_of, places_of

SEED, POINTS, DIMENSIONS, CLASSES, JUDGED, NEW = 0, 600_000, 96, 7, 2000, 10_000


class Embeddings(NamedTuple):
    h: NDArray[Any]
    y: NDArray[Any]
    h_test: NDArray[Any]
    y_test: NDArray[Any]


class Placed(NamedTuple):
    training: NDArray[Any]
    new: NDArray[Any]
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.map")
    parser.add_argument("--embeddings", nargs="*", type=Path, default=[], metavar="FILE")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    sources: dict[str, Callable[[], Embeddings]] = {"digits (a network's)": digits, "clouds (synthetic)": clouds}
    sources |= {f"{path.stem} (a network's)": partial(loaded, path) for path in chosen.embeddings}
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for name, source in sources.items():
            data = judged_only(source())
            whole = KNeighborsClassifier(5).fit(data.h, data.y)
            exact = float(whole.score(data.h_test, data.y_test))
            for way, place in {"the map of groups": grouped, "the principal plane": flat}.items():
                found = place(data)
                rows.append(
                    {
                        "embeddings": name,
                        "examples": len(data.y),
                        "dimensions": data.h.shape[1],
                        "way": way,
                        "seconds": found.seconds,
                        **judged(found, data),
                        "5-NN, whole embedding": exact,
                    }
                )
                print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    untrue = 1 - table["trust"].to_numpy().reshape(-1, 2)
    table["distrust, times the plane's"] = np.stack([untrue[:, 0] / untrue[:, 1], np.ones(len(untrue))], axis=1).ravel()
    config = {"seed": SEED, "judged": JUDGED, "classes of clouds": CLASSES}
    record.write("map", (__doc__ or "").split("\n")[0], config, table)


def grouped(data: Embeddings) -> Placed:
    references = dwac.ReferenceSet(data.h, data.y)
    _ = references.groups  # held by the set; not part of the claim
    began = time.process_time()
    drawn = layout_of(references)
    training = places_of(references, drawn)
    seconds = time.process_time() - began
    predicted = references.log_class_weights(data.h_test).argmax(axis=1)
    return Placed(training, drawn.place(data.h_test, labels=predicted), seconds)


def flat(data: Embeddings) -> Placed:
    began = time.process_time()
    plane = PCA(2, svd_solver="covariance_eigh").fit(data.h)
    training = plane.transform(data.h)
    seconds = time.process_time() - began
    return Placed(training, plane.transform(data.h_test), seconds)


def judged(found: Placed, data: Embeddings) -> dict[str, float]:
    new, truth = found.new, data.y_test
    return {
        "trust": float(trustworthiness(data.h_test, new)),
        "5-NN": float(KNeighborsClassifier(5).fit(found.training, data.y).score(new, truth)),
        "silhouette": float(silhouette_score(new, truth)),
    }


def judged_only(data: Embeddings) -> Embeddings:
    """The same with only some new examples."""
    some = np.random.default_rng(SEED).permutation(len(data.y_test))[:JUDGED]
    return data._replace(h_test=data.h_test[some], y_test=data.y_test[some])


def digits() -> Embeddings:
    """Embeddings of a small network, trained on the spot."""
    x, x_test, y, y_test = train_test_split(*load_digits(return_X_y=True), test_size=0.4, random_state=SEED)
    clf = dwac.DWACClassifier(random_state=SEED, device="cpu", verbose=False).fit(x, y)
    refs = clf.references_
    return Embeddings(refs.embeddings.numpy(), refs.labels.numpy(), clf.embed(x_test), y_test)


def clouds() -> Embeddings:
    """Collapsed classes: centres far apart, members in a few directions about them, and a little noise."""
    rng = np.random.default_rng(SEED)
    y = rng.choice(CLASSES, size=POINTS + NEW, p=rng.dirichlet(np.full(CLASSES, 2.0)))
    centres = rng.normal(size=(CLASSES, DIMENSIONS))
    ways = 0.15 * rng.normal(size=(CLASSES, 5, DIMENSIONS))
    h = 0.05 * rng.normal(size=(len(y), DIMENSIONS)).astype(np.float32)
    for label in range(CLASSES):
        rows = np.flatnonzero(y == label)
        h[rows] += centres[label] + rng.normal(size=(len(rows), 5)) @ ways[label]
    return Embeddings(h[:POINTS], y[:POINTS], h[POINTS:], y[POINTS:])


def loaded(path: Path) -> Embeddings:
    """Embeddings of a trained network, saved by numpy.savez."""
    with np.load(path) as held:
        return Embeddings(*(held[name] for name in ("h_train", "y_train", "h_test", "y_test")))


if __name__ == "__main__":
    main()
