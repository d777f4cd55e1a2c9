"""Operations on batches of images, on their device: random variation, standardisation, and the networks f.

Every network takes (n, C, H, W), uint8 or float, from `ImageEncoder.transform`, and returns (n, features).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dwac.errors import InputError

Shape = tuple[int, int, int]  # C, H, W
NAMES = ("default", "paper", "resnet18")
EARLY_POOLS = range(32, 64)  # pixels per side at which few images are pooled before convolutions
LEAST_SIDE = {"paper": 6}  # pixels; less would vanish in two convolutions without padding and a pool


def vary(
    images: Tensor, generator: torch.Generator, *, shift: int, flip: bool, cutout: float, fill: Sequence[float]
) -> Tensor:
    """Randomly move each image of a batch (n, C, H, W) by up to `shift` pixels; optionally mirror it and cut a hole.

    Uncovered pixels show the reflected image, so no new values appear. A hole is a square of `cutout` times the shorter
    side, filled with `fill`, one value per channel.
    """
    n, channels, height, width = images.shape
    device = images.device
    # Drawn on the CPU, so that a seed gives the same numbers on every device; copied once.
    drawn = torch.randint(2**31, (5, n), generator=generator).to(device, non_blocking=True)
    rows, columns = _shifted_indices(height, shift, drawn[0]), _shifted_indices(width, shift, drawn[1])
    if flip:
        columns = torch.where(drawn[2, :, None] % 2 == 0, columns, width - 1 - columns)
    batch = torch.arange(n, device=device)[:, None, None, None]
    channel = torch.arange(channels, device=device)[:, None, None]
    images = images[batch, channel, rows[:, None, :, None], columns[:, None, None, :]]
    side = round(cutout * min(height, width))
    if side == 0:
        return images
    hole = _inside_interval(height, side, drawn[3])[:, :, None] & _inside_interval(width, side, drawn[4])[:, None, :]
    value = torch.tensor(fill, device=device).view(1, -1, 1, 1)
    value = value.to(images) if images.is_floating_point() else value.round().to(images)
    return torch.where(hole[:, None], value, images)


def _shifted_indices(length: int, shift: int, drawn: Tensor) -> Tensor:
    """(n, length) indices 0 … length-1, moved by a whole number in -shift … shift and reflected at both ends."""
    shift = min(shift, length - 1)
    move = drawn[:, None] % (2 * shift + 1) - shift
    return _reflect(torch.arange(length, device=drawn.device) + move, length)


def _reflect(index: Tensor, length: int) -> Tensor:
    """Indices 0 … length-1: those outside are reflected at the ends."""
    return (length - 1) - ((length - 1) - index.abs()).abs()


def _inside_interval(length: int, side: int, drawn: Tensor) -> Tensor:
    """(n, length): which positions lie in an interval of length `side` at a random position."""
    start = drawn[:, None] % (length - side + 1)
    position = torch.arange(length, device=drawn.device)
    return (position >= start) & (position < start + side)


class Standardise(nn.Module):
    """(x - mean) / std per channel, on the device: batches are copied as uint8, a quarter of the bytes."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        # Not in the state dict, because the encoder's config holds them already.
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(1, -1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """(n, C, H, W) of any number type → float32."""
        return (images.float() - self.mean) / self.std


class ChannelsLast(nn.Module):
    """The fastest layout for convolutions. Placed after the first one: with one channel, layouts look the same."""

    def forward(self, x: Tensor) -> Tensor:
        """The same numbers."""
        return x.contiguous(memory_format=torch.channels_last)


class Averaged(nn.Module):
    """In evaluation, the mean of a network's features over several views of each image.

    Args:
        network: (n, C, H, W) → (n, features).
        flip: also its mirror image.
        moved: also copies moved by a pixel, up and left, down and right. Together they weigh as much as the image.
    """

    def __init__(self, network: nn.Module, *, flip: bool, moved: bool) -> None:
        super().__init__()
        self.network, self.flip, self.moved = network, flip, moved
        self.quick = False  # True between training epochs: no moved copies (`dwac.nn.batches.quick`)

    def forward(self, images: Tensor) -> Tensor:
        """(n, C, H, W) → (n, features)."""
        if self.training:
            features: Tensor = self.network(images)
            return features
        return self.average(self.network, images)

    def average(self, network: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """The mean of a network's features over the views."""
        features = self.both_ways(network, images)
        if self.quick or not self.moved:
            return features
        aside = [self.both_ways(network, _shift_diagonally(images, step)) for step in (-1, 1)]
        return (features + (aside[0] + aside[1]) / 2) / 2

    def both_ways(self, network: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """Features of the images, averaged with those of their mirror images if these are used."""
        features = network(images)
        return (features + network(images.flip(3))) / 2 if self.flip else features


def _shift_diagonally(images: Tensor, step: int) -> Tensor:
    """Images moved along a diagonal; uncovered pixels show the reflected image."""
    rows, columns = (_reflect(torch.arange(side, device=images.device) + step, side) for side in images.shape[2:])
    return images[:, :, rows][:, :, :, columns]


def average_views(network: nn.Module, *, flip: bool, moved: bool) -> nn.Module:
    """The network, or the mean of its features over several views."""
    return Averaged(network, flip=flip, moved=moved) if flip or moved else network


class MeanOfPixels(nn.Module):
    """The mean over all pixels."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, c, H, W) → (n, c)."""
        return x.mean(dim=(2, 3))


class _FeatureNorm(nn.BatchNorm1d):
    """Normalises features (n, c): otherwise the first embeddings nearly coincide and gradients are tiny.

    A batch of fewer than 16 is too small to estimate a scale, so it uses the running one.
    """

    fewest = 16

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or len(x) >= self.fewest:
            return super().forward(x)
        return nn.functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


def _conv(c_in: int, c_out: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(c_in, c_out, size, stride, padding=size // 2, bias=False)


class ResidualBlock(nn.Module):
    """relu(skip(x) + bn(conv(relu(bn(conv(x)))))), the basic block of a residual network; it starts as the skip."""

    def __init__(self, c_in: int, c_out: int, stride: int = 1) -> None:
        super().__init__()
        self.first, self.first_norm = _conv(c_in, c_out, stride=stride), nn.BatchNorm2d(c_out)
        self.second, self.second_norm = _conv(c_out, c_out), nn.BatchNorm2d(c_out)
        nn.init.zeros_(self.second_norm.weight)
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or c_in != c_out:
            self.skip = nn.Sequential(_conv(c_in, c_out, 1, stride), nn.BatchNorm2d(c_out))

    def forward(self, x: Tensor) -> Tensor:
        """(n, c_in, H, W) → (n, c_out, H/stride, W/stride)."""
        inner = self.second_norm(self.second(torch.relu(self.first_norm(self.first(x)))))
        return torch.relu(self.skip(x) + inner)


def default(shape: Shape, width: int, *, early_pools: bool = False) -> nn.Sequential:
    """A short residual network: stem and block, stages of convolution, max pool and block, and a mean over the pixels.

    Each stage halves the image and doubles the channels, up to 8·width, while at least 4 pixels per side remain:
    8×8 has one stage, 28×28 two, 32×32 three. From 64 pixels per side, the stem has a stride of 2; from 128, of 4.
    early_pools: the stem is pooled, and stages pool before their convolution: a sixth of the work at 40×40.
    """
    channels, side = shape[0], min(shape[1:])
    stride = 1 if side < 64 else 2 if side < 128 else 4
    side //= stride
    layers: list[nn.Module] = [_conv(channels, width, max(3, 2 * stride - 1), stride), ChannelsLast()]
    if early_pools:
        side //= 2
        layers.append(nn.MaxPool2d(2))
    layers += [nn.BatchNorm2d(width), nn.ReLU(), ResidualBlock(width, width)]
    c_in = width
    while side // 2 >= 4:
        side, c_out = side // 2, min(2 * c_in, 8 * width)
        # The pool comes before the norm, which then normalises only a quarter of the values.
        pooled = [_conv(c_in, c_out), nn.MaxPool2d(2)]
        layers += [*(pooled[::-1] if early_pools else pooled), nn.BatchNorm2d(c_out), nn.ReLU()]
        layers.append(ResidualBlock(c_out, c_out))
        c_in = c_out
    return nn.Sequential(*layers, MeanOfPixels(), _FeatureNorm(c_in))


def paper(shape: Shape) -> nn.Sequential:
    """The paper's network for 28×28: conv 32 and 64 of 3×3, pool 2, dropout ¼, 9216 → 128, dropout ½.

    Other sizes: from 42 pixels per side, the pool is wider, so that about 12×12 remain and the layer of 128 is small.
    """
    channels, height, width = shape
    pool = tuple(max(2, side // 14) for side in (height, width))
    remaining = ((height - 4) // pool[0]) * ((width - 4) // pool[1])
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d((pool[0], pool[1])),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * remaining, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
    )


def resnet18(shape: Shape) -> nn.Sequential:
    """ResNet-18 with 512 normalised features. Up to 64 pixels per side in CIFAR style: a 3×3 stem and no pool.

    A stage that would leave fewer than 4 pixels per side does not halve, so that small images keep some to pool.
    """
    channels, side = shape[0], min(shape[1:])
    if side <= 64:
        layers: list[nn.Module] = [_conv(channels, 64), ChannelsLast(), nn.BatchNorm2d(64), nn.ReLU()]
    else:
        layers = [_conv(channels, 64, 7, 2), ChannelsLast(), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        side = -(-side // 4)
    c_in = 64
    for c_out in (64, 128, 256, 512):
        halve = c_out > 64 and -(-side // 2) >= 4
        side = -(-side // 2) if halve else side
        layers += [ResidualBlock(c_in, c_out, 2 if halve else 1), ResidualBlock(c_out, c_out)]
        c_in = c_out
    return nn.Sequential(*layers, MeanOfPixels(), _FeatureNorm(c_in))


def find_timm(name: str) -> Any:
    """The timm library; an error if it is not installed or the name is not one of its own networks."""
    if ":" in name.removeprefix("timm:") or "/" in name:
        raise InputError(
            f"network={name!r} is fetched from a hub or folder, so a saved model could not be restored without it; "
            "choose a network of timm's own, or give the network: encoder=timm.create_model(…, num_classes=0)"
        )
    try:
        return importlib.import_module("timm")
    except ImportError:
        raise InputError(f"network={name!r} needs the timm library; install it: pip install timm") from None


def from_timm(name: str, shape: Shape, *, pretrained: bool) -> nn.Module:
    """A network of the timm library without its classifier; its weights are downloaded only if `pretrained`."""
    timm = find_timm(name)
    try:
        network: nn.Module = timm.create_model(name, pretrained=pretrained, num_classes=0, in_chans=shape[0])
        with torch.no_grad():
            network.eval()(torch.zeros(1, *shape))  # many networks accept only one size
    except Exception as error:  # timm and its networks may raise anything
        raise InputError(
            f"timm has no network {name!r} that takes images of {shape[1]}×{shape[2]} with {shape[0]} channels: "
            f"{error}; choose another, or resize the images (size=… for files and PIL images)"
        ) from error
    return network.train()


def build(
    name: str,
    shape: Shape,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    width: int,
    pretrained: bool,
    flip: bool,
    moved: bool = False,
    early_pools: bool = False,
) -> nn.Sequential:
    """The named network, after standardisation; with `flip` or `moved`, it averages several views of each image."""
    if name.startswith("timm:"):
        body = from_timm(name.removeprefix("timm:"), shape, pretrained=pretrained)
    elif name == "default":
        body = default(shape, width, early_pools=early_pools)
    else:
        body = {"paper": paper, "resnet18": resnet18}[name](shape)
    if name in ("default", "resnet18"):  # weights in the layout of the images; otherwise each step would convert them
        body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return nn.Sequential(Standardise(mean, std), average_views(body, flip=flip, moved=moved))
