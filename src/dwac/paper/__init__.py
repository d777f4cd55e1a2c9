"""The paper's experiments on real data: frozen settings → records → a report. Internal, except for `dwac paper`.

import dwac.paper

dwac.paper.run(["accuracy"], datasets=["adult"])          # fits every case without a record
dwac.paper.write_report(dwac.paper.default_folder(), "docs/RESULTS.md")

`dwac paper run` and `dwac paper report` do the same from a shell.
"""

from __future__ import annotations

from dwac.paper.cases import Case, PaperError
from dwac.paper.catalogue import EXPERIMENTS
from dwac.paper.fit import current, stale
from dwac.paper.records import Records, default_folder
from dwac.paper.report import write_report
from dwac.paper.runner import Outcome, run, select
from dwac.paper.settings import DATASETS, SOURCES

__all__ = [
    "DATASETS",
    "EXPERIMENTS",
    "SOURCES",
    "Case",
    "Outcome",
    "PaperError",
    "Records",
    "current",
    "default_folder",
    "run",
    "select",
    "stale",
    "write_report",
]
