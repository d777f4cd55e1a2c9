"""Votes of other models: explanations, prediction sets and worth for any model that is a weighted vote.

voters = from_forest(forest, X, y).calibrate()       # also from_neighbors, from_kernel_ridge, …
voters.predict_proba(X_new)                          # that of the forest
print(voters.explain(X_new)[0])                      # who voted, how few decide, whose removal changes the label
voters.predict_set(X_new, epsilon=0.05); voters.worth(X_new, y_new); voters.silence(ids)

voters = VotingModel.of(model, y, ids=ids)                # any object with weights(X) -> blocks (b, m)
"""

from dwac.votes.models import from_forest, from_gaussian_process, from_kernel_ridge, from_neighbors
from dwac.votes.voters import VotingModel, Weights

__all__ = [
    "VotingModel",
    "Weights",
    "from_forest",
    "from_gaussian_process",
    "from_kernel_ridge",
    "from_neighbors",
]
