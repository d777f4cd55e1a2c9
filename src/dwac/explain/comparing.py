"""Comparing a row with precedents: who they are, and what each part contributes to the difference.

The parts in which the two differ are filled from one or the other, in all combinations. The model is asked about each
of these hybrids; f is its log-odds of the row's label against the precedent's, or the number that it predicts. The
contributions are the Shapley values of the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from math import comb
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.drawing.legend import Legend
from dwac.drawing.records import kind_of
from dwac.errors import IdError, InputError, PrivacyError
from dwac.explain import privacy
from dwac.explain.hybrids import Bools, Hybrids, Part, Pool
from dwac.explain.reasons import LOG_ODDS, RANDOM, Contribution, Example, Precedent, Reasons
from dwac.explain.rendering import Numerals
from dwac.explain.voters import plain_ids
from dwac.explain.votes import LabelVotes, NumberVotes, Votes

Floats = NDArray[np.float64]
Solve = Callable[[Floats], tuple[Floats, float]]  # values of f at hybrids → contributions, and a bound on their error

ENUMERATED = 11  # parts up to which all combinations are asked
_ORDERS, _FEWEST = 64, 8  # orders of the parts that are sampled beyond, and as many reversed ones
_STEPS = 1_000  # of all these orders together, unless they are the fewest
_SURE = 3.0  # standard errors of the bound on the error of sampled contributions
_CANDIDATES = 2_000  # voters that are compared with the row as inputs: those with the heaviest votes
_AT_ONCE = 64  # voters that the model is asked about at once
_RANDOM = 10  # voters, drawn at random


class Inquiry(Protocol):
    """A row, and a model that answers questions about it, its voters, and rows between them."""

    def hybrids(self, voters: Sequence[Any], tied: Sequence[Collection[Any]]) -> list[Hybrids]:
        """Hybrids of the row and each of the voters with these ids; tied: parts that move together."""

    @property
    def is_quick(self) -> bool:
        """Whether the model answers a dozen questions quickly enough for the first sentence of an explanation."""

    def phrases(self) -> Hybrids | None:
        """The row, a text, with phrases left out; None if it is something else."""

    def embed(self, rows: Any) -> Tensor:
        """(n, d): the embeddings of hybrids."""

    def contrast(self, h: Tensor, label: int, other: int) -> Floats:
        """(n,): log-odds of the label with this code against the other one, or predicted numbers."""

    def gives(self, h: Tensor, outcome: Any) -> Bools:
        """(n,): whether the model gives rows this label, by its code, or a number in one of these ranges."""

    def given(self, h: Tensor) -> Any:
        """The label or number that the model gives the only row of h (1, d)."""

    def alike(self, ids: list[Any]) -> Floats:
        """(n,): how different voters are from the row as inputs."""

    def typicality(self, place: int) -> float | None:
        """The typicality of a voter, by its place among the references; None without calibration."""

    def voter(self, place: int) -> tuple[Any, Any, Any]:
        """(id, label or number, record) of a voter."""

    @property
    def record(self) -> Any:
        """The row as a person sees it."""

    def legend(self) -> Legend:
        """What its columns and codes are called."""

    def column_names(self) -> list[Any]:
        """The columns of the row; an error if it has none."""

    def ordered_columns(self) -> list[Any]:
        """Those of them whose values have an order: numbers and dates, not codes of categories."""

    def pool(self, voters: list[Any]) -> Pool:
        """The row and these voters, by id, as rows of one table."""

    def observe(self, rows: Any) -> Any:
        """What the model observes of hybrids: `.h`, `.votes`, and the rest."""

    def typicality_of(self, observed: Any) -> Floats | None:
        """(n,): the typicality of observed rows; None without calibration."""

    def apart(self, rows: Any) -> Floats:
        """(n,): how different hybrids are from the row as inputs."""


# Shapley values


@lru_cache(maxsize=16)
def plan_game(n: int, games: int = 1) -> tuple[Bools, Solve]:
    """(masks of the hybrids of n parts to ask about, a function that solves the game from the values f of these).

    It returns the contributions (n,), what each part adds when it comes from the row, and a bound on their error. All
    combinations are asked if parts are few, and the error is 0. Otherwise orders of the parts are sampled, each with
    its reverse: the sum is still exact, and with a probability of about 99.7 % each contribution is within the error.
    The sample is the same in every call. games: how many share the evaluations that one has.

    >>> masks, solve = plan_game(2)
    >>> contributions, error = solve(3.0 - masks @ [1.0, 2.0])
    >>> contributions.tolist(), error
    ([1.0, 2.0], 0.0)
    """
    if n == 0:
        return np.zeros((0, 0), dtype=bool), lambda _: (np.zeros(0), 0.0)
    return _all_combinations(n) if 2**n * games <= 2**ENUMERATED else _some_orders(n, games)


def _all_combinations(n: int) -> tuple[Bools, Solve]:
    masks = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1  # True where a part comes from the precedent
    size = masks.sum(axis=1)  # how many parts come from the precedent

    def solve(f: Floats) -> tuple[Floats, float]:
        weights = np.array([1 / (n * comb(n - 1, k)) for k in range(n)])
        contributions = np.empty(n)
        for part in range(n):
            here = np.flatnonzero(~masks[:, part])
            contributions[part] = weights[size[here]] @ (f[here] - f[here + 2**part])
        # Rounding: the values add up to the difference of the two cases to the last bits.
        return np.asarray(contributions + (f[0] - f[-1] - contributions.sum()) / n), 0.0

    return masks, solve


def _some_orders(n: int, games: int) -> tuple[Bools, Solve]:
    """Random orders of the parts, each followed by its reverse."""
    orders = min(max(_STEPS // n // games, _FEWEST if games == 1 else _FEWEST // 2), _ORDERS)
    rng = np.random.default_rng(0)
    forward = np.stack([rng.permutation(n) for _ in range(orders)])
    both = np.stack([forward, forward[:, ::-1]], axis=1).reshape(-1, n)
    ranks = np.argsort(both, axis=1)
    masks = (ranks[:, None, :] < np.arange(n + 1)[None, :, None]).reshape(-1, n)
    distinct, where = np.unique(masks, axis=0, return_inverse=True)

    def solve(values: Floats) -> tuple[Floats, float]:
        f = values[where.reshape(-1)].reshape(len(both), n + 1)
        steps = np.take_along_axis(f[:, :-1] - f[:, 1:], ranks, axis=1)
        pairs = steps.reshape(orders, 2, n).mean(axis=1)
        error = _SURE * pairs.std(axis=0, ddof=1).max() / np.sqrt(orders)
        contributions = pairs.mean(axis=0)
        return contributions + (f[0, 0] - f[0, -1] - contributions.sum()) / n, float(error)

    return distinct, solve


# Precedents and their reasons


def find_precedents(inquiry: Inquiry, votes: Votes, own: Bools, outcome: Any, n: int) -> list[int]:
    """The places of the n voters most like the row that the model gives this outcome.

    own: (m,) which voters have it themselves; others count only if the model gives it to none of these. If there are
    many candidates, those with the heaviest votes are compared.
    """
    places: list[int] = []
    for rows in (np.flatnonzero(own), np.flatnonzero(~own)):
        heaviest = rows[np.argsort(-votes.log_w[rows], kind="stable")[:_CANDIDATES]]
        if places or not len(heaviest):
            continue
        differences = inquiry.alike(plain_ids(votes.references.ids[heaviest]))
        order = heaviest[np.argsort(differences, kind="stable")]  # of equally similar ones the heavier comes first
        for start in range(0, len(order), _AT_ONCE):
            some = order[start : start + _AT_ONCE]
            given = inquiry.gives(votes.references.embeddings[some.tolist()], outcome)
            places += some[given].tolist()
            if len(places) >= n:
                break
    return places[:n]


def weigh_parts(
    inquiry: Inquiry, voters: Sequence[Any], tied: Sequence[Collection[Any]], label: int, other: int
) -> tuple[list[Contribution], float, float]:
    """(contributions, their total, the bound on their error): means over the voters with these ids."""
    if len(voters) > 1 and kind_of(inquiry.record) == "text":
        raise InputError("several precedents need columns or patches, which all have; compare a text with precedents=1")
    mixed = inquiry.hybrids(voters, tied)
    games = [plan_game(len(hybrids.parts), len(voters)) for hybrids in mixed]
    choices = [hybrids.choose(masks) for hybrids, (masks, _) in zip(mixed, games, strict=True) if len(masks)]
    values = np.zeros(0)
    if choices:
        join = torch.cat if torch.is_tensor(choices[0]) else np.concatenate
        joined = choices[0] if len(choices) == 1 else join(choices)
        values = inquiry.contrast(inquiry.embed(mixed[0].build(joined)), label, other)
    ends = np.cumsum([len(masks) for masks, _ in games])
    totals, errors, table = [], [], list[dict[Any, float]]()
    first: dict[Any, Part] = {}
    for hybrids, (_, solve), f in zip(mixed, games, np.split(values, ends[:-1]), strict=True):
        contributions, error = solve(f)
        totals.append(contributions.sum())
        errors.append(error)
        names = [part.name for part in hybrids.parts]
        table.append(dict(zip(names, contributions.tolist(), strict=True)))
        first = {part.name: part for part in [*hybrids.parts, *hybrids.same]} | first
    parts = []
    for name, part in first.items():
        each = np.array([row.get(name, 0.0) for row in table])
        parts.append(Contribution(*part, float(each.mean()), float(each.std())))
    parts.sort(key=lambda part: -abs(part.contribution))
    return parts, float(np.mean(totals)), max(errors)


def _random_voters(votes: Votes) -> list[int]:
    """The places of a few voters, the same in every call."""
    places: list[int] = np.random.default_rng(0).permutation(len(votes.labels))[:_RANDOM].tolist()
    return places


class LabelCase(NamedTuple):
    """A row with a label: the votes on it, the names and probabilities of all labels."""

    votes: LabelVotes
    names: Sequence[Any]
    probabilities: Floats
    private: bool


def reasons_between(
    inquiry: Inquiry, case: LabelCase, against: Any, precedents: int | str, tied: Sequence[Collection[Any]]
) -> Reasons:
    """The reasons for the label of a row, against another label, the runner-up, or a training example."""
    label, names = case.votes.label, case.names
    other, places = label_precedents(inquiry, case, against, precedents)
    facts = _weigh(inquiry, case.votes, places, tied, label, other)
    known = Reasons(label=names[label], other=names[other], is_random=precedents == RANDOM, **facts)
    return _make_private(known, privacy.FIT) if case.private else known


def _weigh(
    inquiry: Inquiry, votes: Votes, places: list[int], tied: Sequence[Collection[Any]], label: int, other: int
) -> dict[str, Any]:
    """What reasons of every target say of a row and its precedents, by the places of these among the voters."""
    parts, total, error = weigh_parts(inquiry, plain_ids(votes.references.ids[places]), tied, label, other)
    return {
        "precedents": tuple(make_precedent(inquiry, place) for place in places),
        "contributions": tuple(parts),
        "total": total,
        "error": error,
        "record": inquiry.record,
        "legend": inquiry.legend(),
    }


def label_precedents(inquiry: Inquiry, case: LabelCase, against: Any, precedents: int | str) -> tuple[int, list[int]]:
    """(the code of another label, the places of precedents that have it)."""
    label, names = case.votes.label, case.names
    others = [code for code in np.argsort(-case.probabilities, kind="stable").tolist() if code != label]
    places: list[int] = []
    if against is None:
        for other in others:
            if places := _label_precedents(inquiry, case.votes, other, precedents):
                break
    elif not isinstance(against, Example) and against in names:
        other = names.index(against)
        if other == label:
            raise InputError(f"against must be another label than that of the row, {names[label]!r}, or an id")
        places = _label_precedents(inquiry, case.votes, other, precedents)
    else:
        places = [_named_voter(case.votes, against, precedents, private=case.private)]
        h = case.votes.references.embeddings
        other = next((code for code in others if inquiry.gives(h[places], code)[0]), others[0])
    if not places:
        which = "another label" if against is None else f"the label {against!r}"
        raise InputError(f"the model gives {which} to no training example, so there is nobody to compare with")
    return other, places


def _label_precedents(inquiry: Inquiry, votes: LabelVotes, other: int, n: int | str) -> list[int]:
    if not isinstance(n, int):
        return _random_voters(votes)
    return find_precedents(inquiry, votes, votes.labels == other, other, n)


class NumberCase(NamedTuple):
    """A row with predicted numbers (T,): the votes on it, and how to write the numbers."""

    votes: NumberVotes
    names: Sequence[Any]
    predictions: Floats
    numerals: Sequence[Numerals]
    single: bool
    private: bool


def number_reasons(
    inquire: Callable[[int], Inquiry],
    case: NumberCase,
    against: Any,
    precedents: int | str,
    tied: Sequence[Collection[Any]],
    name: Any = None,
) -> Reasons:
    """The reasons for a predicted number, against a range or a training example; name: of several numbers."""
    if name is not None and name not in case.names:
        raise InputError(f"name must be one of the predicted numbers, {checks.listed(case.names)}; got {name!r}")
    t = 0 if name is None else case.names.index(name)
    inquiry, votes, own = inquire(t), case.votes, float(case.predictions[t])
    places = number_precedents(inquiry, case, t, against, precedents)
    facts = _weigh(inquiry, votes, places, tied, 0, 0)
    known = Reasons(
        label=own,
        other=own - facts["total"],
        is_random=precedents == RANDOM,
        unit="number" if case.single and case.names[t] is None else str(case.names[t]),
        _number=case.numerals[t].text,
        **facts,
    )
    return _make_private(known, case.numerals[t].step) if case.private else known


def number_precedents(inquiry: Inquiry, case: NumberCase, t: int, against: Any, precedents: int | str) -> list[int]:
    """The places of precedents with another number, for the t-th number of a row."""
    votes, own = case.votes, float(case.predictions[t])
    numbers, places = votes.targets[:, t], list[int]()
    if against is not None and not _is_range(against):
        places = [_named_voter(votes, against, precedents, private=case.private)]
    elif not isinstance(precedents, int):
        if against is not None:
            raise InputError(f'precedents="random" compares with any number; leave it out, or against={against!r}')
        places = _random_voters(votes)
    else:
        for ranges in _ranges(against, own, float(numbers.std())):
            inside = np.any([(low <= numbers) & (numbers <= high) for low, high in ranges], axis=0)
            places = places or find_precedents(inquiry, votes, inside, ranges, precedents)
        if not places:
            which = "another number" if against is None else f"a number in the range {against!r}"
            raise InputError(f"the model gives {which} to no training example, so there is nobody to compare with")
    return places


def _ranges(against: Any, own: float, spread: float) -> list[tuple[tuple[float, float], ...]]:
    """Ranges of numbers to compare with, the first in which there are precedents: the given one, or far enough ones."""
    if against is None:
        far = [share * spread for share in (0.5, 0.1)]
        return [((-np.inf, own - apart), (own + apart, np.inf)) for apart in far]
    if not against[0] <= against[1]:
        raise InputError(f"against must be a range (low, high) of numbers, or the id of a voter; got {against!r}")
    return [((float(against[0]), float(against[1])),)]


def _is_range(against: Any) -> bool:
    pair = isinstance(against, tuple | list) and len(against) == 2
    return pair and all(isinstance(end, int | float) for end in against)


def _named_voter(votes: Votes, against: Any, precedents: int | str, *, private: bool) -> int:
    """The place of the voter with this id."""
    name = against.id if isinstance(against, Example) else against
    if private:
        raise PrivacyError("a private explanation compares with no training example of your choice; give a label")
    if precedents != 1:
        raise InputError(f"precedents must be 1 to compare with the training example {name!r}; got {precedents!r}")
    try:
        return int(votes.references.voters.positions([name])[0])
    except IdError:
        raise IdError(
            f"against must be one of the labels or a range of numbers, or the id of a training example that votes; "
            f"got {name!r}"
        ) from None


def make_precedent(inquiry: Inquiry, place: int) -> Precedent:
    """The voter at this place."""
    return Precedent(*inquiry.voter(place), lambda: inquiry.typicality(place))


def _make_private(exact: Reasons, step: float) -> Reasons:
    """Contributions rounded to steps, and nothing else of the precedents; parts without a contribution come last."""
    rounded = [float(privacy.numbers(part.contribution, step)) for part in exact.contributions]
    own = zip(exact.contributions, rounded, strict=True)
    parts = [Contribution(part.column, part.value, None, value) for part, value in own]
    parts.sort(key=lambda part: (-abs(part.contribution), str(part.column)))
    numbers = exact.unit != LOG_ODDS
    return replace(
        exact,
        label=float(privacy.numbers(exact.label, step)) if numbers else exact.label,
        other=float(privacy.numbers(exact.other, step)) if numbers else exact.other,
        precedents=(),
        contributions=tuple(parts),
        total=float(privacy.numbers(exact.total, step)),
        error=exact.error and exact.error + step / 2,
        private=True,
    )
