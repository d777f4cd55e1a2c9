"""Blocks: parts of a reference set that are queried separately, here or on another machine.

    part = merge(block.votes(queries, k) for block in blocks)     # in any order, in any tree, up to rounding

A part is the answer of one block: a tuple of tensors with a row for each query. It is small enough to send and holds no
reference to its block, so any map and reduce will do: threads, processes, Dask, Ray, Spark. Averages and distributions
of targets are not taken by block, but from the mapped file, tile by tile (`dwac.engine.votes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from operator import methodcaller
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from dwac import engine
from dwac.engine.exact import check_queries
from dwac.errors import EmptyReferenceError, InputError
from dwac.kernels import get_kernel
from dwac.reference.groups import Floats, Ints
from dwac.reference.inputs import LookAlikes
from dwac.reference.voters import COLUMNS, Voters, unit
from dwac.storage import FileRows


def merge(parts: Iterable[VotePart]) -> VotePart:
    """Merge the answers of all blocks into one; if `parts` is an iterator, only two are held at a time."""
    remaining = iter(parts)
    merged = next(remaining, None)
    if merged is None:
        raise EmptyReferenceError("merge needs at least one part; got none; ask at least one block")
    for part in remaining:
        merged = merged.merge(part)
        del part  # while the next one is made
    return merged


class VotePart(NamedTuple):
    """Votes: class sums add up in log space, and the overall nearest are among the nearest of each block."""

    log_sums: Tensor  # (n, K) float64: log Σ w of each class; -inf where the block has no voter of the class
    rows: Tensor  # (n, k) int64: the nearest, as positions in the whole set, nearest first
    squared_distances: Tensor  # (n, k) float64
    keys: Tensor  # (n, k) float64: sort keys, ascending; ties are ordered by position
    k: int  # how many were requested; a block may have fewer

    def merge(self, other: VotePart) -> VotePart:
        """The votes of both, and the nearest of both."""
        sums = torch.logaddexp(self.log_sums, other.log_sums)
        rows, squared, keys = (torch.cat([a, b], dim=1) for a, b in zip(self[1:4], other[1:4], strict=True))
        by_row = rows.argsort(dim=1)
        order = by_row.gather(1, keys.gather(1, by_row).argsort(dim=1, stable=True))[:, : self.k]
        return VotePart(sums, rows.gather(1, order), squared.gather(1, order), keys.gather(1, order), self.k)


@dataclass(frozen=True, eq=False)
class Block:
    """The voters at positions start … stop of a set. Send it to a worker once, and query it there.

    A query reads its rows from files, except those changed in memory. It computes in float64, whatever type its rows
    are stored in, so that answers do not depend on how a set is divided.

    >>> import tempfile
    >>> from dwac.reference import ReferenceWriter, open_references
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with ReferenceWriter(f"{folder}/voters", n_classes=2) as writer:
    ...         writer.add([[0.0], [5.0]], [0, 1])
    ...     blocks = open_references(f"{folder}/voters").voters.blocks
    ...     part: VotePart = merge(block.votes(torch.tensor([[4.0]]), k=1) for block in blocks)
    >>> part.log_sums, part.rows
    (tensor([[-16.,  -1.]], dtype=torch.float64), tensor([[1]]))
    """

    start: int
    stop: int
    rows: Mapping[str, Tensor | FileRows]  # embeddings and labels; weights, sizes and targets if any
    n_classes: int
    kernel: str
    class_weights: tuple[float, ...] | None
    look_alikes: LookAlikes | None
    normalised: bool = False  # whether embeddings are scaled to length 1

    def __len__(self) -> int:
        """The number of voters."""
        return self.stop - self.start

    @property
    def voters(self) -> Voters:
        """Its voters as a separate set, read from the files again."""
        columns = {name: self._column(name) for name in self.rows}
        embeddings = unit(columns["embeddings"]) if self.normalised else columns["embeddings"]
        return Voters(
            embeddings.double(),
            columns["labels"].long(),
            pd.RangeIndex(self.start, self.stop),
            None,
            self.n_classes,
            get_kernel(self.kernel),
            self.class_weights,
            columns.get("weights"),
            columns.get("sizes"),
            self.look_alikes,
            targets=columns.get("targets"),
        )

    def _column(self, name: str) -> Tensor:
        rows = self.rows[name]
        return rows if isinstance(rows, Tensor) else rows.read()

    # Queries

    def votes(self, queries: Tensor, k: int = 0, backend: str = "auto") -> VotePart:
        """The votes for each class, and the k nearest."""
        voters = self.voters
        sums, rows, squared = voters.query(queries.double(), min(k, len(self)), backend)
        keys = squared
        if voters.weights is not None:
            keys = -(voters.kernel.log_weights(squared) + voters.log_factors[rows])
        return VotePart(sums, rows + self.start, squared, keys, k)

    def single_votes(self, query: Tensor) -> Tensor:
        """(stop - start,): log w of each voter for one query (d,)."""
        return self.voters.log_votes(query)


# Applies a function to every block, like the built-in map: the `map` of a thread pool, process pool or cluster.
Ask = Callable[[Callable[[Block], Any], Sequence[Block]], Iterable[Any]]


@dataclass(frozen=True, eq=False)
class BlockVoters(Voters):
    """References in `files`: rows cuts[i] … cuts[i + 1] form a block, and `ask` queries all blocks.

    The tensors of the state are mapped from the files, and blocks read their rows for each query. Columns changed in
    memory, such as labels, are held as tensors.
    """

    cuts: tuple[int, ...] = ()
    ask: Ask = map
    files: tuple[FileRows, ...] = ()
    normalised: bool = False  # blocks scale embeddings to length 1

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks in order."""
        return tuple(self._block(*ends) for ends in pairwise(self.cuts))

    def _block(self, start: int, stop: int) -> Block:
        rows = {name: self.source(name)[start:stop] for name in COLUMNS if getattr(self, name) is not None}
        weights, near = self.class_weights, self.look_alikes
        return Block(start, stop, rows, self.n_classes, self.kernel.name, weights, near, self.normalised)

    def source(self, name: str) -> Any:
        """A tensor of the state, or the file rows that it is mapped from."""
        column = getattr(self, name)
        return next((file for file in self.files if file.mapped is column), column)

    @cached_property
    def are_few(self) -> bool:
        """See `Voters.are_few`: blocks decide for themselves."""
        return False

    @property
    def points(self) -> Any:
        """See `Voters.points`."""
        return self.source("embeddings")

    # Votes

    def query(self, h: Tensor, k: int, backend: str) -> engine.QueryResult:
        """See `Voters.query`."""
        check_queries(self.embeddings, h, k)
        part = merge(self.ask(methodcaller("votes", h, k, backend), self.blocks))
        return engine.QueryResult(part.log_sums, part.rows, part.squared_distances)

    @torch.no_grad()
    def log_votes(self, h: Tensor) -> Tensor:
        """See `Voters.log_votes`."""
        return torch.cat(list(self.ask(methodcaller("single_votes", h), self.blocks)))

    @cached_property
    def directions(self) -> Voters:
        """See `Voters.directions`. Embeddings in files are normalised by the blocks only."""
        bare: dict[str, Any] = {"look_alikes": None, "members": None, "division": None}
        if self.source("embeddings") is self.embeddings:
            return replace(self.each_once, embeddings=unit(self.embeddings), **bare)
        assert isinstance(self.each_once, BlockVoters)
        return replace(self.each_once, normalised=True, **bare)

    # Other voters

    @property
    def whole(self) -> Voters:
        """The same references, undivided."""
        return Voters(**{field.name: getattr(self, field.name) for field in fields(Voters)})

    def condensed(self, leaves: Ints | None = None, factors: Floats | None = None) -> Voters:
        """See `Voters.condensed`. The representatives are not divided into blocks."""
        few = super().condensed(leaves, factors)
        assert isinstance(few, BlockVoters)
        return few.whole

    # Voters cannot be added or removed: others may be using the files.

    def added(self, *_: Any, **__: Any) -> Voters:
        """See `Voters.added`: refused."""
        raise _refusal("added to")

    def removed(self, _: Ints) -> Voters:
        """See `Voters.removed`: refused."""
        raise _refusal("removed from")

    def reweighed(self, *_: Any) -> Voters:
        """See `Voters.reweighed`: refused."""
        raise _refusal("reweighed in")


def _refusal(what: str) -> InputError:
    return InputError(
        f"examples cannot be {what} a set that is read from its files, which many may be using; load it into memory, "
        "edit it and save it: dwac.load(path) without mapped=True, or dwac.reference.in_memory(references); if it is "
        "too large for that, write it again without them, with dwac.reference.ReferenceWriter"
    )
