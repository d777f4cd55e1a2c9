"""Numbers in words for people: no number, however strange, raises an error while a page is written."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dwac import _checks as checks
from dwac.cli import output
from dwac.cli.worth import _cell
from dwac.explain import privacy, rendering
from dwac.monitoring import gauges
from dwac.report import measures, worth
from dwac.tasks import predictions


def date(seconds: float) -> str:
    return gauges.NumberGauge("day", gauges.COLUMN, np.array([0.0]), "datetime").show(seconds)


def cell(value: float) -> str:
    return _cell("size", value)


WRITERS = [
    date, cell, checks.percent, predictions.amount, predictions.share, measures.percent, measures.of_100,
    rendering.percent, privacy.percent, measures.number, measures.share, output.number,
    lambda value: worth.points([value])(value),
]  # fmt: skip


@pytest.mark.parametrize("write", WRITERS)
@settings(max_examples=30)
@given(value=st.floats())
@example(value=-5.0)
@example(value=0.0)
@example(value=float("nan"))
@example(value=float("inf"))
@example(value=5e-324)
@example(value=253402300800.0)
def test_every_number_can_be_written(write: Callable[[float], str], value: float) -> None:
    assert write(value)
