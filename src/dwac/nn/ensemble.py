"""Several networks as one: each is trained on its own, and their embeddings vote together.

model = WeightedAverage(Ensemble([network() for _ in range(4)]), n_classes=10)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dwac.errors import InputError, ShapeError
from dwac.nn.loss import weighted_mean


class Ensemble(nn.Module):
    """M networks side by side, each returning (n, features): together (n, M, features).

    With a head, each member has its own embedding h_m and its own loss, as if it were alone. A prediction joins
    them: h = [h_1, …, h_M] / √M, so that ‖h - h_i‖² is the mean of the members' squared distances. It is still one vote
    of training examples. An example is near if it is near on average over the members; where they disagree, as on
    out-of-distribution data, everything is far.
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

    def attention(self, *inputs: Tensor) -> Tensor:
        """The members' mean attention to each word, (n, length), for networks with attention."""
        members: Iterable[Any] = self.members
        return torch.stack([member.attention(*inputs) for member in members]).mean(dim=0)


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
        apart = members_of(h, self.n_members)
        return memberwise(apart, self.weight, self.bias) if hasattr(self, "weight") else apart

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


def memberwise(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """One linear map per member: features (n, M, f), weight (M·d, f) and bias (M·d,) give (n, M, d)."""
    members, size = features.shape[1:]
    mapped = torch.bmm(features.transpose(0, 1), weight.view(members, -1, size).transpose(1, 2))
    return mapped.transpose(0, 1) + bias.view(members, -1)


def joined(h: Tensor) -> Tensor:
    """h = [h_1, …, h_M] / √M: (n, M, d) → (n, M·d)."""
    return h.flatten(1) / math.sqrt(h.shape[1])


def members_of(h: Tensor, members: int) -> Tensor:
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
