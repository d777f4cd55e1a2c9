"""What is learned of a table in one pass: the same as from all rows at once, except for quantiles of a sample."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dwac.encoders import TabularEncoder, summary
from dwac.encoders.summary import Counts, TableSummary
from dwac.errors import InputError, KindError
from tests.named import named, refuses

N = 4_000


def table(n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "amount": rng.choice([0.0, 100.0, 5000.0, 99999.0], n),
            "flag": rng.random(n) < 0.3,
            "two": rng.choice([1, 7], n),
            "length": rng.normal(size=n),
            "town": rng.choice(["a", "b", "c"], n),
            "id": [f"id{i}" for i in range(n)],
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 10**7, n), unit="s"),
            "nothing": np.full(n, np.nan),
            "same": 3.0,
        }
    )
    frame.loc[::17, "length"] = np.nan
    frame.loc[5, "length"] = 40.0  # the largest value, which hardly any sample has
    frame.loc[7, "town"] = "rare"
    frame.loc[9:10, "town"] = "twice"
    frame.loc[11, "amount"] = np.nan
    return frame


def summarised(frame: pd.DataFrame, size: int = 700) -> TableSummary:
    found = TableSummary()
    for start in range(0, len(frame), size):
        found.update(frame.iloc[start : start + size])
    return found


@pytest.mark.parametrize("network", ["default", "numbers", "paper", "wide"])
def test_a_sample_of_all_rows_gives_the_encoder_of_all_rows(network: str) -> None:
    frame = table()
    streamed = summarised(frame).fit(TabularEncoder(network), frame)
    assert streamed.config() == TabularEncoder(network).fit(frame).config()


@pytest.mark.parametrize("network", ["default", "numbers", "paper", "wide"])
def test_only_quantiles_depend_on_the_sample(network: str) -> None:
    frame = table()
    sample = frame.sample(800, random_state=1).reset_index(drop=True)
    streamed = summarised(frame).fit(TabularEncoder(network), sample)
    full = TabularEncoder(network).fit(frame)
    assert streamed.rows == full.rows
    assert streamed.recipe == full.recipe
    for mine, theirs in zip(streamed.columns, full.columns, strict=True):
        facts = ("name", "kind", "gaps", "categories")
        assert [getattr(mine, name) for name in facts] == [getattr(theirs, name) for name in facts]
        for one, other in zip(mine.scales, theirs.scales, strict=True):
            assert (one is None) == (other is None)
            if one is None or other is None:
                continue
            assert one.form == other.form
            if one.form in ("binary", "standard"):
                np.testing.assert_allclose(one.values, other.values, rtol=1e-12)
                continue
            assert one.values[:1] + one.values[-1:] == other.values[:1] + other.values[-1:]  # noqa: PD011 - a list
            if mine.name == "length":  # a quantile of a sample, by its rank among all: within the bound of DKW
                x = frame["length"].dropna().to_numpy()
                levels = np.linspace(0, 1, len(one.values))
                bound = np.sqrt(np.log(2 / 1e-6) / (2 * 700)) + 1 / 700
                assert np.abs(np.searchsorted(np.sort(x), one.values) / len(x) - levels).max() < bound
    assert streamed.transform(frame)[0].shape == full.transform(frame)[0].shape
    streamed.check()


@settings(max_examples=50)
@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=20), max_size=12), st.integers(1, 8))
def test_a_sketch_never_counts_too_much_and_misses_no_frequent_value(parts: list[list[str]], most: int) -> None:
    counts, exact = Counts(most), Counter[str]()
    for part in parts:
        counts.add(dict(Counter(part)))
        exact.update(part)
    assert len(counts.by_value) <= most
    assert counts.short <= exact.total() / (most + 1)
    for value, count in exact.items():
        assert 0 <= count - counts.by_value.get(value, 0) <= counts.short


def test_very_many_categories_are_counted_by_a_sketch_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(6000) < 0.5, rng.choice(["x", "y"], 6000), rng.integers(0, 10**9, 6000).astype(str))
    frame = pd.DataFrame({"c": values})
    found = TableSummary()
    found.columns = [summary.ColumnSummary("c")]
    found.columns[0].categories = Counts(100)
    for start in range(0, 6000, 500):
        found.update(frame.iloc[start : start + 500])
    monkeypatch.setattr(summary, "CATEGORIES", 10)
    encoder = found.fit(TabularEncoder(), frame.head(1000))
    assert {"x", "y"} <= set(encoder.columns[0].categories)
    assert len(encoder.columns[0].categories) <= 10
    assert any(named(line, "c") for line in found.notes(1000))


def test_batches_of_other_columns_or_kinds_are_refused() -> None:
    found = summarised(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}))
    with refuses(InputError, "a", "b"):
        found.update(pd.DataFrame({"a": [1.0]}))
    with refuses(KindError, "numeric", "categorical"):
        found.update(pd.DataFrame({"a": ["z"], "b": ["x"]}))
