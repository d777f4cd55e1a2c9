"""ReferenceSet: the training examples that vote, with their labels and ids, editable without retraining."""

from dwac.reference.distribution import Influential, VoteDistribution
from dwac.reference.groups import Groups, GroupTargets
from dwac.reference.known import Known
from dwac.reference.mapped import ReferenceWriter, mapped_set, open_references
from dwac.reference.novelty import novelty
from dwac.reference.parts import MeanPart, Part, TailPart, VariancePart, VotePart, merge
from dwac.reference.references import Neighbors, ReferenceSet
from dwac.reference.shards import Shard
from dwac.reference.state import filled

__all__ = [
    "GroupTargets",
    "Groups",
    "Influential",
    "Known",
    "MeanPart",
    "Neighbors",
    "Part",
    "ReferenceSet",
    "ReferenceWriter",
    "Shard",
    "TailPart",
    "VariancePart",
    "VoteDistribution",
    "VotePart",
    "filled",
    "mapped_set",
    "merge",
    "novelty",
    "open_references",
]
