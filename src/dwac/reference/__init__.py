"""ReferenceSet: the training examples that vote, with their labels and ids, editable without retraining."""

from dwac.reference.distribution import Influential, VoteDistribution
from dwac.reference.groups import Groups, GroupTargets
from dwac.reference.known import Known
from dwac.reference.novelty import novelty
from dwac.reference.references import Bounded, Neighbors, ReferenceSet
from dwac.reference.state import filled

__all__ = [
    "Bounded",
    "GroupTargets",
    "Groups",
    "Influential",
    "Known",
    "Neighbors",
    "ReferenceSet",
    "VoteDistribution",
    "filled",
    "novelty",
]
