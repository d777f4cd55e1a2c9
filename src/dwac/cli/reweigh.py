"""`dwac reweigh`: a model whose voters have other weights, so that rates differ little between groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dwac.cli import options
from dwac.cli.output import at_work, model_facts, print_json, print_lines, write_table, written_line
from dwac.cli.rows import read_rows, rows_located
from dwac.errors import InputError

_MEASURES = ("demographic parity", "equal opportunity", "false positives", "equalized odds")


@options.with_bundles
def reweigh(
    model: options.Model,
    data: options.Data,
    output: options.EditedFolder = None,
    by: options.By = None,
    measure: Annotated[
        str,
        typer.Option(
            metavar="|".join(_MEASURES),
            callback=options.one_of(_MEASURES),
            help="The rate that is compared: how often --label is predicted among all rows, among those that have it, "
            "among those that do not, or both of the last two.",
        ),
    ] = "demographic parity",
    at_most: Annotated[float, typer.Option(help="The largest difference between two groups on these rows.")] = 0.02,
    label: Annotated[str | None, typer.Option(help="The label. Default: the second of two classes.")] = None,
    changed: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write which weights changed, and by how much, to this .csv.")
    ] = None,
    target: options.Target = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    *,
    reading: options.ReadingOptions,
    tables: options.TableOptions,
) -> None:
    """Change the weights of voters as little as possible so that rates differ little between groups.

    Nothing is trained. DATA holds labelled rows that the model was not trained on, with the column of --by; the new
    model does not need that column to predict. The difference, and the cost in accuracy and log loss, are measured on
    rows not used to find the weights: each fifth is judged with weights found on the other four. The calibration
    rows of training are not used, so prediction sets keep their guarantee. MODEL does not change.

    Examples:

    dwac reweigh model/ held-out.csv --by sex -o model-2/

    dwac reweigh model/ held-out.csv --by sex --measure "equal opportunity" --at-most 0.05 -o model-2/ --changed who.csv
    """
    options.check_rows(model, tables.form, data)
    if output is None:
        raise InputError("reweigh writes a new model folder; name it with -o FOLDER")
    if not by:
        raise InputError("reweigh compares groups; name the column that has them with --by COLUMN")
    options.refuse_occupied(output, overwrite=overwrite)
    options.check_table(changed)
    import pandas as pd

    loaded = reading.load(model)
    clf = loaded.clf
    if not hasattr(clf, "reweigh"):
        raise InputError(f"reweigh compares rates of a label; {model} predicts numbers; use dwac evaluate --by COLUMN")
    rows = read_rows(data, loaded, reading, tables, labelled=True, target=target, keep=by)
    name = options.name_in(clf.target_.plain_names, label)
    with at_work(f"reweighing {len(clf.references_):,} voters"), rows_located(rows):
        # By their ids, rows that vote are judged without their own votes.
        X = (pd.Series(rows.X) if isinstance(rows.X, list) else rows.X).set_axis(
            pd.Index(rows.ids, tupleize_cols=False)
        )
        result = clf.reweigh(X, rows.y, by=rows.kept, measure=measure, at_most=at_most, label=name)
    folder = replace(loaded, clf=result.model).save(output, include_examples=not clf.private_, overwrite=overwrite)
    if changed is not None:
        write_table(changed, result.changed.reset_index())
    if json:
        print_json({**model_facts(folder), **result.to_dict()})
    else:
        print_lines([*str(result).splitlines(), written_line(folder)])
