"""Every backend with every kernel passes one suite against a float64 oracle, in values, neighbours and gradients."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dwac.engine import BACKENDS, build_index, exact, query
from dwac.engine import index as layout
from dwac.errors import BackendError, InputError, ShapeError
from dwac.kernels import get_kernel
from tests import oracle
from tests.engine.helpers import (
    DEVICES,
    INTERPRETED,
    any_kernel,
    ask,
    assert_close,
    case,
    every_backend,
    every_kernel,
    relaxed,
    softmax,
)
from tests.named import refuses

GAUSSIAN = get_kernel("gaussian")
WORST = 1e-4  # guaranteed for any data; well-spread data is right to 1e-5


# Log class weights


@every_backend
@every_kernel
@pytest.mark.parametrize(
    ("n", "m", "d", "n_classes"),
    [
        (1, 1, 1, 1),
        (3, 1, 2, 4),
        (2, 7, 1, 3),
        (5, 9, 2, 1),
        (7, 100, 3, 5),
        (4, 129, 16, 10),
        (3, 1025, 8, 2),
        (257, 33, 4, 3),
        (5, 1000, 64, 50),
    ],
)
def test_log_class_weights_equal_the_oracle(backend, device, kernel, n, m, d, n_classes):
    queries, references, labels = case(n, m, d, n_classes)
    got = ask(queries, references, labels, n_classes, kernel=kernel, backend=backend, device=device)
    assert got.log_class_weights.dtype == torch.float64
    assert_close(got.log_class_weights, oracle.log_class_weights(queries, references, labels, n_classes, kernel))


@every_backend
@every_kernel
def test_every_chunk_and_tile_of_a_larger_problem_is_right(backend, device, kernel):
    queries, references, labels = case(600, 9001, 5, 7)
    got = ask(queries, references, labels, 7, kernel=kernel, backend=backend, device=device).log_class_weights
    some = [0, 255, 256, 599]  # the oracle is slow; these cover each chunk of queries
    assert_close(got[some], oracle.log_class_weights(queries[some], references, labels, 7, kernel))


@every_backend
@every_kernel
@pytest.mark.parametrize("offset", [1000.0, -1000.0])
def test_embeddings_far_from_the_origin_lose_no_accuracy(backend, device, kernel, offset):
    queries, references, labels = case(20, 150, 6, 4)
    queries, references = queries + np.float32(offset), references + np.float32(offset)
    got = ask(queries, references, labels, 4, kernel=kernel, backend=backend, device=device).log_class_weights
    assert_close(got, oracle.log_class_weights(queries, references, labels, 4, kernel))
    want = oracle.probabilities(queries, references, labels, 4, kernel)
    np.testing.assert_allclose(softmax(got), want, atol=1e-5)


@every_backend
@every_kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_query_far_from_everything_still_has_the_right_probabilities(backend, device, kernel, dtype):
    queries, references, labels = case(8, 60, 3, 4, dtype=dtype)
    queries[:, 0] = np.where(np.arange(8) % 2, 1e4, -1e4)
    references[:, 0] *= 1e-4  # so that the classes stay comparable: 2 · 1e4 · 1e-4 is about 1
    got = ask(queries, references, labels, 4, kernel=kernel, backend=backend, device=device).log_class_weights
    assert_close(got, oracle.log_class_weights(queries, references, labels, 4, kernel), tolerance=1e-12)
    want = oracle.probabilities(queries, references, labels, 4, kernel)
    assert 0.01 < want.max(axis=1).min() < 0.99  # else the test would be too easy
    np.testing.assert_allclose(softmax(got), want, atol=1e-6)
    np.testing.assert_allclose(softmax(got).sum(axis=1), 1)


@every_backend
@every_kernel
def test_a_query_far_away_in_every_direction_keeps_its_label(backend, device, kernel):
    queries, references, labels = case(20, 60, 5, 4)
    queries *= 1e4
    got = ask(queries, references, labels, 4, kernel=kernel, backend=backend, device=device).log_class_weights
    want = oracle.log_class_weights(queries, references, labels, 4, kernel)
    assert_close(got, want, tolerance=1e-12)
    np.testing.assert_array_equal(got.argmax(dim=1), want.argmax(axis=1))


@every_backend
@every_kernel
def test_a_class_without_references_has_no_votes(backend, device, kernel):
    queries, references, _ = case(5, 40, 3, 1)
    labels = np.where(np.arange(40) % 2, 1, 4)
    got = ask(queries, references, labels, 6, kernel=kernel, backend=backend, device=device).log_class_weights
    assert (got[:, [0, 2, 3, 5]] == -torch.inf).all()
    assert_close(got, oracle.log_class_weights(queries, references, labels, 6, kernel))
    assert (softmax(got)[:, [0, 2, 3, 5]] == 0).all()


@every_backend
@every_kernel
@pytest.mark.parametrize("distance", [50.0, 140.0, 200.0, 1e3, 1e5, 1e18])
def test_a_class_far_beyond_the_others_has_its_own_small_weight(backend, device, kernel, distance):
    queries, references, labels = case(6, 40, 5, 2)
    references[labels == 1, 2] += distance
    references, labels = np.append(references, references[:1] - distance, axis=0), np.append(labels, 2)
    got = ask(queries, references, labels, 3, kernel=kernel, backend=backend, device=device).log_class_weights
    assert_close(got, oracle.log_class_weights(queries, references, labels, 3, kernel))


@every_backend
@every_kernel
@pytest.mark.parametrize("distance", [200.0, 3e4, 1e9])
def test_a_few_outliers_among_many_cost_no_accuracy(backend, device, kernel, distance):
    queries, references, labels = case(5, 1200, 3, 2)
    references[:2] = [[distance, 0, 0], [-distance, 0, 0]]  # these do not move the centre
    got = ask(queries, references, labels, 2, kernel=kernel, backend=backend, device=device).log_class_weights
    assert_close(got, oracle.log_class_weights(queries, references, labels, 2, kernel))


@every_backend
@every_kernel
def test_single_member_classes_vote_with_one_weight(backend, device, kernel):
    queries, references, _ = case(6, 30, 4, 1)
    got = ask(queries, references, np.arange(30), 30, kernel=kernel, backend=backend, device=device)
    assert_close(got.log_class_weights, oracle.log_weights(queries, references, kernel))


@every_backend
@every_kernel
@pytest.mark.parametrize("value", [0.0, 0.1, 1000.1])
def test_duplicates_count_as_often_as_they_occur(backend, device, kernel, value):
    references = np.full((700, 3), value, np.float32)
    labels = np.repeat([0, 1, 2], [1, 199, 500])
    got = ask(references[:2], references, labels, 3, kernel=kernel, backend=backend, device=device).log_class_weights
    assert_close(got, np.log([[1, 199, 500]] * 2), tolerance=1e-6)
    assert (got <= torch.log(torch.tensor([1.0, 199, 500], dtype=torch.float64))).all()  # no weight exceeds 1


@every_backend
@every_kernel
def test_unbalanced_classes_are_right(backend, device, kernel):
    queries, references, _ = case(5, 3000, 4, 1)
    labels = np.repeat([0, 2, 1], [2995, 4, 1])
    got = ask(queries, references, labels, 3, kernel=kernel, backend=backend, device=device).log_class_weights
    assert_close(got, oracle.log_class_weights(queries, references, labels, 3, kernel))


@every_backend
@every_kernel
@pytest.mark.parametrize(("queries_as", "references_as"), [("f8", "f8"), ("f8", "f4"), ("f4", "f8")])
def test_float64_on_either_side_is_answered_in_float64(backend, device, kernel, queries_as, references_as):
    queries, references, labels = case(9, 70, 5, 3, scale=3, dtype=np.float64)
    queries, references = queries.astype(queries_as), references.astype(references_as)
    got = ask(queries, references, labels, 3, kernel=kernel, backend=backend, device=device).log_class_weights
    assert_close(got, oracle.log_class_weights(queries, references, labels, 3, kernel), tolerance=1e-12)


@every_backend
@every_kernel
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32_at_least(backend, device, kernel, dtype):
    queries, references, labels = case(9, 70, 5, 3)
    half_q, half_r = torch.as_tensor(queries).to(dtype), torch.as_tensor(references).to(dtype)
    got = ask(half_q, half_r, labels, 3, kernel=kernel, backend=backend, device=device, k=3)
    queries, references = half_q.double().numpy(), half_r.double().numpy()
    assert_close(got.log_class_weights, oracle.log_class_weights(queries, references, labels, 3, kernel))
    np.testing.assert_array_equal(got.rows, oracle.nearest(queries, references, 3)[0])


@every_backend
@every_kernel
def test_strided_inputs_give_the_same_answer(backend, device, kernel):
    queries, references, labels = (torch.as_tensor(x) for x in case(9, 70, 6, 3))
    how = {"kernel": kernel, "backend": backend, "device": device, "k": 4}
    want = ask(queries, references, labels, 3, **how)
    strided = [x.repeat_interleave(2, dim=0)[::2] for x in (queries, references, labels)]
    transposed = [queries.T.contiguous().T, references.T.contiguous().T, labels]
    for q, r, y in (strided, transposed):
        assert not q.is_contiguous()
        got = ask(q, r, y, 3, **how)
        assert_close(got.log_class_weights, want.log_class_weights, tolerance=1e-6)
        assert got.rows.equal(want.rows)
    expanded = ask(queries[:1].expand(5, -1), references, labels, 3, **how)
    assert_close(expanded.log_class_weights, want.log_class_weights[:1].expand(5, -1), tolerance=1e-6)


@every_backend
@every_kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e15, 1e25])  # the square of the second overflows float32
def test_huge_values_stay_finite_and_right(backend, device, kernel, dtype, scale):
    queries, references, labels = case(6, 50, 3, 3, scale=scale, dtype=dtype)
    got = ask(queries, references, labels, 3, kernel=kernel, backend=backend, device=device, k=2)
    assert got.log_class_weights.isfinite().all()
    assert_close(got.log_class_weights, oracle.log_class_weights(queries, references, labels, 3, kernel), 1e-12)
    np.testing.assert_array_equal(got.rows, oracle.nearest(queries, references, 2)[0])
    np.testing.assert_allclose(softmax(got.log_class_weights).sum(axis=1), 1)


@every_backend
@every_kernel
@pytest.mark.parametrize("stray", [1e6, 1e10, 1e15, 1e30])
def test_one_stray_reference_does_not_spoil_the_votes_of_the_others(backend, device, kernel, stray):
    # It moves the centre away from all others, so that their norms are huge compared with their distances.
    queries, references, labels = case(6, 50, 3, 3)
    references[7] = stray
    got = ask(queries, references, labels, 3, kernel=kernel, backend=backend, device=device, k=5)
    want = oracle.log_class_weights(queries, references, labels, 3, kernel)
    assert_close(got.log_class_weights, want)
    np.testing.assert_array_equal(got.rows, oracle.nearest(queries, references, 5)[0])


@every_backend
@every_kernel
@pytest.mark.parametrize("k", [0, 3])
def test_a_class_whose_first_members_are_far_is_summed_right(backend, device, kernel, k):
    # 2,500 nats lie between the first and the last: more than a float32 spans.
    references = np.repeat([50.0, 20.0, 0.0], 150)[:, None] + np.linspace(0, 1, 450)[:, None]
    queries, labels = np.linspace(0, 1, 5)[:, None], np.zeros(450, dtype=np.int64)
    data = (queries.astype(np.float32), references.astype(np.float32), labels, 1)
    got = ask(*data, kernel=kernel, backend=backend, device=device, k=k)
    assert_close(got.log_class_weights, oracle.log_class_weights(*data, kernel))


@every_backend
@pytest.mark.parametrize("k", [0, 3])
def test_classes_of_very_many_references_are_summed_right(backend, device, k):
    # The first class has its nearest members last, by more than a float32 spans; the second has none; the last query
    # is far from everything.
    queries, references, labels = case(6, 13_000, 3, 2, scale=0.5)
    queries[-1] = 300
    references[np.flatnonzero(labels == 0)[:200]] += 20
    got = ask(queries, references, 2 * labels, 3, backend=backend, device=device, k=k)
    want = oracle.log_class_weights(queries, references, 2 * labels, 3, "gaussian")
    assert_close(got.log_class_weights, want)
    if k:
        np.testing.assert_array_equal(got.rows, oracle.nearest(queries, references, k)[0])


@every_backend
@every_kernel
@pytest.mark.parametrize("gap", [1e5, 1e8])
def test_clusters_far_apart_are_each_accurate(backend, device, kernel, gap):
    queries, references, _ = case(8, 80, 3, 1, dtype=np.float64)
    queries[::2] += gap
    references[:40] += gap
    queries[:4] = references[:4]  # distance 0 at a norm near gap: the hardest case for laplace
    got = ask(queries, references, np.arange(80), 80, kernel=kernel, backend=backend, device=device)
    assert_close(got.log_class_weights, oracle.log_weights(queries, references, kernel))


@every_backend
@every_kernel
@pytest.mark.parametrize("d", [2, 16, 64, 256])
@pytest.mark.parametrize("norm", [3, 6, 12, 25])
def test_large_norms_keep_log_weights_within_the_stated_tolerance(backend, device, kernel, d, norm):
    # Aligned embeddings and one member per class are the worst case: rounding adds up and nothing averages it out.
    rng = np.random.default_rng(0)
    direction = rng.random(d)
    direction *= norm / np.linalg.norm(direction)
    sides = np.where(np.arange(60) % 2, 1, -1)[:, None] * direction
    references = (sides + rng.normal(size=(60, d)) / (2 * d**0.5)).astype(np.float32)
    queries = (direction + rng.normal(size=(60, d)) / (2 * d**0.5)).astype(np.float32)
    got = ask(queries, references, np.arange(60), 60, kernel=kernel, backend=backend, device=device)
    want = oracle.log_weights(queries, references, kernel)
    assert_close(got.log_class_weights, want, tolerance=1e-4)  # guaranteed in the worst case


@every_backend
@every_kernel
@pytest.mark.parametrize("d", [1, 2, 16, 256])
def test_labels_never_depend_on_float32_rounding(backend, device, kernel, d):
    # Queries barely to either side of the plane between the two classes.
    rng = np.random.default_rng(d)
    start, step = rng.random((1, d)) * 20 / d**0.5, rng.normal(size=(1, d)) / d**0.5
    references = np.concatenate([start - step, start + step, -start]).astype(np.float32)
    side = references[1].astype(np.float64) - references[0]
    hair = rng.choice([-1, 1], size=(400, 1)) * 10 ** rng.uniform(-9, -2, size=(400, 1))
    queries = (references[:2].astype(np.float64).mean(axis=0) + hair * side).astype(np.float32)
    got = ask(queries, references, [0, 1, 2], 3, kernel=kernel, backend=backend, device=device).log_class_weights
    want = oracle.log_class_weights(queries, references, np.array([0, 1, 2]), 3, kernel)
    first, second = np.sort(want, axis=1)[:, ::-1].T[:2]
    decided = first - second > 1e-11  # below that, float64 itself cannot decide
    assert decided.sum() > 100
    np.testing.assert_array_equal(got.argmax(dim=1)[decided], want.argmax(axis=1)[decided])


@every_backend
@every_kernel
def test_conflicting_duplicates_share_the_probability_equally(backend, device, kernel):
    queries, references, _ = case(6, 40, 3, 1)
    labels = np.repeat([0, 1], 40)
    twice = np.concatenate([references, references])
    got = ask(queries, twice, labels, 2, kernel=kernel, backend=backend, device=device)
    np.testing.assert_allclose(softmax(got.log_class_weights), 0.5, atol=1e-12)


@every_backend
@every_kernel
def test_reduced_precision_elsewhere_does_not_reach_the_engine(backend, device, kernel):
    queries, references, labels = case(100, 300, 32, 3, scale=0.5)
    how = {"kernel": kernel, "backend": backend, "device": device, "k": 5}
    want = ask(queries, references, labels, 3, **how)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast(device, dtype=torch.bfloat16):
            got = ask(queries, references, labels, 3, **how)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert_close(got.log_class_weights, want.log_class_weights, tolerance=1e-6)
    assert got.rows.equal(want.rows)


@pytest.mark.skipif("triton" not in BACKENDS or not (INTERPRETED or "cuda" in DEVICES), reason="needs triton")
@pytest.mark.parametrize("d", [10, 13, 16, 20, 32])
def test_a_triton_answer_does_not_depend_on_the_place_in_the_batch(d):
    device = "cpu" if INTERPRETED else "cuda"
    queries, references, labels = case(70, 150 if INTERPRETED else 600, d, 3, scale=0.4)
    queries[5] *= 40  # overflows in the unit of its first weights
    got = ask(queries, references, labels, 3, backend="triton", device=device).log_class_weights
    turned = ask(np.roll(queries, 9, axis=0), references, labels, 3, backend="triton", device=device).log_class_weights
    assert torch.equal(turned.roll(-9, 0), got)
    for some in (slice(5, 6), slice(3, 20)):  # nor on the size of the batch
        part = ask(queries[some], references, labels, 3, backend="triton", device=device).log_class_weights
        assert torch.equal(part, got[some])
    assert_close(got, oracle.log_class_weights(queries, references, labels, 3, "gaussian"))


@pytest.mark.skipif("cuda" not in DEVICES or "triton" not in BACKENDS, reason="needs triton and a GPU")
@pytest.mark.parametrize("n", [1, 3, 16])
def test_few_queries_are_answered_again_and_again(n):
    queries, references, labels = case(60, 3000, 7, 4)
    queries[50] += 60  # float32 cannot answer it
    index = build_index(torch.as_tensor(references, device="cuda"), torch.as_tensor(labels, device="cuda"), 4, GAUSSIAN)
    answers = [
        query(index, torch.as_tensor(queries[start : start + n], device="cuda"), backend="triton").log_class_weights
        for start in (0, 20, 50, 1, 0)
    ]
    for start, got in zip((0, 20, 50, 1, 0), answers, strict=True):
        expected = oracle.log_class_weights(queries[start : start + n], references, labels, 4, "gaussian")
        assert_close(got.cpu()[: len(expected)], expected)
    assert torch.equal(answers[0], answers[-1])


@every_backend
@every_kernel
def test_inputs_are_not_changed(backend, device, kernel):
    queries, references, labels = inputs = [torch.as_tensor(x) for x in case(5, 40, 3, 3)]
    copies = [x.clone() for x in inputs]
    ask(queries, references, labels, 3, kernel=kernel, backend=backend, device=device, k=2)
    assert all(x.equal(copy) for x, copy in zip(inputs, copies, strict=True))


# Nearest neighbours


@every_backend
@every_kernel
@pytest.mark.parametrize(("m", "d", "n_classes"), [(1, 1, 1), (5, 2, 5), (40, 3, 3), (300, 7, 2), (1500, 3, 2)])
def test_neighbours_are_exact_for_every_k(backend, device, kernel, m, d, n_classes):
    queries, references, labels = case(4, m, d, n_classes)
    rows, squared = oracle.nearest(queries, references, m)
    for k in sorted({1, min(2, m), min(10, m), m // 2 + 1, m}):
        got = ask(queries, references, labels, n_classes, kernel=kernel, backend=backend, device=device, k=k)
        np.testing.assert_array_equal(got.rows, rows[:, :k])
        np.testing.assert_allclose(got.squared_distances, squared[:, :k], rtol=1e-12)
        assert_close(got.log_class_weights, oracle.log_class_weights(queries, references, labels, n_classes, kernel))


@every_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("m", [3000, 40_000])  # few blocks, and so many that a backend may read only the chosen ones
def test_products_with_chosen_blocks_are_those_of_their_members(backend, device, dtype, m):
    queries, references, labels = (torch.as_tensor(x, device=device) for x in case(5, m, 3, 2))
    index = build_index(references, labels, 2, get_kernel("gaussian"))
    last = len(index.block_labels) - 1
    blocks = torch.tensor([[0, last], [last, 0], [1, 2], [last // 2, 5], [3, 3]], device=device)
    centred = queries.double() - index.centre
    got = BACKENDS[backend].products(index, centred.to(dtype), blocks).cpu().numpy()
    rows = index.rows.view(-1, index.block_size)[blocks].flatten(1).cpu().numpy()
    points = np.asarray(references.double().cpu() - index.centre.cpu())[rows]
    h = centred.cpu().numpy()
    want = np.square(h).sum(axis=1)[:, None] - np.square(h[:, None] - points).sum(axis=2)
    assert (rows < 0).any()
    assert (got[rows < 0] == -np.inf).all()  # padding lies infinitely far away
    np.testing.assert_allclose(got[rows >= 0], want[rows >= 0], atol=1e-5)


@every_backend
@every_kernel
@pytest.mark.parametrize("k", [1, 2, 7, 8, 30, 100, 343])
def test_equal_distances_come_in_the_order_of_rows(backend, device, kernel, k):
    # On a grid whole shells are equidistant, and in float64 exactly so.
    axis = np.arange(7, dtype=np.float32)
    grid = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    references = grid[np.random.default_rng(0).permutation(len(grid))]
    queries = np.array([[3, 3, 3], [2.5, 2.5, 2.5], [0, 0, 0], [3, 3, -50]], np.float32)
    labels = np.arange(len(references)) % 5
    got = ask(queries, references, labels, 5, kernel=kernel, backend=backend, device=device, k=k)
    rows, squared = oracle.nearest(queries, references, k)
    np.testing.assert_array_equal(got.rows, rows)
    np.testing.assert_array_equal(got.squared_distances, squared)


@every_backend
@every_kernel
@pytest.mark.parametrize("value", [0.0, 0.1, 1000.1])
def test_neighbours_among_nothing_but_duplicates_are_the_first_rows(backend, device, kernel, value):
    references = np.full((2000, 3), value, np.float32)
    for k in (1, 3, 50):
        got = ask(
            references[:2], references, np.arange(2000) % 3, 3, kernel=kernel, backend=backend, device=device, k=k
        )
        np.testing.assert_array_equal(got.rows, [np.arange(k)] * 2)
        assert (got.squared_distances == 0).all()


@every_backend
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 30.0, 1e4])
def test_nearly_equal_distances_are_ranked_as_in_float64(backend, device, dtype, offset):
    # References on a sphere around the query, up to a few units of rounding: float32 products cannot rank them.
    rng = np.random.default_rng(0)
    around = rng.normal(size=(400, 6))
    around *= (1 + 1e-7 * rng.normal(size=(400, 1))) / np.linalg.norm(around, axis=1, keepdims=True)
    queries = np.full((1, 6), offset, dtype)
    references = np.concatenate([offset + around, -offset - around]).astype(dtype)
    got = ask(queries, references, np.arange(800) % 3, 3, backend=backend, device=device, k=60)
    _, squared = oracle.nearest(queries, references, 60)
    np.testing.assert_allclose(got.squared_distances, squared, rtol=1e-13)
    np.testing.assert_array_equal(oracle.squared_distances(queries, references)[0][got.rows[0]], squared[0])


@pytest.mark.parametrize("k", [1, 60])
def test_folding_in_float64_once_or_for_every_query_changes_nothing(monkeypatch, k):
    rng = np.random.default_rng(0)
    around = rng.normal(size=(3000, 6))
    around *= (1 + 1e-7 * rng.normal(size=(3000, 1))) / np.linalg.norm(around, axis=1, keepdims=True)
    references, queries = (30 + around).astype(np.float32), np.full((3, 6), 30, np.float32)
    folds, fold = [], layout.fold_points

    def watched(*of: Any) -> torch.Tensor:
        folds.append(of[3])
        return fold(*of)

    monkeypatch.setattr(layout, "fold_points", watched)
    answers, times = [], []
    for most in (layout.DOUBLED, 0):
        monkeypatch.setattr(layout, "DOUBLED", most)
        index = build_index(torch.tensor(references), torch.arange(3000) % 3, 3, get_kernel("gaussian"))
        folds.clear()
        answers.append([query(index, torch.tensor(queries), k=k) for _ in range(2)][1])
        times.append(folds.count(torch.float64))
    assert times[0] == 1 < times[1]
    for once, again in zip(*answers, strict=True):
        np.testing.assert_allclose(once, again, rtol=1e-13)


@pytest.mark.parametrize("held", [7, 100, 10_000])
@pytest.mark.parametrize("k", [0, 1, 30])
def test_direct_differences_are_the_same_however_many_are_held_at_once(monkeypatch, held, k):
    queries, references, labels = case(5, 400, 3, 3)
    queries, references = (2 * queries).round(), (2 * references).round()  # many are equally far
    index = build_index(torch.tensor(references), torch.tensor(labels), 4, get_kernel("gaussian"))
    monkeypatch.setattr(exact, "MATRIX", held)
    log_class_weights, rows, squared = exact.by_difference(index, torch.tensor(queries), k)
    assert_close(log_class_weights, oracle.log_class_weights(queries, references, labels, 4, "gaussian"), 1e-12)
    wanted_rows, wanted = oracle.nearest(queries, references, k)
    np.testing.assert_array_equal(rows, wanted_rows)
    np.testing.assert_allclose(squared, wanted, rtol=1e-13)


def test_a_part_infinitely_far_away_does_not_affect_the_others(monkeypatch):
    references = torch.tensor([[1e200], [0.0], [1.0], [0.0]], dtype=torch.float64)
    index = build_index(references, torch.tensor([0, 0, 1, 1]), 3, get_kernel("gaussian"))
    monkeypatch.setattr(exact, "MATRIX", 1)
    log_class_weights, _, _ = exact.by_difference(index, torch.zeros(1, 1), 0)
    assert_close(log_class_weights, [[0.0, np.log(1 + np.exp(-1)), -np.inf]], 1e-15)


@every_backend
def test_asking_for_neighbours_changes_no_votes(backend, device):
    queries, references, labels = case(20, 200, 4, 3)
    alone = ask(queries, references, labels, 3, backend=backend, device=device)
    both = ask(queries, references, labels, 3, backend=backend, device=device, k=5)
    assert_close(both.log_class_weights, alone.log_class_weights, tolerance=1e-6)
    assert alone.rows.shape == alone.squared_distances.shape == (20, 0)


# Gradients


def leaf(queries, device: str) -> torch.Tensor:
    return torch.as_tensor(queries, device=device).requires_grad_()


@every_backend
@every_kernel
def test_gradient_equals_central_differences_of_the_oracle(backend, device, kernel):
    queries, references, labels = case(4, 30, 3, 3, dtype=np.float64)
    cotangent = np.random.default_rng(1).normal(size=(4, 3))
    h = leaf(queries, device)
    votes = ask(h, references, labels, 3, kernel=kernel, backend=backend, device=device).log_class_weights
    (got,) = torch.autograd.grad(votes, h, torch.as_tensor(cotangent))
    want = oracle.gradient(queries, references, labels, 3, kernel, cotangent)
    np.testing.assert_allclose(got.cpu(), want, rtol=1e-6, atol=1e-7)


@every_backend
@every_kernel
def test_gradient_passes_gradcheck(backend, device, kernel):
    queries, references, labels = case(4, 40, 2, 3, dtype=np.float64)
    index = build_index(
        torch.as_tensor(references, device=device), torch.as_tensor(labels, device=device), 3, get_kernel(kernel)
    )

    def votes(h: torch.Tensor) -> torch.Tensor:
        return query(index, h, backend=backend).log_class_weights

    assert torch.autograd.gradcheck(votes, (leaf(queries, device),))


@every_backend
@every_kernel
@pytest.mark.parametrize(("dtype", "n", "m"), [(np.float16, 5, 40), (np.float32, 257, 4097)])  # across every chunk
def test_gradient_of_narrower_queries_equals_that_of_float64(backend, device, kernel, dtype, n, m):
    queries, references, labels = case(n, m, 3, 3, dtype=dtype)
    how = {"kernel": kernel, "backend": backend, "device": device}
    narrow, wide = leaf(queries, device), leaf(queries.astype(np.float64), device)
    gradients = [
        torch.autograd.grad(ask(h, references, labels, 3, **how).log_class_weights.sum(), h)[0] for h in (narrow, wide)
    ]
    assert gradients[0].dtype == narrow.dtype
    precision = torch.finfo(narrow.dtype).eps
    torch.testing.assert_close(gradients[0].double(), gradients[1], rtol=4 * precision, atol=1e-4)


@every_backend
@every_kernel
def test_gradient_far_from_everything_is_right(backend, device, kernel):
    queries, references, labels = case(4, 30, 3, 3, dtype=np.float64)
    queries[:, 0] = 1e4
    references[:, 0] *= 1e-4
    h = leaf(queries, device)
    votes = ask(h, references, labels, 3, kernel=kernel, backend=backend, device=device).log_class_weights
    cotangent = np.random.default_rng(1).normal(size=(4, 3))
    (got,) = torch.autograd.grad(votes, h, torch.as_tensor(cotangent))
    log_w = torch.as_tensor(oracle.log_weights(queries, references, kernel))
    want = np.zeros_like(queries)
    for i in range(4):  # Σ_i (w_i / Σ w) ∂ log w_i, in closed form
        for k in range(3):
            mine = labels == k
            shares = log_w[i, mine].softmax(dim=0).numpy()
            difference = queries[i] - references[mine]
            squared = (difference**2).sum(axis=1)
            slope = {"gaussian": 0 * squared - 2, "laplace": -(squared**-0.5), "inverse_quadratic": -2 / (1 + squared)}
            want[i] += cotangent[i, k] * (shares * slope[kernel]) @ difference
    np.testing.assert_allclose(got.cpu(), want, rtol=1e-6, atol=1e-8)


@every_backend
@every_kernel
@pytest.mark.parametrize("scale", [0.0, 1e15])
def test_gradient_stays_finite_at_coincident_and_at_huge_points(backend, device, kernel, scale):
    queries, references, labels = case(6, 50, 3, 3, scale=scale)
    h = leaf(queries, device)
    votes = ask(h, references, labels, 3, kernel=kernel, backend=backend, device=device).log_class_weights
    (gradient,) = torch.autograd.grad(votes.sum(), h)
    assert gradient.isfinite().all()


@every_backend
@every_kernel
def test_gradient_of_the_log_probability_survives_an_empty_class(backend, device, kernel):
    queries, references, labels = case(5, 30, 3, 2, dtype=np.float64)
    gradients = []
    for n_classes in (2, 3):
        h = leaf(queries, device)
        votes = ask(h, references, labels, n_classes, kernel=kernel, backend=backend, device=device).log_class_weights
        gradients.append(torch.autograd.grad(votes.log_softmax(dim=1)[:, 1].sum(), h)[0])
    assert gradients[0].isfinite().all()
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-10, atol=1e-12)


@every_backend
def test_neighbours_are_returned_with_a_gradient_and_have_none(backend, device):
    queries, references, labels = case(5, 30, 3, 2)
    h = leaf(queries, device)
    got = ask(h, references, labels, 2, backend=backend, device=device, k=3)
    assert got.log_class_weights.requires_grad
    assert not got.squared_distances.requires_grad
    np.testing.assert_array_equal(got.rows, oracle.nearest(queries, references, 3)[0])
    with torch.no_grad():
        assert not ask(h, references, labels, 2, backend=backend, device=device).log_class_weights.requires_grad


@every_backend
def test_a_second_derivative_is_rejected_rather_than_wrong(backend, device):
    queries, references, labels = case(5, 30, 3, 2)
    h = leaf(queries, device)
    votes = ask(h, references, labels, 2, backend=backend, device=device).log_class_weights
    (gradient,) = torch.autograd.grad(votes.log_softmax(dim=1)[:, 0].sum(), h, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.square().sum().backward()


# Edges and errors


@every_backend
@every_kernel
@pytest.mark.parametrize("k", [0, 3])
def test_zero_queries_give_empty_answers(backend, device, kernel, k):
    queries, references, labels = case(0, 30, 3, 2)
    got = ask(queries, references, labels, 2, kernel=kernel, backend=backend, device=device, k=k)
    assert [tuple(field.shape) for field in got] == [(0, 2), (0, k), (0, k)]
    assert [field.dtype for field in got] == [torch.float64, torch.int64, torch.float64]
    h = leaf(queries, device)
    votes = ask(h, references, labels, 2, kernel=kernel, backend=backend, device=device, k=k).log_class_weights
    assert torch.autograd.grad(votes.sum(), h)[0].shape == (0, 3)


@every_backend
def test_queries_of_another_width_are_rejected(backend, device):
    _, references, labels = case(1, 30, 3, 2)
    with refuses(ShapeError, 3, "(5, 4)"):
        ask(np.zeros((5, 4), np.float32), references, labels, 2, backend=backend, device=device)


@every_backend
@pytest.mark.parametrize("k", [-1, 31, 10**9])
def test_more_neighbours_than_references_are_rejected(backend, device, k):
    queries, references, labels = case(2, 30, 3, 2)
    with refuses(InputError, 0, 30, k):
        ask(queries, references, labels, 2, backend=backend, device=device, k=k)


@pytest.mark.parametrize("name", ["cuda", "", None, ["torch"]])
def test_an_unknown_backend_is_rejected_with_the_choices(name):
    queries, references, labels = case(2, 30, 3, 2)
    with pytest.raises(BackendError) as caught:
        ask(queries, references, labels, 2, backend=name)
    assert repr(name) in str(caught.value)
    assert all(choice in str(caught.value) for choice in ("auto", *BACKENDS))


# Properties. Values stay within 4 of a common centre, where float32 is right to 1e-5.


@st.composite
def problems(draw):
    """(queries, references, labels, n_classes), with duplicates and a common offset now and then."""
    n, m, d = draw(st.integers(1, 6)), draw(st.integers(2, 40)), draw(st.integers(1, 4))
    n_classes = draw(st.integers(1, 5))
    coordinate = st.floats(-4, 4, width=16)
    offset = draw(st.sampled_from([0, 100, -1000]))
    queries = draw(hnp.arrays(np.float32, (n, d), elements=coordinate)) + np.float32(offset)
    references = draw(hnp.arrays(np.float32, (m, d), elements=coordinate)) + np.float32(offset)
    labels = draw(hnp.arrays(np.int64, m, elements=st.integers(0, n_classes - 1)))
    return queries, references, labels, n_classes


@every_backend
@relaxed
@given(kernel=any_kernel, problem=problems(), seed=st.integers(0, 2**32 - 1))
def test_permuting_references_changes_nothing(backend, device, kernel, problem, seed):
    queries, references, labels, n_classes = problem
    how = {"kernel": kernel, "backend": backend, "device": device, "k": min(3, len(labels))}
    order = np.random.default_rng(seed).permutation(len(labels))
    want = ask(queries, references, labels, n_classes, **how)
    got = ask(queries, references[order], labels[order], n_classes, **how)
    assert_close(got.log_class_weights, want.log_class_weights, WORST)
    np.testing.assert_allclose(got.squared_distances, want.squared_distances, rtol=1e-12)


@every_backend
@relaxed
@given(kernel=any_kernel, problem=problems(), data=st.data())
def test_splitting_queries_changes_nothing(backend, device, kernel, problem, data):
    queries, references, labels, n_classes = problem
    how = {"kernel": kernel, "backend": backend, "device": device, "k": min(3, len(labels))}
    cut = data.draw(st.integers(0, len(queries)))
    whole = ask(queries, references, labels, n_classes, **how)
    parts = [ask(part, references, labels, n_classes, **how) for part in (queries[:cut], queries[cut:])]
    assert_close(torch.cat([part.log_class_weights for part in parts]), whole.log_class_weights, WORST)
    assert torch.cat([part.rows for part in parts]).equal(whole.rows)


@every_backend
@relaxed
@given(kernel=any_kernel, problem=problems(), data=st.data())
def test_splitting_references_and_adding_in_log_space_changes_nothing(backend, device, kernel, problem, data):
    queries, references, labels, n_classes = problem
    how = {"kernel": kernel, "backend": backend, "device": device}
    cut = data.draw(st.integers(1, len(labels) - 1))
    whole = ask(queries, references, labels, n_classes, **how).log_class_weights
    first = ask(queries, references[:cut], labels[:cut], n_classes, **how).log_class_weights
    second = ask(queries, references[cut:], labels[cut:], n_classes, **how).log_class_weights
    assert_close(torch.logaddexp(first, second), whole, WORST)


@every_backend
@relaxed
@given(kernel=any_kernel, problem=problems(), seed=st.integers(0, 2**32 - 1))
def test_permuting_labels_permutes_columns(backend, device, kernel, problem, seed):
    queries, references, labels, n_classes = problem
    how = {"kernel": kernel, "backend": backend, "device": device}
    renamed = np.random.default_rng(seed).permutation(n_classes)
    want = ask(queries, references, labels, n_classes, **how).log_class_weights
    got = ask(queries, references, renamed[labels], n_classes, **how).log_class_weights
    assert_close(got[:, renamed], want, WORST)


@every_backend
@every_kernel
@relaxed
@given(problem=problems())
def test_any_small_problem_equals_the_oracle(backend, device, kernel, problem):
    queries, references, labels, n_classes = problem
    k = min(4, len(labels))
    got = ask(queries, references, labels, n_classes, kernel=kernel, backend=backend, device=device, k=k)
    assert_close(got.log_class_weights, oracle.log_class_weights(queries, references, labels, n_classes, kernel), WORST)
    _, squared = oracle.nearest(queries, references, k)
    np.testing.assert_allclose(got.squared_distances, squared, rtol=1e-12)


# Memory

MEMORY = """
import sys
import numpy as np
from dwac import ReferenceSet

def status(field):
    # Not ru_maxrss: a child inherits its parent's peak, which would hide its own.
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024

def work(queries, references, labels, k):
    refs = ReferenceSet(references, labels)
    return refs.query(queries, k=k) if k else refs.log_class_weights(queries)

n, m, k = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
queries, references = rng.normal(size=(n, 16)).astype("f4"), rng.normal(size=(m, 16)).astype("f4")
labels = rng.integers(0, 10, m)
work(queries[:5], references[:500], labels[:500], k)  # what the libraries load once is not counted
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
work(queries, references, labels, k)
print(status("VmHWM") - before)
"""


def peak_mebibytes(n: int, m: int, k: int) -> float:
    """Peak resident memory above the inputs, in a separate process on one core."""
    command = [sys.executable, "-c", f"import os; os.environ['OMP_NUM_THREADS'] = '1'\n{MEMORY}", *map(str, (n, m, k))]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc")


@pytest.mark.slow
@linux
def test_two_thousand_queries_against_a_million_references_stay_under_a_gigabyte():
    # The matrix of log-weights alone would take 8 GB.
    assert peak_mebibytes(2_000, 1_000_000, 0) < 1000


@pytest.mark.slow
@linux
def test_neighbours_stay_under_the_same_limit():
    assert peak_mebibytes(2_000, 200_000, 10) < 400
