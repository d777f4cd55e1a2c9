"""Local calibration against a double loop over all pairs, its validity, and coverage where scores are large."""

from typing import Any

import numpy as np
import pytest

from dwac.conformal import Calibration, CrossCalibration
from dwac.conformal.local import LocalScores
from dwac.conformal.weights import ExampleCalibration

rng = np.random.default_rng(0)
POINTS, PROBES = rng.normal(size=(71, 2)), rng.normal(size=(2, 60, 2))
SCORES = rng.normal(size=71) * np.exp(POINTS[:, 0])


def ranks(scores: Any, points: Any, width_of: Any) -> Any:
    """R_i = Σ_j w_ij 1{s_j ≥ s_i} / Σ_j w_ij, by its definition."""
    found = []
    for i in range(len(scores)):
        width = width_of(points[i])
        weights = [np.exp(-np.square(points[i] - other).sum() / width) for other in points]
        found.append(sum(w for w, s in zip(weights, scores, strict=True) if s >= scores[i]) / sum(weights))
    return np.array(found)


def p_value(calibration: Any, scores: Any, new: Any, points: Any, **options: Any) -> Any:
    local = LocalScores(scores, calibration[1], PROBES, **options)
    return locally(calibration[0], local, points, options.get("labels")).p_values(new)


def locally(whole: Any, local: LocalScores, points: Any, labels: Any = None) -> ExampleCalibration:
    return ExampleCalibration(whole, lambda row: local.of(points[row]), local.folds, labels)


def test_p_values_are_ranks_of_ranks_whichever_example_is_the_new_one() -> None:
    width_of = LocalScores(SCORES, POINTS, PROBES)._parts[0][2]._width  # a function of a point and the probes
    expected = ranks(SCORES, POINTS, width_of)
    found = []
    for new in range(71):
        others = np.delete(np.arange(71), new)
        calibration = Calibration(SCORES[others]), POINTS[others]
        found.append(p_value(calibration, SCORES[others], SCORES[[new], None], POINTS[[new], None])[0, 0])
    wanted = [(expected <= own + 1e-11).mean() for own in expected]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
    assert (np.sort(found) >= np.arange(1, 72) / 71 - 1e-12).all()  # valid for exchangeable examples, at every ε
    marginal = [(own <= SCORES).mean() for own in SCORES]
    assert np.abs(np.subtract(found, marginal)).max() > 0.05


def test_ties_and_tolerance_only_increase_p_values() -> None:
    rounded, calibration = np.round(SCORES, 1), (Calibration(np.round(SCORES, 1), tolerance=0.1), POINTS)
    new, at = np.round(rng.normal(size=(3, 2)), 1), rng.normal(size=(3, 1, 2))
    width_of = LocalScores(rounded, POINTS, PROBES)._parts[0][2]._width
    found = p_value(calibration, rounded, new, at)
    for row, point in enumerate(at[:, 0]):
        for label, score in enumerate(new[row]):
            exact = ranks(np.append(rounded, score), np.append(POINTS, [point], axis=0), width_of)
            assert found[row, label] >= (exact <= exact[-1]).mean() - 1e-12


def test_folds_and_classes_are_compared_separately() -> None:
    folds, labels = rng.integers(0, 2, 71), rng.integers(0, 2, 71)
    new, at = rng.normal(size=(4, 2, 2)), rng.normal(size=(4, 2, 2))
    whole = CrossCalibration(SCORES, folds, labels)
    found = p_value((whole, POINTS), SCORES, new, at, folds=folds, labels=labels)
    for label in range(2):
        counts = np.ones(4)
        for fold in range(2):
            rows = np.flatnonzero((folds == fold) & (labels == label))
            alone = LocalScores(SCORES[rows], POINTS[rows], PROBES[[fold]])
            counts += [(alone.of(at[row, [fold]]) >= new[row, fold, label]).sum() for row in range(4)]
        np.testing.assert_allclose(found[:, label], counts / (1 + (labels == label).sum()))


def test_few_examples_all_count_the_same() -> None:
    few, new = Calibration(SCORES[:50]), rng.normal(size=(9, 3))
    local = p_value((few, POINTS[:50]), SCORES[:50], new, rng.normal(size=(9, 1, 2)))
    np.testing.assert_allclose(local, few.p_values(new))


@pytest.mark.parametrize("draws", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_coverage_is_as_asked_for_where_scores_are_large_too(draws: int) -> None:
    found = []
    for seed in range(draws):
        random = np.random.default_rng(seed)
        x, probes = random.random((900, 1)), random.random((1, 200, 1))
        scores = np.abs(random.normal(size=900)) * (0.2 + 3 * (x[:, 0] > 0.8))
        calibration, new = Calibration(scores[:500]), scores[500:, None]
        local = locally(calibration, LocalScores(scores[:500], x[:500], probes), x[500:, None])
        hard = x[500:, 0] > 0.85
        covered, marginal = (each.p_values(new)[:, 0] > 0.1 for each in (local, calibration))
        found.append([covered[hard].mean(), covered[~hard].mean(), marginal[hard].mean()])
    there, elsewhere, before = np.mean(found, axis=0)
    assert there > 0.85
    assert 0.87 < elsewhere < 0.93
    assert before < 0.65
