"""`Monitor`: are new rows still like the calibration rows, and if not, what moved?"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwac import _checks as checks
from dwac.errors import EPSILON, InputError, StorageError
from dwac.estimator.evaluation import predict
from dwac.estimator.observed import Observed
from dwac.estimator.preparation import count
from dwac.estimator.readable import Partial
from dwac.monitoring import watching
from dwac.monitoring.gauges import Change, changes
from dwac.monitoring.martingale import BEFORE, Bets, Players, Watched
from dwac.monitoring.outcomes import OutcomeState, OutcomeWatch
from dwac.monitoring.sources import Sources, WatchedValues
from dwac.monitoring.state import FORMAT, LATEST, Alarm, Detector, Latest, State, StreamBlock, StreamHistory
from dwac.monitoring.watching import ObservedRows
from dwac.storage.files import read_file, replace_file

Floats = NDArray[np.float64]

READABILITY = "readability"  # raised the alarm: rows could not be read

PART = 50  # rows that are counted together
_NAMING = 200  # rows after an alarm that still help to name what moved
_LARGEST = 2**26  # bytes of a file with a monitor's state


class Monitor:
    """Watches rows in order of arrival, and raises an alarm when they stop being like calibration rows.

    Valid at any time: even if checked after every row, for ever, the probability of a false alarm is at most
    `false_alarms` (per monitor: a new one has that probability again). This holds if, as long as nothing changes, rows
    are exchangeable with the calibration and training rows; so not for sorted rows, or for a column that always grows,
    such as a date: name those in `ignore`.

    It watches the typicality of rows, the certainty of predictions, the predictions and, if the model keeps its
    training rows, every column of a table. Rows that cannot be read count as the least typical. If outcomes arrive
    later, `outcomes` watches risk and calibration, too, with an alarm of its own.

    >>> from sklearn.datasets import load_iris
    >>> from dwac import DWACClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> new = X[1::2].sample(frac=1, random_state=0)
    >>> monitor = Monitor(DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X[::2], y[::2]))
    >>> monitor.update(new).alarm is None
    True
    >>> moved = new.assign(**{"petal length (cm)": new["petal length (cm)"] + 5})
    >>> print(monitor.update(moved).alarm.moved[0])
    petal length (cm): mean ..., was ...

    Args:
        clf: a fitted classifier or regressor with calibration rows, its own or those of its folds.
        false_alarms: the probability of a false alarm, ever.
        ignore: columns of a table that are not watched one by one. The model still sees them.
        random_state: seed of the numbers that order rows with equal scores.
        private: round what is shown, as a private model does; by default for a model without its training examples.
        share: the part of `false_alarms` that this monitor may spend, if there are several for one stream.
        remember: how many predictions may wait for their outcome; beyond that the oldest are forgotten.
        epsilon: the error rate of the prediction sets or intervals whose misses are watched.
        levels: the highest mean of a measure of outcomes that raises no alarm, by its name, such as {"error": 0.1};
            by default what the calibration rows leave possible.
    """

    def __init__(
        self,
        clf: Any,
        *,
        false_alarms: float = 0.01,
        ignore: Iterable[Hashable] = (),
        random_state: int = 0,
        private: bool | None = None,
        share: float = 1.0,
        remember: int = 10_000,
        epsilon: float = EPSILON,
        levels: Mapping[str, float] | None = None,
    ) -> None:
        if not isinstance(clf, watching.Model) or not hasattr(clf, "model_"):
            raise InputError(f"clf must be a fitted DWACClassifier or DWACRegressor; got {type(clf).__name__}")
        if not 0 < false_alarms < 1:
            raise InputError(f"false_alarms must be a probability between 0 and 1; got {false_alarms!r}")
        self.clf, self.false_alarms, self.share = clf, float(false_alarms), float(share)
        self.private = clf.private_ if private is None else private
        self.random_state = checks.positive_int(random_state, "random_state", minimum=0)
        self.remember = checks.positive_int(remember, "remember", minimum=0)
        self.epsilon, self.levels = checks.epsilon(epsilon), dict(levels or {})
        self._lock = threading.RLock()
        self._alarm: Alarm | None = None
        self._peaks: Floats = np.zeros(0)
        self._waiting: list[WatchedValues] = []  # rows that gauges have not counted yet
        self._version, self._fingerprint = watching.version_of(clf), watching.fingerprint(clf)
        self._sources = Sources(clf, ignore, self.random_state, self.private)
        self._players = Players(self._sources.watched, self.random_state)
        self.reset()

    # Rows

    def update(self, X: Any, ids: Sequence[Hashable] | None = None, *, awaited: bool = True) -> State:
        """Take more rows, in order of arrival; returns the new state.

        ids: their names, for the alarm and for `outcomes`; by default rows are numbered from 0. awaited: whether their
        outcomes may arrive later. An empty X changes nothing.
        """
        if not isinstance(X, Partial) and _is_empty(X) and (ids is None or len(ids) == 0):
            return self.state
        # Each row is judged alone, so that the size of the batch makes no difference.
        observed = self.clf.observe(X if isinstance(X, Partial) else Partial(X, {}))
        return self.observe(observed, predict(self.clf, observed, private=False), ids, awaited=awaited)

    def observe(
        self,
        observed: Observed,
        predicted: Any,
        ids: Sequence[Hashable] | None = None,
        now: float | None = None,
        *,
        awaited: bool = True,
    ) -> State:
        """The same for rows that have passed through the model already (`dwac.monitoring.watching`)."""
        with self._lock:
            self.observe_all([(observed, predicted)], ids, now, awaited=awaited)
            if sum(each.rows for each in self._waiting) >= PART:
                self._count()
            return self.state

    def observe_all(
        self,
        calls: Sequence[tuple[Observed, Any]],
        ids: Sequence[Hashable] | None = None,
        now: float | None = None,
        *,
        awaited: bool = True,
    ) -> None:
        """The same for several calls of the model, with what each observed and predicted: faster than one by one.

        Gauges count only the latest rows, and only when `moved` or `save` needs the counts.
        """
        n = sum(len(observed) for observed, _ in calls)
        if ids is not None and len(ids) != n:
            raise InputError(f"ids must have one entry per row: {n} required, got {len(ids)}")
        with self._lock:
            self._require_unedited()
            if awaited:
                names = range(self._bets.rows, self._bets.rows + n) if ids is None else list(ids)
                ends = np.cumsum([0, *(len(observed) for observed, _ in calls)]).tolist()
                for (start, end), (_, predicted) in zip(pairwise(ends), calls, strict=True):
                    self._outcomes.remember(names[start:end], predicted)
            rows = ObservedRows.of(calls)
            columns = self._sources.columns(rows)
            bins = self._players.bins(self._sources.scores(rows, columns), self._players.draws(self._bets.rows, n))
            readable, now = rows.readable, time.time() if now is None else now
            for start in range(0, n, PART):
                part = slice(start, min(start + PART, n))
                self._wait(self._sources.watched_values(rows, columns, part))
                unreadable = ~readable[part]
                self._bet(bins[part], unreadable, None if ids is None else ids[part], now)
                self._remember(unreadable, rows, part, now)

    def _wait(self, values: WatchedValues) -> None:
        """Let rows wait to be counted; those that later rows have replaced are not."""
        if not self._waiting:
            self._waits_from = self._bets.rows
        self._waiting.append(values)
        while sum(each.rows for each in self._waiting[1:]) >= LATEST:
            self._waits_from += self._waiting.pop(0).rows

    def _count(self) -> None:
        """Count the waiting rows; not after an edit, which may change the groups."""
        waiting, self._waiting = self._waiting, []
        if not waiting or self._edited():
            return
        values = self._sources.values(waiting)
        first, rows, begin, end = self._waits_from, 0, 0, 0
        for place, each in enumerate(waiting, 1):
            rows, end = rows + each.rows, end + len(each.votes)
            if rows >= PART or place == len(waiting):
                self._latest.add(self._sources.tallies(values, slice(begin, end)), first, rows)
                first, rows, begin = first + rows, 0, end

    def outcomes(self, ids: Sequence[Hashable], y: Any, by: Any = None) -> OutcomeState:
        """Take outcomes of earlier rows, in any order and for any part of them; returns what outcomes say so far.

        That is the risk (errors, misses of prediction sets or intervals) and the calibration (how far stated
        probabilities, or predicted numbers, are off on average), over all rows and by group, with bounds that hold at
        all times together with probability 1 - `false_alarms`. An alarm is raised if a mean is surely outside the range
        that the calibration rows leave possible, or above its level; it is false with probability at most
        `false_alarms`, ever. Both hold if rows with an outcome are a fair sample: whether, and when, an outcome arrives
        must not depend on it. `state.outcomes` is the same, None before the first outcome.

        Args:
            ids: the names of the rows, as given to `update`, or their numbers. Each id may have one outcome per
                prediction; a second one is an error. Ids that no prediction waits under are counted and left out.
            y: the outcomes, in the form that `fit` takes.
            by: the group of each row: one value each, or several columns of them, as a frame or by name.
        """
        with self._lock:
            self._require_unedited()
            self._outcomes.take(list(ids), y, by, time.time())
            return self._outcomes.state()

    def _require_unedited(self) -> None:
        if self._edited():
            raise InputError(
                "the model was edited or recalibrated since the monitor began, so its scores have changed; begin a new "
                "Monitor(clf)"
            )

    def _edited(self) -> bool:
        return any(a is not b for a, b in zip(self._version, watching.version_of(self.clf), strict=True))

    def _bet(
        self, bins: NDArray[np.int64], unreadable: NDArray[np.bool_], ids: Sequence[Hashable] | None, now: float
    ) -> None:
        wealth = self._bets.take(bins)
        wealth += np.log(self.share * self._players.weights)
        self._peaks = np.maximum(self._peaks, wealth.max(axis=0))
        raised = np.flatnonzero(wealth.max(axis=1) >= -np.log(self.false_alarms))
        if self._alarm is None and len(raised):
            row = int(raised[0])
            best, number = int(wealth[row].argmax()), self._bets.rows - len(bins) + row
            # A row that cannot be read is atypical to every player: no column is to blame.
            name = READABILITY if unreadable[row] else self._players.watched[best].name
            began = self._bets.began(best, number)
            bad = self._unreadable + int(unreadable[:row].sum())
            # Unreadable rows have no scores that date a change; they may all have come before it.
            if began is not None and (unreadable[row] or began.first - bad < BEFORE):
                began = None
            since, between = (None, None) if began is None else (began.likeliest, (began.first, began.last))
            self._alarm = Alarm(number, None if ids is None else ids[row], now, name, since, between=between)
        if self._alarm is not None and self._bets.rows <= self._alarm.row + _NAMING:
            self._alarm = self._alarm.with_changes(self.moved())

    def _remember(self, unreadable: NDArray[np.bool_], rows: ObservedRows, part: slice, now: float) -> None:
        n, bad = len(unreadable), int(unreadable.sum())
        typicality, credibility = (
            None if values is None else float(np.nan_to_num(values[part].astype(np.float64)).mean())
            for values in (rows.typicality, rows.credibility)
        )
        self._unreadable += bad
        evidence = float(self._evidence().max() / np.log(10))
        self._history.add(StreamBlock(self._bets.rows - n, n, bad, now, now, typicality, credibility, evidence))

    # The state

    def _evidence(self) -> Floats:
        """(D,): the log of each player's wealth times its share of the error rate."""
        return np.asarray(self._bets.log_martingale + np.log(self.share * self._players.weights))

    @property
    def ignored(self) -> list[Hashable]:
        """The columns that are not watched one by one."""
        return list(self._sources.ignored)

    @property
    def alarm(self) -> Alarm | None:
        """When the alarm was raised, by what, and what moved; None if there was none. It stays until `reset`."""
        return self._alarm

    @property
    def state(self) -> State:
        """The current state."""
        with self._lock:
            now = self._evidence()
            detectors = [
                Detector(each.name, each.kind, float(now[rows].max()), float(self._peaks[rows].max()))
                for each, rows in self._by_name()
            ]
            return State(
                self._bets.rows,
                self._unreadable,
                self.false_alarms,
                self._alarm,
                float(now.max()),
                float(self._peaks.max()),
                tuple(detectors),
                tuple(self._history.blocks),
                tuple(self._sources.notes),
                self.private,
                self._outcomes.state() if self._outcomes.begun else None,
            )

    def _by_name(self) -> list[tuple[Watched, list[int]]]:
        """Each score once, with its players: one, or one per fold."""
        rows: dict[tuple[str, str], list[int]] = {}
        for player, each in enumerate(self._players.watched):
            rows.setdefault((each.kind, each.name), []).append(player)
        return [(self._players.watched[numbers[0]], numbers) for numbers in rows.values()]

    def moved(self, level: float = 0.01) -> list[Change]:
        """The columns, predictions and groups of voters in which the latest rows differ from before, most first.

        The latest rows are the last 1,000 or, after an alarm, those of them since the change probably began.
        Columns are compared with training rows, predictions and groups with calibration rows, by G-tests whose p-values
        are corrected for their number. Unlike the alarm, they are valid for one look, not for a look after every row.
        """
        with self._lock:
            self._count()
            since = 0 if self._alarm is None else self._alarm.since or 0
            return changes(self._sources.gauges, self._latest.since(since), level)

    def reset(self) -> None:
        """Forget all rows and the alarm, once a change was dealt with. The false-alarm probability starts again."""
        with self._lock:
            self._bets = Bets(self._players.gaps)
            self._peaks = np.full(len(self._players), -np.inf)
            self._alarm = None
            self._unreadable = 0
            self._history, self._latest = StreamHistory(), Latest(self._sources.gauges)
            self._waiting, self._waits_from = [], 0
            self._outcomes = OutcomeWatch(
                self.clf,
                self.false_alarms * self.share,
                self.remember,
                self.epsilon,
                self.levels,
                private=self.private,
            )

    # Files

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state as JSON: counts, and predictions that wait for outcomes, but no rows.

        `load` continues from it. Ids are kept as digests, except that of an alarm.
        """
        with self._lock:
            self._count()
            state = {
                "format": FORMAT,
                "model": self._fingerprint,
                "false_alarms": self.false_alarms,
                "share": self.share,
                "ignore": [str(name) for name in self._sources.ignored],
                "random_state": self.random_state,
                "unreadable": self._unreadable,
                "alarm": None if self._alarm is None else self._alarm.to_dict(),
                "peaks": [None if np.isinf(peak) else peak for peak in self._peaks.tolist()],
                "bets": self._bets.to_dict(),
                "history": self._history.to_dict(),
                "latest": self._latest.to_dict(),
                "remember": self.remember,
                "epsilon": self.epsilon,
                "levels": self.levels,
                "outcomes": self._outcomes.to_dict(),
                "state": self.state.to_dict(),
            }
        replace_file(Path(path), json.dumps(state, allow_nan=False).encode())

    @classmethod
    def load(cls, path: str | PathLike[str], clf: Any, *, private: bool | None = None) -> Monitor:
        """A monitor that continues from a saved state, with the same model."""
        state = read_state(Path(path))
        monitor = cls(
            clf,
            false_alarms=state["false_alarms"],
            random_state=state["random_state"],
            ignore=[column.name for column in watching.columns_of(clf) if str(column.name) in state["ignore"]],
            private=private,
            share=state["share"],
            **{name: state[name] for name in ("remember", "epsilon", "levels") if name in state},
        )
        if state["model"] != monitor._fingerprint:
            raise InputError(
                f"{path} belongs to another model, or to this one before an edit; begin a new monitor in another file"
            )
        try:
            monitor._restore(state)
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{path} is damaged ({error!s:.100}); remove it to begin a new monitor") from None
        return monitor

    def _restore(self, state: dict[str, Any]) -> None:
        self._bets.restore(state["bets"])
        self._latest.restore(state["latest"])
        self._history = StreamHistory.from_dict(state["history"])
        self._peaks = np.array([-np.inf if peak is None else peak for peak in state["peaks"]], dtype=np.float64)
        self._unreadable = int(state["unreadable"])
        self._alarm = None if state["alarm"] is None else Alarm.from_dict(state["alarm"])
        if "outcomes" in state:  # format 1 has none
            self._outcomes.restore(state["outcomes"])


def _is_empty(X: Any) -> bool:
    return bool((X.shape[0] if hasattr(X, "shape") else count(X)) == 0)  # a sparse matrix has no len


def read_state(path: Path) -> dict[str, Any]:
    """The state in a file; an error if the file holds none."""
    try:
        state = json.loads(read_file(path, largest=_LARGEST))
        if not isinstance(state, dict) or state.get("format") not in range(1, FORMAT + 1):
            raise ValueError(f"format {FORMAT} or an earlier one is required")
    except (ValueError, RecursionError, OSError) as error:
        raise StorageError(f"{path} is not the state of a monitor ({error!s:.100}); give another file") from None
    return state
