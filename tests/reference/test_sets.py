"""Several sets of voters answer together what each answers alone."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from dwac import ReferenceSet
from dwac.errors import NonFiniteError, ShapeError
from dwac.kernels import KERNELS
from dwac.reference import novelty, voters
from dwac.reference.novelty import Known, novelty_by_set
from dwac.reference.sets import VoterSets
from dwac.training.cross_fit import FOLDS, part_of, parts_of
from tests.named import refuses

K, D, SIZES = 3, 4, (40, 37, 41)


def sets(sizes: tuple[int, ...] = SIZES, **options: Any) -> list[ReferenceSet]:
    """Sets of different sizes; nobody in them is of the last class."""
    rng = np.random.default_rng(0)
    weighted = options.pop("weighted", False)
    return [
        ReferenceSet(
            rng.normal(size=(m, D)).astype(np.float32),
            rng.integers(0, K - 1, m),
            n_classes=K,
            weights=rng.uniform(0.5, 3, m) if weighted else None,
            **options,
        )
        for m in sizes
    ]


def queries(n: int = 6, n_sets: int = len(SIZES)) -> torch.Tensor:
    found = torch.as_tensor(np.random.default_rng(1).normal(size=(n_sets, n, D)).astype(np.float32))
    found[:, -1] += 1000.0  # far from everybody
    return found


OPTIONS: list[dict[str, Any]] = [
    *({"kernel": kernel} for kernel in KERNELS),
    {"look_alikes": (0.0, 0.01)},
    {"look_alikes": (3.0, 20.0)},
    {"class_weights": [1.0, 2.0, 0.5]},
    {"weighted": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("few", [2**14, 0], ids=["few", "many"])
def test_sets_asked_together_answer_as_one_by_one(
    options: dict[str, Any], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voters, "_FEW", few)
    monkeypatch.setattr(voters, "MATRIX", 100)  # few queries at a time
    refs, h = sets(**options), queries()
    together = VoterSets(tuple(each.voters for each in refs))
    alone = [each.log_class_weights(part) for each, part in zip(refs, h, strict=True)]
    assert torch.equal(together.log_class_weights(h), torch.stack(alone, dim=1))
    for k in (1, 5):
        near = [each.voters.each_once.query(part, k, "auto")[2] for each, part in zip(refs, h, strict=True)]
        assert torch.equal(together.squared_distances(h, k), torch.stack(near, dim=1))
    for directions in (False, True):
        one = [novelty(each, part, directions=directions) for each, part in zip(refs, h, strict=True)]
        found = novelty_by_set(together, h, directions=directions)
        torch.testing.assert_close(found, torch.stack(one, dim=1), rtol=1e-12, atol=1e-12)


def test_sets_with_fewer_voters_than_neighbours_have_their_own_novelty() -> None:
    refs, h = sets((3, 40, 1)), queries()
    one = [novelty(each, part) for each, part in zip(refs, h, strict=True)]
    found = novelty_by_set(VoterSets(tuple(each.voters for each in refs)), h)
    torch.testing.assert_close(found, torch.stack(one, dim=1), rtol=1e-12, atol=1e-12)


def test_equal_distances_stay_in_order_and_copies_are_at_distance_zero() -> None:
    refs = [ReferenceSet(np.zeros((m, D)), np.zeros(m, int)) for m in (4, 7)]
    found = VoterSets(tuple(each.voters for each in refs)).squared_distances(torch.zeros(2, 3, D), 4)
    assert found.tolist() == [[[0.0] * 4] * 2] * 3


def test_no_queries_have_no_answers() -> None:
    together = VoterSets(tuple(each.voters for each in sets()))
    assert together.log_class_weights(queries(1)[:, :0]).shape == (0, len(SIZES), K)
    assert together.squared_distances(queries(1)[:, :0], 2).shape == (0, len(SIZES), 2)


def test_queries_that_do_not_fit_the_sets_are_refused() -> None:
    together = VoterSets(tuple(each.voters for each in sets()))
    for wrong in (queries()[:2], queries()[:, :, :2], queries()[0]):
        with refuses(ShapeError, "queries"):
            together.log_class_weights(wrong)
    with refuses(NonFiniteError, "nan"):
        together.squared_distances(queries() * torch.nan, 1)


@pytest.mark.parametrize("nobody", [False, True])
def test_features_are_compared_with_those_who_vote_in_each_set(nobody: bool) -> None:
    rng = np.random.default_rng(0)
    known = Known(torch.as_tensor(rng.normal(size=(30, 3))), range(30))
    z = torch.as_tensor(rng.normal(size=(5, 3)))
    ids = [pd.Index(np.flatnonzero(np.arange(30) % 3 != fold)) for fold in range(3)]
    ids += [pd.Index([99])] if nobody else []
    for _ in range(2):
        want = torch.stack([known.distance(z, each) for each in ids], dim=1)
        assert torch.equal(known.distances(z, ids), want)
    assert torch.equal(known.distances(z, ids[:2]), want[:, :2])


def test_the_parts_of_all_folds_are_those_of_each() -> None:
    h = torch.randn(7, 40, generator=torch.Generator().manual_seed(0))
    for members in (FOLDS, 2 * FOLDS):
        want = torch.stack([part_of(h, fold, members) for fold in range(FOLDS)])
        assert torch.equal(parts_of(h, members), want)
        assert parts_of(h[:0], members).shape == (FOLDS, 0, 40 // FOLDS)
