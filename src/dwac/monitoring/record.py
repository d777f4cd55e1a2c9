"""What a monitor remembers besides its bets: the stream in blocks of time, and counts of the latest rows.

Both are bounded, however long the stream: blocks are merged in pairs as they become many, and of the latest rows only
two tallies are kept, one that fills up and the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dwac.monitoring.gauges import Gauge, Tally

LATEST = 500  # rows of one tally: the latest rows are the last 500 to 1,000
_BLOCK, _BLOCKS = 50, 200  # rows of the first blocks; the most blocks


@dataclass
class Block:
    """Consecutive rows: how many, when, and their means. A mean is None if it was not measured."""

    first: int  # the number of its first row, from 0
    rows: int
    unreadable: int
    began: float | None  # seconds since 1970
    ended: float | None
    typicality: float | None
    credibility: float | None
    evidence: float  # log10, at its end

    def joined(self, other: Block) -> Block:
        """This block and the next as one."""
        means = {name: _mean(self, other, name) for name in ("typicality", "credibility")}
        rows, bad = self.rows + other.rows, self.unreadable + other.unreadable
        return Block(self.first, rows, bad, self.began, other.ended, **means, evidence=other.evidence)


def _mean(one: Block, other: Block, name: str) -> float | None:
    known = [(b.rows, getattr(b, name)) for b in (one, other) if getattr(b, name) is not None]
    rows = sum(n for n, _ in known)
    return sum(n * value for n, value in known) / rows if rows else None


@dataclass
class History:
    """The stream as blocks, oldest first, at most 200 of them: all as long as possible, and the last still filling."""

    size: int = _BLOCK
    blocks: list[Block] = field(default_factory=list)

    def add(self, block: Block) -> None:
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
    def of(cls, state: dict[str, Any]) -> History:
        """From `to_dict`."""
        return cls(int(state["size"]), [Block(**block) for block in state["blocks"]])


class Latest:
    """Counts of the last 500 to 1,000 rows by every gauge."""

    def __init__(self, gauges: Sequence[Gauge]) -> None:
        self._gauges = list(gauges)
        self.older, self.newer = self._nothing(), self._nothing()
        self.rows = 0  # in the newer one

    def _nothing(self) -> list[Tally]:
        return [gauge.empty() for gauge in self._gauges]

    def add(self, tallies: Sequence[Tally], rows: int) -> None:
        """Count more rows."""
        if self.rows >= LATEST:
            self.older, self.newer, self.rows = self.newer, self._nothing(), 0
        self.newer = [there + more for there, more in zip(self.newer, tallies, strict=True)]
        self.rows += rows

    @property
    def tallies(self) -> list[Tally]:
        """Of all the latest rows, by gauge."""
        return [a + b for a, b in zip(self.older, self.newer, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        parts = {"older": self.older, "newer": self.newer}
        return {
            "rows": self.rows,
            **{name: [[t.counts.tolist(), t.sum] for t in tallies] for name, tallies in parts.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `to_dict` was called."""
        for name in ("older", "newer"):
            found = [Tally(np.asarray(counts, dtype=np.int64), float(total)) for counts, total in state[name]]
            shapes = [tally.counts.shape for tally in found]
            if shapes != [tally.counts.shape for tally in self._nothing()]:
                raise ValueError("other columns or groups were counted")
            setattr(self, name, found)
        self.rows = int(state["rows"])
