"""The model card: facts about the data, the model, its groups and typicality, with values and meanings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac.drawing.records import written
from dwac.estimator.evaluation import Fact
from dwac.estimator.settings import flat
from dwac.report import plots, words
from dwac.report.findings import Findings
from dwac.report.grouped import Group, every_group, largest, strangest
from dwac.report.measures import Measure, percent
from dwac.report.parts import ReportTable, brief, images
from dwac.report.seen import Estimator

_KINDS = {"tabular": "rows of a table", "image": "images", "text": "texts", "huggingface": "texts", "module": "tensors"}
_SILENT = {"encoder", "kernel", "checkpoint", "device", "verbose"}  # shown elsewhere, or without effect on the model
_MOST_TYPICAL, _MOST_STRANGE, _MOST_RELIED_ON = 36, 6, 8  # groups in a table
_MOST_EACH = 3  # groups per class in a table
_COLUMNS = 4  # columns of an example


def model_values(findings: Findings, target: Fact) -> dict[str, Any]:
    """The values of the sections on the model and on unfamiliar data. target: the fact about the target."""
    clf, history = findings.clf, findings.clf.history_
    trained = images(*map(plots.alone, plots.history_panels(history))) if len(history) > 1 else []
    return {
        "lead": words.LEADS.get(clf.target_.kind, words.LEAD),
        "data": data(findings, target),
        "model": model(findings),
        "history": history,
        "training_plots": trained,
        "cross_fitted": clf.cross_fitted_,
        "typicality": typicality(findings),
        "typicality_plots": _typicality_plots(findings),
        "unlike": findings.typicality_outside is not None,
        "n": findings.result.n,
        "n_calibration": findings.count(len(clf.calibration_y_)),
        "epsilon": findings.result.epsilon,
    }


# Data and model


def data(findings: Findings, target: Fact) -> list[Fact]:
    """Facts about the data and how it was split. target: the fact about the target."""
    clf = findings.clf
    columns = getattr(clf, "n_features_in_", None)
    kind = _KINDS.get(clf.encoder_.kind, clf.encoder_.kind) + (f", {columns:,} columns" if columns else "")
    new = "All results in this report are measured on these; they must be new to the model."
    who_votes = "some of them vote for all" if findings.represented else "these vote"
    validation = "Not needed: cross-fitted." if clf.cross_fitted_ else "Held out for early stopping."
    return [
        Fact("Kind", kind, "The form of an example."),
        target,
        Fact("Training", f"{findings.n_examples:,} examples", f"The network was trained on these, and {who_votes}."),
        Fact("Validation", f"{findings.count(len(clf.validation_ids_)):,} examples", validation),
        Fact("Calibration", f"{findings.count(len(clf.calibration_y_)):,} examples", _calibration(clf)),
        Fact("Test", f"{findings.result.n:,} examples", new),
    ]


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


def model(findings: Findings) -> list[Fact]:
    """The network, its training and its settings."""
    clf = findings.clf
    references, history, members = clf.references_, clf.history_, getattr(clf.model_, "ensemble_size", 1)
    network = f"{clf.encoder_.kind}: {written(getattr(clf.encoder_, 'settings', {}).get('network', 'own'))}"
    several = f" An ensemble of {members}." if members > 1 else ""
    several = several if clf.shards is None else f" {clf.shards} networks, each trained on its own part of the rows."
    near = "The position of an example: the nearer a training example, the larger its vote."
    by_hand = "Settings that differ from the defaults for this kind of data."
    ended = written(history.attrs.get("ended") or "finished")
    steps, meaning = ("epochs", "Passes through the training examples.")
    if clf.cross_fitted_:
        steps, meaning = (
            "rounds",
            "Of training steps, of all networks together, each without a fifth of the examples.",
        )
    return [
        Fact("Network", network, f"Turns an example into a point.{several}"),
        Fact("Embedding", f"a point of {references.embeddings.shape[1]} numbers", near),
        Fact("Kernel", references.kernel, "How votes decrease with distance."),
        *groups(findings),
        Fact("Training", f"{len(history)} {steps}, {ended}", meaning),
        Fact("Settings", ", ".join(_changed(clf)) or "defaults", by_hand),
        *([] if clf.fingerprint_ is None else [Fact("Fingerprint", clf.fingerprint_, _FINGERPRINT)]),
    ]


def _changed(clf: Estimator) -> list[str]:
    """Settings that differ from their defaults."""
    usual: dict[str, Any] = flat(type(clf)().get_params(deep=False))
    now: dict[str, Any] = flat(clf.get_params(deep=False))
    return [
        f"{name}={written(now[name])}" for name in usual if name not in _SILENT and repr(now[name]) != repr(usual[name])
    ]


# Typicality


def typicality(findings: Findings) -> list[Fact]:
    """Typicality of familiar and of out-of-distribution data; empty if unknown."""
    if findings.typicality is None:
        return []
    facts = [Fact("Mean typicality", f"{findings.result.typicality:.3f}", words.typicality(findings))]
    if findings.typicality_outside is not None:
        facts.append(Fact("Out-of-distribution", f"{findings.typicality_outside.mean():.3f}", words.outside(findings)))
    return facts


def _typicality_plots(findings: Findings) -> list[Any]:
    if findings.typicality is None:
        return []
    return images(plots.alone(plots.typicality_panel(findings.typicality, findings.typicality_outside), width=4.0))


# Groups of training examples: facts, the typical groups, and those that mislead test examples


def groups(findings: Findings) -> list[Fact]:
    """How few voters or groups explain a prediction, and how often representatives agree with all."""
    facts, by_group = [], findings.deciding
    if findings.represented:
        voters = f"{findings.count(len(findings.clf.references_)):,} for {findings.n_examples:,} examples"
        facts.append(
            Fact("Representatives", voters, "Real training examples that vote for all: each stands for those like it, "
                 "and its vote counts for so many.")
        )  # fmt: skip
        known = findings.agreement
        if known is not None:
            facts.append(Fact("Agreement", percent(known.share), words.agreement(known)))
    if by_group is not None:
        facts += [
            Fact("Groups", f"{len(findings.clf.references_.groups):,}", words.GROUPS),
            Fact("Groups that decide a label", f"{by_group.groups:g}", words.deciding(findings, by_group)),
            Fact("Share of the five heaviest", percent(by_group.share), words.heaviest(by_group)),
        ]
    return facts


def group_tables(
    findings: Findings,
    labels: Sequence[str],
    measure: Measure,
    strange: NDArray[np.bool_],
    how: str,
    codes: NDArray[np.int64] | None = None,
) -> list[ReportTable]:
    """The typical groups, and those with more strange test examples than others.

    labels: (G,) what each group votes for. strange: (n,) test examples that are unlike any other, or are predicted
    wrongly, as `how` says in words. codes: (n,) the predicted classes, if classes are predicted.
    """
    every = every_group(findings.clf, findings.h, codes)
    classes = findings.clf.references_.groups.labels
    each = int(np.clip(_MOST_TYPICAL // len(np.unique(classes)), 1, _MOST_EACH))
    if codes is not None:
        typical, what = largest(every, classes, each)[:_MOST_TYPICAL], f"the largest of each class, up to {each}"
    else:
        typical = sorted(every, key=lambda group: -len(group.rows))[:_MOST_RELIED_ON]
        what = "those on which most test examples rely"
    tables = [_group_table(findings, typical, labels, measure, f"Typical groups: {what}")]
    odd = strangest(every, strange, _MOST_STRANGE)
    if odd:
        worst = f"Strange groups: test examples that rely on them are unfamiliar, or {how}, more often than others"
        tables.append(_group_table(findings, odd, labels, measure, worst, strange))
    return tables


def _group_table(
    findings: Findings,
    some: Sequence[Group],
    labels: Sequence[str],
    measure: Measure,
    caption: str,
    strange: NDArray[np.bool_] | None = None,
) -> ReportTable:
    described = any(group.description for group in some)
    rows = []
    for group in some:
        tested, typical = measure.values[group.rows], findings.typicality
        rows.append(
            (
                labels[group.place],
                f"{group.size:,}",
                (group.description or "–") if described else percent(group.share),
                written(group.representative),
                f"{len(group.rows):,}",
                *((f"{int(strange[group.rows].sum()):,}",) if strange is not None else ()),
                measure.say(float(tested.mean())) if len(tested) else "–",
                "–" if typical is None or not len(tested) else f"{typical[group.rows].mean():.2f}",
                brief(findings.clf.examples_.get(group.representative), _COLUMNS),
            )
        )
    head = (
        "votes for",
        "training examples",
        "what sets it apart" if described else "of all",
        "most central",
        "test examples",
        *(("strange",) if strange is not None else ()),
        measure.name,
        "typicality",
        "most central example",
    )
    return ReportTable(caption, head, rows, numbers=[1, *range(4, len(head) - 1)])
