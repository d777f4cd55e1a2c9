"""Claim: two processes train at least 1.6 times as fast as one where the network takes the time (CPU, a thread each).

One and two processes train the same networks on the same rows in turn; the fastest epoch of each counts, and their
last losses are compared. On a GPU, one process computes what one of 8 ranks would: a step of the network on B/8 rows
that all B rows vote on, against the same step on B/8 rows alone. Nothing is sent: the bytes that would be are counted,
and reckoned at 50 GB/s (a network card of 400 Gbit/s) and 400 GB/s (NVLink).

    python -m benchmarks.processes                     # CPU: about 3 minutes on 2 free cores
    python -m benchmarks.processes --device cuda       # GPU: less than 2 minutes
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from benchmarks import record
from dwac.nn import WeightedAverage
from dwac.nn.ranks import Ranks, SharedNorms
from dwac.training import processes, train

AT_LEAST, EPOCHS, TURNS = 1.6, 3, 3
SPEEDS = {"network card": 50e9, "NVLink": 400e9}  # bytes per second
RANKS = 8


def convolutions(width: int) -> nn.Module:
    """A small convolutional network for images (3, 32, 32)."""
    layers: list[nn.Module] = []
    for before, after in ((3, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def layers(width: int) -> nn.Module:
    """A wide network for tables of 64 columns."""
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 128))


# name: network, rows, shape of a row, batch size. In the first two the network takes the time of a step; in the others
# a step is so short that what the processes tell one another shows.
NETWORKS: dict[str, tuple[Any, int, tuple[int, ...], int]] = {
    "convolutions": (lambda: convolutions(64), 768, (3, 32, 32), 256),
    "layers": (lambda: layers(1024), 16_384, (64,), 2048),
    "few convolutions": (lambda: convolutions(32), 1024, (3, 32, 32), 128),
    "small batches": (lambda: layers(1024), 16_384, (64,), 512),
}
JUDGED = ("convolutions", "layers")


def rows_of(n: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 10
    x = torch.randn(n, *shape, generator=generator)
    return x + y.view(-1, *[1] * len(shape)) / 10, y


def work(name: str, output: Path) -> None:
    """Train in this process, or its part: write the seconds of each epoch, and the losses."""
    torch.set_num_threads(1)
    network, n, shape, size = NETWORKS[name]
    with processes() as place:
        torch.manual_seed(0)
        model = WeightedAverage(network(), 10)
        history = train(model, *rows_of(n, shape), epochs=EPOCHS, batch_size=size)
        if place.first:
            output.write_text(json.dumps({"seconds": history["seconds"].tolist(), "losses": history["loss"].tolist()}))


def measure(name: str, n: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.json"
        run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
        command = [*run, "-m", "benchmarks.processes", "--work", name, "--output", str(output)]
        subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
        found: dict[str, list[float]] = json.loads(output.read_text())
        return found


def compare() -> None:
    """One process and two, in turn."""
    table = []
    for name, (network, n, _, size) in NETWORKS.items():
        turns = [{processes: measure(name, processes) for processes in (1, 2)} for _ in range(TURNS)]
        # The fastest epoch: whatever else the machine does only slows it down.
        one, two = (min(min(turn[processes]["seconds"]) for turn in turns) for processes in (1, 2))
        losses = [turns[0][processes]["losses"][-1] for processes in (1, 2)]
        row = {
            "network": name,
            "parameters": sum(part.numel() for part in network().parameters()),
            "rows": n,
            "batch": size,
            "one process, s/epoch": one,
            "two processes, s/epoch": two,
            "ratio": one / two,
            "at least": AT_LEAST if name in JUDGED else None,
            "verdict": ("met" if one / two >= AT_LEAST else "missed") if name in JUDGED else None,
            "last losses differ by": abs(losses[0] - losses[1]) / losses[0],
        }
        print(row, flush=True)
        table.append(row)
    config = {"epochs": EPOCHS, "turns": TURNS, "threads per process": 1}
    record.write("processes_cpu", (__doc__ or "").split("\n")[0], config, pd.DataFrame(table))


class _Simulated(Ranks):
    """Rank 0 of several, of which the others are not there: what they would send is at hand, and is copied."""

    def __init__(self, size: int) -> None:
        self.group, self.rank, self.size = None, 0, size
        self.sent: dict[tuple[int, ...], Tensor] = {}
        self.gathered_bytes = self.added_bytes = 0

    def gathered(self, values: Tensor) -> Tensor:
        held = self.sent.setdefault(tuple(values.shape), torch.stack([values] * self.size))
        self.gathered_bytes += held.nbytes
        found = held.clone()
        found[0] = values
        return found

    def total(self, values: Tensor) -> Tensor:
        self.added_bytes += values.nbytes
        return values.clone()


def seconds_of(step: Any, device: str, times: int = 50) -> float:
    """The median of a step after a warm-up."""
    taken = []
    for turn in range(times + 10):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        if turn >= 10:
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def simulate(device: str, batches: list[int], width: int) -> None:
    """A step of one of 8 ranks, and the same without the others."""
    table = []
    for batch in batches:
        torch.manual_seed(0)
        model = WeightedAverage(convolutions(width), 10, 16).to(device)
        x, y = (part.to(device) for part in rows_of(batch // RANKS, (3, 32, 32)))
        model.embed(x)
        ranks = _Simulated(RANKS)
        share = ranks.share(batch)

        def alone(model: Any = model, x: Tensor = x, y: Tensor = y) -> None:
            model.zero_grad(set_to_none=True)
            model.loss(x, y).backward()

        def voted_on_by_all(model: Any = model, x: Tensor = x, y: Tensor = y, share: Any = share) -> None:
            model.zero_grad(set_to_none=True)
            model.loss(x, y, share=share).backward()

        norms = SharedNorms(model, ranks)
        norms.share = share

        def with_norms(step: Any = voted_on_by_all, norms: SharedNorms = norms) -> None:
            with norms:
                step()

        times = {"alone": seconds_of(alone, device), "all vote": seconds_of(voted_on_by_all, device)}
        ranks.gathered_bytes = ranks.added_bytes = 0
        voted_on_by_all()
        gathered, added = ranks.gathered_bytes, ranks.added_bytes
        times["shared norms too"] = seconds_of(with_norms, device)
        parameters = sum(part.nbytes for part in model.parameters())
        extra = times["all vote"] - times["alone"]
        row: dict[str, Any] = {
            "batch of 8 ranks": batch,
            "rows per rank": batch // RANKS,
            **{f"{name}, ms/step": 1e3 * value for name, value in times.items()},
            "votes of all cost, ms": 1e3 * extra,
            "share of the step": extra / times["alone"],
            "gathered, bytes": gathered,
            "gradient of it, bytes": added,
            "parameters, bytes": parameters,
        }
        for name, speed in SPEEDS.items():
            row[f"sending these, ms ({name}, reckoned)"] = 1e3 * (gathered + 2 * added + 2 * parameters) / speed
        print(row, flush=True)
        table.append(row)
    claim = f"What a rank of {RANKS} computes more because the rows of all vote on its own; sending is reckoned."
    config = {"device": device, "ranks": RANKS, "width": width}
    if device == "cuda":
        record.write("processes_gpu", claim, config, pd.DataFrame(table))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--simulate", action="store_true", help="on a CPU, try what a GPU is asked")
    parser.add_argument("--work", choices=list(NETWORKS), help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.work, chosen.output)
    elif chosen.device == "cuda":
        simulate("cuda", [1024, 4096, 16_384], width=64)
    elif chosen.simulate:
        simulate("cpu", [64], width=8)
    else:
        compare()


if __name__ == "__main__":
    main()
