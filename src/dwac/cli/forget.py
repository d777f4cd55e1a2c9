"""`dwac forget`: a model without some of its training rows, and on request as if it had never seen them."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dwac.cli import options
from dwac.cli.output import model_facts, print_json, print_lines, written_line
from dwac.errors import IdError, InputError

if TYPE_CHECKING:
    from dwac.reading import Estimator

_SEEN = "the networks saw these rows and are unchanged: only votes, calibration and records are removed"
_COUNTED = (
    "statistics over all rows stay, too, and may contain values of these rows: the smallest and largest number of a "
    "column, words of texts, labels, and categories that other rows share or that cannot be traced to these rows alone"
)


def forget(
    model: options.Model,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID…", help="The ids of the rows to forget.")] = None,
    output: options.EditedFolder = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Retrain the networks that saw these rows, or rows forgotten earlier without --exact. The result is "
            "the model that training without them gives. For models trained with --shards.",
        ),
    ] = False,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --exact: write the certificate of the deletion, as JSON.")
    ] = None,
    overwrite: options.Overwrite = False,
    device: options.Device = "auto",
    expect: options.Expect = None,
    json: options.Json = False,
) -> None:
    """Forget training rows: remove their votes and records, or with --exact every trace of them.

    Without --exact nothing is trained: the networks, which saw the rows, do not change. With --exact, the networks that
    saw them are retrained, and a certificate documents it. MODEL does not change: delete it, and its copies, yourself.

    Use this if people ask you to delete their data. For wrong labels, use dwac silence: if rows are removed from
    calibration because of their outcome, prediction sets promise too much.

    Examples:

    dwac forget model/ customer-7 -o model-2/

    dwac train people.csv -t income --id name --shards 4 -o model/

    dwac forget model/ ann ben -o model-2/ --exact --certificate deletion.json
    """
    options.check_model(model)
    if output is None:
        raise InputError("forget writes a new model folder; name it with -o FOLDER")
    if certificate is not None and not exact:
        raise InputError("--certificate needs --exact: if the networks do not change, there is nothing to certify")
    if not ids and not exact:
        raise InputError("forget needs an id, except with --exact, which also covers rows forgotten without it")
    options.refuse_occupied(output, overwrite=overwrite)
    if certificate is not None:
        options.check_file(certificate, "--certificate", made=output)
    from dwac.reading import load

    loaded, start = load(model, device=device, expect=expect), time.perf_counter()
    names = names_of(loaded.clf, ids or [], "forgotten")
    remains = _remains(loaded.clf, names)
    with Console(stderr=True).status("forgetting …"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the votes are gone", UserWarning)  # printed below instead
        loaded.clf.forget(names, exact=exact)
    folder = loaded.save(output, include_examples=not loaded.clf.private_, overwrite=overwrite)
    if certificate is not None:
        loaded.clf.deletions_[-1].save(certificate)
    facts = _facts(loaded.clf, len(names), exact, time.perf_counter() - start, folder)
    if json:
        print_json(facts)
    else:
        print_lines(_lines(facts, certificate, remains))


def names_of(clf: Estimator, ids: list[str], done: str) -> list[Any]:
    """The ids as the model stores them: a typed number is a text. done: what was not done if one is unknown."""
    known = {str(name): name for name in clf.fitted_.held_ids()}
    for name in ids:
        if name not in known:
            raise IdError(f"each id must be that of a row in the model; {name!r} is not; nothing was {done}")
    return list(dict.fromkeys(known[name] for name in ids))


def _facts(clf: Estimator, n: int, exact: bool, seconds: float, folder: Path) -> dict[str, Any]:
    """The result, for programs."""
    facts = {
        **model_facts(folder),
        "forgotten": n,
        "exact": exact,
        "voters": len(clf.references_),
        "seconds": seconds,
    }
    if not exact:
        return facts | {"shards": clf.shards}
    made = clf.deletions_[-1]  # also covers rows forgotten earlier without --exact
    return facts | {"forgotten": len(made.ids), "certificate": made.to_dict()}


def _remains(clf: Estimator, names: list[Any]) -> str:
    """What remains of rows after their votes are removed, and how to remove that too."""
    shards = clf.fitted_.shards
    if shards is None:
        return f"{_SEEN}; a model trained with --shards can forget them with --exact"
    if shards.rows is None or clf.references_.voters.represents:
        return f"{_SEEN}; only a model with all its rows and voters, as dwac train wrote it, can forget with --exact"
    import pandas as pd

    if not shards.rows.seen_by(pd.Index(names, tupleize_cols=False)):
        return "no network saw these rows: only calibration used them, and it is updated"
    return f"{_SEEN}; dwac forget MODEL can forget them with --exact"


def _lines(facts: dict[str, Any], certificate: Path | None, remains: str) -> list[str]:
    """The same for people; remains: the sentence on networks that are not retrained."""
    rows = f"{facts['forgotten']:,} row{'s' * (facts['forgotten'] != 1)}"
    lines = [f"forgotten in {facts['seconds']:.1f} s: {rows}; {facts['voters']:,} vote"]
    if facts["exact"]:
        made = facts["certificate"]
        trained = [str(each["shard"]) for each in made["retrained"]]
        which = f"retrained: {', '.join(trained)}" if trained else "none had seen them"
        lines += [
            f"of {made['shards']} networks, {which}; the model is the one that training without the rows gives",
            f"SHA-256 of the model: {made['after']}",
        ]
    else:
        lines += [remains, _COUNTED]
    return [*lines, *([f"certificate: {certificate}"] if certificate else []), written_line(facts["model"])]
