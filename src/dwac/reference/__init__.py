"""ReferenceSet: the training examples that vote, with their labels and ids, editable without retraining."""

from dwac.reference.groups import Groups
from dwac.reference.novelty import novelty
from dwac.reference.references import Bounded, Neighbors, ReferenceSet
from dwac.reference.state import filled

__all__ = ["Bounded", "Groups", "Neighbors", "ReferenceSet", "filled", "novelty"]
