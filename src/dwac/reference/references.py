"""ReferenceSet: the training examples that vote, with labels, targets and ids, editable without retraining."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac import engine
from dwac.errors import EmptyReferenceError, IdError, InputError, LabelError, ShapeError
from dwac.kernels import get_kernel
from dwac.reference import inputs
from dwac.reference.distribution import VoteDistribution
from dwac.reference.divided import Divided
from dwac.reference.groups import Division, Groups, GroupTargets
from dwac.reference.ids import as_ids
from dwac.reference.sharded import ShardedDistribution
from dwac.reference.shards import Shard
from dwac.reference.state import LookAlikes, State


class Neighbors(NamedTuple):
    """The k nearest references of each of n queries, nearest first; every field is (n, k).

    `log_weights` is log w(h, h_i) ≤ 0, plus the logs of the reference's and its class's weight if there are any. Where
    references have weights, those with the heaviest votes come first. Equal ones are in the order of the set.
    """

    ids: NDArray[Any]
    labels: NDArray[np.int64]
    squared_distances: NDArray[np.float64]
    log_weights: NDArray[np.float64]
    sizes: NDArray[np.float64]  # how many examples each votes for


class ReferenceSet:
    """m embeddings (m, d), their labels 0 … n_classes-1 and their ids: the voters on every query.

    Queries given as NumPy arrays or lists are answered in NumPy, tensors with tensors. Answers are exact: they
    agree with a float64 sum over all references to about 1e-5 (1e-4 in the worst case), wherever the data lies. They do
    not depend on the other queries in the same call, except where gradients are recorded.

    Args:
        embeddings: (m, d) numbers. float64 stays float64; half precision is computed in float32.
        labels: (m,) whole numbers.
        ids: m unique hashable names of the examples; by default 0 … m-1.
        n_classes: by default the largest label + 1.
        kernel: "gaussian" (the paper's), "laplace" or "inverse_quadratic".
        class_weights: (K,) positive factors on the votes for each class; by default 1.
        weights: (m,) positive factors on the vote of each example; by default 1.
        sizes: (m,) how many examples each stands for; by default as many as it has votes.
        look_alikes: (factor, weight) of a second kernel: w = k(d) + weight · k(factor · d). A factor above 1 gives
            whoever is very near a louder voice; 0 gives everybody a base vote at any distance. By default none.
        targets: (m,) or (m, T) numbers that each example votes for besides its label, for regression; by default none.

    >>> refs = ReferenceSet([[0.0], [1.0], [5.0]], [0, 0, 1], ids=["ann", "bob", "eve"])
    >>> refs.probabilities([[0.5]]).round(6)
    array([[1., 0.]])
    >>> refs.nearest([[4.0]], k=2).ids
    array([['eve', 'bob']], dtype=object)
    >>> refs.remove(["eve"]); refs.add([[0.4]], [1], ids=["joe"])
    ['joe']
    >>> refs.probabilities([[0.5]]).round(2)
    array([[0.61, 0.39]])
    """

    def __init__(
        self,
        embeddings: Any,
        labels: Any,
        ids: Iterable[Hashable] | None = None,
        n_classes: int | None = None,
        kernel: str = "gaussian",
        class_weights: Any = None,
        weights: Any = None,
        sizes: Any = None,
        look_alikes: tuple[float, float] | None = None,
        targets: Any = None,
    ) -> None:
        chosen = get_kernel(kernel)
        h = checks.float_tensor(embeddings, "embeddings").detach()
        if len(h) == 0 or h.shape[1] == 0:
            raise EmptyReferenceError(
                f"a reference set needs at least one example and one dimension; got shape {tuple(h.shape)}"
            )
        if n_classes is not None:
            n_classes = checks.positive_int(n_classes, "n_classes")
        y = checks.class_labels(labels, "labels", n=len(h), n_classes=n_classes)
        n_classes = int(y.max()) + 1 if n_classes is None else n_classes
        names = pd.RangeIndex(len(h)) if ids is None else as_ids(ids, len(h))
        next_id = len(h) if ids is None else None
        # A copy: later edits of the caller's array must not change the votes.
        labels = torch.as_tensor(y, device=h.device)
        factors = None if class_weights is None else inputs.as_class_weights(class_weights, n_classes)
        votes, stands_for = (
            None if values is None else torch.tensor(inputs.as_weights(values, len(h), name), device=h.device)
            for values, name in ((weights, "weights"), (sizes, "sizes"))
        )
        near = None if look_alikes is None else inputs.as_look_alikes(look_alikes, weighted=votes is not None)
        numbers = None if targets is None else inputs.as_targets(targets, len(h)).to(h.device)
        self._state = State(
            h.clone(), labels, names, next_id, n_classes, chosen, factors, votes, stands_for, near, targets=numbers
        )

    # Contents

    def __len__(self) -> int:
        """The number of references m."""
        return len(self._state.labels)

    def __repr__(self) -> str:
        """Its size, in words."""
        state = self._state
        m, d = state.embeddings.shape
        for_all = f" for {state.counted.sum():,.6g}" if state.counted is not None else ""
        numbers = "" if self.n_targets == 0 else f"{self.n_targets} target{'s' * (self.n_targets > 1)}, "
        return (
            f"ReferenceSet({m:,} examples{for_all}, {d} dimensions, {state.n_classes} classes, {numbers}"
            f"kernel={state.kernel.name!r})"
        )

    @property
    def embeddings(self) -> Tensor:
        """(m, d), read-only: change the set with `add` and `remove`."""
        return self._state.embeddings

    @property
    def labels(self) -> Tensor:
        """(m,) int64, read-only: change them with `relabel`."""
        return self._state.labels

    @property
    def targets(self) -> Tensor | None:
        """(m, T) float64, read-only: the numbers examples vote for; None if they have labels alone."""
        return self._state.targets

    @property
    def n_targets(self) -> int:
        """T, the numbers that each example votes for; 0 if it has a label alone."""
        return 0 if self._state.targets is None else self._state.targets.shape[1]

    @property
    def ids(self) -> NDArray[Any]:
        """(m,): the name of each example, in order."""
        names = self._state.ids.to_numpy().view()
        names.flags.writeable = False  # pandas 2 hands out the array that its index looks up in
        return names

    @property
    def index_of_ids(self) -> pd.Index[Any]:
        """The ids as a pandas index: the same object until the set changes."""
        return self._state.ids

    @property
    def n_classes(self) -> int:
        """K, fixed when the set is created."""
        return self._state.n_classes

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return self._state.kernel.name

    @property
    def class_weights(self) -> NDArray[np.float64]:
        """(K,): the factor on the votes for each class."""
        return np.asarray(self._state.class_weights or np.ones(self.n_classes))

    @property
    def weights(self) -> NDArray[np.float64]:
        """(m,): how many votes each example has."""
        return _per_example(self._state.weights, len(self))

    @property
    def sizes(self) -> NDArray[np.float64]:
        """(m,): how many examples each stands for."""
        return _per_example(self._state.counted, len(self))

    @property
    def look_alikes(self) -> LookAlikes | None:
        """The factor and the weight of the second, narrower kernel; None if there is none."""
        return self._state.look_alikes

    def log_weights_at(self, squared_distances: Tensor) -> Tensor:
        """log w at squared distances, for an example of weight 1."""
        return self._state.log_weights_at(squared_distances)

    @property
    def weighted(self) -> bool:
        """Whether examples have weights of their own."""
        return self._state.weights is not None

    @property
    def groups(self) -> Groups:
        """Which examples vote alike: k-means within each class, found when first asked for. Edits keep the groups."""
        return self._state.groups

    @property
    def group_targets(self) -> GroupTargets | None:
        """The mean and the range of the targets in each group, (G, T) each; None if the examples have labels alone.

        Where examples represent others, those are included.
        """
        state = self._all
        if state.targets is None:
            return None
        return state.groups.targets(state.targets.cpu().numpy(), _per_example(state.counted, len(state.labels)))

    @property
    def leaf_factors(self) -> NDArray[np.float64]:
        """(L,): by which the votes of a leaf are multiplied when one of its members casts them for all."""
        division = self._state.divided
        return np.ones(len(self.groups.parents)) if division is None else division.factors

    @property
    def members(self) -> ReferenceSet | None:
        """All examples, where those of this set represent them; None where everybody votes or the others are unknown.

        Edits of this set act on its members: `add`, `remove` and `relabel` take their ids.
        """
        return None if self._state.members is None else of_state(self._state.members)

    @property
    def index(self) -> engine.Index:
        """The engine's layout of this set: immutable, built once, replaced by the next edit."""
        return self._state.index

    @property
    def version(self) -> object:
        """The same object until the next edit, to tell whether what was computed from this set still holds."""
        return self._state

    @property
    def each_once(self) -> ReferenceSet:
        """The same examples with one vote each, so that `nearest` goes by distance alone; built once, as the index."""
        return of_state(self._state.each_once)

    @property
    def directions(self) -> ReferenceSet:
        """The same with embeddings of length 1, h / ‖h‖, and one vote each; built once, replaced by the next edit."""
        return of_state(self._state.directions)

    def snapshot(self) -> ReferenceSet:
        """This set as it is now, unaffected by later edits, for consistent reads. Nothing is copied."""
        return of_state(self._state)

    def condensed(self, leaves: Any = None, factors: Any = None) -> ReferenceSet:
        """A few examples that vote for all: of each leaf the most central member, with the leaf's number of votes.

        leaves: (m,) whole numbers, which examples are to be represented together; each leaf within a class. By default
        those of `groups`. factors: (L,) by which those votes are multiplied.

        >>> refs = ReferenceSet([[0.0], [0.1], [0.2], [5.0]], [0, 0, 0, 1], ids=["ann", "bob", "cat", "eve"])
        >>> few = refs.condensed(leaves=[0, 0, 0, 1])
        >>> few.ids.tolist(), few.weights.tolist()
        (['bob', 'eve'], [3.0, 1.0])
        >>> few.remove(["bob"]); few.ids.tolist(), few.weights.tolist()
        (['ann', 'eve'], [2.0, 1.0])
        """
        state = self._state if self._state.members is None else self._state.members
        if leaves is None:
            return of_state(state.condensed())
        codes = inputs.as_leaves(leaves, state.labels)
        return of_state(state.condensed(codes, inputs.as_factors(factors, int(codes.max()) + 1)))

    def crowd(self) -> ReferenceSet:
        """The same set without a second, narrower kernel for look-alikes; base votes stay."""
        return of_state(replace(self._state, look_alikes=self._state.base_vote, division=self._state.divided))

    def alone(self) -> ReferenceSet:
        """The same voters without the members that they represent."""
        return of_state(replace(self._state, members=None, division=self._state.divided))

    def divided(self, leaves: Any, parents: Any, factors: Any = None) -> ReferenceSet:
        """The same set with these groups: the leaf of each example (m,), and the group of each leaf (L,).

        factors: (L,) by which the votes of a leaf are multiplied when one of its members casts them; by default 1.
        """
        codes = inputs.as_leaves(leaves, self._state.labels)
        above = checks.class_labels(parents, "parents", n=int(codes.max()) + 1)
        labels = self._state.labels.cpu().numpy()
        if len(np.unique(above)) != int(above.max()) + 1 or not inputs.within(labels, above[codes]):
            raise LabelError("parents must number groups from 0 without gaps, each within one class")
        return of_state(replace(self._state, division=Division(codes, above, inputs.as_factors(factors, len(above)))))

    def recoded(self, classes: Any, n_classes: int) -> ReferenceSet:
        """The same votes, counted for fewer classes: those for class k are now for class classes[k], (K,).

        Leaves stay what they are; groups are found again, so that each holds more. Found once, until the next edit.

        >>> refs = ReferenceSet([[0.0], [1.0], [5.0]], [0, 1, 2])
        >>> refs.recoded([0, 0, 1], n_classes=2).labels.tolist()
        [0, 0, 1]
        """
        n_classes = checks.positive_int(n_classes, "n_classes")
        codes = checks.class_labels(classes, "classes", n=self.n_classes, n_classes=n_classes)
        if not (self.class_weights == 1).all():
            raise InputError("classes with weights of their own cannot be counted together; leave out class_weights")
        return of_state(self._state.recoded(codes, n_classes))

    def replaced(
        self,
        *,
        embeddings: Any = None,
        ids: Iterable[Hashable] | None = None,
        class_weights: Any = None,
        look_alikes: tuple[float, float] | None = None,
        labels: Any = None,
        targets: Any = None,
    ) -> ReferenceSet:
        """The same references with other embeddings (m, d), ids, votes, labels or targets; this set stays as it is.

        Targets may be given to a set that had none. With anything but other class weights or look-alikes they no longer
        have `members`; with other labels, `groups` are found anew.
        """
        state = self._state
        changes: dict[str, Any] = {}
        if embeddings is not None:
            changes["embeddings"] = checks.float_tensor(embeddings, "embeddings").detach().to(state.labels.device)
            if len(changes["embeddings"]) != len(state.labels):
                given = len(changes["embeddings"])
                raise ShapeError(f"embeddings must have one row per reference: {len(state.labels)}; got {given}")
        if ids is not None:
            changes |= {"ids": as_ids(ids, len(state.labels)), "next_id": None}
        if class_weights is not None:
            changes["class_weights"] = inputs.as_class_weights(class_weights, state.n_classes)
        if look_alikes is not None:
            changes["look_alikes"] = inputs.as_look_alikes(look_alikes, weighted=state.weights is not None)
        if labels is not None:
            y = checks.class_labels(labels, "labels", n=len(state.labels), n_classes=state.n_classes)
            changes["labels"] = torch.as_tensor(y, device=state.labels.device)
        if targets is not None:
            changes["targets"] = inputs.as_targets(targets, len(state.labels)).to(state.labels.device)
        others = all(given is None for given in (embeddings, ids, labels, targets))
        if others and state.members is not None:
            changes["members"] = replace(state.members, class_weights=changes.get("class_weights", state.class_weights))
        else:
            changes["members"] = None
        changes["division"] = state.divided if embeddings is None else state.division
        if labels is not None:
            changes["division"] = None  # its leaves may now mix classes
        return of_state(replace(state, **changes))

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The blocks of a set that is read from files; none otherwise."""
        return self._state.shards if isinstance(self._state, Divided) else ()

    def in_memory(self) -> ReferenceSet:
        """The same set in memory, if it was in files."""
        if not isinstance(self._state, Divided):
            return self.snapshot()
        whole = self._state.whole
        columns = ("embeddings", "labels", "weights", "sizes", "targets")
        held = {name: getattr(whole, name) for name in columns if getattr(whole, name) is not None}
        copies = {name: value.clone() for name, value in held.items()}
        return of_state(replace(whole, **copies, division=self._state.divided))

    def to(self, device: torch.device | str) -> ReferenceSet:
        """The same set on another device; this one stays where it is."""
        return of_state(self._state.to(device))

    def move(self, device: torch.device | str) -> None:
        """Move this set itself to another device."""
        self._state = self.to(device)._state

    # Queries

    def log_class_weights(self, queries: Any, *, backend: str = "auto") -> Any:
        """log Σ_i I(y_i=k) w(h, h_i): the votes for each class, (n, K) float64; -inf for an empty class.

        The log of each class weight is added, if there are any.
        """
        return _like(queries, self._votes(queries, backend))

    def log_probabilities(self, queries: Any, *, backend: str = "auto") -> Any:
        """log P(y=k given h), (n, K) float64: finite for every class with an example, however far away."""
        return _like(queries, torch.log_softmax(self._votes(queries, backend), dim=1))

    def probabilities(self, queries: Any, *, backend: str = "auto") -> Any:
        """P(y=k given h), (n, K) float64; rows sum to 1."""
        return _like(queries, torch.softmax(self._votes(queries, backend), dim=1))

    def nearest(self, queries: Any, k: int, *, backend: str = "auto") -> Neighbors:
        """The k nearest references of each query, exactly."""
        return self.query(queries, k=k, backend=backend)[1]

    def query(self, queries: Any, *, k: int, backend: str = "auto") -> tuple[Any, Neighbors]:
        """Log class weights and the k nearest references from one pass over the set."""
        state = self._state  # read once: another thread may edit the set meanwhile
        result = state.query(inputs.as_queries(queries, state), checks.positive_int(k, "k"), backend)
        labels, sizes = state.labels[result.rows].cpu().numpy(), state.counted
        log_w = state.log_weights_at(result.squared_distances)
        if state.weights is not None:
            log_w = log_w + state.weights[result.rows].log()
        neighbors = Neighbors(
            state.ids_at(result.rows.cpu().numpy()),
            labels,
            result.squared_distances.cpu().numpy(),
            log_w.cpu().numpy() + state.log_class_factors[labels],
            np.ones(labels.shape) if sizes is None else sizes[result.rows].cpu().numpy(),
        )
        return _like(queries, result.log_class_weights), neighbors

    def log_group_weights(self, queries: Any, *, backend: str = "auto") -> Any:
        """log Σ_{i in g} w(h, h_i): the votes of each group, (n, G) float64, exactly; weights included."""
        state = self._state
        return _like(queries, state.group_sums(inputs.as_queries(queries, state), backend))

    def distribution(self, queries: Any) -> VoteDistribution:
        """What the voters say about a number: the weighted distribution of their targets on each query, exactly.

        It is computed when it is asked for its mean, quantiles and so on, by the votes of this set as it is now.

        >>> refs = ReferenceSet([[0.0], [1.0], [5.0]], [0, 0, 0], targets=[10.0, 20.0, 90.0])
        >>> refs.distribution([[0.5]]).mean.round(6)
        array([[15.]])
        """
        state = self._state
        kind = ShardedDistribution if isinstance(state, Divided) else VoteDistribution
        return kind(state, inputs.as_queries(queries, state), tensors=isinstance(queries, Tensor))

    def log_votes(self, query: Any) -> NDArray[np.float64]:
        """(m,): log w(h, h_i), with its weight but not its class's, of every example on one query (d,)."""
        return self._state.log_votes(query).cpu().numpy()

    def every_vote(self, queries: Any) -> Any:
        """(n, m) float64: the log of every example's vote on each query, its weight and its class's included.

        The matrix is held in memory: ask for few queries at a time.

        >>> ReferenceSet([[0.0], [1.0], [5.0]], [0, 0, 1]).every_vote([[1.0]])
        array([[ -1.,   0., -16.]])
        """
        state = self._state
        return _like(queries, engine.every_vote(state.voters, inputs.as_queries(queries, state)))

    def _votes(self, queries: Any, backend: str) -> Tensor:
        state = self._state
        return state.query(inputs.as_queries(queries, state), 0, backend).log_class_weights

    # Edits: each is exact, gives the same set as rebuilding from the edited data, and happens completely or not at all.
    # Where examples represent others, edits act on all of them: who represents a leaf, and how many, follows.

    def _edit(self, change: Callable[[State], State]) -> None:
        state = self._state
        self._state = change(state) if state.members is None else change(state.members).condensed()

    @property
    def _all(self) -> State:
        return self._state if self._state.members is None else self._state.members

    def add(
        self, embeddings: Any, labels: Any, ids: Iterable[Hashable] | None = None, targets: Any = None
    ) -> list[Any]:
        """Add voters; returns their ids. Without `ids`, they get numbers that were never used before.

        They are stored in the precision of the set. They need targets if those of the set have them.
        """
        state = self._all
        h = checks.float_tensor(embeddings, "embeddings").detach()
        h = checks.float_tensor(h.to(state.embeddings), f"embeddings as {state.embeddings.dtype}")
        if h.shape[1] != state.embeddings.shape[1]:
            raise ShapeError(
                f"embeddings must have {state.embeddings.shape[1]} columns, like those of the set; "
                f"got shape {tuple(h.shape)}"
            )
        y = checks.class_labels(labels, "labels", n=len(h), n_classes=self.n_classes)
        numbers = inputs.as_new_targets(targets, len(h), state)
        next_id = state.next_id
        if ids is not None:
            names = as_ids(ids, len(h))
            whole = [int(i) for i in names if isinstance(i, int | np.integer)]
            next_id = None if next_id is None else max([next_id, *(i + 1 for i in whole)])
        elif next_id is not None:
            names = pd.RangeIndex(next_id, next_id + len(h))
            next_id += len(h)
        else:
            raise IdError("this set was created with ids, so new examples need ids too; got none; give ids=…")
        taken = names[names.isin(state.ids)]
        if len(taken):
            raise IdError(f"ids must be new; taken: {checks.listed(taken)}; remove them first or relabel them")
        self._edit(lambda full: full.added(h, torch.as_tensor(y, device=h.device), names, next_id, numbers))
        return list(names)

    def remove(self, ids: Iterable[Hashable]) -> None:
        """Remove voters. Removing all of them is an error: an empty set cannot vote."""
        places = _positions(self._all, ids)
        if len(places) == len(self._all.labels):
            raise EmptyReferenceError(
                "a reference set needs at least one example; got the ids of all; keep at least one"
            )
        self._edit(lambda full: full.removed(places))

    def relabel(self, ids: Iterable[Hashable], labels: Any = None, *, targets: Any = None) -> None:
        """Change the labels of examples, one per id, or their targets, or both; what is not given stays."""
        places, device = _positions(self._all, ids), self._state.labels.device
        if labels is None and targets is None:
            raise InputError("relabel needs labels or targets, one per id; got neither")
        y = None if labels is None else checks.class_labels(labels, "labels", n=len(places), n_classes=self.n_classes)
        numbers = None if targets is None else inputs.as_new_targets(targets, len(places), self._all)

        def change(full: State) -> State:
            full = full if y is None else full.relabelled(places, torch.as_tensor(y, device=device))
            return full if numbers is None else full.retargeted(places, numbers)

        self._edit(change)

    def positions(self, ids: Iterable[Hashable]) -> NDArray[np.int64]:
        """The positions of examples in the set, by id."""
        return _positions(self._state, ids)


def _positions(state: State, ids: Iterable[Hashable]) -> NDArray[np.int64]:
    names = as_ids(ids, None)
    where = state.ids.get_indexer(names) if len(names) else np.zeros(0)
    unknown = names[where < 0]
    if len(unknown):
        raise IdError(
            f"ids must be in the set; not in it: {checks.listed(unknown)}; "
            f"its ids look like {state.ids[:1].tolist()[0]!r}"
        )
    return np.asarray(where, dtype=np.int64)


def of_state(state: State) -> ReferenceSet:
    """The set with this state."""
    made = object.__new__(ReferenceSet)
    made._state = state
    return made


def _per_example(values: Tensor | None, m: int) -> NDArray[np.float64]:
    """(m,), read-only: change them by edits of the set."""
    array = np.broadcast_to(1.0, m) if values is None else values.cpu().numpy().view()  # ones take no memory
    array.flags.writeable = False
    return array


def _like(queries: Any, answer: Tensor) -> Any:
    """The answer in the caller's type: tensors for tensors, NumPy otherwise."""
    return answer if isinstance(queries, Tensor) else answer.cpu().numpy()
