"""Values of players against their definition, all sets and random orders, and the axioms that define them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from dwac.errors import InputError, NonFiniteError, ShapeError
from dwac.worth import of_labels, of_log, of_mean, of_squared_error, together
from dwac.worth.games import METHODS
from tests.named import refuses
from tests.worth.oracle import by_all_sets, mean

Floats = NDArray[np.float64]
SPANS = [0.0, 2.0, 10.0, 45.0]  # of log-weights: weights may differ by a factor 1e19


def game(m: int, span: float, seed: int = 0) -> tuple[list[float], list[float], list[float]]:
    """Log-weights, 0 or 1, and numbers of m players."""
    rng = np.random.default_rng(seed + 100 * m)
    log_w = -span * rng.random(m) - 300.0  # far away: in plain numbers, nothing would be left
    return log_w.tolist(), rng.integers(0, 2, m).astype(float).tolist(), rng.normal(size=m).tolist()


def row(*values: object) -> tuple[Tensor, ...]:
    return tuple(torch.tensor([value], dtype=torch.float64) for value in values)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("m", [1, 2, 5, pytest.param(9, marks=pytest.mark.slow)])
def test_values_for_means_agree_with_all_sets(m: int, span: float, method: str) -> None:
    log_w, a, _ = game(m, span)
    truth = by_all_sets(m, mean(log_w, a, 0.3), method)
    for tolerance in (1e-4, 1e-9):
        found = of_mean(*row(log_w, a, 0.3), method=method, tolerance=tolerance)
        error = np.abs(found.values[0].numpy() - truth).sum()
        assert error <= min(tolerance, float(found.errors[0])) + 1e-13
        assert float(found.errors[0]) <= tolerance


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("m", [1, 2, 6])
def test_values_for_squared_errors_agree_with_all_sets(m: int, span: float, method: str) -> None:
    log_w, _, b = game(m, span)
    average = mean(log_w, b, 0.3)
    truth = by_all_sets(m, lambda some: -(average(some) ** 2), method)
    unit = max(abs(each) for each in b) ** 2
    for tolerance in (1e-4, 1e-8):
        found = of_squared_error(*row(log_w, b, 0.3), method=method, tolerance=tolerance)
        error = np.abs(found.values[0].numpy() - truth).sum()
        assert error <= min(tolerance * unit, float(found.errors[0])) + 1e-12


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("m", [1, 2, 6])
def test_values_for_logs_agree_with_all_sets(m: int, span: float, method: str) -> None:
    log_w, a, _ = game(m, span)
    votes = [math.exp(each - max(log_w)) for each in log_w]

    def worth(some: tuple[int, ...]) -> float:
        true = math.fsum(votes[i] for i in some if a[i])
        return math.log((true + 0.01 * 0.3 * sum(votes)) / (math.fsum(votes[i] for i in some) + 0.01 * sum(votes)))

    truth = by_all_sets(m, worth, method)
    true_only = [each if has else -math.inf for each, has in zip(log_w, a, strict=True)]
    for tolerance in (1e-4, 1e-8):
        found = of_log(*row(log_w, true_only, 0.3), method=method, tolerance=tolerance)
        assert np.abs(found.values[0].numpy() - truth).sum() <= tolerance


def in_random_orders(log_w: Floats, a: Floats, empty: float, n_orders: int) -> Floats:
    """(orders, m): by how much the mean changes as each player comes."""
    players = np.random.default_rng(0).permuted(np.tile(np.arange(len(log_w)), (n_orders, 1)), axis=1)
    w, found = np.exp(log_w - log_w.max()), np.empty((n_orders, len(log_w)))
    means = np.cumsum((w * a)[players], axis=1) / np.cumsum(w[players], axis=1)
    np.put_along_axis(found, players, np.diff(means, axis=1, prepend=empty), axis=1)
    return found


def test_shapley_values_of_many_agree_with_random_orders() -> None:
    rng = np.random.default_rng(3)
    log_w, a = -8 * rng.random(200), (rng.random(200) < 0.4).astype(float)
    changes = in_random_orders(log_w, a, 0.4, 20_000)
    found = of_mean(*row(log_w.tolist(), a.tolist(), 0.4)).values[0].numpy()
    z = (changes.mean(axis=0) - found) / (changes.std(axis=0) / math.sqrt(len(changes)))
    assert abs(z).max() < 7  # once in 1e7 times, though a change is nearly always 0 and seldom large
    parts = changes.reshape(5, 4000, 200)
    z = (parts.mean(axis=1) - found) / (parts.std(axis=1) / math.sqrt(4000))
    assert abs(z.std() - 1) < 0.2  # 1,000 z-scores, not quite independent: a deviation of .03


@pytest.mark.parametrize("span", [0.0, 5.0, 80.0, 5000.0])
def test_shapley_values_of_thousands_sum_to_what_all_are_worth(span: float) -> None:
    generator = torch.Generator().manual_seed(0)
    log_w = -span * torch.rand(2, 3000, generator=generator, dtype=torch.float64)
    a = (torch.rand(3000, generator=generator) < 0.4).double()
    found = of_mean(log_w, a, torch.full((2,), 0.4))
    whole = (torch.softmax(log_w, dim=1) * a).sum(dim=1) - 0.4
    assert (found.values.sum(dim=1) - whole).abs().max() < 1e-4
    assert found.errors.max() <= 1e-4
    if span > 100:
        return
    finer = of_mean(log_w[:1], a, torch.full((1,), 0.4), tolerance=1e-7)
    assert (finer.values - found.values[:1]).abs().sum() <= 1e-4


@pytest.mark.parametrize("tolerance", [1e-4, 1e-7])
def test_players_of_equal_weight_have_the_values_of_an_average(tolerance: float) -> None:
    """The k-th to come changes a plain mean by a k-th of its difference from those before, by 1/m · 1/k in all."""
    m = 20_000
    a = (torch.arange(m) % 10 < 3).double()
    others = (a.sum() - a) / (m - 1)
    harmonic = sum(1 / k for k in range(2, m + 1))
    truth = ((a - 0.25) + (a - others) * harmonic) / m
    found = of_mean(torch.full((1, m), -7.0), a, row(0.25)[0], tolerance=tolerance)
    assert (found.values[0] - truth).abs().sum() <= tolerance


@pytest.mark.parametrize("tolerance", [1e-4, 1e-7])
def test_where_the_nearest_decides_values_are_those_of_one_nearest_neighbour(tolerance: float) -> None:
    """The recursion of Jia et al. (2019) for k = 1, from the furthest one."""
    m = 40
    a = (torch.rand(m, generator=torch.Generator().manual_seed(0)) < 0.4).double()
    truth = torch.empty(m, dtype=torch.float64)
    truth[-1] = a[-1] / m
    for j in range(m - 2, -1, -1):
        truth[j] = truth[j + 1] + (a[j] - a[j + 1]) / (j + 1)
    found = of_mean(-50.0 * torch.arange(m)[None], a, row(0.25)[0], tolerance=tolerance)
    assert (found.values[0] - (truth - 0.25 / m)).abs().sum() <= tolerance


games = st.lists(
    st.tuples(st.floats(-60, 0), st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=30
)  # log-weight, and what a player says in two games


@settings(max_examples=12)
@given(games, st.floats(0, 1), st.sampled_from(["shapley", "banzhaf"]))
def test_values_add_up_and_keep_the_order_of_players(
    players: list[tuple[float, ...]], empty: float, method: str
) -> None:
    log_w, a, b = (torch.tensor([column], dtype=torch.float64) for column in zip(*players, strict=True))
    one, two = (of_mean(log_w, each, row(empty)[0], method=method, tolerance=1e-6).values for each in (a, b))
    both = of_mean(log_w, 2 * a + b, row(3 * empty)[0], method=method, tolerance=1e-6).values
    assert (2 * one + two - both).abs().sum() < 1e-5  # additivity
    order = torch.arange(len(players) - 1, -1, -1)
    again = of_mean(log_w[:, order], a[:, order], row(empty)[0], method=method, tolerance=1e-6).values
    assert (again[:, order] - one).abs().sum() < 1e-6


@settings(max_examples=12)
@given(games, st.floats(0, 1))
def test_shapley_values_are_efficient_and_equal_players_are_worth_the_same(
    players: list[tuple[float, ...]], empty: float
) -> None:
    twice = [*players, players[0]]
    log_w, a, _ = (torch.tensor([column], dtype=torch.float64) for column in zip(*twice, strict=True))
    values = of_mean(log_w, a, row(empty)[0], tolerance=1e-6).values
    whole = (torch.softmax(log_w, dim=1) * a).sum() - empty
    assert abs(float(values.sum() - whole)) < 1e-6
    assert torch.equal(values[0, 0], values[0, -1])


def test_a_player_without_weight_counts_only_where_it_is_alone() -> None:
    log_w, a, empty = row([0.0, -1.0, -2000.0], [1.0, 0.0, 1.0], 0.5)
    with_it, without = of_mean(log_w, a, empty).values[0], of_mean(log_w[:, :2], a[:, :2], empty).values[0]
    # It comes first in 1 of 3 orders, and is worth 1/2 there; in the others it changes nothing.
    assert float(with_it[2]) == pytest.approx(0.5 / 3, abs=1e-4)
    banzhaf = of_mean(log_w, a, empty, method="banzhaf").values[0, 2]
    assert float(banzhaf) == pytest.approx(0.5 / 4, abs=1e-4)
    absent = of_mean(torch.tensor([[0.0, -1.0, -math.inf]]), a, empty).values[0]
    assert float(absent[2]) == 0.0
    assert torch.allclose(absent[:2], without, atol=1e-9)


def test_where_all_say_the_same_everybody_has_an_equal_share_of_it() -> None:
    log_w, a, empty = row([0.0, -3.0, -30.0, -1.0], [1.0] * 4, 0.2)
    assert torch.allclose(of_mean(log_w, a, empty).values, torch.full((1, 4), 0.2, dtype=torch.float64), atol=1e-12)


def test_duplicates_share_their_worth() -> None:
    log_w, a, empty = row([0.0, -1.0, -1.0], [1.0, 0.0, 0.0], 0.5)
    once = of_mean(log_w[:, :1], a[:, :1], empty).values
    twice = of_mean(log_w[:, [0, 0]], a[:, [0, 0]], empty).values
    assert torch.allclose(twice, once.expand(1, 2) / 2, atol=1e-6)


def test_games_do_not_depend_on_those_beside_them() -> None:
    generator = torch.Generator().manual_seed(0)
    spans = torch.tensor([[1.0], [300.0], [20.0], [900.0]], dtype=torch.float64)
    log_w = -spans * torch.rand(4, 12, generator=generator, dtype=torch.float64)
    a = (torch.rand(4, 12, generator=generator) < 0.4).double()
    empty = torch.full((4,), 0.4)
    all_at_once = of_mean(log_w, a, empty, tolerance=1e-6).values
    for i in range(4):
        alone = of_mean(log_w[i : i + 1], a[i : i + 1], empty[:1], tolerance=1e-6).values
        assert (alone - all_at_once[i]).abs().sum() < 1e-6


def test_groups_as_players_have_the_values_of_all_sets_of_groups() -> None:
    rng = np.random.default_rng(5)
    log_w, a, groups = -6 * rng.random(12), rng.integers(0, 2, 12).astype(float), np.arange(12) % 4
    of_example = mean(log_w.tolist(), a.tolist(), 0.3)
    truth = by_all_sets(4, lambda some: of_example(tuple(np.flatnonzero(np.isin(groups, some)).tolist())), "shapley")
    players = together(torch.tensor(log_w)[None], torch.tensor(a), torch.tensor(groups), 4)
    found = of_mean(*players, *row(0.3), tolerance=1e-8)
    assert np.abs(found.values[0].numpy() - truth).sum() < 1e-8


@pytest.mark.parametrize("span", [3.0, 45.0])
def test_leave_one_out_of_the_accuracy_agrees_with_removing_each(span: float) -> None:
    rng = np.random.default_rng(7)
    log_w = torch.tensor(-span * rng.random((40, 7)))
    labels, truths = torch.tensor(rng.integers(0, 3, 7)), torch.tensor(rng.integers(0, 3, 40))
    prior = torch.tensor([0.2, 0.5, 0.3])

    def right(votes: Tensor) -> Tensor:
        sums = torch.stack([torch.where(labels == k, votes, -torch.inf).logsumexp(dim=1) for k in range(3)], dim=1)
        return (sums.argmax(dim=1) == truths).double()

    found = of_labels(log_w, labels, truths, prior, utility="accuracy", method="leave_one_out").values
    for i in range(7):
        without = log_w.clone()
        without[:, i] = -torch.inf
        assert torch.equal(found[:, i], right(log_w) - right(without))
    assert (found != 0).any()


@pytest.mark.parametrize("utility", ["probability", "log_probability", "accuracy"])
def test_values_for_labels_sum_to_what_the_vote_adds_to_the_prior(utility: str) -> None:
    rng = np.random.default_rng(8)
    log_w = torch.tensor(-6 * rng.random((30, 50)))
    labels, truths = torch.tensor(rng.integers(0, 3, 50)), torch.tensor(rng.integers(-1, 3, 30))
    prior = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    found = of_labels(log_w, labels, truths, prior, utility=utility).values
    p = torch.stack([torch.softmax(log_w, dim=1)[:, labels == k].sum(dim=1) for k in range(3)], dim=1)
    seen = truths >= 0
    before, after = prior[truths], p[torch.arange(30), truths]
    if utility == "log_probability":
        change = ((after + 0.01 * before) / 1.01).log() - before.log()
    else:
        change = (after if utility == "probability" else (p.argmax(dim=1) == truths).double()) - before
    assert torch.allclose(found.sum(dim=1)[seen], change[seen], atol=2e-4)
    if utility != "accuracy":  # where no voter has the label, no vote is right or wrong
        assert (found[~seen] == 0).all()


def test_errors_say_what_is_wrong() -> None:
    log_w, a, empty = row([0.0, 1.0], [1.0, 0.0], 0.5)
    with refuses(InputError, "method", "shapley", "banzhaf", "leave_one_out", "knn"):
        of_mean(log_w, a, empty, method="knn")
    with refuses(InputError, "tolerance"):
        of_mean(log_w, a, empty, tolerance=0)
    with refuses(ShapeError, "(1, 3)"):
        of_mean(log_w, torch.zeros(1, 3), empty)
    with refuses(NonFiniteError, "-inf"):
        of_mean(log_w * math.nan, a, empty)
    with refuses(InputError, "utility"):
        of_labels(log_w, torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([0.5, 0.5]), utility="auc")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", METHODS)
def test_a_gpu_finds_the_same_values(method: str) -> None:
    generator = torch.Generator().manual_seed(0)
    log_w = -60 * torch.rand(5, 300, generator=generator, dtype=torch.float64)
    a, empty = (torch.rand(300, generator=generator) < 0.4).double(), torch.full((5,), 0.4, dtype=torch.float64)
    for values in (of_mean, of_squared_error):
        here, there = (
            values(log_w, a, empty, method=method),
            values(log_w.cuda(), a.cuda(), empty.cuda(), method=method),
        )
        assert torch.allclose(here.values, there.values.cpu(), atol=1e-10)
