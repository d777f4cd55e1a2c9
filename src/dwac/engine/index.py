"""References laid out for fast sums: centred, sorted by class, split into blocks, with norms folded in."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from dwac.kernels import Kernel

_LARGEST_BLOCK, _SMALLEST_BLOCK = 128, 16
DOUBLED = 2**22  # the most numbers also kept in float64: 32 MiB


@dataclass(frozen=True)
class Index:
    """An immutable layout of m references for the engine; build one with `build_index`.

    The rows are sorted by class, and each class is padded to whole blocks of `block_size` rows, so a block
    never mixes classes and every reduction has a fixed shape. With g = h_i - centre,

        folded = [2g, -‖g‖²]   and so   [q, 1] · folded = ‖q‖² - ‖q - g‖²,

    so one matrix product gives the log-weights up to ‖q‖², which is the same for all classes. Padding rows are
    [0, -inf]: they are infinitely far away and have no weight.

    >>> from dwac.kernels import get_kernel
    >>> index = build_index(torch.tensor([[0.0], [2.0]]), torch.tensor([0, 1]), 3, get_kernel("gaussian"))
    >>> index.counts, index.centre
    (tensor([1, 1, 0]), tensor([1.], dtype=torch.float64))
    """

    embeddings: Tensor  # (m, d), as given, float32 or float64
    labels: Tensor  # (m,) int64
    n_classes: int
    kernel: Kernel
    centre: Tensor  # (d,) float64
    block_size: int
    block_labels: Tensor  # (n_blocks,) int64, ascending
    rows: Tensor  # (n_blocks · block_size,) int64: the reference at each position; -1 for padding
    folded: Tensor  # (n_blocks · block_size, d + 1), the dtype of `embeddings`

    @cached_property
    def counts(self) -> Tensor:
        """(K,): the number of references of each class."""
        return torch.bincount(self.labels, minlength=self.n_classes)

    @cached_property
    def log_counts(self) -> Tensor:
        """(K,) float64: log counts, an upper bound on the log class weights."""
        return self.counts.double().log()

    @cached_property
    def empty(self) -> Tensor:
        """(K,): which classes have no references."""
        return self.counts == 0

    @cached_property
    def has_empty(self) -> bool:
        """Whether any class has no references."""
        return bool(self.empty.any())

    @cached_property
    def class_starts(self) -> Tensor:
        """(K + 1,) int32: the first block of each class, and the end of the last class."""
        classes = torch.arange(self.n_classes + 1, device=self.block_labels.device)
        return torch.searchsorted(self.block_labels, classes).int()

    @cached_property
    def halves(self) -> bool:
        """Whether half precision can hold all of 2g log₂e, as `split` requires."""
        largest = self.folded[:, :-1].abs().amax() if len(self.folded) else 0.0
        return bool(largest * math.log2(math.e) < torch.finfo(torch.float16).max)

    @cached_property
    def split(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """The folded rows in the layout of tensor cores: 2g log₂e as its leading bits and the rest, plus -‖g‖² log₂e.

        Both parts are (rows, D) in half precision, D a power of two. For a gaussian, each norm is stored as the sum of
        three numbers in three more columns of the leading part, if D has room and every norm is within half of the
        range of half precision. Padding has the lowest number in all three, which is low enough to have no weight.
        A fourth column, if there is one, is 1, for a term of the query. Otherwise the norms are a third tensor, (rows,)
        float32.
        """
        d, width = self.folded.shape[1] - 1, padded_width(self.folded.shape[1] - 1)
        leading, rest = (self.folded.new_zeros(len(self.folded), width, dtype=torch.float16) for _ in range(2))
        norms = self.folded[:, d] * math.log2(math.e)
        for start in range(0, len(self.folded), 65_536):
            part = slice(start, start + 65_536)
            leading[part, :d], rest[part, :d] = leading_bits(self.folded[part, :d] * math.log2(math.e))
        if width < d + 3 or self.kernel.name != "gaussian" or _too_large(norms):
            return leading, rest, norms
        _fill_columns(leading, d, norms)
        return leading, rest, None

    @cached_property
    def tail(self) -> Tensor | None:
        """The columns of norms and ones of `split` in a tensor of their own, (rows, 16), if it leaves the norms apart.

        None if they are not apart, if weights are no exponentials, or if a norm is too large.
        """
        norms = self.split[2]
        if norms is None or self.kernel.name != "gaussian" or _too_large(norms):
            return None
        tail = norms.new_zeros(len(norms), 16, dtype=torch.float16)
        _fill_columns(tail, 0, norms)
        return tail

    @property
    def doubled(self) -> Index:
        """This index with the folded layout in float64, cached if it is small; otherwise this index itself."""
        small = self.folded.dtype != torch.float64 and self.folded.numel() <= DOUBLED
        return self._doubled if small else self

    @cached_property
    def _doubled(self) -> Index:
        return replace(self, folded=self.fold(0, len(self.rows), torch.float64))

    def fold(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        """Rows start … stop of the folded layout in a given precision."""
        if dtype == self.folded.dtype:
            return self.folded[start:stop]
        return fold_points(self.embeddings, self.centre, self.rows[start:stop], dtype)


def build_index(embeddings: Tensor, labels: Tensor, n_classes: int, kernel: Kernel) -> Index:
    """Lay out references (m, d) with labels (m,) for the engine. The inputs are not changed."""
    embeddings = embeddings.detach()
    embeddings = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32)).contiguous()
    centre = embeddings.mean(dim=0, dtype=torch.float64)
    counts = torch.bincount(labels, minlength=n_classes)
    block_size = _block_size(len(labels), n_classes)
    blocks_per_class = (counts + block_size - 1) // block_size
    block_labels = torch.repeat_interleave(torch.arange(n_classes, device=labels.device), blocks_per_class)
    by_class = torch.argsort(labels, stable=True)
    # The start of class k in the padded layout, minus its start in the sorted one.
    shift = (blocks_per_class * block_size - counts).cumsum(0) - (blocks_per_class * block_size - counts)
    places = torch.arange(len(labels), device=labels.device) + shift[labels[by_class]]
    rows = torch.full((len(block_labels) * block_size,), -1, dtype=torch.int64, device=labels.device)
    rows[places] = by_class
    folded = torch.empty(len(rows), embeddings.shape[1] + 1, dtype=embeddings.dtype, device=embeddings.device)
    for start in range(0, len(rows), 65_536):
        stop = start + 65_536
        folded[start:stop] = fold_points(embeddings, centre, rows[start:stop], embeddings.dtype)
    return Index(embeddings, labels, n_classes, kernel, centre, block_size, block_labels, rows, folded)


def leading_bits(x: Tensor) -> tuple[Tensor, Tensor]:
    """float32 numbers as two in half precision: their 11 leading bits, and the next 11."""
    leading = x.half()
    return leading, (x - leading).half()


def _too_large(norms: Tensor) -> bool:
    """Whether three numbers in half precision may not hold a norm; padding is -∞."""
    return bool(norms.masked_fill(norms == -torch.inf, 0).amin() < torch.finfo(torch.float16).min / 2)


def _fill_columns(columns: Tensor, first: int, norms: Tensor) -> None:
    """Store each norm as the sum of three numbers in half precision, in columns from `first`; then a 1, if it fits."""
    for column in range(first, first + 3):
        columns[:, column] = norms.clamp_min(torch.finfo(torch.float16).min)
        norms = norms - columns[:, column]  # padding stays -∞
    columns[:, first + 3 : first + 4] = 1.0


def padded_width(size: int) -> int:
    """A number of rows or columns padded for the tensor cores: a power of two, at least 16."""
    return max(16, power_of_two(size))


def power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()


def _block_size(m: int, n_classes: int) -> int:
    """A power of two, small enough that padding adds at most about a quarter of the references."""
    size = _LARGEST_BLOCK
    while size > _SMALLEST_BLOCK and size * n_classes > m // 4:
        size //= 2
    return size


def fold_points(embeddings: Tensor, centre: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """[2g, -‖g‖²] of the centred points g in these rows; a row below 0 is padding."""
    centred = (embeddings[rows.clamp_min(0)].double() - centre).to(dtype)
    # Norms of the rounded points, so that a distance is exact for the points the product sees.
    norms = centred.double().square().sum(dim=1, keepdim=True).to(dtype)
    padding = (rows < 0)[:, None]
    return torch.cat([(2 * centred).masked_fill(padding, 0), (-norms).masked_fill(padding, -torch.inf)], dim=1)
