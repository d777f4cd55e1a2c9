"""Records → paper.md and figures. Every number in the report comes from a record or from `published`."""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from os import PathLike
from pathlib import Path

from reproduction import figures, published
from reproduction.cases import ALL_HEADS, Case, PaperError, plain_cases
from reproduction.catalogue import EXPERIMENTS
from reproduction.fit import current, stale
from reproduction.records import Record, Records, write_text
from reproduction.runner import select
from reproduction.settings import DATASETS, SETTINGS, SOURCES
from reproduction.tables import FIGURES, NOT_RUN, STALE, Found, Section, Value, mark, paragraphs, table, verdict


def write_report(records: str | PathLike[str], output: str | PathLike[str]) -> Path:
    """Write the report on the records of a folder to `output`, and its figures to the subfolder `figures`."""
    folder, path = Path(records), Path(output)
    found = Found(Records(folder), stale)
    if len({record["quick"] for record in found.by_case.values()}) > 1:
        raise PaperError(
            f"records of quick and of full runs must not be mixed; {folder} has both; remove those of one kind"
        )
    sections = [*(experiment.report(found) for experiment in EXPERIMENTS.values()), times(found)]
    where = Path(os.path.relpath(folder / "figures", path.parent)).as_posix()
    body = paragraphs(header(found), *(f"## {section.title}\n\n{section.text}" for section in sections))
    write_text(path, body.replace(f"]({FIGURES}/", f"]({where}/") + "\n")
    for section in sections:
        for name, draw in section.figures.items():
            figures.save(draw(), folder / "figures" / f"{name}.png")
    return path


SUBSTITUTIONS = (  # the research code is github.com/dallascard/DWAC
    "Lending Club and Amazon Beauty are not run: their files were not available.",
    "Out-of-distribution examples for CIFAR-10 are the test images of CIFAR-100, instead of Tiny Images.",
    "Out-of-distribution examples for texts are random words, which the paper does not have. (The research code draws "
    "words by their frequency; here all words have the same probability.)",
    "Out-of-distribution images are standardised like the training images, by the mean and standard deviation of each "
    "channel. The research code uses those of MNIST for its digits, and none for Tiny Images.",
    "Texts are split into words by our own tokeniser and converted to lower case. The research code uses spaCy's, "
    "keeps upper case, removes tags, and gives every training word a vector of its own, however rare. Texts are read "
    "whole, but for the longest in 1,000 (our best models: 800 words of IMDB's).",
    "Word vectors are GloVe's with 100 dimensions and about 79,000 words, instead of 300 dimensions and 400,000 words: "
    "a, i, n't, 's and all numbers are among those that start at random.",
    "Without an official test set, each trial draws a new tenth of the rows. The research code takes every tenth "
    "sentence of Subjectivity, in all trials: see *every tenth* below.",
    "AdamW without weight decay follows a one-cycle schedule up to the published learning rate, instead of Adam at "
    "that rate. Texts train to the end of the schedule (50 epochs, IMDB 12); CIFAR-10 has at most 30 epochs.",
    "The mean of ‖h‖² has a penalty of 0.001, and the scale of h (of the logits for a softmax) is fitted on validation "
    "rows.",
    "The loss has no ε inside its logarithm, and the kernel is exp(-‖h - h_i‖²) for all kinds of data.",
    "p-values are (#{cal ≥ η} + 1) / (n + 1), instead of # / n.",
    "Covertype, Fashion-MNIST, CIFAR-10, IMDB and embedding sizes have three trials, not five; maps and most variants "
    "have one.",
)


def header(found: Found) -> str:
    """The introduction: models, data, and how the results were measured."""
    records = found.by_case.values()
    quick = any(record["quick"] for record in records)
    other = sorted(case.key for case, record in found.by_case.items() if not current(record))
    return paragraphs(
        "<!-- written by `python -m reproduction report` from records, never by hand -->\n# Results",
        "**From a quick run on little data: these numbers show only that everything runs.**" if quick else "",
        "The experiments of *Deep Weighted Averaging Classifiers* (Card, Zhang and Smith, 2019) on the official "
        "files. *The paper's models* are the published networks and sizes, with the differences listed below. *Our "
        "best* are settings chosen on validation rows; exceptions are marked *not blind* next to the verdicts. With an "
        "official test set, trials differ only by seed; otherwise each trial draws a new tenth of the rows as its test "
        "set. All models of a trial use the same rows.",
        _circumstances(found, select(quick=quick)),
        f"{len(other)} records were made with settings other than the current ones; run again: {', '.join(other)}."
        if other
        else "",
        "**Differences from the paper**, in the paper's models unless stated otherwise:",
        "\n".join(f"- {line}" for line in SUBSTITUTIONS),
    )


def _circumstances(found: Found, planned: list[Case]) -> str:
    if not found.by_case:
        return f"No records: everything is {NOT_RUN}."
    records = list(found.by_case.values())
    dates = sorted(record["date"][:10] for record in records)
    gone = {case.dataset for case in planned} - {record["case"]["dataset"] for record in records}
    absent = [source.title for name, source in SOURCES.items() if name in gone]
    versions: dict[str, set[str]] = defaultdict(set)
    for record in records:
        for name, version in record["versions"].items():
            versions[name].add(version)
    old = len(found.stale)
    lines = [
        f"{len(records)} records of {len(planned)} planned fits, {' to '.join(sorted({dates[0], dates[-1]}))}.",
        f"Measured on {'; '.join(sorted({_device(record) for record in records}))}.",
        f"{commits(records)}.",
        f"With {', '.join(' '.join([name, ' or '.join(sorted(of))]) for name, of in versions.items())}.",
        f"{old} of them are **stale**: made with another version of the code, or with other settings. {STALE} marks "
        f"every number that depends on one; figures in sections with {STALE} depend on them, too. "
        "`python -m reproduction run --stale` repeats only these."
        if old
        else "",
        f"Not run at all: {', '.join(absent)}." if absent else "",
    ]
    return "\n".join(f"- {line}" for line in lines if line)


def commits(records: Iterable[Record]) -> str:
    """The one commit that made all records, or how many each made."""
    counts = Counter(record.get("commit") or "" for record in records)
    if set(counts) == {""}:
        return "The records name no commit"
    if len(counts) == 1:
        return f"Made by the code of commit {next(iter(counts))}"
    named = (f"{commit or 'none named'} ({n})" for commit, n in counts.most_common())
    return f"Records by the commit of their code: {', '.join(named)}"


def _device(record: Record) -> str:
    """The device of a record: CPU or GPU, and its name."""
    name = str(record["device"])
    return name if name.startswith("CPU") else f"GPU ({name})"


def times(found: Found) -> Section:
    """Seconds to fit and predict, by model and device; and the total for the paper's models of Table 2."""
    sums: dict[tuple[str, str, str, str], list[Value]] = defaultdict(list)
    for case, record in found.by_case.items():
        if case.plain:
            seconds = Value.of(_seconds(record), case in found.stale)
            sums[case.dataset, case.setting, case.head, _device(record)].append(seconds)
    order = [*SOURCES, *SETTINGS, *ALL_HEADS]
    rows = [
        [
            SOURCES[name].title,
            setting,
            head,
            device,
            str(len(of)),
            f"{sum(of) / len(of):.1f}{mark(*of)}",
            f"{sum(of):.1f}{mark(*of)}",
        ]
        for (name, setting, head, device), of in sorted(
            sums.items(), key=lambda item: [*map(order.index, item[0][:3]), item[0][3]]
        )
    ]
    head = ["dataset", "setting", "head", "device", "trials", "mean", "sum"]
    how = "Seconds to fit the models of Table 2 and to predict the test rows."
    return Section("Times", paragraphs(how, table(head, rows), *_totals(found)))


def _totals(found: Found) -> Iterable[str]:
    """The total for the paper's models, by device, compared with our claim."""
    available = [name for name in published.ACCURACY_TARGETS if name in DATASETS]
    wanted = [case for case in plain_cases(available) if case.setting == "paper"]
    by_device: dict[str, list[Record]] = defaultdict(list)
    for case in wanted:
        if (record := found.by_case.get(case)) is not None:
            by_device[_device(record)].append(record)
    old = any(case in found.stale for case in wanted)
    for device, records in sorted(by_device.items()):
        seconds, claim = [_seconds(record) for record in records], ""
        if "H200" in device:
            under = sum(seconds) / 60 < published.MINUTES
            # The remaining fits would take time, too.
            judged = verdict(None if under and len(seconds) < len(wanted) else under, stale=old)
            claim = f"; under {published.MINUTES:.0f} minutes claimed: {judged}"
        yield (
            f"The paper's models on the {len(available)} available datasets, both heads, on {device}: "
            f"{sum(seconds) / 60:.2f} minutes for {len(seconds)} of {len(wanted)} fits{claim}. "
            f"Parallel fits take longer: at least one was running during {busy(records) / 60:.2f} minutes."
        )


def busy(records: Iterable[Record]) -> float:
    """Seconds in which at least one of them was running, including its measurements."""
    both = [(datetime.fromisoformat(record["date"]).timestamp(), sum(record["seconds"].values())) for record in records]
    busy, until = 0.0, -math.inf
    for start, end in sorted((end - seconds, end) for end, seconds in both):
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return busy


def _seconds(record: Record) -> float:
    return float(record["seconds"]["fit"] + record["seconds"]["predict"])
