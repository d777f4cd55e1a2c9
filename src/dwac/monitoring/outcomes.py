"""Outcomes that arrive after the predictions: is the risk still as promised, and are probabilities still right?

Each prediction waits for its outcome under a digest of its id; at most so many wait, and the oldest are forgotten. An
outcome turns it into a few numbers, such as an error of 0 or 1, whose means are bounded at all times, over all rows and
within groups (`dwac.monitoring.bounds`).

The probability of a false alarm, ever, is at most α. Half of it is for the levels: how high a mean may be is bounded by
the calibration rows, which are few. A quarter is for the means over all rows, a quarter for groups, divided equally
among measures. Groups that first occur in the j-th call that brings new ones have a share of 1 / (j (j + 1)) together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import beta

from dwac._checks import listed
from dwac.conformal.guarantees import CROSSED
from dwac.drawing.records import plain
from dwac.errors import InputError, ShapeError
from dwac.monitoring.bounds import Account, Losses, bounds, count_cells, log_evidence
from dwac.monitoring.martingale import text_of
from dwac.monitoring.measures import Forecast, WatchedMean, Yardstick, base_measures, forecasts_of, yardstick_of

Floats = NDArray[np.float64]
Group = tuple[str | None, str | None]  # column and value; None for all rows

_GROUPS = 200  # the most groups
_ANY = (-np.inf, np.inf)  # allowed


@dataclass(frozen=True)
class Risk:
    """The mean of a measure over rows with outcomes, and where it lies: `low` to `high`, at all times together.

    >>> risk = Risk("error", None, None, n=150, mean=0.96, low=0.829, high=0.998, allowed=(None, 0.108))
    >>> print(risk)
    error 0.960 (0.829 to 0.998, 150 outcomes); at most 0.108 was expected
    >>> risk.exceeded
    True
    """

    measure: str
    by: str | None  # the column of the group; None for all rows
    group: str | None
    n: int
    mean: float
    low: float
    high: float
    allowed: tuple[float | None, float | None]  # the least and the highest mean that raise no alarm; None: any
    latest: bool = False  # whether these are the latest outcomes, not all

    @property
    def exceeded(self) -> bool:
        """Whether the mean is surely outside its allowed range."""
        least, most = self.allowed
        return bool((most is not None and self.low > most) or (least is not None and self.high < least))

    def __str__(self) -> str:
        where = "" if self.by is None else f" where {self.by} is {self.group}"
        ends = zip(("at least", "at most"), self.allowed, strict=True)
        limits = [f"{word} {_number(end)}" for word, end in ends if end is not None]
        expected = f"; {' and '.join(limits)} was expected" if limits else ""
        rows = f"{'the latest ' * self.latest}{self.n:,} outcome{'s' * (self.n != 1)}"
        mean, low, high = map(_number, (self.mean, self.low, self.high))
        return f"{self.measure} {mean}{where} ({low} to {high}, {rows}){expected}"


@dataclass(frozen=True)
class RiskAlarm:
    """The first mean that was surely outside its allowed range.

    >>> from dwac import DWACClassifier
    >>> from dwac.monitoring import Monitor
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> monitor = Monitor(DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X[:200], X[:200, 0] > 0))
    >>> state = monitor.update(X[200:], ids=range(100))
    >>> alarm = monitor.outcomes(range(100), X[200:, 0] <= 0).alarm  # everything is the other way round
    >>> alarm.risk.exceeded, alarm.outcomes
    (True, 100)
    """

    outcomes: int  # how many there were
    time: float  # seconds since 1970
    risk: Risk


@dataclass(frozen=True)
class OutcomeState:
    """What the outcomes say so far. `str` puts it in words.

    >>> from dwac import DWACClassifier
    >>> from dwac.monitoring import Monitor
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> monitor = Monitor(DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X[:200], X[:200, 0] > 0))
    >>> state = monitor.update(X[200:], ids=range(100))
    >>> outcomes = monitor.outcomes(range(80), X[200:280, 0] > 0)
    >>> outcomes.n, outcomes.waiting, outcomes.alarm
    (80, 20, None)
    """

    n: int
    waiting: int  # predictions whose outcome is awaited
    unmatched: int  # outcomes of ids that no prediction waits under
    alarm: RiskAlarm | None
    risks: tuple[Risk, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per group and measure."""
        rows = [{**asdict(risk), "by": risk.by or "all", "group": risk.group or "all rows"} for risk in self.risks]
        least, most = zip(*(row.pop("allowed") for row in rows), strict=True) if rows else ((), ())
        return pd.DataFrame(rows).drop(columns="latest", errors="ignore").assign(least=least, most=most)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        state: dict[str, Any] = plain(asdict(self))
        return state

    def __str__(self) -> str:
        text = f"{self.n:,} outcome{'s' * (self.n != 1)}, {self.waiting:,} awaited"
        text += f", {self.unmatched:,} without a prediction" if self.unmatched else ""
        if self.alarm is None:
            return f"{text}; no alarm"
        return f"{text}; ALARM after {self.alarm.outcomes:,} outcomes: {self.alarm.risk}"


class OutcomeWatch:
    """Keeps predictions until their outcomes arrive, and watches what these say.

    Args:
        clf: a fitted model.
        alpha: the probability of a false alarm, ever.
        remember: how many predictions may wait for their outcome.
        epsilon: the error rate of the prediction sets and intervals that are watched.
        levels: the highest mean of a measure that raises no alarm, by its name, instead of the one that the
            calibration rows suggest; for measures that may be negative, the highest in size.
        private: keep rounded numbers.
    """

    def __init__(
        self, clf: Any, alpha: float, remember: int, epsilon: float, levels: Mapping[str, float], *, private: bool
    ) -> None:
        self._clf, self._alpha, self._remember, self._epsilon = clf, alpha, remember, epsilon
        self._private, self.levels = private, {str(name): float(level) for name, level in levels.items()}
        names = [measure.name for measure in base_measures(clf, epsilon)]
        for name in self.levels:
            if name not in names:
                raise InputError(f"levels must name measures of this model: {listed(names)}; got {name!r}")
        self._known: dict[str, Forecast | None] = {}  # by digest, oldest first; None once the outcome is known
        self._n = self._unmatched = self._calls = 0
        self._losses: dict[Group, list[Losses]] = {}
        self._shares: dict[Group, float] = {(None, None): 1.0}
        self._alarm: RiskAlarm | None = None
        self._state: OutcomeState | None = None

    # Predictions

    def remember(self, ids: Sequence[Hashable], predicted: Any) -> None:
        """Keep the predictions of rows with these ids; a later prediction with the same id replaces the earlier one."""
        rows = np.flatnonzero(predicted.readable)[-self._remember :]
        if len(rows) == 0 or not self._remember:
            return
        known = predicted if len(rows) == len(predicted) else predicted.part(rows)
        for row, forecast in zip(rows, forecasts_of(known, self._epsilon, private=self._private), strict=True):
            key = _digest(ids[row])
            self._known.pop(key, None)
            self._known[key] = forecast
        while len(self._known) > self._remember:
            del self._known[next(iter(self._known))]
        self._state = None

    # Outcomes

    def take(self, ids: Sequence[Hashable], y: Any, by: Any, now: float) -> None:
        """Take the outcomes of rows with these ids."""
        if not ids:
            return
        keys = [_digest(name) for name in ids]
        codes, exact = self._clf.target_.read(y, len(keys), strict=False)
        groups = _read_by(by, len(keys))
        first: set[str] = set()
        for name, key in zip(ids, keys, strict=True):
            if key in first or self._known.get(key, ()) is None:
                raise InputError(
                    f"each id may have one outcome, and {name!r} has a second one; nothing was taken; leave it out, or "
                    "begin a new monitor if the first was wrong"
                )
            first.add(key)
        rows = [row for row, key in enumerate(keys) if key in self._known]
        self._open_accounts({(name, values[row]) for name, values in groups.items() for row in rows})
        self._unmatched += len(keys) - len(rows)
        forecasts = [self._known[keys[row]] for row in rows]
        self._known |= {keys[row]: None for row in rows}
        self._n, self._state = self._n + len(rows), None
        if not rows:
            return
        values = self._yardstick.values(forecasts, codes[rows], exact[rows])
        self._count((None, None), values, now)
        for name, of in groups.items():
            own = np.array([of[row] for row in rows], dtype=object)
            for value in dict.fromkeys(own.tolist()):
                self._count((name, value), values[own == value], now)

    def _open_accounts(self, groups: set[tuple[str, str]]) -> None:
        new = sorted(groups - set(self._shares))
        if len(self._shares) + len(new) > _GROUPS:
            raise InputError(f"by must give at most {_GROUPS - 1} groups in all; got more; join some of them")
        if new:
            self._calls += 1
            self._shares |= dict.fromkeys(new, 1 / (self._calls * (self._calls + 1)) / len(new))

    @cached_property
    def _yardstick(self) -> Yardstick:
        """What is measured; computed when the first outcome arrives, from the calibration rows."""
        return yardstick_of(self._clf, self._epsilon)

    @cached_property
    def _allowed(self) -> list[tuple[float, float]]:
        """The least and the greatest mean loss of each measure that raise no alarm."""
        measures, values = self._yardstick.measures, self._yardstick.calibration
        return [self._allow(each, values[:, place]) for place, each in enumerate(measures)]

    def _allow(self, measure: WatchedMean, values: Floats) -> tuple[float, float]:
        """For calibration rows with these values; wrong with the probability that is for levels."""
        n, alpha = len(values), self._alpha / 2 / len(self._yardstick.measures)
        if measure.name in self.levels:
            low, high = measure.scale([-self.levels[measure.name], self.levels[measure.name]]).tolist()
        elif not n:
            return _ANY
        elif measure.promised is not None:
            # Given the calibration rows, the true share has a beta distribution; a wider one if these train, too.
            shift = self._clf.shift_  # under which they count as fewer
            n = n if shift is None else int(shift.effective_size)
            rows = (n + 1) / (1.0 if self._clf.fitted_.folds is None else CROSSED)
            level = beta.isf(alpha, measure.promised * rows, (1 - measure.promised) * rows)
            low, high = 0.0, max(float(level), measure.promised)
        else:
            low, high = bounds(count_cells(measure.scale(values[~np.isnan(values)])), alpha)
        return low if measure.two_sided else -np.inf, high

    def _count(self, group: Group, values: Floats, now: float) -> None:
        """Count the values (n, M) of rows of one group, and look at its means."""
        measures = self._yardstick.measures
        losses = self._losses.setdefault(group, [Losses() for _ in self._own(group)])
        for place, each in zip(self._own(group), losses, strict=True):
            column = values[:, place]
            for _ in each.add(np.clip(measures[place].scale(column[~np.isnan(column)]), 0.0, 1.0)):
                if self._alarm is None:
                    self._look(group, place, each, now)

    def _own(self, group: Group) -> list[int]:
        """The places of the measures of a group."""
        return [i for i, each in enumerate(self._yardstick.measures) if each.by_group or group[0] is None]

    def _part(self, group: Group, account: Account) -> float:
        """The part of α for the means of one measure in one account."""
        return self._alpha / 4 * self._shares[group] / len(self._own(group)) * account.weight

    def _look(self, group: Group, place: int, losses: Losses, now: float) -> None:
        least, most = self._allowed[place]
        for account in losses.accounts():
            limit = np.log(2 / self._part(group, account))
            if (most < 1 and log_evidence(account.counts, most) >= limit) or (
                least > 0 and log_evidence(account.counts, least, above=False) >= limit
            ):
                self._alarm = RiskAlarm(self._n, now, self._risk(group, place, losses, account))
                return

    def _risk(self, group: Group, place: int, losses: Losses, account: Account) -> Risk:
        measure, allowed = self._yardstick.measures[place], self._allowed[place]
        n = int(account.counts.sum())
        total = (
            losses.sum
            if account.first == 0
            else float(account.counts @ np.arange(len(account.counts))) / (len(account.counts) - 1)
        )
        low, high = bounds(account.counts, self._part(group, account))
        least, most = (None if not 0 < each < 1 else measure.unscale(each) for each in allowed)
        mean, low, high = (measure.unscale(each) for each in (total / n, low, high))
        return Risk(measure.name, *group, n, mean, low, high, (least, most), account.first > 0)

    @property
    def begun(self) -> bool:
        """Whether any outcome has arrived."""
        return self._n > 0 or self._unmatched > 0

    def state(self) -> OutcomeState:
        """The current state."""
        if self._state is None:
            risks = [
                self._risk(group, place, each, each.accounts()[0])
                for group, losses in self._losses.items()
                for place, each in zip(self._own(group), losses, strict=True)
                if each.n
            ]
            waiting = sum(each is not None for each in self._known.values())
            self._state = OutcomeState(self._n, waiting, self._unmatched, self._alarm, tuple(risks))
        return self._state

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "known": self._known,
            "n": self._n,
            "unmatched": self._unmatched,
            "calls": self._calls,
            "shares": [[*group, share] for group, share in self._shares.items()],
            "losses": [[*group, [each.to_dict() for each in losses]] for group, losses in self._losses.items()],
            "alarm": None if self._alarm is None else asdict(self._alarm),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the result of `to_dict`."""
        self._known = dict(state["known"])
        self._n, self._unmatched, self._calls = (int(state[name]) for name in ("n", "unmatched", "calls"))
        self._shares = {(by, group): float(share) for by, group, share in state["shares"]}
        self._losses = {(by, group): [Losses.from_dict(e) for e in each] for by, group, each in state["losses"]}
        if any(len(each) != len(self._own(group)) for group, each in self._losses.items()):
            raise ValueError("other measures were counted")
        if (alarm := state["alarm"]) is not None:
            risk = Risk(**{**alarm["risk"], "allowed": tuple(alarm["risk"]["allowed"])})
            self._alarm = RiskAlarm(int(alarm["outcomes"]), float(alarm["time"]), risk)


def _digest(name: Hashable) -> str:
    return hashlib.blake2b(text_of(name).encode(), digest_size=8).hexdigest()


def _read_by(by: Any, n: int) -> dict[str, list[str]]:
    """The group of each of n rows, by the name of its column."""
    if by is None:
        return {}
    if isinstance(by, pd.Series):
        by = {"group" if by.name is None else by.name: by}
    columns = by if isinstance(by, Mapping | pd.DataFrame) else {"group": by}
    groups = {str(name): [_group(value) for value in values] for name, values in columns.items()}
    for name, values in groups.items():
        if len(values) != n:
            raise ShapeError(f"by must have one value for each of the {n:,} outcomes; {name!r} has {len(values):,}")
    return groups


def _group(value: Any) -> str:
    return "missing" if pd.api.types.is_scalar(value) and pd.isna(value) else text_of(value)


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
