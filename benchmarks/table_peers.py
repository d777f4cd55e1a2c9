"""Claim: on Adult and Covertype, a vote of training rows is as accurate as RealMLP, TabM and ModernNCA.

These are networks for tables. RealMLP (Holzmüller, Grinsztajn and Steinwart 2024, arXiv:2407.04491) is that of its
authors' package pytabkit, with its tuned defaults. Written here from the papers' descriptions:

- TabM (Gorishniy, Kotelnikov and Babenko 2024, arXiv:2410.24210), the smaller form with piecewise-linear embeddings,
  which its authors recommend: 32 networks that differ in the scales of their inputs and in their outputs. Its settings
  for each table are those that the authors published as tuned, by 100 trials of Optuna. Published: .869 on all rows of
  Adult, .976 on Covertype (64 % of its rows for training, 20 % for testing).
- ModernNCA (Ye, Yin, Zhan and Chao 2024, arXiv:2407.03257), with the settings published as defaults: periodic
  embeddings (77 frequencies, scale .0443, 34 dimensions, one matrix for all columns), a linear map to 128 dimensions;
  P(y) is the softmax over -‖h - h_i‖ of the training rows, of which a random half vote in each step; AdamW at .01 with
  decay 2e-4, batches of 1,024, patience 20. Left out: tuning, and mixed precision.

A fit may also end at --seconds, which its row then says. Numbers are standardised (TabM: mapped to normal quantiles),
categories one-hot, a gap a category of its own.

On the same rows, from their records (`python -m reproduction run`): DWAC, its softmax twin and boosted trees; the
nearest neighbours of DWAC's embeddings are in the paper's report. Peers stop on validation rows of their own, 16 % of
the training rows, about as many as in their papers.

    pip install pytabkit
    python -m benchmarks.table_peers                # three seeds of Adult, one of Covertype
    python -m benchmarks.table_peers --held-out     # judges on a fifth of the training rows; test rows are not used
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import record
from dwac import metrics
from reproduction.cases import Case
from reproduction.records import Records, default_folder, device_name
from reproduction.rows import Library, rows
from reproduction.settings import SOURCES

Ints = NDArray[np.int64]
VALIDATION = 0.16  # of the training rows, for a peer to stop on
RUNS = (
    ("adult", (0, 1, 2), ["RealMLP", "TabM", "ModernNCA"]),
    ("adult_all", (0, 1, 2), ["RealMLP", "TabM", "ModernNCA"]),
    ("covertype", (0,), ["RealMLP", "TabM", "ModernNCA"]),
)
AT_ONCE = 512  # rows that are judged together


class Shape(NamedTuple):
    """The settings of TabM."""

    blocks: int
    width: int
    dropout: float
    embedding: int
    bins: int
    rate: float
    decay: float
    batch: int


# As published: paper/exp/tabm-mini-piecewiselinear/{adult,covtype2} of its authors' repository, yandex-research/tabm.
_CENSUS = Shape(3, 864, 0.2083565877361451, 20, 117, 0.001215399574352129, 0.07288638510205457, 256)
_FOREST = Shape(3, 752, 0.06635772527219493, 20, 112, 0.0006170422038987598, 0.0001024963168282028, 1024)
TUNED = {"adult": _CENSUS, "adult_all": _CENSUS, "covertype": _FOREST}


class Parts(NamedTuple):
    """Tensors of rows for training, validation and the judgement: numbers, plain 0/1 columns, labels.

    sections: how many plain columns each column of the table has become.
    """

    training: tuple[Tensor, Tensor, Tensor]
    validation: tuple[Tensor, Tensor, Tensor]
    judged: tuple[Tensor, Tensor]
    sections: list[int]


def encoded(X: pd.DataFrame, y: Ints, held: Ints, X_judged: pd.DataFrame, *, normal: bool, device: str) -> Parts:
    """Numbers standardised, or mapped to normal quantiles; categories and columns of two values as 0 and 1."""
    kept = np.setdiff1d(np.arange(len(y)), held)
    numeric = [name for name in X.columns if pd.api.types.is_numeric_dtype(X[name]) and X[name].nunique() > 2]
    both = pd.concat([X, X_judged])
    flat = [
        pd.get_dummies(both[[name]], dummy_na=bool(X[name].isna().any())).to_numpy(np.float32)
        for name in X.columns
        if name not in numeric
    ]
    plain = np.hstack([np.empty((len(both), 0), np.float32), *flat])
    numbers = both[numeric].to_numpy(np.float64)
    trained = numbers[kept]
    if normal:
        numbers = np.stack([_normal(trained[:, j], numbers[:, j]) for j in range(numbers.shape[1])], axis=1)
    else:
        numbers = (numbers - trained.mean(axis=0)) / trained.std(axis=0)
    x, z = (torch.as_tensor(part.astype(np.float32), device=device) for part in (numbers, plain))
    labels = torch.as_tensor(y, device=device)
    training, validation = ((x[i], z[i], labels[i]) for i in (kept, held))
    return Parts(training, validation, (x[len(y) :], z[len(y) :]), [part.shape[1] for part in flat])


def _normal(trained: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    quantiles = np.maximum.accumulate(np.quantile(trained, np.linspace(0, 1, 1000)))
    rank = (np.searchsorted(quantiles, values, "left") + np.searchsorted(quantiles, values, "right")) / 2000
    found: NDArray[np.float64] = torch.special.ndtri(torch.as_tensor(rank).clamp(1e-7, 1 - 1e-7)).numpy()
    return found.clip(-5.2, 5.2)


class TabM(nn.Module):
    """Numbers (n, p) and plain columns (n, q) → logits (n, k, K).

    edges: the bins' (p, bins + 1). sections: how many plain columns each column of the table has become.
    """

    edges: Tensor

    def __init__(self, edges: Tensor, sections: list[int], n_classes: int, shape: Shape, *, k: int = 32) -> None:
        super().__init__()
        p, bins = edges.shape[0], edges.shape[1] - 1
        self.k, self.dropout = k, shape.dropout
        self.register_buffer("edges", edges)
        self.line = nn.Parameter(torch.empty(p, shape.embedding).uniform_(-1, 1))
        self.start = nn.Parameter(torch.empty(p, shape.embedding).uniform_(-1, 1))
        self.pieces = nn.Parameter(torch.zeros(p, bins, shape.embedding))
        # In each network, one normal scale for all inputs that come of a column.
        columns = torch.tensor([shape.embedding] * p + sections)
        self.scales = nn.Parameter(torch.randn(k, len(columns)).repeat_interleave(columns, dim=1))
        widths = [int(columns.sum())] + [shape.width] * shape.blocks
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.last = nn.Parameter(torch.empty(k, shape.width, n_classes).uniform_(-1, 1) / math.sqrt(shape.width))
        self.bias = nn.Parameter(torch.empty(k, n_classes).uniform_(-1, 1) / math.sqrt(shape.width))

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(n, k, K) of rows (n, p) and (n, q), which all networks see, or of their own, (n, k, p) and (n, k, q)."""
        low, high = self.edges[:, :-1], self.edges[:, 1:]
        inside = torch.where(high > low, (x[..., None] - low) / (high - low).clamp_min(1e-6), 0.0)  # ties have no bin
        inside = torch.cat(
            [inside[..., :1].clamp_max(1), inside[..., 1:-1].clamp(0, 1), inside[..., -1:].clamp_min(0)], -1
        )
        pieces = torch.einsum("...pb,pbd->...pd", inside, self.pieces)
        numbers = (x[..., None] * self.line + self.start + pieces).flatten(-2)
        h = torch.cat([numbers, z], dim=-1)
        h = (h if h.ndim == 3 else h[:, None]) * self.scales
        for layer in self.layers:
            h = F.dropout(F.relu(layer(h)), self.dropout, self.training)
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
    batches: Callable[[], Sequence[Tensor]],
    step: Callable[[Tensor], Tensor],
    judge: Callable[[], Tensor],
    parts: Parts,
    *,
    rate: float,
    decay: float,
    patience: int,
    seconds: float,
    clip: float = math.inf,
) -> dict[str, Any]:
    """Train until `patience` epochs bring no higher validation accuracy; the best weights are restored."""
    biases = [value for name, value in model.named_parameters() if name.endswith("bias")]
    weights = [value for name, value in model.named_parameters() if not name.endswith("bias")]
    groups: list[dict[str, Any]] = [{"params": weights}, {"params": biases, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=decay)
    held_y, start = parts.validation[2], time.perf_counter()
    best, kept, waited, epochs, ended = -1.0, copy.deepcopy(model.state_dict()), 0, 0, "finished"
    for _ in range(400):
        model.train()
        for chosen in batches():
            optimizer.zero_grad(set_to_none=True)
            step(chosen).backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
        model.eval()
        epochs += 1
        accuracy = float((judge().argmax(dim=1) == held_y).double().mean())
        waited = 0 if accuracy > best else waited + 1
        if accuracy > best:
            best, kept = accuracy, copy.deepcopy(model.state_dict())
        if waited >= patience or time.perf_counter() - start > seconds:
            ended = "stopped early" if waited >= patience else "out of time"
            break
    model.load_state_dict(kept)
    return {"epochs": epochs, "ended": ended, "seconds": time.perf_counter() - start}


def tabm(parts: Parts, n_classes: int, name: str, seconds: float) -> tuple[Tensor, dict[str, Any]]:
    """log P of the judged rows (n, K), and how it was trained."""
    x, z, y = parts.training
    shape = TUNED[name]
    levels = torch.linspace(0, 1, shape.bins + 1, device=x.device)
    edges = torch.quantile(x[torch.randperm(len(x))[:100_000].to(x.device)], levels, dim=0).T
    model = TabM(edges, parts.sections, n_classes, shape).to(x.device)

    def batches() -> Sequence[Tensor]:
        """Each network has an order of its own."""
        orders = torch.rand(len(y), model.k, device=y.device).argsort(dim=0)
        return list(orders.split(shape.batch))

    def step(chosen: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            logits = model(x[chosen], z[chosen])
        return F.cross_entropy(logits.float().flatten(0, 1), y[chosen].flatten())

    @torch.no_grad()
    def predict(x: Tensor, z: Tensor) -> Tensor:
        found = [torch.softmax(model(a, b).double(), 2).mean(1) for a, b in zip(*_split(x, z, 4096), strict=True)]
        return torch.cat(found).log()

    held = parts.validation
    facts = learn(
        model, batches, step, lambda: predict(*held[:2]), parts, rate=shape.rate, decay=shape.decay, patience=16,
        seconds=seconds, clip=1.0,
    )  # fmt: skip
    return predict(*parts.judged), facts


def modern_nca(parts: Parts, n_classes: int, name: str, seconds: float) -> tuple[Tensor, dict[str, Any]]:
    """log P of the judged rows (n, K), and how it was trained."""
    del name
    x, z, y = parts.training
    model = ModernNCA(x.shape[1], z.shape[1], n_classes).to(x.device)

    def batches() -> Sequence[Tensor]:
        return list(torch.randperm(len(y), device=y.device).split(1024))

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
        model, batches, step, lambda: predict(*parts.validation[:2]), parts, rate=0.01, decay=2e-4, patience=20,
        seconds=seconds,
    )  # fmt: skip
    return predict(*parts.judged), facts


def _split(x: Tensor, z: Tensor, size: int) -> tuple[Any, Any]:
    return x.split(size), z.split(size)


def real_mlp(
    X: pd.DataFrame, y: Ints, held: Ints, X_judged: pd.DataFrame, *, seed: int, device: str
) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """log P of the judged rows (n, K), and how it was trained."""
    from pytabkit import RealMLP_TD_Classifier

    tables = [table.astype(dict.fromkeys(categories(X), "category")) for table in (X, X_judged)]
    start = time.perf_counter()
    model = RealMLP_TD_Classifier(device=device, random_state=seed).fit(tables[0], y, val_idxs=held)
    seconds = time.perf_counter() - start
    log_p = np.log(np.maximum(model.predict_proba(tables[1]), 1e-12))
    return log_p, {"epochs": 256, "ended": "finished", "seconds": seconds}


def categories(X: pd.DataFrame) -> list[Any]:
    """The columns that are not numbers."""
    return [name for name in X.columns if not pd.api.types.is_numeric_dtype(X[name])]


NETWORKS = {"TabM": (tabm, True), "ModernNCA": (modern_nca, False)}  # whether numbers are mapped to normal quantiles


def run(name: str, seed: int, peer: str, *, seconds: float, held_out: bool, few: int | None) -> dict[str, Any]:
    """The row of results of one dataset, seed and peer."""
    trial = Library().trial(Case(name, "best", "dwac", seed))
    X, y, X_judged, y_judged = trial.X, trial.y, trial.X_test, trial.y_test
    if held_out or few:
        order = np.random.default_rng(seed).permutation(len(y))[:few]
        judged, kept = np.sort(order[: len(order) // 5]), np.sort(order[len(order) // 5 :])
        X, y, X_judged, y_judged = rows(X, kept), y[kept], rows(X, judged), y[judged]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    base = {"data": SOURCES[name].title, "seed": seed, "rows": len(y), "judged": len(y_judged)}
    base |= {"device": device_name(device), "torch": torch.__version__}
    held = np.sort(np.random.default_rng(seed).permutation(len(y))[: round(VALIDATION * len(y))])
    if peer == "RealMLP":
        log_p, facts = real_mlp(X, y, held, X_judged, seed=seed, device=device.type)
    else:
        train, normal = NETWORKS[peer]
        torch.manual_seed(seed)
        parts = encoded(X, y, held, X_judged, normal=normal, device=device.type)
        found, facts = train(parts, len(trial.classes), name, seconds)
        log_p = found.double().cpu().numpy()
    return base | {"model": peer} | scores(y_judged, log_p) | facts


def recorded(found: pd.DataFrame) -> list[dict[str, Any]]:
    """Our models and boosted trees on the same datasets and trials, from their records, where there are any."""
    names = {source.title: name for name, source in SOURCES.items()}
    rows = []
    for data, seed in found[["data", "seed"]].drop_duplicates().itertuples(index=False, name=None):
        for head in ("dwac", "softmax", *SOURCES[names[data]].peers):
            if (kept := Records(default_folder()).read(Case(names[data], "best", head, seed))) is not None:
                measured = kept["metrics"]["accuracy"]
                row = {
                    "data": data,
                    "seed": seed,
                    "model": f"{head}, from its record",
                    "seconds": kept["seconds"]["fit"],
                }
                rows.append(row | {what: measured[what] for what in ("accuracy", "log_loss", "calibration_error")})
    return rows


def scores(y: Ints, log_p: NDArray[np.float64]) -> dict[str, float]:
    """Accuracy, log loss and calibration error of log-probabilities (n, K)."""
    log_p = log_p - np.logaddexp.reduce(log_p, axis=1, keepdims=True)
    return {
        "accuracy": float((log_p.argmax(axis=1) == y).mean()),
        "log_loss": float(metrics.log_loss(y, log_p)),
        "calibration_error": float(metrics.calibration_error(y, np.exp(log_p))),
    }


def page(found: pd.DataFrame, config: dict[str, Any]) -> None:
    """Means over seeds, as docs/results/table_peers.json and .md."""
    devices = {f"measured with {what}": " or ".join(sorted(set(found[what]))) for what in ("device", "torch")}
    found = pd.concat([found, pd.DataFrame(recorded(found))]).sort_values("data", kind="stable")
    grouped = found.groupby(["data", "model"], sort=False)
    table = grouped[["accuracy", "log_loss", "calibration_error", "epochs", "seconds"]].mean()
    table.insert(1, "± accuracy", grouped["accuracy"].std())
    table["seeds"] = grouped.size()
    table["out of time"] = grouped["ended"].agg(lambda of: int((of == "out of time").sum()))
    claim = "Networks for tables on the same rows, with published settings; means over seeds."
    record.write("table_peers", claim, config | devices, table.reset_index())


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1000.0, help="for a fit of a peer")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--few", type=int, help="so many rows: only to see that it runs")
    parser.add_argument("--only", nargs="*", help="parts, such as 'adult, 0, TabM': made, and kept for the record")
    asked = parser.parse_args()
    options = {"seconds": asked.seconds, "held_out": asked.held_out, "few": asked.few}
    plan = {
        f"{name}, {seed}, {peer}": (name, seed, peer) for name, seeds, which in RUNS for seed in seeds for peer in which
    }
    chosen = asked.only or list(plan)
    found = [record.part(part, partial(run, *plan[part], **options)) for part in chosen]
    if asked.only:
        return
    if asked.held_out or asked.few:
        print(pd.DataFrame(found).to_string())
    else:
        page(pd.DataFrame(found), {"seconds per fit": asked.seconds})


if __name__ == "__main__":
    main()
