"""The worth of each voter, exactly: Shapley, Banzhaf and leave-one-out values of the vote itself.

    found = of_labels(log_w, labels, truths, prior)      # log_w (n, m): the votes of m examples on n queries
    found.values, found.errors                           # (n, m), and the sum of errors for each query, (n,)

    found = of_mean(log_w, gains, empty)                 # any weighted mean; empty: its value without players
    found = of_squared_error(log_w, differences, empty)  # for numbers
    found = of_mean(*together(log_w, gains, groups, n_groups), empty)    # groups of examples as players

    tally = Tally(m)                                     # over many queries, block by block
    for rows, log_w in vote_blocks(references, h):
        tally.add(of_labels(log_w, labels, truths[rows], prior))
    tally.mean, tally.standard_error

Arrays in, values out. Most people want `DWACClassifier.worth` and `DWACRegressor.worth`. The mathematics is in
`dwac.worth.games`. This is the worth of a vote given the embeddings, without what the network learned from an example.
Equal examples share their worth, so that one of many duplicates is worth little.
"""

from dwac.worth.blocks import vote_blocks
from dwac.worth.games import METHODS, of_log, of_mean, of_squared_error
from dwac.worth.labels import UTILITIES, of_labels, together
from dwac.worth.solver import Values
from dwac.worth.tally import Tally

__all__ = [
    "METHODS",
    "UTILITIES",
    "Tally",
    "Values",
    "of_labels",
    "of_log",
    "of_mean",
    "of_squared_error",
    "together",
    "vote_blocks",
]
