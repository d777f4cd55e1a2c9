"""Options of `dwac worth`, and what it refuses at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dwac.cli.early import FORMATS, METHODS, UTILITIES, check_choice, check_data, check_file, check_model, form_of, work
from dwac.cli.options import (
    DataArgument,
    DayFirstOption,
    DecimalOption,
    DeviceOption,
    EncodingOption,
    ExpectOption,
    FormatOption,
    IdOption,
    JsonOption,
    ModelArgument,
    SeparatorOption,
    SheetOption,
    StrictOption,
    TargetOption,
    TextOption,
    UnlabelledOption,
)


def _one_of(names: tuple[str, ...]) -> Any:
    def check(value: str) -> str:
        if value not in names:
            raise typer.BadParameter(f"must be {', '.join(names[:-1])} or {names[-1]}; got {value!r}")
        return value

    return check


def worth(
    model: ModelArgument,
    data: DataArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write all to this .csv, .tsv, .jsonl or .parquet file."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="What groups of training examples are worth, such as all rows of one person or clinic: a column of "
            "the training data that the model holds.",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="|".join(METHODS),
            callback=_one_of(METHODS),
            help="shapley: a fair share of what all add; banzhaf: the average over all sets of others; "
            "leave_one_out: what removing this one alone would take away.",
        ),
    ] = "shapley",
    utility: Annotated[
        str,
        typer.Option(
            metavar="|".join(UTILITIES),
            callback=_one_of(UTILITIES),
            help="What counts, of the true label; for classes. The worth for accuracy follows a rule and is no "
            "Shapley value (unless by leave_one_out).",
        ),
    ] = "probability",
    top: Annotated[int, typer.Option(min=1, metavar="N", help="How many to show of each kind.")] = 10,
    target: TargetOption = None,
    text: TextOption = None,
    ids: IdOption = None,
    device: DeviceOption = "auto",
    expect: ExpectOption = None,
    form: FormatOption = None,
    encoding: EncodingOption = "utf-8",
    unlabelled: UnlabelledOption = "refuse",
    separator: SeparatorOption = None,
    decimal: DecimalOption = None,
    day_first: DayFirstOption = None,
    sheet: SheetOption = None,
    json: JsonOption = False,
    strict: StrictOption = False,
) -> None:
    """Say what each training example is worth: which of them help predictions, and which harm.

    DATA holds rows that were not used in training, with their target. An example's worth is by how much its vote raises
    the probability of the true label, averaged over these rows and over all orders in which voters may come (its
    Shapley value, exact up to a stated error). All together are worth what the votes add to the shares of the classes.
    "if removed" is what would change without this one example, the others staying.

    Examples are compared within their class: "relative" says by how many standard deviations the worth is above the
    mean of its class (with several labels: of those with the same ones; of numbers: of a fifth of the examples).

    It is the worth of a vote. What the network learned from the example is not in it. Duplicates share their worth.

    Examples:

    dwac worth model/ test.csv

    dwac worth model/ test.csv -o worth.csv

    dwac worth model/ test.csv --by clinic     # whose data carries the model
    """
    asked = locals()
    check_model(model)
    check_choice("format", form, FORMATS)
    check_data(data)
    if output is not None:
        form_of(output)
        check_file(output, "-o")
    work("worth", asked)
