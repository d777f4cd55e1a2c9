"""Small indexes queried in one pass answer as `query` does, and no answer depends on the other queries."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dwac.engine import build_index, query
from dwac.engine import stack as stack_module
from dwac.engine.stack import Stack, _largest, multiply
from dwac.kernels import get_kernel

SIZES, D, K = (300, 290, 310), 6, 4


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def stack(dtype: torch.dtype, kernel: str = "gaussian") -> Stack | None:
    """Sets of different sizes; the last class is empty, and one class is in a single set."""
    indexes = []
    for place, m in enumerate(SIZES):
        labels = torch.arange(m) % (K - 1 - (place == 0))
        indexes.append(build_index(draw(m, D, dtype=dtype, seed=place), labels, K, get_kernel(kernel)))
    return Stack.of(indexes)


def queries(n: int, dtype: torch.dtype) -> Tensor:
    """The first is far away; the second is a reference of the first set."""
    h = draw(len(SIZES), n, D, dtype=dtype, seed=9)
    h[:, 0] *= 40
    h[0, 1] = draw(SIZES[0], D, dtype=dtype)[7]
    return h


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_stack_answers_as_each_of_its_indexes(dtype: torch.dtype) -> None:
    sets, h = stack(dtype), queries(60, dtype)
    assert sets is not None
    result, start = sets.query(h, 5), 0
    assert not result.unsure[..., 1].any()
    for place, index in enumerate(sets.indexes):
        want = query(index, h[place], k=5)
        torch.testing.assert_close(result.log_class_weights[:, place], want.log_class_weights, rtol=1e-5, atol=1e-5)
        assert torch.equal(result.rows[:, place] - start, want.rows)
        assert torch.equal(result.squared_distances[:, place], want.squared_distances)
        start += len(index.labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_no_answer_depends_on_the_other_queries(dtype: torch.dtype) -> None:
    sets, h = stack(dtype), queries(70, dtype)
    assert sets is not None
    whole = sets.query(h, 5)
    for rows in ([3], [69], [0, 1], list(range(17)), [*range(60, 70), *range(20)]):
        for field, want in zip(sets.query(h[:, rows], 5), whole, strict=True):
            assert torch.equal(field, want[rows])
    assert torch.equal(sets.query(h, 0).log_class_weights, whole.log_class_weights)
    nearest = sets.query(h, 5, votes=False)
    assert torch.equal(nearest.squared_distances, whole.squared_distances)
    assert nearest.log_class_weights.shape == (70, len(SIZES), 0)


def test_what_rounding_leaves_in_doubt_is_said() -> None:
    labels = torch.arange(200) % 2
    tied = build_index(torch.zeros(200, 2), labels, 2, get_kernel("gaussian"))
    sets = Stack.of([tied])
    assert sets is not None
    unsure = sets.query(torch.zeros(1, 1, 2), 5).unsure[0, 0]
    assert unsure.tolist() == [False, True]  # which five of 200 copies are nearest
    far = sets.query(torch.full((1, 1, 2), 1e9), 0)
    assert far.log_class_weights.isfinite().all()


def test_a_stack_too_large_for_float64_leaves_its_doubt_to_others() -> None:
    tied = build_index(torch.zeros(60_000, 80), torch.zeros(60_000, dtype=torch.int64), 1, get_kernel("gaussian"))
    sets = Stack.of([tied])
    assert sets is not None
    assert tied.doubled is tied
    assert sets.query(torch.zeros(1, 1, 80), 5).unsure[0, 0].tolist() == [False, True]


def test_other_kernels_and_large_sets_are_not_stacked() -> None:
    assert stack(torch.float32, "laplace") is None
    large = build_index(draw(70_000, 2), torch.zeros(70_000, dtype=torch.int64), 1, get_kernel("gaussian"))
    assert Stack.of([large]) is None


@pytest.mark.parametrize("k", [5, 20, 98, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_largest_have_their_places(dtype: torch.dtype, k: int) -> None:
    values = draw(12, 9, 11, dtype=dtype)
    values[:6] = values[:6].round(decimals=1)  # with ties
    values[0, :8], values[1] = 0.5, 2.0  # many, and nothing else
    flat = values.flatten(1)
    least, rows, places = _largest(flat.numpy(), values.amax(dim=1).numpy(), k)
    assert sorted(set(rows.tolist())) == list(range(12))
    for row in range(12):
        own = places[rows == row]
        rest = np.delete(flat[row].numpy(), own)
        assert len(set(own.tolist())) == len(own) >= min(k, 99)
        assert (rest <= least[row]).all()
        assert (flat[row].numpy()[own] >= least[row]).all()


@pytest.mark.parametrize(("m", "classes"), [(1, 1), (3, 5), (70, 70), (2_000, 1), (40_000, 3), (999, 200)])
def test_every_reference_votes_once_however_lanes_divide_them(m: int, classes: int) -> None:
    labels = torch.arange(m).square() % classes  # of unequal numbers
    index = build_index(draw(m, 2), labels, classes, get_kernel("gaussian"))
    sets, h = Stack.of([index]), draw(1, 9, 2, seed=1)
    assert sets is not None
    want = query(index, h[0], k=min(m, 5), backend="torch")
    result = sets.query(h, min(m, 5))
    torch.testing.assert_close(result.log_class_weights[:, 0], want.log_class_weights, rtol=1e-5, atol=1e-5)
    assert torch.equal(result.rows[:, 0], want.rows)


def test_small_arrays_take_one_thread_and_many_queries_take_several_with_the_same_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sets, h, threads = stack(torch.float32), queries(70, torch.float32), []
    assert sets is not None
    alone, usual, before = sets.query(h, 5), multiply, torch.get_num_threads()

    def watched(*arguments: Any) -> None:
        threads.append((torch.get_num_threads(), threading.get_ident()))
        usual(*arguments)

    monkeypatch.setattr(stack_module, "multiply", watched)
    monkeypatch.setattr(stack_module, "_TOGETHER", 16)
    torch.set_num_threads(2)
    try:
        many = sets.query(h, 5)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert {count for count, _ in threads} == {1}
    assert {thread for _, thread in threads} - {threading.get_ident()}
    assert all(torch.equal(*pair) for pair in zip(many, alone, strict=True))
