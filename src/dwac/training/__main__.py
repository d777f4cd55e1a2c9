"""`torchrun --nproc-per-node 2 -m dwac.training people.csv --target income -o model/`: `dwac train` over processes."""

from __future__ import annotations

import sys

from dwac.cli import main
from dwac.training.shared_run import processes

if __name__ == "__main__":
    with processes():
        main(["train", *sys.argv[1:]])
