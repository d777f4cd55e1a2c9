"""Tables: every kind of column becomes tensors, what does not fit is named, and the networks take what comes out."""

import datetime
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_matrix
from sklearn.preprocessing import QuantileTransformer

from dwac.encoders.scales import Scale
from dwac.encoders.tabular import TabularEncoder
from dwac.encoders.tabular_networks import UNKNOWN, TabularNetwork, drop
from dwac.errors import InputError, NonFiniteError, ShapeError
from dwac.nn import WeightedAverage
from tests.named import refuses

RNG = np.random.default_rng(0)
N = 200


def frame(n=N, seed=0):
    """A column of every kind, with gaps in most."""
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D")
    gap = np.arange(n) % 7 == 3
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "income": np.where(gap, np.nan, rng.lognormal(10, 1, n)),
            "children": pd.Series(rng.integers(0, 5, n)).astype("Int64").mask(gap),
            "member": rng.random(n) > 0.5,
            "asked": pd.Series(rng.random(n) > 0.5).astype("boolean").mask(gap),
            "job": np.where(gap, None, rng.choice(["nurse", "clerk", "smith"], n)),
            "town": pd.Series(rng.choice(["Oslo", "Rome"], n)).astype("string"),
            "grade": pd.Categorical(rng.integers(1, 4, n)),
            "bin": pd.cut(rng.random(n), 3),
            "day": days,
            "seen": pd.Series(days).dt.tz_localize("Europe/Berlin").where(~gap),
            "wait": pd.to_timedelta(rng.integers(1, 999, n), unit="s"),
            "constant": 1.0,
            "nothing": np.nan,
            "void": None,
            "id": [f"id{i}" for i in range(n)],
        }
    )


def same(encoder, A, B):
    return all(torch.equal(a, b) for a, b in zip(encoder.transform(A), encoder.transform(B), strict=True))


def restored(encoder):
    return TabularEncoder.from_config(json.loads(json.dumps(encoder.config(), allow_nan=False)))


def run(encoder, X):
    """A step of training and one of evaluation."""
    model = WeightedAverage(encoder.network(), 2, 4)
    inputs = encoder.transform(X)
    y = torch.arange(len(X)) % 2
    model.loss(inputs, y).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    features = encoder.network().eval()(*inputs)
    assert features.shape == (len(X), encoder.widths[-1])
    return features


# What fits


@pytest.mark.parametrize("network", ["default", "paper"])
def test_every_kind_of_column_in_one_frame(network):
    X = frame()
    encoder = TabularEncoder(network).fit(X)
    kinds = {column.name: column.kind for column in encoder.columns}
    assert [kinds[name] for name in ("age", "income", "children", "wait", "constant")] == ["numeric"] * 5
    assert [kinds[name] for name in ("member", "asked")] == ["boolean"] * 2
    assert [kinds[name] for name in ("job", "town", "grade", "bin", "id")] == ["categorical"] * 5
    assert [kinds[name] for name in ("day", "seen")] == ["datetime"] * 2
    assert [kinds[name] for name in ("nothing", "void")] == ["empty"] * 2
    numeric, categorical = encoder.transform(X)
    assert numeric.dtype == torch.float32
    assert categorical.dtype == torch.int64
    assert torch.isfinite(numeric).all()
    # age, income, children, wait and two dates of time, month and weekday (the hour only of the one with a summer
    # time); member and asked; gaps of income, children, asked and seen; how far beyond training, which is nowhere
    assert numeric.shape == (N, 4 + 3 + 3 + 3 + 4 + (network == "default"))
    assert network == "paper" or (numeric[:, -1] == 0).all()
    assert categorical.shape == (N, 4 + (network == "paper"))
    run(encoder, X)


def test_arrays_lists_and_frames_are_the_same_table():
    X = pd.DataFrame({0: [1.5, 2, 3, None] * 10, 1: ["a", "b", "a", None] * 10, 2: [True, False, False, True] * 10})
    encoder = TabularEncoder().fit(X)
    rows = X.astype(object).where(X.notna(), None).to_numpy()
    for other in (rows, rows.tolist(), [tuple(row) for row in rows]):
        assert TabularEncoder().fit(other).config() == encoder.config()
        assert same(encoder, X, other)
    numbers = RNG.normal(size=(30, 3))
    encoder = TabularEncoder().fit(numbers)
    for alike in (numbers.tolist(), pd.DataFrame(numbers), torch.from_numpy(numbers), np.asfortranarray(numbers)):
        assert same(encoder, numbers, alike)
    assert same(TabularEncoder().fit(pd.DataFrame(numbers, columns=list("abc"))), numbers, numbers.tolist())


def test_the_order_of_a_frames_columns_and_its_index_do_not_matter():
    X = frame()
    encoder = TabularEncoder().fit(X.set_index(RNG.permutation(N)))
    assert encoder.config() == TabularEncoder().fit(X).config()
    assert same(encoder, X, X[X.columns[::-1]].set_index(RNG.integers(0, 3, N)))
    assert list(encoder.records(X[X.columns[::-1]]).columns) == list(X.columns)


@pytest.mark.parametrize("network", ["default", "wide"])
def test_columns_read_all_at_once_are_as_one_by_one(network):
    rng, n = np.random.default_rng(0), 600
    X = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "income": np.where(rng.random(n) < 0.1, np.nan, rng.lognormal(10, 1, n)),
            "paid": rng.choice([0.0, 5000.0, 7500.0, 90000.0], n, p=[0.7, 0.1, 0.1, 0.1]),
            "member": rng.random(n) > 0.5,
            "job": rng.choice(np.array(["nurse", "clerk", None, "1"], dtype=object), n),
            "code": rng.choice(np.array([1, 2.5, np.inf, "a", True, None], dtype=object), n),
            "constant": 1.0,
            "id": [f"id{i}" for i in range(n)],
        }
    )
    encoder = TabularEncoder(network).fit(X)
    new = X.copy()
    new.loc[::3, "job"], new.loc[::5, "age"], new.loc[::7, "paid"] = "pilot", 300, np.nan
    cells = new.astype(object).to_numpy()
    rows: list[Any] = [new, new[:1], new[:500], new[new.columns[::-1]][:9], new.astype(object), cells, cells[:3]]
    for Z in [*rows, cells.tolist(), [tuple(row) for row in cells[:2]]]:
        at_once, one_by_one = encoder.plan.read(Z), encoder._read_columns(encoder.records(Z))
        assert (at_once is None) == (Z is new)  # many rows of mixed types are read faster one by one
        for a, b in zip(at_once or one_by_one, one_by_one, strict=True):
            assert a.dtype == b.dtype
            assert np.array_equal(a, b, equal_nan=True)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1, 2, 3, None] * 9, dtype=object),
        pd.Series([1, 2, 3, None] * 9, dtype="Int64"),
        pd.Series([1, 2, 3, None] * 9, dtype="Float32"),
        pd.Series([Decimal(1), Decimal(2), Decimal(3), None] * 9),
        pd.Series([1, np.float32(2), np.int8(3), pd.NA] * 9, dtype=object),
        pd.to_timedelta(pd.Series([1, 2, 3, None] * 9), unit="s"),
        pd.Series([datetime.timedelta(seconds=i) if i else None for i in (1, 2, 3, 0)] * 9, dtype=object),
    ],
    ids=str,
)
def test_numbers_of_any_type_are_the_same_numbers(column):
    X = pd.DataFrame({"x": pd.Series([1, 2, 3, np.nan] * 9)})
    encoder = TabularEncoder().fit(X)
    assert TabularEncoder().fit(column.to_frame("x")).config() == encoder.config()
    assert same(encoder, X, column.to_frame("x"))


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["2024-01-31T10:00:00Z", "2024-03-01", None] * 9),
        pd.Series([pd.Timestamp("2024-01-31 11:00", tz="Europe/Berlin"), datetime.date(2024, 3, 1), None] * 9),
        pd.to_datetime(pd.Series(["2024-01-31T10:00", "2024-03-01T00:00", None] * 9)).dt.tz_localize("UTC"),
        pd.Series(pd.PeriodIndex(["2024-01-31T10:00", "2024-03-01T00:00", None] * 9, freq="h")),
    ],
    ids=str,
)
def test_dates_of_any_type_are_the_same_dates(column):
    X = pd.DataFrame({"x": pd.to_datetime(pd.Series(["2024-01-31T10:00", "2024-03-01T00:00", None] * 9))})
    assert same(TabularEncoder().fit(X), X, column.to_frame("x"))


def test_numbers_are_scaled_as_scikit_learn_does():
    x = np.round(RNG.lognormal(size=(600, 1)), 1)
    numeric, _ = TabularEncoder().fit(x).transform(x)
    peer = QuantileTransformer(n_quantiles=20, output_distribution="normal", subsample=None).fit_transform(x)
    np.testing.assert_allclose(numeric.numpy(), np.pad(peer, ((0, 0), (0, 1))), atol=1e-5)  # and nothing beyond
    numeric, _ = TabularEncoder("paper").fit(x).transform(x)
    np.testing.assert_allclose(numeric.numpy(), (x - x.mean()) / x.std(), atol=1e-5)


def test_two_valued_numbers_stay_plain():
    X = np.column_stack([RNG.integers(0, 2, 50), RNG.integers(0, 2, 50) * 7 + 3])
    encoder = TabularEncoder().fit(X)
    numeric, _ = encoder.transform(X)
    assert torch.equal(numeric, torch.from_numpy(np.pad((X - [0, 3]) / [1, 7], ((0, 0), (0, 1)))).float())
    assert encoder.network().periodic is None


def test_missing_numbers_get_the_median_and_a_flag_where_training_had_some():
    X = pd.DataFrame({"a": [1.0, 2, 9, np.nan, 3], "b": [1.0, 2, 9, 4, 3]})
    encoder = TabularEncoder().fit(X)
    numeric, _ = encoder.transform(pd.DataFrame({"a": [np.nan, 2.5], "b": [np.nan, 3.0]}))
    assert torch.equal(numeric[0, :2], numeric[1, :2])
    assert numeric[:, 2:].tolist() == [[1.0, 1.0], [0.0, 0.0]]  # the last: b's gap is one that training never had


def beyond(encoder: TabularEncoder, **row: Any) -> float:
    return float(encoder.transform(pd.DataFrame({name: [value] for name, value in row.items()}))[0][0, -1])


def test_the_last_number_says_how_far_a_row_is_beyond_training():
    X = pd.DataFrame({"a": np.arange(101.0), "b": [np.nan, *np.arange(100.0)], "c": np.arange(101) % 2, "d": 3.0})
    encoder = TabularEncoder().fit(X)
    assert (encoder.transform(X)[0][:, -1] == 0).all()
    usual = {"a": 50, "b": 50, "c": 1, "d": 3.0}
    assert beyond(encoder, **usual) == beyond(encoder, **usual | {"a": 0.5}) == 0
    assert beyond(encoder, **usual | {"a": 200}) == pytest.approx(10.4) == beyond(encoder, **usual | {"a": -100})
    assert beyond(encoder, **usual | {"a": 1e300}) == 1000
    assert beyond(encoder, **usual | {"b": np.nan}) == 0  # there is a flag for that
    assert beyond(encoder, **usual | {"d": np.nan}) == 0  # it tells nothing
    one = beyond(encoder, **usual | {"a": np.nan})
    assert one == beyond(encoder, **usual | {"c": np.nan}) == pytest.approx(0.5**0.5)
    assert beyond(encoder, **usual | {"a": np.nan, "c": np.nan}) == pytest.approx(2**0.5)
    assert beyond(encoder, **usual | {"a": np.nan, "b": 200}) > one


def test_dates_do_not_make_a_row_unfamiliar():
    days = pd.Series(pd.date_range("2024-01-01", periods=60)).where(np.arange(60) != 7)
    encoder = TabularEncoder().fit(pd.DataFrame({"day": days, "n": np.arange(60.0)}))
    rows = pd.DataFrame({"day": [days[3], pd.Timestamp("2031-07-01 12:00"), None], "n": 5.0})
    z = encoder.network().raw_features(*encoder.transform(rows))
    assert z.shape == (3, 1)
    assert torch.equal(z, z[[0, 0, 0]])
    compared = encoder.network().compared_features(*encoder.transform(rows))
    assert compared.shape == (3, 2)  # and how far beyond training
    assert torch.equal(compared, compared[[0, 0, 0]])
    network = TabularEncoder().fit(rows[["day"]]).network()
    assert network.n_raw_features == network.n_compared_features == 0


def test_rows_that_differ_in_a_category_are_1_apart_and_unseen_ones_differ_from_all():
    X = pd.DataFrame({"n": 5.0, "a": ["x", "y"] * 10, "b": ["x", "y"] * 9 + ["once", None]})
    X.loc[0, "n"] = 6.0
    encoder = TabularEncoder().fit(X)
    network = encoder.network()

    def z(**row: Any) -> torch.Tensor:
        usual = {"n": 5.0, "a": "x", "b": "x"}
        found = network.compared_features(*encoder.transform(pd.DataFrame([usual | row])))
        assert found.shape == (1, network.n_compared_features)
        return found[0]

    def apart(one: torch.Tensor, other: torch.Tensor) -> Any:
        return pytest.approx(float((one - other).square().sum()), abs=1e-6)

    assert apart(z(), z()) == 0
    assert apart(z(), z(a="y")) == apart(z(a="y"), z(a="new")) == apart(z(), z(a=None)) == 1
    assert apart(z(b="y"), z(a="y")) == 2
    assert apart(z(b="once"), z(b="new")) == 0  # rare ones are like unseen ones


def test_many_categories_share_places_and_unseen_ones_have_their_own():
    X = pd.DataFrame({"a": [f"v{i % 300}" for i in range(900)], "b": ["x", "y", "z"] * 300})
    encoder = TabularEncoder().fit(X)
    network = encoder.network()
    assert network.n_compared_features <= 128
    z = network.compared_features(*encoder.transform(X))
    new = network.compared_features(*encoder.transform(pd.DataFrame({"a": ["v0", "new"], "b": ["new", "x"]})))
    assert (torch.cdist(new, z).square().amin(dim=1) > 1 - 1e-5).all()


def test_the_network_does_not_read_how_far_a_row_is_beyond_training():
    X = frame().drop(columns=["day", "seen"])
    encoder = TabularEncoder().fit(X)
    numeric, categorical = encoder.transform(X)
    network = encoder.network().eval()
    far = numeric.clone()
    far[:, -1] = 7
    assert torch.equal(network(numeric, categorical), network(far, categorical))
    assert torch.equal(network.raw_features(far, categorical), far[:, :-1])
    compared = network.compared_features(far, categorical)
    assert torch.equal(compared[:, : far.shape[1]], far)


def test_unseen_and_rare_categories_share_an_index_of_their_own():
    X = pd.DataFrame({"c": ["a"] * 5 + ["b"] * 5 + [None] * 2 + ["once"]})
    encoder = TabularEncoder().fit(X)
    _, indices = encoder.transform(pd.DataFrame({"c": ["a", "b", None, "once", "never", 3]}))
    assert indices[:3, 0].unique().numel() == 3
    assert indices[:3].min() > UNKNOWN
    assert indices[3:, 0].tolist() == [UNKNOWN] * 3
    assert run(TabularEncoder("paper").fit(X), X).isfinite().all()


def test_a_missing_category_is_unknown_where_training_had_none():
    encoder = TabularEncoder().fit([["a"], ["b"]] * 5)
    assert encoder.transform([[None], ["a"]])[1].tolist() == [[UNKNOWN], [1]]


def test_the_unknown_index_is_trained_even_if_nothing_is_rare():
    network: Any = TabularEncoder().fit([["a"], ["b"]] * 5).network()
    torch.manual_seed(0)
    indices = torch.ones(1000, 1, dtype=torch.int64)
    network(torch.empty(1000, 0), indices).sum().backward()
    assert network.table.grad[UNKNOWN].abs().sum() > 0
    network.zero_grad()
    network.eval()(torch.empty(1000, 0), indices).sum().backward()
    assert network.table.grad[UNKNOWN].abs().sum() == 0


def test_scattered_amounts_are_categories_too_and_measurements_are_not():
    amounts, ages = RNG.choice([0, 0, 0, 594, 7688, 15024], 500), RNG.integers(18, 40, 500)
    X = pd.DataFrame({"gain": amounts, "age": ages})
    gain, age = TabularEncoder().fit(X).columns
    assert gain.categories == [0, 594, 7688, 15024]
    assert age.categories == []
    assert [column.categories for column in TabularEncoder("paper").fit(X).columns] == [[], []]
    numeric, indices = TabularEncoder().fit(X).transform(pd.DataFrame({"gain": [594, 600], "age": [20, 20]}))
    assert indices.tolist() == [[2], [UNKNOWN]]
    assert numeric.shape == (2, 3)


@pytest.mark.parametrize("n_rows", [1, 5])
def test_tables_in_which_nothing_varies_still_work(n_rows):
    X = pd.DataFrame({"a": [1.0] * n_rows, "b": [None] * n_rows, "c": ["x"] * n_rows, "d": [np.nan] * n_rows})
    encoder = TabularEncoder().fit(X)
    assert [tuple(x.shape) for x in encoder.transform(X)] == [(n_rows, 0)] * 2
    assert run(encoder, X).isfinite().all()
    Z = pd.DataFrame({"a": [2.0], "b": ["anything"], "c": [None], "d": ["text"]})
    assert [tuple(x.shape) for x in encoder.transform(Z)] == [(1, 0)] * 2


def test_an_empty_table_transforms_to_empty_tensors():
    X = frame()
    encoder = TabularEncoder().fit(X)
    assert [len(x) for x in encoder.transform(X.iloc[:0])] == [0, 0]


# What does not fit


@pytest.fixture(scope="module")
def of_every_kind():
    """An encoder of a column of every kind; tests do not change it."""
    return TabularEncoder().fit(frame())


@pytest.mark.parametrize(
    ("change", "error", "facts"),
    [
        (lambda X: X.drop(columns="age"), InputError, ["age", "income"]),
        (lambda X: X.rename(columns={"age": "Age"}), InputError, ["age", "Age"]),
        (lambda X: X.assign(extra=1), InputError, ["extra", "drop"]),
        (lambda X: X.assign(age=[*X["age"][:-1].astype(str), "9"]), InputError, ["age", "row 0"]),
        (lambda X: X.assign(income=["many" if i == 3 else 1.0 for i in range(N)]), InputError, ["many", "row 3"]),
        (lambda X: X.assign(income=X["day"]), InputError, ["income", "Timestamp"]),
        (lambda X: X.assign(income=np.where(X.index == 5, -np.inf, 1)), NonFiniteError, ["income", "-inf", "row 5"]),
        (
            lambda X: X.assign(age=pd.Series([10**400, *[1] * (N - 1)], index=X.index, dtype=object)),
            NonFiniteError,
            ["age"],
        ),
        (lambda X: X.assign(age=1j), InputError, ["Complex data not supported", "age"]),  # as scikit-learn wants it
        (lambda X: X.assign(day=5), InputError, ["day", 5, "row 0"]),
        (lambda X: X.assign(day=["2024-01-01", "31/12"] * (N // 2)), InputError, ["day", "31/12", "row 1"]),
        (lambda X: X.assign(job=[[1]] * N), InputError, ["job", [1], "row 0"]),
        (lambda X: pd.concat([X, X[["age"]]], axis=1), InputError, ["age"]),
        (lambda X: X.set_axis(pd.MultiIndex.from_product([["a"], X.columns]), axis=1), InputError, ["strings"]),
        (
            lambda X: X.to_numpy()[:, 1:],
            ShapeError,
            ["X has 15 features, but TabularEncoder is expecting 16"],  # as scikit-learn wants it
        ),
        (lambda X: X.to_numpy()[0], ShapeError, [2, "(16,)", "Reshape your data"]),
        (lambda X: [[1, 2], [3]], ShapeError, ["row 0", 2, "row 1", 1]),
        (lambda X: [], ShapeError, []),
        (lambda X: [1, 2], ShapeError, ["list"]),
        (lambda X: X["age"], ShapeError, [2]),
        (lambda X: csr_matrix(np.eye(3)), InputError, ["dense", "sparse"]),
    ],
)
def test_what_does_not_fit_is_named(of_every_kind, change, error, facts):
    with refuses(error, *facts):
        of_every_kind.transform(change(frame()))


@pytest.mark.parametrize(
    ("X", "error", "facts"),
    [
        (np.empty((3, 0)), ShapeError, ["0 feature(s)"]),  # as scikit-learn wants it
        (np.empty((0, 3)), ShapeError, ["0 sample(s)"]),
        ([[1.0], [np.inf]], NonFiniteError, ["column 0", "inf", "row 1"]),
        (np.array([[1 + 1j], [2]]), InputError, ["Complex data"]),
        (pd.DataFrame({"c": ["a", ["b"]]}, index=[7, 9]), InputError, ["c", ["b"], "row 1"]),
    ],
)
def test_fit_names_what_it_cannot_learn_from(X, error, facts):
    with refuses(error, *facts):
        TabularEncoder().fit(X)


@pytest.mark.parametrize(
    "settings", [{"network": "papre"}, {"width": 0}, {"depth": 0}, {"dropout": 1.0}, {"sigma": 0.0}, {"frequencies": 0}]
)
def test_wrong_settings_are_refused(settings):
    with refuses(InputError, *settings):
        TabularEncoder(**settings)


# Storage and records


def test_categories_keep_their_types():
    values = ["1", 1, 2.5, None, "a", np.int64(7), np.float32(0.5), float("inf"), datetime.time(9)] * 2
    X = pd.DataFrame({"c": pd.Series(values, dtype=object), "b": pd.Categorical([True, False, True] * 6)})
    encoder = restored(TabularEncoder().fit(X))
    assert set(map(repr, encoder.columns[0].categories)) == set(
        map(repr, ["1", 1, 2.5, None, "a", 7, 0.5, "inf", "09:00:00"])
    )
    assert encoder.columns[1].categories == [False, True]
    assert encoder.transform(X)[1].min() > UNKNOWN


def test_records_are_the_original_columns():
    X = frame()
    encoder = TabularEncoder().fit(X)
    pd.testing.assert_frame_equal(encoder.records(X.set_index(RNG.permutation(N))[X.columns[::-1]]), X)
    assert list(encoder.records(X.to_numpy()).columns) == list(X.columns)


# Networks


@pytest.mark.parametrize(("p", "b", "sizes"), [(3, 2, [2, 5]), (3, 0, []), (0, 2, []), (0, 0, [4]), (0, 0, [])])
def test_networks_take_tables_without_numbers_or_without_categories(p, b, sizes):
    network = TabularNetwork(p, b, sizes, [8, 6])
    categorical = (
        torch.stack([torch.arange(7) % (size + 1) for size in sizes], 1) if sizes else torch.empty(7, 0).long()
    )
    numeric = torch.randn(7, p + b, requires_grad=True)
    network(numeric, categorical).square().sum().backward()
    assert network.eval()(numeric, categorical).shape == (7, 6)
    assert all(q.grad is not None for q in network.parameters())


def test_the_papers_network_is_an_mlp_on_standardised_numbers_and_one_hot_categories():
    X = pd.DataFrame({"x": RNG.normal(size=40), "c": RNG.choice(list("abc"), 40)})
    encoder = TabularEncoder("paper").fit(X)
    network: Any = encoder.network().eval()
    numeric, categorical = encoder.transform(X)
    one_hot = torch.eye(4)[categorical[:, 0]][:, 1:]
    first = torch.relu(
        torch.cat([numeric, one_hot], 1) @ torch.cat([network.weight.T, network.table[1:]]) + network.bias
    )
    torch.testing.assert_close(network(numeric, categorical), torch.relu(network.layers[0](first)))
    assert [tuple(network.weight.shape), tuple(network.layers[0].weight.shape)] == [(32, 1), (8, 32)]
    unseen = network(numeric, torch.zeros_like(categorical))
    alone = torch.relu(network.layers[0](torch.relu(numeric @ network.weight.T + network.bias)))
    torch.testing.assert_close(unseen, alone)


def test_periodic_embeddings_and_their_gradients_are_the_formula():
    layer: Any = TabularNetwork(2, 0, [], [4], frequencies=3).double().periodic
    x, c = torch.randn(5, 2, dtype=torch.float64, requires_grad=True), layer.frequencies
    for j in range(2):
        angle = 2 * torch.pi * x[:, j, None] * c[j]
        z = torch.cat([angle.cos(), angle.sin()], 1) @ layer.weight[j] + layer.bias[j]
        torch.testing.assert_close(layer(x)[:, j], z.relu())
    torch.autograd.gradcheck(lambda x, *_: layer(x), (x, *layer.parameters()))


def test_width_and_recipe_follow_the_number_of_rows():
    small, medium, large = (TabularEncoder().fit(np.arange(n)[:, None]) for n in (100, 5000, 100_000))
    assert small.widths < medium.widths < large.widths == [512, 512]
    assert small.dropout == large.dropout > medium.dropout
    assert TabularEncoder(dropout=0.4).fit(np.arange(5000)[:, None]).dropout == 0.4
    assert small.recipe.batch_size < medium.recipe.batch_size < large.recipe.batch_size
    assert TabularEncoder(width=7, depth=3).fit(np.eye(3)).widths == [7, 7, 7]


def test_numbers_in_middle_tables_have_several_networks_on_a_cpu_too():
    small, middle, large = (TabularEncoder("numbers").fit(np.arange(n)[:, None]).recipe for n in (100, 5000, 30_000))
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert [recipe.networks_on(cpu) for recipe in (small, middle, large)] == [1, 3, 1]
    assert {recipe.networks_on(gpu) for recipe in (small, middle, large)} == {4}


# Whatever comes


numbers = st.one_of(st.just(np.nan), st.floats(allow_nan=False, allow_infinity=False))


@settings(max_examples=25)
@given(arrays(np.float64, (12, 2), elements=numbers), arrays(np.float64, (3, 2), elements=numbers))
def test_any_finite_numbers_give_finite_tensors(X, Z):
    for network in ("default", "paper"):
        encoder = TabularEncoder(network).fit(X)
        for table in (X, Z):
            numeric, _ = encoder.transform(table)
            assert numeric.isfinite().all()
            assert encoder.network().eval()(*encoder.transform(table)).isfinite().all()


values = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3))


@settings(max_examples=25)
@given(st.lists(values, min_size=1, max_size=15), st.lists(values, min_size=1, max_size=5), st.randoms())
def test_any_categories_survive_storage_and_the_order_of_rows(known, met, random):
    def column(rows):
        return pd.DataFrame({"c": pd.Series(["text", "text", *rows], dtype=object)})

    encoder = TabularEncoder().fit(column(known))
    shuffled = random.sample(known, len(known))
    assert TabularEncoder().fit(column(shuffled)).transform(column(met))[1].tolist() == (
        restored(encoder).transform(column(met))[1].tolist()
    )


@settings(max_examples=20)
@given(arrays(np.float64, (25, 1), elements=st.floats(-1e6, 1e6)))
def test_scaling_keeps_the_order_of_numbers(X):
    numeric, _ = TabularEncoder().fit(X).transform(X)
    if numeric.shape[1]:
        order = np.argsort(X[:, 0], kind="stable")
        assert (numeric[order, 0].diff() >= -1e-6).all()


def test_left_out_training_rows_are_as_far_outside_as_if_the_others_alone_had_been_seen() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"t": rng.standard_t(2, 30), "twice": [9.0, 9.0, *rng.normal(size=28)], "gap": rng.normal(size=30)}
    )
    X.loc[4, "gap"], X["binary"], X["day"] = np.nan, np.arange(30) % 2, pd.date_range("2024-01-01", periods=30)
    whole = TabularEncoder("wide").fit(X)
    numeric, _ = whole.transform_left_out(X)
    rest = [row for row in range(30) if row != 4]  # where the only gap would be a new one
    expected = [TabularEncoder("wide").fit(X.drop(row)).transform(X.loc[[row]])[0][0, -1] for row in rest]
    np.testing.assert_allclose(numeric[rest, -1], expected, rtol=1e-5)
    assert (numeric[rest, -1] > 0).sum() >= 4
    np.testing.assert_array_equal(numeric[:, :-1], whole.transform(X)[0][:, :-1])


def test_a_left_out_value_among_constant_others_is_outside_no_range() -> None:
    scale = Scale("robust", [0.0] * 16 + [1.0], 0.0)
    np.testing.assert_array_equal(scale.beyond_others(np.array([0.0, 0.0, 0.0, 1.0]), np.arange(4)), 0.0)


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_dropout_hides_its_share_and_keeps_the_mean(share: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(3, 99_999, requires_grad=True)
    dropped = drop(x, share)
    assert dropped.unique().tolist() == pytest.approx([0, 1 / (1 - share)], rel=1e-4)
    assert float((dropped == 0).double().mean()) == pytest.approx(share, abs=0.005)
    dropped.sum().backward()
    assert x.grad is not None
    assert x.grad.equal(dropped.detach())
    assert not drop(x, share).equal(dropped)
    assert drop(x, share, training=False).equal(x)
    torch.manual_seed(0)
    assert drop(x, share).equal(dropped)
