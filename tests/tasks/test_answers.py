"""The columns of an answer are declared once: tables, Arrow, JSON and OpenAPI have the same."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac.server.answers import json_rows
from dwac.server.schemas import schemas_of
from dwac.tasks import Target, class_target, label_target, number_target
from dwac.tasks.answers import AnswerColumn, ValueKind, table_columns, table_of

NAMES, TABLE = np.array(["a", "b", "c"]), np.eye(3)
LEVELS = (0.1, 0.5)
TARGETS: dict[str, tuple[Target, str]] = {
    "classes": (
        class_target(NAMES),
        "label probability confidence credibility typicality set probability_a probability_b probability_c",
    ),
    "labels": (
        label_target(NAMES, TABLE),
        "labels typicality set probability_a decision_a probability_b decision_b probability_c decision_c",
    ),
    "number": (
        number_target(TABLE[:, :1], [None]),
        "prediction lower upper quantile_0.1 quantile_0.5 typicality",
    ),
    "numbers": (
        number_target(TABLE[:, :2], ["u", "v"], single=False),
        "prediction_u lower_u upper_u quantile_0.1_u quantile_0.5_u "
        "prediction_v lower_v upper_v quantile_0.1_v quantile_0.5_v typicality",
    ),
}


def values_of(column: AnswerColumn, n: int) -> Any:
    shape = [n]
    shape += [len(column.names)] if column.per_name or column.kind is ValueKind.LABELS else []
    shape += [] if column.parts is None else [len(column.parts)]
    whole = column.kind in (ValueKind.LABEL, ValueKind.LABELS, ValueKind.DECISION)
    return np.ones(shape, dtype=int if whole else float)


@pytest.fixture(params=TARGETS)
def declared(request: pytest.FixtureRequest) -> tuple[Target, list[str]]:
    target, names = TARGETS[request.param]
    return target, names.split()


def test_a_table_has_one_column_per_label_number_and_quantile(declared: tuple[Target, list[str]]) -> None:
    target, names = declared
    columns = target.columns(LEVELS)
    assert [each.name for each in table_columns(columns, calibrated=True, probabilities=True)] == names
    values = {column.name: values_of(column, 2) for column in columns}
    frame = table_of(columns, values, np.array([True, False]), probabilities=True)
    assert list(frame.columns) == names
    few = [each.name for each in table_columns(columns, calibrated=False)]
    assert not {"typicality", "set", "lower", "lower_u", "decision_a", "confidence"} & set(few)
    assert few == [name for name in names if name in few]


def test_json_has_the_fields_that_openapi_describes(declared: tuple[Target, list[str]]) -> None:
    target, _ = declared
    schemas, columns = schemas_of(target), [each for each in target.columns(LEVELS) if not each.evidence]
    values = {column.name: values_of(column, 2) for column in columns}
    good, bad = json_rows(columns, values, [None, "no"], [None, None])
    (row,) = schemas.predictions.model_fields["predictions"].annotation.__args__  # type: ignore[union-attr]
    assert set(row.model_validate(good).model_dump()) == set(good)
    assert row.model_validate(bad).model_dump() == {**dict.fromkeys(good), "unreadable": "no"}
    assert all(field.description for field in row.model_fields.values())


def test_a_model_without_calibration_rows_answers_null_for_what_needs_them(declared: tuple[Target, list[str]]) -> None:
    columns = declared[0].columns(LEVELS)
    values = {column.name: values_of(column, 1) for column in columns if not column.calibrated}
    (row,) = json_rows(columns, values, [None], [None])
    for column in columns:
        answers = list(row[column.within].values()) if column.within else [row]
        assert all((each[column.name] is None) == column.calibrated for each in answers), column.name


def test_an_unbounded_end_is_null_in_json_and_infinite_in_a_table() -> None:
    columns = [column for column in TARGETS["number"][0].columns() if column.name == "interval"]
    values = {"interval": np.array([[-np.inf, 2.0]])}
    (row,) = json_rows(columns, values, [None], [None])
    assert row["interval"] == {"lower": None, "upper": 2.0}
    frame = table_of(columns, values, np.array([True]))
    pd.testing.assert_frame_equal(frame, pd.DataFrame({"lower": [-np.inf], "upper": [2.0]}))
