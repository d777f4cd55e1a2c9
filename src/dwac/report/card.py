"""The model card: facts, their values, and what they mean."""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Any

import numpy as np

from dwac.drawing.records import written
from dwac.estimator.evaluation import Fact, OrderedEvaluation
from dwac.estimator.targets import CLASSES
from dwac.report import words
from dwac.report.findings import ClassFindings, Findings
from dwac.report.seen import Estimator

_KINDS = {"tabular": "rows of a table", "image": "images", "text": "texts", "huggingface": "texts", "module": "tensors"}
_SILENT = {
    "encoder",
    "kernel",
    "checkpoint",
    "device",
    "verbose",
}  # shown elsewhere, or without effect on the model


def version() -> str:
    """The version of dwac."""
    return version_of("dwac")


def headline(found: ClassFindings) -> list[Fact]:
    """The most important facts."""
    result = found.result
    macro, binary = found.scores.macro, len(found.clf.classes_) == 2
    means = "" if binary else " The mean over classes, each against all others."
    facts = [
        Fact("Accuracy", words.percent(result.accuracy), words.accuracy(found)),
        Fact(
            "ROC AUC",
            number(macro["roc_auc"]),
            f"How often a random example of a class gets a higher probability of "
            f"it than an example of another class; 0.5 is chance, 1 is perfect.{means}",
        ),
        Fact(
            "Macro F1",
            number(macro["f1"]),
            f"The harmonic mean of precision ({number(macro['precision'])} on "
            f"average) and recall ({number(macro['recall'])}), the mean over classes, rare and common alike.",
        ),
        Fact("Calibration error", f"{result.calibration_error:.3f}", words.calibration(found)),
    ]
    if result.coverage is not None and result.mean_set_size is not None:
        promise = f"Coverage at ε\u00a0=\u00a0{result.epsilon:g}"
        facts += [
            Fact(promise, words.percent(result.coverage), words.coverage(found)),
            Fact("Labels per prediction set", f"{result.mean_set_size:.2f}", words.set_size(found)),
        ]
    if isinstance(result, OrderedEvaluation):
        facts += [
            Fact("Mean distance", number(result.mean_distance), "Places in the order between the predicted and the "
                 "true label."),
            Fact("Ranked probability score", number(result.ranked_probability_score), "The squared error of the "
                 "probability of at most each label, the mean over labels; 0 is perfect."),
        ]  # fmt: skip
    return facts


def number(value: float) -> str:
    """A score with three digits; a dash if it is not defined."""
    return f"{value:.3f}" if value == value else "–"


def classes(found: ClassFindings) -> Fact:
    """The classes, and how many training examples each has."""
    names, references = found.clf.classes_.tolist(), found.clf.references_
    counts = np.bincount(references.labels.cpu().numpy(), references.sizes, len(names)).round()
    few, many = written(names[counts.argmin()]), written(names[counts.argmax()])
    fewest, most = (found.count(int(count)) for count in (counts.min(), counts.max()))
    balance = f"From {fewest:,} training examples ({few}) to {most:,} ({many})."
    kind = "classes" if found.clf.target_.kind == CLASSES else "labels in an order"
    return Fact(f"{len(names)} {kind}", written(", ".join(written(name) for name in names), 200), balance)


def data(found: Findings, target: Fact) -> list[Fact]:
    """The data and how it was split. target: what is said of what is predicted."""
    clf = found.clf
    columns = getattr(clf, "n_features_in_", None)
    kind = _KINDS.get(clf.encoder_.kind, clf.encoder_.kind) + (f", {columns:,} columns" if columns else "")
    new = "All results in this report are measured on these; they must be new to the model."
    trained = f"The network was trained on these, and {_who_votes(found)}."
    return [
        Fact("Kind", kind, "The form of an example."),
        target,
        Fact("Training", f"{found.n_examples:,} examples", trained),
        Fact("Validation", f"{found.count(len(clf.validation_ids_)):,} examples", _validation(clf)),
        Fact("Calibration", f"{found.count(len(clf.calibration_y_)):,} examples", _calibration(clf)),
        Fact("Test", f"{found.result.n:,} examples", new),
    ]


def _who_votes(found: Findings) -> str:
    return "some of them vote for all" if found.represented else "these vote"


def _training(clf: Estimator) -> str:
    if clf.cross_fitted_:
        return "Of training steps, of all networks together, each without a fifth of the examples."
    return "Passes through the training examples."


def _validation(clf: Estimator) -> str:
    return "Not needed: cross-fitted." if clf.cross_fitted_ else "Held out for early stopping."


def _calibration(clf: Estimator) -> str:
    if len(clf.calibration_y_) == 0:
        return (
            "None, so there are no prediction sets or intervals, and no typicality. `clf.recalibrate(X, y)` adds them."
        )
    if clf.cross_fitted_:
        return (
            "The training examples, each judged by networks and voters that left it out (cross-conformal prediction): "
            "the basis of prediction sets, intervals and typicality."
        )
    if len(clf.validation_ids_) and clf.calibration_ids_.equals(clf.validation_ids_):
        return "The validation examples are used here, too, which makes guarantees a little too optimistic."
    return (
        "Held out to learn how unusual an ordinary example can look: the basis of prediction sets, intervals and "
        "typicality."
    )


_FINGERPRINT = "Of the model folder, as printed when it was written; dwac.load(path, expect=…) and --expect demand it."


def model(found: Findings) -> list[Fact]:
    """The network, its training and its settings."""
    clf = found.clf
    references, history, members = clf.references_, clf.history_, getattr(clf.model_, "ensemble_size", 1)
    network = f"{clf.encoder_.kind}: {written(getattr(clf.encoder_, 'settings', {}).get('network', 'own'))}"
    several = f" An ensemble of {members}." if members > 1 else ""
    several = several if clf.shards is None else f" {clf.shards} networks, each trained on its own part of the rows."
    near = "The position of an example: the nearer a training example, the larger its vote."
    by_hand = "Settings that differ from the defaults for this kind of data."
    ended = written(history.attrs.get("ended") or "finished")
    return [
        Fact("Network", network, f"Turns an example into a point.{several}"),
        Fact("Embedding", f"a point of {references.embeddings.shape[1]} numbers", near),
        Fact("Kernel", references.kernel, "How votes decrease with distance."),
        *groups(found),
        Fact("Training", f"{len(history)} {'rounds' if clf.cross_fitted_ else 'epochs'}, {ended}", _training(clf)),
        Fact("Settings", ", ".join(_changed(clf)) or "defaults", by_hand),
        *([] if clf.fingerprint_ is None else [Fact("Fingerprint", clf.fingerprint_, _FINGERPRINT)]),
    ]


def groups(found: Findings) -> list[Fact]:
    """How few voters or groups explain a prediction, and how far representatives agree with all."""
    facts, by_group = [], found.deciding
    if found.represented:
        voters = f"{found.count(len(found.clf.references_)):,} for {found.n_examples:,} examples"
        facts.append(Fact("Representatives", voters, words.REPRESENTATIVES))
        known = found.agreement
        if known is not None:
            facts.append(Fact("Agreement", words.percent(known.share), words.agreement(known)))
    if by_group is not None:
        facts += [
            Fact("Groups", f"{len(found.clf.references_.groups):,}", words.GROUPS),
            Fact("Groups that decide a label", f"{by_group.groups:g}", words.deciding(found, by_group)),
            Fact("Share of the five heaviest", words.percent(by_group.share), words.heaviest(by_group)),
        ]
    return facts


def _changed(clf: Estimator) -> list[str]:
    """Settings that differ from their defaults."""
    usual: dict[str, Any] = type(clf)().get_params(deep=False)
    now: dict[str, Any] = clf.get_params(deep=False)
    return [
        f"{name}={written(now[name])}" for name in usual if name not in _SILENT and repr(now[name]) != repr(usual[name])
    ]


def probabilities(found: ClassFindings) -> list[Fact]:
    """How far the stated probabilities can be trusted."""
    result, test = found.result, found.calibration
    top = words.beside_chance(test.top_label)
    return [
        Fact("Calibration error", f"{test.error.value:.4f}", f"Over all classes. {words.beside_chance(test.error)}"),
        Fact("Error of the top label", f"{test.top_label.value:.4f}", f"Of the predicted label only. {top}"),
        Fact("Resolution", words.percent(test.resolution), words.resolution(found)),
        Fact("Log loss", f"{result.log_loss:.4f}", words.log_loss(found)),
    ]


def typicality(found: Findings) -> list[Fact]:
    """Typicality of familiar and of out-of-distribution data."""
    facts = [Fact("Mean typicality", f"{found.result.typicality:.3f}", words.typicality(found))]
    if found.typicality_outside is not None:
        facts.append(Fact("Out-of-distribution", f"{found.typicality_outside.mean():.3f}", words.outside(found)))
    return facts
