"""What `dwac train` says of columns that it does not read as people may expect."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac.cli.train_output import sort_columns
from dwac.encoders import TabularEncoder
from dwac.errors import InputError
from dwac.reading import Rows, read
from tests.cli.helpers import people, run

N = 480


def noted(tmp_path: Any, **columns: Any) -> tuple[Rows, tuple[str, ...]]:
    frame = pd.DataFrame({"work": ["nurse", "clerk"] * (N // 2), **columns, "y": ["a", "b"] * (N // 2)})
    frame.to_csv(tmp_path / "a.csv", index=False)
    rows = read(tmp_path / "a.csv", target="y")
    return rows, sort_columns(TabularEncoder().fit(rows.X).columns, rows).notes


@pytest.mark.parametrize(
    ("name", "values", "named"),
    [
        ("id", np.arange(1, N + 1), ["'id'", "--id id", "--kind id=numbers"]),
        ("dose", ["k.A." if i % 9 == 0 else ">100" if i % 31 == 0 else str(i % 50) for i in range(N)],
         ["'dose'", "'k.A.'", "'>100'", "--ignore dose"]),
        ("town", [f"t{i % 240}" for i in range(N)], ["'town'", "240", "--ignore town"]),
    ],
)  # fmt: skip
def test_a_column_that_may_surprise_is_noted(name: str, values: Any, named: list[str], tmp_path: Any) -> None:
    (note,) = noted(tmp_path, **{name: values})[1]
    assert all(word in note for word in named)


def test_other_columns_are_not_noted_and_an_id_is_kept_where_that_is_asked(tmp_path: Any) -> None:
    fine = {"age": np.arange(N) % 60, "income": np.arange(N) * 977 + 20_000, "size": ["S", "M", "L"] * (N // 3)}
    assert noted(tmp_path, **fine)[1] == ()
    noted(tmp_path, id=np.arange(N))
    rows = read(tmp_path / "a.csv", target="y", kinds={"id": "numbers"})
    assert sort_columns(TabularEncoder().fit(rows.X).columns, rows)[1:] == ({}, ())


def test_train_learns_the_columns_once_and_shows_them_before_it_trains(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    people().to_csv(tmp_path / "people.csv", index=False)
    adopt, learned = TabularEncoder.adopt, list[int]()

    def count(self: TabularEncoder, columns: Any, rows: int, *rest: Any) -> TabularEncoder:
        learned.append(rows)
        return adopt(self, columns, rows, *rest)

    def stop(*_: Any, **__: Any) -> None:
        raise InputError("this is where training begins")

    monkeypatch.setattr(TabularEncoder, "adopt", count)
    monkeypatch.setattr("dwac.training.train", stop)
    shown = run("train", tmp_path / "people.csv", "-t", "income", "-o", tmp_path / "model", "--epochs", 1, ends=1)
    assert "where training begins" in shown.stderr
    assert all(line in shown.stdout for line in ("numbers     age", "categories  work", "not used    name"))
    assert len(learned) == 1
