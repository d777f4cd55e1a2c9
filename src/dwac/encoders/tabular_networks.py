"""Networks for tables: embeddings of numbers and categories, then a multi-layer perceptron."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

UNKNOWN = 0  # the index of rare and unseen categories
MOST_PLACES = 128  # of all categories together, where rows are compared


class TabularNetwork(nn.Module):
    """numeric (n, p), categorical (n, q) → (n, widths[-1]): embeddings, then layers with ReLU and dropout.

    Continuous numbers get periodic embeddings; plain ones stay as they are. Categories are one-hot: each selects a row
    of `table`, which holds weights of the first layer. In training, a share `unknown` of the categories is hidden, so
    that the index of unseen ones is trained too. `coordinates`: positions of the numbers that are raw features of a
    row. `compared`: rows are compared by these, by the column after the plain numbers, which the network does not read,
    and by their categories.
    """

    starts: Tensor
    places: Tensor
    buckets: Tensor

    def __init__(
        self,
        n_continuous: int,
        n_plain: int,
        sizes: Sequence[int],
        widths: Sequence[int],
        *,
        dropout: float = 0.2,
        frequencies: int = 48,
        sigma: float = 0.25,
        unknown: float = 0.01,
        coordinates: Sequence[int] = (),
        compared: bool = False,
    ) -> None:
        super().__init__()
        self.n_continuous, self.n_plain, self.dropout, self.unknown = n_continuous, n_plain, dropout, unknown
        self.n_raw_features = len(coordinates)
        buckets = _buckets(sizes) if compared else []
        self.register_buffer("buckets", torch.tensor(buckets, dtype=torch.int64), persistent=False)
        self.n_compared_features = len(coordinates) + (bool(coordinates) if compared else 0) + sum(buckets)
        self.register_buffer("places", torch.tensor(coordinates, dtype=torch.int64), persistent=False)
        self.periodic = PeriodicEmbedding(n_continuous, frequencies, sigma) if n_continuous else None
        n_numeric = n_plain + (n_continuous * self.periodic.size if self.periodic is not None else 0)
        fan_in = n_numeric + sum(sizes)
        self.weight = _uniform(widths[0], n_numeric, fan_in=fan_in)
        self.bias = _uniform(widths[0], fan_in=fan_in)
        starts = torch.tensor([0, *(size + 1 for size in sizes)]).cumsum(
            0
        )  # the first row of each column is that of UNKNOWN
        self.register_buffer("starts", starts[:-1], persistent=False)
        self.table = _uniform(int(starts[-1]), widths[0], fan_in=fan_in) if sizes else None
        if self.table is not None:
            self.table.data[self.starts] = 0.0  # as for a one-hot code of zeros
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """(n, widths[-1]) features."""
        continuous, numeric = numeric[:, : self.n_continuous], numeric[:, self.n_continuous :][:, : self.n_plain]
        if self.periodic is not None:
            numeric = torch.cat([self.periodic(continuous).flatten(1), numeric], dim=1)
        x = F.linear(numeric, self.weight, self.bias)
        if self.table is not None:
            if self.training and self.unknown:
                hidden = torch.rand(categorical.shape, device=categorical.device) < self.unknown
                categorical = categorical.masked_fill(hidden, UNKNOWN)
            x = x + F.embedding_bag(categorical + self.starts, self.table, mode="sum")
        x = F.dropout(F.relu(x), self.dropout, self.training)
        for layer in self.layers:
            x = F.dropout(F.relu(layer(x)), self.dropout, self.training)
        return x

    def raw_features(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """(n, n_raw_features): scaled numbers as they are; voters can be required to be near in these too."""
        del categorical
        return numeric[:, self.places]

    def compared_features(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """(n, n_compared_features): scaled numbers, how far the row is beyond training, and categories.

        A category is one-hot, divided by √2: where two rows differ, that adds 1 to their squared distance. Frequent
        categories have a place of their own, as far as there is room; unseen ones always have.
        """
        parts = [numeric[:, self.places]]
        if self.n_raw_features:
            parts.append(numeric[:, self.n_continuous + self.n_plain :])
        for column, size in enumerate(self.buckets.tolist()):
            code = categorical[:, column]
            place = torch.where(code == UNKNOWN, 0, 1 + (code - 1) % (size - 1))
            parts.append(F.one_hot(place, size).to(numeric) / math.sqrt(2))
        return torch.cat(parts, dim=1)


class PeriodicEmbedding(nn.Module):
    """x (n, p) → ReLU(W_j [cos 2πc_j x_j, sin 2πc_j x_j] + b_j), (n, p, size); all of c_j ~ N(0, σ²), W_j, b_j learned.

    "PLR" of Gorishniy et al. (2022), On Embeddings for Numerical Features in Tabular Deep Learning, arXiv:2203.05556.
    """

    def __init__(self, n_columns: int, frequencies: int, sigma: float, size: int = 16) -> None:
        super().__init__()
        self.size = size
        self.frequencies = nn.Parameter(sigma * torch.randn(n_columns, frequencies))
        self.weight = _uniform(n_columns, 2 * frequencies, size, fan_in=2 * frequencies)
        self.bias = _uniform(n_columns, size, fan_in=2 * frequencies)

    def forward(self, x: Tensor) -> Tensor:
        """(n, p, size)."""
        angles = 2 * math.pi * x[:, :, None] * self.frequencies
        waves = torch.cat([angles.cos(), angles.sin()], dim=2)
        return F.relu(torch.einsum("npk,pkd->npd", waves, self.weight) + self.bias)


def _buckets(sizes: Sequence[int]) -> list[int]:
    """How many places the categories of each column share, one of them for unseen ones: all, or as there is room."""
    most = max(sizes, default=0) + 1
    while most > 3 and sum(min(size + 1, most) for size in sizes) > MOST_PLACES:
        most -= 1
    return [min(size + 1, most) for size in sizes]


def _uniform(*shape: int, fan_in: int) -> nn.Parameter:
    """Initialised like nn.Linear, but without a warning for a table without numbers."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
