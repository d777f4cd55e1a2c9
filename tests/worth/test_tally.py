"""Every vote of a reference set, block by block: the votes that class sums are made of."""

import numpy as np
import pytest
import torch

from dwac import ReferenceSet
from dwac.worth import GameValues, Tally, vote_blocks
from dwac.worth import tally as tallies


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"kernel": "laplace"},
        {"kernel": "inverse_quadratic", "weights": np.arange(1.0, 41)},
        {"class_weights": [1.0, 3.0, 0.5], "weights": np.arange(1.0, 41)},
        {"look_alikes": (3.0, 2.0), "class_weights": [1.0, 3.0, 0.5]},
        {"look_alikes": (0.0, 1e-3)},
    ],
)
def test_votes_sum_to_the_class_weights(settings, monkeypatch) -> None:
    monkeypatch.setitem(tallies.VOTES, "cpu", 100)  # two queries at a time
    rng = np.random.default_rng(0)
    references = ReferenceSet(rng.normal(size=(40, 3)), np.arange(40) % 3, **settings)
    h = torch.tensor(rng.normal(size=(5, 3)) * 3)
    parts = list(vote_blocks(references, h))
    assert [(rows.start, rows.stop) for rows, _ in parts] == [(0, 2), (2, 4), (4, 5)]
    log_w = torch.cat([votes for _, votes in parts])
    sums = [log_w[:, references.labels == k].logsumexp(dim=1) for k in range(3)]
    assert torch.allclose(torch.stack(sums, dim=1), references.log_class_weights(h), atol=1e-9)


def test_nobody_votes_on_itself() -> None:
    references = ReferenceSet([[0.0], [1.0], [2.0]], [0, 1, 0])
    ((_, log_w),) = vote_blocks(references, torch.tensor([[1.0], [0.5]]), np.array([1, -1]))
    assert log_w.isneginf().tolist() == [[False, True, False], [False, False, False]]


def test_a_tally_in_parts_is_that_of_the_whole() -> None:
    values = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1e3
    tally = Tally(4)
    for part in values.split([1, 12, 0, 17]):
        tally.add(GameValues(part, torch.full((len(part),), 1e-5)))
    np.testing.assert_allclose(tally.mean, values.mean(dim=0))
    np.testing.assert_allclose(tally.deviation, values.std(dim=0))
    np.testing.assert_allclose(tally.standard_error, values.std(dim=0) / 30**0.5)
    assert tally.n == 30
    assert tally.error == pytest.approx(1e-5)
