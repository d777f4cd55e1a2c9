"""Independent networks that vote together: each has its own inputs, embedding and training.

model = WeightedAverage(ShardedNetwork(members), n_classes=10, embedding_size=size)

An `Ensemble` trains its networks side by side, on the same rows. Each member of `ShardedNetwork` was trained alone on a
part of the rows: replacing one leaves the others unchanged, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from dwac.nn.ensemble import features_of


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

    def apart(self, inputs: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
        """The inputs of each member."""
        n = len(self.members)
        if self.shared:
            return [inputs] * n
        each = len(inputs) // n
        return [inputs[start : start + each] for start in range(0, n * each, each)]

    def forward(self, *inputs: Tensor) -> Tensor:
        """h of a batch."""
        parts = [member(*own) for member, own in zip(self.members, self.apart(inputs), strict=True)]
        return torch.cat(parts, dim=1) / math.sqrt(len(parts))

    def raw_features(self, *inputs: Tensor) -> Tensor:
        """The first member's raw features."""
        return cast(Tensor, self.first.raw_features(*self.apart(inputs)[0]))

    def compared_features(self, *inputs: Tensor) -> Tensor:
        """The features by which the first member compares rows."""
        return cast(Tensor, self.first.compared_features(*self.apart(inputs)[0]))
