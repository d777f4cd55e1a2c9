"""`dwac demo`: a DWAC and its softmax twin on scikit-learn's digits, with one digit held out as out-of-domain."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from dwac import metrics
from dwac.conformal import Calibration, ConformalPrediction, nonconformity, true_label_scores
from dwac.explain import explain
from dwac.nn import SoftmaxTwin, WeightedAverage
from dwac.training import Model, train

EPOCHS = 60
EPSILONS = (0.05, 0.1)


@dataclass(frozen=True)
class Digits:
    """Images as rows of 64 pixels in [0, 1], in four disjoint parts, and the digit that none of them holds."""

    parts: dict[str, tuple[Tensor, Tensor, NDArray[np.int64]]]  # x, y, row in scikit-learn's file
    outside: Tensor
    digits: list[int]  # the digit each class stands for


def demo(
    held_out: Annotated[int, typer.Option(min=0, max=9, help="The digit to hold out as out-of-domain.")] = 9,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the training.")] = 0,
) -> None:
    """Train on handwritten digits, hold one digit out, and see what the model says of each.

    Example: dwac demo --held-out 3
    """
    console = Console()
    data = load(held_out, seed)
    sizes = ", ".join(f"{len(y)} {name}" for name, (_, y, _) in data.parts.items())
    console.print(
        f"[bold]Digits without the {held_out}[/bold]: {sizes}; out of domain: {len(data.outside)} images of {held_out}."
    )
    models: dict[str, Model] = {}
    for name, head in (("DWAC", WeightedAverage), ("softmax", SoftmaxTwin)):
        torch.manual_seed(seed)
        models[name] = fit(head(backbone(), n_classes=len(data.digits)), data, name, seed, console)
    show_results(models, data, console)
    show_explanation(models["DWAC"], data, console)


def load(held_out: int, seed: int) -> Digits:
    """Split the in-domain digits: 55 % training, 10 % validation, 15 % calibration, 20 % test."""
    bunch = load_digits()
    digits = [digit for digit in range(10) if digit != held_out]
    inside = np.flatnonzero(bunch.target != held_out)
    x = torch.tensor(bunch.data / 16, dtype=torch.float32)
    y = torch.tensor(np.searchsorted(digits, bunch.target))
    parts, rest = {}, inside
    for name, count in (("test", 0.20), ("calibration", 0.15), ("validation", 0.10)):
        rest, chosen = train_test_split(
            rest, test_size=int(count * len(inside)), stratify=bunch.target[rest], random_state=seed
        )
        parts[name] = chosen
    rows = {"training": rest, **dict(reversed(parts.items()))}
    return Digits({name: (x[r], y[r], r) for name, r in rows.items()}, x[bunch.target == held_out], digits)


def backbone() -> nn.Module:
    """A small convolutional network on 8 × 8 images."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64 * 16, 128),
        nn.ReLU(),
    )


def fit(model: Model, data: Digits, name: str, seed: int, console: Console) -> Model:
    """Train with a progress bar."""
    x, y, rows = data.parts["training"]
    x_val, y_val, _ = data.parts["validation"]
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeRemainingColumn())
    start = time.perf_counter()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"training {name}", total=EPOCHS, state="")

        def step(row: dict[str, float]) -> None:
            progress.update(task, advance=1, state=f"loss {row['loss']:.3f}, accuracy {row['validation_accuracy']:.3f}")

        history = train(
            model,
            x,
            y,
            validation=(x_val, y_val),
            epochs=EPOCHS,
            learning_rate=3e-3,
            ids=torch.tensor(rows),
            seed=seed,
            on_epoch=step,
        )
    console.print(f"trained {name}: {len(history)} epochs in {time.perf_counter() - start:.0f} s")
    return model


@torch.no_grad()
def votes(model: Model, x: Tensor) -> NDArray[np.float64]:
    """Log class weights (softmax: logits), (n, K)."""
    return model.log_class_weights(x).numpy()


def calibrate(model: Model, data: Digits, kind: str) -> Calibration:
    """Calibration on the part that neither training nor early stopping saw."""
    x, y, _ = data.parts["calibration"]
    return Calibration(true_label_scores(nonconformity(votes(model, x), kind), y.numpy()))


def show_results(models: dict[str, Model], data: Digits, console: Console) -> None:
    """Accuracy and calibration; coverage and set sizes; credibility in and out of domain."""
    x, y, _ = data.parts["test"]
    truth = y.numpy()
    quality = Table("model", "accuracy", "calibration error", title="How good? (test digits)")
    sets = Table("model", "score", "ε", "coverage", "mean set size", "empty sets", title="How honest? (label sets)")
    trust = Table("model", "score", "in domain", "out of domain", "AUROC", title="How wary? (mean credibility)")
    for name, model in models.items():
        log_votes = votes(model, x)
        probabilities = -nonconformity(log_votes, "probability")
        error = metrics.calibration_error(truth, probabilities)
        quality.add_row(name, f"{metrics.accuracy(truth, probabilities.argmax(axis=1)):.3f}", f"{error:.4f}")
        for kind in ("weights", "probability") if name == "DWAC" else ("probability",):
            calibration = calibrate(model, data, kind)
            inside = calibration.predict(nonconformity(log_votes, kind))
            outside = calibration.predict(nonconformity(votes(model, data.outside), kind))
            for epsilon in EPSILONS:
                sets.add_row(name, kind, f"{epsilon}", *_set_cells(truth, inside, epsilon))
            auroc = metrics.ood_scores(inside.credibility, outside.credibility).auroc
            means = (f"{p.credibility.mean():.3f}" for p in (inside, outside))
            trust.add_row(name, kind, *means, f"{auroc:.3f}")
    for table in (quality, sets, trust):
        console.print(table)


def _set_cells(truth: NDArray[np.int64], prediction: ConformalPrediction, epsilon: float) -> tuple[str, ...]:
    chosen = prediction.label_sets(epsilon)
    sizes = metrics.set_sizes(chosen)
    return f"{metrics.coverage(truth, chosen):.3f}", f"{sizes.mean:.2f}", f"{sizes.empty:.3f}"


def show_explanation(model: Model, data: Digits, console: Console) -> None:
    """The least credible test digit, and the training digits that voted on it."""
    assert isinstance(model, WeightedAverage)
    x, y, rows = data.parts["test"]
    calibration = calibrate(model, data, "weights")
    doubtful = int(calibration.predict(nonconformity(votes(model, x), "weights")).credibility.argmin())
    with torch.no_grad():
        h = model.embed(x[doubtful : doubtful + 1])
    found = explain(model.references, h, k=5, calibration=calibration, classes=data.digits)[0]
    console.print(
        f"\n[bold]Why?[/bold] The least credible test image is row {rows[doubtful]} of the digits file, "
        f"a {data.digits[int(y[doubtful])]}. The ids below are rows of that file too."
    )
    console.print(str(found), highlight=False)
