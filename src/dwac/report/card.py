"""The model card: facts about the data, the model, its groups and typicality, each with a value and its meaning.

The meanings are for readers without a background in statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac.drawing.records import shorten
from dwac.estimator.evaluation import Fact
from dwac.estimator.settings import flat
from dwac.explain import privacy
from dwac.explain.base import STRANGE
from dwac.explain.rendering import about
from dwac.metrics import AgainstChance, Agreement
from dwac.report import plots
from dwac.report.findings import Findings
from dwac.report.grouped import Deciding, ReportGroup, every_group, largest, strangest
from dwac.report.measures import Estimator, Measure, of_100, percent
from dwac.report.parts import Plot, ReportTable, brief, images
from dwac.tasks import LABELS, NUMBERS

LEAD = (
    "Every prediction of this model is a vote. Each training example votes for its own label; the more similar it is "
    "to the example being predicted, the more its vote counts. So every prediction can be traced to the examples that "
    "decided it, and an example unlike all of them can be recognised: none is near."
)
LEADS = {
    NUMBERS: LEAD.replace("its own label", "its own number"),
    LABELS: LEAD.replace("its own label", "its own labels"),
}
OFF = 0.03  # error beyond chance from which probabilities are only a rough guide
GROUPS = (
    "Training examples of one class that vote alike form a group. Its share of a vote is the exact sum of its members' "
    "votes."
)

KINDS = {"tabular": "rows of a table", "image": "images", "text": "texts", "huggingface": "texts"}
_SILENT = {"encoder", "kernel", "checkpoint", "device", "verbose"}  # shown elsewhere, or without effect on the model
_MOST_TYPICAL, _MOST_STRANGE, _MOST_RELIED_ON = 36, 6, 8  # groups in a table
_MOST_EACH = 3  # groups per class in a table
_COLUMNS = 4  # columns of an example


def model_values(findings: Findings, target: Fact) -> dict[str, Any]:
    """The values of the sections on the model and on unfamiliar data. target: the fact about the target."""
    clf, history = findings.clf, findings.clf.history_
    known, outside = findings.typicality, findings.typicality_outside
    typical = None if known is None else plots.typicality_panel(known, outside)
    trained = images(*map(plots.alone, plots.history_panels(history))) if len(history) > 1 else []
    return {
        "lead": LEADS.get(clf.target_.kind, LEAD),
        "data": data(findings, target),
        "model": model(findings),
        "history": history,
        "training_plots": trained,
        "cross_fitted": clf.cross_fitted_,
        "typicality": typicality(findings),
        "typicality_plots": [] if typical is None else images(plots.alone(typical, width=4.0)),
        "unlike": outside is not None,
        "n": findings.result.n,
        "n_calibration": findings.count(len(clf.calibration_y_)),
        "epsilon": findings.result.epsilon,
    }


# Data and model


def data(findings: Findings, target: Fact) -> list[Fact]:
    """Facts about the data and how it was split. target: the fact about the target."""
    clf = findings.clf
    columns = getattr(clf, "n_features_in_", None)
    kind = KINDS.get(clf.encoder_.kind, "tensors" if clf.encoder_.kind == "module" else clf.encoder_.kind) + (
        f", {columns:,} columns" if columns else ""
    )
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


def balance(findings: Findings, what: str, counts: NDArray[Any], more: str = "") -> Fact:
    """The labels, and how many training examples have the rarest and the commonest of them. counts: (L,)."""
    names = findings.clf.classes_.tolist()
    few, many = shorten(names[counts.argmin()]), shorten(names[counts.argmax()])
    fewest, most = (findings.count(round(float(count))) for count in (counts.min(), counts.max()))
    meaning = f"From {fewest:,} training examples ({few}) to {most:,} ({many}){more}."
    return Fact(f"{len(names)} {what}", shorten(", ".join(map(shorten, names)), 200), meaning)


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


_FINGERPRINT = (
    "Identifies the model folder, as printed when it was saved; dwac.load(path, expect=…) and --expect check it."
)


def model(findings: Findings) -> list[Fact]:
    """The network, its training and its settings."""
    clf = findings.clf
    references, history, members = clf.references_, clf.history_, getattr(clf.model_, "ensemble_size", 1)
    network = f"{clf.encoder_.kind}: {shorten(getattr(clf.encoder_, 'settings', {}).get('network', 'own'))}"
    several = f" An ensemble of {members}." if members > 1 else ""
    several = several if clf.shards is None else f" {clf.shards} networks, each trained on its own part of the rows."
    near = "The position of an example: the nearer a training example, the larger its vote."
    by_hand = "Settings that differ from the defaults for this kind of data."
    ended = shorten(history.attrs.get("ended") or "finished")
    steps, meaning = ("epochs", "Passes through the training examples.")
    if clf.cross_fitted_:
        steps, meaning = (
            "rounds",
            "Rounds of training steps of all networks together, each trained without a fifth of the examples.",
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
        f"{name}={shorten(now[name])}" for name in usual if name not in _SILENT and repr(now[name]) != repr(usual[name])
    ]


# Curves of labels


def roc_images(findings: Any, truth: NDArray[Any], drawn: NDArray[np.int64]) -> list[Plot]:
    """ROC curves of these labels, with the area under each. truth: (n, L), which labels the test examples have."""
    if not len(drawn):
        return []
    names, auc = findings.clf.classes_.tolist(), findings.scores.each["roc_auc"]
    labels = [f"{shorten(names[code])}: {auc[code]:.3f}" for code in drawn]
    painter = plots.roc_panel(truth[:, drawn], findings.predictions.probabilities[:, drawn], labels)
    return images(plots.alone(painter, 3.6, 3.2 + 0.1 * len(drawn)))


# Typicality


def typicality(findings: Findings) -> list[Fact]:
    """Typicality of familiar and of out-of-distribution data; empty if unknown."""
    if findings.typicality is None:
        return []
    facts = [Fact("Mean typicality", f"{findings.result.typicality:.3f}", _typicality_meaning(findings))]
    if findings.typicality_outside is not None:
        facts.append(
            Fact("Out-of-distribution", f"{findings.typicality_outside.mean():.3f}", _outside_meaning(findings))
        )
    return facts


# Groups of training examples: facts, the typical groups, and those that mislead test examples


def groups(findings: Findings) -> list[Fact]:
    """How few voters or groups explain a prediction, and how often representatives agree with all."""
    facts, by_group = [], findings.deciding
    if findings.represented:
        voters = f"{findings.count(len(findings.clf.references_)):,} for {findings.n_examples:,} examples"
        facts.append(
            Fact("Representatives", voters, "Real training examples that vote for all: each stands for the examples "
                 "like it, and its vote counts for all of these.")
        )  # fmt: skip
        known = findings.agreement
        if known is not None:
            facts.append(Fact("Agreement", percent(known.share), _agreement_meaning(known)))
    if by_group is not None:
        heaviest = f"The share of the vote that these groups hold: the median over {_tested_rows(by_group)}."
        facts += [
            Fact("Groups", f"{len(findings.clf.references_.groups):,}", GROUPS),
            Fact("Groups that decide a label", f"{by_group.groups:g}", _deciding_meaning(findings, by_group)),
            Fact("Share of the five heaviest", percent(by_group.share), heaviest),
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
    """The typical groups, and those with more strange test examples than others; none if private.

    labels: (G,) what each group votes for. strange: (n,) test examples that are unlike any other, or are predicted
    wrongly, as `how` says in words. codes: (n,) the predicted classes, if classes are predicted.
    """
    if findings.private:
        return []
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
    some: Sequence[ReportGroup],
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
                shorten(group.representative),
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


# What the numbers mean


def coverage_meaning(findings: Findings, what: str, truth: str, wasted: str, more: str = "") -> str:
    """Coverage compared with its target and chance. more: added if it agrees with the target."""
    result, chance = findings.result, findings.chance(findings.result.epsilon)
    target, measured = percent(1 - result.epsilon), percent(result.coverage or 0.0)
    result_text = (
        f"{what} are built to contain {truth} for at least {target} of the examples; they contain it for {measured}."
    )
    if chance is None or result.coverage is None:
        return result_text
    low, high = chance
    if result.coverage < low:
        return f"{result_text} This is lower than chance explains: these examples differ from the calibration data."
    if result.coverage > high:
        return f"{result_text} This is higher than chance explains: {wasted} on examples like these."
    if result.coverage >= 1 - result.epsilon:
        return f"{result_text} The target is met.{more}"
    n = findings.count(len(findings.clf.calibration_y_))
    return (
        f"{result_text} With {n:,} calibration examples, chance alone gives values between {percent(low)} and "
        f"{percent(high)}, so this agrees with the target.{more}"
    )


def beside_chance(error: AgainstChance) -> str:
    """An error compared with that of chance alone."""
    return (
        f"Off by {points(error.value)} percentage points on average. With these examples, a perfectly calibrated "
        f"model would be off by {points(error.expected)} by chance alone, and rarely by more than "
        f"{points(error.limit)}. The true error most likely lies between {points(error.low)} and "
        f"{points(error.high)} points."
    )


def points(share: float) -> str:
    """In percentage points, with two significant digits: small errors over many classes are not all 0.0."""
    return "0" if share < 5e-5 else f"{100 * share:.2g}" if share < 0.1 else f"{100 * share:.0f}"


def _typicality_meaning(findings: Findings) -> str:
    """What typicality is, and whether the test examples look like the calibration examples."""
    assert findings.typicality is not None
    low = percent(float((findings.typicality <= STRANGE).mean()))
    n, n_calibration = len(findings.typicality), len(findings.clf.calibration_y_)
    least = 0.5 - 2 * np.sqrt((1 / n + 1 / n_calibration) / 12)  # uniform on data like that of calibration
    what = {NUMBERS: "number", LABELS: "labels"}.get(findings.clf.target_.kind, "label")
    unusual = " These examples look less familiar to the model than its calibration examples."
    return (
        f"How similar an example is to the training examples, whatever its {what}, from 0 to 1: the share of "
        "calibration examples that are at least as unlike them. On data like the training data all values are equally "
        "frequent, with a mean of about 0.5; near 0, the model has seen nothing like the example. It is at most "
        f"{STRANGE:g} for {low} of the test examples.{unusual if findings.typicality.mean() < least else ''}"
    )


def _outside_meaning(findings: Findings) -> str:
    """How well out-of-distribution data is detected."""
    auroc, trust = findings.auroc, findings.typicality_outside
    assert auroc is not None
    assert trust is not None
    low = float((trust <= STRANGE).mean())
    return (
        f"A test example is more typical than an out-of-distribution one in {of_100(auroc)} pairs (AUROC); 50 of 100 "
        f"would be chance. Typicality is at most {STRANGE:g} for {percent(low)} of the out-of-distribution examples."
    )


def _tested_rows(decided: Deciding) -> str:
    some = decided.n < decided.of
    return (
        f"{decided.n:,} of the {decided.of:,} test examples, evenly spread"
        if some
        else f"all {decided.of:,} test examples"
    )


def _deciding_meaning(findings: Findings, decided: Deciding) -> str:
    """How many groups decide a label, and how many single voters would be needed."""
    who = "representatives" if findings.represented else "training examples"
    return (
        f"How many of the heaviest groups decide the label, whatever labels all others had: the median over "
        f"{_tested_rows(decided)}. Counted in single {who}, the median is {decided.voters:,g}. A few of these explain "
        f"{percent(decided.few_suffice)} of the predictions."
    )


def _agreement_meaning(known: Agreement) -> str:
    """How often representatives agree with all, with its confidence interval."""
    return (
        f"The share of {known.n:,} calibration examples whose prediction is the one that all training examples would "
        f"give. For more examples of the same kind, it most likely lies between {percent(known.low)} and "
        f"{percent(known.high)}."
    )


def who_votes(clf: Estimator, *, private: bool) -> str:
    """Says that representatives vote for all, and how often they agree with all; empty if all vote."""
    references, known = clf.references_, clf.agreement_
    if not references.voters.weighted:
        return ""
    few, every = len(references), round(float(references.sizes.sum()))
    if private:
        few_of = f"{about(privacy.count(few))} for {about(privacy.count(every))}"
        agreed = known and f"{privacy.percent(privacy.agreement(known).share)} of calibration rows"
        text = f"Representatives vote for all training examples ({few_of})."
    else:
        agreed = known and str(known)
        text = f"{few:,} representatives vote for {every:,} training examples."
    return f"{text} They give the label that all would on {agreed}." if agreed else text
