"""The distribution of the voters' targets equals its definition, whoever votes and however they are weighed."""

import math
from copy import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dwac import ReferenceSet
from dwac.engine import votes as engine_votes
from dwac.errors import DwacError, InputError, NonFiniteError, ShapeError
from dwac.reference import VoteDistribution
from dwac.reference.references import without_members
from tests.engine.helpers import every_device, every_kernel
from tests.named import refuses
from tests.reference.helpers import each, wanted

RNG = np.random.default_rng(0)
N, M, K, T = 6, 90, 3, 2
LABELS = RNG.integers(0, K, M)
POINTS = (RNG.normal(size=(M, 3)) + LABELS[:, None]).astype(np.float32)
TARGETS = np.stack([RNG.normal(size=M), RNG.integers(0, 7, M)], axis=1)  # one continuous, one with ties
QUERIES = RNG.normal(size=(N, 3)).astype(np.float32)
IDS = [f"r{i}" for i in range(M)]
WIDE = 10.0 ** RNG.uniform(-6, 12, M)
LEVELS = [0.0, 0.1, 0.5, 0.77, 1.0]


def example(**changes: Any) -> ReferenceSet:
    given: dict[str, Any] = {"embeddings": POINTS, "labels": LABELS, "ids": IDS, "n_classes": K, "targets": TARGETS}
    return ReferenceSet(**{**given, **changes})


def assert_as_wanted(refs: ReferenceSet, queries: Any = QUERIES) -> None:
    d, want = refs.distribution(queries), wanted(refs, queries)
    n, n_targets = len(queries), refs.voters.n_targets
    assert refs.targets is not None
    y = refs.targets.cpu().numpy()
    spread = np.quantile(y, 0.9, axis=0) - np.quantile(y, 0.1, axis=0)
    close: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9 * spread.max()}
    np.testing.assert_allclose(d.log_total, [row[0].log_total for row in want], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(d.mean, each(want, lambda o: o.mean), **close)
    np.testing.assert_allclose(d.variance, each(want, lambda o: o.variance), rtol=1e-9, atol=1e-9 * spread.max() ** 2)
    for values in (y[:n], y[n : 2 * n] + 0.1, np.full((n, n_targets), 0.3)):
        below, above = d.tails(values)
        pairs = [[o.log_tails(v) for o, v in zip(*pair, strict=True)] for pair in zip(want, values, strict=True)]
        np.testing.assert_allclose(below, np.array(pairs)[:, :, 0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(above, np.array(pairs)[:, :, 1], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(d.cdf(values), np.exp(below), rtol=1e-9, atol=1e-15)
        crps = [[o.crps(v) for o, v in zip(*pair, strict=True)] for pair in zip(want, values, strict=True)]
        np.testing.assert_allclose(d.crps(values), crps, **close)
    quantiles = d.quantiles(LEVELS)
    for q, level in enumerate(LEVELS[:-1]):
        log_level = math.log(level) if level else -math.inf
        np.testing.assert_array_equal(quantiles[:, :, q], each(want, lambda o, at=log_level: o.ends(at)[0]))
    np.testing.assert_array_equal(quantiles[:, :, -1], np.broadcast_to(y.max(axis=0), (n, n_targets)))
    np.testing.assert_array_equal(d.median, quantiles[:, :, 2])
    for log_tail in (-3.0, math.log(0.5)):
        lower, upper = d.ends(log_tail)
        np.testing.assert_array_equal(lower, each(want, lambda o, at=log_tail: o.ends(at)[0]))
        np.testing.assert_array_equal(upper, each(want, lambda o, at=log_tail: o.ends(at)[1]))


# Values


@every_device
@every_kernel
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weights": WIDE},
        {"class_weights": [0.01, 1.0, 30.0]},
        {"look_alikes": (4.0, 100.0)},
        {"look_alikes": (0.0, 1e-3)},
        {"weights": WIDE, "class_weights": [0.01, 1.0, 30.0], "look_alikes": (0.0, 1e-3)},
        {"embeddings": POINTS.astype(np.float64)},
    ],
    ids=["plain", "weights", "class weights", "look-alikes", "base vote", "all", "float64"],
)
def test_everything_equals_its_definition(device, kernel, options):
    assert_as_wanted(example(kernel=kernel, **options).to(device))


@pytest.mark.parametrize("scale", [1e-100, 1e-6, 1.0, 1e6, 1e100])
@pytest.mark.parametrize(
    "targets",
    [
        np.full(M, 7.0),
        TARGETS[:, 1],
        np.append(TARGETS[1:, 0], 1e12),
        np.append(TARGETS[1:, 0], -1e12),
        RNG.standard_cauchy(M),
        1e6 + TARGETS[:, 0],
    ],
    ids=["constant", "ties", "outlier", "negative outlier", "heavy tails", "offset"],
)
def test_targets_of_any_kind_and_scale(targets, scale):
    assert_as_wanted(example(targets=scale * targets))


def test_one_voter_says_its_target():
    d = ReferenceSet([[1.0, 2.0]], [0], targets=[3.5]).distribution([[1.0, 2.0], [1e6, 0.0]])
    assert d.mean.tolist() == d.median.tolist() == [[3.5], [3.5]]
    assert d.variance.tolist() == [[0.0], [0.0]]
    assert d.crps([3.5, 1.0]).tolist() == [[0.0], [2.5]]
    assert d.quantiles([0, 0.3, 1]).tolist() == [[[3.5] * 3]] * 2
    assert [side.tolist() for side in d.tails(4.0)] == [[[0.0], [0.0]], [[-math.inf], [-math.inf]]]


def test_a_query_far_from_everybody_has_finite_answers():
    far = np.concatenate([QUERIES * np.float32(1e6), QUERIES * np.float32(1e30)])
    d = example().distribution(far)
    assert np.isfinite(d.mean).all()
    assert np.isfinite(d.variance).all()
    assert np.isfinite(d.log_total).all()
    assert np.isfinite(d.quantiles(LEVELS)).all()
    assert np.isfinite(d.crps(0.0)).all()
    base = example(look_alikes=(0.0, 1e-3)).distribution(far)  # where nobody is near, everybody has the same vote
    np.testing.assert_allclose(base.mean, np.broadcast_to(TARGETS.mean(axis=0), (len(far), T)), rtol=1e-9)


def test_representatives_vote_for_their_groups():
    few = example().condensed()
    assert few.voters.weighted
    assert_as_wanted(few)
    assert_as_wanted(without_members(few))


def test_votes_are_those_for_the_classes():
    refs = example(class_weights=[0.5, 1.0, 2.0], weights=WIDE)
    votes = np.logaddexp.reduce(refs.log_class_weights(QUERIES), axis=1)
    np.testing.assert_allclose(refs.distribution(QUERIES).log_total, votes, rtol=1e-5, atol=1e-5)


def test_the_largest_and_the_smallest_target_need_no_votes():
    refs = ReferenceSet([[0.0], [50.0], [60.0]], [0, 0, 0], targets=[1.0, -7.0, 9.0])  # e⁻²⁵⁰⁰ and less
    d = refs.distribution([[0.0]])
    assert d.quantiles([0.0, 1e-9, 1.0]).tolist() == [[[-7.0, 1.0, 9.0]]]
    assert [side.tolist() for side in d.ends(-math.inf)] == [[[-7.0]], [[9.0]]]
    assert [side.tolist() for side in d.ends(-2600.0)] == [[[-7.0]], [[1.0]]]
    below, above = d.tails([9.0])
    assert (below.item(), above.item()) == (0.0, -3600.0)
    assert [side.item() for side in d.tails(9.5)] == [0.0, -math.inf]
    assert [side.item() for side in d.tails(-8.0)] == [-math.inf, 0.0]


# Ends


def test_ends_take_one_level_for_all_one_per_query_or_several():
    d = example().distribution(QUERIES)
    levels = np.log(np.linspace(0.01, 0.4, N * 4).reshape(N, 4))
    lower, upper = d.ends(levels)
    assert lower.shape == upper.shape == (N, T, 4)
    for c in range(4):
        one = d.ends(levels[:, c])
        np.testing.assert_array_equal(one[0], lower[:, :, c])
        np.testing.assert_array_equal(one[1], upper[:, :, c])
    np.testing.assert_array_equal(d[2:3].ends(levels[2, 1])[0], lower[2:3, :, 1])


@pytest.mark.parametrize("log_tail", [math.log(0.5), -0.1, 0.0, 5.0, math.inf])
def test_no_interval_is_smaller_than_that_between_the_medians(log_tail):
    d = example().distribution(QUERIES)
    lower, upper = d.ends(log_tail)
    np.testing.assert_array_equal(lower, d.median)
    assert (lower <= upper).all()
    for got, want in zip((lower, upper), d.ends(math.log(0.5)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_target_lies_between_the_ends_exactly_where_its_tails_reach_the_level():
    d = example().distribution(QUERIES)
    for y in TARGETS[:20]:
        both = np.minimum(*d.tails(np.broadcast_to(y, (N, T))))
        for log_tail in (-4.0, -1.5, -0.8):
            lower, upper = d.ends(log_tail)
            np.testing.assert_array_equal((lower <= y) & (y <= upper), both >= log_tail)
    own = np.minimum(*d.tails(TARGETS[:N]))[:, 0]  # its own largest level just holds it
    lower, upper = d.ends(own)
    assert ((lower[:, 0] <= TARGETS[:N, 0]) & (TARGETS[:N, 0] <= upper[:, 0])).all()


# Histogram


def test_histogram_counts_votes_as_numpy_does():
    refs = example()
    d, want = refs.distribution(QUERIES), wanted(refs, QUERIES)
    for edges in (np.linspace(-3, 7, 11), [0.0, 1.0, 6.0], [-np.inf, 0.0, np.inf]):
        got = d.histogram(edges)
        assert got.shape == (N, T, len(edges) - 1)
        counts = each(want, lambda o, at=edges: np.histogram(o.targets, at, weights=o.shares)[0])
        np.testing.assert_allclose(got, counts, rtol=1e-9, atol=1e-12)
    own = np.array([[-1.0, 0.0, 0.5], [0.0, 3.0, 6.0]])
    for t in (0, 1):
        np.testing.assert_array_equal(d.histogram(own)[:, t], d.histogram(own[t])[:, t])


# Influence


def test_influence_names_those_whose_removal_moves_the_mean_most():
    refs = example()
    found = refs.distribution(QUERIES).influence(5)
    assert all(field.shape == (N, T, 5) for field in found)
    mean = refs.distribution(QUERIES).mean
    for q in range(N):
        for t in range(T):
            for ident, target, move in zip(found.ids[q, t], found.targets[q, t], found.moves[q, t], strict=True):
                without = copy(refs)
                without.remove([ident])
                moved = without.distribution(QUERIES[q : q + 1]).mean[0, t] - mean[q, t]
                np.testing.assert_allclose(move, moved, rtol=1e-7, atol=1e-12)
                assert target == TARGETS[IDS.index(ident), t]
            everyone = np.abs(wanted(refs, QUERIES)[q][t].moves())
            np.testing.assert_allclose(np.abs(found.moves[q, t]), np.sort(everyone)[::-1][:5], rtol=1e-7)
    assert (found.shares > 0).all()


def test_more_influence_than_voters_is_that_of_all():
    d = ReferenceSet([[0.0], [1.0]], [0, 0], ids=["a", "b"], targets=[1.0, 2.0]).distribution([[0.0]])
    found = d.influence(10)
    assert found.ids.tolist() == [[["a", "b"]]]
    assert np.isfinite(found.moves).all()


def test_identical_voters_are_named_in_their_order():
    refs = ReferenceSet(np.zeros((6, 1)), [0] * 6, targets=[3.0, 3.0, 3.0, 0.0, 3.0, 3.0])
    assert refs.distribution([[1.0]]).influence(4).ids.tolist() == [[[3, 0, 1, 2]]]


# Edits and order


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), kernel=st.sampled_from(["gaussian", "laplace", "inverse_quadratic"]))
def test_permuting_references_changes_nothing(seed, kernel):
    order = np.random.default_rng(seed).permutation(M)
    a = example(kernel=kernel, weights=WIDE).distribution(QUERIES)
    other = ReferenceSet(
        POINTS[order], LABELS[order], [IDS[i] for i in order], K, kernel, weights=WIDE[order], targets=TARGETS[order]
    )
    b = other.distribution(QUERIES)
    np.testing.assert_allclose(a.mean, b.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(a.crps(0.2), b.crps(0.2), rtol=1e-9)
    np.testing.assert_array_equal(a.quantiles([0.13, 0.5, 0.87]), b.quantiles([0.13, 0.5, 0.87]))
    np.testing.assert_array_equal(a.influence(3).ids[:, 0], b.influence(3).ids[:, 0])


@settings(max_examples=20)
@given(n=st.integers(0, 5), seed=st.integers(0, 1000))
def test_adding_then_removing_changes_nothing(n, seed):
    rng = np.random.default_rng(seed)
    refs = example()
    names = [f"new {i}" for i in range(n)]
    refs.add(rng.normal(size=(n, 3)), rng.integers(0, K, n), names, targets=rng.normal(size=(n, T)))
    refs.remove(names)
    np.testing.assert_array_equal(refs.distribution(QUERIES).mean, example().distribution(QUERIES).mean)
    np.testing.assert_array_equal(
        refs.distribution(QUERIES).quantiles(LEVELS), example().distribution(QUERIES).quantiles(LEVELS)
    )


def test_edits_count_from_the_next_distribution_on():
    refs = example()
    before = refs.distribution(QUERIES)
    refs.relabel(IDS, targets=TARGETS + 5)
    np.testing.assert_array_equal(before.mean, example().distribution(QUERIES).mean)
    np.testing.assert_allclose(refs.distribution(QUERIES).mean, before.mean + 5, rtol=1e-9)
    refs.remove(IDS[1:])
    np.testing.assert_array_equal(refs.distribution(QUERIES).mean, np.broadcast_to(TARGETS[0] + 5, (N, T)))


def test_later_edits_of_the_callers_arrays_change_nothing():
    mine = QUERIES.copy()
    d = example().distribution(mine)
    mine[:] = 0
    np.testing.assert_array_equal(d.mean, example().distribution(QUERIES).mean)
    d.mean[:] = 0
    assert (d.mean != 0).all()
    tensors = example().distribution(torch.as_tensor(QUERIES))
    tensors.mean[:] = 0
    assert bool((tensors.mean != 0).all())


# Rows, types, memory


@pytest.mark.parametrize("rows", [slice(1, 4), [0, 5], np.arange(N) % 2 == 0, torch.tensor([3, 3]), slice(0, 0)])
def test_some_rows_have_the_answers_they_have_among_all(rows):
    d = example().distribution(QUERIES)
    some = d[rows]
    assert isinstance(some, VoteDistribution)
    chosen = np.asarray(d.mean)[rows.numpy() if isinstance(rows, torch.Tensor) else rows]
    assert len(some) == len(chosen)
    np.testing.assert_allclose(some.mean, chosen, rtol=1e-9)


def test_a_distribution_can_be_walked_row_by_row():
    d = example().distribution(QUERIES)
    assert len(d) == N
    np.testing.assert_allclose(np.concatenate([one.mean for one in d]), d.mean, rtol=1e-9)  # type: ignore[attr-defined]
    np.testing.assert_allclose(d[-1].mean, d.mean[-1:], rtol=1e-9)
    with refuses(IndexError, "row", f"0 … {N - 1}", N):
        d[N]


def test_numpy_is_answered_in_numpy_and_tensors_with_tensors():
    for queries, kind in (
        (QUERIES, np.ndarray),
        (QUERIES.tolist(), np.ndarray),
        (torch.as_tensor(QUERIES), torch.Tensor),
    ):
        d = example().distribution(queries)
        answers: list[Any] = [d.mean, d.variance, d.median, d.log_total, d.quantiles([0.5]), d.cdf(0.0), d.crps(0.0)]
        answers += [*d.tails(0.0), *d.ends(-1.0), d.histogram([0.0, 1.0])]
        assert all(isinstance(answer, kind) and answer.dtype in (np.float64, torch.float64) for answer in answers)


def test_no_queries_give_empty_answers():
    d = example().distribution(np.zeros((0, 3)))
    assert d.mean.shape == d.median.shape == d.crps(np.zeros((0, T))).shape == (0, T)
    assert d.quantiles([0.1, 0.9]).shape == (0, T, 2)
    assert d.influence(2).ids.shape == (0, T, 2)


def test_nothing_is_computed_before_it_is_asked_for_and_no_large_array_then(monkeypatch):
    n, m = 1500, 2500
    refs = ReferenceSet(RNG.normal(size=(m, 2)), np.zeros(m), targets=RNG.normal(size=m))
    largest = [0]
    of = engine_votes.LogVotes.of

    def watched(self: engine_votes.LogVotes, rows: torch.Tensor) -> torch.Tensor:
        answer = of(self, rows)
        largest[0] = max(largest[0], answer.numel())
        return answer

    monkeypatch.setattr(engine_votes.LogVotes, "of", watched)
    d = refs.distribution(RNG.normal(size=(n, 2)))
    assert largest == [0]
    for ask in (lambda: d.mean, lambda: d.variance, lambda: d.median, lambda: d.crps(0.0), lambda: d.influence(2)):
        largest[0] = 0
        ask()
        assert 0 < largest[0] <= 2**19 < n * m


def test_repr_gives_its_size():
    assert repr(example().distribution(QUERIES)) == "VoteDistribution(6 queries, 2 targets, 90 voters)"


# Wrong input


def test_a_set_of_classes_has_no_distribution():
    with refuses(InputError, "targets=…"):
        example(targets=None).distribution(QUERIES)


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda d: d.quantiles([0.5, 1.1]), InputError),
        (lambda d: d.quantiles([-0.1]), InputError),
        (lambda d: d.quantiles([np.nan]), NonFiniteError),
        (lambda d: d.quantiles(0.5), ShapeError),
        (lambda d: d.cdf(np.zeros(N)), ShapeError),
        (lambda d: d.cdf(np.zeros((N, T + 1))), ShapeError),
        (lambda d: d.cdf(np.nan), NonFiniteError),
        (lambda d: d.tails("high"), InputError),
        (lambda d: d.crps(np.inf), InputError),
        (lambda d: d.ends(np.zeros(N + 1)), ShapeError),
        (lambda d: d.ends(np.zeros((N, 1, 1))), ShapeError),
        (lambda d: d.ends(np.nan), NonFiniteError),
        (lambda d: d.histogram([1.0]), InputError),
        (lambda d: d.histogram([1.0, 0.0]), InputError),
        (lambda d: d.histogram(np.zeros((T + 1, 3)) + np.arange(3)), ShapeError),
        (lambda d: d.influence(0), InputError),
    ],
)
def test_wrong_questions_are_refused(ask, error):
    with pytest.raises(error):
        ask(example().distribution(QUERIES))


@pytest.mark.parametrize("queries", [np.zeros((2, 4)), np.zeros(3), np.full((1, 3), np.nan), "near"])
def test_wrong_queries_are_refused_at_once(queries):
    with pytest.raises(DwacError, match="queries"):
        example().distribution(queries)
