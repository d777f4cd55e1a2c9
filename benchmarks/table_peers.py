"""Claim: on Adult and Covertype, a vote of training rows is as accurate as TabM and ModernNCA, networks for tables.

Written here from the papers' descriptions, with the settings published as defaults:

- TabM (Gorishniy, Kotelnikov and Babenko 2024, arXiv:2410.24210): 32 networks in one, which share their matrices and
  have scales and biases of their own; two layers of 512, dropout .1; piecewise-linear embeddings of numbers, 48
  quantile bins, 16 dimensions; AdamW at 2e-3 with decay 3e-4, gradients clipped at 1, batches of 256 (Covertype 1,024),
  patience 16. Probabilities are averaged.
- ModernNCA (Ye, Yin, Zhan and Chao 2024, arXiv:2407.03257): periodic embeddings (77 frequencies, scale .0443, 34
  dimensions, one matrix for all columns), a linear map to 128 dimensions; P(y) is the softmax over -‖h - h_i‖ of the
  training rows, of which a random half vote in each step; AdamW at .01 with decay 2e-4, batches of 1,024, patience 20.

Left out of both: tuning by 100 trials of Optuna, by which the papers' own figures are higher than defaults reach; mixed
precision for ModernNCA. A fit may also end at --seconds, which its row then says. Numbers are standardised (TabM:
mapped to normal quantiles), categories one-hot, a gap a category of its own.

In the same run and on the same rows: DWAC with its frozen settings (`dwac.paper.settings.BEST`), its softmax twin, and
k nearest neighbours of DWAC's embeddings, k chosen on validation rows. Peers stop on the validation rows of DWAC, and
train on all others, also on those that DWAC keeps for calibration. Boosted trees: from their records.

    python -m benchmarks.table_peers --datasets adult adult_all covertype --seeds 0 1 2 --seconds 300
    python -m benchmarks.table_peers --held-out     # judges on a fifth of the training rows; test rows are not used
    python -m benchmarks.table_peers --page PARTS   # joins the JSON lines of several runs into docs/results
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import record
from dwac import DWACClassifier, metrics
from dwac.paper import Case, Records, fit
from dwac.paper.records import default_folder, device_name
from dwac.paper.rows import Library, rows
from dwac.paper.settings import SOURCES, estimator_settings

Ints = NDArray[np.int64]
KS = (1, 3, 5, 10, 20, 50, 100, 200, 500)
AT_ONCE = 512  # rows that are judged together


class Parts(NamedTuple):
    """Tensors of rows for training, validation and the judgement: numbers, plain 0/1 columns, labels."""

    training: tuple[Tensor, Tensor, Tensor]
    validation: tuple[Tensor, Tensor, Tensor]
    judged: tuple[Tensor, Tensor]


def encoded(X: pd.DataFrame, y: Ints, held: Ints, X_judged: pd.DataFrame, *, normal: bool, device: str) -> Parts:
    """Numbers standardised, or mapped to normal quantiles; categories and columns of two values as 0 and 1."""
    kept = np.setdiff1d(np.arange(len(y)), held)
    numeric = [name for name in X.columns if pd.api.types.is_numeric_dtype(X[name]) and X[name].nunique() > 2]
    flat = pd.get_dummies(pd.concat([X, X_judged]).drop(columns=numeric), dummy_na=False).astype(np.float32)
    gaps = X[[name for name in X.columns if X[name].isna().any()]].isna().to_numpy(np.float32)
    judged_gaps = X_judged[[name for name in X.columns if X[name].isna().any()]].isna().to_numpy(np.float32)
    plain = np.hstack([flat.to_numpy(), np.concatenate([gaps, judged_gaps])])
    numbers = pd.concat([X, X_judged])[numeric].to_numpy(np.float64)
    trained = numbers[kept]
    if normal:
        numbers = np.stack([_normal(trained[:, j], numbers[:, j]) for j in range(numbers.shape[1])], axis=1)
    else:
        numbers = (numbers - trained.mean(axis=0)) / trained.std(axis=0)
    x, z = (torch.as_tensor(part.astype(np.float32), device=device) for part in (numbers, plain))
    labels = torch.as_tensor(y, device=device)
    training, validation = ((x[i], z[i], labels[i]) for i in (kept, held))
    return Parts(training, validation, (x[len(y) :], z[len(y) :]))


def _normal(trained: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    quantiles = np.maximum.accumulate(np.quantile(trained, np.linspace(0, 1, 1000)))
    rank = (np.searchsorted(quantiles, values, "left") + np.searchsorted(quantiles, values, "right")) / 2000
    found: NDArray[np.float64] = torch.special.ndtri(torch.as_tensor(rank).clamp(1e-7, 1 - 1e-7)).numpy()
    return found.clip(-5.2, 5.2)


class Shared(nn.Module):
    """k linear maps with one matrix, x (n, k, a) → s ⊙ (W (r ⊙ x)) + b, (n, k, b); r and s start at 1."""

    def __init__(self, k: int, a: int, b: int, r: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(b, a).uniform_(-1, 1) / math.sqrt(a))
        self.r = nn.Parameter(torch.ones(k, a) if r is None else r)
        self.s = nn.Parameter(torch.ones(k, b))
        self.bias = nn.Parameter((torch.empty(b).uniform_(-1, 1) / math.sqrt(a)).repeat(k, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(n, k, b)."""
        return F.linear(x * self.r, self.weight) * self.s + self.bias


class TabM(nn.Module):
    """Numbers (n, p) and plain columns (n, q) → logits (n, k, K)."""

    edges: Tensor

    def __init__(self, x: Tensor, n_plain: int, n_classes: int, *, k: int = 32, width: int = 512) -> None:
        super().__init__()
        bins, size, p = 48, 16, x.shape[1]
        levels = torch.linspace(0, 1, bins + 1, device=x.device)
        self.register_buffer("edges", torch.quantile(x[torch.randperm(len(x))[:100_000].to(x.device)], levels, dim=0).T)
        self.line = nn.Parameter(torch.empty(p, size).uniform_(-1, 1))
        self.start = nn.Parameter(torch.empty(p, size).uniform_(-1, 1))
        self.pieces = nn.Parameter(torch.zeros(p, bins, size))
        # With embeddings the first scales are normal, one for each column.
        chunks = torch.tensor([size] * p + [1] * n_plain)
        r = torch.randn(k, p + n_plain).repeat_interleave(chunks, dim=1)
        self.first, self.second = Shared(k, p * size + n_plain, width, r), Shared(k, width, width)
        self.last = nn.Parameter(torch.empty(k, width, n_classes).uniform_(-1, 1) / math.sqrt(width))
        self.bias = nn.Parameter(torch.empty(k, n_classes).uniform_(-1, 1) / math.sqrt(width))
        self.k = k

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(n, k, K)."""
        low, high = self.edges[:, :-1], self.edges[:, 1:]
        inside = torch.where(high > low, (x[:, :, None] - low) / (high - low).clamp_min(1e-6), 0.0)  # ties have no bin
        inside = torch.cat(
            [inside[..., :1].clamp_max(1), inside[..., 1:-1].clamp(0, 1), inside[..., -1:].clamp_min(0)], 2
        )
        pieces = torch.einsum("npb,pbd->npd", inside, self.pieces)
        numbers = (x[:, :, None] * self.line + self.start + pieces).flatten(1)
        h = torch.cat([numbers, z], dim=1)[:, None].expand(-1, self.k, -1)
        for layer in (self.first, self.second):
            h = F.dropout(F.relu(layer(h)), 0.1, self.training)
        return torch.einsum("nkd,kdc->nkc", h, self.last.to(h.dtype)) + self.bias


class ModernNCA(nn.Module):
    """Numbers (n, p) and plain columns (n, q) → embeddings (n, 128), by which training rows vote."""

    def __init__(self, p: int, n_plain: int, n_classes: int) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.frequencies = nn.Parameter(0.04431360576139521 * torch.randn(p, 77))
        self.mix = nn.Linear(2 * 77, 34)
        self.encoder = nn.Linear(34 * p + n_plain, 128)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(n, 128)."""
        angles = 2 * math.pi * x[:, :, None] * self.frequencies
        waves = F.relu(self.mix(torch.cat([angles.cos(), angles.sin()], dim=2)))
        found: Tensor = self.encoder(torch.cat([waves.flatten(1), z], dim=1))
        return found

    def log_p(self, h: Tensor, voters: Tensor, labels: Tensor, *, own: bool = False) -> Tensor:
        """(n, K); own: the first n voters are the rows themselves, and none votes on itself."""
        apart = torch.cdist(h, voters)
        if own:
            apart = apart + torch.zeros_like(apart).fill_diagonal_(torch.inf)
        p = torch.softmax(-apart, dim=1) @ F.one_hot(labels, self.n_classes).to(apart)
        return (p + 1e-7).log()


def learn(
    model: nn.Module,
    step: Callable[[Tensor], Tensor],
    judge: Callable[[], Tensor],
    parts: Parts,
    *,
    rate: float,
    decay: float,
    batch: int,
    patience: int,
    seconds: float,
    clip: float | None = None,
) -> dict[str, Any]:
    """Train until `patience` epochs bring no higher validation accuracy; the best weights are restored."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    y, held_y, start = parts.training[2], parts.validation[2], time.perf_counter()
    best, weights, waited, epochs, ended = -1.0, copy.deepcopy(model.state_dict()), 0, 0, "finished"
    for _ in range(200):
        model.train()
        order = torch.randperm(len(y), device=y.device)
        for chosen in order.split(batch):
            optimizer.zero_grad(set_to_none=True)
            step(chosen).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
        model.eval()
        epochs += 1
        accuracy = float((judge().argmax(dim=1) == held_y).double().mean())
        waited = 0 if accuracy > best else waited + 1
        if accuracy > best:
            best, weights = accuracy, copy.deepcopy(model.state_dict())
        if waited >= patience or time.perf_counter() - start > seconds:
            ended = "stopped early" if waited >= patience else "out of time"
            break
    model.load_state_dict(weights)
    return {"epochs": epochs, "ended": ended, "seconds": time.perf_counter() - start}


def tabm(parts: Parts, n_classes: int, *, large: bool, seconds: float) -> tuple[Tensor, dict[str, Any]]:
    """log P of the judged rows (n, K), and how it was trained."""
    x, z, y = parts.training
    model = TabM(x, z.shape[1], n_classes).to(x.device)

    def step(chosen: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            logits = model(x[chosen], z[chosen])
        return F.cross_entropy(logits.float().flatten(0, 1), y[chosen].repeat_interleave(model.k))

    @torch.no_grad()
    def predict(x: Tensor, z: Tensor) -> Tensor:
        found = [torch.softmax(model(a, b).double(), 2).mean(1) for a, b in zip(*_split(x, z, 4096), strict=True)]
        return torch.cat(found).log()

    held = parts.validation
    facts = learn(
        model, step, lambda: predict(*held[:2]), parts, rate=2e-3, decay=3e-4, batch=1024 if large else 256,
        patience=16, seconds=seconds, clip=1.0,
    )  # fmt: skip
    return predict(*parts.judged), facts


def modern_nca(parts: Parts, n_classes: int, *, large: bool, seconds: float) -> tuple[Tensor, dict[str, Any]]:
    """log P of the judged rows (n, K), and how it was trained."""
    del large
    x, z, y = parts.training
    model = ModernNCA(x.shape[1], z.shape[1], n_classes).to(x.device)

    def step(chosen: Tensor) -> Tensor:
        others = torch.randperm(len(y), device=y.device)[: len(y) // 2]
        others = others[~torch.isin(others, chosen)]
        voters = torch.cat([chosen, others])
        h = model(x[voters], z[voters])
        return F.nll_loss(model.log_p(h[: len(chosen)], h, y[voters], own=True), y[chosen])

    @torch.no_grad()
    def predict(a: Tensor, b: Tensor) -> Tensor:
        voters = torch.cat([model(*part) for part in zip(*_split(x, z, 2**15), strict=True)])
        return torch.cat([model.log_p(model(*part), voters, y) for part in zip(*_split(a, b, AT_ONCE), strict=True)])

    facts = learn(
        model, step, lambda: predict(*parts.validation[:2]), parts, rate=0.01, decay=2e-4, batch=1024, patience=20,
        seconds=seconds,
    )  # fmt: skip
    return predict(*parts.judged), facts


def _split(x: Tensor, z: Tensor, size: int) -> tuple[Any, Any]:
    return x.split(size), z.split(size)


PEERS = {"TabM": (tabm, True), "ModernNCA": (modern_nca, False)}  # whether numbers are mapped to normal quantiles


def run(name: str, seed: int, *, seconds: float, held_out: bool, few: int | None, which: list[str]) -> Any:
    """One row of results after the other, for one dataset and seed."""
    trial = Library().trial(Case(name, "best", "dwac", seed))
    X, y, X_judged, y_judged = trial.X, trial.y, trial.X_test, trial.y_test
    if held_out or few:
        order = np.random.default_rng(seed).permutation(len(y))[:few]
        judged, kept = np.sort(order[: len(order) // 5]), np.sort(order[len(order) // 5 :])
        X, y, X_judged, y_judged = rows(X, kept), y[kept], rows(X, judged), y[judged]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    base = {"data": SOURCES[name].title, "seed": seed, "rows": len(y), "judged": len(y_judged)}
    base |= {"device": device_name(device), "torch": torch.__version__}
    values = estimator_settings(name, "best") | ({"epochs": 1} if few else {})
    clf = ours("dwac", values, seed).fit(X, y)
    yield base | {"model": "DWAC"} | scores(y_judged, np.log(clf.predict_proba(X_judged))) | _facts(clf)
    if "kNN" in which:
        yield base | {"model": "kNN of its embeddings"} | neighbours(clf, X_judged, y_judged)
    if "twin" in which:
        twin = ours("softmax", values, seed).fit(X, y)
        yield base | {"model": "softmax twin"} | scores(y_judged, np.log(twin.predict_proba(X_judged))) | _facts(twin)
    for peer, (train, normal) in PEERS.items():
        if peer in which:
            torch.manual_seed(seed)
            held = clf.validation_ids_.to_numpy()
            parts = encoded(X, y, held, X_judged, normal=normal, device=device.type)
            log_p, facts = train(parts, len(trial.classes), large=len(y) >= 100_000, seconds=seconds)
            yield base | {"model": peer} | scores(y_judged, log_p.double().cpu().numpy()) | facts
    for peer in SOURCES[name].peers:
        found = None if held_out or few else Records(default_folder()).read(Case(name, "best", peer, seed))
        if found is not None:
            kept_metrics = {
                key: found["metrics"]["accuracy"][key] for key in ("accuracy", "log_loss", "calibration_error")
            }
            yield base | {"model": f"{peer}, from its record"} | kept_metrics | {"seconds": found["seconds"]["fit"]}


def ours(head: str, values: dict[str, Any], seed: int) -> DWACClassifier:
    """Our classifier with its frozen settings."""
    encoder = fit.build_encoder(values["encoder"], Library())
    return DWACClassifier(**values | {"encoder": encoder, "head": head}, random_state=seed, verbose=False)


def _facts(clf: DWACClassifier) -> dict[str, Any]:
    history = clf.history_
    return {"epochs": len(history), "ended": history.attrs["ended"], "seconds": float(history["seconds"].sum())}


def scores(y: Ints, log_p: NDArray[np.float64]) -> dict[str, float]:
    """Accuracy, log loss and calibration error of log-probabilities (n, K)."""
    log_p = log_p - np.logaddexp.reduce(log_p, axis=1, keepdims=True)
    return {
        "accuracy": float((log_p.argmax(axis=1) == y).mean()),
        "log_loss": float(metrics.log_loss(y, log_p)),
        "calibration_error": float(metrics.calibration_error(y, np.exp(log_p))),
    }


def neighbours(clf: DWACClassifier, X: pd.DataFrame, y: Ints) -> dict[str, Any]:
    """The majority among the k nearest voters, k by the accuracy on validation rows; shares by Laplace's rule."""
    n_classes = len(clf.classes_)
    held = clf._validation_rows

    def counts(h: Any) -> NDArray[np.float64]:
        labels = np.asarray(clf.references_.nearest(h, min(max(KS), len(clf.references_))).labels)
        return np.cumsum(np.eye(n_classes)[labels], axis=1)

    def log_p(counted: NDArray[np.float64], k: int) -> NDArray[np.float64]:
        return np.log((counted[:, min(k, counted.shape[1]) - 1] + 1 / n_classes) / (k + 1))

    validation = counts(held.h)
    k = max(KS, key=lambda k: (float((log_p(validation, k).argmax(axis=1) == held.y).mean()), -k))
    return scores(y, log_p(counts(clf.embed(X)), k)) | {"k": k}


def page(found: pd.DataFrame, config: dict[str, Any]) -> None:
    """Means over seeds, as docs/results/table_peers.json and .md."""
    grouped = found.groupby(["data", "model"], sort=False)
    table = grouped[["accuracy", "log_loss", "calibration_error", "epochs", "seconds", "k"]].mean()
    table.insert(1, "± accuracy", grouped["accuracy"].std())
    table["seeds"] = grouped.size()
    table["out of time"] = grouped["ended"].agg(lambda of: int((of == "out of time").sum()))
    config |= {f"measured with {what}": " or ".join(sorted(set(found[what]))) for what in ("device", "torch")}
    claim = "Networks for tables on the same rows, with their published default settings; means over seeds."
    record.write("table_peers", claim, config, table.reset_index())


def main() -> None:
    """Measure, or join what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["adult", "adult_all", "covertype"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--models", nargs="+", default=["kNN", "twin", *PEERS])
    parser.add_argument("--seconds", type=float, default=300.0, help="for a fit of a peer")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--few", type=int, help="so many rows and one epoch: only to see that it runs")
    parser.add_argument("--lines", type=Path, help="append the results to this file as JSON lines, and write no page")
    parser.add_argument("--page", nargs="+", type=Path, help="files of JSON lines")
    asked = parser.parse_args()
    if asked.page:
        lines = [json.loads(line) for path in asked.page for line in path.read_text().splitlines()]
        return page(pd.DataFrame(lines), {"seconds per fit": asked.seconds})
    found = []
    for name in asked.datasets:
        for seed in asked.seeds:
            options = {"seconds": asked.seconds, "held_out": asked.held_out, "few": asked.few, "which": asked.models}
            for row in run(name, seed, **options):
                found.append(row)
                print(json.dumps(row), flush=True)
                if asked.lines:
                    with asked.lines.open("a") as file:
                        file.write(json.dumps(row) + "\n")
    if not (asked.lines or asked.held_out or asked.few):
        page(pd.DataFrame(found), {"seconds per fit": asked.seconds, "seeds": asked.seeds})
    return None


if __name__ == "__main__":
    main()
