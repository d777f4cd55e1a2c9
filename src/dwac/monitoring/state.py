"""The state of a monitor at one time, for people and programs; and the joint state of several monitors of a stream."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dwac.drawing.records import plain
from dwac.explain import privacy
from dwac.monitoring.gauges import Change
from dwac.monitoring.record import StreamBlock

FORMAT = 1  # of saved states
_NAMED = 5  # changes that are named in a text


@dataclass(frozen=True)
class Alarm:
    """The first row at which the evidence was sufficient."""

    row: int  # its number in the stream, from 0
    id: Hashable | None
    time: float  # seconds since 1970
    by: str  # what raised it: "typicality", "certainty", "prediction", "readability" or the name of a column
    since: int | None  # where the change probably began, by the score that raised it; None: unknown
    moved: tuple[Change, ...] | None = None  # what had moved by then, largest change first

    def named(self, moved: Sequence[Change]) -> Alarm:
        """The same, with the changes found."""
        return replace(self, moved=tuple(moved))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        moved = [change.to_dict() for change in self.moved or ()]
        known = {"row": self.row, "id": plain(self.id), "time": self.time, "by": self.by, "since": self.since}
        return {**known, "moved": moved}

    @classmethod
    def of(cls, found: dict[str, Any]) -> Alarm:
        """From `to_dict`."""
        moved = tuple(Change(**change) for change in found["moved"])
        since = None if found["since"] is None else int(found["since"])
        return cls(int(found["row"]), found["id"], float(found["time"]), str(found["by"]), since, moved)


@dataclass(frozen=True)
class Detector:
    """The evidence of one score: logs of wealth times its share of the error rate."""

    name: str
    kind: str  # "model" or "column"
    log_evidence: float
    log_peak: float


@dataclass(frozen=True)
class State:
    """The state of a monitor. `str` puts it in words; `to_dict` is the answer to GET /v1/monitor.

    The evidence is against "the rows are like the calibration rows": if they are, it stays below 1 / `false_alarms` for
    ever with probability 1 - `false_alarms`.
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
        if self.alarm is None:
            return f"{text}; no alarm: evidence of a change {_short(self.log_peak)} at most, {limit} is enough"
        where = f"row {self.alarm.row:,}" + ("" if self.alarm.id is None else f" (id {self.alarm.id})")
        since = "since when is unknown" if self.alarm.since is None else f"probably since row {self.alarm.since:,}"
        lines = [
            f"{text}; ALARM at {where}: {self.alarm.by} is no longer as before, {since} (evidence of a change "
            f"{_short(self.log_peak)}, {limit} is enough)"
        ]
        lines += [f"  {change}" for change in (self.alarm.moved or ())[:_NAMED]]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; in whole per cent if private."""
        blocks = [asdict(block) for block in self.history]
        found = {
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
        }
        if self.private:
            for each in (found, *blocks):
                each |= {name: _share(each[name]) for name in ("typicality", "credibility")}
        return found


def merged(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge several monitors, each of a part of the rows of one stream; takes and returns the form of `State.to_dict`.

    Each has its own share of the error rate: the alarm of one is the alarm of all. Their evidence is not averaged: they
    share their calibration rows, and then an average is no longer valid at any time.
    """
    rows = sum(state["rows"] for state in states)
    alarms = [state["alarm"] for state in states if state["alarm"] is not None]
    found = {**states[0], "rows": rows, "unreadable": sum(state["unreadable"] for state in states)}
    found["alarm"] = min(alarms, key=lambda alarm: float(alarm["time"])) if alarms else None
    found |= {name: max(state[name] for state in states) for name in ("evidence", "peak")}
    found["p_value"] = min(state["p_value"] for state in states)
    for name in ("typicality", "credibility"):
        known = [(state["rows"], state[name]) for state in states if state[name] is not None]
        total = sum(n for n, _ in known)
        found[name] = sum(n * value for n, value in known) / total if total else None
    found["detectors"] = [
        {**same[0], **{name: max(each[name] for each in same) for name in ("evidence", "peak")}}
        for same in zip(*(state["detectors"] for state in states), strict=True)
    ]
    blocks = [block for state in states for block in state["history"]]
    found["history"] = sorted(blocks, key=lambda block: block["began"] or 0.0)
    return found


def _mean(blocks: Sequence[StreamBlock], name: str) -> float | None:
    known = [(block.rows, getattr(block, name)) for block in blocks if getattr(block, name) is not None]
    rows = sum(n for n, _ in known)
    return float(sum(n * value for n, value in known) / rows) if rows else None


def _bounded(log: float) -> float:
    return math.exp(min(log, 690.0))


def _share(value: float | None) -> float | None:
    return None if value is None else privacy.share(value)


def _short(log: float) -> str:
    """Evidence as short text."""
    if log > math.log(1e6):
        return f"10^{log / math.log(10):.0f}"
    return f"{math.exp(log):,.3g}" if log < math.log(1000) else f"{math.exp(log):,.0f}"
