"""Claim: one score of how strange a row is, from its embedding h against the voters, is as good as any other.

First, encoders are trained: for each pair of known and unknown data a DWAC and its softmax twin. What scores need is
saved. Then every score is judged by its AUROC: the probability that an unknown row scores higher than a test row.

    python -m benchmarks.novelty_scores train FOLDER digits-3 fashion_mnist …      # best on a GPU
    python -m benchmarks.novelty_scores score FOLDER                               # and writes record and lab note
    python -m benchmarks.novelty_scores note                                       # only the tables of the note

No score sees strangers. Pairs named `look` are those on which choices were made: classes held out that are not among
the others, and validation rows made strange (mixtures of two images or texts of different classes).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer
from torch import Tensor

from benchmarks import record
from dwac import DWACClassifier, metrics
from dwac.estimator.settings import parameters
from dwac.nn import batches
from dwac.nn.ensemble import features_of
from dwac.nn.heads import WeightedAverage
from dwac.reference import ReferenceSet, novelty
from reproduction import datasets, post_hoc, settings
from reproduction.datasets import mnist
from reproduction.datasets.files import read
from reproduction.fit import build_encoder
from reproduction.rows import Library
from reproduction.rows import rows as take
from reproduction.twin import Twin

HEADS = ("dwac", "softmax")
MOST, SOME = 10_000, 4_000  # rows of each kind: at most saved, and judged
KS = (1, 5, 10, 50, 200)
WIDTHS = (32, 64, 128)  # of random projections
Ints = NDArray[np.int64]


# Pairs of known and unknown data


@dataclass
class Pair:
    """Rows to learn, test rows like them, and strangers by name; settings of the classifier."""

    X: Any
    y: Ints
    X_test: Any
    y_test: Ints
    strangers: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)


def pair(name: str) -> Pair:
    """A pair by name; `digits-3`: the digit 3 is unknown; `stackoverflow-tags-0`: tags 0, 4, 8, … are.

    `cifar10-guide10`: one network and 40 epochs, with an auxiliary weight of 10.
    """
    kind, _, held = name.partition("-")
    if kind == "digits":
        return _digits(int(held))
    library = Library()
    data = library.load(kind.removesuffix("_small"))
    values = settings.estimator_settings(kind.removesuffix("_small"), "best")
    values |= {"encoder": build_encoder(values["encoder"], library), "look_alikes": True}
    if held.startswith("guide"):
        values |= {"auxiliary_weight": float(held.removeprefix("guide")), "ensemble_size": 1, "epochs": 40}
    if kind in ("fashion_mnist", "fashion_mnist_small", "cifar10"):
        unknown = library.load("cifar100").X_test if kind == "cifar10" else _handwritten()
        found = Pair(data.X_train, data.y_train, data.X_test, data.y_test, {"images": unknown}, values)  # type: ignore[arg-type]
        return _fewer(found, 6000, 2000) if kind.endswith("_small") else found
    data = data if data.y_test is not None else data.split(0.1, seed=0)
    assert data.y_test is not None
    if held.startswith("tags-"):
        return _tags(data, int(held.removeprefix("tags-")), values)
    if kind == "covertype":
        return _covertype(data, values)
    strangers = (
        {"shuffled": shuffled(data.X_test)}
        if kind == "adult"
        else {"words": datasets.random_sentences(data.X_train, len(data.y_test), seed=0)}
    )
    return Pair(data.X_train, data.y_train, data.X_test, data.y_test, strangers, values)


def _handwritten() -> NDArray[np.uint8]:
    """The test images of MNIST, without reading the others."""
    file = mnist.MNIST_FILES[2]
    return mnist.parse(read(file), file.name)


def _digits(held: int) -> Pair:
    digits = load_digits()
    known = digits.target != held
    y = digits.target - (digits.target > held)
    X, X_test, y, y_test = train_test_split(digits.images[known], y[known], test_size=0.3, random_state=0)
    return Pair(X, y, X_test, y_test, {"digit": digits.images[~known]})


def _tags(data: datasets.Dataset, rest: int, values: dict[str, Any]) -> Pair:
    """Every fourth tag is unknown."""
    known, known_test = data.y_train % 4 != rest, data.y_test % 4 != rest  # type: ignore[operator]
    number = np.cumsum(np.arange(len(data.classes)) % 4 != rest) - 1
    strangers = {"tags": take(data.X_test, np.flatnonzero(~known_test))}
    X, X_test = take(data.X_train, np.flatnonzero(known)), take(data.X_test, np.flatnonzero(known_test))
    return Pair(X, number[data.y_train[known]], X_test, number[data.y_test[known_test]], strangers, values)  # type: ignore[index]


def _covertype(data: datasets.Dataset, values: dict[str, Any]) -> Pair:
    data, unknown = data.without(6)
    assert data.y_test is not None
    whole = Pair(data.X_train, data.y_train, data.X_test, data.y_test, {"class 7": unknown}, values | {"epochs": 20})
    return _fewer(whole, 60_000, MOST)


def _fewer(whole: Pair, most: int, test: int) -> Pair:
    kept, tested = (_drawn(len(y), n) for y, n in ((whole.y, most), (whole.y_test, test)))
    strangers = {name: take(X, _drawn(len(X), test)) for name, X in whole.strangers.items()}
    X, X_test = take(whole.X, kept), take(whole.X_test, tested)
    return Pair(X, whole.y[kept], X_test, whole.y_test[tested], strangers, whole.settings)


def _drawn(n: int, most: int) -> Ints:
    return np.sort(np.random.default_rng(0).permutation(n)[:most])


def shuffled(X: Any) -> pd.DataFrame:
    """Each column in an order of its own: every value is usual, every row is not."""
    rng = np.random.default_rng(0)
    return pd.DataFrame({name: X[name].to_numpy()[rng.permutation(len(X))] for name in X.columns}).astype(X.dtypes)


def made_strange(X: Any, y: Ints) -> dict[str, Any]:
    """Strangers made of known rows: each row is mixed with one of another class."""
    rng = np.random.default_rng(1)
    order = rng.permutation(len(y))
    other = order[np.array([int(rng.choice(np.flatnonzero(y[order] != label))) for label in y])]
    if isinstance(X, pd.DataFrame):
        half = rng.random((len(X), X.shape[1])) < 0.5
        columns = enumerate(X.columns)
        mixed = {c: np.where(half[:, j], X[c].to_numpy(), X[c].to_numpy()[other]) for j, c in columns}
        return {"mixed": pd.DataFrame(mixed).astype(X.dtypes)}
    if isinstance(X, np.ndarray) and X.ndim >= 3:
        partner, (height, width) = X[other], X.shape[1:3]
        quarters = X.copy()
        quarters[:, : height // 2, : width // 2] = partner[:, : height // 2, : width // 2]
        quarters[:, height // 2 :, width // 2 :] = partner[:, height // 2 :, width // 2 :]
        mean = ((X.astype(np.float64) + partner) / 2).astype(X.dtype)
        return {"mixed": mean, "quarters": quarters, "turned": np.ascontiguousarray(np.rot90(X, axes=(1, 2)))}
    words = [str(text).split() for text in X]
    mixed_words = [[w for w in words[i] + words[j] if rng.random() < 0.5] for i, j in enumerate(other)]
    return {"mixed": [" ".join(rng.permutation(w or ["the"])) for w in mixed_words]}


# Training, and what is saved


def train(name: str, head: str, folder: Path) -> None:
    """Fit one model, and save embeddings and all that is computed from features before h."""
    start, given = time.perf_counter(), pair(name)
    values = {**given.settings, "random_state": 0, "verbose": False}
    clf = (DWACClassifier(**parameters(values)) if head == "dwac" else Twin(**values)).fit(given.X, given.y)
    model = clf.model_
    fitted = time.perf_counter() - start
    held = np.union1d(clf.validation_ids_, clf.calibration_ids_)
    learned = np.setdiff1d(np.arange(len(given.y)), held)
    X_held, y_held = take(given.X, held), given.y[held]
    test = _drawn(len(given.y_test), MOST)
    parts = {"train": take(given.X, learned), "held": X_held, "test": take(given.X_test, test)}
    parts |= {f"out {key}": take(X, _drawn(len(X), MOST)) for key, X in given.strangers.items()}
    parts |= {f"made {key}": X for key, X in made_strange(X_held, y_held).items()}
    inputs = {key: clf.encoder_.transform(X) for key, X in parts.items()}
    h = {key: batches.embed(model, x)[:, : model.embedding_size] for key, x in inputs.items()}
    features = {key: _features(model, x) for key, x in inputs.items()}
    saved: dict[str, Any] = {"y train": given.y[learned], "y held": y_held, "y test": given.y_test[test]}
    saved |= {f"h {key}": value for key, value in h.items()} if head == "dwac" else {}
    saved["members"] = model.ensemble_size
    if head == "dwac":
        vectors = {key: batches.embed(model, x) for key, x in inputs.items() if key != "train"}
        saved |= {f"votes {key}": batches.votes(model, value) for key, value in vectors.items()}
    last = getattr(model, "auxiliary_head", None) if isinstance(model, WeightedAverage) else model.logits
    if last is not None:  # of a DWAC, the logits that guide it
        saved |= _with_logits(features, *post_hoc.last_layer(model, last))
    if head == "softmax":
        saved |= _neighbours("h", {key: value[:, None] for key, value in h.items()})
    saved |= _neighbours("f", features)
    saved |= _projected(features)
    arrays = {key: _array(value, key) for key, value in saved.items()}
    np.savez_compressed(folder / f"{name}.{head}.npz", **arrays)  # type: ignore[arg-type]
    correct = clf.score(parts["test"], given.y_test[test])
    print(
        f"{name} {head}: fit {fitted:.0f} s, all {time.perf_counter() - start:.0f} s, accuracy {correct:.4f}, "
        f"features {tuple(features['train'].shape)}",
        flush=True,
    )


def _array(value: Any, key: str) -> NDArray[Any]:
    array = np.asarray(value.cpu() if isinstance(value, Tensor) else value)
    if array.dtype.kind != "f":
        return array.astype(np.int32)
    return array.astype(np.float16 if key.startswith("h ") else np.float32)


@torch.no_grad()
def _features(model: Any, x: Any) -> Tensor:
    """What the embedding layer reads, (n, M, f)."""
    found = batches.apply(model, lambda part: features_of(model.backbone(*part)), x)
    return (found if found.ndim == 3 else found[:, None]).float()


def _normal(features: Tensor) -> Tensor:
    return torch.nn.functional.normalize(features, dim=-1)


def _nearest(reference: Tensor, queries: Tensor, k: int) -> Tensor:
    """Distances to the k nearest, (n, k)."""
    parts = [
        torch.cdist(part, reference, compute_mode="use_mm_for_euclid_dist").topk(k, largest=False)[0]
        for part in queries.split(1000)
    ]
    return torch.cat(parts)


def _neighbours(name: str, features: dict[str, Tensor]) -> dict[str, Tensor]:
    """Distances to the nearest training rows: of features normalised in each network, and of plain ones."""
    found: dict[str, Tensor] = {}
    spaces: dict[str, Callable[[Tensor], Tensor]] = {
        f"{name}n": lambda f: _normal(f).flatten(1),
        f"{name}p": lambda f: f.flatten(1),
    }
    ks = [k for k in KS if k < len(features["train"]) // 2]
    for space, function in spaces.items():
        reference = function(features["train"])
        for key, value in features.items():
            queries = function(value)
            if key == "train":  # each without itself
                some = queries[:: max(1, len(queries) // 3000)]
                distances = _nearest(reference, some, ks[-1] + 1)[:, 1:]
            else:
                distances = _nearest(reference, queries, ks[-1])
            found[f"near {space} {key}"] = distances[:, [k - 1 for k in ks]]
    return found


def _projected(features: dict[str, Tensor]) -> dict[str, Tensor]:
    """Distances to the nearest training row by random projections of normalised features to fewer dimensions."""
    found: dict[str, Tensor] = {}
    normal = {key: _normal(value).flatten(1) for key, value in features.items()}
    for width in WIDTHS:
        drawn = torch.randn(normal["train"].shape[1], width, generator=torch.Generator().manual_seed(0)) / width**0.5
        small = {key: value @ drawn.to(value) for key, value in normal.items()}
        found |= {f"near r{width} {key}": _nearest(small["train"], small[key], 1) for key in small if key != "train"}
    return found


def _with_logits(features: dict[str, Tensor], weight: Tensor, bias: Tensor) -> dict[str, Any]:
    """Logits; ViM, NNGuide and fDBD, high = strange."""
    flat = {key: value.flatten(1) for key, value in features.items()}
    found: dict[str, Any] = {}
    scorer = post_hoc.PostHoc(flat["train"], weight, bias)
    for key, value in flat.items():
        found[f"logits {key}"] = scorer.logits(value)
        if key != "train":
            scores = scorer.scores(value)
            found |= {f"rival {name} {key}": -scores[name] for name in ("vim", "nnguide", "fdbd")}
    return found


# Scores, and their AUROC

# Which strangers the reports show; the others are those on which choices were made.
REPORTED = {
    "digits-3": "digit 3, held out",
    "fashion_mnist_small": "Fashion-MNIST (6,000 rows), MNIST",
    "fashion_mnist": "Fashion-MNIST, MNIST",
    "cifar10": "CIFAR-10, CIFAR-100",
    "stackoverflow-tags-0": "Stack Overflow, held-out tags",
    "stackoverflow": "Stack Overflow, random words",
    "subjectivity": "Subjectivity, random words",
    "adult": "Adult, shuffled columns",
    "covertype": "Covertype (60,000 rows), class 7",
}
OURS = ("novelty, h", "novelty, features", "novelty, both")
CEILING = "all of these, seeing strangers"
TWINS = ("twin: probability", "twin: energy", "twin: 50th, features", "twin: ViM", "twin: NNGuide", "twin: fDBD")


def scores(folder: Path, name: str) -> Iterator[tuple[str, dict[str, float]]]:
    """For each kind of strangers of a pair: the AUROC of every score, by name."""
    own, twin = (_loaded(folder / f"{name}.{head}.npz") for head in HEADS)
    parts = [key.removeprefix("votes ") for key in own if key.startswith("votes ")]
    found = {key: _all_scores(own, twin, key) for key in parts}
    for key in parts:
        if key not in ("held", "test"):
            inside, outside = found["test" if key.startswith("out") else "held"], found[key]
            judged = {score: auroc(inside[score], outside[score]) for score in inside}
            yield key, judged | ({CEILING: ceiling(inside, outside)} if key.startswith("out") else {})


def ceiling(inside: dict[str, Any], outside: dict[str, Any]) -> float:
    """The AUROC of a logistic regression that sees strangers, by all scores of the encoder; cross-fitted."""
    names = [name for name in inside if not name.startswith("twin")]
    X = np.concatenate([np.stack([part[name] for name in names], axis=1) for part in (inside, outside)])
    strange = np.repeat([0, 1], [len(inside[names[0]]), len(outside[names[0]])])
    model = make_pipeline(QuantileTransformer(output_distribution="normal"), LogisticRegression(max_iter=500))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    found = cross_val_predict(model, X, strange, cv=folds, method="predict_proba")[:, 1]
    return auroc(found[strange == 0], found[strange == 1])


def _loaded(path: Path) -> dict[str, NDArray[Any]]:
    """What was saved, of each part at most `SOME` rows drawn at random; the voters are complete."""
    saved = dict(np.load(path))
    whole = {key for key in saved if key.endswith(" train") or saved[key].ndim == 0}
    return {key: value if key in whole else value[_drawn(len(value), SOME)] for key, value in saved.items()}


def _all_scores(own: dict[str, Any], twin: dict[str, Any], key: str) -> dict[str, Any]:
    """High = strange."""
    voters = own.setdefault("voters", ReferenceSet(own["h train"].astype(np.float32), own["y train"]))
    h = own[f"h {key}"].astype(np.float32)
    votes, near = own[f"votes {key}"], voters.nearest(h, 5).squared_distances
    found: dict[str, Any] = {
        "class weight": -votes.max(axis=1),
        "probability": _total(votes) - votes.max(axis=1),
        "1st, h": near[:, 0],
        "5th, h": near[:, -1],
        "1st, features": own[f"near fn {key}"][:, 0],
        "5th, features": own[f"near fn {key}"][:, 1],
        "50th, features": own[f"near fn {key}"][:, 3],
        "novelty, h": novelty(voters, h, directions=True).numpy(),
    }
    direction, distance = (own[f"near {space} {key}"][:, 0] ** 2 / own["members"] for space in ("fn", "fp"))
    found["novelty, features"] = np.log(direction + 1e-4) + np.log(distance + 1e-4)
    found["novelty, both"] = found["novelty, h"] + found["novelty, features"]
    found |= {f"1st, features in {width} dimensions": own[f"near r{width} {key}"][:, 0] for width in WIDTHS}
    for which, saved in (("guide: ", own), ("twin: ", twin)):
        if f"logits {key}" in saved:
            logits = saved[f"logits {key}"].astype(np.float64)
            found[f"{which}probability"] = _total(logits) - logits.max(axis=1)
            found[f"{which}energy"] = -_total(logits)
            named = {"ViM": "vim", "NNGuide": "nnguide", "fDBD": "fdbd"}
            found |= {f"{which}{title}": saved[f"rival {rival} {key}"] for title, rival in named.items()}
    return found | {"twin: 50th, features": twin[f"near fn {key}"][:, 3]}


def _total(votes: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.logaddexp.reduce(votes.astype(np.float64), axis=1))


def auroc(inside: NDArray[Any], outside: NDArray[Any]) -> float:
    """The probability that a stranger scores higher."""
    return metrics.ood_scores(-np.asarray(inside, dtype=float), -np.asarray(outside, dtype=float)).auroc


def report(folder: Path, names: list[str]) -> None:
    """Measure all pairs that are in the folder, and write the record."""
    names = names or sorted(path.name.removesuffix(".dwac.npz") for path in folder.glob("*.dwac.npz"))
    rows = []
    for name in names:
        for key, found in scores(folder, name):
            look = name not in REPORTED or key.startswith("made")
            rows.append({"pair": name, "strangers": key, "chosen on": look} | found)
            print(name, key, {score: round(value, 3) for score, value in found.items()}, flush=True)
    claim = (
        "AUROC of novelty scores: the probability that a stranger scores higher than a test row; of rows made strange "
        "(made …), than a validation row. Choices were made where `chosen on` is True."
    )
    config = {"rows of each kind": SOME, "voters": "all training rows", "encoders": "trained on one NVIDIA H200"}
    record.write("novelty_scores", claim, config, pd.DataFrame(rows).sort_values("chosen on", kind="stable"))


def note() -> None:
    """Put the tables of the record into the lab note, between its marks."""
    saved = json.loads((record.RESULTS / "novelty_scores.json").read_text())
    table = pd.DataFrame(saved["rows"])
    path = record.RESULTS.parent / "notes" / "novelty-scores.md"
    text = path.read_text()
    guided = table["pair"].str.contains("-guide")
    tables = {
        "reported": _reported(table[~guided]),
        "chosen": _chosen(table[~guided]),
        "guided": _guided(table[guided]),
    }
    for mark, written in tables.items():
        start, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
        before, rest = text.split(start)
        text = before + start + written + end + rest.split(end)[1]
    path.write_text(text)


def _columns(table: pd.DataFrame) -> list[str]:
    own = [name for name in table.columns[3:] if name not in (*OURS, *TWINS, CEILING)]
    return [*own, *OURS, CEILING, *TWINS]


def _reported(table: pd.DataFrame) -> str:
    """One row per score, one column per reported pair, the highest on the encoder of a DWAC in bold."""
    table = table[~table["chosen on"].astype(bool)].set_index("pair")
    names = [name for name in REPORTED if name in table.index]
    best = (
        table.loc[names, [c for c in _columns(table.reset_index()) if c not in (*TWINS, CEILING)]].max(axis=1).round(3)
    )
    rows = []
    for score in _columns(table.reset_index()):
        cells = []
        for name in names:
            value = float(table[score][name])
            text = "–" if np.isnan(value) else f"{value:.3f}"
            cells.append(f"**{text}**" if score not in (*TWINS, CEILING) and round(value, 3) == best[name] else text)
        rows.append({"score": score} | {REPORTED[name]: cell for name, cell in zip(names, cells, strict=True)})
    return record.markdown(pd.DataFrame(rows))


def _chosen(table: pd.DataFrame) -> str:
    """How far each score of a DWAC is behind the best one, where choices were made; and on the reported pairs."""
    scores = [c for c in _columns(table) if c not in (*TWINS, CEILING) and not c.startswith("guide")]
    behind = table[scores].sub(table[scores].max(axis=1), axis=0)
    look = table["chosen on"].astype(bool)
    rows = [
        {
            "score": score,
            "behind the best, chosen on: mean": f"{behind.loc[look, score].mean():.4f}",
            "most": f"{behind.loc[look, score].min():.3f}",
            "reported: mean": f"{behind.loc[~look, score].mean():.4f}",
            "most ": f"{behind.loc[~look, score].min():.3f}",
        }
        for score in scores
    ]
    return record.markdown(pd.DataFrame(rows))


def _guided(table: pd.DataFrame) -> str:
    """CIFAR-10 against CIFAR-100, one network, by the weight of the auxiliary softmax in its loss."""
    shown = ["class weight", "1st, features", "50th, features", *OURS, CEILING, "twin: energy", "twin: 50th, features"]
    table = table[table["strangers"] == "out images"].copy()
    table.insert(0, "auxiliary weight", table["pair"].str.extract(r"-guide(\d+)", expand=False).astype(int))
    chosen = table.sort_values("auxiliary weight")[["auxiliary weight", *shown]]
    return record.markdown(chosen.map(lambda value: f"{value:.3f}" if isinstance(value, float) else value))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("train", "score", "note"))
    parser.add_argument("folder", type=Path, nargs="?", default=Path("novelty"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--heads", nargs="*", default=HEADS)
    asked = parser.parse_args()
    if asked.what == "train":
        asked.folder.mkdir(parents=True, exist_ok=True)
        for name in asked.names:
            for head in asked.heads:
                train(name, head, asked.folder)
    elif asked.what == "score":
        report(asked.folder, asked.names)
    if asked.what != "train":
        note()


if __name__ == "__main__":
    main()
