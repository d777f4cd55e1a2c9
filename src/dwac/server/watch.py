"""The counters of the service, and whether the rows of its requests are still like those of calibration.

Counters are text in the format of Prometheus, without a further dependency. Every worker of a service watches its own
rows with a share of the error rate, and writes its state to a folder once a second. The worker that gets a request
adds what the others wrote (`dwac.monitoring.state.merge_states` says why no average is taken).
"""

from __future__ import annotations

import json
import logging
import re
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from dwac.drawing.records import plain
from dwac.errors import CalibrationError, DwacError, InputError, StorageError
from dwac.monitoring import Monitor, OutcomeState, RiskAlarm
from dwac.monitoring.monitor import read_state
from dwac.monitoring.state import merge_states
from dwac.server.limits import RefusalError
from dwac.server.schemas import Share, StrictModel
from dwac.storage.files import make_folder, read_file, replace_file

log = logging.getLogger("dwac.server")

_STATE = re.compile(r"monitor-(\d+)-of-(\d+)\.json")
_LARGEST = 2**24  # bytes of a file with counters
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TOGETHER = 256  # rows that the monitor observes at once, or those of a second
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Histogram:
    """The number of values up to each bound, and the sum of all values."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str) -> list[str]:
        """Lines in the format of Prometheus, with cumulative buckets."""
        lines, total = [], 0
        for bound, count in zip((*map("{:g}".format, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*lines, f"{name}_sum {self.sum:.9g}", f"{name}_count {total}"]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"counts": self.counts, "sum": self.sum}

    def add_counts(self, other: dict[str, Any]) -> None:
        """Add the counts of another one, from its `to_dict`."""
        self.counts = [a + int(b) for a, b in zip(self.counts, other["counts"], strict=True)]
        self.sum += float(other["sum"])


class Metrics:
    """The counters of the service; `text` is the answer to GET /v1/metrics."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._paths = set(paths)  # others share one label: a client must not be able to invent labels
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds, self.batch_rows = Histogram(_SECONDS), Histogram(_ROWS)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered or refused."""
        self.requests[path if path in self._paths else "other", status] += 1
        self.seconds.add(seconds)

    def to_dict(self) -> dict[str, Any]:
        """A dict for JSON, so that workers can add up their counters."""
        requests = [[path, status, count] for (path, status), count in list(self.requests.items())]
        return {"requests": requests, "seconds": self.seconds.to_dict(), "batch_rows": self.batch_rows.to_dict()}

    def plus(self, others: Iterable[dict[str, Any]]) -> Metrics:
        """The sum of these and other counters, from their `to_dict`."""
        total = Metrics(self._paths)
        for each in (self.to_dict(), *others):
            for path, status, count in each["requests"]:
                total.requests[path, status] += count
            total.seconds.add_counts(each["seconds"])
            total.batch_rows.add_counts(each["batch_rows"])
        return total

    def text(self, **gauges: float) -> str:
        """All counters, and the current gauges."""
        lines = ["# HELP dwac_requests_total Requests by path and status.", "# TYPE dwac_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'dwac_requests_total{{path="{path}",status="{status}"}} {count}')
        for name, about, histogram in (
            ("dwac_request_seconds", "Time from the header of a request to the end of its answer.", self.seconds),
            ("dwac_batch_rows", "Rows that one call of the model answered.", self.batch_rows),
        ):
            lines += [f"# HELP {name} {about}", f"# TYPE {name} histogram", *histogram.lines(name)]
        for name, value in gauges.items():
            lines += [f"# TYPE dwac_{name} gauge", f"dwac_{name} {value:g}"]
        return "\n".join(lines) + "\n"


class Watch:
    """The monitor of one worker; it starts with the first row, unless `begin` was called.

    Args:
        model: a fitted model.
        private: show what a private model may show.
        ignore: columns that are not watched.
        folder: where the state of the monitors is kept, so that it survives a restart; None to keep none.
        counters: where workers show each other their counters; None if there is one worker.
        worker, workers: the number of this worker, from 0, and of all workers.
        monitored: whether rows are watched at all.

    >>> import pandas as pd
    >>> from dwac import DWACClassifier
    >>> from dwac.server import create_app
    >>> X = pd.DataFrame({"age": range(20, 80), "day": range(60)})
    >>> clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X["age"] < 50)
    >>> app = create_app(clf, watch=Watch(clf, private=False, ignore=["day"]))  # each day is new
    """

    def __init__(
        self,
        model: Any,
        *,
        private: bool,
        ignore: Iterable[Hashable] = (),
        folder: Path | None = None,
        counters: Path | None = None,
        worker: int = 0,
        workers: int = 1,
        monitored: bool = True,
    ) -> None:
        self._model, self._private, self._ignore = model, private, list(ignore)
        self._folder, self._counters, self._worker, self._workers = folder, counters, worker, workers
        self._lock, self._written = threading.RLock(), (-1, 0)
        self._queue = threading.Lock()
        self._waiting: list[tuple[Any, Any]] = []  # what calls of the model observed and predicted
        self._ids: list[str] = []  # of the decisions on these rows, if they are recorded
        self.monitored, self.failed = monitored, False
        self.monitor: Monitor | None = None

    @property
    def _state(self) -> Path | None:
        return None if self._folder is None else self._folder / f"monitor-{self._worker}-of-{self._workers}.json"

    def begin(self) -> Monitor:
        """The monitor, resumed from its file if there is one; an error if there is nothing to compare with."""
        with self._lock:
            if self.monitor is None:
                self.monitor = self._resume() or Monitor(
                    self._model, private=self._private, ignore=self._ignore, share=1 / self._workers
                )
                self._written = _version(self.monitor)
            return self.monitor

    def _resume(self) -> Monitor | None:
        path = self._state
        if path is None or not path.exists():
            return None
        monitor = Monitor.load(path, self._model, private=self._private)
        ignored = sorted(map(str, monitor.ignored))
        if self._ignore and sorted(map(str, self._ignore)) != ignored:
            raise InputError(f"{path} was begun with --ignore {ignored}; give the same, or another folder")
        return monitor

    def begin_if_possible(self) -> None:
        """Begin before the first row; a model with nothing to compare with is served anyway."""
        try:
            self.begin()
        except CalibrationError as error:
            log.info("rows are not monitored: %s", error)

    def observe(self, observed: Any, predicted: Any, ids: Sequence[str] = ()) -> None:
        """Observe predicted rows, many together: those of the latest requests wait until `catch_up`.

        ids: of the decisions on them, under which outcomes may arrive; none if decisions are not recorded.
        """
        if not self.monitored or self.failed:
            return
        with self._queue:
            self._waiting.append((observed, predicted))
            self._ids += ids
            enough = sum(len(rows) for rows, _ in self._waiting) >= _TOGETHER
        if enough:
            self.catch_up()

    def catch_up(self) -> None:
        """Observe the rows that wait. A failing monitor must not prevent predictions."""
        with self._lock:
            with self._queue:
                waiting, self._waiting = self._waiting, []
                ids, self._ids = self._ids, []
            if not waiting or self.failed:
                return
            try:
                monitor = self.begin()
                before = monitor.alarm
                monitor.observe_all(waiting, ids or None, awaited=bool(ids))
                if before is None and monitor.alarm is not None:
                    log.warning("%s", monitor.state)
            except Exception as error:
                self.failed = True
                if not isinstance(error, DwacError):
                    log.exception("the monitor failed; predictions go on without it")
                else:
                    log.info("rows are not monitored: %s", error)

    def outcomes(self, ask: AskOutcomes) -> dict[str, Any]:
        """Take the outcomes of earlier decisions: the answer to POST /v1/outcomes."""
        if self._workers > 1:
            message = "each worker knows its own decisions alone; start the service with --workers 1 to send outcomes"
            raise RefusalError(409, "not_available", message)
        own = self._running()
        groups = list(dict.fromkeys(name for each in ask.outcomes for name in each.groups))
        by = {name: [each.groups.get(name) for each in ask.outcomes] for name in groups}
        before = own.state.outcomes
        target = self._model.target_
        known = {plain(name): name for name in target.plain_names} if target.has_codes else {}  # such as dates
        given = [each.outcome for each in ask.outcomes]
        y = [each if isinstance(each, list) else known.get(each, each) for each in given]
        state = own.outcomes([each.decision for each in ask.outcomes], y, by)
        if state.alarm is not None and (before is None or before.alarm is None):
            log.warning("%s", state)
        unmatched = state.unmatched - (0 if before is None else before.unmatched)
        return {"taken": len(ask.outcomes) - unmatched, "unmatched": unmatched, "alarm": state.to_dict()["alarm"]}

    def _running(self) -> Monitor:
        """The monitor, with all rows so far; refused if there is none."""
        if not self.monitored:
            message = "this service does not monitor its rows; start it without --no-monitor"
            raise RefusalError(409, "not_available", message)
        own = self.begin()
        self.catch_up()
        if self.failed:
            raise RefusalError(409, "not_available", "the monitor has ended; see the log of the service")
        return own

    def answer(self) -> dict[str, Any]:
        """The merged state of all workers: the answer to GET /v1/monitor."""
        own = self._running()
        others = self._others(self._folder, f"monitor-{{}}-of-{self._workers}.json")
        return {
            **merge_states([own.state.to_dict(), *(read_state(path)["state"] for path in others)]),
            "workers": self._workers,
        }

    def _others(self, folder: Path | None, name: str) -> list[Path]:
        """The files of the other workers; `name` has {} for the number of a worker."""
        if folder is None:
            return []
        paths = [folder / name.format(worker) for worker in range(self._workers) if worker != self._worker]
        return [path for path in paths if path.exists()]

    def gauges(self) -> dict[str, float]:
        """Gauges for the metrics: rows, evidence, and whether there is an alarm; none if nothing is watched."""
        self.catch_up()
        if not self.monitored or self.failed or self.monitor is None:
            return {}
        state = self.answer()
        return {
            "monitor_rows": state["rows"],
            "monitor_unreadable_rows": state["unreadable"],
            "monitor_evidence": state["evidence"],
            "monitor_alarm": float(state["alarm"] is not None),
            "monitor_outcomes": 0 if state["outcomes"] is None else state["outcomes"]["n"],
            "monitor_outcome_alarm": float(state["outcomes"] is not None and state["outcomes"]["alarm"] is not None),
        }

    # Files

    def write(self, metrics: Metrics) -> None:
        """Write the state to files, if it is kept and has changed."""
        self.catch_up()
        path = self._state
        if path is not None and self.monitor is not None:
            version = _version(self.monitor)
            if version != self._written:
                self.monitor.save(path)
                self._written = version
        if self._counters is not None:
            text = json.dumps(metrics.to_dict())
            replace_file(self._counters / f"metrics-{self._worker}.json", text.encode())

    def other_metrics(self) -> list[dict[str, Any]]:
        """The counters of the other workers."""
        paths = self._others(self._counters, "metrics-{}.json")
        return [json.loads(read_file(path, largest=_LARGEST)) for path in paths]


def _version(monitor: Monitor) -> tuple[int, int]:
    """How many rows and how many outcomes a monitor has taken."""
    state = monitor.state
    return state.rows, 0 if state.outcomes is None else state.outcomes.n + state.outcomes.unmatched


def prepare_folder(folder: Path, workers: int) -> None:
    """Create the folder of a service's monitors; an error if it holds those of a different number of workers."""
    try:
        make_folder(folder)
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        raise StorageError(f"{folder} cannot be used as a folder: {error.strerror or error}; give another") from None
    for name in names:
        match = _STATE.fullmatch(name)
        if match is not None and int(match[2]) != workers:
            raise InputError(
                f"{folder} holds the monitors of {match[2]} workers, which share the error rate; give --workers "
                f"{match[2]}, or another folder"
            )


# The answer to GET /v1/monitor


class Changed(BaseModel):
    """What moved: the latest rows next to training or calibration rows."""

    kind: str = Field(description="column, group (of voters) or prediction")
    name: str
    sentence: str
    p_value: Share = Field(description="Corrected for all that was compared; for one look.")
    nats: float = Field(description="How far the latest rows are from before (Kullback-Leibler divergence).")


class Alarmed(BaseModel):
    """When the evidence was enough, and what had moved."""

    row: int = Field(description="Number of the row in the stream of its worker, from 0.")
    id: Any = None
    time: float = Field(description="Seconds since 1970.")
    by: str = Field(description="typicality, certainty, prediction, or the name of a column")
    since: int | None = Field(description="The likeliest row for the beginning of the change; null if that is unknown.")
    between: tuple[int, int] | None = Field(description="The rows between which it probably began; null if unknown.")
    moved: list[Changed] = Field(description="Most first.")


class Detected(BaseModel):
    """What one score has found."""

    name: str
    kind: str = Field(description="model or column")
    evidence: float
    peak: float


class Period(BaseModel):
    """Consecutive rows of one worker."""

    first: int
    rows: int
    unreadable: int
    began: float | None
    ended: float | None
    typicality: float | None = Field(description="Mean.")
    credibility: float | None = Field(description="Mean.")
    evidence: float = Field(description="log10, at its end.")


class Outcome(StrictModel):
    """What became of a row."""

    decision: str = Field(max_length=200, description="The id of the decision, from the answer to predict or sets.")
    outcome: str | int | float | bool | list[Any] = Field(description="The true label, labels or number.")
    groups: dict[str, str | int | float | bool | None] = Field({}, description="Groups to watch, such as the region.")


class AskOutcomes(StrictModel):
    """Outcomes of earlier decisions: each once, in any order, for any part of them that is a fair sample."""

    outcomes: list[Outcome] = Field(min_length=1, max_length=10_000)

    @classmethod
    def body(cls) -> dict[str, Any]:
        """The body of a request in OpenAPI."""
        schema = cls.model_json_schema()
        schema["properties"]["outcomes"]["items"] = schema.pop("$defs")["Outcome"]
        return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


class OutcomesTaken(BaseModel):
    """How many outcomes were counted, and whether they raise an alarm."""

    taken: int
    unmatched: int
    alarm: RiskAlarm | None


class Monitored(BaseModel):
    """The rows that were predicted so far: how many, how typical, and whether they are still like calibration rows."""

    rows: int
    unreadable: int
    alarm: Alarmed | None = Field(description="Null while there is no alarm. It stays until a new monitor is begun.")
    evidence: float = Field(description="Against: the rows are like those of calibration.")
    peak: float = Field(description="The highest that it ever was.")
    limit: float = Field(description="Evidence that raises the alarm: 1 / false_alarms.")
    p_value: Share = Field(description="1 / peak: valid whenever one looks.")
    false_alarms: float = Field(description="The probability of a false alarm, ever.")
    typicality: float | None = Field(description="Mean over all rows.")
    credibility: float | None = Field(description="Mean over all rows.")
    detectors: list[Detected]
    history: list[Period] = Field(description="Oldest first, at most some 200 per worker.")
    notes: list[str] = Field(description="What cannot be watched, and why.")
    outcomes: OutcomeState | None = Field(description="Null before the first outcome.")
    workers: int
