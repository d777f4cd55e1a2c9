"""What the service knows of the rows that it is asked about, and what several workers of one service know together.

Every worker watches its own rows with a share of the error rate, and writes what it knows to a folder once a second;
whichever worker is asked adds what the others wrote (`dwac.monitoring.merged` says why no average is taken).
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

from dwac.errors import CalibrationError, DwacError, InputError, StorageError
from dwac.monitoring import Monitor, merged
from dwac.monitoring.monitor import read_state
from dwac.server.metrics import Metrics
from dwac.server.refusals import RefusalError
from dwac.storage.files import make_folder, read_file, replace_file

log = logging.getLogger("dwac.server")

_STATE = re.compile(r"monitor-(\d+)-of-(\d+)\.json")
_LARGEST = 2**24  # bytes of a file with counters


class Watch:
    """The monitor of one worker; begun with its first row, unless `begin` was called.

    Args:
        model: a fitted model.
        private: show what a private model may show.
        ignore: columns that are not watched.
        folder: where the state of the monitors is kept, so that a restart forgets nothing; None to keep none.
        counters: where workers show each other their counters; None if there is one worker.
        worker, workers: which one this is, from 0, and how many there are.
        monitored: whether rows are watched at all.
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
        self._lock, self._written = threading.Lock(), -1
        self.monitored, self.failed = monitored, False
        self.monitor: Monitor | None = None

    @property
    def _state(self) -> Path | None:
        return None if self._folder is None else self._folder / f"monitor-{self._worker}-of-{self._workers}.json"

    @property
    def kept(self) -> bool:
        """Whether anything is written to files."""
        return self._folder is not None or self._counters is not None

    def begin(self) -> Monitor:
        """The monitor, which goes on from its file if there is one; an error if there is nothing to compare with."""
        with self._lock:
            if self.monitor is None:
                path = self._state
                if path is not None and path.exists():
                    found = Monitor.load(path, self._model, private=self._private)
                    kept = sorted(map(str, found.ignored))
                    if self._ignore and sorted(map(str, self._ignore)) != kept:
                        raise InputError(f"{path} was begun with --ignore {kept}; give the same, or another folder")
                    self.monitor = found
                else:
                    self.monitor = Monitor(
                        self._model, private=self._private, ignore=self._ignore, share=1 / self._workers
                    )
                self._written = self.monitor.state.rows
            return self.monitor

    def begin_if_possible(self) -> None:
        """Begin before the first row; a model with nothing to compare with is served all the same."""
        try:
            self.begin()
        except CalibrationError as error:
            log.info("rows are not monitored: %s", error)

    def observe(self, observed: Any, predicted: Any) -> None:
        """Take rows that were predicted. A monitor that fails must not keep anyone from predictions."""
        if not self.monitored or self.failed:
            return
        try:
            before = self.begin().alarm
            state = self.begin().observe(observed, predicted)
            if before is None and state.alarm is not None:
                log.warning("%s", state)
        except Exception as error:
            self.failed = True
            if not isinstance(error, DwacError):
                log.exception("the monitor failed; predictions go on without it")
            else:
                log.info("rows are not monitored: %s", error)

    def answer(self) -> dict[str, Any]:
        """What all workers know: the answer to GET /v1/monitor."""
        if not self.monitored:
            message = "this service does not monitor its rows; start it without --no-monitor"
            raise RefusalError(409, "not_available", message)
        own = self.begin()
        if self.failed:
            raise RefusalError(409, "not_available", "the monitor has ended; see the log of the service")
        found = [own.state.to_dict(), *(state["state"] for state in self._others())]
        return {**merged(found), "workers": self._workers}

    def _others(self) -> list[dict[str, Any]]:
        found = []
        for worker in range(self._workers if self._folder is not None else 0):
            assert self._folder is not None
            path = self._folder / f"monitor-{worker}-of-{self._workers}.json"
            if worker != self._worker and path.exists():
                found.append(read_state(path))
        return found

    def gauges(self) -> dict[str, float]:
        """For the metrics: rows, evidence, and whether there is an alarm; nothing if nothing is watched."""
        if not self.monitored or self.failed or self.monitor is None:
            return {}
        found = self.answer()
        return {
            "monitor_rows": found["rows"],
            "monitor_unreadable_rows": found["unreadable"],
            "monitor_evidence": found["evidence"],
            "monitor_alarm": float(found["alarm"] is not None),
        }

    # Files

    def write(self, metrics: Metrics) -> None:
        """Keep what is known, if it is to be kept and has changed."""
        path = self._state
        if path is not None and self.monitor is not None:
            rows = self.monitor.state.rows
            if rows != self._written:
                self.monitor.save(path)
                self._written = rows
        if self._counters is not None:
            text = json.dumps(metrics.to_dict())
            replace_file(self._counters / f"metrics-{self._worker}.json", text.encode())

    def other_metrics(self) -> list[dict[str, Any]]:
        """What the other workers have counted."""
        found = []
        for worker in range(self._workers if self._counters is not None else 0):
            assert self._counters is not None
            path = self._counters / f"metrics-{worker}.json"
            if worker != self._worker and path.exists():
                found.append(json.loads(read_file(path, largest=_LARGEST)))
        return found


def prepare_folder(folder: Path, workers: int) -> None:
    """Make the folder of a service's monitors; an error if it holds those of another number of workers."""
    try:
        make_folder(folder)
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        raise StorageError(f"{folder} cannot be used as a folder: {error.strerror or error}; give another") from None
    for name in names:
        found = _STATE.fullmatch(name)
        if found is not None and int(found[2]) != workers:
            raise InputError(
                f"{folder} holds the monitors of {found[2]} workers, which share the error rate; give --workers "
                f"{found[2]}, or another folder"
            )
