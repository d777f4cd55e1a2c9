"""Sentences that explain the numbers of the page to readers without a background in statistics.

Facts about one prediction come from `Explanation.sentences`; these say what such numbers mean.
"""

from __future__ import annotations

from dwac.explain.explanation import STRANGE
from dwac.report.words import LEAD

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
        "A disc is a group of training examples of one class that vote alike; its area grows with their number. "
        "Several discs form a larger group."
    ),
    "share": "The share of this example in the whole vote.",
    "weight": "exp(−distance²) for the default kernel: 1 for an identical example, near 0 for a distant one.",
    "set": "All labels with a p-value above ε. Such sets are built to miss the true label at a rate of at most ε.",
    "sets": (
        "Prediction sets of the loaded examples at this ε. One label is a clear answer; with several, the model cannot "
        "decide between them; with none, no label fits."
    ),
    "histogram": (
        "On data like the training data, typicality takes all values alike. A peak near 0 means examples unlike "
        "anything seen. Drag over the bars to show only those examples on the map."
    ),
    "issues": (
        "Training examples whose labels are more likely wrong than right, the least probable first: others outvote "
        "them where labels are hardly ever so uncertain."
    ),
    "training": (
        "The votes exclude the example itself. But the network was trained on its label, so the others may agree with "
        "it more than they would on a new example."
    ),
    "edits": (
        "Remove training examples, or change their labels, and see at once what changes. Nothing is retrained, and the "
        "stored model is not changed: edits apply to this page only."
    ),
    "what_if": "Change the example and predict again: the dashed line on the map shows how it moves.",
    "compare": "Loaded examples for which the two models predict different labels.",
    "private": (
        "Private: training examples are not shown. The server sends only labels and their shares of the vote, in whole "
        "per cent; p-values above 10 % count as 1, and a count of 10 means 10 or fewer."
    ),
}

REPRESENTED = {  # instead of the same entries, where few represent all
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
        "for. Nothing is retrained, and the stored model is not changed: edits apply to this page only."
    ),
}
