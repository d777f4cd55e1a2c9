"""One encoder per part of the rows, combined into one: nothing learned from one part reaches another.

A sharded encoder learns the columns, and what people see, from all training rows, like any encoder. The tensors for
the networks come from its parts, each fitted only on its own rows.
"""

from __future__ import annotations

from typing import Any, Self, cast

import numpy as np
from torch import nn

from dwac.encoders.base import Encoder
from dwac.encoders.columns import frame_of
from dwac.encoders.image import ImageEncoder
from dwac.encoders.pictures import read_pictures
from dwac.encoders.tabular import TabularEncoder
from dwac.encoders.text import TextEncoder
from dwac.errors import InputError
from dwac.nn.batches import Inputs
from dwac.nn.ensemble import Member, ShardedNetwork


class Sharded(Encoder):
    """The common base of sharded encoders; the second base class defines the kind of data."""

    parts: list[Encoder]
    sizes: list[tuple[int, int]]  # per member: the width of its features, and of its embedding
    shared = False  # whether all members take the same tensors

    def transform(self, X: Any) -> Inputs:
        """The tensors of every part, one after the other."""
        return tuple(tensor for part in self.parts for tensor in part.transform(X))

    def network(self) -> Any:
        """New members, with the sizes of the trained ones."""
        pairs = zip(self.parts, self.sizes, strict=True)
        return ShardedNetwork([Member(part.network(), nn.Linear(*size)) for part, size in pairs], shared=self.shared)

    def config(self) -> dict[str, Any]:
        """The config of the encoder, and of its parts."""
        parts = [part.config() for part in self.parts]
        return {**super().config(), "shards": parts, "member_sizes": [list(size) for size in self.sizes]}  # type: ignore[safe-super]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Restore the encoder and its parts."""
        encoder: Self = super().from_config(
            {name: value for name, value in config.items() if name not in ("shards", "member_sizes")}
        )
        plain = PLAIN[cls.kind]
        encoder.parts = [plain.from_config(part) for part in config["shards"]]
        encoder.sizes = [(int(width), int(size)) for width, size in config["member_sizes"]]
        return encoder

    def check(self) -> None:
        """Check the parts too."""
        super().check()
        for part in self.parts:
            part.check()
        if len(self.sizes) != len(self.parts) or min(map(min, self.sizes), default=0) < 1:
            raise InputError(f"a sharded encoder needs two sizes for each part; got {self.sizes!r:.200}")


class ShardedTable(Sharded, TabularEncoder):
    """Tables."""


class ShardedText(Sharded, TextEncoder):
    """Texts."""

    def attention(self, network: nn.Module, X: Any) -> list[tuple[tuple[str, float], ...]] | None:
        """The words of each text, each with the members' mean attention; a member may read fewer words."""
        members = cast(ShardedNetwork, network).members
        attentions = [
            part.attention(cast(Member, member).network, X) or []
            for part, member in zip(self.parts, members, strict=True)
        ]
        return [_mean_attention(texts) for texts in zip(*attentions, strict=True)]


class ShardedImage(Sharded, ImageEncoder):
    """Images: parts need no encoder, since each network standardises the pixels."""

    shared = True

    def transform(self, X: Any) -> Inputs:
        """The pixels, once for all members."""
        return ImageEncoder.transform(self, X)


PLAIN: dict[str, type[Any]] = {plain.kind: plain for plain in (TabularEncoder, TextEncoder, ImageEncoder)}
SHARDED: dict[str, type[Any]] = {each.kind: each for each in (ShardedTable, ShardedText, ShardedImage)}


def unfitted_copy(encoder: Encoder) -> Any:
    """A new, unfitted encoder with the settings of this one."""
    return PLAIN[encoder.kind](**cast(Any, encoder).settings)


def join_encoders(encoder: Encoder, X: Any, y: Any, parts: list[Any], members: list[Member]) -> Any:
    """One encoder made of the parts; X and y: all training rows, from which it learns what people see."""
    whole = SHARDED[encoder.kind](**cast(Any, encoder).settings).fit(X, y)
    whole.parts = parts
    whole.sizes = [(member.embedding.in_features, member.embedding.out_features) for member in members]
    return whole


def plain_rows(encoder: Encoder, X: Any) -> Any:
    """The rows of X as a table, for texts too, or as an array of pixels."""
    if encoder.kind == "tabular":
        return frame_of(X)
    if encoder.kind == "text":
        return unfitted_copy(encoder).records(X)
    pixels = read_pictures(X)
    if isinstance(pixels, list):
        raise InputError(
            "shards need images as one array: pictures take their size from the first of them, which may be deleted; "
            "decode and resize them first"
        )
    return pixels


def _mean_attention(texts: tuple[tuple[tuple[str, float], ...], ...]) -> tuple[tuple[str, float], ...]:
    """The mean over members of their attention to each word of one text."""
    longest = max(texts, key=len)
    shares = np.zeros(len(longest))
    for text in texts:
        shares[: len(text)] += [share for _, share in text]
    return tuple((word, float(share) / len(texts)) for (word, _), share in zip(longest, shares, strict=True))
