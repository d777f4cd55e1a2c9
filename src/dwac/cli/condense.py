"""`dwac condense`: a model in which a few real examples vote for all, in a folder of its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console

from dwac.cli.output import agreement_line, at_work, number, print_json, refuse_occupied, written_line
from dwac.errors import EPSILON, InputError
from dwac.estimator import DWACRegressor
from dwac.reading import Estimator, Model, load
from dwac.storage import fingerprint

_NO_FEWER = "no fewer would do as well; to have fewer all the same, give a number with --size N"


def condense(
    *,
    model: Path,
    output: Path,
    size: int | None,
    include_members: bool,
    overwrite: bool,
    device: str,
    expect: str | None,
    json: bool,
) -> None:
    """The work of `dwac condense`; for its options see `dwac.cli.commands.condense`."""
    refuse_occupied(output, overwrite=overwrite)
    loaded, before = load(model, device=device, expect=expect), _bytes(model)
    _check(loaded.clf, model, size)
    start = time.perf_counter()
    with at_work(f"condensing {len(loaded.clf.references_):,} voters"):
        small = Model(loaded.clf.condense(size), loaded.columns, loaded.notation)
        written = small.save(
            output,
            include_examples=not loaded.clf.private_,
            include_members=include_members,
            overwrite=overwrite,
        )
    found = facts(loaded.clf, small.clf, time.perf_counter() - start, before, written)
    if json:
        print_json(found)
    else:
        show(found, small.clf, Console())


def _check(clf: Estimator, folder: Path, size: int | None) -> None:
    """Refuse a model that cannot be condensed, in terms of the command."""
    if clf.references_.weighted and clf.references_.members is None:
        raise InputError(
            f"{folder} is already condensed and does not hold those who are represented; condense the model that it "
            "was made from"
        )
    everybody = len(clf.references_.members or clf.references_)
    if size is not None and size >= everybody:
        raise InputError(
            f"--size must be less than the {everybody:,} training examples that {folder} holds; got {size:,}"
        )
    if size is None and len(clf.validation_y_) == 0 and not clf.cross_fitted_:
        raise InputError(
            f"{folder} has no validation rows to choose the number of voters by; give a number with --size N"
        )


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def facts(clf: Estimator, small: Estimator, seconds: float, before: int, written: Path) -> dict[str, Any]:
    """What was done, for programs."""
    return {
        "model": str(written),
        "fingerprint": fingerprint(written),
        "seconds": seconds,
        "voters_before": len(clf.references_),
        "voters": len(small.references_),
        "examples": round(float(small.references_.sizes.sum())),
        "agreement": None if small.agreement_ is None else small.agreement_._asdict(),
        **_sizes(clf, "_before"),
        **_sizes(small),
        "bytes_before": before,
        "bytes": _bytes(written),
    }


def _sizes(clf: Estimator, when: str = "") -> dict[str, float | None]:
    """The expected size of prediction sets at ε = 0.05; intervals have no such."""
    if isinstance(clf, DWACRegressor):
        return {}
    return {f"mean_set_size{when}": clf.expected_sets(EPSILON).mean_size if len(clf.calibration_y_) else None}


def show(found: dict[str, Any], small: Estimator, console: Console) -> None:
    """Print what was done."""
    before, after = found.get("mean_set_size_before"), found.get("mean_set_size")
    sizes = f"prediction sets at epsilon={EPSILON}: {number(before, 2)} labels on average, now {number(after, 2)}"
    lines = [
        f"condensed in {found['seconds']:.1f} s: {found['voters']:,} representatives vote for {found['examples']:,} "
        f"training examples; before, {found['voters_before']:,} voted",
        agreement_line(small),
        *([_NO_FEWER] if found["voters"] == found["examples"] else []),
        *([sizes] if after is not None else []),
        f"folder: {_megabytes(found['bytes_before'])}, now {_megabytes(found['bytes'])}",
        written_line(found["model"]),
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _megabytes(n: int) -> str:
    """A size in bytes, in words.

    >>> _megabytes(950), _megabytes(12_345), _megabytes(12_345_678)
    ('950 bytes', '12 kB', '12.3 MB')
    """
    return f"{n:,} bytes" if n < 1000 else f"{n / 1e3:.0f} kB" if n < 1e6 else f"{n / 1e6:,.1f} MB"
