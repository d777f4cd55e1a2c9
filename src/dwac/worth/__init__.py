"""The worth of each voter, exactly: Shapley, Banzhaf and leave-one-out values of the vote itself.

    worth = of_labels(log_w, labels, truths, prior)      # log_w (n, m): the votes of m examples on n queries
    worth.values, worth.errors                           # (n, m), and the sum of errors for each query, (n,)

    worth = of_mean(log_w, gains, empty)                 # any weighted mean; empty: its value without players
    worth = of_squared_error(log_w, differences, empty)  # for numbers
    worth = of_mean(*together(log_w, gains, groups, n_groups), empty)    # groups of examples as players

    tally = Tally(m)                                     # over many queries, block by block
    for rows, log_w in vote_blocks(references, h):
        tally.add(of_labels(log_w, labels, truths[rows], prior))
    tally.mean, tally.standard_error

Arrays in, values out. Most people want `DWACClassifier.worth` and `DWACRegressor.worth`. The mathematics is in
`dwac.worth.games`. This is the worth of a vote given the embeddings, without what the network learned from an example.
Equal examples share their worth, so that one of many duplicates is worth little.
"""

from dwac.worth.games import of_labels, of_log, of_mean, of_squared_error, together
from dwac.worth.quadrature import GameValues
from dwac.worth.tally import Tally, vote_blocks

__all__ = [
    "GameValues",
    "Tally",
    "of_labels",
    "of_log",
    "of_mean",
    "of_squared_error",
    "together",
    "vote_blocks",
]
