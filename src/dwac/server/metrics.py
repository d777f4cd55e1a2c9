"""Counters in the text format of Prometheus, without a further dependency."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Any

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Histogram:
    """How many values were at most each bound, and their sum."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str) -> list[str]:
        """In the format of Prometheus, with cumulative buckets."""
        lines, total = [], 0
        for bound, count in zip((*map("{:g}".format, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*lines, f"{name}_sum {self.sum:.9g}", f"{name}_count {total}"]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"counts": self.counts, "sum": self.sum}

    def __add__(self, other: dict[str, Any]) -> Histogram:
        found = Histogram(self.bounds)
        found.counts = [a + int(b) for a, b in zip(self.counts, other["counts"], strict=True)]
        found.sum = self.sum + float(other["sum"])
        return found


class Metrics:
    """What the service counts; `text` is the answer to GET /v1/metrics."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._paths = set(paths)  # others share one label: a client must not be able to invent labels
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds, self.batch_rows = Histogram(_SECONDS), Histogram(_ROWS)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered or refused."""
        self.requests[path if path in self._paths else "other", status] += 1
        self.seconds.add(seconds)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, so that workers can add up what they have counted."""
        requests = [[path, status, count] for (path, status), count in list(self.requests.items())]
        return {"requests": requests, "seconds": self.seconds.to_dict(), "batch_rows": self.batch_rows.to_dict()}

    def plus(self, others: Iterable[dict[str, Any]]) -> Metrics:
        """All that these and others have counted, from their `to_dict`."""
        found = Metrics(self._paths)
        found.requests, found.seconds, found.batch_rows = Counter(self.requests), self.seconds, self.batch_rows
        for other in others:
            for path, status, count in other["requests"]:
                found.requests[path, status] += count
            found.seconds, found.batch_rows = found.seconds + other["seconds"], found.batch_rows + other["batch_rows"]
        return found

    def text(self, **gauges: float) -> str:
        """Everything counted so far, and gauges as they are now."""
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
