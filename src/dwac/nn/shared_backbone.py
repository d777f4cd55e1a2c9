"""One pretrained network under several small ones.

model = WeightedAverage(SharedBackbone(network, [head() for _ in range(4)], fixed=True), n_classes=10)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import torch
from torch import Tensor, nn

from dwac.nn.ensemble import Ensemble, features_of


class SharedBackbone(Ensemble):
    """A network f whose features (n, features) go into M members, each with its own: together (n, M, …).

    With `fixed`, f stays as it is: it gets no gradients and is always in evaluation mode, so its features of a training
    set can be computed once, before training (`dwac.training.fixed_features`).
    """

    def __init__(self, shared: nn.Module, members: Iterable[nn.Module], *, fixed: bool = False) -> None:
        super().__init__(members)
        self.shared, self.fixed = shared, fixed
        self.given = False  # whether the inputs are the features of f
        if fixed:
            shared.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Self:
        """Training mode, except for a fixed network."""
        super().train(mode)
        if self.fixed:
            self.shared.eval()
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """(n, M, features)."""
        features = args[0] if self.given else features_of(self.shared(*args, **kwargs))
        return torch.stack([member(features) for member in self.members], dim=1)

    @property
    def first(self) -> Any:
        """The shared network."""
        return self.shared

    @property
    def rates(self) -> dict[str, float]:
        """The learning rates of the shared network's parameters, as shares of the members'."""
        return {f"shared.{name}": rate for name, rate in getattr(self.shared, "rates", {}).items()}
