"""Few references are asked by differences, many by products: both give the same answers."""

from typing import Any

import numpy as np
import pytest

from dwac import ReferenceSet

RNG = np.random.default_rng(0)
H, Y = RNG.normal(size=(90, 6)), RNG.integers(0, 3, 90)
QUERIES = np.concatenate([RNG.normal(size=(40, 6)), H[:5], [[1e3] * 6, [0.0] * 6]])
WEIGHTS = RNG.integers(1, 9, 90).astype(float)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "inverse_quadratic"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"look_alikes": (3.0, 5.0)},
        {"look_alikes": (0.0, 0.1)},
        {"weights": WEIGHTS},
        {"class_weights": [1, 2, 5, 1]},
    ],
    ids=["plain", "look-alikes", "base votes", "weights", "class weights"],
)
def test_differences_and_products_agree(kernel: str, options: dict[str, Any]) -> None:
    refs = ReferenceSet(H, Y, n_classes=4, kernel=kernel, **options)
    near = 1e-6 if kernel == "laplace" else 1e-9  # √ magnifies the rounding of a product near 0
    for method in (refs.log_class_weights, refs.log_group_weights):
        np.testing.assert_allclose(method(QUERIES), method(QUERIES, backend="torch"), rtol=near, atol=near)
    few, many = refs.nearest(QUERIES, 7), refs.nearest(QUERIES, 7, backend="torch")
    np.testing.assert_array_equal(few.ids, many.ids)
    np.testing.assert_allclose(few.squared_distances, many.squared_distances, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(few.log_weights, many.log_weights, rtol=near, atol=near)


def test_one_query_has_the_same_answer_alone() -> None:
    refs = ReferenceSet(H, Y, look_alikes=(3.0, 5.0))
    alone = np.concatenate([refs.log_class_weights(query[None]) for query in QUERIES])
    np.testing.assert_array_equal(alone, refs.log_class_weights(QUERIES))


def test_the_farthest_queries_have_votes_that_are_numbers() -> None:
    assert not np.isnan(ReferenceSet(H, Y, look_alikes=(3.0, 5.0)).log_class_weights([[1e150] * 6])).any()
