"""`dwac silence`: a model in which some training rows vote no more, and calibrate as before."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from dwac.cli.forget import names_of
from dwac.cli.output import print_json, refuse_occupied, written_line
from dwac.reading import Model, load
from dwac.storage import fingerprint


def silence(
    *, model: Path, ids: list[str], output: Path, overwrite: bool, device: str, expect: str | None, json: bool
) -> None:
    """The work of `dwac silence`; for its options see `dwac.cli.commands.silence`."""
    refuse_occupied(output, overwrite=overwrite)
    loaded = load(model, device=device, expect=expect)
    clf, names = loaded.clf, names_of(loaded.clf, ids, "silenced")
    clf.silence(names)
    written = Model(clf, loaded.columns, loaded.notation).save(
        output, include_examples=not clf.private_, overwrite=overwrite
    )
    voters, rows = len(clf.references_), len(clf.calibration_ids_)
    if json:
        facts = {"silenced": len(names), "voters": voters, "calibration": rows}
        print_json({"model": str(written), "fingerprint": fingerprint(written), **facts})
        return
    for line in (
        f"silenced: {len(names):,} row{'s' * (len(names) != 1)}; {voters:,} vote",
        f"calibration keeps its {rows:,} rows as they were labelled, so sets and intervals promise what they did",
        written_line(written),
    ):
        Console().print(line, highlight=False, markup=False, soft_wrap=True)
