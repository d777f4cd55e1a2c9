"""How 10, 100 and 1,000 workers would share a large run: a simulation from piece times that are measured here.

python -m benchmarks.stragglers --rows 200000000

Measured in this run on an engine: how long pieces take and how they spread, how long a worker takes until it begins
its first piece (which includes loading the model), and how long the driver takes to hand out a piece, one after
another. Assumed, and said in the record: machines differ in speed (log-normal), and now and then a piece meets a
stalled disk or a busy neighbour and takes many times as long. Every free worker takes the next piece. With copies, a
worker that would be idle starts a second copy of the piece that has run longest, if that is more than three times the
median, as Spark does with spark.speculation: shards are written whole, so that whichever ends first counts.
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import record
from benchmarks.engines import engine_costs, fitted, scored, written
from dwac.scoring.pieces import Piece

WORKERS = (10, 100, 1000)
EMPTY = 300  # pieces of a task that does nothing, by which the driver is measured
LATE = 3.0  # times the median after which a copy is started


def simulated(
    times: np.ndarray, speeds: np.ndarray, start: float, dispatch: float, *, copies: bool
) -> tuple[float, float]:
    """(seconds until all pieces are done, seconds that workers computed) for pieces that would take `times` each.

    speeds: of each worker, 1 on average. start: seconds before a worker's first piece. dispatch: seconds that the
    driver spends on each piece, one after another.
    """
    typical = float(np.median(times))
    free = [(start, worker) for worker in range(len(speeds))]  # when each worker is free
    heapq.heapify(free)
    ends = np.full(len(times), np.inf)  # when each piece is done
    begins: dict[int, float] = {}  # of pieces that may still run
    driver, busy, waiting = 0.0, 0.0, list(range(len(times)))[::-1]
    while free:
        now, worker = heapq.heappop(free)
        if waiting:
            piece = waiting.pop()
            driver = max(driver, now) + dispatch
            took = times[piece] / speeds[worker]
            begins[piece], ends[piece] = driver, driver + took
        else:
            late = _latest(begins, ends, now, LATE * typical) if copies else None
            if late is None:
                continue
            piece, at = late
            if at > now:  # not late yet: this worker looks again when it is
                heapq.heappush(free, (at, worker))
                continue
            del begins[piece]  # one copy each
            driver = max(driver, now) + dispatch
            took = typical / speeds[worker]  # what stalled the first does not stall the second
            ends[piece] = min(ends[piece], driver + took)
        busy += took
        heapq.heappush(free, (driver + took, worker))
    return float(ends.max()), busy


def _latest(begins: dict[int, float], ends: np.ndarray, now: float, late: float) -> tuple[int, float] | None:
    """The running piece that is late first, and when it is; None if none will be."""
    for piece in [piece for piece in begins if ends[piece] <= max(now, begins[piece] + late)]:
        del begins[piece]  # done by then
    if not begins:
        return None
    piece = min(begins, key=lambda each: begins[each])
    return piece, begins[piece] + late


def outcomes(
    relative: np.ndarray, seconds_per_row: float, workers: int, per_piece: int, copies: bool, config: Any
) -> dict[str, Any]:
    """One row of the table: medians over the repeats."""
    rng = np.random.default_rng(config.seed)
    pieces = -(-config.rows // per_piece)
    walls = []
    for _ in range(config.repeats):
        times = rng.choice(relative, pieces) * seconds_per_row * per_piece
        times = np.where(rng.random(pieces) < config.stalled, times * config.stall, times)
        speeds = rng.lognormal(0, config.spread, workers)
        walls.append(simulated(times, speeds / speeds.mean(), config.start, config.dispatch, copies=copies)[0])
    ideal = config.rows * seconds_per_row / workers
    return {
        "workers": workers,
        "rows per piece": per_piece,
        "pieces per worker": pieces / workers,
        "copies": copies,
        "ideal s": ideal,
        "median s": float(np.median(walls)),
        "95 % s": float(np.quantile(walls, 0.95)),
        "s per million rows": float(np.median(walls)) / (config.rows / 1e6),
        "efficiency": ideal / float(np.median(walls)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000_000)
    parser.add_argument("--measured-rows", type=int, default=400_000)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--voters", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--spread", type=float, default=0.1, help="of the log-normal speeds of machines")
    parser.add_argument("--stalled", type=float, default=0.002, help="share of pieces that take --stall times as long")
    parser.add_argument("--stall", type=float, default=10.0)
    parser.add_argument("--engine", default="dask", help="that is measured")
    parser.add_argument("--seed", type=int, default=0)
    config = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = fitted(Path(folder, "model"), config.voters)
        data = written(Path(folder, "rows"), config.measured_rows, config.files)
        dones, at = scored(config.engine, model, data, Path(folder, "out"), 1)
        empty = [Piece(number, f"part-{number}", "a.csv", "a.csv", "csv") for number in range(EMPTY)]
        _, config.dispatch = engine_costs(config.engine, empty, 1)
    seconds = np.array([done.seconds for done in dones[1:]])  # the first loads the model
    relative, config.start = seconds / seconds.mean(), at[0] - float(np.median(seconds))
    per_row = float(seconds.sum() / sum(done.rows for done in dones[1:]))
    table = pd.DataFrame(
        [
            outcomes(relative, per_row, workers, per_piece, copies, config)
            for workers in WORKERS
            for per_piece in (100_000, 10_000)
            for copies in (False, True)
        ]
    )
    facts = {**vars(config), "seconds_per_million_rows_of_one_worker": 1e6 * per_row}
    facts |= {"longest_piece_over_mean": float(relative.max()), "spread_of_pieces": float(relative.std())}
    claim = f"Simulated: {config.rows:,} rows on 10, 100 and 1,000 workers, from piece times that are measured."
    record.write("stragglers", claim, facts, table)


if __name__ == "__main__":
    main()
