"""Claim: on digits and a table, every |h| × learning rate × depth trains to within 2 points of its softmax twin.

Unscaled inputs (digits × 160) go beyond the claim, to show what an epsilon inside the log does there.
"""

from __future__ import annotations

import itertools
from typing import Any

import pandas as pd
import torch
from sklearn.datasets import load_digits, make_classification
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from dwac.kernels import log_weights
from dwac.nn import SoftmaxTwin, WeightedAverage
from dwac.nn.heads import Model
from dwac.training import evaluate, train

SIZES, RATES, DEPTHS, DATASETS = (2, 32), (1e-3, 1e-2), (1, 3), ("digits", "table")  # the ends of each range
WIDE = "digits × 160"  # unscaled inputs: embeddings start far apart, as they may on large tables
WIDTH, EPOCHS, SEED = 64, 40, 0


class EpsilonInTheLog(WeightedAverage):
    """log(Σ all + 1e-12) - log(Σ own class + 1e-12): if an example's own class is far, only the others push it."""

    def loss(self, x: Any, y: Tensor, **_: Any) -> Tensor:
        h = self.embed(x)
        weights = log_weights(h, h).exp() * (1 - torch.eye(len(h)))
        own = (weights * (y[:, None] == y)).sum(dim=1)
        return ((weights.sum(dim=1) + 1e-12).log() - (own + 1e-12).log()).mean()


def load(dataset: str) -> list[Tensor]:
    """x_train, x_test, y_train, y_test."""
    if dataset in ("digits", WIDE):
        x, y = load_digits(return_X_y=True)
        x = x * (1 / 16 if dataset == "digits" else 10)
    else:
        x, y = make_classification(
            4000, 20, n_informative=8, n_classes=5, n_clusters_per_class=2, class_sep=1.5, random_state=SEED
        )
    split: list[Tensor] = train_test_split(
        torch.tensor(x, dtype=torch.float32), torch.tensor(y), test_size=0.4, random_state=SEED, stratify=y
    )
    return split


def build(head: str, n_inputs: int, n_classes: int, size: int, depth: int) -> Model:
    """A multilayer perceptron with `depth` hidden layers and one of the heads."""
    torch.manual_seed(SEED)
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Linear(WIDTH if i else n_inputs, WIDTH), nn.ReLU()]
    backbone = nn.Sequential(*layers)
    if head == "twin":
        return SoftmaxTwin(backbone, n_classes, size)
    if head == "epsilon":
        return EpsilonInTheLog(backbone, n_classes, size)
    return WeightedAverage(backbone, n_classes, size, penalty=1e-3)


def run(head: str, dataset: str, size: int, rate: float, depth: int) -> dict[str, Any]:
    """Train one setting; returns its test accuracy and the largest norm of its embeddings."""
    x, x_test, y, y_test = load(dataset)
    model = build(head, x.shape[1], int(y.max()) + 1, size, depth)
    train(model, x, y, epochs=EPOCHS, learning_rate=rate, seed=SEED)
    with torch.no_grad():
        spread = float(model.embed(x).norm(dim=1).max())
    return {"accuracy": evaluate(model, x_test, y_test)[1], "spread": spread}


def grid() -> pd.DataFrame:
    """One row per setting: accuracy and largest ‖h‖ of ours and of the twin."""
    rows = []
    for dataset, depth, rate, size in itertools.product(DATASETS, DEPTHS, RATES, SIZES):
        row: dict[str, Any] = {"data": dataset, "depth": depth, "rate": rate, "h": size}
        for head in ("twin", "dwac"):
            result = run(head, dataset, size, rate, depth)
            row |= {head: result["accuracy"], f"max |h| {head}": result["spread"]}
        rows.append(row)
    return pd.DataFrame(rows)
