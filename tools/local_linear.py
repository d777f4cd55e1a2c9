"""A trial: a local linear term beside the vote for a number, on the embeddings of a fitted model.

Σ_i p_i y_i is the value at x of the constant that fits the voters best, by weights p_i. A line through them has the
value Σ_i l_i y_i, l_i = p_i (1 - a' (S + r I)⁻¹ (a_i - a)): a_i = h_i - h(x), a and S their weighted mean and
covariance. The weights l_i still sum to 1, but some are negative. Only a share f of the difference is added, and r is
in units of a twentieth of the trace of S. Both are chosen on calibration rows (cross-fitted: out of fold), or given.

    python -m tools.local_linear FILE.csv TARGET [--drop COLUMN …] [--rows 8000] [--given 1 .5]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dwac import DWACRegressor
from dwac.kernels import squared_distances
from dwac.reference import ReferenceSet
from dwac.training.cross_fit import FOLDS, part_of

Floats = NDArray[np.float64]
RIDGES, SHARES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01), (0.0, 0.25, 0.5, 0.75, 1.0)
NEAR, JUDGED = 400, 300  # voters on a line, and rows of each kind


def log_weights(voters: ReferenceSet, h: torch.Tensor) -> torch.Tensor:
    """(n, m): the log weight of each voter."""
    squared = squared_distances(h.double(), voters.embeddings.double())
    more = voters.voters.look_alikes
    return -squared if more is None else torch.logaddexp(-squared, np.log(more.weight) - more.factor**2 * squared)


def lines(voters: ReferenceSet, h: torch.Tensor) -> tuple[Floats, Floats, Floats]:
    """Votes (n,), the differences of the lines, (n, R), and their negative weights by share of them, (n, R, F)."""
    assert voters.targets is not None
    weights = torch.softmax(log_weights(voters, h), dim=1)
    y, votes = voters.targets[:, 0], weights @ voters.targets[:, 0]
    terms, negative = np.zeros((len(h), len(RIDGES))), np.zeros((len(h), len(RIDGES), len(SHARES)))
    for row, (own, query) in enumerate(zip(weights, h.double(), strict=True)):
        p, near = own.topk(min(NEAR, len(own)))
        p, apart = p / p.sum(), voters.embeddings[near].double() - query
        mean = p @ apart
        apart = apart - mean
        values, axes = torch.linalg.eigh(apart.T @ (p[:, None] * apart))
        along, slope, mean = apart @ axes, axes.T @ (apart.T @ (p * (y[near] - p @ y[near]))), axes.T @ mean
        for place, ridge in enumerate(RIDGES):
            inverse = mean / (values.clamp_min(0) + ridge * values.sum() / 20 + 1e-12)
            terms[row, place] = -float(inverse @ slope)
            shares = 1 - along @ inverse[:, None] * torch.tensor(SHARES)
            negative[row, place] = -(p[:, None] * shares).clamp_max(0).sum(dim=0).numpy()
    return votes.numpy(), terms, negative


def held_lines(reg: DWACRegressor, rows: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Votes and terms of calibration rows, by networks and voters that did not see them."""
    fitted = reg.fitted_
    h, folds = fitted.calibration.h[rows], fitted.folds
    if folds is None:
        return lines(fitted.references, h)[:2]
    votes, terms, of = (
        np.zeros(len(rows)),
        np.zeros((len(rows), len(RIDGES))),
        folds.numbers(fitted.calibration.ids[rows]),
    )
    for fold, voters in zip(range(FOLDS), folds.sets(fitted.references), strict=True):
        votes[of == fold], terms[of == fold], _ = lines(voters, part_of(h[of == fold], fold, folds.members))
    return votes, terms


def rmse(predicted: Floats, y: Floats) -> float:
    """The root mean squared error."""
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


def judge(reg: DWACRegressor, X: pd.DataFrame, y: Floats, given: tuple[float, float] | None) -> dict[str, Any]:
    """RMSE and CRPS of test rows as multiples of those of the vote, with the chosen ridge and share, or those given."""
    held = np.random.default_rng(0).permutation(len(reg.fitted_.calibration.y))[:JUDGED]
    if given is None:
        truth, (votes, terms) = np.asarray(reg.fitted_.calibration.exact)[held, 0], held_lines(reg, held)
        grid = [
            (rmse(votes + f * terms[:, r], truth) / rmse(votes, truth), r, f)
            for f in SHARES
            for r in range(len(RIDGES))
        ]
        kept, place, share = min(grid)
    else:
        kept, place, share = np.nan, RIDGES.index(given[0]), given[1]
    observed = reg.observe(X)
    votes, terms, negative = lines(reg.references_, observed.h)
    moved, distribution = share * terms[:, place], reg.references_.distribution(observed.h)
    crps = [float(distribution.crps(y - part).mean()) for part in (np.zeros(len(y)), moved)]
    found = {"vote": rmse(votes, y), "ridge": RIDGES[place], "share": share, "held": kept}
    found |= {"rmse": rmse(votes + moved, y) / found["vote"], "crps": crps[1] / crps[0]}
    return found | {"negative": float(negative[:, place, SHARES.index(share)].mean())}


def main() -> None:
    """Fit both ways and print what the term is worth."""
    parser = argparse.ArgumentParser(prog="python -m tools.local_linear")
    parser.add_argument("file")
    parser.add_argument("target")
    parser.add_argument("--drop", nargs="*", default=[])
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--given", nargs=2, type=float, help="ridge and share; by default chosen on calibration rows")
    chosen = parser.parse_args()
    table = pd.read_csv(chosen.file).drop(columns=chosen.drop).dropna(subset=[chosen.target])
    table = table.sample(frac=1, random_state=19).reset_index(drop=True)
    y, train = table.pop(chosen.target).to_numpy(np.float64), slice(JUDGED, JUDGED + chosen.rows)
    for crossed in (False, True):
        reg = DWACRegressor(cross_fit=crossed, random_state=0, device="cpu", verbose=False).fit(table[train], y[train])
        given = None if chosen.given is None else (chosen.given[0], chosen.given[1])
        found = judge(reg, table[:JUDGED], y[:JUDGED], given)
        print(chosen.target, "cross-fitted" if crossed else "rows held out", found, flush=True)


if __name__ == "__main__":
    main()
