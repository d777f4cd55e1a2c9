"""Networks for tables: embeddings of numbers and categories, then a multi-layer perceptron."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from dwac.nn import Ensemble
from dwac.nn.tiles import TILE, Frozen, join_tiles, multiply_tiles, split_tiles

UNKNOWN = 0  # the index of rare and unseen categories
_MANY = 2**14  # numbers, from which on quicker dropout pays
MOST_PLACES = 128  # places for all categories together, in comparisons of rows
_ROWS = 1024  # embedded at once by frozen networks
_WAVE_COLUMNS = (1, 2, 4, 8, 16)  # how many columns a wave reads: one of these
N_SCORES = 8  # numbers that the members of the third view make of the waves
_REPEATED = 2**19  # numbers: the weights of periodic embeddings are repeated for as many tiles as these allow


def unlike_training(code: int) -> int:
    """The index of a value that the network reads as `code`, but that differs from all in comparisons of rows."""
    return -1 - code


def _indices_read(categorical: Tensor) -> Tensor:
    """The indices that the network reads."""
    return torch.where(categorical < 0, -1 - categorical, categorical)


class _Table(nn.Module):
    """The common base of networks for tables: it knows the columns, and which of them compare rows.

    numeric (n, p) holds continuous numbers, then plain 0/1 numbers, then a column that the network does not read: how
    far a row is outside the training data. categorical (n, q) holds indices, or `unlike_training` of one.
    `coordinates`: positions of the numbers that are raw features of a row. `compared`: rows are compared by these, by
    the last column and by their categories.
    """

    places: Tensor

    def __init__(
        self, n_continuous: int, n_plain: int, sizes: Sequence[int], coordinates: Sequence[int], *, compared: bool
    ) -> None:
        super().__init__()
        self.n_continuous, self.n_plain, self.n_raw_features = n_continuous, n_plain, len(coordinates)
        buckets = _share_places(sizes) if compared else []
        self.buckets = buckets
        self.n_compared_features = len(coordinates) + (bool(coordinates) if compared else 0) + sum(buckets)
        self.register_buffer("places", torch.tensor(coordinates, dtype=torch.int64), persistent=False)

    def raw_features(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """(n, n_raw_features): the scaled numbers; voters can be required to be close in these too."""
        del categorical
        return numeric[:, self.places]

    def compared_features(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """(n, n_compared_features): scaled numbers, how far the row is outside the training data, and categories.

        A category is one-hot, divided by √2: a difference adds 1 to the squared distance of two rows. Frequent
        categories have their own place as far as there is room; unseen ones always do.
        """
        parts = [numeric[:, self.places]]
        if len(self.places):
            parts.append(numeric[:, self.n_continuous + self.n_plain :])
        for column, size in enumerate(self.buckets):
            code = categorical[:, column]
            place = torch.where(code <= UNKNOWN, 0, 1 + (code - 1) % (size - 1))
            parts.append(F.one_hot(place, size).to(numeric) / math.sqrt(2))
        return torch.cat(parts, dim=1)


class TabularNetwork(_Table):
    """numeric (n, p), categorical (n, q) → (n, widths[-1]): embeddings, then layers with ReLU and dropout.

    Continuous numbers get periodic embeddings; plain ones are unchanged. Categories are one-hot: each selects a row
    of `table`, which holds weights of the first layer. In training, a share `unknown` of the categories is hidden, so
    that the index of unseen ones is trained too. `linear`: the first layer also sees the continuous numbers themselves.
    """

    starts: Tensor

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
        linear: bool = False,
    ) -> None:
        super().__init__(n_continuous, n_plain, sizes, coordinates, compared=compared)
        self.dropout, self.unknown, self.linear = dropout, unknown, linear
        self.periodic = PeriodicEmbedding(n_continuous, frequencies, sigma) if n_continuous else None
        n_numeric = n_plain + (n_continuous * self.periodic.size if self.periodic is not None else 0)
        n_numeric += n_continuous if linear else 0
        fan_in = n_numeric + sum(sizes)
        self.weight = _uniform(widths[0], n_numeric, fan_in=fan_in)
        self.bias = _uniform(widths[0], fan_in=fan_in)
        # The first row of each column is that of UNKNOWN.
        starts = torch.tensor([0, *(size + 1 for size in sizes)]).cumsum(0)
        self.register_buffer("starts", starts[:-1], persistent=False)
        self.table = _uniform(int(starts[-1]), widths[0], fan_in=fan_in) if sizes else None
        if self.table is not None:
            self.table.data[self.starts] = 0.0  # as for a one-hot code of zeros
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """(n, widths[-1]) features."""
        seen = numeric[:, : self.n_continuous + self.n_plain]
        continuous, numeric = seen[:, : self.n_continuous], seen if self.linear else seen[:, self.n_continuous :]
        if self.periodic is not None:
            numeric = torch.cat([self.periodic(continuous).flatten(1), numeric], dim=1)
        x = F.linear(numeric, self.weight, self.bias)
        if self.table is not None:
            categorical = _indices_read(categorical)
            if self.training and self.unknown:
                hidden = torch.rand(categorical.shape, device=categorical.device) < self.unknown
                categorical = categorical.masked_fill(hidden, UNKNOWN)
            x = x + F.embedding_bag(categorical + self.starts, self.table, mode="sum")
        x = drop(F.relu(x), self.dropout, self.training)
        for layer in self.layers:
            x = drop(F.relu(layer(x)), self.dropout, self.training)
        return x

    def freeze(self, weight: Tensor, bias: Tensor) -> Frozen:
        """h = W f(x) + b of rows in tiles."""
        layers: Iterable[Any] = self.layers
        steps = [(self.weight, self.bias), *((layer.weight, layer.bias) for layer in layers), (weight, bias)]
        (first, start), *others = [(w.t().contiguous(), b.clone()) for w, b in steps]
        periodic = None if self.periodic is None else self.periodic.freeze()

        def embed(numeric: Tensor, categorical: Tensor) -> Tensor:
            seen = split_tiles(numeric[:, : self.n_continuous + self.n_plain])
            x = seen if self.linear else seen[:, :, self.n_continuous :]
            if periodic is not None:
                x = torch.cat([periodic(seen[:, :, : self.n_continuous]), x], dim=2)
            x = multiply_tiles(x, first, start)
            if self.table is not None:
                codes = F.embedding_bag(_indices_read(categorical) + self.starts, self.table, mode="sum")
                join_tiles(x, numeric.shape[0]).add_(codes)
            for w, b in others:
                x = multiply_tiles(x.relu_(), w, b)
            return join_tiles(x, numeric.shape[0])

        return Frozen(embed, _ROWS if self.periodic is None else TILE * self.periodic.tiles_at_once)


class WideNetwork(_Table):
    """numeric (n, p), categorical (n, q) → [x, ReLU(W x + b)], (n, |x| + hidden): a linear path beside a hidden layer.

    x are the numbers, a one-hot code of each category (zeros for a rare or unseen one), and each continuous number once
    more in bins: bin j is 0 below its lower edge, 1 above its upper one, and linear between. Linear in the bins is any
    curve of a number, which a few rows can support. "PLE" of Gorishniy et al. (2022), arXiv:2203.05556.

    edges: of the bins of each continuous number, ascending; fewer than three make no bins. `coordinates`: as in
    `TabularNetwork`. `n_waves`: an ensemble may have members that see so many waves of the columns instead of these.
    """

    starts: Tensor
    columns: Tensor
    lower: Tensor
    widths: Tensor
    frequencies: Tensor
    phases: Tensor

    def __init__(
        self,
        edges: Sequence[Sequence[float]],
        n_plain: int,
        sizes: Sequence[int],
        hidden: int,
        *,
        dropout: float,
        coordinates: Sequence[int] = (),
        n_waves: int = 0,
    ) -> None:
        super().__init__(len(edges), n_plain, sizes, coordinates, compared=True)
        self.n_raw_features = 0  # rows are compared by their numbers, but these do not enter the votes
        self.dropout, self.n_codes = dropout, sum(sizes)
        starts = torch.tensor([0, *sizes], dtype=torch.int64).cumsum(0)
        self.register_buffer("starts", starts[:-1], persistent=False)
        bins = [(i, low, high - low) for i, of in enumerate(edges) if len(of) > 2 for low, high in pairwise(of)]
        columns, lower, widths = zip(*bins, strict=True) if bins else ((), (), ())
        self.register_buffer("columns", torch.tensor(columns, dtype=torch.int64), persistent=False)
        self.register_buffer("lower", torch.tensor(lower), persistent=False)
        self.register_buffer("widths", torch.tensor(widths), persistent=False)
        self.n_numbers = self.n_continuous + n_plain + self.n_codes  # before the bins
        self.fan_in = self.n_numbers + len(bins)
        self.n_features = self.fan_in + hidden
        self.weight = nn.Parameter(torch.randn(self.fan_in, hidden) / math.sqrt(max(self.fan_in, 1)))
        self.bias = nn.Parameter(torch.randn(hidden) / 2)
        self.n_waves = n_waves
        frequencies, phases = _waves_of(self.fan_in, self.n_waves)
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.register_buffer("phases", phases, persistent=False)

    def numbers(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """x (n, fan_in)."""
        continuous, plain = numeric[:, : self.n_continuous], numeric[:, self.n_continuous :][:, : self.n_plain]
        parts = [continuous, 2 * plain - 1] if self.n_plain else [continuous]
        if self.n_codes:
            categorical = _indices_read(categorical)
            # Rare and unseen categories share the last column, which is left out.
            codes = numeric.new_zeros(len(numeric), self.n_codes + 1)
            columns = torch.where(categorical == UNKNOWN, self.n_codes, categorical - UNKNOWN - 1 + self.starts)
            parts.append(codes.scatter_(1, columns, 1.0)[:, :-1])
        if self.columns.numel():
            parts.append(((continuous[:, self.columns] - self.lower) / self.widths).clamp(0, 1))
        return torch.cat(parts, dim=1)

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """(n, n_features)."""
        x = self.numbers(numeric, categorical)
        hidden = drop(F.relu(torch.addmm(self.bias, x, self.weight)), self.dropout, self.training)
        return torch.cat([x, hidden], dim=1)


class WideEnsemble(Ensemble):
    """M networks like `WideNetwork`, computed together: one matrix product with a leading dimension of members.

    The first half of the members does not see the bins: for some tables lines are enough, others need curves, and
    out-of-fold votes decide (`dwac.training.cross_fit`). If the network has waves, the last third of the members is
    linear in them: `scores` (M/3, waves, 8), at the first places of the hidden layer. The waves cos(ω·x + φ) of random
    columns are fixed, and a line in them is a kernel machine without its rows (Rahimi and Recht, 2007): near rows get
    near scores, however many columns there are. `pitch` scales ω.
    """

    seen: Tensor
    pitch: Tensor

    def __init__(self, size: int, network: WideNetwork) -> None:
        nn.Module.__init__(self)  # no members of their own: their weights are stacked
        self.shape, self.dropout = network, network.dropout
        self.scores: nn.Parameter | None = None
        if network.n_waves:
            self.scores = nn.Parameter(torch.zeros(size // 3, network.n_waves, N_SCORES), requires_grad=False)
            self.register_buffer("pitch", torch.ones(()))
            size -= size // 3
        seen = torch.ones(size, 1, network.fan_in)
        seen[: size // 2, :, network.n_numbers :] = 0.0
        self.register_buffer("seen", seen, persistent=False)
        weight = torch.randn(size, network.fan_in, len(network.bias))
        weight[: size // 2].div_(math.sqrt(max(network.n_numbers, 1)))
        weight[size // 2 :].div_(math.sqrt(max(network.fan_in, 1)))
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.randn(size, 1, len(network.bias)) / 2)
        del network.weight, network.bias  # it is only used for the columns

    def __len__(self) -> int:
        return len(self.weight) + (0 if self.scores is None else len(self.scores))

    def waves(self, x: Tensor) -> Tensor:
        """cos(ω·x + φ), (n, n_waves), of x (n, fan_in)."""
        return torch.addmm(self.shape.phases, x, self.pitch * self.shape.frequencies).cos_()

    @property
    def first(self) -> WideNetwork:
        """The common part of all members: the columns."""
        return self.shape

    def forward(self, numeric: Tensor, categorical: Tensor) -> Tensor:
        """(n, M, n_features)."""
        numbers = self.shape.numbers(numeric, categorical)
        x = numbers.expand(len(self.weight), -1, -1) * self.seen
        hidden = drop(F.relu(torch.baddbmm(self.bias, x, self.weight)), self.dropout, self.training)
        features = torch.cat([x, hidden], dim=2)
        if self.scores is not None:
            scores = self.waves(numbers) @ self.scores
            features = torch.cat([features, F.pad(scores, (x.shape[2], hidden.shape[2] - N_SCORES))])
        return features.transpose(0, 1)

    def freeze(self, weight: Tensor, bias: Tensor) -> Frozen:
        """h of rows in tiles: the members of a view, without or with bins, are one product per layer."""
        size, fan_in, hidden = self.weight.shape
        last = (weight / math.sqrt(len(self))).view(len(self), -1, fan_in + hidden).transpose(1, 2)
        shifts = bias.view(len(self), -1) / math.sqrt(len(self))
        starts = torch.cat([self.bias.flatten(1), shifts[:size]], dim=1)
        views = []
        for members, width in ((slice(size // 2), self.shape.n_numbers), (slice(size // 2, size), fan_in)):
            linear, out = last[members, :width], last[members, fan_in:]
            parts = [part.transpose(0, 1).flatten(1) for part in (self.weight[members, :width], linear)]
            start = torch.cat([part.flatten() for part in starts[members].split([hidden, last.shape[2]], dim=1)])
            views.append((torch.cat(parts, dim=1), start, torch.block_diag(*out)))
        waves = None
        if self.scores is not None:
            lines = (self.scores @ last[size:, fan_in:][:, :N_SCORES]).transpose(0, 1).flatten(1)
            waves = (self.pitch * self.shape.frequencies, self.shape.phases, lines, shifts[size:].flatten())

        def embed(numeric: Tensor, categorical: Tensor) -> Tensor:
            x, h = split_tiles(self.shape.numbers(numeric, categorical)), []
            for first, start, second in views:
                y = multiply_tiles(x[:, :, : len(first)], first, start)
                h.append(multiply_tiles(y[:, :, : len(second)].relu_(), second, y[:, :, len(second) :]))
            if waves is not None:
                y = multiply_tiles(x, waves[0], waves[1]).cos_()
                h.append(multiply_tiles(y, waves[2], waves[3]))
            return join_tiles(torch.cat(h, dim=2), numeric.shape[0])

        return Frozen(embed, _ROWS)

    def views(self, x: Tensor, embedding: nn.Linear) -> list[WideView]:
        """Each half of the trained members, with rows of x (n, fan_in) and the layer that makes h of them."""
        members, fan_in, _ = self.weight.shape
        weight = embedding.weight.view(len(self), -1, self.shape.n_features)[:members]
        bias = embedding.bias.view(len(self), 1, -1)[:members]
        halves = ((slice(members // 2), self.shape.n_numbers), (slice(members // 2, None), fan_in))
        return [
            WideView(
                x[:, :seen].contiguous(),
                [
                    self.weight[half, :seen],
                    self.bias[half],
                    weight[half, :, :seen].mT,
                    weight[half, :, fan_in:].mT,
                    bias[half],
                ],
                self.dropout,
            )
            for half, seen in halves
        ]


class WideView:
    """Members of a `WideEnsemble` that see the same columns, with copies of their parameters to train, and x (n, p).

    A copy holds what the members see, and nothing else: every step takes less time.
    """

    def __init__(self, x: Tensor, sources: list[Tensor], dropout: float) -> None:
        self.x, self.sources, self.dropout = x, sources, dropout
        self.parameters = [part.detach().clone(memory_format=torch.contiguous_format) for part in sources]
        for part in self.parameters:
            part.requires_grad_()

    def embed(self, rows: Tensor) -> Tensor:
        """h (m, k, d) of the rows (m, k) of each member, with dropout."""
        weight, bias, lines, last, shift = self.parameters
        x = self.x.index_select(0, rows.flatten()).view(*rows.shape, -1)
        hidden = drop(F.relu(torch.baddbmm(bias, x, weight)), self.dropout)
        return torch.baddbmm(torch.baddbmm(shift, x, lines), hidden, last)

    @torch.no_grad()
    def store(self) -> None:
        """Write the parameters into the ensemble and the layer that makes h."""
        for source, part in zip(self.sources, self.parameters, strict=True):
            source.copy_(part)


def drop(x: Tensor, share: float, training: bool = True) -> Tensor:
    """Dropout; of many numbers on a CPU with 16 random bits each, which takes a fifth of the time of `F.dropout`."""
    if not training or share == 0 or x.device.type != "cpu" or x.numel() < _MANY:
        return F.dropout(x, share, training)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    least = round(2**16 * share)
    mask = torch.ge(bits[: x.numel()].view(x.shape), least - 2**15, out=torch.empty_like(x, requires_grad=False))
    return x * mask.mul_(2**16 / (2**16 - least))


class PeriodicEmbedding(nn.Module):
    """x (n, p) → ReLU(W_j [cos 2πc_j x_j, sin 2πc_j x_j] + b_j), (n, p, size); all of c_j ~ N(0, σ²), W_j, b_j learned.

    "PLR" of Gorishniy et al. (2022), On Embeddings for Numerical Features in Tabular Deep Learning, arXiv:2203.05556.
    """

    size = 16

    def __init__(self, n_columns: int, frequencies: int, sigma: float) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(sigma * torch.randn(n_columns, frequencies))
        self.weight = _uniform(n_columns, 2 * frequencies, self.size, fan_in=2 * frequencies)
        self.bias = _uniform(n_columns, self.size, fan_in=2 * frequencies)

    def forward(self, x: Tensor) -> Tensor:
        """(n, p, size)."""
        with torch.autocast(x.device.type, enabled=False):  # its gradient needs one dtype
            return _Waves.apply(x, self.frequencies, self.weight, self.bias)  # type: ignore[no-untyped-call,no-any-return]

    @property
    def tiles_at_once(self) -> int:
        """How many tiles of rows a frozen embedding takes."""
        return max(2, min(_ROWS // TILE, _REPEATED // self.weight.numel()))

    def freeze(self) -> Callable[[Tensor], Tensor]:
        """The same for tiles, (t, 8, p) → (t, 8, p·size): every column of a tile is a product of its own."""
        tiles, (columns, _, size) = self.tiles_at_once, self.weight.shape
        frequencies = 2 * math.pi * self.frequencies[:, None]
        weight, start = self.weight.repeat(tiles, 1, 1), self.bias[:, None].repeat(tiles, 1, 1)

        def embed(x: Tensor) -> Tensor:
            angles = x.transpose(1, 2)[:, :, :, None] * frequencies
            waves = torch.cat([angles.cos(), angles.sin()], dim=3).flatten(0, 1)
            y = torch.baddbmm(start[: len(waves)], waves, weight[: len(waves)]).relu_()
            return y.view(len(x), columns, TILE, size).transpose(1, 2).flatten(2)

        return embed


class _Waves(torch.autograd.Function):
    """The periodic embedding with its gradient, which uses the same sines and cosines."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, frequencies: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        k = frequencies.shape[1]
        angles = x.t()[:, :, None] * (2 * math.pi * frequencies)[:, None]
        cos, sin = angles.cos(), angles.sin_()
        y = torch.baddbmm(bias[:, None], cos, weight[:, :k]).baddbmm_(sin, weight[:, k:]).relu_()
        ctx.save_for_backward(x, frequencies, weight, cos, sin, y)
        return y.transpose(0, 1).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, frequencies, weight, cos, sin, y = ctx.saved_tensors
        k = frequencies.shape[1]
        grad = grad.transpose(0, 1) * (y > 0)
        angles = torch.bmm(grad, weight[:, k:].mT).mul_(cos).addcmul_(torch.bmm(grad, weight[:, :k].mT), sin, value=-1)
        angles.mul_(2 * math.pi)
        return (
            torch.bmm(angles, frequencies[:, :, None])[:, :, 0].t() if ctx.needs_input_grad[0] else None,
            torch.bmm(x.t()[:, None], angles)[:, 0],
            torch.cat([torch.bmm(cos.mT, grad), torch.bmm(sin.mT, grad)], dim=1),
            grad.sum(dim=1),
        )


def _waves_of(n_numbers: int, n_waves: int) -> tuple[Tensor, Tensor]:
    """Frequencies ω (n_numbers, n_waves), not 0 for a few random columns, and phases φ; they are always the same."""
    random = np.random.RandomState(0)  # its draws never change between versions of numpy
    most, frequencies = max(_WAVE_COLUMNS), np.zeros((n_numbers, n_waves), np.float32)
    columns = random.randint(max(n_numbers, 1), size=(most, n_waves))
    n_columns = np.array(_WAVE_COLUMNS)[random.randint(len(_WAVE_COLUMNS), size=n_waves)]
    sizes = random.normal(size=(most, n_waves)) * (np.arange(most)[:, None] < n_columns) * np.sqrt(2 / n_columns)
    if frequencies.size:
        np.add.at(frequencies, (columns, np.arange(n_waves)), sizes)
    return torch.tensor(frequencies), torch.tensor(random.uniform(0, 2 * np.pi, n_waves), dtype=torch.float32)


def _share_places(sizes: Sequence[int]) -> list[int]:
    """How many places the categories of each column share, including one for unseen ones: limited by the room."""
    most = max(sizes, default=0) + 1
    while most > 3 and sum(min(size + 1, most) for size in sizes) > MOST_PLACES:
        most -= 1
    return [min(size + 1, most) for size in sizes]


def _uniform(*shape: int, fan_in: int) -> nn.Parameter:
    """A parameter initialised like nn.Linear, but without a warning for a table without numbers."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
