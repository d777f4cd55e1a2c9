"""One pretrained network under several small ones.

model = WeightedAverage(SharedBackbone(network, [head() for _ in range(4)], fixed=True), n_classes=10)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dwac.nn.ensemble import Ensemble, features_of


class SharedBackbone(Ensemble):
    """A network f whose features (n, features) are the input of M members: their outputs are (n, M, …).

    With `fixed`, f does not change: it gets no gradients and is always in evaluation mode, so its features of a
    training set can be computed once, before training (`dwac.training.fixed_features`).

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
        self.given = False  # whether the features of f are given, instead of its inputs
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
        n = 1 if self.given else self.n_inputs
        own, others = inputs[:n], inputs[len(inputs) if n is None else n :]
        features = own[0] if self.given else features_of(self.shared(*own))
        parts = [member(features) for member in self.members]
        parts += [self._of_others(network, others) for network in self.beside]
        width = max(part.shape[1] for part in parts)
        return torch.stack([F.pad(part, (0, width - part.shape[1])) for part in parts], dim=1)

    def _of_others(self, network: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        """The features of a network beside f; row by row for predictions on a CPU, so that each rounds as if alone."""
        if self.training or inputs[0].is_cuda or len(inputs[0]) <= 1:
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
