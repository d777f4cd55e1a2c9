"""The networks for tables that we compare with compute what their papers say."""

import numpy as np
import pandas as pd
import torch

from benchmarks.table_peers import ModernNCA, Shape, TabM, encoded

SHAPE = Shape(blocks=2, width=8, dropout=0.1, embedding=4, bins=6, rate=1e-3, decay=0, batch=16)


def test_networks_of_tabm_differ_in_one_scale_per_column_and_in_their_outputs() -> None:
    torch.manual_seed(0)
    x, z = torch.randn(50, 2), torch.ones(50, 3)
    model = TabM(torch.quantile(x, torch.linspace(0, 1, 7), dim=0).T, [1, 2], 3, SHAPE, k=5).eval()
    assert model.scales.shape == (5, 2 * 4 + 3)
    assert bool((model.scales[:, 0] == model.scales[:, 3]).all())
    assert bool((model.scales[:, 9] == model.scales[:, 10]).all())
    found = model(x, z)
    assert found.shape == (50, 5, 3)
    for member in range(5):
        h = torch.cat([(x[..., None] * model.line + model.start).flatten(1), z], dim=1) * model.scales[member]
        for layer in model.layers:
            h = torch.relu(layer(h))
        torch.testing.assert_close(found[:, member], h @ model.last[member] + model.bias[member])


def test_networks_of_tabm_may_see_rows_of_their_own() -> None:
    torch.manual_seed(0)
    x, z = torch.randn(50, 2), torch.rand(50, 3)
    model = TabM(torch.quantile(x, torch.linspace(0, 1, 7), dim=0).T, [3], 3, SHAPE, k=5).eval()
    order = torch.rand(50, 5).argsort(dim=0)
    own = model(x[order], z[order])
    torch.testing.assert_close(own[:, 2], model(x, z)[order[:, 2], 2])


def test_pieces_bend_the_lines_of_tabm_and_a_column_of_ties_has_none() -> None:
    torch.manual_seed(0)
    x, z = torch.randn(50, 2), torch.ones(50, 3)
    x[:, 1] = 0.0
    model = TabM(torch.quantile(x, torch.linspace(0, 1, 7), dim=0).T, [1, 1, 1], 4, SHAPE, k=5).eval()
    before = model(x, z).detach()
    model.pieces.data[1] = 1.0
    torch.testing.assert_close(model(x, z), before)
    model.pieces.data[0, 0] = 1.0
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
    assert parts.sections == [3]
