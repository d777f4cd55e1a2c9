"""`dwac forget`: a model without some of its training rows, and on request as if it had never seen them."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from dwac.cli.output import print_json, refuse_occupied, written_line
from dwac.errors import IdError
from dwac.reading import Estimator, Model, load
from dwac.storage import fingerprint

_SEEN = "the networks saw these rows and are as they were: only votes, calibration and records are gone"
_COUNTED = (
    "what was counted over all rows stays, too, and may hold values of these: the smallest and largest number of a "
    "column, words of texts, labels, and categories that other rows have or that cannot be told to be theirs alone"
)


def forget(
    *,
    model: Path,
    ids: list[str] | None,
    output: Path,
    exact: bool,
    certificate: Path | None,
    overwrite: bool,
    device: str,
    expect: str | None,
    json: bool,
) -> None:
    """The work of `dwac forget`; for its options see `dwac.cli.commands.forget`."""
    refuse_occupied(output, overwrite=overwrite)
    loaded, start = load(model, device=device, expect=expect), time.perf_counter()
    names = names_of(loaded.clf, ids or [], "forgotten")
    remains = _remains(loaded.clf, names)
    with Console(stderr=True).status("forgetting …"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the votes are gone", UserWarning)  # which is said below
        loaded.clf.forget(names, exact=exact)
    written = Model(loaded.clf, loaded.columns, loaded.notation).save(
        output, include_examples=not loaded.clf.private_, overwrite=overwrite
    )
    if certificate is not None:
        loaded.clf.deletions_[-1].save(certificate)
    found = facts(loaded.clf, len(names), exact, time.perf_counter() - start, written)
    if json:
        print_json(found)
        return
    for line in lines(found, certificate, remains):
        Console().print(line, highlight=False, markup=False, soft_wrap=True)


def names_of(clf: Estimator, ids: list[str], done: str) -> list[Any]:
    """The ids as the model knows them: a number that was typed is a text. done: what was not done if one is unknown."""
    known = {str(name): name for name in clf._held_ids()}
    for name in ids:
        if name not in known:
            raise IdError(f"ids must be of rows that the model holds; {name!r} is not; nothing was {done}")
    return list(dict.fromkeys(known[name] for name in ids))


def facts(clf: Estimator, n: int, exact: bool, seconds: float, written: Path) -> dict[str, Any]:
    """What was done, for programs."""
    found = {
        "model": str(written),
        "fingerprint": fingerprint(written),
        "forgotten": n,
        "exact": exact,
        "voters": len(clf.references_),
        "seconds": seconds,
    }
    if not exact:
        return found | {"shards": clf.shards}
    made = clf.deletions_[-1]  # which is for rows, too, that were forgotten before without --exact
    return found | {"forgotten": len(made.ids), "certificate": made.to_dict()}


def _remains(clf: Estimator, names: list[Any]) -> str:
    """What votes that go leave behind, and how that goes, too."""
    if clf._shards is None:
        return f"{_SEEN}; a model trained with --shards can forget them with --exact"
    if clf._shards.rows is None or clf.references_.weighted:
        return f"{_SEEN}; only a model with all its rows and voters, as dwac train wrote it, can forget with --exact"
    if not clf._shards.rows.seen_by(pd.Index(names, tupleize_cols=False)):
        return "no network saw these rows: only calibration heeded them, and it follows"
    return f"{_SEEN}; dwac forget MODEL can forget them with --exact"


def lines(found: dict[str, Any], certificate: Path | None, remains: str) -> list[str]:
    """The same for people; remains: what is said of networks that are not trained again."""
    rows = f"{found['forgotten']:,} row{'s' * (found['forgotten'] != 1)}"
    said = [f"forgotten in {found['seconds']:.1f} s: {rows}; {found['voters']:,} vote"]
    if found["exact"]:
        made = found["certificate"]
        trained = [str(each["shard"]) for each in made["retrained"]]
        which = f"trained again: {', '.join(trained)}" if trained else "none had seen them"
        said += [
            f"of {made['shards']} networks, {which}; the model is the one that training without the rows gives",
            f"SHA-256 of the model: {made['after']}",
        ]
    else:
        said += [remains, _COUNTED]
    return [*said, *([f"certificate: {certificate}"] if certificate else []), written_line(found["model"])]
