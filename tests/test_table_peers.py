"""The networks for tables that we compare with compute what their papers say."""

import numpy as np
import pandas as pd
import torch

from benchmarks.table_peers import ModernNCA, Shared, TabM, encoded


def test_each_network_of_tabm_is_a_linear_map_of_its_own() -> None:
    torch.manual_seed(0)
    layer = Shared(3, 4, 2, r=torch.randn(3, 4))
    layer.s.data.normal_()
    x = torch.randn(5, 3, 4)
    for member in range(3):
        weight = layer.s[member, :, None] * layer.weight * layer.r[member]
        torch.testing.assert_close(layer(x)[:, member], x[:, member] @ weight.T + layer.bias[member])


def test_tabm_starts_as_different_networks_and_pieces_bend_its_lines() -> None:
    torch.manual_seed(0)
    x, z = torch.randn(50, 2), torch.ones(50, 3)
    x[:, 1] = 0.0  # a column of ties has no bins
    model = TabM(x, 3, 4, k=5, width=8).eval()
    before = model(x, z).detach()
    assert before.shape == (50, 5, 4)
    assert float(before.std(dim=1).min()) > 0
    model.pieces.data[0, 0] = 1.0
    assert bool(torch.isfinite(model(x, z)).all())
    assert not torch.equal(model(x, z), before)


def test_no_row_of_modern_nca_votes_on_itself() -> None:
    torch.manual_seed(0)
    model = ModernNCA(2, 0, 2)
    h, y = model(torch.randn(6, 2), torch.zeros(6, 0)), torch.tensor([0, 1, 0, 1, 1, 0])
    w = torch.exp(-(h[:, None] - h).square().sum(2).sqrt()).fill_diagonal_(0)
    expected = (w @ torch.eye(2)[y]) / w.sum(1, keepdim=True)
    torch.testing.assert_close(model.log_p(h, h, y, own=True).exp(), expected, atol=1e-4, rtol=1e-4)


def test_gaps_and_categories_become_columns_of_0_and_1_by_training_rows() -> None:
    X = pd.DataFrame({"age": [1.0, 2.0, 3.0, 4.0], "job": pd.Categorical(["a", None, "b", "a"])})
    parts = encoded(X, np.array([0, 1, 0, 1]), np.array([3]), X.iloc[:1], normal=False, device="cpu")
    x, z, y = parts.training
    assert (z.tolist(), y.tolist()) == ([[1, 0, 0], [0, 0, 1], [0, 1, 0]], [0, 1, 0])
    torch.testing.assert_close(x[:, 0], torch.tensor([-1.2247449, 0.0, 1.2247449]))
    torch.testing.assert_close(parts.judged[0][0, 0], x[0, 0])
