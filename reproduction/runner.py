"""Run experiments: fit each case without a record, measure all that the experiments need, and store the record.

outcome = run(["accuracy"], datasets=["adult"], settings=["paper"], trials=1)
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from os import PathLike
from typing import Any

import torch

from dwac.metrics import accuracy
from reproduction import datasets as sources
from reproduction import peers
from reproduction import settings as frozen
from reproduction.cases import ALL_HEADS, Case, chosen
from reproduction.catalogue import EXPERIMENTS, wanted_by
from reproduction.fit import current, fit
from reproduction.fit import stale as is_stale
from reproduction.records import Record, Records, code, commit, default_folder, device_name, rounded, versions
from reproduction.rows import Library
from reproduction.tuning import Journal

logger = logging.getLogger(__name__)
OnDone = Callable[[Case, Record, int, int], None]
OnTried = Callable[[Case, dict[str, Any], dict[str, Any]], None]


@dataclass
class Outcome:
    """What a run did.

    `fitted`: the keys of new records. `kept`: how many records existed already. `missing`: what could not run, why, and
    the command that helps. `failed`: whether something requested by name is missing.
    """

    folder: Any
    fitted: list[str] = field(default_factory=list)
    kept: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    failed: bool = False


def run(
    experiments: Iterable[str] | None = None,
    *,
    datasets: Iterable[str] | None = None,
    settings: Iterable[str] | None = None,
    heads: Iterable[str] | None = None,
    trials: int | Iterable[int] | None = None,
    quick: bool = False,
    stale: bool = False,
    device: str = "auto",
    records: str | PathLike[str] | None = None,
    on_done: OnDone | None = None,
    on_tried: OnTried | None = None,
) -> Outcome:
    """Fit and measure every case of the experiments that has no record yet. None means all.

    An interrupted run resumes where it stopped: each record, and each score of a peer's tuning, is stored at once.

    Args:
        experiments: names of `EXPERIMENTS`.
        datasets: names of the paper's datasets, or "adult_all"; those whose files are missing are skipped and listed
            in the outcome.
        settings: "paper", "best".
        heads: "dwac", "softmax", "xgboost", "lightgbm", "catboost", "svm".
        trials: a number means the first so many; a list means those.
        quick: a few rows, one epoch: tests that everything runs. Its records have their own folder.
        device: where the networks run.
        records: the folder; by default docs/results/paper in a checkout, else dwac-paper.
        stale: only repeat stale records: those made by another version of the code or with other settings.
        on_done: called after each case with the case, its record, how many cases are done and how many there are.
        on_tried: called after each point of a peer's tuning, with the case, the point and its score.
    """
    kept = Records(default_folder(quick=quick) if records is None else records)
    asked = chosen(experiments, EXPERIMENTS, "experiment")
    todo = select(asked, datasets=datasets, settings=settings, heads=heads, trials=trials, quick=quick)
    kept.require(quick=quick)
    commit()  # of the code that is running, not of what the checkout holds hours later
    if stale:
        todo = [case for case in todo if (old := kept.read(case)) is not None and is_stale(old)]
    library, outcome = Library(quick=quick), Outcome(kept.folder)
    with _one_thread() if quick else nullcontext():
        for done, case in enumerate(todo, start=1):
            old = kept.read(case)
            have = set(old["metrics"]) if old is not None and current(old) and not stale else set()
            can: set[str] = set()
            if lacking := set(asked) & set(wanted_by(case)) - have:
                can = _possible(case, library, outcome)
            if not lacking & can:
                outcome.kept += bool(have)
                continue
            told = partial(on_tried, case) if on_tried else None
            journal = Journal(kept.journal(case), code(peer=case.is_peer), told)
            record = _measured(case, library, can, device, journal)
            if torch.cuda.is_available():
                gc.collect()  # reference cycles in networks would hold GPU memory
            kept.write(case, record)
            journal.done()
            outcome.fitted.append(case.key)
            logger.info("%s done: %s of %s", case.key, done, len(todo))
            if on_done is not None:
                on_done(case, record, done, len(todo))
    nothing = experiments is not None and not (outcome.fitted or outcome.kept)
    outcome.failed = bool(outcome.missing) and (datasets is not None or heads is not None or nothing)
    return outcome


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread: with few rows, more threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def select(
    experiments: Iterable[str] | None = None,
    *,
    datasets: Iterable[str] | None = None,
    settings: Iterable[str] | None = None,
    heads: Iterable[str] | None = None,
    trials: int | Iterable[int] | None = None,
    quick: bool = False,
) -> list[Case]:
    """The cases of experiments, without repetition, sorted by dataset and trial."""
    wanted = None if trials is None else set(range(trials) if isinstance(trials, int) else trials)
    names = chosen(datasets, frozen.SOURCES, "dataset")
    which = chosen(settings, frozen.SETTINGS, "setting")
    who = chosen(heads, ALL_HEADS, "head")
    found = dict.fromkeys(
        case
        for name in chosen(experiments, EXPERIMENTS, "experiment")
        for case in EXPERIMENTS[name].cases()
        if case.dataset in names and case.setting in which and case.head in who
        if (wanted is None or case.trial in wanted) and (case.quick or not quick)
    )
    return sorted(found, key=lambda case: (names.index(case.dataset), case.trial))


def _possible(case: Case, library: Library, outcome: Outcome) -> set[str]:
    """The experiments that need the case and whose files are present."""
    vectors = case.settings().get("encoder", {}).get("vectors")
    if case.is_peer and (reason := peers.why_missing(case.head)) is not None:
        outcome.missing[case.head] = reason
    elif _available(case.dataset, outcome, lambda: library.load(case.dataset)) and (
        vectors is None or _available(f"models with {vectors}", outcome, lambda: library.vectors(vectors))
    ):
        return {name for name in wanted_by(case) if _has_companions(name, case, library, outcome)}
    return set()


def _has_companions(name: str, case: Case, library: Library, outcome: Outcome) -> bool:
    """Whether the other datasets that an experiment needs for a case are present."""
    needs = getattr(EXPERIMENTS[name], "needs", None)
    needed = () if needs is None else needs(case)
    return all(_available(f"{name} of {case.dataset}", outcome, partial(library.load, other)) for other in needed)


def _available(what: str, outcome: Outcome, load: Callable[[], object]) -> bool:
    """Whether something can be loaded; if not, the outcome says why."""
    if what not in outcome.missing:
        try:
            load()
        except sources.DatasetError as error:
            outcome.missing[what] = str(error)
    return what not in outcome.missing


def _measured(case: Case, library: Library, experiments: set[str], device: str, journal: Journal) -> Record:
    """Fit a case and run the measurements of the experiments; returns the record."""
    fitted, facts = fit(case, library, device=device, journal=journal)
    start = time.perf_counter()
    metrics = {name: EXPERIMENTS[name].measure(fitted) for name in EXPERIMENTS if name in experiments}
    facts["seconds"]["measure"] = time.perf_counter() - start
    return {
        "case": case.to_dict(),
        "quick": library.quick,
        "settings": rounded(case.settings(quick=library.quick)),
        "seed": case.trial,
        "versions": versions(*getattr(fitted.model, "packages", ())),
        "code": code(peer=case.is_peer),
        "commit": commit(),
        "device": device_name(None if case.is_peer else fitted.network.model_.device),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
        "accuracy": accuracy(fitted.trial.y_test, fitted.labels),
        "classes": fitted.trial.classes,
        "metrics": metrics,
    }
