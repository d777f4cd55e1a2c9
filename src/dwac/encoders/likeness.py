"""Differences of inputs as a person sees them: columns of a table, words of texts, pixels, any tensors.

Every function compares one example with n others and returns (n,) float64; smaller means more similar. Nothing here
depends on a network: the members of a group of voters are alike to the network, but differ in the input.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from dwac.explain.descriptions import words
from dwac.nn.batches import Inputs

Floats = NDArray[np.float64]

_CHARACTERS = 600_000  # characters read of all texts together: some 0.1 s
_BEGINNING = 300  # characters read of each text, however many texts there are
_SIDE = 8  # pixels per side of the pooled copies of images
_AT_ONCE = 2**24  # numbers of a tensor converted to floats at once


# Tables: Gower's distance is the mean over columns of these differences, each in [0, 1].


def number_differences(one: float, many: Floats, span: float) -> Floats:
    """min(|x - x_i| / span, 1); 0 where both are missing (NaN), 1 where one is."""
    if math.isnan(one):
        return (~np.isnan(many)).astype(np.float64)
    with np.errstate(over="ignore"):
        apart = np.abs(many - one)
    scaled = np.minimum(apart / span, 1.0) if span > 0 else (apart > 0).astype(np.float64)
    return np.where(np.isnan(many), 1.0, scaled)


def category_differences(one: Any, many: pd.Series[Any]) -> Floats:
    """0 where the category is the same or both are missing, else 1. Values are compared as text.

    A column of mixed types becomes text when it is stored: there 1 and "1" are the same category.
    """
    codes, values = pd.factorize(many)  # -1, the last position, where missing
    wanted = _category(one)
    differs = np.array([_category(value) != wanted for value in values] + [wanted is not None], dtype=np.float64)
    return differs[codes]


def _category(value: Any) -> str | None:
    """A category as text; None if it is missing. Whole numbers are the same in a column of floats."""
    if pd.isna(value):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


# Texts


def word_distances(one: str, many: Sequence[str]) -> Floats:
    """1 - cosine of the sets of words, each word weighted by its inverse document frequency among the candidates.

    idf(word) = log((n + 1) / number of candidates with it): words that all of them share hardly count. Of many
    long texts, only the beginnings are read, of at least 300 characters.
    """
    length = max(_BEGINNING, _CHARACTERS // max(len(many), 1))
    wanted, sets = words(one[:length]), [words(text[:length]) for text in many]
    counts = Counter(word for found in sets for word in found)
    weight = {word: math.log((len(sets) + 1) / count) ** 2 for word, count in counts.items()}
    rarest = math.log(len(sets) + 1) ** 2  # the squared weight of a word that only the query has
    norm = sum(weight.get(word, rarest) for word in wanted)
    distances = np.ones(len(sets))
    for i, found in enumerate(sets):
        shared = sum([weight[word] for word in found & wanted])
        if shared > 0:
            distances[i] = 1 - shared / math.sqrt(norm * sum([weight[word] for word in found]))
        elif not found and not wanted:  # only punctuation in both
            distances[i] = 0.0
    return np.maximum(distances, 0.0)


# Images


def pixel_distances(one: Tensor, many: Tensor) -> Floats:
    """Root mean squared difference of (1, C, H, W) and (n, C, H, W) uint8 images, pooled to at most 8 × 8, in [0, 1].

    Pooling keeps shape, shading and colour, and forgives small shifts and noise, as an eye does.
    """
    apart = _pooled(many) - _pooled(one)
    return np.asarray(apart.square().mean(dim=(1, 2, 3)).sqrt().double().numpy())


def _pooled(images: Tensor) -> Tensor:
    sides = min(images.shape[2], _SIDE), min(images.shape[3], _SIDE)
    parts = images.split(max(1, _AT_ONCE // max(images[0].numel(), 1))) if len(images) else [images]
    return torch.cat([adaptive_avg_pool2d(part.float() / 255, sides) for part in parts])


# Any tensors


def tensor_distances(one: Inputs, many: Inputs) -> Floats:
    """Root mean squared difference of each flattened input, in standard deviations of the candidates and the query.

    Several inputs: the mean over them. A feature that does not vary does not count.
    """
    each = [_standardised(a, b) for a, b in zip(one, many, strict=True)]
    return np.asarray(np.mean(each, axis=0))


def _standardised(one: Tensor, many: Tensor) -> Floats:
    flat = torch.cat([one, many])
    flat = torch.view_as_real(flat) if flat.is_complex() else flat
    flat = flat.reshape(len(flat), math.prod(flat.shape[1:])).double()
    if flat.shape[1] == 0:
        return np.zeros(len(many))
    deviation = flat.std(dim=0, correction=0)
    varied = deviation > 1e-12 * flat.abs().amax(dim=0)
    if not bool(varied.any()):
        return np.zeros(len(many))
    apart = (flat[1:, varied] - flat[:1, varied]) / deviation[varied]
    return np.asarray(apart.square().mean(dim=1).sqrt().numpy())
