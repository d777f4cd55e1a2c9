"""Divided: the state of a reference set in files, whose voters are asked shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from operator import methodcaller
from typing import Any, TypeVar

import torch
from torch import Tensor

from dwac import engine
from dwac.errors import InputError
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
    """References in `files`: rows cuts[i] … cuts[i + 1] are a shard, asked together, all shards through `ask`.

    The tensors of the state are mapped from the files, and shards read their rows when they are asked. What was changed
    in memory, such as labels, is held as a tensor.
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
        weights, near = self.class_weights, self.look_alikes
        return Shard(start, stop, rows, self.n_classes, self.kernel.name, weights, near, self.turned)

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

    # Edits of who votes: others may be using the files.

    def added(self, *_: Any, **__: Any) -> State:
        """See `State.added`: refused."""
        raise _refusal("added to")

    def removed(self, _: Ints) -> State:
        """See `State.removed`: refused."""
        raise _refusal("removed from")


def _refusal(what: str) -> InputError:
    return InputError(
        f"examples cannot be {what} a set that is read from its files, which many may be using; load it into memory, "
        "edit it and save it: dwac.load(path) without mapped=True, or ReferenceSet.in_memory(); if it is too large for "
        "that, write it again without them, with dwac.reference.ReferenceWriter"
    )
