"""The sentences beside the numbers: what each means to a reader who is no statistician."""

from __future__ import annotations

import numpy as np

from dwac.drawing.records import written
from dwac.metrics import AgainstChance
from dwac.report.chance import likely_share
from dwac.report.findings import Findings

LEAD = (
    "Every prediction of this model is a vote. Each training example votes for its own label, and weighs the more the "
    "more it is like the example in question. So every answer can be traced to the examples that decided it, and an "
    "example unlike all of them is recognised by the weakness of all votes."
)
LIMITS = (
    "The numbers describe these test examples. They carry over to new examples as far as those come from the same "
    "source: other times, places or instruments call for new tests.",
    "Label sets keep their promise on average over examples, not for each single one, and not for other kinds of data.",
    "The votes say which training examples the model leaned on. They do not say what causes what in the world.",
)
PRIVATE = (
    "This report is private. Shares are told in whole per cent, p-values and credibility above 10 % count as 1, and "
    "results are those of the rounded numbers. No training example is shown or named."
)
LEARNED = (  # of training examples that were asked about
    "The network learned from these labels, wrong ones too, and may have moved an example towards its label: wrong "
    "labels that it learned by heart are not found here."
)
STRANGE = 0.05  # credibility below which an example is called strange
_OFF = 0.03  # an error, beyond that of chance, from which on probabilities are a rough guide only


def percent(share: float) -> str:
    """A share in per cent, as precisely as is of use.

    >>> [percent(share).replace("\u00a0", " ") for share in (0.5, 0.98765, 0.99999, 0.00012)]
    ['50 %', '98.8 %', '99.999 %', '0.01 %']
    """
    value, shown = 100 * share, ""
    for digits in (1, 2, 3):
        shown = f"{value:.{digits}f}"
        if value in (0, 100) or shown not in (f"{0:.{digits}f}", f"{100:.{digits}f}"):
            break
    return f"{shown.rstrip('0').rstrip('.')}\u00a0%"


def of_100(share: float) -> str:
    """A share as a count of a hundred; of a thousand where it is small or nearly all.

    >>> of_100(0.934), of_100(0.004)
    ('93 of 100', '4 of 1,000')
    """
    return f"{100 * share:.0f} of 100" if 0.01 <= share <= 0.99 or share in (0, 1) else f"{1000 * share:.0f} of 1,000"


def times(count: int) -> str:
    """How often something happened."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def accuracy(found: Findings) -> str:
    """How often the model is right, how well that is known, and what guessing would give."""
    low, high = likely_share(found.right)
    name, share = found.commonest
    return (
        f"{of_100(found.result.accuracy)} test examples get their true label. With {found.result.n:,} of them, the "
        f"rate for further examples of their kind most likely lies between {percent(low)} and {percent(high)}. Always "
        f"saying {written(name)}, the most common label, would be right for {percent(share)}."
    )


def calibration(found: Findings) -> str:
    """How far stated probabilities are from what happens, and what is to be made of that."""
    test = found.calibration
    return (
        f"A stated probability is off by {_points(test.error.value)} percentage points on average from how often it "
        f"comes true, that of the predicted label by {_points(test.top_label.value)}. {_judged(found)}"
    )


def beside_chance(error: AgainstChance) -> str:
    """An error beside what chance alone does."""
    return (
        f"Off by {_points(error.value)} percentage points on average. With these examples, a perfectly calibrated "
        f"model would be off by {_points(error.expected)} by chance alone, and rarely by more than "
        f"{_points(error.limit)}. The true error most likely lies between {_points(error.low)} and "
        f"{_points(error.high)} points."
    )


def _points(share: float) -> str:
    """In percentage points: two digits, so that small errors over many classes are not all 0.0."""
    return "0" if share < 5e-5 else f"{100 * share:.2g}" if share < 0.1 else f"{100 * share:.0f}"


def _judged(found: Findings) -> str:
    """What the errors say of the probabilities: nothing, nothing against them, or how far to trust them."""
    test = found.calibration
    if not test.informative:
        off = "That is more than chance explains. And" if test.miscalibrated else "But"
        return (
            f"{off} the probabilities tell these examples apart no better than chance would: at best they say how "
            "common each label is, and nothing of the single example."
        )
    if not test.miscalibrated:
        few = " More test examples would tell more." if max(test.error.high, test.top_label.high) > _OFF else ""
        return f"Chance explains all of it: nothing speaks against taking the probabilities at their word.{few}"
    excess = max(error.excess for error in (test.error, test.top_label) if error.beyond)
    sure = "sure" if found.probability.mean() > found.right.mean() else "modest"
    grades = (
        (0.01, "but are close to the truth"),
        (_OFF, "and are somewhat off"),
        (np.inf, "and are a rough guide only"),
    )
    grade = next(said for most, said in grades if excess < most)
    return f"That is more than chance explains: the probabilities are too {sure} on the whole, {grade}."


def resolution(found: Findings) -> str:
    """How much of what differs between examples the probabilities know."""
    return (
        "Of the variance of the labels, so much is explained by the stated probabilities, in bins of a tenth of the "
        f"examples each. Probabilities that know nothing reach {percent(found.calibration.chance_resolution)} by "
        "chance; perfect ones about 100\u00a0%."
    )


def log_loss(found: Findings) -> str:
    """What the log loss is in probabilities."""
    typical = float(np.exp(-found.result.log_loss))
    return (
        f"The true label has a probability of {percent(typical)}, by the geometric mean. A loss of 0 would be perfect; "
        "a single sure mistake costs much."
    )


def coverage(found: Findings) -> str:
    """Whether label sets keep their promise."""
    result, chance = found.result, found.chance(found.result.epsilon)
    promise, kept = percent(1 - result.epsilon), percent(result.coverage or 0.0)
    said = f"Sets of labels were promised to hold the true one for at least {promise}; they do for {kept}."
    if chance is None or result.coverage is None:
        return said
    low, high = chance
    if result.coverage < low:
        return f"{said} That is less than chance explains: these examples are unlike those the model was calibrated on."
    if result.coverage > high:
        return f"{said} That is more than chance explains: sets could be smaller on examples like these."
    if result.coverage >= 1 - result.epsilon:
        return f"{said} The promise is kept."
    n = found.count(len(found.clf.calibration_y_))
    return (
        f"{said} With {n:,} calibration examples, chance alone moves this between "
        f"{percent(low)} and {percent(high)}: nothing speaks against the promise."
    )


def set_size(found: Findings) -> str:
    """What sets of one, several and no labels say."""
    curve = found.set_curve([found.result.epsilon])
    assert curve is not None
    row = curve.iloc[0]
    return (
        f"{percent(row['single'])} of the sets name a single label: a clear answer. {percent(row['multiple'])} hold "
        f"several: the model cannot tell them apart. {percent(row['empty'])} are empty: no label fits."
    )


def credibility(found: Findings) -> str:
    """What credibility is, and whether the test examples look like those of calibration."""
    assert found.credibility is not None
    low = percent(float((found.credibility < STRANGE).mean()))
    n, n_calibration = len(found.credibility), len(found.clf.calibration_y_)
    # The true label's p-value is uniform on data like that of calibration, and credibility is at least that.
    least = 0.5 - 2 * np.sqrt((1 / n + 1 / n_calibration) / 12)
    stranger = " These examples are stranger to the model than those it was calibrated on."
    return (
        "How well an example fits what the model knows, from 0 to 1. On data like that of training it takes all "
        f"values, and averages a half or more; near 0 means “I have seen nothing like this”. {low} of the test "
        f"examples lie below {STRANGE:g}.{stranger if found.credibility.mean() < least else ''}"
    )


def outside(found: Findings) -> str:
    """How well strange data is noticed."""
    auroc, trust = found.auroc, found.credibility_outside
    assert auroc is not None
    assert trust is not None
    low = float((trust < STRANGE).mean())
    return (
        f"Of a test example and one unlike the training data, the test example is the more credible in "
        f"{of_100(auroc)} cases; 50 of 100 would be no better than a coin. {percent(low)} of the unlike ones lie below "
        f"{STRANGE:g}."
    )


def issues(found: Findings) -> str:
    """How many training labels look wrong."""
    n, m = found.count(len(found.issues)), found.count(len(found.clf.references_))
    if n == 0:
        return f"No training example is out-voted by the others. {LEARNED}"
    return (
        f"{n:,} of {m:,} training examples ({percent(n / m)}) would get another label from all the others. Some are "
        f"mislabelled, some are rare or lie between two classes. A look at the first ones pays most. {LEARNED}"
    )


def plane(share: float) -> str:
    """How far a flat map is to be trusted that shows such a share of the spread."""
    if share >= 1:
        return "The model itself works in two dimensions: distances on the map are the distances that count."
    return (
        f"The model works in more dimensions. The map shows the two with the most spread, {percent(share)} of it all: "
        "what lies apart here is apart, what lies together here may still be apart."
    )
