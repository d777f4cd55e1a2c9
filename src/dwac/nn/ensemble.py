"""Several networks as one, whose embeddings vote together.

model = WeightedAverage(Ensemble([network() for _ in range(4)]), n_classes=10)
model = WeightedAverage(SharedBackbone(network, [head() for _ in range(4)], fixed=True), n_classes=10)
model = WeightedAverage(ShardedNetwork(members), n_classes=10, embedding_size=size)

The networks of an `Ensemble` are trained side by side, on the same rows. In a `SharedBackbone` they are small and read
the features of one pretrained network. Each member of a `ShardedNetwork` was trained alone, on a shard of the rows:
replacing one leaves the others unchanged, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dwac.errors import InputError, ShapeError
from dwac.nn.loss import weighted_mean
from dwac.nn.tiles import Frozen


class Ensemble(nn.Module):
    """M networks side by side, each returning (n, features): together (n, M, features).

    With a head, each member has its own embedding h_m and its own loss, as if it were alone. A prediction joins
    them: h = [h_1, …, h_M] / √M, so that ‖h - h_i‖² is the mean of the members' squared distances. It is still one vote
    of training examples. An example is near if it is near on average over the members; where they disagree, as on
    out-of-distribution data, everything is far.

    >>> Ensemble([nn.Linear(4, 8), nn.Linear(4, 8)])(torch.zeros(3, 4)).shape
    torch.Size([3, 2, 8])
    """

    # Differs from the paper, which has one network: docs/decisions/0009-beyond-the-paper.md
    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        if len(self.members) == 0:
            raise InputError("an ensemble needs at least one network; got none; pass a list of networks")

    def __len__(self) -> int:
        return len(self.members)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """(n, M, features)."""
        features = [features_of(member(*args, **kwargs)) for member in self.members]
        if len({part.shape for part in features}) > 1:
            shapes = ", ".join(str(tuple(part.shape)) for part in features)
            raise ShapeError(
                f"the members of an ensemble must return the same number of features; got shapes {shapes}; "
                "give all networks the same output size"
            )
        return torch.stack(features, dim=1)

    @property
    def first(self) -> Any:
        """The first network, for properties that all members share."""
        return self.members[0]

    def freeze(self, weight: Tensor, bias: Tensor) -> Frozen | None:
        """h of rows in tiles, with the head's weight (M·d, f) and bias (M·d,); None if a member cannot be frozen."""
        n, members = len(self), cast(Iterable[Any], self.members)
        if not all(hasattr(member, "freeze") for member in members):
            return None
        last = zip((weight / math.sqrt(n)).chunk(n), (bias / math.sqrt(n)).chunk(n), strict=True)
        parts: list[Frozen] = [member.freeze(*own) for member, own in zip(members, last, strict=True)]
        if any(part is None for part in parts):
            return None
        return Frozen(lambda *inputs: torch.cat([part.embed(*inputs) for part in parts], dim=1), parts[0].rows)

    def attention(self, *inputs: Tensor) -> Tensor:
        """The members' mean attention to each word, (n, length), for networks with attention."""
        members: Iterable[Any] = self.members
        return torch.stack([member.attention(*inputs) for member in members]).mean(dim=0)


class SharedBackbone(Ensemble):
    """A network f whose features (n, features) are the input of M members: their outputs are (n, M, …).

    With `fixed`, f does not change: it gets no gradients and is always in evaluation mode, so its features of a
    training set can be computed once, before training (`dwac.training.rows.fixed_features`).

    Args:
        shared: f.
        members: networks that take the features of f.
        fixed: whether f does not change in training.
        beside: networks that take the inputs after the `n_inputs` of f. They are members, too; all features are padded
            with zeros to one length.
        n_inputs: how many inputs f takes; None: all.
        rate: the learning rate of the networks beside f, as a multiple of the members'.
    """

    def __init__(
        self,
        shared: nn.Module,
        members: Iterable[nn.Module],
        *,
        fixed: bool = False,
        beside: Iterable[nn.Module] = (),
        n_inputs: int | None = None,
        rate: float = 1.0,
    ) -> None:
        super().__init__(members)
        self.shared, self.fixed, self.beside = shared, fixed, nn.ModuleList(beside)
        self.n_inputs, self.rate = n_inputs, rate
        self.takes_features = False  # whether the features of f are given, instead of its inputs
        if fixed:
            shared.requires_grad_(False).eval()

    def __len__(self) -> int:
        return len(self.members) + len(self.beside)

    def train(self, mode: bool = True) -> Self:
        """Training mode, except for a fixed network."""
        super().train(mode)
        if self.fixed:
            self.shared.eval()
        return self

    def forward(self, *inputs: Tensor) -> Tensor:
        """(n, M, features)."""
        n = 1 if self.takes_features else self.n_inputs
        own, others = inputs[:n], inputs[len(inputs) if n is None else n :]
        features = own[0] if self.takes_features else features_of(self.shared(*own))
        parts = [member(features) for member in self.members]
        parts += [self._features_beside(network, others) for network in self.beside]
        width = max(part.shape[1] for part in parts)
        return torch.stack([F.pad(part, (0, width - part.shape[1])) for part in parts], dim=1)

    def _features_beside(self, network: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        """The features of a network beside f; row by row for predictions on a CPU, so that each rounds as if alone."""
        if self.training or inputs[0].is_cuda or torch.compiler.is_compiling() or len(inputs[0]) <= 1:
            return features_of(network(*inputs))
        _, places = torch.unique(torch.cat([part.double() for part in inputs], dim=1), dim=0, return_inverse=True)
        firsts = places.new_full((int(places.max()) + 1,), len(places)).scatter_reduce(
            0, places, torch.arange(len(places)), "amin"
        )
        alone = [features_of(network(*(part[i : i + 1] for part in inputs))) for i in firsts.tolist()]
        return torch.cat(alone)[places]

    @property
    def first(self) -> Any:
        """The shared network."""
        return self.shared

    @property
    def rates(self) -> dict[str, float]:
        """The learning rates of its parameters, as shares of the members'."""
        shared = {f"shared.{name}": rate for name, rate in getattr(self.shared, "rates", {}).items()}
        return shared | {f"beside.{name}": self.rate for name, _ in self.beside.named_parameters()}


class Member(nn.Module):
    """A network with its own embedding, h_s = W_s f_s(x) + b_s: (n, d_s)."""

    def __init__(self, network: nn.Module, embedding: nn.Linear) -> None:
        super().__init__()
        self.network, self.embedding = network, embedding

    def forward(self, *inputs: Tensor) -> Tensor:
        """h_s of a batch, in full precision."""
        features = features_of(self.network(*inputs))
        with torch.autocast(features.device.type, enabled=False):
            return cast(Tensor, self.embedding(features.to(self.embedding.weight.dtype)))


class ShardedNetwork(nn.Module):
    """h = [h_1, …, h_S] / √S of S members: (n, d_1 + … + d_S), so that ‖h - h_i‖² is the mean over the members.

    Its inputs are those of the first member, then of the second, and so on; or, if shared, the same for all. Raw
    features are those of the first member.
    """

    def __init__(self, members: Iterable[Member], *, shared: bool = False) -> None:
        super().__init__()
        self.members, self.shared = nn.ModuleList(members), shared
        for name in ("n_raw_features", "n_compared_features", "rows_at_once"):
            if hasattr(self.first, name):
                setattr(self, name, getattr(self.first, name))

    @property
    def first(self) -> Any:
        """The first member's network."""
        return cast(Member, self.members[0]).network

    def _inputs_of_each(self, inputs: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
        """The inputs of each member."""
        n = len(self.members)
        if self.shared:
            return [inputs] * n
        each = len(inputs) // n
        return [inputs[start : start + each] for start in range(0, n * each, each)]

    def forward(self, *inputs: Tensor) -> Tensor:
        """h of a batch."""
        parts = [member(*own) for member, own in zip(self.members, self._inputs_of_each(inputs), strict=True)]
        return torch.cat(parts, dim=1) / math.sqrt(len(parts))

    def raw_features(self, *inputs: Tensor) -> Tensor:
        """The first member's raw features."""
        return cast(Tensor, self.first.raw_features(*self._inputs_of_each(inputs)[0]))

    def compared_features(self, *inputs: Tensor) -> Tensor:
        """The features by which the first member compares rows."""
        return cast(Tensor, self.first.compared_features(*self._inputs_of_each(inputs)[0]))


class EnsembleLogits(nn.Module):
    """Each member's logits and their mean, for a softmax: from h = [h_1, …, h_M] / √M, (n, M·d).

    Each member has its own linear layer; with `linear=False`, the h_m are the logits, and d = K.
    """

    def __init__(self, members: int, size: int, n_classes: int, *, linear: bool) -> None:
        super().__init__()
        self.n_members = members
        if linear:
            self.weight = nn.Parameter(torch.empty(members * n_classes, size))
            self.bias = nn.Parameter(torch.empty(members * n_classes))
            bound = size**-0.5  # the initialisation of nn.Linear
            nn.init.uniform_(self.weight, -bound, bound)
            nn.init.uniform_(self.bias, -bound, bound)

    def each(self, h: Tensor) -> Tensor:
        """The logits of each member, (n, M, K)."""
        apart = split_members(h, self.n_members)
        return map_members(apart, self.weight, self.bias) if hasattr(self, "weight") else apart

    def forward(self, h: Tensor) -> Tensor:
        """The mean logits, (n, K)."""
        return self.each(h).mean(dim=1)

    def loss(self, h: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
        """The mean of the members' cross-entropies."""
        y = y.repeat_interleave(self.n_members)
        weights = None if weights is None else weights.repeat_interleave(self.n_members)
        return cross_entropy(at_least_float32(self.each(h)).flatten(0, 1), y, weights)


def cross_entropy(logits: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    """Σ_j weight_j loss_j / Σ_j weight_j, or 0 if all weights are 0."""
    if weights is None:
        return F.cross_entropy(logits, y)
    return weighted_mean(F.cross_entropy(logits, y, reduction="none"), weights.to(logits.dtype))


def at_least_float32(values: Tensor) -> Tensor:
    """Values in at least float32: half precision is not enough for a loss."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def map_members(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """One linear map per member: features (n, M, f), weight (M·d, f) and bias (M·d,) give (n, M, d)."""
    members, size = features.shape[1:]
    mapped = torch.bmm(features.transpose(0, 1), weight.view(members, -1, size).transpose(1, 2))
    return mapped.transpose(0, 1) + bias.view(members, -1)


def join_members(h: Tensor) -> Tensor:
    """h = [h_1, …, h_M] / √M: (n, M, d) → (n, M·d)."""
    return h.flatten(1) / math.sqrt(h.shape[1])


def split_members(h: Tensor, members: int) -> Tensor:
    """The members' h_m from a joined h: (n, M·d) → (n, M, d)."""
    return h.reshape(len(h), members, h.shape[1] // members) * math.sqrt(members)


def features_of(output: Any) -> Tensor:
    """The tensor in a network's output: the output itself, its `.logits`, its "logits" entry, or its first part."""
    for part in (
        output,
        getattr(output, "logits", None),
        output.get("logits") if isinstance(output, Mapping) else None,
        output[0] if isinstance(output, tuple | list) and output else None,
    ):
        if isinstance(part, Tensor):
            return part
    raise ShapeError(
        f"the backbone must return a tensor or an output with .logits; got {type(output).__name__}; "
        "wrap it in a module that returns its features"
    )
