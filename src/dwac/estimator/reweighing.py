"""Reweighing: the least change of voters' weights with which the rates of groups of people differ by little.

result = reweigh(clf, X, y, by="sex", measure="equal opportunity", at_most=0.02)
result.model                             # the model with other weights; it needs no group to predict

A label is predicted where its score, the votes for it minus those for its strongest rival, is above 0. Scores are
linear in the weights v of the voters. With the slope of each group's rate at the present weights, a step is a convex
program:

    minimise  mean_x (change of the score of x)² + ε Σ_i q_i (v_i - 1)²   so that  rate_g - rate_h ≤ t for all g, h.

q_i is voter i's mean share of the votes: what is voted changes as little as possible, and so do the weights of those
who vote most. Steps are repeated until the rates themselves, counted on the rows, keep the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import norm
from sklearn.utils.extmath import randomized_svd

from dwac import _checks as checks
from dwac.errors import IdError, InputError
from dwac.estimator.containers import native
from dwac.estimator.fitted import Fitted
from dwac.estimator.observed import Observed
from dwac.estimator.preparation import read_known
from dwac.explain.many import ids_of
from dwac.tasks.base import LABELS, NUMBERS
from dwac.tasks.by_group import SMALL, GroupComparison, compare_groups, read_groups
from dwac.tasks.group_statistics import GroupMeasure
from dwac.training.cross_fit import part_of

if TYPE_CHECKING:
    from dwac.estimator.base import DWACEstimator

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# What is compared: the rate of the predicted label among these rows: all, those that have the label, those that do not.
MEASURES: dict[str, tuple[str, ...]] = {
    "demographic parity": ("all",),
    "equal opportunity": ("with",),
    "false positives": ("without",),
    "equalized odds": ("with", "without"),
}
LIMITS = 0.02, 50.0  # of the factors
_STEPS, _TARGETS = 12, (0.9, 0.5, 0.0)  # steps for each target, a share of the bound
_LARGEST, _ROUNDS = 1e6, 4  # multiplier; rounds of weights at their limits
_RIDGE, _RANK = 0.02, 200  # ε, and how many directions of change are told apart
_WIDTH = 0.1  # of the scores that count as near the decision
_PARTS = 5  # of the rows: each is judged by weights that the others chose
_CELLS = 2**27  # shares held at once
_CLOSE = 1e-5  # embeddings this close, relative to their length, are of the same row


# The program


class Metric(NamedTuple):
    """What a change v - 1 of weights costs: δᵀ H δ, with H = Aᵀ A / n + ε diag(q), and A (n, m) the signed shares."""

    q: Floats  # (m,)
    basis: Floats  # (r, m): the largest singular vectors of A diag(q)^-½ / √n
    values: Floats  # (r,): their singular values

    @classmethod
    def of(cls, shares: Shares) -> Metric:
        """The metric of these rows."""
        q = np.maximum(shares.p.mean(axis=0, dtype=np.float64), 1e-12)
        signs = np.where(shares.codes == shares.label, 1.0, -1.0)
        scaled = shares.p * (signs / np.sqrt(q * len(shares.p))).astype(np.float32)
        _, values, basis = randomized_svd(scaled, min(_RANK, *scaled.shape), n_iter=3, random_state=0)
        return cls(q, basis.astype(np.float64), values.astype(np.float64))

    def cost(self, change: Floats) -> float:
        """δᵀ H δ."""
        scaled = change * np.sqrt(self.q)
        return float(np.square(self.values * (self.basis @ scaled)).sum() + _RIDGE * scaled @ scaled)

    def solve(self, slopes: Floats) -> Floats:
        """(C, m): H⁻¹ of each row."""
        scaled, kept = slopes / np.sqrt(self.q), np.square(self.values)
        scaled = scaled - (scaled @ self.basis.T * (kept / (kept + _RIDGE))) @ self.basis
        return np.asarray(scaled / np.sqrt(self.q) / _RIDGE)


def least_change(metric: Metric, slopes: Floats, rates: Floats, now: Floats, pairs: Ints, most: float) -> Floats:
    """(m,): the weights v of least cost with which rates differ by at most `most`.

    Rates (C,) are linear: rates + slopes (C, m) @ (v - now). pairs: (P, 2), which rates are compared. Solved by its
    dual, a quadratic program with one multiplier λ ≥ 0 for each pair: v = 1 - H⁻¹ Σ λ_gh (slope_g - slope_h). Weights
    beyond `LIMITS` stay there, and the others are solved again (with limits, the cost is only nearly the least).
    """
    cells = np.eye(len(rates))
    signs = cells[pairs[:, 0]] - cells[pairs[:, 1]]
    base, free = np.ones(len(now)), np.ones(len(now), dtype=bool)
    for _ in range(_ROUNDS):
        own = slopes * free
        directions = metric.solve(own) * free
        excess = signs @ (rates + slopes @ (base - now)) - most
        v = base - (signs.T @ _multipliers(signs @ own @ directions.T @ signs.T, excess)) @ directions
        beyond = free & ((v < LIMITS[0]) | (v > LIMITS[1]))
        v = np.clip(v, *LIMITS)
        if not beyond.any():
            break
        base, free = np.where(beyond, v, base), free & ~beyond
    return np.asarray(v)


def _multipliers(gram: Floats, excess: Floats) -> Floats:
    """(P,): λ ≥ 0 that minimises λᵀ gram λ / 2 - λᵀ excess."""
    scale = max(float(np.trace(gram)) / len(gram), 1e-300)

    def dual(multipliers: Floats) -> tuple[float, Floats]:
        pull = gram @ multipliers / scale
        return float(multipliers @ pull / 2 - multipliers @ excess), pull - excess

    limits, start = [(0, _LARGEST)] * len(excess), np.zeros(len(excess))  # out of reach, they grow without end
    result = minimize(dual, start, jac=True, method="L-BFGS-B", bounds=limits, options={"ftol": 1e-15, "gtol": 1e-9})
    return np.asarray(result.x / scale)


class GroupRates(NamedTuple):
    """Which rows a rate is measured on: each cell is a group, among all rows, those with the label or those without."""

    means: Floats  # (C, n): 1 / its number of rows, for the rows of each cell
    pairs: Ints  # (P, 2): which cells are compared, both ways

    @classmethod
    def of(cls, groups: Ints, truth: Bools, among: Sequence[str]) -> GroupRates:
        """The cells of groups (n,) of codes; -1 belongs to none."""
        rows, pairs, first = [], [], 0
        for which in among:
            here = {"all": np.ones(len(truth), dtype=bool), "with": truth, "without": ~truth}[which]
            members = [here & (groups == group) for group in range(int(groups.max(initial=-1)) + 1)]
            own = [mask / mask.sum() for mask in members if mask.any()]
            rows += own
            pairs += [(first + a, first + b) for a in range(len(own)) for b in range(len(own)) if a != b]
            first += len(own)
        return cls(np.array(rows).reshape(-1, len(truth)), np.array(pairs, dtype=np.int64).reshape(-1, 2))

    def rates(self, decided: Bools) -> Floats:
        """(C,): how often the label is predicted."""
        return np.asarray(self.means @ decided)

    def difference(self, decided: Bools) -> float:
        """The largest difference of two rates."""
        rates = self.rates(decided)
        return float((rates[self.pairs[:, 0]] - rates[self.pairs[:, 1]]).max(initial=0.0))


@dataclass(frozen=True)
class Shares:
    """The shares of m voters in the votes on n rows."""

    p: NDArray[np.float32]  # (n, m)
    codes: Ints  # (m,): what each votes for
    n_classes: int
    label: int  # the one that is decided about

    def take(self, rows: Any) -> Shares:
        """The same for some of the rows."""
        return replace(self, p=self.p[rows])

    def totals(self, factors: Floats) -> Floats:
        """(n, K): the votes for each class, with factors (m,)."""
        votes = np.zeros((len(self.codes), self.n_classes), dtype=np.float32)
        votes[np.arange(len(self.codes)), self.codes] = factors
        return np.asarray(self.p @ votes, dtype=np.float64)

    def scores(self, totals: Floats) -> tuple[Floats, Ints]:
        """(n,) the votes for the label minus those for its strongest rival, and this rival."""
        others = np.where(np.arange(self.n_classes) == self.label, -np.inf, totals)
        rivals = others.argmax(axis=1)
        return totals[:, self.label] - others[np.arange(len(rivals)), rivals], rivals

    def slopes(self, means: Floats, rivals: Ints) -> Floats:
        """(C, m): how the mean scores of cells, (C, n), grow with the weight of each voter."""
        slopes = np.asarray(means.astype(np.float32) @ self.p, dtype=np.float64)
        if self.n_classes == 2:
            return slopes * np.where(self.codes == self.label, 1.0, -1.0)
        for code in np.unique(self.codes[self.codes != self.label]):
            here = self.codes == code
            against = (means * (rivals == code)).astype(np.float32)
            slopes[:, here] = -(against @ self.p[:, here])
        return slopes


def choose_factors(shares: Shares, metric: Metric, cells: GroupRates, at_most: float) -> Floats:
    """(m,): the factors with the least change among those found that keep the bound; else those that come closest."""
    factors = np.ones(len(shares.codes))
    best, key = factors, (np.inf, np.inf)
    for share in _TARGETS:
        for step in range(_STEPS):
            scores, rivals = shares.scores(shares.totals(factors))
            decided = scores > 0
            difference = cells.difference(decided)
            now = max(difference, at_most), metric.cost(factors - 1)
            if now < key:
                best, key = factors, now
            if difference <= at_most and step == 0 and key[1] == 0:
                return best
            near = norm.pdf(scores / _WIDTH) / _WIDTH
            slopes = shares.slopes(cells.means * near, rivals)
            new = least_change(metric, slopes, cells.rates(decided), factors, cells.pairs, share * at_most)
            factors = factors + (new - factors) * (0.7 if step < _STEPS // 2 else 0.4)
        if key[0] <= at_most:
            break
    return best


# The model


@dataclass(frozen=True, eq=False, repr=False)
class Reweighing:
    """A model whose voters have other weights, and what that changed; prints as a summary.

    Rates, differences and prices are of rows not used to find the weights: each fifth is judged with weights found
    on the other four. `model` has the weights found on all rows.
    """

    model: Any  # the new estimator; the old one stays as it was
    measure: str
    label: Any
    at_most: float
    reached: bool  # whether the rows that chose the weights keep the bound
    chosen: float  # their largest difference
    before: GroupComparison
    after: GroupComparison
    changed: pd.DataFrame  # by id of a voter: label, factor, share (of the votes on the rows, before); largest first
    price: pd.DataFrame  # accuracy and log_loss, before and after
    left_out: tuple[str, ...]  # groups with too few rows to compare

    @property
    def difference(self) -> pd.DataFrame:
        """The largest difference between two groups, before and after, with 95 % intervals: difference, low, high."""
        parts = [each.differences.sort_values("difference").iloc[-1] for each in (self.before, self.after)]
        return pd.DataFrame(parts, index=["before", "after"])[["difference", "low", "high"]].astype(float)

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values, ready for JSON."""
        return {
            "measure": self.measure,
            "label": self.label,
            "at_most": self.at_most,
            "reached": self.reached,
            "chosen": self.chosen,
            "difference": self.difference.to_dict("index"),
            "price": self.price.to_dict("index"),
            "changed": len(self.changed),
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "left_out": list(self.left_out),
        }

    def __str__(self) -> str:
        apart, price, factors = self.difference, self.price, self.changed["factor"]
        before, after = (apart.loc[when] for when in ("before", "after"))
        much = int(((factors > 1.1) | (factors < 1 / 1.1)).sum())
        lines = [
            f"{self.measure} of {self.label}: the largest difference was {before['difference']:.3f}, and is "
            f"{after['difference']:.3f} ({after['low']:.3f} to {after['high']:.3f}) "
            "on rows not used to find the weights",
            f"on the rows used to find them it is {self.chosen:.3f}; at most {self.at_most:g} was wanted"
            + ("" if self.reached else ": no weights were found that reach it"),
            "; ".join(f"{str(name).replace('_', ' ')} {one:.4f}, now {two:.4f}" for name, (one, two) in price.items()),
            f"{len(factors):,} voters have another weight, {much:,} of them by more than a tenth"
            + (f": factors from {factors.min():.2f} to {factors.max():.2f}" if len(factors) else ""),
        ]
        few = f"groups of fewer than {SMALL} rows took no part: {checks.listed(self.left_out, 8, str)}"
        return "\n".join([*lines, *([few] if self.left_out else [])])

    __repr__ = __str__


def reweigh(clf: DWACEstimator, X: Any, y: Any, by: Any, measure: str, at_most: float, label: Any) -> Reweighing:
    """See `DWACClassifier.reweigh`."""
    fitted, target = clf._fitted, clf._fitted.target
    if target.kind == NUMBERS:
        raise InputError("reweigh compares rates of a label; this model predicts numbers; compare them: evaluate(by=…)")
    if measure not in MEASURES:
        raise InputError(f"measure must be one of {checks.listed(MEASURES)}; got {measure!r}")
    if not 0 <= at_most < 1:
        raise InputError(f"at_most must be at least 0 and below 1, such as 0.02; got {at_most!r}")
    names = target.plain_names
    if label is None and (target.kind == LABELS or len(names) != 2):
        raise InputError(f"which label? give label=…, one of {checks.listed(names)}")
    label = names[1] if label is None else label
    if label not in names:
        raise InputError(f"label must be one of {checks.listed(names)}; got {label!r}")
    observed = X if isinstance(X, Observed) else clf.observe(X)
    X = native(observed.rows.X if observed is X else X)
    groups = read_groups(by, X, len(observed))
    codes, exact = read_known(target, y, len(observed), strict=False)
    fold_of = _folds_of(fitted, observed, ids_of(X, len(observed)))
    place, among = names.index(label), MEASURES[measure]
    truth, has = codes, codes == place
    if target.kind == LABELS:
        has = exact[:, place] > 0
        truth = has.astype(np.int64)
    rows = np.flatnonzero(observed.readable & (codes >= 0))
    group, left_out = _large_groups(groups.iloc[rows], has[rows], among)
    rows, group = rows[group >= 0], group[group >= 0]
    truth, has, groups = truth[rows], has[rows], groups.iloc[rows]
    readable = np.cumsum(observed.readable)[rows] - 1  # their places among the readable rows
    h = observed.h[torch.as_tensor(readable, device=observed.h.device)]
    shares = _shares(fitted, h, fold_of[readable], place)
    metric, cells = Metric.of(shares), GroupRates.of(group, has, among)
    factors = choose_factors(shares, metric, cells, at_most)
    before, judged = shares.totals(np.ones_like(factors)), np.empty((len(rows), shares.n_classes))
    part = np.random.default_rng(0).permutation(len(rows)) % _PARTS
    for each in range(_PARTS):
        some = part != each
        other = choose_factors(shares.take(some), metric, GroupRates.of(group[some], has[some], among), at_most)
        judged[~some] = shares.take(~some).totals(other)
    decided = [shares.scores(totals)[0] > 0 for totals in (before, shares.totals(factors), judged)]
    chosen = cells.difference(decided[1])
    joined = pd.DataFrame({" × ".join(map(str, groups)): pd.Categorical(_names(groups))})
    first, second = (compare_groups(_measures(label, has, each, among), joined) for each in decided[::2])
    price = pd.DataFrame([_price(totals, truth) for totals in (before, judged)], index=["before", "after"])
    new = copy(clf)
    new.fitted_, changed = _edit(fitted, factors, shares)
    return Reweighing(new, measure, label, at_most, chosen <= at_most, chosen, first, second, changed, price, left_out)


def _measures(label: Any, has: Bools, decided: Bools, among: Sequence[str]) -> list[GroupMeasure]:
    rows = {"all": (f"rate of {label}", None), "with": (f"true positives of {label}", has)}
    rows["without"] = f"false positives of {label}", ~has
    return [GroupMeasure(rows[which][0], decided, rows[which][1]) for which in among]


def _price(totals: Floats, truth: Ints) -> dict[str, float]:
    p = totals / totals.sum(axis=1, keepdims=True)
    loss = -np.log(np.maximum(p[np.arange(len(truth)), truth], 1e-12)).mean()
    return {"accuracy": float((p.argmax(axis=1) == truth).mean()), "log_loss": float(loss)}


def _names(groups: pd.DataFrame) -> list[str]:
    """(n,): the group of each row, by all columns together."""
    return [", ".join(map(str, row)) for row in groups.itertuples(index=False)]


def _large_groups(groups: pd.DataFrame, has: Bools, among: Sequence[str]) -> tuple[Ints, tuple[str, ...]]:
    """(n,) the code of each row's group, by all columns together, -1 if it is small; and the names of small groups."""
    codes, names = pd.factorize(pd.Series(_names(groups), dtype=object), sort=True)
    counted = [np.bincount(codes[rows], minlength=len(names)) for rows in (has, ~has)]
    sizes = {"all": counted[0] + counted[1], "with": counted[0], "without": counted[1]}
    large = np.all([sizes[which] >= SMALL for which in among], axis=0)
    if large.sum() < 2:
        raise InputError(
            f"reweigh compares at least two groups, each of at least {SMALL} rows that count; "
            f"got {checks.listed([f'{name} ({n})' for name, n in zip(names, sizes[among[0]], strict=True)], 8, str)}"
        )
    number = np.where(large, np.cumsum(large) - 1, -1)
    return number[codes], tuple(str(name) for name in names[~large])


def _folds_of(fitted: Fitted, observed: Observed, ids: Sequence[Any]) -> Ints:
    """(r,): for readable rows that vote themselves, their fold; -1 for new rows. An error if no fold left them out."""
    references = fitted.references.members or fitted.references
    readable = np.flatnonzero(observed.readable)
    names = pd.Index([ids[row] for row in readable.tolist()], tupleize_cols=False)
    where, folds = references.voters.ids.get_indexer(names), np.full(len(names), -1)
    known = np.flatnonzero(where >= 0)
    device = references.embeddings.device
    h, ref_h = observed.h[torch.as_tensor(known, device=device)], references.embeddings[torch.as_tensor(where[known])]
    same = ((h - ref_h).norm(dim=1) <= _CLOSE * (1 + ref_h.norm(dim=1))).cpu().numpy()
    known = known[same]  # ids alone prove nothing: rows of any table may be numbered from 0
    if len(known) == 0:
        if fitted.folds is not None:
            _refuse_unnamed(references.embeddings, observed.h, names)
        return folds
    if fitted.folds is not None and not fitted.references.voters.represents:
        folds[known] = fitted.folds.numbers(names[known])
    if (folds[known] < 0).any():
        raise IdError(
            f"rows must be new to the model, unless it is cross-fitted and all rows vote; {names[known[0]]!r} votes; "
            "give rows that were not trained on"
        )
    return folds


def _refuse_unnamed(ref_h: Any, h: Any, names: pd.Index[Any]) -> None:
    """An error if most rows vote themselves, under other ids: they would be judged by their own votes."""
    voters = {row.tobytes() for row in ref_h.cpu().numpy()}
    copies = sum(row.tobytes() in voters for row in h.cpu().numpy())
    if copies > len(names) / 2:
        raise IdError(
            f"rows that vote must have the ids with which they vote; {copies:,} of {len(names):,} rows vote, but not "
            f"as {str(names[0])!r}; give X an index of their ids, or rows that are new to the model"
        )


@torch.no_grad()
def _shares(fitted: Fitted, h: Any, folds: Ints, place: int) -> Shares:
    """The shares of the voters in the votes on rows h (n, d); rows that vote are judged by the model of their fold."""
    references, target = fitted.references, fitted.target
    voters, m = references.voters, len(references)
    if len(h) * m > _CELLS:
        raise InputError(
            f"reweigh takes at most {_CELLS // m:,} rows for {m:,} voters; got {len(h):,}; give fewer, or condense"
        )
    p = np.zeros((len(h), m), dtype=np.float32)
    sets = [] if fitted.folds is None or folds.max(initial=-1) < 0 else fitted.folds.sets(references)
    for fold in np.unique(folds):
        rows = np.flatnonzero(folds == fold)
        some = voters if fold < 0 else sets[fold].voters
        columns = np.arange(m) if fold < 0 else voters.positions(some.ids)
        for few in np.array_split(rows, max(1, len(rows) * m // 2**24)):
            queries = h[torch.as_tensor(few, device=h.device)]
            queries = queries if fold < 0 else part_of(queries, int(fold), fitted.folds.members)  # type: ignore[union-attr]
            p[np.ix_(few, columns)] = torch.softmax(some.every_vote(queries), dim=1).float().cpu().numpy()
    codes = references.labels.cpu().numpy()
    if target.kind == LABELS:
        return Shares(p, (target.table[codes, place] > 0).astype(np.int64), 2, 1)
    return Shares(p, codes, references.n_classes, place)


def _edit(fitted: Fitted, factors: Floats, shares: Shares) -> tuple[Fitted, pd.DataFrame]:
    """The model with these factors on its voters' weights, and the list of those that changed."""
    references = copy(fitted.references)
    ids, own, members = references.voters.ids, factors, references.members
    labels = fitted.target.outcomes[references.labels.cpu().numpy()]
    if members is not None:  # examples follow their representative; the number of a leaf is its row
        ids, own = members.voters.ids, factors[members.groups.leaves]
    moved = own != 1
    if moved.any():
        references.reweigh(ids[moved].tolist(), own[moved])
    table = pd.DataFrame(
        {"label": list(labels), "factor": factors, "share": shares.p.mean(axis=0, dtype=np.float64)},
        index=pd.Index(list(fitted.references.ids), name="id", tupleize_cols=False),
    )
    order = np.argsort(-table["share"].to_numpy() * np.abs(factors - 1), kind="stable")
    table = table.iloc[order]
    return fitted.edited(references), table[table["factor"] != 1]
