"""`dwac letter`: one page in plain words for the person a row is about."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dwac.cli import options
from dwac.cli.explain import choose_rows, read_outcome
from dwac.cli.output import print_written, progress_printed
from dwac.cli.rows import read_rows, rows_located
from dwac.errors import EPSILON, InputError


@options.with_bundles
def letter(
    model: options.Model,
    data: options.Data,
    row: Annotated[
        int | None, typer.Option("--row", "-r", help="Row number, counted from 0. Not needed if DATA has one row.")
    ] = None,
    name: Annotated[str | None, typer.Option("--id", metavar="ID", help="Id of the row.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this .html, .md or .txt file.")
    ] = None,
    wanted: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL",
            help="The label that the person would want, or a range of numbers LOW:HIGH: the letter says what would "
            "have to be different. Default: the most likely other label.",
        ),
    ] = None,
    frozen: Annotated[
        list[str] | None,
        typer.Option("--frozen", metavar="COLUMN", help="A column that cannot change; may be repeated."),
    ] = None,
    tied: Annotated[
        list[str] | None,
        typer.Option("--tied", metavar="COLUMN,COLUMN", help="Columns that change together; may be repeated."),
    ] = None,
    risk: Annotated[
        float | None,
        typer.Option(callback=options.share, help="Leave to a person what dwac decide would hand over at this risk."),
    ] = None,
    about: Annotated[
        str | None, typer.Option(metavar="LABEL", help="For models of several labels: the one the letter is about.")
    ] = None,
    sender: Annotated[str, typer.Option(metavar="TEXT", help="Who sends the letter.")] = "",
    contact: Annotated[str, typer.Option(metavar="TEXT", help="Whom to ask; several lines are allowed.")] = "",
    words: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The decision in your words: a CSV file with the columns label and words."),
    ] = None,
    template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A Jinja2 template to use instead; it runs in a sandbox.")
    ] = None,
    private: options.Private = False,
    epsilon: options.Epsilon = EPSILON,
    ids: options.IdColumn = None,
    unknown: options.Unknown = None,
    language: options.Language = None,
    *,
    reading: options.ReadingOptions,
    tables: options.TableOptions,
) -> None:
    """Write one page in plain words to the person a row is about: the decision, why, and whom to ask.

    The letter names the main reasons, what would change the decision, and how sure the program is. If the row is unlike
    the training data, or the prediction set does not hold exactly one label, it says that a person decides. It names no
    training example; --private also leaves out their values.

    Examples:

    dwac letter model/ new.csv --row 3 --wanted granted --frozen age --contact "Ms Lee, 555 0100"

    dwac letter model/ new.csv --id ann --wanted granted --words words.csv -o letter.html

    dwac letter model/ new.csv --id ann --template ours.html -o letter.html --language de
    """
    options.check_rows(model, tables.form, data)
    if output is not None:
        options.check_file(output, "-o")
    from dwac.explain.letters import form_of

    form = None if output is None else form_of(output)
    loaded = reading.load(model, unknown)
    rows = read_rows(data, loaded, reading, tables, ids=ids)
    rows = choose_rows(rows, None if row is None else [row], None if name is None else [name])
    if len(rows) != 1:
        raise InputError(f"a letter is about one row; {data} has {len(rows):,}; choose one with --row or --id")
    limits = {"frozen": frozen or [], "tied": options.tied_columns(tied)}
    with progress_printed(), rows_located(rows):
        made = loaded.clf.letter(
            rows.X,
            None if wanted is None else read_outcome(loaded.clf, wanted),
            about=options.name_in(loaded.clf.target_.plain_names, about),
            words=words,
            risk=risk,
            epsilon=epsilon,
            private=True if private else None,
            sender=sender,
            contact=contact,
            case=rows.ids[0],
            **{option: value for option, value in limits.items() if value},
        )
    if output is None:
        typer.echo(made.render(template, form, language=language))
    else:
        made.write(output, template, language=language)
        print_written(f"{output}")
