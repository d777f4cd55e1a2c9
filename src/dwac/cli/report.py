"""`dwac report`: one file on a model: a summary for everyone, then quality, trust and explained cases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dwac.cli import options
from dwac.cli.output import print_written
from dwac.cli.rows import exit_if_unreadable, in_training, observe_rows, read_rows
from dwac.errors import EPSILON, InputError

if TYPE_CHECKING:
    from dwac.estimator.observed import Observed
    from dwac.reading import Estimator, Rows


@options.with_bundles
def report(
    model: options.Model,
    data: options.Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The .html file to write, or .md for a model card.")
    ] = Path("report.html"),
    target: options.Target = None,
    unlike: Annotated[
        str | None, typer.Option(metavar="DATA", help="Data of another kind, to check that its typicality is low.")
    ] = None,
    check_labels: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Check the labels of these rows, usually the training data, out of fold. This trains five models.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="The heading. Default: the name of the model.")] = None,
    purpose: Annotated[str, typer.Option(metavar="TEXT", help="What the model is for, in your words.")] = "",
    licence: Annotated[str, typer.Option(metavar="NAME", help="Licence of the model, for a model card.")] = "",
    by: options.By = None,
    cost: options.Cost = None,
    tolerance: options.Tolerance = None,
    epsilon: options.Epsilon = EPSILON,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of training examples to show per prediction.")] = 5,
    cases: Annotated[
        int, typer.Option(min=0, help="Number of typical, doubtful and wrong predictions to explain.")
    ] = 3,
    private: options.Private = False,
    language: options.Language = None,
    ids: options.Id = None,
    unlabelled: options.Unlabelled = "refuse",
    *,
    reading: options.ReadingOptions,
    tables: options.TableOptions,
) -> None:
    """Write a report to read, mail or print: one HTML file that needs no network; or a model card in Markdown.

    It shows results on DATA, whose target must be known. The first page says in plain words what the model does, how
    good and how certain it is, and where not to trust it. Then come measures for data scientists, explained
    predictions, and the most and the least helpful training examples. For classes there are also a map, and training
    labels that look wrong. The model was trained on those labels, so it misses wrong ones that it has memorised.
    --check-labels finds them. The report names DATA with its hash, the model with its fingerprint, the target, all
    columns and the date. It compares groups of people if the names of columns suggest them, or groups by --by. If the
    file name ends in .md, it is a model card: purpose, data, results, groups compared and limits, with the fields of
    Hugging Face's cards.

    Rows of DATA that were used in training are left out, so you may give the file of a training with --test-size. Rows
    that cannot be read are left out, too; the exit code is then 3.

    Examples:

    dwac report model/ test.csv -o report.html

    dwac report model/ test.csv --check-labels train.csv

    dwac report model/ test.csv --by sex --by clinic    # results by group, and whose data carries the model

    dwac report model/ test.csv --by sex --purpose "Which patients to call" -o README.md

    dwac report model/ loans.csv --cost bad/good=5 --cost good/bad=1

    dwac report model/ people.csv --unlike martians.csv --title "Who earns more?"
    """
    options.check_rows(model, tables.form, data, unlike, check_labels)
    options.check_file(output, "-o")
    from dwac import report as reports
    from dwac.estimator import DWACClassifier

    loaded = reading.load(model)
    if check_labels is not None and loaded.task in ("labels", "numbers"):
        raise InputError(f"--check-labels is for models of classes; this one predicts {loaded.task}; leave it out")
    costs = options.costs_of(cost, loaded.clf.target_.names.tolist(), several=loaded.task == "labels")
    roles: dict[str, Any] = {"labelled": True, "target": target, "ids": ids, "unlabelled": unlabelled}
    rows = read_rows(data, loaded, reading, tables, keep=by or (), **roles)
    hidden = private or loaded.clf.private_
    given = len(rows)
    choice: dict[str, Any] = {"strict": reading.strict, "fate": "are left out", "private": hidden}
    rows, observed, bad = observe_rows(loaded.clf, rows, **choice)
    kept, note = fresh(loaded.clf, rows, observed, data, private=hidden)
    rows, observed = rows.take(kept), observed.take(kept)
    console = Console(stderr=True)
    if note:
        console.print(f"dwac: note: {note}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    if bad:  # the terminal showed it already
        left = f"{len(bad):,} of {given:,} rows of {data} could not be read and are left out"
        note = f"{left}; {note}" if note else left
    strange = None
    if unlike is not None:
        others = read_rows(unlike, loaded, reading, tables._replace(form=None, sheet=None), labelled=False)
        strange = observe_rows(loaded.clf, others, **choice)[1]
    issues = None
    if check_labels is not None:
        judged = read_rows(check_labels, loaded, reading, tables._replace(sheet=None), **roles)
        judged = observe_rows(loaded.clf, judged, **choice)[0]
        assert isinstance(loaded.clf, DWACClassifier)
        issues = reports.label_issues(loaded.clf, judged.X, judged.y, ids=judged.ids)
    with console.status(f"predicting {len(rows):,} rows …"):
        file = reports.write(
            loaded.clf,
            observed,
            rows.y,
            output,
            ids=rows.ids,
            unlike=strange,
            title=title
            or ("Model card of" if output.suffix == ".md" else "Report on") + f" {options.model_name(model)}",
            epsilon=epsilon,
            k=k,
            cases=cases,
            private=hidden,
            note=note,
            issues=issues,
            by=rows.kept,
            costs=costs,
            tolerance=tolerance,
            source=data,
            target=rows.columns.targets,
            language=language,
            purpose=purpose,
            licence=licence,
        )
    size = file.stat().st_size
    amount = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.0f} kB"
    print_written(f"{file}, on {len(rows):,} row{'s' * (len(rows) != 1)}, {amount}")
    exit_if_unreadable(bad)


def fresh(clf: Estimator, rows: Rows, observed: Observed, name: str, *, private: bool = False) -> tuple[Any, str]:
    """The row numbers of rows new to the model, and a note on the others; the calibration rows if none are new.

    observed: what the model sees of the rows. private: the note does not reveal whether any rows were used in training,
    or how many.
    """
    import numpy as np
    import pandas as pd

    used = in_training(clf, rows, observed.h.cpu().numpy())
    new = np.flatnonzero(~used)
    if private and not used.all():
        return new, f"rows of {name} that were used in training, if any, are left out"
    if not used.any():
        return new, ""
    if not used.all():
        return new, f"{used.sum():,} of the {len(rows):,} rows of {name} were used in training and are left out"
    held = np.flatnonzero(pd.Index(rows.ids, tupleize_cols=False).isin(clf.calibration_ids_))
    if len(held) == 0:
        raise InputError(
            f"the model was trained on all {len(rows):,} rows of {name}, so they cannot show how good it is; "
            "give other rows, or hold some out in training: dwac train … --test-size 0.2"
        )
    note = (
        f"no row of {name} is new to the model, so results are on the {len(held):,} calibration rows: fair for "
        "accuracy, but coverage is correct by construction; for a fair test, use dwac train … --test-size 0.2"
    )
    return held, note
