"""`dwac demo`: DWACClassifier and its softmax twin on scikit-learn's digits, with one digit held out of training."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from dwac.conformal import ConformalPrediction
    from dwac.estimator.classifier import DWACClassifier
    from dwac.nn import SoftmaxTwin

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
    clf = fit(data, seed, console)
    show_results(clf, fit_twin(clf, data, seed, console), data, console)
    show_explanation(clf, data, console)


def load(held_out: int, seed: int) -> Digits:
    """All digits except one: four fifths for training, one fifth for testing."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    inside = np.flatnonzero(bunch.target != held_out)
    training, test = train_test_split(inside, test_size=0.2, stratify=bunch.target[inside], random_state=seed)
    return Digits(bunch.images, bunch.target, training, test, np.flatnonzero(bunch.target == held_out))


def fit(data: Digits, seed: int, console: Console) -> DWACClassifier:
    """Train a DWAC; ids are row numbers in the digits file."""
    from dwac.estimator.classifier import DWACClassifier

    start = time.perf_counter()
    clf = DWACClassifier(epochs=EPOCHS, random_state=seed)
    clf.fit(data.images[data.training], data.digits[data.training], ids=data.training.tolist())
    n_held = len(clf.validation_ids_) + len(clf.calibration_ids_)
    console.print(
        f"trained a DWAC: {len(clf.history_)} epochs in {time.perf_counter() - start:.0f} s, on "
        f"{len(data.training) - n_held} images; {len(clf.validation_ids_)} for early stopping, "
        f"{len(clf.calibration_ids_)} for calibration"
    )
    return clf


def fit_twin(clf: DWACClassifier, data: Digits, seed: int, console: Console) -> SoftmaxTwin:
    """Train the same network with a softmax instead of the vote, on the same rows."""
    import numpy as np
    import torch

    from dwac import training
    from dwac.encoders import backbone
    from dwac.nn import SoftmaxTwin
    from dwac.training.progress import progress_bar

    start, encoder, device = time.perf_counter(), clf.encoder_, clf.model_.device
    names = ("epochs", "batch_size", "learning_rate", "weight_decay", "patience", "beta2")
    settings = {name: getattr(encoder.recipe, name) for name in names} | ({"epochs": EPOCHS} if EPOCHS else {})
    x, y = _encoded(clf, data, np.setdiff1d(data.training, [*clf.validation_ids_, *clf.calibration_ids_]))
    validation = _encoded(clf, data, clf.validation_ids_.to_numpy())
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        progress_bar("training softmax", settings["epochs"], show="auto") as watch,
    ):
        torch.manual_seed(seed)
        network = backbone(encoder, clf.model_.ensemble_size)
        twin = SoftmaxTwin(network, len(clf.classes_), encoder.recipe.embedding_size).to(device)
        history = training.train(
            twin, x, y, validation=validation, augment=encoder.augment, seed=seed, **watch, **settings
        )
    console.print(f"trained its softmax twin: {len(history)} epochs in {time.perf_counter() - start:.0f} s")
    return twin


def _encoded(clf: DWACClassifier, data: Digits, rows: NDArray[np.int64]) -> tuple[Any, torch.Tensor]:
    """The inputs and the labels, as codes, of rows of the digits file."""
    import numpy as np
    import torch

    codes = np.searchsorted(clf.classes_, data.digits[rows])
    return clf.encoder_.transform(data.images[rows]), torch.as_tensor(codes)


def twin_scores(clf: DWACClassifier, twin: SoftmaxTwin, images: NDArray[Any]) -> NDArray[np.float64]:
    """(n, K): -P(y=k given x) by the softmax."""
    from dwac import conformal
    from dwac.nn import batches

    return conformal.nonconformity(batches.log_class_weights(twin, clf.encoder_.transform(images)), "probability")


def show_results(clf: DWACClassifier, twin: SoftmaxTwin, data: Digits, console: Console) -> None:
    """Accuracy and calibration; coverage and set sizes; typicality of test digits and of the digit left out."""
    import numpy as np

    from dwac import conformal, metrics

    x, strange = data.images[data.test], data.images[data.outside]
    codes = np.searchsorted(clf.classes_, data.digits[data.test])
    quality = Table("model", "accuracy", "calibration error", title="Accuracy and calibration on test digits")
    sets = Table(
        "model", "score", "ε", "coverage", "mean set size", "empty sets", title="Prediction sets on test digits"
    )
    trust = Table(
        "model", "score", "test digits", "digit left out", "AUROC", title="Is it known? Mean typicality and credibility"
    )
    scores = twin_scores(clf, twin, data.images[clf.calibration_ids_])
    calibration = conformal.Calibration(conformal.true_label_scores(scores, clf.calibration_y_))
    predictions: list[tuple[str, str, ConformalPrediction, ConformalPrediction]] = []
    for score in ("weights", "probability"):
        clf.set_params(nonconformity=score)
        predictions.append(("DWAC", score, clf.conformal(x), clf.conformal(strange)))
    clf.set_params(nonconformity="auto")
    inside, outside = (calibration.predict(twin_scores(clf, twin, images)) for images in (x, strange))
    predictions.append(("softmax", "probability", inside, outside))
    for name, p in (("DWAC", clf.predict_proba(x)), ("softmax", -twin_scores(clf, twin, x))):
        accuracy = metrics.accuracy(codes, p.argmax(axis=1))
        quality.add_row(name, f"{accuracy:.3f}", f"{metrics.calibration_error(codes, p):.4f}")
    for name, score, inside, outside in predictions:
        for epsilon in EPSILONS:
            sets.add_row(name, score, f"{epsilon}", *_set_cells(codes, inside, epsilon))
        trust.add_row(name, f"credibility, {score}", *_trust_cells(inside.credibility, outside.credibility))
        if score == "weights":  # which measures how known a row is, as typicality does
            trust.add_row(name, "typicality", *_trust_cells(inside.typicality, outside.typicality))
    for table in (quality, sets, trust):
        console.print(table)


def _trust_cells(inside: Any, outside: Any) -> tuple[str, ...]:
    from dwac import metrics

    return f"{inside.mean():.3f}", f"{outside.mean():.3f}", f"{metrics.ood_scores(inside, outside).auroc:.3f}"


def _set_cells(codes: NDArray[np.int64], prediction: ConformalPrediction, epsilon: float) -> tuple[str, ...]:
    from dwac import metrics

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
    explanation = clf.explain(x[doubtful : doubtful + 1], k=5)[0]
    console.print(
        f"\n[bold]Why?[/bold] The least typical test image is row {row} of the digits file, a {data.digits[row]}. "
        "The ids are row numbers in that file, too. First the image, then the training images with the most weight:\n"
    )
    rows = [row, *(neighbor.id for neighbor in explanation.neighbors)][: max(2, (console.width + 3) // 19)]
    console.print(pictures(data.images[rows], [str(i) for i in rows]), highlight=False)
    console.print(explanation.to_text(console.width), highlight=False, markup=False)


def pictures(images: NDArray[Any], titles: list[str]) -> str:
    """Small images side by side, two characters per pixel."""
    levels = (images / max(images.max(), 1) * (len(SHADES) - 1)).round().astype(int)
    lines = ["   ".join(title.ljust(16) for title in titles)]
    for y in range(images.shape[1]):
        lines.append("   ".join("".join(2 * SHADES[level] for level in image[y]) for image in levels))
    return "\n".join(line.rstrip() for line in lines) + "\n"
