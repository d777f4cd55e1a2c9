"""Who decides which queries need float64, and that these are not swept in float32 in vain."""

from typing import Any

import pytest
import torch

from dwac.engine import BACKENDS, build_index, exact, query
from dwac.engine.precision import PLAIN
from dwac.kernels import get_kernel
from tests.engine.helpers import DEVICES, INTERPRETED, assert_close


def problem(n: int, m: int, d: int, n_classes: int, device: str) -> tuple[Any, torch.Tensor]:
    """References of all classes but the last, and queries near them, among them, and far away."""
    rng = torch.Generator().manual_seed(0)
    references = torch.randn(m, d, generator=rng)
    labels = torch.arange(m) % max(1, n_classes - 1)
    queries = torch.randn(n, d, generator=rng)
    queries[: n // 4] *= 20
    queries[n // 4 : n // 3] = 0.0
    queries[-1] = 1e20
    index = build_index(references.to(device), labels.to(device), n_classes, get_kernel("gaussian"))
    return index, queries.to(device)


@pytest.mark.skipif(not INTERPRETED and "cuda" not in DEVICES, reason="Triton runs on a GPU or interpreted")
@pytest.mark.parametrize(("d", "n_classes", "unit"), [(3, 1, 1e-6), (16, 70, 1e-7)])
def test_the_fused_policy_decides_as_the_plain_one(d, n_classes, unit):
    device = DEVICES[-1]
    index, queries = problem(24, 280, d, n_classes, device)
    fused: Any = BACKENDS["triton"]
    centred = (queries - index.centre).float()
    for neighbours in (0, 2):
        sweep = BACKENDS["torch"].sweep(index, centred, neighbours)
        votes = index, sweep.log_class_weights, sweep.norms, sweep.nearest, unit, True
        plain, ours = PLAIN.unsure(*votes), fused.policy.unsure(*votes)
        assert torch.equal(plain, ours)
        assert 0 < plain.sum() < 24
    cotangent = torch.randn(24, n_classes, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(device)
    cotangent[0], cotangent[1] = 0.0, cotangent[1] * 1e-60
    pulls = index, centred, query(index, queries, backend="torch").log_class_weights, cotangent, unit
    wanted, found = PLAIN.scale(*pulls), fused.policy.scale(*pulls)
    assert wanted.strained is not None
    assert found.strained is not None
    assert torch.equal(wanted.strained, found.strained)
    assert 0 < wanted.strained.sum() < 24
    torch.testing.assert_close(found.cotangent, wanted.cotangent, rtol=1e-14, atol=0)
    assert torch.equal(found.largest, wanted.largest)


def test_norms_too_large_for_float32_are_swept_in_float64_alone(monkeypatch):
    index, queries = problem(24, 280, 5, 3, "cpu")
    swept: list[tuple[torch.dtype, int]] = []
    chosen: Any = BACKENDS["torch"]

    class Spy:
        name, rounding, products = "spy", chosen.rounding, staticmethod(chosen.products)

        def sweep(self, index, queries, n_blocks):
            swept.append((queries.dtype, len(queries)))
            return chosen.sweep(index, queries, n_blocks)

    monkeypatch.setattr(exact, "choose_backend", lambda *_: Spy())
    found = query(index, queries, k=2)
    assert swept[0] == (torch.float64, 7)  # the six far queries, and the one at 1e20
    assert swept[1] == (torch.float32, 17)
    monkeypatch.undo()
    precise = build_index(index.embeddings.double(), index.labels, 3, index.kernel)
    wanted = query(precise, queries.double(), k=2)
    assert torch.equal(found.rows, wanted.rows)
    assert_close(found.log_class_weights, wanted.log_class_weights)
    assert_close(found.squared_distances, wanted.squared_distances)
