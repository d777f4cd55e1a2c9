"""Decisions by cost: none is cheaper in expectation, and the threshold is where both decisions cost the same."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dwac.errors import InputError, ShapeError
from dwac.tasks.costs import class_costs, decide_by_cost, read_costs
from tests.named import named, refuses

LABELS = np.array(["bad", "good", "unsure"])
unit = st.floats(0, 1, width=32)


@given(arrays(np.float64, (5, 3), elements=unit), arrays(np.float64, (3, 3), elements=unit))
def test_no_decision_has_a_smaller_expected_cost(weights: np.ndarray, costs: np.ndarray) -> None:
    p = (weights + 1e-6) / (weights + 1e-6).sum(axis=1, keepdims=True)
    decided = decide_by_cost(p, costs)
    for row, choice in enumerate(decided):
        each = [sum(p[row, k] * costs[k, j] for k in range(3)) for j in range(3)]
        assert each[choice] <= min(each) + 1e-9


@given(*[st.floats(0.1, 50)] * 2)
def test_two_classes_are_decided_by_a_threshold(approval: float, denial: float) -> None:
    classes, p = LABELS[:2], np.linspace(0, 1, 101)
    matrix = read_costs({("bad", "good"): approval, ("good", "bad"): denial}, classes)
    truth = np.tile([0, 1, 1], 34)[:101]
    result, decided = class_costs(matrix, classes, truth, (p > 0.5).astype(int), np.stack([1 - p, p], axis=1))
    threshold = float(result.decisions["threshold"].iloc[1])
    assert threshold == pytest.approx(approval / (approval + denial))
    clear = np.abs(p - threshold) > 1e-9
    assert (decided == (p > threshold))[clear].all()
    assert named(result.rule, "good", f"{threshold:.3g}")
    paid = np.where((truth == 0) & (decided == 1), approval, np.where((truth == 1) & (decided == 0), denial, 0))
    assert result.mean == pytest.approx(paid.mean())


def test_costs_are_read_by_pair_by_name_or_in_order() -> None:
    pairs = {("bad", "good"): 5, ("good", "bad"): 1.0}
    matrix = np.array([[0, 5, 0], [1, 0, 0], [0, 0, 0.0]])
    names = list(LABELS[::-1])
    frame = pd.DataFrame(matrix, LABELS, LABELS).loc[names, names]
    for costs in (pairs, frame, matrix.tolist()):
        assert np.array_equal(read_costs(costs, LABELS), matrix)


def test_wrong_costs_are_refused() -> None:
    with refuses(InputError, "'worse'", "'bad'"):
        read_costs({("bad", "worse"): 1}, LABELS)
    with refuses(ShapeError, 3, "(2, 2)"):
        read_costs(np.eye(2), LABELS)
    with refuses(InputError, "finite"):
        read_costs({("bad", "good"): np.nan}, LABELS)
    with refuses(InputError, "less"):
        read_costs(np.eye(3), LABELS)
