"""What kind of target a column is, is judged from its values, and its values become what a model of that kind takes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac.errors import DwacError, InputError, LabelError
from dwac.estimator import DWACClassifier, DWACRegressor
from dwac.reading import Columns, Model, load, read
from dwac.reading.targets import infer_task, read_label_sets, read_target
from tests.named import refuses


def where(row: int) -> str:
    return f"line {row + 2}"


def task_of(values: Any) -> str:
    return infer_task(pd.DataFrame({"y": pd.Series(list(values), dtype=object)}), ["y"], where)[0]


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["yes", "no"] * 50, "classes"),
        (["0", "1"] * 50, "classes"),
        (["1.0", "2.0"] * 50, "classes"),
        (["true", "false"] * 50, "classes"),
        ([str(i % 10) for i in range(100)], "classes"),
        ([str(i % 100) for i in range(5000)], "classes"),  # codes of a hundred classes, fifty rows each
        ([str(17 + i % 70) for i in range(5000)], "numbers"),  # ages
        ([str(7 * i) for i in range(100)], "numbers"),
        (["0.5", "1.5"] * 50, "numbers"),
        (["1e3", "2.5e-1"] * 50, "numbers"),
        ([-3, 4, 5] * 40, "classes"),
        ([0.25, 4.0, 5.0] * 40, "numbers"),
        ([["a"], ["a", "b"], []] * 20, "labels"),
    ],
)
def test_the_task_is_judged_from_the_values(values: list[Any], task: str) -> None:
    assert task_of(values) == task


def test_several_columns_are_labels_or_numbers() -> None:
    frame = pd.DataFrame({"a": ["0", "1"], "b": ["1", "0"], "c": ["2.5", "-3"], "d": ["x", "1"]})
    assert infer_task(frame, ["a", "b"], where)[0] == "labels"
    assert infer_task(frame, ["a", "c"], where)[0] == "numbers"
    with refuses(LabelError, "line 2", 0, 1, "numbers", "d", "x"):
        infer_task(frame, ["a", "d"], where)


def test_numbers_may_be_written_in_many_ways() -> None:
    texts = pd.DataFrame({"y": ["1", " 2.50", "-3e2", "+4.", ".5"]})
    assert read_target(texts, ["y"], where, "numbers")[0].tolist() == [1, 2.5, -300, 4, 0.5]
    commas = pd.DataFrame({"y": ["1,5", "2", "-3,25"]})
    assert read_target(commas, ["y"], where, "numbers")[0].tolist() == [1.5, 2, -3.25]
    with refuses(LabelError, "line 3", "y", "number", "1,234.5"):
        read_target(pd.DataFrame({"y": ["2.5", "1,234.5"]}), ["y"], where, "numbers")


@pytest.mark.parametrize(
    ("value", "why"),
    [(None, "missing"), ("", "missing"), ("nan", "missing"), ("-inf", "infinite"), (np.inf, "infinite"),
     ("1e999", "infinite"), ("cheap", "'cheap'"), (True, "'True'")],
)  # fmt: skip
def test_what_is_no_number_is_named_with_its_line(value: Any, why: str) -> None:
    frame = pd.DataFrame({"y": pd.Series(["1.5", value, "2"], dtype=object)})
    with refuses(LabelError, "line 3", "'y'", why):
        read_target(frame, ["y"], where, "numbers")


def test_labels_in_cells_and_lists_are_the_same() -> None:
    cells: Any = read_label_sets(pd.DataFrame({"y": ["b|a", None, " a | a ", "c"]}), ["y"], where)
    lists: Any = read_label_sets(pd.DataFrame({"y": [["b", "a"], [], ["a", "a"], ["c"]]}), ["y"], where)
    assert cells.tolist() == lists.tolist() == [["b", "a"], [], ["a"], ["c"]]
    with refuses(LabelError, "line 3", "y", "list", "None"):
        read_label_sets(pd.DataFrame({"y": pd.Series([["a"], None], dtype=object)}), ["y"], where)
    with refuses(LabelError, "line 2", "y", 1.5):
        read_label_sets(pd.DataFrame({"y": [[1.5]]}), ["y"], where)


def test_an_order_names_every_label_once() -> None:
    frame = pd.DataFrame({"y": ["mid", "low", "high", "low"], "stars": ["2", "10", "1", "2"]})
    y, task, _ = read_target(frame, ["y"], where, None, ["low", "mid", "high", "huge"])
    assert task == "ordered"
    assert y.cat.categories.tolist() == ["low", "mid", "high"]  # as far as they occur
    assert read_target(frame, ["stars"], where, "ordered")[0].cat.categories.tolist() == [1, 2, 10]
    with refuses(InputError, "high"):
        read_target(frame, ["y"], where, None, ["low", "mid"])
    with refuses(InputError, "y", "twice"):
        read_target(frame, ["y"], where, None, ["low", "mid", "high", "low"])
    with refuses(InputError, "regression", "classes", "ordered", "labels", "numbers"):
        read_target(frame, ["y"], where, "regression")


def test_sentences_may_come_with_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("4.5\ta fine film\n1.0\ta bad film\n")
    rows = read(tmp_path / "a.txt")
    assert rows.task == "numbers"
    assert rows.y.tolist() == [4.5, 1.0]
    assert read(tmp_path / "a.txt", task="ordered").y.cat.categories.tolist() == [1.0, 4.5]


def test_lists_are_for_targets_alone(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": [1], "y": ["a"]}\n')
    with refuses(InputError, "line 1", "x"):
        read(tmp_path / "a.jsonl", target="y")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    return pd.DataFrame({"x": x, "p": x + 1, "q": 2 * x, "up": (x > 0) * 1, "big": (abs(x) > 1) * 1})


@pytest.mark.filterwarnings("ignore:.*have no label at all:UserWarning")
def test_a_model_reads_its_targets_in_any_order_and_says_which_are_lacking(table: pd.DataFrame, tmp_path: Path) -> None:
    table.to_csv(tmp_path / "a.csv", index=False)
    rows = read(tmp_path / "a.csv", target=["up", "big"])
    assert (rows.task, rows.columns.target) == ("labels", ("up", "big"))
    clf = DWACClassifier(epochs=1, random_state=0, device="cpu").fit(rows.X, rows.y, ids=rows.ids)
    Model(clf, rows.columns).save(tmp_path / "m")
    model = load(tmp_path / "m")
    assert model.columns.target == ("up", "big")
    table[table.columns[::-1]].to_csv(tmp_path / "b.csv", index=False)
    again = read(tmp_path / "b.csv", like=model, labelled=True)
    assert again.y.columns.tolist() == ["up", "big"]
    assert again.y.to_numpy().tolist() == table[["up", "big"]].to_numpy().tolist()
    table.drop(columns="big").to_csv(tmp_path / "c.csv", index=False)
    with refuses(InputError, "big", "target"):
        read(tmp_path / "c.csv", like=model, labelled=True)
    with refuses(InputError, "'up', 'big'", "got 'up'"):
        read(tmp_path / "a.csv", like=model, labelled=True, target="up")
    with refuses(InputError, "'up', 'big'", "'up', 'p'"):
        read(tmp_path / "a.csv", like=model, labelled=True, target=["up", "p"])
    assert read(tmp_path / "c.csv", like=model).y is None


def test_a_model_of_numbers_refuses_texts_by_line(table: pd.DataFrame, tmp_path: Path) -> None:
    reg = DWACRegressor(epochs=1, random_state=0, device="cpu").fit(table[["x"]], table["p"])
    model = Model(reg, Columns(target="p"))
    table.astype(object).assign(p=["cheap", *table["p"][1:]]).to_csv(tmp_path / "a.csv", index=False)
    with refuses(DwacError, "a.csv line 2", "p", "number", "cheap"):
        read(tmp_path / "a.csv", like=model, labelled=True)
    with refuses(InputError, "one column", "'p', 'q'"):
        read(tmp_path / "a.csv", like=model, labelled=True, target=["p", "q"])
    (tmp_path / "texts.txt").write_text("a film\n")
    with refuses(InputError, "table"):
        read(tmp_path / "texts.txt", like=model)
