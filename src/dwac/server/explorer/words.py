"""Sentences that explain the numbers of the page to readers without a background in statistics.

Facts about one prediction come from `Explanation.sentences`; these say what the numbers mean.
"""

from __future__ import annotations

from dwac import tasks
from dwac.explain.base import STRANGE
from dwac.report.card import LEAD
from dwac.report.grouped import in_shown_groups
from dwac.report.maps import describe_map
from dwac.report.worth import ranking
from dwac.server.explorer.state import Explorer

_VOTE = (
    "What the network learned from an example is not in its worth, and examples that are alike share theirs. What "
    "removing one changes is exact; it may differ in sign from its worth, which also counts how it votes among few."
)
_CALIBRATION = "Calibration keeps all its rows as they came, so what is promised at ε holds after edits, too."

GUIDE = {
    "lead": LEAD,
    "probability": "The share of all votes that goes to this label.",
    "confidence": "How firmly every other label is rejected: 1 minus the second largest p-value.",
    "typicality": (
        "How like the training examples it is, whatever its label: the share of calibration examples at least as "
        f"unlike them. Up to {STRANGE:g} it is unlike anything known."
    ),
    "credibility": (
        "How well the best label fits: the largest p-value, which is the share of calibration examples that fit their "
        "own label no better."
    ),
    "p_value": "Calibration examples that fit their own label no better than this example fits this label, as a share.",
    "deciding": "How many nearest examples decide the label, whatever the labels of the others.",
    "flip_size": "How many training examples must be removed to change the label.",
    "groups": (
        "Training examples of one label that vote alike form a group. Its share is the exact sum of its members' "
        "votes. Most alike: the member most like this example."
    ),
    "deciding_groups": "How many of the heaviest groups decide the label, whatever the labels of all others.",
    "disc": (
        "A disc holds training examples of one class that vote alike; its area grows with their number. Several discs "
        "may form one group."
    ),
    "share": "The share of this example in the whole vote.",
    "weight": "exp(−distance²) for the default kernel: 1 for an identical example, near 0 for a distant one.",
    "set": "All labels with a p-value above ε. Such sets are built to miss the true label at a rate of at most ε.",
    "sets": (
        "Prediction sets of the loaded examples at this ε. One label is a clear answer; with several, the model cannot "
        "decide between them; with none, no label fits."
    ),
    "histogram": (
        "On data like the training data, typicality is spread evenly from 0 to 1. A peak near 0 means examples unlike "
        "anything seen. Drag over the bars to show only those examples on the map."
    ),
    "issues": (
        "Training examples whose labels are more likely wrong than right, the least probable first: others outvote "
        "them where labels are hardly ever so uncertain."
    ),
    "worth": (
        "What the vote of each training example adds to the probability of the true label, on average: its Shapley "
        f"value, in percentage points. {_VOTE} {ranking()} Before and after: the mean probability of the true label."
    ),
    "training": (
        "The votes exclude the example itself. But the network was trained on its label, so the others may agree with "
        "it more than they would on a new example."
    ),
    "edits": (
        "Remove the votes of training examples, or change their labels, and see at once what changes. Nothing is "
        f"retrained, and the stored model is not changed: edits apply to this page only. {_CALIBRATION}"
    ),
    "what_if": "Change a value and see the vote move; the dashed line on the map shows how the example moves.",
    "compare": "Loaded examples for which the two models predict different labels.",
    "private": (
        "Private: training examples are not shown. The server sends only labels and their shares of the vote, in whole "
        "per cent; p-values above 10 % count as 1, and a count of 10 means 10 or fewer."
    ),
}

REPRESENTED = {  # replaces the same entries for condensed models
    "deciding": "How many of the heaviest representatives decide the label, whatever the labels of the others.",
    "flip_size": "How many representatives must be removed, each with all it votes for, to change the label.",
    "share": "The share of this representative, with all it votes for, in the whole vote.",
    "weight": "exp(−distance²) for the default kernel, times the number of votes that the representative has.",
    "issues": (
        "Representatives whose labels are more likely wrong than right, the least probable first: others outvote them "
        "where labels are hardly ever so uncertain."
    ),
    "training": (
        "The votes exclude this representative and all it votes for. But the network was trained on its label, so the "
        "others may agree with it more than they would on a new example."
    ),
    "edits": (
        "Remove representatives, or change their labels, and see at once what changes: each goes with all it votes "
        f"for. Nothing is retrained, and the stored model is not changed: edits apply to this page only. {_CALIBRATION}"
    ),
}

_ALL = "on average, for examples like those of training"

NUMBERS = {
    "lead": (
        "Every prediction of this model is a vote. Each training example votes for its own number; the more similar it "
        "is to the example being predicted, the more its vote counts. The mean of the votes is the prediction. So "
        "every prediction can be traced to the examples that decided it, and an example unlike all of them can be "
        "recognised."
    ),
    "typicality": GUIDE["typicality"].replace("whatever its label", "whatever its number"),
    "prediction": "The average of the votes, each with the weight of the example that casts it.",
    "interval": f"Such intervals are built to miss the true number at a rate of at most ε, {_ALL}.",
    "votes": "Where the votes are: the height of a bar is the share of the vote for numbers in its range.",
    "influential": "Training examples whose removal would move the prediction most, exactly.",
    "groups": (
        "Training examples that vote alike form a group; its numbers are their mean and range. Its share is the exact "
        "sum of its members' votes. Most alike: the member most like this example."
    ),
    "disc": (
        "A disc holds training examples with similar numbers that vote alike; its area grows with how many they are, "
        "its colour is that of their mean. Several discs may form one group."
    ),
    "sets": "Intervals of the loaded rows at this ε. Narrow ones are precise answers.",
    "unasked": "Load rows of data to see how often intervals hold the true number.",
    "measure": "Drag over the bars to show only those examples on the map.",
    "issues": (
        "Loaded examples, those furthest from what the others vote for first. A wrong number, or an unusual example: "
        "look at it."
    ),
    "worth": (
        "What the vote of each training example takes off the squared error of the voters' mean, on average: its "
        f"Shapley value, in per cent of the variance of the numbers. {_VOTE} {ranking(tasks.NUMBERS)} Before and "
        "after: the squared error."
    ),
    "training": (
        "The votes exclude the example itself. But the network was trained on its number, so the others may agree with "
        "it more than they would on a new example."
    ),
    "edits": (
        "Remove the votes of training examples, or change their numbers, and see at once what changes. Nothing is "
        f"retrained, and the stored model is not changed: edits apply to this page only. {_CALIBRATION}"
    ),
    "compare": "Loaded examples, those on which the two models differ most first.",
    "private": (
        "Private: training examples are not shown. The server sends only rounded numbers; typicality above 10 % counts "
        "as 1."
    ),
}

LABELS = {
    "lead": (
        "Every prediction of this model is a vote. Each training example votes yes for the labels that it has, and no "
        "for the others; the more similar it is to the example being predicted, the more its vote counts. So every "
        "label can be traced to the examples that decided it."
    ),
    "typicality": GUIDE["typicality"].replace("whatever its label", "whatever its labels"),
    "probability": "The share of all votes that says this.",
    "set": "Answers with a p-value above ε. One is a decision; both, or none, leave the label undecided.",
    "sets": (
        "Decisions on this label at this ε. Of the examples that have a label at most a share ε is told no, and of "
        "those that do not at most a share ε is told yes."
    ),
    "groups": (
        "Training examples with the same answer that vote alike form a group. Its share is the exact sum of its "
        "members' votes. Most alike: the member most like this example."
    ),
    "disc": (
        "A disc holds training examples with the same labels that vote alike; its area grows with their number. "
        "Several discs may form one group."
    ),
    "issues": (
        "Labels that the others vote against, the most improbable first. A wrong label, or an unusual example: look at "
        "it."
    ),
    "worth": (
        "What the vote of each training example adds to the probability of the truth, that a row has a label or lacks "
        f"it, on average over labels: its Shapley value, in percentage points. {_VOTE} {ranking(tasks.LABELS)} "
        "Before and after: the mean of that probability."
    ),
    "training": (
        "The votes exclude the example itself. But the network was trained on its labels, so the others may agree with "
        "it more than they would on a new example."
    ),
    "edits": (
        "Remove the votes of training examples, or give them the labels of another, and see at once what changes. "
        f"Nothing is retrained, and the stored model is not changed: edits apply to this page only. {_CALIBRATION}"
    ),
    "compare": "Loaded examples for which the two models predict different labels, by probabilities that differ most.",
}

_OF_TASK = {"numbers": NUMBERS, "labels": LABELS}
_ON_MAP = {
    "numbers": {"alike": "with similar numbers", "near": "whose numbers are like its prediction"},
    "labels": {"alike": "with the same labels", "near": "with the labels predicted for it"},
}


def guide(explorer: Explorer) -> dict[str, str]:
    """The sentences of a page, by the model's task and whether it is condensed."""
    represented = REPRESENTED if explorer.clf.references_.voters.represents else {}
    kind, points = explorer.clf.target_.kind, explorer.points
    own = _OF_TASK.get(kind, {})
    discs = len(points.layout.centres) if points.has_discs else 0
    groups = len(in_shown_groups(explorer.clf)[0].groups) if discs else 0
    sentence = describe_map(unchanged=points.layout.unchanged, discs=discs, groups=groups, **_ON_MAP.get(kind, {}))
    shown = {"map": sentence}
    others = {name: text for name, text in represented.items() if name not in own or name in ("share", "weight")}
    return {**GUIDE, **shown, **own, **others}
