"""Claim: two processes train at least 1.6 times as fast as one where the network takes the time (CPU, a thread each).

One and two processes train the same networks on the same rows in turn; the fastest epoch of each counts, and their
last losses are compared.

    python -m benchmarks.processes          # about 3 minutes on 2 free cores
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from benchmarks import record
from dwac.nn import WeightedAverage
from dwac.training import processes, train

AT_LEAST, EPOCHS, TURNS = 1.6, 3, 3


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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes")
    parser.add_argument("--work", choices=list(NETWORKS), help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    work(chosen.work, chosen.output) if chosen.work else compare()


if __name__ == "__main__":
    main()
