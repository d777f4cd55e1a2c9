"""`dwac impact`: the recorded decisions that change if training examples are forgotten or relabelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dwac.cli import options
from dwac.cli.forget import names_of
from dwac.cli.output import print_json, print_lines, write_table
from dwac.cli.replay import RecordFolder, read_decided
from dwac.errors import InputError

if TYPE_CHECKING:
    from dwac.reading import Estimator

_SHOWN = 20  # decisions that change


@options.with_bundles
def impact(
    record: RecordFolder,
    model: options.Model,
    data: options.Data,
    forget: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A training example to forget; repeat it for several.")
    ] = None,
    relabel: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID=LABEL", help="A training example and its right label or number; several labels: ID=a,b."
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="For models that predict numbers: changes up to this do not count.")
    ] = 0.0,
    output: options.Table = None,
    ids: options.Id = None,
    json: options.Json = False,
    *,
    reading: options.ReadingOptions,
    tables: options.TableOptions,
) -> None:
    """Show which recorded decisions change if training examples are forgotten or relabelled.

    The result is exact: predictions are sums of votes, so nothing has to be trained again. MODEL does not change; dwac
    forget and dwac silence write an edited model.

    Examples:

    dwac impact decisions/ model/ new.csv --forget p17 --forget p20

    dwac impact decisions/ model/ new.csv --relabel p17=benign -o touched.csv
    """
    options.check_table(output)
    loaded, rows = read_decided(model, data, ids, reading, tables)
    from dwac.records import impact as impact_of

    clf = loaded.clf
    pairs = dict(_pair(each) for each in relabel or [])
    names = names_of(clf, list(pairs), "compared")
    result = impact_of(
        record,
        clf,
        rows.X,
        rows.ids,
        forget=names_of(clf, forget or [], "compared"),
        relabel={name: _label(clf, label) for name, label in zip(names, pairs.values(), strict=True)},
        tolerance=tolerance,
    )
    if output is not None:
        write_table(output, result.decisions)
    if json:
        changed = result.decisions.assign(time=result.decisions["time"].map(str)).to_dict("records")
        print_json({**vars(result), "decisions": changed})
    else:
        found = result.decisions.head(_SHOWN).to_dict("records")
        more = len(result.decisions) - len(found)
        lines = [f"{each['id']}: {each['before']} becomes {each['after']}" for each in found]
        print_lines([*str(result).splitlines(), *lines, *([f"… and {more:,} more"] if more else [])])


def _pair(text: str) -> tuple[str, str]:
    name, sign, label = text.rpartition("=")
    if not sign or not name:
        raise InputError(f"--relabel must be ID=LABEL, such as p17=benign; got {text!r}")
    return name, label


def _label(clf: Estimator, text: str) -> Any:
    """The label as the model has it: a typed number is a text."""
    target = clf.target_
    known = {str(name): name for name in target.plain_names}
    try:
        if target.kind == "numbers":
            return float(text) if target.single else [float(part) for part in text.split(",")]
        if target.kind == "labels":
            chosen = [known[part] for part in text.split(",") if part]
            return chosen if target.listed else [int(name in chosen) for name in target.plain_names]
        return known[text]
    except (KeyError, ValueError):
        what = "a number" if target.kind == "numbers" else f"one of {', '.join(known)}"
        raise InputError(f"--relabel must give {what}; got {text!r}") from None
