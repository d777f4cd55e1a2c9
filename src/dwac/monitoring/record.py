"""A monitor's memory besides its bets: the stream in blocks of time, and counts of the latest rows.

Both are bounded, however long the stream: blocks are merged in pairs when there are many, and only the latest rows are
counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dwac.monitoring.gauges import CellCounts, Gauge

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

    def joined(self, other: StreamBlock) -> StreamBlock:
        """This block and the next as one."""
        means = {name: _mean(self, other, name) for name in ("typicality", "credibility")}
        rows, bad = self.rows + other.rows, self.unreadable + other.unreadable
        return StreamBlock(self.first, rows, bad, self.began, other.ended, **means, evidence=other.evidence)


def _mean(one: StreamBlock, other: StreamBlock, name: str) -> float | None:
    known = [(b.rows, getattr(b, name)) for b in (one, other) if getattr(b, name) is not None]
    rows = sum(n for n, _ in known)
    return sum(n * value for n, value in known) / rows if rows else None


@dataclass
class StreamHistory:
    """The stream as at most 200 blocks, oldest first, of at least `size` rows, except the last, still filling."""

    size: int = _BLOCK
    blocks: list[StreamBlock] = field(default_factory=list)

    def add(self, block: StreamBlock) -> None:
        """Add rows that came together; they may complete the last block or begin a new one."""
        if self.blocks and self.blocks[-1].rows < self.size:
            self.blocks[-1] = self.blocks[-1].joined(block)
        else:
            self.blocks.append(block)
        if len(self.blocks) > _BLOCKS:
            pairs = zip(self.blocks[0::2], self.blocks[1::2], strict=False)
            left = self.blocks[-1:] if len(self.blocks) % 2 else []
            self.blocks, self.size = [*(a.joined(b) for a, b in pairs), *left], 2 * self.size

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"size": self.size, "blocks": [asdict(block) for block in self.blocks]}

    @classmethod
    def of(cls, state: dict[str, Any]) -> StreamHistory:
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
            start, n, there = self._parts.pop()
            first, rows, tallies = start, n + rows, [a + b for a, b in zip(there, tallies, strict=True)]
        self._parts.append((first, rows, list(tallies)))
        while sum(n for _, n, _ in self._parts[1:]) >= LATEST:
            del self._parts[0]

    def since(self, row: int) -> list[CellCounts]:
        """The counts of the latest rows by gauge, from about this row on; at least those of the last part."""
        found = [gauge.empty() for gauge in self._gauges]
        for place, (first, _, tallies) in enumerate(self._parts):
            if first >= row or place == len(self._parts) - 1:
                found = [a + b for a, b in zip(found, tallies, strict=True)]
        return found

    def to_dict(self) -> list[Any]:
        """For JSON."""
        return [[first, n, [[t.counts.tolist(), t.sum] for t in tallies]] for first, n, tallies in self._parts]

    def restore(self, parts: list[Any]) -> None:
        """Continue from the result of `to_dict`."""
        shapes, found = [gauge.empty().counts.shape for gauge in self._gauges], []
        for first, n, tallies in parts:
            read = [CellCounts(np.asarray(counts, dtype=np.int64), float(total)) for counts, total in tallies]
            if [tally.counts.shape for tally in read] != shapes:
                raise ValueError("other columns or groups were counted")
            found.append((int(first), int(n), read))
        self._parts = found
