"""The sentences that explain each number to readers without a background in statistics."""

from __future__ import annotations

import numpy as np

from dwac.drawing.records import written
from dwac.estimator.classifier import DWACClassifier
from dwac.explain import privacy
from dwac.explain.explanation import STRANGE
from dwac.explain.rendering import about
from dwac.metrics import AgainstChance, Agreement
from dwac.report.findings import ClassFindings, Findings
from dwac.report.grouped import Deciding
from dwac.report.label_issues import IN_SAMPLE, OUT_OF_FOLD
from dwac.report.measures import likely_share, percent
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
LEARNED = (  # a limit of checking training labels
    "The network was trained on these labels, including wrong ones, so wrong labels that it has memorised are not "
    "found; judged out of fold, by a model not trained on them, they would be."
)
UNSEEN = "Each label was judged by votes of a model that was not trained on it."
JUDGED = {OUT_OF_FOLD: UNSEEN, IN_SAMPLE: LEARNED}
GROUPS = (
    "Training examples of one class that vote alike form a group. Its share of a vote is the exact sum of its members' "
    "votes."
)
OFF = 0.03  # error beyond chance from which probabilities are only a rough guide


def of_100(share: float) -> str:
    """A share out of 100, or out of 1,000 if it is near 0 or 1.

    >>> of_100(0.934), of_100(0.004)
    ('93 of 100', '4 of 1,000')
    """
    return f"{100 * share:.0f} of 100" if 0.01 <= share <= 0.99 or share in (0, 1) else f"{1000 * share:.0f} of 1,000"


def times(count: int) -> str:
    """How often something happened."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def accuracy(found: ClassFindings) -> str:
    """Accuracy, its confidence interval, and the accuracy of guessing."""
    low, high = likely_share(found.right)
    name, share = found.commonest
    return (
        f"{of_100(found.result.accuracy)} test examples are predicted correctly. With {found.result.n:,} of them, the "
        f"accuracy on more examples of the same kind most likely lies between {percent(low)} and {percent(high)}. "
        f"Always predicting {written(name)}, the most common label, would be correct for {percent(share)}."
    )


def calibration(found: ClassFindings) -> str:
    """How far stated probabilities are from observed frequencies, and what that means."""
    test = found.calibration
    return (
        f"On average, stated probabilities differ from observed frequencies by {_points(test.error.value)} percentage "
        f"points; those of the predicted label by {_points(test.top_label.value)}. {_judged(found)}"
    )


def beside_chance(error: AgainstChance) -> str:
    """An error compared with that of chance alone."""
    return (
        f"Off by {_points(error.value)} percentage points on average. With these examples, a perfectly calibrated "
        f"model would be off by {_points(error.expected)} by chance alone, and rarely by more than "
        f"{_points(error.limit)}. The true error most likely lies between {_points(error.low)} and "
        f"{_points(error.high)} points."
    )


def _points(share: float) -> str:
    """In percentage points, with two significant digits: small errors over many classes are not all 0.0."""
    return "0" if share < 5e-5 else f"{100 * share:.2g}" if share < 0.1 else f"{100 * share:.0f}"


def _judged(found: ClassFindings) -> str:
    """What the errors imply: that probabilities are uninformative, that they are fine, or how far off they are."""
    test = found.calibration
    if not test.informative:
        off = "This is more than chance explains. Also," if test.miscalibrated else "However,"
        return (
            f"{off} the probabilities distinguish these examples no better than chance: at best they show how "
            "common each label is, and nothing about a single example."
        )
    if not test.miscalibrated:
        few = (
            " More test examples would give a more precise estimate."
            if max(test.error.high, test.top_label.high) > OFF
            else ""
        )
        return f"Chance alone explains this: there is no evidence against the probabilities.{few}"
    excess = max(error.excess for error in (test.error, test.top_label) if error.beyond)
    bias = "overconfident" if found.probability.mean() > found.right.mean() else "underconfident"
    grades = (
        (0.01, "but close to correct"),
        (OFF, "and somewhat off"),
        (np.inf, "and only a rough guide"),
    )
    grade = next(text for most, text in grades if excess < most)
    return f"This is more than chance explains: overall, the probabilities are {bias}, {grade}."


def resolution(found: ClassFindings) -> str:
    """How much of the variance of the labels the probabilities explain."""
    return (
        "The share of the variance of the labels that the stated probabilities explain, in ten bins of equal size. "
        f"Uninformative probabilities reach {percent(found.calibration.chance_resolution)} by chance, perfect ones "
        "about 100\u00a0%."
    )


def log_loss(found: ClassFindings) -> str:
    """The log loss as a typical probability."""
    typical = float(np.exp(-found.result.log_loss))
    return (
        f"The geometric mean of the probabilities of the true labels is {percent(typical)}. A loss of 0 would be "
        "perfect; a single overconfident error costs much."
    )


def coverage(found: ClassFindings) -> str:
    """Whether prediction sets have the requested coverage."""
    return _covered(found, "Prediction sets", "the true label", "sets could be smaller", _by_class(found))


def _covered(found: Findings, what: str, truth: str, wasted: str, more: str = "") -> str:
    """Coverage compared with its target and chance. more: added if it agrees with the target."""
    result, chance = found.result, found.chance(found.result.epsilon)
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
    n = found.count(len(found.clf.calibration_y_))
    return (
        f"{result_text} With {n:,} calibration examples, chance alone gives values between {percent(low)} and "
        f"{percent(high)}, so this agrees with the target.{more}"
    )


def interval_coverage(found: Findings) -> str:
    """Whether intervals have the requested coverage."""
    return _covered(found, "Intervals", "the true number", "intervals could be narrower")


def _by_class(found: ClassFindings) -> str:
    """The classes that fall short, if any."""
    return "" if found.result.advice is None else f" {found.result.advice}."


def set_size(found: ClassFindings) -> str:
    """Shares of sets with one, several and no labels, and what they mean."""
    curve = found.set_curve([found.result.epsilon])
    assert curve is not None
    row = curve.iloc[0]
    return (
        f"{percent(row['single'])} of the sets have one label: a clear answer. {percent(row['multiple'])} have "
        f"several: the model cannot decide between them. {percent(row['empty'])} are empty: no label fits."
    )


def typicality(found: Findings) -> str:
    """What typicality is, and whether the test examples look like the calibration examples."""
    assert found.typicality is not None
    low = percent(float((found.typicality <= STRANGE).mean()))
    n, n_calibration = len(found.typicality), len(found.clf.calibration_y_)
    least = 0.5 - 2 * np.sqrt((1 / n + 1 / n_calibration) / 12)  # uniform on data like that of calibration
    what = {NUMBERS: "number", LABELS: "labels"}.get(found.clf.target_.kind, "label")
    unusual = " These examples look less familiar to the model than its calibration examples."
    return (
        f"How like the training examples an example is, whatever its {what}, from 0 to 1: the share of calibration "
        "examples at least as unlike them. On data like the training data it takes all values alike, with a mean of "
        f"about 0.5; near 0, the model has seen nothing like the example. {low} of the test examples are at most "
        f"{STRANGE:g}.{unusual if found.typicality.mean() < least else ''}"
    )


def outside(found: Findings) -> str:
    """How well out-of-distribution data is detected."""
    auroc, trust = found.auroc, found.typicality_outside
    assert auroc is not None
    assert trust is not None
    low = float((trust <= STRANGE).mean())
    return (
        f"A test example is more typical than an out-of-distribution one in {of_100(auroc)} pairs (AUROC); 50 of 100 "
        f"would be chance. {percent(low)} of the out-of-distribution examples are at most {STRANGE:g}."
    )


def issues(found: ClassFindings) -> str:
    """How many labels look wrong, and how they were judged."""
    how_judged = found.issues.attrs
    n, m = found.count(len(found.issues)), found.count(how_judged.get("checked", len(found.clf.references_)))
    who = (
        "representative" if found.clf.references_.voters.weighted and "folds" not in how_judged else "training example"
    )
    how = JUDGED[how_judged.get("judged", IN_SAMPLE)]
    if n == 0:
        return f"No label of the {m:,} {who}s looks wrong. {how}"
    return (
        f"{n:,} of {m:,} {who}s ({percent(n / m)}) have labels that are more likely wrong than right, by the votes of "
        f"others and by how often labels occur that the votes exclude. Check the first ones first. {how} Correct them "
        "with relabel or silence (dwac silence), which change votes alone. To forget them would also take them out of "
        "calibration, and prediction sets would promise too much."
    )


def _of_rows(found: Deciding) -> str:
    some = found.n < found.of
    return (
        f"{found.n:,} of the {found.of:,} test examples, evenly spread" if some else f"all {found.of:,} test examples"
    )


def deciding(found: Findings, decided: Deciding) -> str:
    """How many groups decide a label, and how many single voters would be needed."""
    who = "representatives" if found.represented else "training examples"
    return (
        f"The median over {_of_rows(decided)}: so many of the heaviest groups decide the label, whatever labels all "
        f"others had. In single {who}, the median is {decided.voters:,g}. A few of those explain "
        f"{percent(decided.few_suffice)} of the predictions."
    )


def heaviest(decided: Deciding) -> str:
    """The share of the five heaviest groups, in words."""
    return f"The share of the vote that the five heaviest groups hold, the median over {_of_rows(decided)}."


def agreement(known: Agreement) -> str:
    """How often representatives agree with all, with its confidence interval."""
    return (
        f"So many of {known.n:,} calibration examples get the prediction that all training examples would give. For "
        "more examples of the same kind the share most likely lies between "
        f"{percent(known.low)} and {percent(known.high)}."
    )


def represented(clf: DWACClassifier, *, private: bool) -> str:
    """Says that representatives vote for all, and how often they agree with all; empty if all vote."""
    references, known = clf.references_, clf.agreement_
    if not references.voters.weighted:
        return ""
    few, everybody = len(references), round(float(references.sizes.sum()))
    if private:
        few_of = f"{about(privacy.count(few))} for {about(privacy.count(everybody))}"
        said = known and f"{privacy.percent(privacy.agreement(known).share)} of calibration rows"
        text = f"Representatives vote for all training examples ({few_of})."
    else:
        said = known and str(known)
        text = f"{few:,} representatives vote for {everybody:,} training examples."
    return f"{text} They give the label that all would on {said}." if said else text


def what_map_shows(
    *,
    unchanged: bool,
    discs: int,
    groups: int,
    alike: str = "of one class",
    near: str = "with the label predicted for it",
) -> str:
    """How to read a map, which is either the embedding itself or an arrangement of groups.

    discs: how many are drawn. groups: how many they form. alike: what the members of a disc share; near: where a new
    example is placed.
    """
    if unchanged:
        return "The embedding has two dimensions: distances on the map are the distances that the model uses."
    within = f"training examples {alike}"
    what = f"It arranges {within} that are not shown; what is similar is near"
    if discs:
        of = f"is one of {groups:,} groups" if discs == groups else f"belongs to one of {groups:,} groups"
        what = f"Each of its {discs:,} discs {of} of {within}. Its area grows with their number; similar discs are near"
    return f"This is a t-SNE map; far distances mean little. {what}. A new example is in the nearest disc {near}."
