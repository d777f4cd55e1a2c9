"""`python -m reproduction list`: the experiments, and how many of their fits are recorded."""

from __future__ import annotations

from reproduction.commands import QuickOption, RecordsOption, open_records


def list_experiments(records: RecordsOption = None, quick: QuickOption = False) -> None:
    """List the experiments, how many of their fits are recorded, and how many of these records are stale.

    Example: python -m reproduction list
    """
    from rich.console import Console
    from rich.table import Table

    from reproduction.cases import Case
    from reproduction.catalogue import EXPERIMENTS
    from reproduction.fit import current
    from reproduction.fit import stale as is_stale
    from reproduction.runner import select
    from reproduction.settings import SOURCES

    kept = open_records(records, quick)
    done = {Case(**record["case"]): record["metrics"] for record in kept if current(record)}
    stale = {Case(**record["case"]) for record in kept if is_stale(record)}
    by_name = Table("experiment", "measures", "fits recorded")
    for name, experiment in EXPERIMENTS.items():
        cases = select([name], quick=quick)
        by_name.add_row(name, experiment.TITLE, f"{sum(name in done.get(case, {}) for case in cases)} of {len(cases)}")
    by_dataset = Table("dataset", "fits recorded", "stale")
    for name in SOURCES:
        cases = select(datasets=[name], quick=quick)
        old = sum(case in stale for case in cases)
        by_dataset.add_row(name, f"{sum(case in done for case in cases)} of {len(cases)}", str(old))
    Console().print(by_name, by_dataset, f"records: {kept.folder}", soft_wrap=True)
