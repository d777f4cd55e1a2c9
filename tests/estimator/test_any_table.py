"""Whatever stands in a table, a model fits or answers it, or refuses it on purpose."""

import datetime as dt
import warnings
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dwac import DWACClassifier, DWACRegressor
from dwac.errors import DwacError

QUICK: dict[str, Any] = {"epochs": 1, "random_state": 0, "device": "cpu", "verbose": False}
ODD: list[Any] = [None, pd.NA, pd.NaT, "", ".", "nan", "1,5", "1e999", "\0", b"x", (), [1], {"a": 1}, 10**400, -(2**63)]
ODD += [np.float32("inf"), np.int8(-1), Decimal("NaN"), Decimal("1e5"), 1j, dt.date(1, 1, 1), dt.time(9), frozenset()]
ODD += [pd.Timestamp("9999-12-31"), pd.Timedelta("1s"), pd.Interval(0, 1), np.datetime64("1960"), 5e-324, 1.8e308, True]
CELLS = st.sampled_from(range(len(ODD))).map(ODD.__getitem__) | st.floats() | st.integers(-3, 3) | st.text(max_size=4)
COLUMNS = st.one_of(
    st.lists(CELLS, min_size=4, max_size=8),
    *(st.lists(kind, min_size=4, max_size=8) for kind in (st.floats(), st.integers(), st.booleans(), st.datetimes())),
    st.lists(st.text("ab ", max_size=3), min_size=4, max_size=8),
)


def table(columns: list[list[Any]], n: int) -> pd.DataFrame:
    """Each column repeated to n rows, as values of whatever type."""
    rows = [[column[row % len(column)] for column in columns] for row in range(n)]
    return pd.DataFrame({f"c{i}": pd.Series([row[i] for row in rows], dtype=object) for i in range(len(columns))})


@pytest.fixture(scope="module")
def models() -> list[Any]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"c0": rng.normal(size=60), "c1": rng.choice(["a", "b"], 60), "c2": rng.random(60) < 0.5})
    X["c3"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 60), unit="D")
    return [DWACClassifier(**QUICK).fit(X, X["c1"]), DWACRegressor(**QUICK).fit(X, X["c0"])]


@settings(max_examples=20)
@given(st.lists(COLUMNS, min_size=4, max_size=4), st.booleans())
def test_any_rows_are_answered_or_refused(models: list[Any], columns: list[Any], typed: bool) -> None:
    X = table(columns, 5)
    X = X.infer_objects() if typed else X
    for model in models:
        with suppress(DwacError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = model.predict_proba(X) if isinstance(model, DWACClassifier) else model.predict(X)
            assert len(found) == 5
            assert np.isfinite(np.delete(found, list(model.unreadable(X)), axis=0)).all()


LABELS = st.lists(CELLS, min_size=2, max_size=5)


@settings(max_examples=8)
@example([[1.0, 2.0]], [10**400], 7, False, True)
@example([[1.0, 2.0]], [None, Decimal("sNaN")], 7, False, False)
@given(st.lists(COLUMNS, min_size=1, max_size=3), LABELS, st.sampled_from([1, 7, 40]), st.booleans(), st.booleans())
def test_any_table_is_fitted_or_refused(columns: Any, labels: Any, n: int, typed: bool, numbers: bool) -> None:
    X, y = table(columns, n), pd.Series([labels[row % len(labels)] for row in range(n)], dtype=object)
    if typed:
        X, y = X.infer_objects(), y.infer_objects()
    with suppress(DwacError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model: Any = (DWACRegressor if numbers else DWACClassifier)(**QUICK).fit(X, y)
        assert len(model.predict(X)) == n
