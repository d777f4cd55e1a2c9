"""What moved, in words: the right column, the right sentence, and nothing where nothing moved."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from dwac.errors import InputError
from dwac.monitoring.gauges import (
    COLUMN,
    CategoryGauge,
    NumberGauge,
    VoterGroups,
    changes,
    column_gauge,
    compare_counts,
)
from dwac.monitoring.state import Latest, StreamBlock, StreamHistory
from tests.chance import RARE
from tests.named import named, refuses

RNG = np.random.default_rng(0)
AGES = RNG.normal(38, 10, 1000).round()
JOBS = RNG.choice(["nurse", "clerk", "smith"], 1000, p=[0.5, 0.3, 0.2]).tolist()


def sentence(gauge: Any, values: Any) -> str:
    (found,) = changes([gauge], [gauge.tally(values)], 0.01)
    assert found.p_value <= 0.01
    assert str(found) == found.sentence
    return found.sentence


def test_a_moved_mean_is_named_with_what_it_was() -> None:
    told = sentence(NumberGauge("age", COLUMN, AGES), AGES[:400] + 14)
    assert named(told, "age", "mean", f"{(AGES[:400] + 14).mean():.4g}", f"{AGES.mean():.4g}")


def test_gaps_truth_values_and_dates_have_their_own_words() -> None:
    some = np.where(np.arange(400) < 160, np.nan, AGES[:400])
    assert named(sentence(NumberGauge("pay", COLUMN, AGES), some), "pay", "40 % missing", "0 %")
    coins = (np.arange(1000) % 2).astype(float)
    assert named(
        sentence(NumberGauge("member", COLUMN, coins, "boolean"), np.ones(300)), "member", "true", "100 %", "50 %"
    )
    days = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(1000) % 9, unit="D"))
    gauge = column_gauge(days, "since", "datetime")
    later = (days[:300] + pd.Timedelta(days=366)).astype("int64").to_numpy() / 10 ** {"s": 0, "ms": 3, "us": 6}.get(
        str(days.dt.unit), 9
    )
    assert named(sentence(gauge, later), "since", "mean", "2021-01-04", "2020-01-04")


def test_a_shape_that_changes_around_the_same_mean_is_named_by_its_range() -> None:
    narrow = np.full(400, AGES.mean()) + RNG.normal(0, 1, 400)
    assert "% above 3" in sentence(NumberGauge("age", COLUMN, AGES), narrow)


def test_categories_that_grow_or_are_new_are_named() -> None:
    gauge = CategoryGauge("job", COLUMN, JOBS)
    told = sentence(gauge, ["smith"] * 240 + ["nurse"] * 160)
    assert named(told, "job", "'smith' 60 %", f"{JOBS.count('smith') / 10:.0f} %")
    assert named(sentence(gauge, [*JOBS[:300], *["pilot"] * 100]), "job", "25 %", "training")
    assert named(sentence(gauge, [*JOBS[:300], *[None] * 100]), "job", "missing 25 %", "0 %")


def test_ids_that_are_always_new_are_no_change() -> None:
    gauge = CategoryGauge("id", COLUMN, [f"a{i}" for i in range(1000)])
    assert changes([gauge], [gauge.tally([f"b{i}" for i in range(500)])], 0.01) == []


def test_a_group_of_voters_that_becomes_nearer_is_named_alone() -> None:
    gauge = VoterGroups(["one", "two", "three"], np.arange(900) % 3)
    found = changes([gauge], [gauge.tally(np.array([0] * 200 + [1] * 200 + [2] * 20))], 0.01)
    assert found[0].name == "three"
    assert named(found[0].sentence, "three", "nearest voters", "5 %", "33 %")


@pytest.mark.parametrize("together", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_nothing_is_named_where_nothing_moved(together: int) -> None:
    false, gauge = 0, NumberGauge("age", COLUMN, AGES)
    rng = np.random.default_rng(1)
    for _ in range(500):
        gauges = [NumberGauge("age", COLUMN, rng.normal(size=300)) for _ in range(together)]
        false += bool(changes(gauges, [each.tally(rng.normal(size=300)) for each in gauges], 0.05))
    assert false <= binom.isf(RARE, 500, 0.05)  # 54
    assert changes([gauge], [gauge.empty()], 0.01) == []
    with refuses(InputError, "level", 0, 1, 2):
        changes([gauge], [gauge.empty()], 2)


def test_small_cells_are_counted_together() -> None:
    before, now = np.array([500, 1, 1, 1, 1]), np.array([100, 0, 0, 1, 0])
    assert compare_counts(before, now)[0] > 0.5


# What is remembered


def block(first: int, rows: int) -> StreamBlock:
    return StreamBlock(first, rows, 1, float(first), float(first + rows), 0.5, None, 0.0)


def test_the_history_stays_short_and_loses_no_row() -> None:
    history = StreamHistory()
    for row in range(0, 40_000, 4):
        history.add(block(row, 4))
    assert len(history.blocks) <= 201
    assert sum(each.rows for each in history.blocks) == 40_000
    assert sum(each.unreadable for each in history.blocks) == 10_000
    firsts = [each.first for each in history.blocks]
    assert firsts == [0, *np.cumsum([each.rows for each in history.blocks])[:-1].tolist()]
    assert {each.typicality for each in history.blocks} == {0.5}
    assert {each.credibility for each in history.blocks} == {None}
    assert StreamHistory.from_dict(history.to_dict()) == history


def test_only_the_latest_rows_are_compared() -> None:
    gauge = NumberGauge("age", COLUMN, AGES)
    latest = Latest([gauge])
    for first in range(0, 3000, 25):
        latest.add([gauge.tally(AGES[:25] + 50 if first < 2000 else AGES[first - 2000 : first - 1975])], first, 25)
    (tally,) = latest.since(0)
    assert tally.n == 1000
    assert changes([gauge], [tally], 0.01) == []
    assert latest.since(2900)[0].n == 100
    assert latest.since(9999)[0].n == 50
    again = Latest([gauge])
    again.restore(latest.to_dict())
    assert again.to_dict() == latest.to_dict()
    with refuses(ValueError, "columns"):
        Latest([gauge, gauge]).restore(latest.to_dict())


def test_nothing_was_counted_at_the_start() -> None:
    gauge = NumberGauge("age", COLUMN, AGES)
    assert Latest([gauge]).since(0)[0].n == 0
