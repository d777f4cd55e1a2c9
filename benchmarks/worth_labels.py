"""Claim: votes and worth together find flipped labels at least as well as cleanlab and KNN-Shapley do.

10 % of the labels are flipped, each to another class at random, in two tables, two sets of images and two of texts.
Five networks are trained, each without one of five folds. All rankings use the same five networks, and no label but
those with the flips. AUROC, and the precision among as many as were flipped:

- votes: P, the probability of a label by the network and the voters that left it out. It is cleanlab's self-confidence,
  and the order of `report.label_noise`;
- cleanlab's scores of the same probabilities: normalized margin and confidence-weighted entropy;
- worth: each example votes in the four networks that were trained on it. The rows that these left out judge its vote:
  the sum of its Shapley values for their (partly flipped) labels. Also where it votes among its own fold alone, in the
  network that left it out, and the others judge;
- worth, relative: gains / (gains + losses), the positive and the negative Shapley values. A vote in the midst of many
  counts for more, whatever its label; its share of gains does not;
- votes of all five: the mean of P and of the probability that the other voters give to a label in the four networks
  that were trained on it. `report.label_issues` takes this. It shows what is gained by asking five networks, not one;
- votes and worth, relative: the mean of P and of the relative worth;
- votes and worth: half P; a quarter what the other voters say in the four networks; a quarter the relative worth of its
  own vote in them. This is ours: others on it, and it on others;
- KNN-Shapley of pyDVL with 5 or 10 neighbours, whichever is better, with the same players and judges: in both ways as
  above by the networks' embeddings, and by pixels, TF-IDF or one-hot columns. pyDVL takes a loop in Python for that;
  here the same recursion is vectorised, and compared with pyDVL's values in each run.

The form of ours was chosen on other rows of five of these datasets and on CIFAR-10 and IMDB (`--seeds 100`), fixed, and
then applied to the rows reported. The first step may run elsewhere, on a GPU:

    python -m benchmarks.worth_labels embeddings --seeds 0 1 2
    python -m benchmarks.worth_labels judge --seeds 0 1 2        # needs cleanlab and pyDVL
    python -m benchmarks.worth_labels write --seeds 0 1 2
    python -m benchmarks.worth_labels lists --seeds 0 1 2        # what `report.label_issues` lists, before and now
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.metrics import roc_auc_score

import dwac
from benchmarks import record
from benchmarks.label_issues import FOLDS, NAMES, SETTINGS, flipped, load, plain_features
from dwac import ReferenceSet, worth
from dwac.estimator.out_of_fold import fold_classifiers
from dwac.estimator.preparation import take
from dwac.report.wrong_labels import label_noise, leave_one_out

RATE, MOST, TOLERANCE = 0.1, 5000, 1e-3
DEVELOPMENT = {"cifar10": {"encoder": "image:paper", "epochs": 10}}
NEIGHBOURS = (5, 10)
OURS, PEERS = "votes and worth (ours)", ("votes (self-confidence)", "cleanlab", "KNN-Shapley")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


# Step 1: embeddings


def rows_of(name: str, seed: int) -> slice:
    """Seeds from 100 on, for choosing the form, have other rows."""
    if name not in NAMES:
        return slice(3000)
    return slice(MOST, 2 * MOST) if seed >= 100 else slice(MOST)


def save_embeddings(name: str, X: Any, y: Ints, folder: Path, seed: int) -> None:
    """What each fold's network, trained without it, makes of all rows; and its votes on the rows of the fold."""
    folder.mkdir(parents=True, exist_ok=True)
    noisy, _ = flipped(y, RATE, seed)
    n_classes, started = int(y.max()) + 1, time.perf_counter()
    settings = (SETTINGS | DEVELOPMENT).get(name, {})
    clf = dwac.DWACClassifier(random_state=seed, training=dwac.Training(ensemble_size=1), **settings)
    fold_of, log_p, h, second = np.empty(len(y), int), np.full((len(y), n_classes), -np.inf), [], []
    for fold, (inside, _, other) in enumerate(fold_classifiers(clf, X, noisy, FOLDS)):
        votes = other.log_class_weights(take(X, inside))
        fold_of[inside] = fold
        log_p[np.ix_(inside, other.classes_)] = votes - np.logaddexp.reduce(votes, axis=1, keepdims=True)
        h.append(other.embed(X).astype(np.float32))
        second.append(other.references_.voters.look_alikes or (1.0, 0.0))
    seconds = time.perf_counter() - started
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else record.processor()
    np.savez_compressed(
        folder / f"{name}-{seed}.npz",
        fold_of=fold_of,
        log_p=log_p.astype(np.float32),
        look_alikes=np.array(second),
        device=device,
        **{f"h{fold}": each for fold, each in enumerate(h)},  # type: ignore[arg-type]
    )
    found = float(np.mean(log_p.argmax(axis=1) == y))
    print(f"{name} seed {seed}: accuracy {found:.4f}, {h[0].shape}, {seconds:.0f} s on {device}", flush=True)


class Networks(NamedTuple):
    """Five networks' views of n rows with partly flipped labels y."""

    h: list[Floats]  # (n, d) each
    fold_of: Ints
    log_p: Floats  # (n, K)
    second: Floats  # (5, 2): look-alikes
    y: Ints

    @classmethod
    def read(cls, path: Path, y: Ints) -> Networks:
        stored = np.load(path)
        h = [stored[f"h{fold}"] for fold in range(FOLDS)]
        return cls(h, stored["fold_of"], stored["log_p"].astype(np.float64), stored["look_alikes"], y)

    def voters(self, fold: int, rows: Ints) -> ReferenceSet:
        """Some rows as voters, in the embedding of the network that left out this fold."""
        second = tuple(self.second[fold]) if self.second[fold, 1] > 0 else None
        return ReferenceSet(self.h[fold][rows], self.y[rows], n_classes=self.log_p.shape[1], look_alikes=second)

    def sides(self, fold: int) -> tuple[Ints, Ints]:
        """The rows of the fold and the others."""
        return np.flatnonzero(self.fold_of == fold), np.flatnonzero(self.fold_of != fold)


# Step 2: rankings. Each is (n,), high where a label is probably right


def own(p: Floats, y: Ints) -> Floats:
    """What p (n, K) says of each row's own label."""
    return np.asarray(p[np.arange(len(y)), y])


def gains_and_losses(networks: Networks, *, inside: bool) -> Floats:
    """(n, 2): sums of the positive and of the negative Shapley values of each row's vote, over judges and networks.

    inside: the rows of a fold vote, and the others judge; else the other way round, which is how the model votes.
    """
    found, y = np.zeros((len(networks.y), 2)), torch.as_tensor(networks.y)
    for fold in range(FOLDS):
        players, judges = networks.sides(fold)[:: 1 if inside else -1]
        voters = networks.voters(fold, players)
        prior = torch.as_tensor(np.bincount(networks.y[players], minlength=voters.n_classes) / len(players))
        for rows, log_w in worth.vote_blocks(voters, torch.as_tensor(networks.h[fold][judges])):
            truths = y[judges[rows]]
            values, _ = worth.of_labels(log_w, voters.labels, truths, prior, tolerance=TOLERANCE)
            found[players, 0] += values.clamp_min(0).sum(dim=0).numpy()
            found[players, 1] += values.clamp_max(0).sum(dim=0).numpy()
    return found


def relative(values: Floats) -> Floats:
    """gains / (gains + losses)."""
    return np.asarray(values[:, 0] / (values[:, 0] - values[:, 1]))


def votes_of_those_who_saw(networks: Networks) -> Floats:
    """(n,): the mean probability of each label by the voters, itself left out, of the four networks trained on it."""
    found = np.zeros(len(networks.y))
    for fold in range(FOLDS):
        _, rows = networks.sides(fold)
        votes = leave_one_out(networks.voters(fold, rows))
        log_p = votes - np.logaddexp.reduce(votes, axis=1, keepdims=True)
        found[rows] += own(np.exp(log_p), networks.y[rows]) / (FOLDS - 1)
    return found


def squared_distances(a: Any, b: Any) -> Floats:
    """(n, m), of rows of dense or sparse matrices, in float64: equal only where rows are."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    if not issparse(a):
        centre = b.mean(axis=0)
        a, b = a - centre, b - centre
    sizes = [np.asarray((x.multiply(x) if issparse(x) else x * x).sum(axis=1)).reshape(-1) for x in (a, b)]
    product = a @ b.T
    return np.asarray(sizes[0][:, None] + sizes[1] - 2 * (product.toarray() if issparse(product) else product))


def knn_shapley(distances: Floats, same: NDArray[np.bool_]) -> Floats:
    """(2, m): KNN-Shapley values of players for 5 and 10 neighbours, summed over judges.

    Distances and whether labels are the same: (n, m). From the farthest to the nearest, as in pyDVL: v_m = a_m / m,
    v_i = v_(i+1) + (a_i - a_(i+1)) / max(k, i).
    """
    order = np.argsort(distances, axis=1)
    a = np.take_along_axis(same, order, axis=1).astype(np.float64)
    change, last, m = -np.diff(a, axis=1), a[:, -1:] / a.shape[1], a.shape[1]
    found = []
    for k in NEIGHBOURS:
        steps = np.concatenate([change / np.maximum(k, np.arange(1, m)), last], axis=1)
        values = steps[:, ::-1].cumsum(axis=1)[:, ::-1]
        found.append(np.bincount(order.reshape(-1), values.reshape(-1), minlength=m))
    return np.stack(found)


def by_neighbours(networks: Networks, views: Callable[[int], Any], *, inside: bool) -> list[Floats]:
    """(n,) each: KNN-Shapley values by the features `views(fold)` (n, q); inside: as for `gains_and_losses`."""
    found = np.zeros((len(NEIGHBOURS), len(networks.y)))
    for fold in range(FOLDS):
        players, judges = networks.sides(fold)[:: 1 if inside else -1]
        z = views(fold)
        for part in np.array_split(judges, max(1, len(judges) // 1000)):
            same = networks.y[part][:, None] == networks.y[players]
            found[:, players] += knn_shapley(squared_distances(z[part], z[players]), same)
    return list(found)


def check_against_pydvl(networks: Networks) -> None:
    """The same values as pyDVL's, for some players and judges, moved a little: equal distances have no order."""
    from pydvl.valuation import Dataset, KNNShapleyValuation
    from sklearn.neighbors import KNeighborsClassifier

    players, judges = (rows[:150] for rows in networks.sides(0))
    z, y = networks.h[0].astype(np.float64), networks.y
    z += 1e-3 * z.std() * np.random.default_rng(0).normal(size=z.shape)
    game = KNNShapleyValuation(KNeighborsClassifier(NEIGHBOURS[0]), Dataset(z[judges], y[judges]), progress=False).fit(
        Dataset(z[players], y[players])
    )
    ours = knn_shapley(squared_distances(z[judges], z[players]), y[judges][:, None] == y[players])[0]
    np.testing.assert_allclose(ours / len(judges), game.result.values, atol=1e-9)


def cleanlab(networks: Networks, method: str) -> Floats:
    from cleanlab.rank import get_label_quality_scores

    p = np.exp(networks.log_p)
    return np.asarray(get_label_quality_scores(networks.y, p / p.sum(axis=1, keepdims=True), method=method))


def neighbours(networks: Networks, X: Any) -> dict[str, list[Floats]]:
    """The rankings by KNN-Shapley."""
    plain = plain_features(X).fit_transform(X.reshape(len(X), -1) if isinstance(X, np.ndarray) else X)
    return {
        "KNN-Shapley, embeddings": by_neighbours(networks, networks.h.__getitem__, inside=False),
        "KNN-Shapley, embeddings, own fold": by_neighbours(networks, networks.h.__getitem__, inside=True),
        "KNN-Shapley, plain features": by_neighbours(networks, lambda _: plain, inside=False),
    }


def rankings(networks: Networks, X: Any) -> dict[str, list[Floats]]:
    """Every ranking; of several in a list the better one is reported."""
    votes = own(np.exp(networks.log_p), networks.y)
    among, voting = (gains_and_losses(networks, inside=inside) for inside in (True, False))
    seen = votes_of_those_who_saw(networks)
    return {
        OURS: [(2 * votes + seen + relative(voting)) / 4],
        "votes (self-confidence)": [votes],
        "cleanlab, normalized margin": [cleanlab(networks, "normalized_margin")],
        "cleanlab, confidence-weighted entropy": [cleanlab(networks, "confidence_weighted_entropy")],
        **neighbours(networks, X),
        "worth": [voting.sum(axis=1)],
        "worth, relative": [relative(voting)],
        "worth, own fold": [among.sum(axis=1)],
        "worth, own fold, relative": [relative(among)],
        "votes and worth, relative": [(votes + relative(voting)) / 2],
        "votes of all five": [(votes + seen) / 2],
    }


def judge(name: str, X: Any, y: Ints, folder: Path, seed: int) -> list[dict[str, Any]]:
    """One row for each ranking."""
    noisy, bad = flipped(y, RATE, seed)
    networks = Networks.read(folder / f"{name}-{seed}.npz", noisy)
    check_against_pydvl(networks)
    return [measured(name, rule, scores, bad) for rule, scores in rankings(networks, X).items()]


def measured(name: str, rule: str, scores: list[Floats], bad: NDArray[np.bool_]) -> dict[str, Any]:
    """AUROC and precision at the number of flips, of the better of the scores."""
    n = int(bad.sum())
    found = [(roc_auc_score(bad, -score), bad[np.argsort(score, kind="stable")[:n]].mean()) for score in scores]
    auroc, precision = np.max(found, axis=0)
    return {"dataset": name, "ranking": rule, "rows": len(bad), "AUROC": auroc, "precision": precision}


def _judged(folder: Path, name: str, seed: int) -> Path:
    return folder / f"judged-{name}-{seed}.json"


def write(folder: Path, seeds: list[int]) -> None:
    """The record: means over the seeds that have been judged."""
    import cleanlab as its
    import pydvl

    paths = [_judged(folder, name, seed) for name, seed in product(NAMES, seeds)]
    rows = [row for path in paths if path.exists() for row in json.loads(path.read_text())]
    table = pd.DataFrame(rows).groupby(["dataset", "ranking"], sort=False)
    means = table.mean().round(4).assign(seeds=table.size()).astype({"rows": int}).reset_index()
    config = {
        "flipped": RATE,
        "folds": FOLDS,
        "embeddings computed on": _devices(folder),
        "cleanlab": its.__version__,
        "pyDVL": pydvl.__version__,
        "settings that are not the defaults": {"all": "ensemble_size=1"} | {k: str(v) for k, v in SETTINGS.items()},
    }
    claim = (
        "Flipped labels are found at least as well by votes and worth together as by cleanlab and by KNN-Shapley, with "
        "the same five networks. AUROC, and precision among as many as were flipped."
    )
    record.write("worth_labels", f"{claim} {missed(means)}", config, means)


def missed(means: pd.DataFrame) -> str:
    """In which datasets ours is below the best of the peers, and by how much."""
    found = []
    for measure, name in product(("AUROC", "precision"), NAMES):
        of = means[means["dataset"] == name].set_index("ranking")[measure]
        apart = of[OURS] - of[of.index.str.startswith(PEERS)].max()
        if apart < 0:
            found.append(f"{measure} on {name} by {-apart:.4f}")
    return f"*Missed*: {', '.join(found)}." if found else "Met in all six, in both."


def lists(folder: Path, seeds: list[int]) -> None:
    """Claim: the labels that `report.label_issues` lists are more often wrong if all five networks are asked."""
    rows = []
    for name, seed in product(NAMES, seeds):
        noisy, bad = flipped(load(name, rows_of(name, seed))[1], RATE, seed)
        networks = Networks.read(folder / f"{name}-{seed}.npz", noisy)
        for rule, seen in (("out of fold", None), ("out of fold and trained on it", votes_of_those_who_saw(networks))):
            listed = bad[label_noise(networks.log_p, noisy, seen).issues]
            precision = listed.cumsum() / np.arange(1, len(listed) + 1)
            found = {"listed": len(listed), "precision": listed.mean(), "recall": listed.sum() / bad.sum()}
            found["average precision"] = precision[listed].mean()
            rows.append({"dataset": name, "networks asked": rule, "flipped": int(bad.sum())} | found)
    table = pd.DataFrame(rows).groupby(["dataset", "networks asked"], sort=False)
    means = table.mean().round(4).assign(seeds=table.size()).astype({"flipped": int, "listed": int}).reset_index()
    claim = (
        "The labels that `report.label_issues` lists are more often wrong, and the wrong ones come first (average "
        "precision within the list), if the four networks that were trained on a label are asked too. How many are "
        "listed is decided out of fold alone."
    )
    record.write("label_lists", claim, {"flipped": RATE, "folds": FOLDS, "devices": _devices(folder)}, means)


def _devices(folder: Path) -> list[str]:
    return sorted({str(np.load(path)["device"]) for path in sorted(folder.glob("*.npz"))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("embeddings", "judge", "write", "lists"))
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--embeddings", type=Path, default=Path("embeddings"), help="the folder, written and read")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)  # pyDVL's
    if options.step == "lists":
        lists(options.embeddings, options.seeds)
    elif options.step == "write":
        write(options.embeddings, options.seeds)
    else:
        for seed, name in product(options.seeds, options.names or NAMES):
            X, y = load(name, rows_of(name, seed))
            if options.step == "embeddings":
                save_embeddings(name, X, y, options.embeddings, seed)
            else:
                found = judge(name, X, y, options.embeddings, seed)
                _judged(options.embeddings, name, seed).write_text(json.dumps(found, default=float))
                print(pd.DataFrame(found).to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
