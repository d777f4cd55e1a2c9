"""Compute the features of a fixed backbone once for all training rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from dwac.nn.batches import Inputs, apply
from dwac.nn.heads import Model
from dwac.nn.shared_backbone import SharedBackbone
from dwac.training.progress import rows_bar


@contextmanager
def fixed_features(model: Model, inputs: Inputs, *, show: bool | str = "auto") -> Iterator[Inputs]:
    """Replace the inputs of a model with a fixed backbone by that backbone's features, inside the context.

    Inputs of networks beside it do not change. For other models, nothing changes.
    """
    backbone = model.backbone
    if not isinstance(backbone, SharedBackbone) or not backbone.fixed:
        yield inputs
        return
    done, n = 0, len(inputs) if backbone.n_inputs is None else backbone.n_inputs
    with rows_bar("reading", len(inputs[0]), show=show) as tell:

        def features(part: Inputs) -> Tensor:
            nonlocal done
            found: Tensor = backbone.shared(*part[:n])
            done += len(found)
            tell(min(done, len(inputs[0])))
            return found

        with torch.no_grad():
            found = apply(model, features, inputs)
    backbone.given = True
    try:
        yield (found, *inputs[n:])
    finally:
        backbone.given = False
