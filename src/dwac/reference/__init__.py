"""ReferenceSet: the training examples that vote, with their labels and ids, editable without retraining."""

from dwac.reference.blocks import Block, VotePart, merge
from dwac.reference.distribution import InfluentialVoters, VoteDistribution
from dwac.reference.files import ReferenceWriter, in_memory, open_references
from dwac.reference.groups import Groups
from dwac.reference.novelty import novelty
from dwac.reference.references import Neighbors, ReferenceSet

__all__ = [
    "Block",
    "Groups",
    "InfluentialVoters",
    "Neighbors",
    "ReferenceSet",
    "ReferenceWriter",
    "VoteDistribution",
    "VotePart",
    "in_memory",
    "merge",
    "novelty",
    "open_references",
]
