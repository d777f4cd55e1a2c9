"""Records → RESULTS.md and figures. Every number in it comes from a record or from `published`."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from os import PathLike
from pathlib import Path

from dwac.paper import figures, published
from dwac.paper.cases import ALL_HEADS, Case, PaperError, plain_cases
from dwac.paper.catalogue import EXPERIMENTS
from dwac.paper.fit import current
from dwac.paper.records import Record, Records, code, write_text
from dwac.paper.runner import select
from dwac.paper.settings import DATASETS, SETTINGS
from dwac.paper.tables import FIGURES, NOT_RUN, Found, Section, paragraphs, table, verdict


def write_report(records: str | PathLike[str], output: str | PathLike[str]) -> Path:
    """Write the report on a folder's records to `output`, and its figures to the folder's `figures`."""
    folder, path = Path(records), Path(output)
    found = Found(Records(folder))
    if len({record["quick"] for record in found.by_case.values()}) > 1:
        raise PaperError(
            f"{folder} holds records of quick and of real runs, which must not mix; remove one or the other"
        )
    sections = [*(experiment.report(found) for experiment in EXPERIMENTS.values()), times(found)]
    where = Path(os.path.relpath(folder / "figures", path.parent)).as_posix()
    body = paragraphs(header(found), *(f"## {section.title}\n\n{section.text}" for section in sections))
    write_text(path, body.replace(f"]({FIGURES}/", f"]({where}/") + "\n")
    for section in sections:
        for name, draw in section.figures.items():
            figures.save(draw(), folder / "figures" / f"{name}.png")
    return path


def header(found: Found) -> str:
    """What this is, from what, and under which circumstances it was measured."""
    records = found.by_case.values()
    quick = any(record["quick"] for record in records)
    stale = sorted(case.key for case, record in found.by_case.items() if not current(record))
    return paragraphs(
        "<!-- written by `dwac paper report` from records, never by hand -->\n# Results",
        "**From a quick run on small slices: these numbers show that everything runs, and nothing else.**"
        if quick
        else "",
        "The experiments of *Deep Weighted Averaging Classifiers* (Card, Zhang and Smith, 2019) on the official "
        "files. *The paper's models* are the published networks and sizes, with these differences: word vectors are "
        "GloVe's of 100 numbers, not 300; the learning rate follows a one-cycle schedule up to the published one; "
        "mean ‖h‖² has a small penalty; and the scale of h, for a softmax of its logits, is fitted to the "
        "validation rows. *Our best* are settings chosen on validation rows. Where there is an official test part, "
        "trials differ by seed alone; elsewhere a tenth of the rows, drawn anew each trial, is the test part. All "
        "models of a trial have the same rows.",
        _circumstances(list(records), len(select(quick=quick))),
        f"{len(stale)} records were made with other settings than a run would have now; run again: {', '.join(stale)}."
        if stale
        else "",
    )


def _circumstances(records: list[Record], planned: int) -> str:
    if not records:
        return f"No records: everything is {NOT_RUN}."
    dates = sorted(record["date"][:10] for record in records)
    absent = [source.title for name, source in DATASETS.items() if all(r["case"]["dataset"] != name for r in records)]
    versions: dict[str, set[str]] = defaultdict(set)
    for record in records:
        for name, version in record["versions"].items():
            versions[name].add(version)
    # Peers do not run through it.
    earlier = sum(not Case(**r["case"]).is_peer and r.get("code") != code() for r in records)
    lines = [
        f"{len(records)} records of {planned} planned fits, {' to '.join(sorted({dates[0], dates[-1]}))}.",
        f"Measured on {'; '.join(sorted({record['device'] for record in records}))}.",
        f"With {', '.join(' '.join([name, ' or '.join(sorted(of))]) for name, of in versions.items())}.",
        f"{earlier} of them were made by an earlier state of the networks' code than this." if earlier else "",
        f"Not run at all: {', '.join(absent)}." if absent else "",
    ]
    return "\n".join(f"- {line}" for line in lines if line)


def times(found: Found) -> Section:
    """Seconds to fit and to predict, by model and device; and the sum for the paper's models of Table 2."""
    sums: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for case, record in found.by_case.items():
        if case.plain:
            sums[case.dataset, case.setting, case.head, record["device"]].append(_seconds(record))
    order = [*DATASETS, *SETTINGS, *ALL_HEADS]
    rows = [
        [DATASETS[name].title, setting, head, device, str(len(of)), f"{sum(of) / len(of):.1f}", f"{sum(of):.1f}"]
        for (name, setting, head, device), of in sorted(
            sums.items(), key=lambda item: [*map(order.index, item[0][:3]), item[0][3]]
        )
    ]
    head = ["dataset", "setting", "head", "device", "trials", "mean", "sum"]
    how = "Seconds to fit and to predict the test rows, of the models of Table 2."
    return Section("Times", paragraphs(how, table(head, rows), *_totals(found)))


def _totals(found: Found) -> Iterable[str]:
    """The sum over the paper's models, by device, against what we promised."""
    wanted = [case for case in plain_cases(published.ACCURACY_TARGETS) if case.setting == "paper"]
    by_device: dict[str, list[Record]] = defaultdict(list)
    for case in wanted:
        if (record := found.by_case.get(case)) is not None:
            by_device[record["device"]].append(record)
    for device, records in sorted(by_device.items()):
        seconds, claim = [_seconds(record) for record in records], ""
        if "H200" in device:
            under = sum(seconds) / 60 < published.MINUTES
            judged = verdict(
                None if under and len(seconds) < len(wanted) else under
            )  # the rest would take its time too
            claim = f"; under {published.MINUTES:.0f} minutes claimed: {judged}"
        yield (
            f"The paper's models of the {len(published.ACCURACY_TARGETS)} datasets at hand, both heads, on {device}: "
            f"{sum(seconds) / 60:.2f} minutes for {len(seconds)} of {len(wanted)} fits{claim}. "
            f"Fits side by side last longer: one or more of these ran during {_busy(records) / 60:.2f} minutes."
        )


def _busy(records: Iterable[Record]) -> float:
    """Seconds in which at least one of them was made, measures and all."""
    both = [(datetime.fromisoformat(record["date"]).timestamp(), sum(record["seconds"].values())) for record in records]
    busy, until = 0.0, -math.inf
    for start, end in sorted((end - seconds, end) for end, seconds in both):
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return busy


def _seconds(record: Record) -> float:
    return float(record["seconds"]["fit"] + record["seconds"]["predict"])
