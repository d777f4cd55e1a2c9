"""The state of a monitor for people and programs, and its memory: the stream in blocks of time, and the latest rows.

Both memories are bounded, however long the stream: blocks are merged in pairs when there are many, and only the latest
rows are counted.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from dwac.drawing.records import plain
from dwac.explain import privacy
from dwac.monitoring.gauges import CellCounts, Change, Gauge
from dwac.monitoring.outcomes import OutcomeState

FORMAT = 2  # of saved states; format 1 knows no outcomes, and does not keep the bins of the latest rows
_NAMED = 5  # changes that are named in a text
LATEST, _PART = 1000, 50  # the latest rows; rows per part
_BLOCK, _BLOCKS = 50, 200  # rows of the first blocks; the most blocks


@dataclass
class StreamBlock:
    """Consecutive rows: how many, when, and their means. A mean is None if it was not measured."""

    first: int  # the number of its first row, from 0
    rows: int
    unreadable: int
    began: float | None  # seconds since 1970
    ended: float | None
    typicality: float | None
    credibility: float | None
    evidence: float  # log10, at its end

    def join(self, other: StreamBlock) -> StreamBlock:
        """This block and the next as one."""
        means = {name: _mean((self, other), name) for name in ("typicality", "credibility")}
        rows, bad = self.rows + other.rows, self.unreadable + other.unreadable
        return StreamBlock(self.first, rows, bad, self.began, other.ended, **means, evidence=other.evidence)


@dataclass
class StreamHistory:
    """The stream as at most 200 blocks, oldest first, of at least `size` rows, except the last, still filling."""

    size: int = _BLOCK
    blocks: list[StreamBlock] = field(default_factory=list)

    def add(self, block: StreamBlock) -> None:
        """Add rows that came together; they may complete the last block or begin a new one."""
        if self.blocks and self.blocks[-1].rows < self.size:
            self.blocks[-1] = self.blocks[-1].join(block)
        else:
            self.blocks.append(block)
        if len(self.blocks) > _BLOCKS:
            pairs = zip(self.blocks[0::2], self.blocks[1::2], strict=False)
            left = self.blocks[-1:] if len(self.blocks) % 2 else []
            self.blocks, self.size = [*(a.join(b) for a, b in pairs), *left], 2 * self.size

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"size": self.size, "blocks": [asdict(block) for block in self.blocks]}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> StreamHistory:
        """From `to_dict`."""
        return cls(int(state["size"]), [StreamBlock(**block) for block in state["blocks"]])


class Latest:
    """Counts of up to the last 1,000 rows by every gauge, in parts of 50 rows or more, oldest first."""

    def __init__(self, gauges: Sequence[Gauge]) -> None:
        self._gauges = list(gauges)
        self._parts: list[tuple[int, int, list[CellCounts]]] = []  # (first row, rows, tallies)

    def add(self, tallies: Sequence[CellCounts], first: int, rows: int) -> None:
        """Count more rows, of which the first has this number."""
        if self._parts and self._parts[-1][1] < _PART:
            first, n, earlier = self._parts.pop()
            rows, tallies = n + rows, [a + b for a, b in zip(earlier, tallies, strict=True)]
        self._parts.append((first, rows, list(tallies)))
        while sum(n for _, n, _ in self._parts[1:]) >= LATEST:
            del self._parts[0]

    def since(self, row: int) -> list[CellCounts]:
        """The counts of the latest rows by gauge, from about this row on; at least those of the last part."""
        counts = [gauge.empty() for gauge in self._gauges]
        for place, (first, _, tallies) in enumerate(self._parts):
            if first >= row or place == len(self._parts) - 1:
                counts = [a + b for a, b in zip(counts, tallies, strict=True)]
        return counts

    def to_dict(self) -> list[Any]:
        """For JSON."""
        return [[first, n, [[t.counts.tolist(), t.sum] for t in tallies]] for first, n, tallies in self._parts]

    def restore(self, parts: list[Any]) -> None:
        """Continue from the result of `to_dict`."""
        shapes, restored = [gauge.empty().counts.shape for gauge in self._gauges], []
        for first, n, tallies in parts:
            counts = [CellCounts(np.asarray(cells, dtype=np.int64), float(total)) for cells, total in tallies]
            if [tally.counts.shape for tally in counts] != shapes:
                raise ValueError("other columns or groups were counted")
            restored.append((int(first), int(n), counts))
        self._parts = restored


@dataclass(frozen=True)
class Alarm:
    """The first row at which the evidence was sufficient.

    >>> from dwac import DWACClassifier
    >>> from dwac.monitoring import Monitor
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> monitor = Monitor(DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X[:, 0] > 0))
    >>> alarm = monitor.update(np.random.default_rng(1).normal(loc=8.0, size=(200, 2))).alarm
    >>> alarm.row < 200, len(alarm.moved) > 0
    (True, True)
    """

    row: int  # its number in the stream, from 0
    id: Hashable | None
    time: float  # seconds since 1970
    by: str  # what raised it: "typicality", "certainty", "prediction", "readability" or the name of a column
    since: int | None  # the likeliest row for the beginning of the change, by the score that raised it; None: unknown
    moved: tuple[Change, ...] | None = None  # what had moved by then, largest change first
    between: tuple[int, int] | None = None  # the rows between which the change began; None: unknown

    def with_changes(self, moved: Sequence[Change]) -> Alarm:
        """The same alarm, with what moved."""
        return replace(self, moved=tuple(moved))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        moved = [change.to_dict() for change in self.moved or ()]
        known = {"row": self.row, "id": plain(self.id), "time": self.time, "by": self.by, "since": self.since}
        return {**known, "between": None if self.between is None else list(self.between), "moved": moved}

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Alarm:
        """From `to_dict`."""
        moved = tuple(Change(**change) for change in facts["moved"])
        between = facts.get("between")  # older files have a single row, which was often wrong
        since = None if between is None else int(facts["since"])
        between = None if between is None else (int(between[0]), int(between[1]))
        return cls(int(facts["row"]), facts["id"], float(facts["time"]), str(facts["by"]), since, moved, between)


@dataclass(frozen=True)
class Detector:
    """The evidence of one score: logs of wealth times its share of the error rate.

    >>> detector = Detector("typicality", "model", log_evidence=math.log(3), log_peak=math.log(120))
    >>> round(math.exp(detector.log_peak))  # it was once 120 to 1 against "nothing changed"
    120
    """

    name: str
    kind: str  # "model" or "column"
    log_evidence: float
    log_peak: float


@dataclass(frozen=True)
class State:
    """The state of a monitor. `str` puts it in words; `to_dict` is the answer to GET /v1/monitor.

    The evidence is against "the rows are like the calibration rows": if they are, it stays below 1 / `false_alarms` for
    ever with probability 1 - `false_alarms`.

    >>> from dwac import DWACClassifier
    >>> from dwac.monitoring import Monitor
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> monitor = Monitor(DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X[:, 0] > 0))
    >>> state = monitor.update(np.random.default_rng(1).normal(size=(50, 2)))
    >>> state.rows, state.alarm, [detector.name for detector in state.detectors]
    (50, None, ['typicality', 'certainty', 'prediction', '0', '1'])
    """

    rows: int
    unreadable: int
    false_alarms: float
    alarm: Alarm | None
    log_evidence: float
    log_peak: float  # the highest so far
    detectors: tuple[Detector, ...]
    history: tuple[StreamBlock, ...]
    notes: tuple[str, ...] = ()
    private: bool = False
    outcomes: OutcomeState | None = None  # None before the first one

    @property
    def evidence(self) -> float:
        """The current evidence; at most 1e300."""
        return _bounded(self.log_evidence)

    @property
    def p_value(self) -> float:
        """1 / the highest evidence so far: valid at any time."""
        return min(1.0, math.exp(-max(self.log_peak, 0.0)))

    @property
    def typicality(self) -> float | None:
        """The mean over all rows."""
        return _mean(self.history, "typicality")

    @property
    def credibility(self) -> float | None:
        """The mean over all rows."""
        return _mean(self.history, "credibility")

    def __str__(self) -> str:
        limit = f"{1 / self.false_alarms:,.0f}"
        text = f"{self.rows:,} row{'s' * (self.rows != 1)}"
        text += f", {self.unreadable:,} of them unreadable" if self.unreadable else ""
        known = [] if self.outcomes is None else [str(self.outcomes)]
        if self.alarm is None:
            text += f"; no alarm: evidence of a change {_short(self.log_peak)} at most, {limit} is enough"
            return "\n".join([text, *known])
        where = f"row {self.alarm.row:,}" + ("" if self.alarm.id is None else f" (id {self.alarm.id})")
        since = "from an unknown row on"
        if self.alarm.between is not None:
            since = "probably between rows {:,} and {:,}".format(*self.alarm.between)
        lines = [
            f"{text}; ALARM at {where}: {self.alarm.by} changed, {since} (evidence of a change "
            f"{_short(self.log_peak)}, {limit} is enough)"
        ]
        lines += [f"  {change}" for change in (self.alarm.moved or ())[:_NAMED]]
        return "\n".join([*lines, *known])

    def to_dict(self) -> dict[str, Any]:
        """For JSON; in whole per cent if private."""
        blocks = [asdict(block) for block in self.history]
        state = {
            "rows": self.rows,
            "unreadable": self.unreadable,
            "alarm": None if self.alarm is None else self.alarm.to_dict(),
            "evidence": self.evidence,
            "peak": _bounded(self.log_peak),
            "limit": 1 / self.false_alarms,
            "p_value": self.p_value,
            "false_alarms": self.false_alarms,
            "typicality": self.typicality,
            "credibility": self.credibility,
            "detectors": [
                {
                    "name": each.name,
                    "kind": each.kind,
                    "evidence": _bounded(each.log_evidence),
                    "peak": _bounded(each.log_peak),
                }
                for each in self.detectors
            ],
            "history": blocks,
            "notes": list(self.notes),
            "outcomes": None if self.outcomes is None else self.outcomes.to_dict(),
        }
        if self.private:
            for each in (state, *blocks):
                each |= {name: _share(each[name]) for name in ("typicality", "credibility")}
        return state


def merge_states(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge several monitors, each of a part of the rows of one stream; takes and returns the form of `State.to_dict`.

    Each has its own share of the error rate: the alarm of one is the alarm of all. Their evidence is not averaged: they
    share their calibration rows, and then an average is no longer valid at any time.
    """
    rows = sum(state["rows"] for state in states)
    alarms = [state["alarm"] for state in states if state["alarm"] is not None]
    merged = {**states[0], "rows": rows, "unreadable": sum(state["unreadable"] for state in states)}
    merged["alarm"] = min(alarms, key=lambda alarm: float(alarm["time"])) if alarms else None
    merged |= {name: max(state[name] for state in states) for name in ("evidence", "peak")}
    merged["p_value"] = min(state["p_value"] for state in states)
    for name in ("typicality", "credibility"):
        merged[name] = _weighted_mean((state["rows"], state[name]) for state in states)
    merged["detectors"] = [
        {**same[0], **{name: max(each[name] for each in same) for name in ("evidence", "peak")}}
        for same in zip(*(state["detectors"] for state in states), strict=True)
    ]
    blocks = [block for state in states for block in state["history"]]
    merged["history"] = sorted(blocks, key=lambda block: block["began"] or 0.0)
    return merged


def _mean(blocks: Sequence[StreamBlock], name: str) -> float | None:
    return _weighted_mean((block.rows, getattr(block, name)) for block in blocks)


def _weighted_mean(pairs: Iterable[tuple[int, float | None]]) -> float | None:
    """The mean of (rows, value), None for values that were not measured."""
    known = [(n, value) for n, value in pairs if value is not None]
    rows = sum(n for n, _ in known)
    return sum(n * value for n, value in known) / rows if rows else None


def _bounded(log: float) -> float:
    return math.exp(min(log, 690.0))


def _share(value: float | None) -> float | None:
    return None if value is None else privacy.share(value)


def _short(log: float) -> str:
    """Evidence as short text."""
    if log > math.log(1e6):
        return f"10^{log / math.log(10):.0f}"
    return f"{math.exp(log):,.3g}" if log < math.log(1000) else f"{math.exp(log):,.0f}"
