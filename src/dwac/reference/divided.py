"""Divided: the state of a reference set whose voters are asked shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from operator import methodcaller
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dwac import _checks as checks
from dwac import engine
from dwac.errors import InputError, ShapeError
from dwac.reference.groups import Floats, Ints
from dwac.reference.parts import merge
from dwac.reference.shards import Shard
from dwac.reference.state import State, unit
from dwac.storage import FileRows

T = TypeVar("T")
# Applies a function to every shard, as the built-in map does: of a pool of threads or processes, or of a cluster.
Ask = Callable[[Callable[[Shard], Any], Sequence[Shard]], Iterable[Any]]


@dataclass(frozen=True, eq=False)
class Divided(State):
    """References in shards: rows cuts[i] … cuts[i + 1] are asked together, all shards through `ask`.

    Where `files` hold the rows, the tensors of the state are mapped, and shards read their rows when they are asked.
    """

    cuts: tuple[int, ...] = ()
    ask: Ask = map
    files: tuple[FileRows, ...] = ()
    turned: bool = False  # shards turn embeddings to length 1

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """The shards in order."""
        return tuple(self._shard(*ends) for ends in pairwise(self.cuts))

    def _shard(self, start: int, stop: int) -> Shard:
        columns = ("embeddings", "labels", "weights", "sizes", "targets")
        rows = {name: self.source(name)[start:stop] for name in columns if getattr(self, name) is not None}
        near, keep = self.look_alikes, not self.files
        return Shard(
            start, stop, rows, self.n_classes, self.kernel.name, self.class_weights, near, self.turned, keep=keep
        )

    def source(self, name: str) -> Any:
        """A tensor of the state, or the rows of the file that it is mapped from."""
        held = getattr(self, name)
        return next((file for file in self.files if file.mapped is held), held)

    @property
    def points(self) -> Any:
        """See `State.points`."""
        return self.source("embeddings")

    def every(self, function: Callable[[Shard], T]) -> Iterable[T]:
        """What a function gives for each shard, in order."""
        return self.ask(function, self.shards)

    def asked(self, method: str, *arguments: Any) -> Any:
        """The merged answer of all shards to a method of `Shard`."""
        return merge(self.every(methodcaller(method, *arguments)))

    # Votes

    def query(self, h: Tensor, k: int, backend: str) -> engine.QueryResult:
        """See `State.query`."""
        if not 0 <= k <= len(self.labels):
            raise InputError(f"k must lie in 0 … {len(self.labels)}, the number of references; got {k}")
        found = self.asked("votes", h, k, backend)
        return engine.QueryResult(found.log_sums, found.rows, found.squared_distances)

    def group_sums(self, h: Tensor, backend: str) -> Tensor:
        """See `State.group_sums`."""
        sums = self._by_group.query(h, 0, backend).log_class_weights
        return sums + torch.as_tensor(self.log_class_factors[self.groups.labels], device=h.device)

    @cached_property
    def _by_group(self) -> Divided:
        groups = torch.as_tensor(self.groups.of, device=self.labels.device)
        bare: dict[str, Any] = {"class_weights": None, "division": None, "members": None, "targets": None}
        return replace(self, labels=groups, n_classes=len(self.groups), **bare)

    @torch.no_grad()
    def log_votes(self, h: Tensor) -> Tensor:
        """See `State.log_votes`."""
        return torch.cat(list(self.every(methodcaller("single_votes", h))))

    @cached_property
    def directions(self) -> State:
        """See `State.directions`. Where files hold the embeddings, only the shards turn them."""
        bare: dict[str, Any] = {"look_alikes": None, "members": None, "division": None}
        if self.source("embeddings") is self.embeddings:
            return replace(self.each_once, embeddings=unit(self.embeddings), **bare)
        assert isinstance(self.each_once, Divided)
        return replace(self.each_once, turned=True, **bare)

    @cached_property
    def target_range(self) -> Tensor:
        """See `State.target_range`."""
        ends = [torch.stack(part.aminmax(dim=0)) for part in self.source("targets").split(2**20)]
        lowest, highest = torch.stack(ends).unbind(1)
        return torch.stack([lowest.amin(dim=0), highest.amax(dim=0)])

    # Other states

    @property
    def whole(self) -> State:
        """The same references, undivided."""
        return State(**{field.name: getattr(self, field.name) for field in fields(State)})

    def condensed(self, leaves: Ints | None = None, factors: Floats | None = None) -> State:
        """See `State.condensed`. The few that represent all are not divided."""
        few = super().condensed(leaves, factors)
        assert isinstance(few, Divided)
        return few.whole

    # Edits: new references join the last shard; the others stay in theirs.

    def added(
        self, h: Tensor, labels: Tensor, ids: pd.Index[Any], next_id: int | None, targets: Tensor | None = None
    ) -> State:
        """See `State.added`."""
        self._refuse_files("added to")
        made = super().added(h, labels, ids, next_id, targets)
        assert isinstance(made, Divided)
        return replace(made, cuts=(*self.cuts[:-1], self.cuts[-1] + len(h)))

    def removed(self, places: Ints) -> State:
        """See `State.removed`. A shard that has nobody left is gone."""
        self._refuse_files("removed from")
        made = super().removed(places)
        assert isinstance(made, Divided)
        before = np.searchsorted(np.sort(places), self.cuts)
        return replace(made, cuts=tuple(dict.fromkeys((np.asarray(self.cuts) - before).tolist())))

    def _refuse_files(self, what: str) -> None:
        if self.files:
            raise InputError(
                f"examples cannot be {what} a set that is read from its files, which many may be using; load it into "
                "memory, edit it and save it: dwac.load(path) without mapped=True, or ReferenceSet.in_memory(); if it "
                "is too large for that, write it again without them, with dwac.reference.ReferenceWriter"
            )


def cuts_of(shards: int | Sequence[int], m: int) -> tuple[int, ...]:
    """Where m references are cut: into so many shards of about the same size, or into shards of these sizes."""
    if isinstance(shards, int | np.integer):
        size = min(checks.positive_int(shards, "shards"), m)
        return tuple(m * i // size for i in range(size + 1))
    sizes = [checks.positive_int(size, "the size of a shard") for size in shards]
    if sum(sizes) != m:
        raise ShapeError(f"the sizes of shards must sum to {m}, the number of references; got {sum(sizes)}")
    return tuple(np.cumsum([0, *sizes]).tolist())
