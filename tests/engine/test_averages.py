"""Averages and distributions of targets equal their definitions, computed in float64 loops, wherever the data lies."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dwac.engine import WeightedReferences, distributions, sort_targets, votes, weighted_means, weighted_quantiles
from dwac.engine.distributions import log_shares, log_tails, weighted_crps, weighted_ends
from dwac.engine.votes import influence, weighted_variances
from dwac.errors import InputError, ShapeError
from dwac.kernels import get_kernel
from tests import oracle
from tests.engine.helpers import case, every_device, every_kernel
from tests.named import refuses

LEVELS = [0.0, 1e-6, 0.05, 0.3, 0.5, 0.9]


def voters_of(references: Any, kernel: str = "gaussian", device: str = "cpu", **options: Any) -> WeightedReferences:
    return WeightedReferences(torch.as_tensor(references, device=device), get_kernel(kernel), **options)


def assert_equals_oracle(
    voters: WeightedReferences, queries: Any, targets: Any, log_votes: Any, rtol: float = 1e-9
) -> None:
    """Every answer of the engine about targets (m, T), against the votes (n, m) of an oracle."""
    device = voters.embeddings.device
    h, y = torch.as_tensor(queries, device=device), torch.as_tensor(targets, device=device)
    spread = np.quantile(targets, 0.9, axis=0) - np.quantile(targets, 0.1, axis=0) + 1e-300
    log_total, means = (answer.cpu().numpy() for answer in weighted_means(voters, h, y))
    variances = weighted_variances(voters, h, y).cpu().numpy()
    for t in range(y.shape[1]):
        found = [oracle.Distribution(row, targets[:, t]) for row in log_votes]
        close = {"rtol": rtol, "atol": rtol * spread[t]}
        np.testing.assert_allclose(log_total, [d.log_total for d in found], rtol=rtol, atol=rtol)
        np.testing.assert_allclose(means[:, t], [d.mean for d in found], **close)
        np.testing.assert_allclose(variances[:, t], [d.variance for d in found], rtol=rtol, atol=rtol * spread[t] ** 2)
        ordered = sort_targets(y[:, t])
        values = np.concatenate([targets[:3, t], [-np.inf, np.inf, np.mean(targets[:, t])]])
        ask = torch.as_tensor(values, device=device).expand(len(h), -1)
        tails = np.stack([answer.cpu().numpy() for answer in log_tails(voters, h, ordered, ask)], axis=2)
        np.testing.assert_allclose(tails, [[d.log_tails(v) for v in values] for d in found], rtol=rtol, atol=rtol)
        levels = torch.tensor(LEVELS, dtype=torch.float64, device=device).log().expand(len(h), -1)
        ends = np.stack([answer.cpu().numpy() for answer in weighted_ends(voters, h, ordered, levels)], axis=2)
        np.testing.assert_array_equal(ends, [[d.ends(v) for v in levels[0].tolist()] for d in found])
        np.testing.assert_array_equal(weighted_quantiles(voters, h, ordered, levels).cpu(), ends[:, :, 0])
        value = torch.as_tensor(np.resize(targets[:, t], len(h)) + spread[t] / 3, device=device)
        crps = weighted_crps(voters, h, ordered, value).cpu().numpy()
        want = [d.crps(v) for d, v in zip(found, value.tolist(), strict=True)]
        np.testing.assert_allclose(crps, want, **close)


@every_device
@every_kernel
@pytest.mark.parametrize(
    ("n", "m", "d", "n_targets"),
    [(1, 1, 1, 1), (3, 2, 2, 2), (7, 63, 3, 1), (4, 64, 5, 3), (5, 65, 4, 1), (4, 300, 8, 2)],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_answers_equal_the_oracle(device, kernel, n, m, d, n_targets, dtype):
    queries, references, _ = case(n, m, d, 1, dtype=dtype)
    targets = np.random.default_rng(1).normal(size=(m, n_targets))
    log_votes = oracle.log_weights(queries, references, kernel)
    assert_equals_oracle(voters_of(references, kernel, device), queries, targets, log_votes)


@every_device
@every_kernel
@pytest.mark.parametrize("second", [None, (3.0, 50.0), (0.0, 1e-3)], ids=["one kernel", "look-alikes", "base vote"])
def test_factors_and_a_second_kernel_weigh_the_votes(device, kernel, second):
    queries, references, _ = case(6, 130, 4, 1)
    references[:6] = queries + np.float32(1e-2)  # some look alike
    factors = 10.0 ** np.random.default_rng(1).uniform(-6, 12, 130)
    targets = np.random.default_rng(2).normal(size=(130, 1))
    log_votes = oracle.log_weights(queries, references, kernel)
    if second is not None:
        near = oracle.log_weights(second[0] * queries.astype(float), second[0] * references.astype(float), kernel)
        log_votes = np.logaddexp(log_votes, near + np.log(second[1]))
    voters = voters_of(
        references, kernel, device, log_factors=torch.as_tensor(np.log(factors), device=device), second=second
    )
    assert_equals_oracle(voters, queries, targets, log_votes + np.log(factors))


@every_device
@pytest.mark.parametrize("second", [None, (3.0, 50.0), (0.0, 1e-3)], ids=["one kernel", "look-alikes", "base vote"])
@pytest.mark.parametrize("distance", [1e2, 1e4, 1e6])
def test_a_query_far_from_everything_is_answered_exactly(device, distance, second):
    queries, references, _ = case(5, 90, 3, 1, dtype=np.float64)
    queries += distance
    references /= distance  # so that the votes stay comparable
    targets = np.random.default_rng(1).normal(size=(90, 2))
    log_votes = oracle.exact_log_weights(queries, references)
    assert 0.01 < np.exp(log_votes).mean(axis=1).min() < 0.99  # else the test would be too easy
    if second is not None and second[0] == 0:
        log_votes = np.zeros_like(log_votes)  # everybody has the base vote alone
    voters = voters_of(references, device=device, second=second)
    h, y = torch.as_tensor(queries, device=device), torch.as_tensor(targets, device=device)
    found = [[oracle.Distribution(row, targets[:, t]) for t in (0, 1)] for row in log_votes]
    want = [[d.mean for d in row] for row in found]
    np.testing.assert_allclose(weighted_means(voters, h, y).means.cpu(), want, rtol=1e-9, atol=1e-9)
    below, above = log_tails(voters, h, sort_targets(y[:, 0]), y[:4, 0].expand(5, -1))
    tails = np.array([[d[0].log_tails(v) for v in targets[:4, 0]] for d in found])
    np.testing.assert_allclose(below.cpu(), tails[:, :, 0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(above.cpu(), tails[:, :, 1], rtol=1e-9, atol=1e-9)


@every_device
@every_kernel
@pytest.mark.parametrize("distance", [1e30, 1e140])
def test_no_query_is_too_far_for_finite_answers(device, kernel, distance):
    queries, references, _ = case(6, 40, 3, 1, dtype=np.float64)
    voters = voters_of(references, kernel, device)
    y = torch.linspace(-1, 1, 40, dtype=torch.float64, device=device)
    h = torch.as_tensor(queries * distance, device=device)
    means = weighted_means(voters, h, y[:, None]).means
    assert bool((means.abs() <= 1).all())
    assert bool((weighted_crps(voters, h, sort_targets(y), y[:6]) >= 0).all())
    assert bool(weighted_quantiles(voters, h, sort_targets(y), torch.zeros_like(h)).isfinite().all())


@every_device
@every_kernel
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_an_outlier_or_an_offset_of_embeddings_costs_no_accuracy(device, kernel, offset):
    queries, references, _ = case(6, 70, 3, 1, dtype=np.float64)
    queries, references = queries + offset, references + offset
    references[-1] = 3e5, -2e5, 1e5
    queries[0] = references[-1] + 0.5  # and whoever is near the outlier is right too
    queries[1], references[1] = offset + 2e3, offset + 2e3 + 0.25
    references[2] = offset + 2e3 - 0.25
    targets = np.random.default_rng(1).normal(size=(70, 1))
    log_votes = oracle.log_weights(queries, references, kernel)
    assert_equals_oracle(voters_of(references, kernel, device), queries, targets, log_votes)


@every_device
@pytest.mark.parametrize(
    "targets",
    [
        np.full(80, 7.0),
        np.arange(80) % 3,
        np.append(np.arange(79) / 79, 1e12),
        np.append(np.arange(79) / 79, -1e12),
        1e9 + np.arange(80) / 80,
        1e100 * np.arange(-40, 40),
        1e-100 * np.arange(-40, 40),
        np.random.default_rng(0).standard_cauchy(80),
    ],
    ids=["constant", "ties", "outlier", "negative outlier", "offset", "huge", "tiny", "heavy tails"],
)
def test_any_targets_are_averaged_exactly(device, targets):
    queries, references, _ = case(6, 80, 3, 1)
    references[:5] = references[5:10]  # equal votes too
    targets = np.asarray(targets, np.float64)[:, None]
    log_votes = oracle.log_weights(queries, references, "gaussian")
    assert_equals_oracle(voters_of(references, device=device), queries, targets, log_votes)


@every_device
@every_kernel
def test_answers_are_the_same_in_any_chunks_and_tiles(device, kernel, monkeypatch):
    queries, references, _ = case(11, 300, 4, 1)
    targets = np.random.default_rng(1).normal(size=(300, 2))
    monkeypatch.setattr(votes, "QUERIES", {"cpu": 4, "cuda": 4})
    monkeypatch.setattr(votes, "TILE", {"cpu": 4 * 70, "cuda": 4 * 70})
    some = [0, 4, 10]  # the oracle is slow
    voters = voters_of(references, kernel, device)
    h, y = torch.as_tensor(queries, device=device), torch.as_tensor(targets, device=device)
    assert_equals_oracle(voters, queries[some], targets, oracle.log_weights(queries[some], references, kernel))
    before = weighted_means(voters, h, y)
    found = influence(voters, h, y, 4)
    monkeypatch.undo()
    after = weighted_means(voters, h, y)
    np.testing.assert_allclose(before.means.cpu(), after.means.cpu(), rtol=1e-12)
    np.testing.assert_array_equal(found.rows.cpu(), influence(voters, h, y, 4).rows.cpu())


@every_device
def test_a_query_does_not_depend_on_the_others(device):
    queries, references, _ = case(700, 900, 6, 1)
    voters = voters_of(references, device=device)
    h = torch.as_tensor(queries, device=device)
    y = torch.as_tensor(np.random.default_rng(1).normal(size=(900, 1)), device=device)
    together, tails = weighted_means(voters, h, y).means, log_tails(voters, h, sort_targets(y[:, 0]), h[:, :1].double())
    for some in (slice(0, 1), slice(500, 530), slice(699, 700)):
        np.testing.assert_allclose(weighted_means(voters, h[some], y).means.cpu(), together[some].cpu(), rtol=1e-12)
        alone = log_tails(voters, h[some], sort_targets(y[:, 0]), h[some, :1].double())
        for one, all_ in zip(alone, tails, strict=True):
            np.testing.assert_allclose(one.cpu(), all_[some].cpu(), rtol=1e-12, atol=1e-12)


# Tails


@every_device
def test_tails_too_small_for_any_float_have_exact_logs(device):
    references = torch.arange(100, device=device, dtype=torch.float64)[:, None]  # the last votes with e⁻⁹⁸⁰¹
    ordered = sort_targets(references[:, 0])
    voters, h = voters_of(references, device=device), references[:1]
    values = torch.tensor([[99.0, 50.0, 98.5, 100.0]], device=device, dtype=torch.float64)
    below, above = log_tails(voters, h, ordered, values)
    want = oracle.Distribution((-(references[:, 0] ** 2)).tolist(), references[:, 0].tolist())
    np.testing.assert_allclose(above.cpu()[0], [want.log_tails(v)[1] for v in values[0].tolist()], rtol=1e-12)
    np.testing.assert_allclose(below.cpu()[0], 0, atol=1e-12)
    assert above[0, 3].item() == -math.inf
    for i in (3, 50, 70, 99):  # from the tail back to the target
        level = above.new_tensor([[want.log_tails(float(i))[1]]])
        lower, upper = weighted_ends(voters, h, ordered, level)
        assert (lower.item(), upper.item()) == (0.0, float(i))


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), m=st.integers(1, 200), distinct=st.integers(1, 50))
def test_a_value_lies_between_the_ends_exactly_where_its_tails_reach_the_level(seed, m, distinct):
    rng = np.random.default_rng(seed)
    voters = voters_of(rng.normal(size=(m, 2)) * rng.choice([0.1, 1, 20]))
    y = torch.as_tensor(rng.integers(0, distinct, m) * 0.7)
    ordered, h = sort_targets(y), torch.as_tensor(rng.normal(size=(4, 2)))
    values = torch.as_tensor(rng.choice(y.numpy(), (4, 6)))
    below, above = log_tails(voters, h, ordered, values)
    for level in (torch.minimum(below, above)[:, :1], torch.full((4, 1), math.log(rng.uniform(0, 0.5)))):
        lower, upper = weighted_ends(voters, h, ordered, level)
        inside = (lower <= values) & (values <= upper)
        reached = torch.minimum(below, above)
        sure = (reached - level).abs() > 1e-9
        assert bool((inside == (reached >= level))[sure].all())
        assert bool(inside[(reached == level)].all())


@every_device
def test_many_levels_at_once_have_the_ends_that_each_has_alone(device):
    """At once, all votes are cumulated; alone, the blocks, and one block is looked into."""
    rng = np.random.default_rng(0)
    voters = voters_of(rng.normal(size=(1000, 3)), device=device)
    y = torch.as_tensor(rng.integers(0, 300, 1000) * 0.1, device=device)
    h = torch.as_tensor(rng.normal(size=(5, 3)) * 2, device=device)
    levels = torch.as_tensor(np.log(rng.uniform(0, 1, size=(5, 40))), device=device)
    levels[:, 0], levels[:, 1] = -torch.inf, 0.0
    lower, upper = weighted_ends(voters, h, sort_targets(y), levels)
    for column in range(40):
        alone = weighted_ends(voters, h, sort_targets(y), levels[:, column : column + 1])
        assert torch.equal(lower[:, column], alone[0][:, 0])
        assert torch.equal(upper[:, column], alone[1][:, 0])
    assert lower.unique().numel() > 50


def test_shares_of_the_first_references_in_order_cumulate():
    queries, references, _ = case(3, 150, 2, 1)
    y = torch.as_tensor(np.random.default_rng(1).normal(size=150))
    ordered = sort_targets(y)
    counts = torch.tensor([0, 1, 63, 64, 65, 128, 149, 150]).expand(3, -1)
    got = log_shares(voters_of(references), torch.as_tensor(queries), ordered, counts).exp()
    w = np.exp(oracle.log_weights(queries, references, "gaussian"))[:, y.argsort()]
    want = np.array([[row[:c].sum() / row.sum() for c in counts[0]] for row in w])
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-15)


def test_two_equal_votes_have_the_smaller_target_as_their_lower_median():
    voters = voters_of(torch.tensor([[1.0], [-1.0]]))
    half = torch.tensor([[math.log(0.5)]], dtype=torch.float64)
    lower, upper = weighted_ends(voters, torch.zeros(1, 1), sort_targets(torch.tensor([5.0, 3.0])), half)
    assert (lower.item(), upper.item()) == (3.0, 5.0)


# Influence


@every_device
@every_kernel
@pytest.mark.parametrize("scale", [1.0, 6.0])  # at the larger one, some shares are nearly 1
def test_influence_is_what_removing_does(device, kernel, scale):
    queries, references, _ = case(5, 40, 2, 1, scale=scale)
    targets = np.random.default_rng(1).normal(size=(40, 2))
    y = torch.as_tensor(targets, device=device)
    found = influence(voters_of(references, kernel, device), torch.as_tensor(queries, device=device), y, 6)
    log_votes = oracle.log_weights(queries, references, kernel)
    for q in range(5):
        for t in (0, 1):
            want = oracle.Distribution(log_votes[q], targets[:, t])
            moves = np.array(want.moves())
            rows = found.rows[q, t].tolist()
            largest = np.sort(np.abs(moves))[::-1][:6]
            np.testing.assert_allclose(found.moves[q, t].abs().cpu(), largest, rtol=1e-6, atol=1e-13)
            np.testing.assert_allclose(found.moves[q, t].cpu(), moves[rows], rtol=1e-6, atol=1e-13)
            np.testing.assert_allclose(found.shares[q, t].cpu(), np.array(want.shares)[rows], rtol=1e-9, atol=1e-300)
            assert len(set(rows)) == 6


def test_without_a_voter_that_has_all_votes_the_others_decide_however_far_they_are():
    voters = voters_of(torch.tensor([[0.0], [1e3], [2e3]]))
    found = influence(voters, torch.zeros(1, 1), torch.tensor([[1.0], [5.0], [9.0]]).double(), 3)
    assert found.rows[0, 0, 0].item() == 0
    assert found.shares[0, 0, 0].item() == 1.0
    assert found.moves[0, 0].tolist() == [4.0, 0.0, 0.0]


def test_the_only_voter_moves_nothing():
    found = influence(voters_of(torch.zeros(1, 2)), torch.ones(3, 2), torch.full((1, 1), 5.0).double(), 4)
    assert found.moves.tolist() == [[[0.0]]] * 3
    assert found.shares.tolist() == [[[1.0]]] * 3


# Inputs


def test_no_queries_give_empty_answers():
    voters, y = voters_of(torch.zeros(5, 2)), torch.arange(5).double()
    none, ordered = torch.zeros(0, 2), sort_targets(y)
    assert weighted_means(voters, none, y[:, None]).means.shape == (0, 1)
    assert weighted_quantiles(voters, none, ordered, none.double()).shape == (0, 2)
    assert weighted_crps(voters, none, ordered, none[:, 0].double()).shape == (0,)
    assert influence(voters, none, y[:, None], 3).moves.shape == (0, 1, 3)


def test_queries_must_fit_the_references():
    voters, y = voters_of(torch.zeros(5, 2)), torch.arange(5).double()
    with refuses(ShapeError, 2, (1, 3)):
        weighted_means(voters, torch.zeros(1, 3), y[:, None])
    with refuses(InputError, "device", "meta"):
        weighted_means(voters, torch.zeros(1, 2, device="meta"), y[:, None])


def test_blocks_are_whole():
    ordered = sort_targets(torch.tensor([3.0, 1.0, 2.0]))
    assert len(ordered.rows) == distributions.BLOCK
    assert ordered.rows[:4].tolist() == [1, 2, 0, -1]
    assert ordered.counts(torch.tensor([2.0, 0.0, 9.0])).tolist() == [2, 0, 3]
    assert ordered.counts(torch.tensor([2.0, 0.0, 9.0]), below=True).tolist() == [1, 0, 3]
