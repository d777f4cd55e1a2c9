"""`dwac demo`: DWACClassifier and its softmax twin on scikit-learn's digits, with one digit held out of training."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dwac import metrics
from dwac.conformal import ConformalPrediction
from dwac.estimator.classifier import DWACClassifier

EPOCHS: int | None = None  # as the image encoder recommends
EPSILONS = (0.05, 0.1)
SHADES = " ░▒▓█"


@dataclass(frozen=True)
class Digits:
    """Images (n, 8, 8) of whole numbers 0 … 16, and one digit that is in neither training nor test."""

    images: NDArray[Any]  # all of scikit-learn's file
    digits: NDArray[np.int64]
    training: NDArray[np.int64]  # row numbers in the file
    test: NDArray[np.int64]
    outside: NDArray[np.int64]


def demo(
    held_out: Annotated[int, typer.Option(min=0, max=9, help="The digit to leave out of training.")] = 9,
    seed: Annotated[int, typer.Option(help="Random seed of the split and of training.")] = 0,
) -> None:
    """Train on handwritten digits except one, and see how the model treats the digit it has never seen.

    Example: dwac demo --held-out 3
    """
    console = Console()
    data = load(held_out, seed)
    console.print(
        f"[bold]Digits without the {held_out}[/bold]: {len(data.training)} training images, {len(data.test)} test "
        f"images; out-of-distribution: {len(data.outside)} images of {held_out}."
    )
    models = {name: fit(head, data, seed, console) for name, head in (("DWAC", "dwac"), ("softmax", "softmax"))}
    show_results(models, data, console)
    show_explanation(models["DWAC"], data, console)


def load(held_out: int, seed: int) -> Digits:
    """All digits except one: four fifths for training, one fifth for testing."""
    bunch = load_digits()
    inside = np.flatnonzero(bunch.target != held_out)
    training, test = train_test_split(inside, test_size=0.2, stratify=bunch.target[inside], random_state=seed)
    return Digits(bunch.images, bunch.target, training, test, np.flatnonzero(bunch.target == held_out))


def fit(head: str, data: Digits, seed: int, console: Console) -> DWACClassifier:
    """Train a model; ids are row numbers in the digits file."""
    start = time.perf_counter()
    clf = DWACClassifier(head=head, epochs=EPOCHS, random_state=seed)
    clf.fit(data.images[data.training], data.digits[data.training], ids=data.training.tolist())
    n_held = len(clf.validation_ids_) + len(clf.calibration_ids_)
    console.print(
        f"trained head={head!r}: {len(clf.history_)} epochs in {time.perf_counter() - start:.0f} s, on "
        f"{len(data.training) - n_held} images; {len(clf.validation_ids_)} for early stopping, "
        f"{len(clf.calibration_ids_)} for calibration"
    )
    return clf


def show_results(models: dict[str, DWACClassifier], data: Digits, console: Console) -> None:
    """Accuracy and calibration; coverage and set sizes; typicality of test digits and of the digit left out."""
    x, truth = data.images[data.test], data.digits[data.test]
    quality = Table("model", "accuracy", "calibration error", title="Accuracy and calibration on test digits")
    sets = Table(
        "model", "score", "ε", "coverage", "mean set size", "empty sets", title="Prediction sets on test digits"
    )
    trust = Table(
        "model", "score", "test digits", "digit left out", "AUROC", title="Is it known? Mean typicality and credibility"
    )
    for name, clf in models.items():
        codes = np.searchsorted(clf.classes_, truth)
        error = metrics.calibration_error(codes, clf.predict_proba(x))
        quality.add_row(name, f"{clf.score(x, truth):.3f}", f"{error:.4f}")
        for score in ("weights", "probability") if name == "DWAC" else ("probability",):
            clf.set_params(nonconformity=score)
            inside, outside = clf.conformal(x), clf.conformal(data.images[data.outside])
            for epsilon in EPSILONS:
                sets.add_row(name, score, f"{epsilon}", *_set_cells(codes, inside, epsilon))
            auroc = metrics.ood_scores(inside.credibility, outside.credibility).auroc
            means = (f"{p.credibility.mean():.3f}" for p in (inside, outside))
            trust.add_row(name, f"credibility, {score}", *means, f"{auroc:.3f}")
        clf.set_params(nonconformity="auto")
        if inside.typicality is not None and outside.typicality is not None:
            auroc = metrics.ood_scores(inside.typicality, outside.typicality).auroc
            means = (f"{p.mean():.3f}" for p in (inside.typicality, outside.typicality))
            trust.add_row(name, "typicality", *means, f"{auroc:.3f}")
    for table in (quality, sets, trust):
        console.print(table)


def _set_cells(codes: NDArray[np.int64], prediction: ConformalPrediction, epsilon: float) -> tuple[str, ...]:
    chosen = prediction.label_sets(epsilon)
    sizes = metrics.set_sizes(chosen)
    return f"{metrics.coverage(codes, chosen):.3f}", f"{sizes.mean:.2f}", f"{sizes.empty:.3f}"


def show_explanation(clf: DWACClassifier, data: Digits, console: Console) -> None:
    """The least typical test digit, the training digits that voted on it, and their votes."""
    x = data.images[data.test]
    typicality = clf.conformal(x).typicality
    assert typicality is not None
    doubtful = int(typicality.argmin())
    row = data.test[doubtful]
    found = clf.explain(x[doubtful : doubtful + 1], k=5)[0]
    console.print(
        f"\n[bold]Why?[/bold] The least typical test image is row {row} of the digits file, a {data.digits[row]}. "
        "The ids are row numbers in that file, too. First the image, then the training images with the most weight:\n"
    )
    rows = [row, *(neighbor.id for neighbor in found.neighbors)][: max(2, (console.width + 3) // 19)]
    console.print(pictures(data.images[rows], [str(i) for i in rows]), highlight=False)
    console.print(found.to_text(console.width), highlight=False, markup=False)


def pictures(images: NDArray[Any], titles: list[str]) -> str:
    """Small images side by side, two characters per pixel."""
    levels = (images / max(images.max(), 1) * (len(SHADES) - 1)).round().astype(int)
    lines = ["   ".join(title.ljust(16) for title in titles)]
    for y in range(images.shape[1]):
        lines.append("   ".join("".join(2 * SHADES[level] for level in image[y]) for image in levels))
    return "\n".join(line.rstrip() for line in lines) + "\n"
