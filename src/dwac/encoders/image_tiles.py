"""Networks for images, frozen for predictions on a CPU: an image has the same numbers alone and in a batch of any size.

Every convolution of an image is a product of one shape, (pixels, k·k·C) × (k·k·C, channels), as in `dwac.nn.tiles`: an
image is a tile. An image alone costs one image, and those of a batch are one batched product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from dwac.encoders import image_networks as networks
from dwac.nn.tiles import Frozen

_AT_ONCE = 2**19  # numbers of a batched product; more would not stay in the cache of a processor
Step = Callable[[Tensor], Tensor]  # (n, pixels, C) → (n, pixels, C)
Sides = tuple[int, int]


class _Convolution:
    """y = W * x + b of images (n, H·W, C) → (n, H'·W', channels); norms that follow it may be folded in."""

    def __init__(self, layer: nn.Conv2d, sides: Sides) -> None:
        reach, (height, width) = layer.kernel_size[0], sides
        rows, columns = (_windows(side, reach, layer.stride[0], int(layer.padding[0])) for side in sides)
        places = rows[:, None, :, None] * width + columns[None, :, None, :]
        inside = ((rows >= 0) & (rows < height))[:, None, :, None] & ((columns >= 0) & (columns < width))[None, :, None]
        self.places = torch.where(inside, places, height * width).flatten()  # the last place is outside the image
        self.sides = len(rows), len(columns)
        self.weight = layer.weight.permute(2, 3, 1, 0).flatten(0, 2).contiguous()
        self.bias = self.weight.new_zeros(self.weight.shape[1])
        self.outside = self.weight.new_zeros(1, 1, layer.in_channels)

    def fold(self, norm: Any) -> None:
        scale, shift = _affine(norm)
        self.weight, self.bias = self.weight * scale, self.bias * scale + shift

    def __call__(self, x: Tensor) -> Tensor:
        n, _, channels = x.shape
        x = torch.cat([x, self.outside.expand(n, 1, channels)], dim=1)
        windows = x.index_select(1, self.places).view(n, -1, len(self.weight))
        return torch.baddbmm(self.bias, windows, self.weight.expand(n, -1, -1))


def _windows(side: int, reach: int, stride: int, padding: int) -> Tensor:
    """(windows, reach): the positions along a side that each window covers, from -padding on."""
    starts = torch.arange(-padding, side + padding - reach + 1, stride)
    return starts[:, None] + torch.arange(reach)


def _affine(norm: Any) -> tuple[Tensor, Tensor]:
    """A norm in evaluation mode as scale · x + shift."""
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    return scale, norm.bias - norm.running_mean * scale


class Images(nn.Sequential):
    """Standardisation, then a network for images of one size (H, W)."""

    def __init__(self, layers: Iterable[nn.Module], sides: Sides) -> None:
        super().__init__(*layers)
        self.sides = sides

    def freeze(self, weight: Tensor, bias: Tensor) -> Frozen | None:
        """h = W f(x) + b of images; None for a network with other layers than the default one and resnet18 have."""
        standardise, body = self
        views = body if isinstance(body, networks.Averaged) else None
        body = body if views is None else views.network
        try:
            steps, _ = _freeze_layers(body if isinstance(body, nn.Sequential) else [body], self.sides)
        except NotImplementedError:
            return None
        last = weight.t().contiguous()

        def compute(images: Tensor) -> Tensor:
            return _run(steps, images.flatten(2).transpose(1, 2))

        def embed(images: Tensor) -> Tensor:
            n = len(images)
            if n == 1 and torch.get_num_threads() > 1:  # threads would share the sums of an image that is alone
                images = images.expand(2, -1, -1, -1)
            x = standardise(images)
            features = compute(x) if views is None else views.average(compute, x)
            return torch.baddbmm(bias, features, last.expand(len(images), -1, -1))[:n, 0]

        channels = max(part.shape[0] for part in body.parameters())
        return Frozen(embed, max(2, _AT_ONCE // (9 * channels * math.prod(self.sides))))


def _run(steps: list[Step], x: Tensor) -> Tensor:
    for step in steps:
        x = step(x)
    return x


def _freeze_layers(layers: Iterable[nn.Module], sides: Sides) -> tuple[list[Step], Sides]:
    """The steps of layers for images of these sides, and the sides after them."""
    steps: list[Step] = []
    for layer in layers:
        before = steps[-1] if steps else None
        match layer:
            case nn.Conv2d():
                steps.append(convolution := _Convolution(layer, sides))
                sides = convolution.sides
            case nn.BatchNorm2d() if isinstance(before, _Convolution):
                before.fold(layer)
            case nn.BatchNorm1d() | nn.BatchNorm2d():
                scale, shift = _affine(layer)
                steps.append(partial(torch.addcmul, shift, scale))
            case nn.ReLU():
                steps.append(torch.relu_)
            case nn.MaxPool2d():
                steps.append(partial(_pool, layer, sides))
                sides = tuple(layer(torch.zeros(1, 1, *sides)).shape[2:])
            case networks.ResidualBlock():
                inside = [layer.first, layer.first_norm, nn.ReLU(), layer.second, layer.second_norm]
                skip, _ = _freeze_layers(layer.skip if isinstance(layer.skip, nn.Sequential) else [], sides)
                inner, sides = _freeze_layers(inside, sides)
                steps.append(partial(_add_skip, inner, skip))
            case networks.MeanOfPixels():
                steps.append(partial(torch.mean, dim=1, keepdim=True))
            case networks.ChannelsLast():
                pass
            case _:
                raise NotImplementedError(type(layer).__name__)
    return steps, sides


def _add_skip(inner: list[Step], skip: list[Step], x: Tensor) -> Tensor:
    return _run(inner, x).add_(_run(skip, x)).relu_()


def _pool(layer: nn.MaxPool2d, sides: Sides, x: Tensor) -> Tensor:
    pooled: Tensor = layer(x.unflatten(1, sides).permute(0, 3, 1, 2))
    return pooled.permute(0, 2, 3, 1).flatten(1, 2)
