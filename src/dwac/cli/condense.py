"""`dwac condense`: a new model folder in which a few real examples vote for all."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dwac.cli import options
from dwac.cli.output import (
    agreement_line,
    at_work,
    model_facts,
    number,
    print_json,
    print_lines,
    print_notes,
    written_line,
)
from dwac.cli.rows import in_training, rows_located
from dwac.errors import EPSILON, InputError

if TYPE_CHECKING:
    from dwac.reading import Estimator, Rows

_NO_FEWER = "fewer voters would change predictions; to use fewer anyway, give a number with --size N"
_HALF = "the network is in half precision, and calibrated with {:,} rows"


def condense(
    model: options.Model,
    output: options.Folder,
    size: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Number of representatives that vote. Default: as few as validation rows allow."
        ),
    ] = None,
    include_members: Annotated[
        bool,
        typer.Option(
            "--include-members",
            help="Also store the represented examples, so that each can still be forgotten.",
        ),
    ] = False,
    half: Annotated[
        Path | None,
        typer.Option(
            metavar="ROWS",
            help="Store the network in half precision, and calibrate with these rows, which were not trained on.",
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    device: options.Device = "auto",
    expect: options.Expect = None,
    json: options.Json = False,
) -> None:
    """Make a model small and fast: a few of its training examples vote for all.

    Each representative is the most central example of a group with the same label or similar numbers, and has the votes
    of the whole group. By default there are as few as possible: 99.5 % of the validation rows keep their prediction,
    and their loss grows by at most 0.5 %. The model is calibrated again, so prediction sets and intervals keep their
    guarantee. The new folder holds only the records of the representatives and does not know the other training rows,
    so evaluate it on new rows. MODEL does not change.

    With --half, the network takes half the space. Its rounded weights give slightly different numbers, so the model is
    calibrated with labelled rows of your own. It is refused unless 99.9 % of them keep their prediction and their loss
    grows by at most 0.1 %.

    Examples:

    dwac condense model/ -o small/

    dwac condense model/ -o small/ --size 100

    dwac condense model/ -o small/ --half new.csv
    """
    options.refuse_occupied(output, overwrite=overwrite)
    options.check_model(model)
    from dwac.reading import load, read

    loaded, before = load(model, device=device, expect=expect), _bytes(model)
    _check(loaded.clf, model, size)
    rows = None if half is None else read(half, like=loaded, labelled=True)
    if rows is not None:
        print_notes(rows.notes)
        _refuse_training_rows(loaded.clf, rows)
    start = time.perf_counter()
    with at_work(f"condensing {len(loaded.clf.references_):,} voters"):
        small = replace(loaded, clf=loaded.clf.condense(size))
        if rows is not None:
            with rows_located(rows):
                small.clf.recalibrate(rows.X, rows.y, ids=map(rows.where, range(len(rows))), half=True)
        folder = small.save(
            output,
            include_examples=not loaded.clf.private_,
            include_members=include_members,
            overwrite=overwrite,
        )
    facts = _facts(loaded.clf, small.clf, time.perf_counter() - start, before, folder)
    if json:
        print_json(facts)
    else:
        print_lines(_lines(facts, small.clf))


def _check(clf: Estimator, folder: Path, size: int | None) -> None:
    """Refuse a model that cannot be condensed, with an error that names the command's options."""
    if clf.references_.voters.represents and clf.references_.members is None:
        raise InputError(
            f"{folder} is already condensed and does not hold the examples that are represented; condense the model "
            "that it was made from"
        )
    examples = len(clf.references_.members or clf.references_)
    if size is not None and size >= examples:
        raise InputError(
            f"--size must be less than the {examples:,} training examples that {folder} holds; got {size:,}"
        )
    if size is None and len(clf.validation_y_) == 0 and not clf.cross_fitted_:
        raise InputError(
            f"{folder} has no validation rows to choose the number of voters by; give a number with --size N"
        )


def _refuse_training_rows(clf: Estimator, rows: Rows) -> None:
    n = int(in_training(clf, rows, clf.embed(rows.X)).sum())
    if n:
        raise InputError(
            f"the rows of --half must be new to the model; {n:,} of {len(rows):,} were used in training; give others"
        )


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _facts(clf: Estimator, small: Estimator, seconds: float, before: int, folder: Path) -> dict[str, Any]:
    """The result, for programs."""
    return {
        **model_facts(folder),
        "seconds": seconds,
        "voters_before": len(clf.references_),
        "voters": len(small.references_),
        "examples": round(float(small.references_.sizes.sum())),
        "agreement": None if small.agreement_ is None else small.agreement_._asdict(),
        "half": small.fitted_.half,
        "calibration_rows": len(small.calibration_y_),
        **_sizes(clf, "_before"),
        **_sizes(small),
        "bytes_before": before,
        "bytes": _bytes(folder),
    }


def _sizes(clf: Estimator, when: str = "") -> dict[str, float | None]:
    """The expected size of prediction sets at ε = 0.05; intervals have none."""
    if clf.target_.kind == "numbers":
        return {}
    return {f"mean_set_size{when}": clf.expected_sets(EPSILON).mean_size if len(clf.calibration_y_) else None}


def _lines(facts: dict[str, Any], small: Estimator) -> list[str]:
    """The result, for people."""
    before, after = facts.get("mean_set_size_before"), facts.get("mean_set_size")
    sizes = f"prediction sets at epsilon={EPSILON}: {number(before, 2)} labels on average, now {number(after, 2)}"
    return [
        f"condensed in {facts['seconds']:.1f} s: {facts['voters']:,} representatives vote for {facts['examples']:,} "
        f"training examples; before, {facts['voters_before']:,} voted",
        agreement_line(small),
        *([_NO_FEWER] if facts["voters"] == facts["examples"] else []),
        *([_HALF.format(facts["calibration_rows"])] if facts["half"] else []),
        *([sizes] if after is not None else []),
        f"folder: {_megabytes(facts['bytes_before'])}, now {_megabytes(facts['bytes'])}",
        written_line(facts["model"]),
    ]


def _megabytes(n: int) -> str:
    """A size in bytes, in words.

    >>> _megabytes(950), _megabytes(12_345), _megabytes(12_345_678)
    ('950 bytes', '12 kB', '12.3 MB')
    """
    return f"{n:,} bytes" if n < 1000 else f"{n / 1e3:.0f} kB" if n < 1e6 else f"{n / 1e6:,.1f} MB"
