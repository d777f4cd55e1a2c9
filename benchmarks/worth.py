"""Claim: Shapley values of every example for the vote itself, within 1e-4, take seconds where sampling takes days.

Voters and queries are drawn from a mixture of Gaussians, several for each class; a tenth of the labels are wrong. The
tolerance is on the sum of the absolute errors of all voters of one query. Errors are measured on a few queries, against
values at a tolerance of 1e-8. Peers, in the same run: orders of the voters drawn at random (the usual estimate of
Shapley values), whose errors fall as one over the root of their number; and the closed form for k nearest neighbours
(Jia et al. 2019), which is fast but values another model.

    python -m benchmarks.worth          # 1,000 queries × 5,000 voters on a CPU
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from benchmarks import record
from dwac import ReferenceSet
from dwac.worth import Tally, of_labels, vote_blocks

CLASSES, CLUSTERS, DIMENSIONS, WRONG = 10, 4, 16, 0.1
MEASURED, ORDERS, NEIGHBORS = 8, 200, 5
TOLERANCE = 1e-4


def data(n: int, centres: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Embeddings and labels, some of them wrong."""
    generator = torch.Generator().manual_seed(seed)
    cluster = torch.randint(len(centres), (n,), generator=generator)
    h = centres[cluster] + torch.randn(n, DIMENSIONS, generator=generator)
    wrong = torch.rand(n, generator=generator) < WRONG
    return h, torch.where(wrong, torch.randint(CLASSES, (n,), generator=generator), cluster % CLASSES)


def timed(run: Any) -> tuple[Any, float]:
    """What run() gives, and the seconds it takes."""
    start = time.perf_counter()
    found = run()
    return found, time.perf_counter() - start


def quadrature(references: ReferenceSet, h: Tensor, y: Tensor, prior: Tensor, method: str) -> Tally:
    """All queries, as `DWACClassifier.worth` counts them."""
    tally = Tally(len(references), references.labels.device)
    for rows, log_w in vote_blocks(references, h):
        tally.add(of_labels(log_w, references.labels, y[rows], prior, method=method, tolerance=TOLERANCE))
    return tally


def in_random_orders(log_w: Tensor, right: Tensor, prior: Tensor, orders: int) -> Tensor:
    """(n, m): the mean change of P(true label) as each voter comes, over so many orders of each query's voters."""
    found = torch.zeros_like(log_w)
    votes = (log_w - log_w.amax(dim=1, keepdim=True)).exp()
    for _ in range(orders):
        order = torch.rand_like(votes).argsort(dim=1)
        came = votes.gather(1, order)
        p = (came * right.gather(1, order)).cumsum(dim=1) / came.cumsum(dim=1)
        found.scatter_add_(1, order, p.diff(dim=1, prepend=prior[:, None]))
    return found / orders


def of_neighbors(log_w: Tensor, right: Tensor) -> Tensor:
    """(n, m): Shapley values for k nearest neighbours, by the recursion of Jia et al. from the furthest one."""
    m = log_w.shape[1]
    order = log_w.argsort(dim=1, descending=True)
    sorted_right = right.gather(1, order)
    ranks = torch.arange(1, m, device=log_w.device, dtype=log_w.dtype)
    steps = (sorted_right[:, :-1] - sorted_right[:, 1:]) / NEIGHBORS * ranks.clamp_max(NEIGHBORS) / ranks
    values = torch.cat([steps, sorted_right[:, -1:] / m], dim=1).flip(1).cumsum(dim=1).flip(1)
    return torch.zeros_like(log_w).scatter_(1, order, values)


def row(method: str, seconds: float, errors: Tensor | None) -> dict[str, Any]:
    """One line of the table, of errors (n, m)."""
    summed, largest = (float("nan"),) * 2 if errors is None else (errors.abs().sum(dim=1).max(), errors.abs().max())
    return {"method": method, "seconds": seconds, "errors of a query": float(summed), "largest error": float(largest)}


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--voters", type=int, default=5000)
    parser.add_argument("--spread", type=float, default=1.0, help="of the clusters' centres, beside 1 within a cluster")
    args = parser.parse_args()
    centres = args.spread * torch.randn(CLASSES * CLUSTERS, DIMENSIONS, generator=torch.Generator().manual_seed(0))
    ref_h, labels = data(args.voters, centres, 1)
    h, y = data(args.queries, centres, 2)
    references = ReferenceSet(ref_h, labels, n_classes=CLASSES)
    prior = torch.bincount(references.labels, minlength=CLASSES).double() / len(references)
    quadrature(references, h[:64], y[:64], prior, "shapley")  # warm up
    log_w = references.voters.every_vote(h[:MEASURED])
    truth = of_labels(log_w, references.labels, y[:MEASURED], prior, tolerance=1e-8)[0]
    near = of_labels(log_w, references.labels, y[:MEASURED], prior, tolerance=TOLERANCE)[0]
    right = (references.labels == y[:MEASURED, None]).double()
    rows = []
    for method in ("shapley", "banzhaf", "leave_one_out"):
        tally, seconds = timed(lambda m=method: quadrature(references, h, y, prior, m))
        rows.append(row(f"{method}, ours", seconds, near - truth if method == "shapley" else None))
        print(rows[-1], "estimated:", tally.error, flush=True)
    sampled, seconds = timed(lambda: in_random_orders(log_w, right, prior[y[:MEASURED]], ORDERS))
    seconds *= args.queries / MEASURED
    rows.append(row(f"{ORDERS} random orders *", seconds, sampled - truth))
    enough = (rows[-1]["largest error"] / TOLERANCE) ** 2
    rows.append(row(f"{ORDERS * enough:,.0f} random orders **", seconds * enough, (sampled - truth) / enough**0.5))

    def neighbors() -> None:
        for part, votes in vote_blocks(references, h):
            of_neighbors(votes, (references.labels == y[part, None]).double())

    _, seconds = timed(neighbors)
    rows.append(row(f"closed form, {NEIGHBORS} neighbours", seconds, of_neighbors(log_w, right) - truth))
    table = pd.DataFrame(rows)
    table["times ours"] = table["seconds"] / table["seconds"].iloc[0]
    spans = log_w.amax(dim=1) - log_w.amin(dim=1)
    claim = (
        f"Shapley values of {args.voters:,} voters on {args.queries:,} queries, the errors of a query summing to at "
        f"most {TOLERANCE:g}. * measured on {MEASURED} queries, the time is in proportion. ** what these errors imply "
        f"for a largest error of {TOLERANCE:g}. The closed form values another model, hence its errors."
    )
    config = vars(args) | {
        "tolerance": TOLERANCE,
        "classes": CLASSES,
        "dimensions": DIMENSIONS,
        "wrong labels": WRONG,
        "log-weights span (largest of those measured)": round(float(spans.max())),
    }
    record.write("worth", claim, config, table)


if __name__ == "__main__":
    main()
