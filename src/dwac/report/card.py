"""The model card: each fact with its value, and a sentence on what it means."""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Any, NamedTuple

import numpy as np

from dwac.drawing.records import written
from dwac.estimator.classifier import DWACClassifier
from dwac.report import words
from dwac.report.findings import Findings

_KINDS = {"tabular": "rows of a table", "image": "images", "text": "texts", "huggingface": "texts", "module": "tensors"}
_SILENT = {"encoder", "head", "kernel", "checkpoint", "device", "verbose"}  # said elsewhere, or of no consequence


class Fact(NamedTuple):
    """A number with its name and its meaning."""

    name: str
    value: str
    meaning: str


def version() -> str:
    """Of dwac."""
    return version_of("dwac")


def headline(found: Findings) -> list[Fact]:
    """What to read if nothing else."""
    result = found.result
    facts = [
        Fact("Accuracy", words.percent(result.accuracy), words.accuracy(found)),
        Fact("Calibration error", f"{result.calibration_error:.3f}", words.calibration(found)),
    ]
    if result.coverage is not None and result.mean_set_size is not None:
        promise = f"Truth in the set, ε\u00a0=\u00a0{result.epsilon:g}"
        facts += [
            Fact(promise, words.percent(result.coverage), words.coverage(found)),
            Fact("Labels in a set", f"{result.mean_set_size:.2f}", words.set_size(found)),
            Fact("Mean credibility", f"{result.credibility:.2f}", words.credibility(found)),
        ]
    return [*facts, Fact("Labels to look at", f"{found.count(len(found.issues)):,}", words.issues(found))]


def data(found: Findings) -> list[Fact]:
    """What the model learned from, and how it was divided."""
    clf = found.clf
    names = clf.classes_.tolist()
    counts = np.bincount(clf.references_.labels.cpu().numpy(), minlength=len(names))
    columns = getattr(clf, "n_features_in_", None)
    kind = _KINDS.get(clf.encoder_.kind, clf.encoder_.kind) + (f", {columns:,} columns" if columns else "")
    few, many = written(names[counts.argmin()]), written(names[counts.argmax()])
    fewest, most, n = (found.count(int(count)) for count in (counts.min(), counts.max(), counts.sum()))
    balance = f"From {fewest:,} training examples ({few}) to {most:,} ({many})."
    new = "All results here are measured on these, which must be new to the model."
    return [
        Fact("Kind", kind, "What an example is."),
        Fact(f"{len(names)} classes", written(", ".join(written(name) for name in names), 200), balance),
        Fact("Training", f"{n:,} examples", "The network learned from these, and these vote."),
        Fact(
            "Validation", f"{found.count(len(clf.validation_ids_)):,} examples", "Set aside to stop training in time."
        ),
        Fact("Calibration", f"{found.count(len(clf.calibration_y_)):,} examples", _calibration(clf)),
        Fact("Test", f"{found.result.n:,} examples", new),
    ]


def _calibration(clf: DWACClassifier) -> str:
    if len(clf.calibration_y_) == 0:
        return "None: there are no label sets, confidence or credibility. `clf.recalibrate(X, y)` gives them."
    if len(clf.validation_ids_) and clf.calibration_ids_.equals(clf.validation_ids_):
        return "The validation examples serve here too, which makes promises a little too optimistic."
    return "Set aside to learn how strange an ordinary example may look: label sets and credibility rest on them."


def model(found: Findings) -> list[Fact]:
    """How it was made."""
    clf = found.clf
    references, history, members = clf.references_, clf.history_, getattr(clf.model_, "ensemble_size", 1)
    network = f"{clf.encoder_.kind}: {written(getattr(clf.encoder_, 'settings', {}).get('network', 'own'))}"
    several = f" {members} were trained side by side." if members > 1 else ""
    near = "Where it puts the example: those that lie near it vote most."
    by_hand = "What was set by hand; all else follows the recipe for such data."
    ended = written(history.attrs.get("ended") or "finished")
    return [
        Fact("Network", network, f"What turns an example into a point.{several}"),
        Fact("Embedding", f"a point of {references.embeddings.shape[1]} numbers", near),
        Fact("Kernel", references.kernel, "How a vote fades with distance."),
        Fact("Training", f"{len(history)} epochs, {ended}", "How often it went through the training examples."),
        Fact("Settings", ", ".join(_changed(clf)) or "as they come", by_hand),
    ]


def _changed(clf: DWACClassifier) -> list[str]:
    """Settings that are not as they come."""
    usual: dict[str, Any] = DWACClassifier().get_params(deep=False)
    now: dict[str, Any] = clf.get_params(deep=False)
    return [
        f"{name}={written(now[name])}" for name in usual if name not in _SILENT and repr(now[name]) != repr(usual[name])
    ]


def probabilities(found: Findings) -> list[Fact]:
    """How far stated probabilities are to be trusted."""
    result, test = found.result, found.calibration
    top = words.beside_chance(test.top_label)
    return [
        Fact("Calibration error", f"{test.error.value:.4f}", f"Over all classes. {words.beside_chance(test.error)}"),
        Fact("Top label's error", f"{test.top_label.value:.4f}", f"Of the predicted label alone. {top}"),
        Fact("Resolution", words.percent(test.resolution), words.resolution(found)),
        Fact("Log loss", f"{result.log_loss:.4f}", words.log_loss(found)),
    ]


def credibility(found: Findings) -> list[Fact]:
    """How wary it is."""
    facts = [Fact("Mean credibility", f"{found.result.credibility:.3f}", words.credibility(found))]
    if found.credibility_outside is not None:
        facts.append(Fact("Unlike the training data", f"{found.credibility_outside.mean():.3f}", words.outside(found)))
    return facts
