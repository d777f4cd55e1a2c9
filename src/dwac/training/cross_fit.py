"""Cross-fitting, for tables of few rows: every member of an ensemble leaves out one fold of the training rows.

history = cross_fit(model, x, y, folds_of(len(y)))

A member never saw the rows of its fold, so the members of a fold judge those rows honestly. All folds together judge
all rows: no row has to be set aside for validation, and every row trains and votes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.engine.backends import exp_
from dwac.errors import InputError, NonFiniteError, ShapeError
from dwac.kernels import get_kernel, squared_distances
from dwac.nn import WeightedAverage
from dwac.nn.batches import Inputs, batches_of, embed, inputs_of, move_to
from dwac.nn.ensemble import split_members
from dwac.nn.ranks import agree, sharing_ranks
from dwac.training.rows import even_size
from dwac.training.steps import AdamW, one_cycle
from dwac.training.validation import sample, vote_factors

Ints = NDArray[np.int64]

logger = logging.getLogger(__name__)

FOLDS, VIEWS = 5, 2  # each fold is left out by one member of each view: without and with bins
WAVES, WIDE = 2048, 12  # a third view, of waves, in tables with fewer than so many rows for each column
FEWEST = 20  # rows needed
STEPS, MOST_STEPS, BATCH = 60, 120, 128  # of training: more steps from 900 rows on, larger batches from 2,000
_MANY, _MANY_STEPS = 4000, 300  # from so many rows on
_FEW, _RATES = 300, (5e-3, 1.2e-2)  # the learning rates below so many rows, and from there on
_DECAY = 1e-2  # of the weights
_ROUNDS = 10  # rows of the history
_RIDGE, _SPREAD = 0.1, 1.5  # linear start: its penalty, and the root mean square of h
_NOISE = 0.03  # size of the random part of the linear path, next to that start
_RIDGES, _JUDGES = (1, 3, 10, 30, 100, 300, 1000, 3000), 400  # multiples of that penalty, and rows that choose one
_SHARES = {  # of the views in the squared distance
    1: ((1.0,),),
    2: ((1.0, 0.0), (0.8, 0.2), (0.5, 0.5), (0.2, 0.8), (0.0, 1.0)),
    3: tuple(
        share
        for shares in ((1.0, 0.0, 0.0), (0.8, 0.2, 0.0), (0.5, 0.5, 0.0), (0.6, 0.2, 0.2), (1 / 3, 1 / 3, 1 / 3))
        for share in sorted(set(permutations(shares)))
    ),
}
_SCALES = tuple(np.geomspace(0.5, 60, 9).tolist())  # multiples of the median squared distance
_BASES = (0.0, *(10**exponent for exponent in np.arange(-6, 0.01, 0.5)))
_USUAL_LOG_SCALE = 1.5  # the log of a usual scale, ± 1
QUERIES = 400  # out-of-fold votes used to choose them
_ROWS = 512  # rows embedded at once
_CELLS = 2**18  # votes in memory at once: what fits in the cache of a CPU


def folds_of(n: int, groups: Ints | None = None, *, seed: int = 0) -> Tensor:
    """(n,): a random fold of each row, whatever its class; folds differ by at most one row.

    With stratified folds, a class of n_k rows would have 4/5 n_k voters in each fold's model. A calibration row is one
    of the n_k, a new row is not: classes that are frequent by chance would fit calibration rows better than new ones,
    and prediction sets would miss too often (n = 60, 10 classes, no signal, ε = .2: coverage .72, with random folds
    .82).

    groups: (n,) the group of each row, 0 … G-1; a group stays in one fold, the largest are placed first.

    >>> folds_of(10, seed=1).bincount().tolist()
    [2, 2, 2, 2, 2]
    >>> folds_of(6, np.array([0, 0, 1, 2, 3, 4]))[:2].unique().numel()
    1
    """
    order = torch.randperm(
        n if groups is None else int(groups.max()) + 1, generator=torch.Generator().manual_seed(seed)
    )
    if groups is None:
        folds = torch.empty(n, dtype=torch.int64)
        folds[order] = torch.arange(n) % FOLDS
        return folds
    sizes, rows = np.bincount(groups), np.zeros(FOLDS, dtype=np.int64)
    fold = np.empty(len(sizes), dtype=np.int64)
    for group in sorted(order.tolist(), key=lambda group: -sizes[group]):
        fold[group] = rows.argmin()
        rows[fold[group]] += sizes[group]
    return torch.as_tensor(fold[groups])


def part_of(h: Tensor, fold: int, members: int) -> Tensor:
    """(n, d / FOLDS): the part of h (n, d) from the members that leave out a fold, as if there were no others.

    With one member all folds share h: each row has the h of the fit that left it out (`cross_fit_lines`).
    """
    if members == 1:
        return h
    own = split_members(h, members)[:, fold::FOLDS]
    return own.flatten(1) / math.sqrt(own.shape[1])


def parts_of(h: Tensor, members: int) -> Tensor:
    """(FOLDS, n, d / FOLDS): `part_of` for every fold."""
    if members == 1:
        return h.expand(FOLDS, -1, -1)
    own = split_members(h, members)
    own = own.reshape(len(h), members // FOLDS, FOLDS, own.shape[2]).permute(2, 0, 1, 3)
    return own.flatten(2) / math.sqrt(own.shape[2])


def cross_fit(
    model: WeightedAverage,
    x: Tensor | Inputs,
    y: Tensor,
    folds: Tensor,
    *,
    weights: Tensor | None = None,
    class_weights: Sequence[float] | None = None,
    rescale: bool = True,
    base_votes: bool = True,
    linear_start: bool = True,
    steps: int | None = None,
    seed: int = 0,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    on_batch: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Train an ensemble by cross-fitting and return the history, in ten rounds of equally many steps.

    Member m leaves out fold m mod 5. Its linear path starts as a ridge regression of the labels; then all members
    take each step together, each with its own batch of rows, using the leave-one-out loss, AdamW and the one-cycle
    schedule of `train`. Then all rows become references, with the embeddings of all members (`fit_votes`).

    Args:
        model: a `WeightedAverage` of a wide ensemble of 10 networks.
        x, y, weights, class_weights: as for `train`.
        folds: (n,) the fold of each row.
        rescale: choose the scale of each view, and the base vote, by out-of-fold votes.
        linear_start: start the linear paths as ridge regressions, or at random.
        base_votes: give every example a base vote at any distance, if that improves out-of-fold votes.
        steps: by default 60, more from 900 rows on, up to 300.
    """
    inputs, n = move_to(inputs_of(x), model.device), len(y)
    if n < FEWEST:
        raise ShapeError(f"cross-fitting needs at least {FEWEST} training rows; got {n}")
    trained = getattr(model.backbone, "weight", ()) if hasattr(model.backbone, "views") else ()
    if len(trained) != FOLDS * VIEWS:
        raise InputError(f"cross-fitting needs a wide ensemble of {FOLDS * VIEWS} networks; got {len(trained)}")
    y, folds = y.to(model.device), folds.to(model.device)
    with torch.no_grad():
        model.embed(tuple(part[:2] for part in inputs))  # initialise lazy layers
    steps = steps or max(STEPS, min(MOST_STEPS if n < _MANY else _MANY_STEPS, n // 15))
    run = CrossFitRun(model, inputs, y, weights, folds, seed=seed, steps=steps, linear_start=linear_start)
    rows: list[dict[str, Any]] = []
    ended = "finished"
    try:
        for row in run.rounds(on_batch):
            rows.append(row)
            if on_epoch is not None:
                on_epoch(row)
    except KeyboardInterrupt:
        if not rows or sharing_ranks() is not None:
            raise  # nothing to keep yet, or processes differ
        ended = "interrupted"
        logger.warning("training was interrupted after %s of %s rounds; the model so far is kept", len(rows), _ROUNDS)
    model.eval()
    ranks = sharing_ranks()
    if ranks is not None:
        ranks.align(model.parameters())  # processes agree except for rounding on other machines
    votes = fit_votes(model, inputs, y, folds, class_weights, base_votes=base_votes) if rescale else None
    remember_all(model, inputs, y, votes)
    history = pd.DataFrame(rows)
    history.attrs["ended"] = ended
    return history


def remember_all(model: WeightedAverage, inputs: Inputs, y: Tensor, votes: ViewVotes | None) -> None:
    """Let all rows vote, each also with the base vote of `fit_votes`."""
    model.remember(batches_of(inputs, y, torch.arange(len(y))))
    if votes is not None and votes.base > 0:
        model.references = model.references.replaced(look_alikes=(0.0, votes.base))


class CrossFitRun:
    """The training steps."""

    def __init__(
        self,
        model: WeightedAverage,
        inputs: Inputs,
        y: Tensor,
        weights: Tensor | None,
        folds: Tensor,
        *,
        seed: int,
        steps: int,
        linear_start: bool = True,
    ) -> None:
        network: Any = model.first_network
        backbone: Any = model.backbone
        self.model, self.y, self.steps = model, y, steps
        self.x: Tensor = network.numbers(*inputs)
        self.weights = None if weights is None else weights.to(y.device, torch.float32)
        self.rows = [torch.nonzero(folds != fold)[:, 0] for fold in range(FOLDS)]
        self.size = min(BATCH if len(y) < 2000 else 2 * BATCH, *map(len, self.rows))
        self.rate = _RATES[len(y) >= _FEW]
        self.generator = torch.Generator().manual_seed(seed)
        self._start(linear_start)
        self.views = backbone.views(self.x, model.embedding)
        trained = [part for view in self.views for part in view.parameters]
        self.optimizer = AdamW(trained, lr=self.rate, weight_decay=_DECAY, fused=True)

    @torch.no_grad()
    def _start(self, linear: bool) -> None:
        """Initialise each member's linear path as a ridge regression of the labels on the rows outside its fold.

        After a few steps from there, a network is at least as good as a linear model, which is hard to beat with few
        rows.
        """
        backbone: Any = self.model.backbone
        members, fan_in, hidden = backbone.weight.shape
        weight = self.model.embedding.weight.view(len(backbone), -1, fan_in + hidden)
        weight[:, :, fan_in:].normal_(std=hidden**-0.5)
        weight[:, :, :fan_in].normal_(std=_NOISE / math.sqrt(max(fan_in, 1)))
        for member in range(members if linear else 0):
            rows = self.rows[member % FOLDS]
            targets = self._targets_of(self.y[rows]).to(self.x)
            x = self.x[rows] * backbone.seen[member]
            lines = ridge_directions(x, targets, weight.shape[1], choose=backbone.scores is not None)
            weight[member, : len(lines), :fan_in] += lines
        if backbone.scores is not None:
            self._fit_waves(backbone, weight[members:, :, fan_in:])

    def _fit_waves(self, backbone: Any, weight: Tensor) -> None:
        """Fit the scores of the waves by ridge regressions, and let weight (FOLDS, d, hidden) pass them on as h."""
        backbone.pitch.copy_(self.x.var(dim=0).mean().nan_to_num(1.0).clamp_min(1e-6).rsqrt())  # NaN: no columns
        waves, size = backbone.waves(self.x), min(weight.shape[1], backbone.scores.shape[2])
        self.model.embedding.weight.view(len(backbone), -1)[-FOLDS:] = 0.0
        for fold, rows in enumerate(self.rows):
            lines = ridge_directions(waves[rows], self._targets_of(self.y[rows]).to(waves), size, choose=True)
            backbone.scores[fold, :, : len(lines)] = lines.T
            weight[fold, :size, :size] = torch.eye(size).to(weight)

    def _targets_of(self, y: Tensor) -> Tensor:
        """(n, B): the regression targets: `averaged` values of labels, or class indicators (one for two classes)."""
        if self.model.averaged is not None:
            return self.model.averaged[y]
        return torch.nn.functional.one_hot(y, self.model.n_classes)[:, : 1 if self.model.n_classes == 2 else None]

    def rounds(self, on_batch: Callable[[int, int], None] | None) -> Iterator[dict[str, Any]]:
        """Train, and yield a row of the history after each round."""
        self.model.train()
        batches = self.batches()
        for number, part in enumerate(np.array_split(np.arange(self.steps), _ROUNDS), start=1):
            start, total = time.perf_counter(), torch.zeros((), device=self.y.device)
            for done, step in enumerate(part, start=1):
                total += self._step(next(batches), one_cycle(step / self.steps))
                if on_batch is not None:
                    on_batch(done, len(part))
            loss = float(total) / max(1, len(part))
            if not math.isfinite(loss):
                raise NonFiniteError(f"the training loss became {loss}; check the inputs")
            for view in self.views:
                view.store()
            yield {"epoch": number, "loss": loss, "seconds": time.perf_counter() - start}

    def batches(self) -> Iterator[Tensor]:
        """Row numbers (M, size): each member goes through the rows outside its fold in its own order."""
        least = min(map(len, self.rows))
        while True:
            orders = [
                rows[torch.randperm(len(rows), generator=self.generator).to(rows.device)[:least]]
                for rows in (self.rows[m % FOLDS] for m in range(FOLDS * VIEWS))
            ]
            yield from (part for part in torch.stack(orders).split(self.size, dim=1) if part.shape[1] == self.size)

    def _step(self, rows: Tensor, factor: float) -> Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] = factor * self.rate
        self.optimizer.zero_grad(set_to_none=True)
        weights = None if self.weights is None else self.weights[rows]
        parts = zip(self.views, rows.chunk(len(self.views)), strict=True)
        h = torch.cat([view.embed(part) for view, part in parts])
        loss = self.model.loss_apart(h, self.y[rows], weights=weights)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def ridge_directions(x: Tensor, targets: Tensor, size: int, *, choose: bool = False) -> Tensor:
    """(at most size, p): the directions of x (n, p) that predict targets (n, B); ‖h‖ has a root mean square of 1.5.

    If B exceeds the length of h, these are the principal directions. choose: the penalty by leave-one-out errors.
    """
    x, p = x - x.mean(dim=0), x.shape[1]
    if p == 0:
        return x.new_zeros(0, 0)
    targets = targets - targets.mean(dim=0)
    penalty = _RIDGE * x.square().sum() / p + torch.finfo(x.dtype).tiny
    if choose:
        penalty *= _choose_ridge(x, targets)
    if p <= len(x):
        lines = torch.linalg.solve(x.T @ x + penalty * torch.eye(p).to(x), x.T @ targets)
    else:
        lines = x.T @ torch.linalg.solve(x @ x.T + penalty * torch.eye(len(x)).to(x), targets)
    if lines.shape[1] > size:
        left, values, _ = torch.linalg.svd(lines, full_matrices=False)
        lines = (left * values)[:, :size]
    spread = (x @ lines).square().sum(dim=1).mean().sqrt()
    directions: Tensor = lines.T * (_SPREAD / float(spread) if spread > 0 else 0.0)
    return directions


def _choose_ridge(x: Tensor, targets: Tensor) -> float:
    """How many times the usual penalty has the least squared leave-one-out errors of some rows.

    A row's own error is that of the fit divided by 1 - its leverage: one decomposition serves all penalties. More
    columns than rows ask for more than the usual penalty, never for less.
    """
    some = torch.linspace(0, len(x) - 1, min(len(x), _JUDGES)).long().to(x.device)
    x, targets = (part - part.mean(dim=0) for part in (x[some].double(), targets[some].double()))
    values, left = torch.linalg.eigh(x @ x.T)
    values, projected = values.clamp_min(0), left.T @ targets
    usual = _RIDGE * values.sum() / x.shape[1] + torch.finfo(x.dtype).tiny

    def loss(ridge: float) -> float:
        kept = values / (values + ridge * usual)
        errors = targets - left @ (kept[:, None] * projected)
        leverage = left.square() @ kept + 1 / len(x)
        return float((errors / (1 - leverage).clamp_min(1e-3)[:, None]).square().sum())

    return min(_RIDGES, key=loss)


class ViewVotes(NamedTuple):
    """How the distances of the views become votes: w = k(Σ_v scale_v d_v²) + base."""

    scales: tuple[float, ...]
    base: float
    loss: float  # of the out-of-fold votes used to choose these


@torch.no_grad()
def fit_votes(
    model: WeightedAverage,
    x: Tensor | Inputs,
    y: Tensor,
    folds: Tensor,
    class_weights: Sequence[float] | None = None,
    *,
    base_votes: bool = True,
) -> ViewVotes:
    """Choose the scale of each view and the base vote by out-of-fold votes, and scale the embeddings.

    A view that does not help gets the scale 0. Every example has the base vote at any distance: where no voter is near,
    the classes get their shares of the training rows. The loss is -log P(y) with one more wrong row than observed
    (Laplace's rule of succession), so that no errors does not mean no doubt; rows are weighted by class. If
    `model.averaged` is set, the loss is the squared distance between the average and a row's own values.
    """
    # In large batches: a choice does not need the exact rounding of single rows.
    h = split_members(embed(model, inputs_of(x), batch_size=even_size(len(y), _ROWS)), model.ensemble_size)
    several = torch.bincount(y, minlength=model.n_classes)[y] > 1  # otherwise no row could vote for the label
    queries = torch.nonzero(several)[:, 0] if model.averaged is None else torch.arange(len(y), device=y.device)
    views = max(1, model.ensemble_size // FOLDS)
    if len(queries) == 0:
        return ViewVotes((1.0,) * views, 0.0, 0.0)
    queries = queries[sample(y[queries], QUERIES, torch.Generator().manual_seed(0)).to(queries.device)]
    queries = queries[torch.argsort(folds[queries], stable=True)]
    if views == 1:
        parts = [squared_distances(h[queries, 0], h[:, 0]).float()]
    else:
        parts = [_distances_to_all(h[:, view * FOLDS : (view + 1) * FOLDS], folds, queries) for view in range(views)]
    judge = _Judge(model, parts, y, folds, queries, class_weights, _BASES if base_votes else _BASES[:1])
    medians = [float(part[part.isfinite()].median().clamp_min(1e-9)) for part in parts]

    def penalised_loss(votes: ViewVotes) -> float:
        """The loss plus a prior for the usual scale and for all views, which a few rows must not overrule."""
        parts = [scale * part for scale, part in zip(votes.scales, medians, strict=True)]
        unequal = 2 * sum((part / sum(parts) - 1 / len(parts)) ** 2 for part in parts)
        return votes.loss + ((math.log(sum(parts)) - _USUAL_LOG_SCALE) ** 2 / 2 + unequal) / len(queries)

    best = min(
        (
            judge(tuple(scale * share / part for share, part in zip(shares, medians, strict=True)))
            for shares in _SHARES[views]
            for scale in _SCALES
        ),
        key=penalised_loss,
    )
    for step in (1.4, 1 / 1.4, 1.2, 1 / 1.2):
        for view in range(views):
            scales = tuple(scale * step if place == view else scale for place, scale in enumerate(best.scales))
            best = min(best, judge(scales), key=penalised_loss)
    *scales_of_views, base, loss = agree([*best.scales, best.base, best.loss])
    best = ViewVotes(tuple(scales_of_views), base, loss)
    for view, scale in enumerate(best.scales):
        for parameter in model.embedding.parameters():
            parameter.view(views, -1)[view].mul_(math.sqrt(views * scale))
    return best


class _Judge:
    """The loss of out-of-fold votes at given scales, with the best base vote."""

    def __init__(
        self,
        model: WeightedAverage,
        parts: list[Tensor],
        y: Tensor,
        folds: Tensor,
        queries: Tensor,
        class_weights: Sequence[float] | None,
        bases: Sequence[float],
    ) -> None:
        self.y, self.bases, self.averaged = y[queries], bases, model.averaged
        silent = folds[queries][:, None] == folds[None, :]
        self.parts = [part.masked_fill(silent, torch.inf) for part in parts]
        self.kernel = get_kernel(model.kernel)
        factors = vote_factors(model, class_weights).to(parts[0])
        if self.averaged is None:
            self.values = torch.nn.functional.one_hot(y, model.n_classes) * factors  # (n, K)
        else:
            values = torch.cat([self.averaged, torch.ones_like(self.averaged[:, :1])], dim=1)
            self.values = (values * factors[:, None])[y]  # (n, B + 1): of the last, the sum is that of all votes
        self.base_sums = (~silent).to(self.values) @ self.values
        self.weights = factors[self.y] / factors[self.y].mean()  # or the loss would undo the votes' class weights

    def __call__(self, scales: tuple[float, ...]) -> ViewVotes:
        used = [(scale, part) for scale, part in zip(scales, self.parts, strict=True) if scale]
        size = max(1, _CELLS // len(self.values))
        blocks = zip(*(part.split(size) for _, part in used), strict=True)
        sums, most = zip(*(self._sums([scale for scale, _ in used], block) for block in blocks), strict=True)
        losses = self._losses(torch.cat(sums), torch.cat(most))
        best = int(losses.argmin())
        return ViewVotes(scales, self.bases[best], float(losses[best]))

    def _sums(self, scales: list[float], parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Σ_i w_i values_i of some queries, in units of the largest w, and its log."""
        squared = scales[0] * parts[0]
        for scale, part in zip(scales[1:], parts[1:], strict=True):
            squared.add_(part, alpha=scale)
        log_w = self.kernel.log_weights(squared)
        most = log_w.amax(dim=1, keepdim=True)
        return exp_(log_w.sub_(most)) @ self.values, most[:, 0]

    def _losses(self, sums: Tensor, most: Tensor) -> Tensor:
        """(number of bases,): the loss with each base vote."""
        log_bases = torch.tensor(self.bases).to(sums).log()[:, None]
        unit = torch.maximum(most, log_bases)
        votes = (most - unit).exp()[:, :, None] * sums + (log_bases - unit).exp()[:, :, None] * self.base_sums
        if self.averaged is not None:
            losses = (votes[:, :, :-1] / votes[:, :, -1:] - self.averaged[self.y]).square().sum(dim=2)
            return (losses * self.weights).mean(dim=1)
        own = votes.gather(2, self.y.expand(len(votes), -1)[:, :, None])
        rest = votes.scatter(2, self.y.expand(len(votes), -1)[:, :, None], 0.0).sum(dim=2)
        log_p, log_rest = ((part / (own[:, :, 0] + rest)).log().clamp_min(-20) for part in (own[:, :, 0], rest))
        return -((log_rest * self.weights).mean(dim=1) + (log_p * self.weights).sum(dim=1)) / (len(self.y) + 1)


def _distances_to_all(h: Tensor, folds: Tensor, queries: Tensor) -> Tensor:
    """(q, n): squared distances of the queries to all rows, by the part of h (n, FOLDS, d) that left them out."""
    return torch.cat(
        [squared_distances(h[queries[folds[queries] == fold], fold], h[:, fold]).float() for fold in range(h.shape[1])]
    )
