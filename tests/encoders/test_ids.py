"""Whole numbers that differ in every row and look like ids are not learned from; measurements are."""

import numpy as np
import pandas as pd
import pytest

from dwac import DWACClassifier, load
from dwac.encoders import TabularEncoder

pytestmark = pytest.mark.usefixtures("few_steps")

N = 929


def table(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"work": ["nurse", "clerk"] * (N // 2) + ["cook"], **columns})


def used(X: pd.DataFrame, network: str = "default") -> list[object]:
    return [column.name for column in TabularEncoder(network).fit(X).columns if column.used]


@pytest.mark.parametrize("network", ["default", "wide", "numbers"])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("id", np.arange(1, N + 1)),
        ("id", np.random.default_rng(0).permutation(N) + 5_000),
        ("customer_id", np.random.default_rng(0).choice(10**9, N, replace=False)),
        ("orderNo", np.arange(N) * 7 + 10**6),
        ("Unnamed: 0", np.arange(N)),
        ("x", np.random.default_rng(1).permutation(N)),  # row numbers, whatever they are called
    ],
)
def test_an_id_is_not_learned_from(name: str, values: object, network: str) -> None:
    assert used(table(**{name: values}), network) == ["work"]
    names = table(**{name: [f"n{value}" for value in np.arange(N)]})
    assert used(names, network) == ["work"]  # as texts have always been


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("income", np.random.default_rng(0).choice(90_000, N, replace=False)),
        ("population", np.random.default_rng(0).choice(10**7, N, replace=False)),
        ("paid", np.arange(N) * 977),
        ("year", np.arange(1100, 1100 + N)),
        ("day", np.arange(N)),
        ("id", np.arange(N) // 2),  # it recurs
        ("id", np.arange(N).astype(float)),
        ("x", np.random.default_rng(0).integers(0, N, N)),
    ],
)
def test_a_measurement_is_learned_from(name: str, values: object) -> None:
    assert used(table(**{name: values})) == ["work", name]


def test_a_table_of_nothing_else_keeps_it_and_so_does_the_paper() -> None:
    assert used(pd.DataFrame({"x": range(60)})) == ["x"]
    assert used(table(id=np.arange(N)), "paper") == ["work", "id"]
    assert len(TabularEncoder().fit(np.arange(60).reshape(30, 2)).columns) == 2


def test_a_model_with_an_id_answers_the_same_for_any_id_and_is_saved(tmp_path) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"id": np.arange(1, 81), "age": rng.normal(size=80)})
    clf = DWACClassifier(random_state=0, device="cpu", verbose=False).fit(X, X["age"] > 0)
    again = load(clf.save(tmp_path / "m"), device="cpu")
    for model in (clf, again):
        np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(X.assign(id=7)))
