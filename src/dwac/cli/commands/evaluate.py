"""Options of `dwac evaluate`, and what it refuses at once."""

from __future__ import annotations

from dwac.cli.early import FORMATS, check_choice, check_data, check_model, work
from dwac.cli.options import (
    DataArgument,
    DayFirstOption,
    DecimalOption,
    DeviceOption,
    EncodingOption,
    EpsilonOption,
    ExpectOption,
    FormatOption,
    JsonOption,
    ModelArgument,
    SeparatorOption,
    SheetOption,
    StrictOption,
    TargetOption,
    TextOption,
    UnknownOption,
    UnlabelledOption,
)
from dwac.errors import EPSILON


def evaluate(
    model: ModelArgument,
    data: DataArgument,
    target: TargetOption = None,
    epsilon: EpsilonOption = EPSILON,
    text: TextOption = None,
    unknown: UnknownOption = None,
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
    """Measure a model on rows whose target is known: errors, calibration, coverage of sets or intervals, typicality.

    Classes: accuracy, log loss, calibration, coverage and size of prediction sets; ordered labels: also how far off.
    Numbers: RMSE, MAE, CRPS, coverage and width of intervals. Several labels: F1, Hamming loss, subset accuracy, wrong
    and open decisions, and the share of labels that sets miss.

    Use rows that the model was not trained on. The target column is the one used in training, unless --target names
    another. Rows that cannot be read are counted and left out; the exit code is then 3. A row whose label did not occur
    in training counts as an error.

    Example:

    dwac evaluate model/ test.csv
    """
    asked = locals()
    check_model(model)
    check_choice("format", form, FORMATS)
    check_data(data)
    work("evaluate", asked)
