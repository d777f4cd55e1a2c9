"""Data and models of a second, for the tests of training."""

import torch
from torch import nn

from dwac.nn.heads import Model


def clusters(n: int = 120, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    return torch.randn(n, 4, generator=generator) + 3 * nn.functional.one_hot(y, 4), y


def model_of(head: type[Model]) -> Model:
    torch.manual_seed(0)
    return head(nn.Sequential(nn.Linear(4, 16), nn.ReLU()), n_classes=3)
