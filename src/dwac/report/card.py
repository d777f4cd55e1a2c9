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
from dwac.report.measures import Estimator, Measure, percent
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


def model_values(findings: Findings) -> dict[str, Any]:
    """The values of the sections on the model and on unfamiliar data."""
    clf, history = findings.clf, findings.clf.history_
    columns, members = getattr(clf, "n_features_in_", None), getattr(clf.model_, "ensemble_size", 1)
    kind = KINDS.get(clf.encoder_.kind, "tensors" if clf.encoder_.kind == "module" else clf.encoder_.kind)
    several = "" if members == 1 else f" An ensemble of {members}."
    several = several if clf.shards is None else f" {clf.shards} networks, each trained on its own part of the rows."
    several += " Its weights are in half precision." if clf.fitted_.half else ""
    known, outside = findings.typicality, findings.typicality_outside
    typical = None if known is None else plots.typicality_panel(known, outside)
    trained = images(*map(plots.alone, plots.history_panels(history))) if len(history) > 1 else []
    return {
        "lead": LEADS.get(clf.target_.kind, LEAD),
        "kind": kind + (f", {columns:,} columns" if columns else ""),
        "n_training": findings.n_examples,
        "n_validation": findings.count(len(clf.validation_ids_)),
        "is_validation": len(clf.validation_ids_) > 0 and clf.calibration_ids_.equals(clf.validation_ids_),
        "network": f"{clf.encoder_.kind}: {shorten(getattr(clf.encoder_, 'settings', {}).get('network', 'own'))}",
        "several_networks": several,
        "embedding_size": clf.references_.embeddings.shape[1],
        "kernel": clf.references_.kernel,
        "vote_facts": groups(findings),
        "ended": shorten(history.attrs.get("ended") or "finished"),
        "settings": ", ".join(_changed(clf)),
        "fingerprint": clf.fingerprint_,
        "history": history,
        "training_plots": trained,
        "cross_fitted": clf.cross_fitted_,
        "strange": STRANGE,
        "looks_unfamiliar": known is not None and known.mean() < _least_mean(len(known), len(clf.calibration_y_)),
        "typicality_plots": [] if typical is None else images(plots.alone(typical, width=4.0)),
        "unlike": outside is not None,
        "n": findings.result.n,
        "n_calibration": findings.count(len(clf.calibration_y_)),
        "epsilon": findings.result.epsilon,
    }


def _least_mean(n: int, n_calibration: int) -> float:
    """The least mean typicality, uniform on data like that of calibration, that chance explains."""
    return float(0.5 - 2 * np.sqrt((1 / n + 1 / n_calibration) / 12))


# Data and model


def balance(findings: Findings, what: str, counts: NDArray[Any], more: str = "") -> Fact:
    """The labels, and how many training examples have the rarest and the commonest of them. counts: (L,)."""
    names = findings.clf.classes_.tolist()
    few, many = shorten(names[counts.argmin()]), shorten(names[counts.argmax()])
    fewest, most = (findings.count(round(float(count))) for count in (counts.min(), counts.max()))
    meaning = f"From {fewest:,} training examples ({few}) to {most:,} ({many}){more}."
    return Fact(f"{len(names)} {what}", shorten(", ".join(map(shorten, names)), 200), meaning)


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
        apart = {"what sets it apart": group.description or "–"} if described else {"of all": percent(group.share)}
        rows.append(
            {
                "votes for": labels[group.place],
                "training examples": f"{group.size:,}",
                **apart,
                "most central": shorten(group.representative),
                "test examples": f"{len(group.rows):,}",
                **({} if strange is None else {"strange": f"{int(strange[group.rows].sum()):,}"}),
                measure.name: measure.say(float(tested.mean())) if len(tested) else "–",
                "typicality": "–" if typical is None or not len(tested) else f"{typical[group.rows].mean():.2f}",
                "most central example": brief(
                    findings.clf.examples_.get(group.representative), _COLUMNS, findings.clf.legend_
                ),
            }
        )
    return ReportTable.of(caption, rows, numbers=[1, *range(4, len(rows[0]) - 1)])


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


def _tested_rows(decided: Deciding) -> str:
    if decided.n == decided.of:
        return f"all {decided.of:,} test examples"
    return f"{decided.n:,} of the {decided.of:,} test examples, evenly spread"


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
    if not references.voters.represents:
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
