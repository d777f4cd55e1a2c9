"""Kinds of targets: classes, ordered labels, several labels at once, or numbers.

Every training example has one code, 0 … K-1, and votes for it. The kinds differ in what a code means, its `outcomes`:

- a class, or an ordered label;
- several labels at once: the set of labels that an example has;
- numbers: a bin of them. The voters also keep their exact numbers, from which predictions are computed.

Each kind defines how to read y, what codes mean in the loss of a network (`dwac.nn.loss`), and how votes become
predictions. This package is internal.
"""

from dwac.tasks.base import CLASSES, LABELS, NUMBERS, ORDERED, Loss, Target
from dwac.tasks.classes import class_target
from dwac.tasks.labels import Labels, label_target, read_labels
from dwac.tasks.numbers import Numbers, number_target, read_numbers
from dwac.tasks.targets import read_target, restore_target

__all__ = [
    "CLASSES",
    "LABELS",
    "NUMBERS",
    "ORDERED",
    "Labels",
    "Loss",
    "Numbers",
    "Target",
    "class_target",
    "label_target",
    "number_target",
    "read_labels",
    "read_numbers",
    "read_target",
    "restore_target",
]
