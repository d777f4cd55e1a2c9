"""Explanations: who voted, with what weight, how few votes decide, and whose removal would change the label.

explanation = explain(model.references, h, k=5)[0]
print(explanation)
"""

from dwac.explain.classes import Explanation, explain
from dwac.explain.importance import Importance
from dwac.explain.labels import LabelExplanations, explain_labels
from dwac.explain.letters import Letter, LetterPart
from dwac.explain.many import Explanations
from dwac.explain.numbers import NumberExplanation, explain_numbers
from dwac.explain.reasons import Contribution, Precedent, Reasons
from dwac.explain.recourse import ChangedColumn, Recourse, Way
from dwac.explain.voters import Group, Neighbor

__all__ = [
    "ChangedColumn",
    "Contribution",
    "Explanation",
    "Explanations",
    "Group",
    "Importance",
    "LabelExplanations",
    "Letter",
    "LetterPart",
    "Neighbor",
    "NumberExplanation",
    "Precedent",
    "Reasons",
    "Recourse",
    "Way",
    "explain",
    "explain_labels",
    "explain_numbers",
]
