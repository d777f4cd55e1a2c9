"""ReferenceSet: the training examples that vote, with their labels and ids, editable without retraining."""

from dwac.reference.blocks import Block, VotePart, merge
from dwac.reference.distribution import InfluentialVoters, VoteDistribution
from dwac.reference.files import ReferenceWriter, in_memory, mapped_set, open_references
from dwac.reference.groups import Groups, GroupTargets
from dwac.reference.novelty import NEAREST, Known, novelty, novelty_by_set
from dwac.reference.references import (
    Neighbors,
    ReferenceSet,
    put_voters,
    with_classes,
    with_groups,
    without_look_alikes,
    without_members,
)
from dwac.reference.sets import VoterSets
from dwac.reference.voters import Voters, pad_rows

__all__ = [
    "NEAREST",
    "Block",
    "GroupTargets",
    "Groups",
    "InfluentialVoters",
    "Known",
    "Neighbors",
    "ReferenceSet",
    "ReferenceWriter",
    "VoteDistribution",
    "VotePart",
    "VoterSets",
    "Voters",
    "in_memory",
    "mapped_set",
    "merge",
    "novelty",
    "novelty_by_set",
    "open_references",
    "pad_rows",
    "put_voters",
    "with_classes",
    "with_groups",
    "without_look_alikes",
    "without_members",
]
