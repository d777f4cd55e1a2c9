"""Any network as a deep weighted averaging classifier.

model = WeightedAverage(backbone, n_classes=10)
loss = model.loss(x, y); loss.backward()     # in your own training loop: leave-one-out inside the minibatch
model.eval(); model.remember(loader)         # embed the training data as the reference set
log_p = model(x)
"""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from dwac.errors import ConversionError
from dwac.nn.ensemble import Ensemble
from dwac.nn.heads import Model, SoftmaxTwin, WeightedAverage
from dwac.nn.loss import Support, leave_one_out_loss

__all__ = ["Ensemble", "Model", "SoftmaxTwin", "Support", "WeightedAverage", "convert", "leave_one_out_loss"]


def convert(model: nn.Module, n_classes: int, *, layer: str | None = None, **options: Any) -> WeightedAverage:
    """Turn a classifier into a `WeightedAverage` by replacing its last Linear layer with an embedding.

    The network is copied, including its trained weights; the original is not changed.

    Args:
        model: a plain Sequential, a torchvision ResNet, a Hugging Face model with a `.classifier`, …
        n_classes: K.
        layer: dotted name of the output layer, if it is not the last registered Linear.
        options: passed on to `WeightedAverage`.

    >>> import torch
    >>> model = convert(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), n_classes=3)
    >>> model.embed(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """
    if not isinstance(model, nn.Module):
        raise ConversionError(f"convert takes an nn.Module; got {type(model).__name__}")
    linears = {name: module for name, module in model.named_modules() if _swappable(module)}
    if not linears:
        raise ConversionError(
            f"convert needs a network with an nn.Linear layer to replace; {type(model).__name__} has no nn.Linear; "
            "use WeightedAverage(backbone, n_classes) with a backbone that returns (n, features)"
        )
    name = next(reversed(linears)) if layer is None else layer
    if name not in linears:
        raise ConversionError(f"no Linear layer is named {name!r}; choose one of {', '.join(linears)}")
    if isinstance(linears[name], nn.LazyLinear):
        raise ConversionError(
            f"the layer {name!r} is lazy and has no size yet; run one batch through the network first"
        )
    after = list(model.modules())[list(dict(model.named_modules())).index(name) :]
    if any(isinstance(module, nn.Softmax | nn.LogSoftmax) for module in after):
        raise ConversionError(f"a softmax follows the layer {name!r} and would act on the features; remove it first")
    n_features = linears[name].in_features
    if name == "":  # the whole model is one Linear layer
        return WeightedAverage(nn.Identity(), n_classes, n_features=n_features, **options)
    backbone = copy.deepcopy(model)
    parent, _, child = name.rpartition(".")
    setattr(backbone.get_submodule(parent), child, nn.Identity())
    return WeightedAverage(backbone, n_classes, n_features=n_features, **options)


def _swappable(module: nn.Module) -> bool:
    # An attention layer reads the weights of its own output projection without calling it.
    projection = nn.modules.linear.NonDynamicallyQuantizableLinear
    return isinstance(module, nn.Linear) and not isinstance(module, projection)
