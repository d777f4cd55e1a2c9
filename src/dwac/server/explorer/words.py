"""A sentence beside each number of the page, for a reader who is no statistician. Facts of one prediction are said by
`Explanation.sentences`; these say what such numbers mean."""

from __future__ import annotations

from dwac.report.words import LEAD, STRANGE

GUIDE = {
    "lead": LEAD,
    "probability": "The share of all votes that goes to this label.",
    "confidence": "How firmly every other label is rejected: 1 minus the second largest p-value.",
    "credibility": (
        "How well the example fits what the model knows: the largest p-value. "
        f"Below {STRANGE:g} it is unlike nearly everything seen in calibration."
    ),
    "p_value": "The share of calibration examples that fit their own label no better than this example fits this one.",
    "deciding": "So few nearest examples settle the label, whatever labels all the others had.",
    "flip_size": "So many training examples would have to go for the label to change.",
    "share": "This example's part of the whole vote.",
    "weight": "exp(−distance²) for the usual kernel: 1 for a twin, near 0 for an example far away.",
    "set": "All labels with a p-value above ε. Such sets miss the true label at most a share ε of the time.",
    "sets": (
        "What sets at this ε look like over the loaded examples. One label is a clear answer, several mean that the "
        "model cannot tell them apart, none means that no label fits."
    ),
    "histogram": (
        "On data like that of training, credibility takes all values. A heap near 0 means examples unlike anything "
        "seen. Drag over the bars to see only such examples on the map."
    ),
    "issues": (
        "Training examples that all others out-vote, the most doubtful first. Some are mislabelled, some are rare or "
        "lie between two classes. Wrong labels that the network learned by heart are not among them."
    ),
    "training": (
        "A training example's own vote is left out. But the network learned from its label: the others may agree with "
        "it more than they would on a new example."
    ),
    "edits": (
        "Take training examples out, or give them another label, and see at once what changes. Nothing is trained anew "
        "and the stored model stays as it is: edits belong to this page."
    ),
    "what_if": "Change the example and ask again: the dashed line on the map shows how it moves.",
    "compare": "Loaded examples to which the two models give different labels.",
    "private": (
        "Private: training examples are not shown. Labels and their shares of the vote leave the server, in whole per "
        "cent; p-values above 10 % count as 1, and a count of 10 stands for that and fewer."
    ),
}
