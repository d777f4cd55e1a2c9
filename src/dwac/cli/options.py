"""What commands share before the library is imported, which takes seconds: options, and their quick checks.

An option means the same in every command. A wrong option, a missing file or an occupied folder is reported in a
fraction of a second.
"""

from __future__ import annotations

import csv
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from dwac.errors import InputError, StorageError
from dwac.languages import languages

if TYPE_CHECKING:
    from dwac import reading

# Copies of names in the library; a test compares them.
FORMATS = ("csv", "tsv", "jsonl", "parquet", "excel", "text", "image")
SCORED_FORMATS = ("parquet", "csv", "tsv", "jsonl")
ENGINES = ("local", "ray", "dask", "spark")
KINDS = ("numbers", "categories", "dates", "booleans")
TASKS = ("classes", "ordered", "labels", "numbers")
UNLABELLED = ("refuse", "drop")
UNKNOWN = ("atypical", "missing", "refuse")
METHODS = ("shapley", "banzhaf", "leave_one_out")
MEASURES = ("error", "false positives", "false negatives")
UTILITIES = ("probability", "log_probability", "accuracy")
MANIFEST = "model.json"

_WRITTEN = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_WRITTEN |= {".parquet": "parquet"}


def one_of(names: Sequence[str]) -> Callable[[str | None], str | None]:
    """A callback that refuses a value that is not one of the names; None is allowed."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in names:
            raise typer.BadParameter(f"must be {_either(names)}; got {value!r}")
        return value

    return check


def _either(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _epsilon(value: float) -> float:
    if 0 < value < 1:
        return value
    raise typer.BadParameter(f"must lie in (0, 1); got {value}; 0.05 gives sets with an error rate of at most 5 %")


def share(value: float | None) -> float | None:
    """A callback that refuses a number outside (0, 1); None is allowed."""
    if value is None or 0 < value < 1:
        return value
    raise typer.BadParameter(f"must lie in (0, 1); got {value}")


# The model and the rows


def from_hub(model: Path | None) -> Path | None:
    """A callback: the folder of a model that is named hf://owner/name, downloaded; any other path stays as it is."""
    if model is None or not str(model).startswith("hf:"):
        return model
    from dwac.storage import local_folder

    return Path(local_folder(model))


def model_name(model: Path) -> str:
    """The name of a model for people: that of its folder, or of its repository on the Hub."""
    repository = [part for part in model.parts if part.startswith("models--")]
    return "/".join(repository[-1].split("--")[1:]) if repository else model.resolve().name


Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        callback=from_hub,
        help="A model folder, written by `dwac train`; or hf://owner/name, on the Hugging Face Hub.",
    ),
]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A CSV, TSV, JSON Lines, Parquet or Excel file (also .gz, .zst, .zip), an image, a folder of images, a "
        "text file with one text per line, or - for standard input.",
    ),
]
Expect = Annotated[
    str | None,
    typer.Option(
        metavar="FINGERPRINT", help="Refuse MODEL unless it has this fingerprint, which dwac train printed for it."
    ),
]
Device = Annotated[str, typer.Option(help="auto (a GPU if available), cpu, cuda, …")]
Target = Annotated[
    list[str] | None,
    typer.Option(
        "--target", "-t", metavar="COLUMN", help="The column with the target; repeat it for several labels or numbers."
    ),
]
Text = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that holds the text to predict from.")]
Id = Annotated[
    str | None, typer.Option("--id", "--id-column", metavar="COLUMN", help="The column that holds the row ids.")
]
IdColumn = Annotated[
    str | None, typer.Option("--id-column", metavar="COLUMN", help="The column that holds the row ids.")
]
By = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="COLUMN",
        help="Compare the results of groups of rows, by this column of DATA, such as the sex or the region; repeat it "
        "to compare intersections, too. Numbers and dates with many values are cut at their quartiles.",
    ),
]
Cost = Annotated[
    list[str] | None,
    typer.Option(
        "--cost",
        metavar="TRUE/DECIDED=COST",
        help="What it costs to decide for one label where another is true, such as bad/good=5; repeat it. For several "
        "labels: LABEL=COST/COST, of a false positive and of a false negative.",
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(help="For models that predict numbers: a decided number is wrong if it is off by more than this."),
]
Unlabelled = Annotated[
    str,
    typer.Option(
        metavar="|".join(UNLABELLED), callback=one_of(UNLABELLED), help="What to do with rows whose target is empty."
    ),
]
Unknown = Annotated[
    str | None,
    typer.Option(
        "--unknown",
        metavar="|".join(UNKNOWN),
        callback=one_of(UNKNOWN),
        show_default=False,
        help="How to read categories that did not occur in training: as missing, with a lower typicality (atypical); "
        "as missing (missing); or not at all, so that the row gets no answer (refuse). Default: as set in training, "
        "where the default is atypical.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Stop if a row cannot be read, instead of reporting it and continuing."),
]

# How tables are written

Format = Annotated[
    str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}. Default: inferred from the file name.")
]
Encoding = Annotated[str, typer.Option(help="Encoding of text files: utf-8, latin-1, utf-16, …")]
Separator = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        help="The character between the fields of CSV: ; or , or tab. Default: as in training, or else inferred.",
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        metavar=".|,",
        help="The decimal mark in CSV, Excel or JSON texts. Default: as in training, or else inferred.",
    ),
]
DayFirst = Annotated[
    bool | None,
    typer.Option(
        "--day-first/--month-first",
        help="How to read 01/02/2020. Default: as in training, or else inferred from the other dates.",
        show_default=False,
    ),
]
Sheet = Annotated[str | None, typer.Option(metavar="NAME", help="The sheet of an Excel workbook. Default: the first.")]

# The output

Epsilon = Annotated[
    float,
    typer.Option(
        "--epsilon", "-e", callback=_epsilon, help="Error rate of prediction sets and intervals, between 0 and 1."
    ),
]
Local = Annotated[
    bool,
    typer.Option("--local", help="Let calibration rows near a row weigh more in its prediction set or interval."),
]
Probabilities = Annotated[bool, typer.Option("--probabilities", help="Also write the probability of each class.")]
Quantiles = Annotated[
    str | None,
    typer.Option(metavar="0.1,0.5,…", help="For models that predict numbers: also write these quantiles of the votes."),
]
Rounded = Annotated[
    bool, typer.Option("--private", help="Round shares to whole per cent; always on for private models.")
]
Record = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Also append a row per decision to this record, for dwac replay, impact and ledger; --private keeps no "
        "voters in it.",
    ),
]
Private = Annotated[
    bool, typer.Option("--private", help="Show labels and rounded shares only; always on for private models.")
]
Language = Annotated[
    str | None,
    typer.Option(metavar="|".join(languages()), callback=one_of(languages()), help="The language of explanations."),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON instead of tables.")]
Table = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to this .csv, .tsv, .jsonl or .parquet file."),
]
Folder = Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="The model folder to write.")]
EditedFolder = Annotated[
    Path | None, typer.Option("--output", "--out", "-o", metavar="FOLDER", help="The model folder to write.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the model in FOLDER.")]


# Quick checks


def check_model(folder: str | Path) -> None:
    """Refuse a model folder that does not exist."""
    if "://" not in str(folder) and not Path(folder).exists():
        raise StorageError(f"{folder} must be a model folder; it does not exist")


def check_data(source: str) -> None:
    """Refuse a file or folder that does not exist; standard input, URLs and patterns are left to the reader."""
    if source == "-" or "://" in source or any(mark in source for mark in "*?["):
        return
    if not Path(source).exists():
        raise InputError(f"there is no file or folder {source!r}; check the path")


def check_choice(what: str, value: str | None, choices: Sequence[str]) -> None:
    """Refuse a value that is not among the choices; None is allowed."""
    if value is not None and value not in choices:
        raise InputError(f"unknown {what} {value!r}; choose {', '.join(choices)}")


def check_rows(model: str | Path, form: str | None, *sources: str | None) -> None:
    """Refuse a model, a format or data that do not exist; data may be None."""
    check_model(model)
    check_choice("format", form, FORMATS)
    for source in sources:
        if source is not None:
            check_data(source)


def refuse_occupied(folder: Path, *, overwrite: bool) -> None:
    """Refuse a model folder that cannot be written: before hours of work, not after."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, but -o must name a folder; choose a new one")
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / MANIFEST).is_file():
            raise InputError(f"{folder} is not empty and holds no model; choose a new folder with -o FOLDER")
        if not overwrite:
            raise InputError(f"{folder} already holds a model; replace it with --overwrite, or choose another folder")
    parent = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not os.access(parent, os.W_OK):
        raise InputError(f"{folder} cannot be written: no permission in {parent}; choose another folder with -o FOLDER")


def check_file(path: Path, option: str, *, made: Path | None = None) -> None:
    """Refuse a file that cannot be written; made: a folder that will be created first."""
    if path.is_dir():
        raise InputError(f"{option} must name a file; {path} is a folder; add a file name")
    parent = path.absolute().parent
    if not parent.is_dir() and (made is None or parent != made.absolute()):
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}; create it, or choose another")


def check_table(path: Path | None) -> None:
    """Refuse a table that cannot be written; None is allowed."""
    if path is not None:
        table_format(path)
        check_file(path, "-o")


def table_format(path: Path) -> str:
    """The format of a table to write, by its suffix: "csv", "tsv", "jsonl" or "parquet"."""
    form = _WRITTEN.get(path.suffix.lower())
    if form is None:
        raise InputError(f"the file name must end in {', '.join(_WRITTEN)}; got {path}")
    return form


# Option values in the form that the library takes


def kinds_of(values: Sequence[str] | None) -> dict[str, str]:
    """--kind COLUMN=KIND by column."""
    kinds = {}
    for value in values or []:
        column, mark, kind = value.rpartition("=")
        if not mark or not column or kind not in KINDS:
            raise InputError(f"--kind must be COLUMN=KIND, where KIND is {_either(KINDS)}; got {value!r}")
        kinds[column] = kind
    return kinds


def costs_of(values: Sequence[str] | None, labels: Sequence[Any], *, several: bool) -> dict[Any, Any] | None:
    """--cost TRUE/DECIDED=COST by (true, decided); with several labels LABEL=COST/COST by label."""
    if not values:
        return None
    costs: dict[Any, Any] = {}
    form = "LABEL=COST/COST" if several else "TRUE/DECIDED=COST"
    for value in values:
        head, _, cost = value.rpartition("=")
        parts = cost.split("/") if several else [cost]
        keys = [label for label in labels if str(label) == head] if several else [
            (true, decided) for true in labels for decided in labels if f"{true}/{decided}" == head
        ]  # fmt: skip
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            numbers = []
        if len(keys) != 1 or len(numbers) != 1 + several:
            known = ", ".join(map(str, labels[:20]))
            raise InputError(f"--cost must be {form}, with labels of {known} and numbers; got {value!r}")
        costs[keys[0]] = tuple(numbers) if several else numbers[0]
    return costs


def name_in(names: Iterable[Any], text: str | None) -> Any:
    """The first of these names that has this text; the text if none has."""
    return next((name for name in names if str(name) == text), text)


def tied_columns(values: Sequence[str] | None) -> list[list[str]]:
    """--tied COLUMN,COLUMN as lists of columns; names with commas are quoted."""
    return [next(csv.reader([columns])) for columns in values or []]


def levels_of(quantiles: str | None) -> list[float]:
    """--quantiles as numbers between 0 and 1."""
    if quantiles is None:
        return []
    try:
        levels = [float(level) for level in quantiles.split(",")]
    except ValueError:
        levels = []
    if not levels or not all(0 < level < 1 for level in levels):
        raise InputError(f"--quantiles must be numbers between 0 and 1, such as 0.1,0.5,0.9; got {quantiles!r}")
    return levels


class TableOptions(NamedTuple):
    """How the input tables of a command are written; each field is an option."""

    form: Format = None
    encoding: Encoding = "utf-8"
    separator: Separator = None
    decimal: Decimal = None
    day_first: DayFirst = None
    sheet: Sheet = None

    def arguments(self) -> dict[str, Any]:
        """These options as arguments of `dwac.reading.read`."""
        from dwac.reading import check_notation

        notation = check_notation(self.separator, self.decimal, self.day_first)
        return {"form": self.form, "encoding": self.encoding, "notation": notation, "sheet": self.sheet}


class ReadingOptions(NamedTuple):
    """How a command reads rows for a model; each field is an option."""

    text: Text = None
    device: Device = "auto"
    expect: Expect = None
    strict: Strict = False

    def load(self, model: Path, unknown: str | None = None) -> reading.Model:
        """The model, loaded as these options say; unknown: as for `dwac.reading.load`."""
        from dwac.reading import load

        return load(model, device=self.device, expect=self.expect, unknown=unknown)


def with_bundles(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of its bundles, such as `TableOptions`, in place of the parameters that hold these."""
    signature, hints = inspect.signature(command), get_type_hints(command, include_extras=True)
    bundles = {name: hint for name, hint in hints.items() if hasattr(hint, "_field_defaults")}
    parameters = [
        each.replace(annotation=hints[each.name]) for each in signature.parameters.values() if each.name not in bundles
    ]
    for bundle in bundles.values():
        for name, hint in get_type_hints(bundle, include_extras=True).items():
            default = bundle._field_defaults[name]
            parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint))

    @wraps(command)
    def run(**options: Any) -> None:
        for name, bundle in bundles.items():
            options[name] = bundle(**{field: options.pop(field) for field in bundle._fields})
        command(**options)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
