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
from dwac.errors import EmptyReferenceError, IdError, InputError, LabelError, ShapeError
from dwac.kernels import get_kernel
from dwac.reference import inputs
from dwac.reference.distribution import VoteDistribution
from dwac.reference.groups import Division, Groups
from dwac.reference.inputs import as_ids
from dwac.reference.voters import Voters


class Neighbors(NamedTuple):
    """The k nearest references of each of n queries, nearest first; every field is (n, k).

    `log_weights` is log w(h, h_i) ≤ 0, plus the logs of the reference's and its class's weight if there are any. If
    references have weights, the heaviest votes come first. Ties are in the order of the set.

    >>> near = ReferenceSet([[0.0], [1.0], [5.0]], [0, 0, 1], ids=["ann", "bob", "eve"]).nearest([[0.75]], k=2)
    >>> near.ids.tolist(), near.squared_distances
    ([['bob', 'ann']], array([[0.0625, 0.5625]]))
    """

    ids: NDArray[Any]
    labels: NDArray[np.int64]
    squared_distances: NDArray[np.float64]
    log_weights: NDArray[np.float64]
    sizes: NDArray[np.float64]  # how many examples each stands for


class ReferenceSet:
    """m embeddings (m, d), their labels 0 … n_classes-1 and their ids: the voters on every query.

    Tensor queries give tensors; arrays and lists give NumPy arrays. Answers are exact: they agree with a float64 sum
    over all references to about 1e-5 (1e-4 in the worst case), wherever the data lies. They do not depend on the other
    queries in the same call, unless gradients are recorded.

    Args:
        embeddings: (m, d) numbers. float64 stays float64; half precision is computed in float32.
        labels: (m,) whole numbers.
        ids: m unique hashable names of the examples; by default 0 … m-1.
        n_classes: by default the largest label + 1.
        kernel: "gaussian" (the paper's), "laplace" or "inverse_quadratic".
        class_weights: (K,) positive factors on the votes for each class; by default 1.
        weights: (m,) positive factors on the vote of each example; by default 1.
        sizes: (m,) how many examples each stands for; by default as many as it has votes.
        look_alikes: (factor, weight) of a second kernel: w = k(d) + weight · k(factor · d). With a factor above 1, very
            near voters count more; with 0, every voter has a base vote at any distance. By default none.
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
        function = get_kernel(kernel)
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
        factors = inputs.as_class_weights(class_weights, n_classes)
        votes, stands_for = (
            None if values is None else torch.tensor(inputs.as_weights(values, len(h), name), device=h.device)
            for values, name in ((weights, "weights"), (sizes, "sizes"))
        )
        represents = votes is not None and (stands_for is None or bool((stands_for != 1).any()))
        near = inputs.as_look_alikes(look_alikes, represents=represents)
        numbers = None if targets is None else inputs.as_targets(targets, len(h)).to(h.device)
        self._voters = Voters(
            h.clone(), labels, names, next_id, n_classes, function, factors, votes, stands_for, near, targets=numbers
        )

    # Contents

    def __len__(self) -> int:
        """The number of references m."""
        return len(self._voters.labels)

    def __repr__(self) -> str:
        """Its size, in words."""
        voters = self._voters
        m, d = voters.embeddings.shape
        for_all = f" for {voters.counted.sum():,.6g}" if voters.counted is not None else ""
        numbers = "" if voters.n_targets == 0 else f"{voters.n_targets} target{'s' * (voters.n_targets > 1)}, "
        return (
            f"ReferenceSet({m:,} examples{for_all}, {d} dimensions, {voters.n_classes} classes, {numbers}"
            f"kernel={voters.kernel.name!r})"
        )

    def __copy__(self) -> ReferenceSet:
        """This set as it is now, unaffected by later edits, for consistent reads. The numbers are not copied."""
        return set_of(self._voters)

    @property
    def voters(self) -> Voters:
        """All arrays of the set, immutable: the same object until an edit replaces it."""
        return self._voters

    @property
    def embeddings(self) -> Tensor:
        """(m, d), read-only: change the set with `add` and `remove`."""
        return self._voters.embeddings

    @property
    def labels(self) -> Tensor:
        """(m,) int64, read-only: change them with `relabel`."""
        return self._voters.labels

    @property
    def targets(self) -> Tensor | None:
        """(m, T) float64, read-only: the numbers examples vote for; None if they only have labels."""
        return self._voters.targets

    @property
    def ids(self) -> NDArray[Any]:
        """(m,): the name of each example, in order."""
        names = self._voters.ids.to_numpy().view()
        names.flags.writeable = False  # pandas 2 returns the array its index uses for lookups
        return names

    @property
    def n_classes(self) -> int:
        """K, fixed when the set is created."""
        return self._voters.n_classes

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return self._voters.kernel.name

    @property
    def class_weights(self) -> NDArray[np.float64]:
        """(K,): the factor on the votes for each class."""
        return np.asarray(self._voters.class_weights or np.ones(self.n_classes))

    @property
    def weights(self) -> NDArray[np.float64]:
        """(m,): how many votes each example has."""
        return _per_example(self._voters.weights, len(self))

    @property
    def sizes(self) -> NDArray[np.float64]:
        """(m,): how many examples each stands for."""
        return _per_example(self._voters.counted, len(self))

    @property
    def groups(self) -> Groups:
        """Groups of examples that vote alike: k-means within each class, computed on first use. Edits keep them."""
        return self._voters.groups

    @property
    def members(self) -> ReferenceSet | None:
        """All examples that this set represents; None if every example votes or the others are unknown.

        Edits of this set act on its members: `add`, `remove` and `relabel` take their ids.
        """
        return None if self._voters.members is None else set_of(self._voters.members)

    def condensed(self, leaves: Any = None, factors: Any = None) -> ReferenceSet:
        """A few examples that vote for all: the most central member of each leaf, with the leaf's number of votes.

        leaves: (m,) whole numbers: the leaf of each example, each within a class. By default those of `groups`.
        factors: (L,) factors on the votes of each leaf.

        >>> refs = ReferenceSet([[0.0], [0.1], [0.2], [5.0]], [0, 0, 0, 1], ids=["ann", "bob", "cat", "eve"])
        >>> few = refs.condensed(leaves=[0, 0, 0, 1])
        >>> few.ids.tolist(), few.weights.tolist()
        (['bob', 'eve'], [3.0, 1.0])
        >>> few.remove(["bob"]); few.ids.tolist(), few.weights.tolist()
        (['ann', 'eve'], [2.0, 1.0])
        """
        voters = self._voters if self._voters.members is None else self._voters.members
        if leaves is None:
            return set_of(voters.condensed())
        codes = inputs.as_leaves(leaves, voters.labels)
        return set_of(voters.condensed(codes, inputs.as_factors(factors, int(codes.max()) + 1)))

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
        """A copy with other embeddings (m, d), ids, votes, labels or targets; this set does not change.

        Targets may be given to a set that had none. Unless only class weights or look-alikes change, the copy has no
        `members`; if labels change, its `groups` are recomputed.
        """
        voters = self._voters
        changes: dict[str, Any] = {}
        if embeddings is not None:
            h = checks.float_tensor(embeddings, "embeddings").detach().to(voters.labels.device)
            if len(h) != len(voters.labels):
                raise ShapeError(f"embeddings must have one row per reference: {len(voters.labels)}; got {len(h)}")
            changes["embeddings"] = h
        if ids is not None:
            changes |= {"ids": as_ids(ids, len(voters.labels)), "next_id": None}
        if class_weights is not None:
            changes["class_weights"] = inputs.as_class_weights(class_weights, voters.n_classes)
        if look_alikes is not None:
            changes["look_alikes"] = inputs.as_look_alikes(look_alikes, represents=voters.represents)
        if labels is not None:
            y = checks.class_labels(labels, "labels", n=len(voters.labels), n_classes=voters.n_classes)
            changes["labels"] = torch.as_tensor(y, device=voters.labels.device)
        if targets is not None:
            changes["targets"] = inputs.as_targets(targets, len(voters.labels)).to(voters.labels.device)
        changes["members"] = None
        if voters.members is not None and all(value is None for value in (embeddings, ids, labels, targets)):
            factors = changes.get("class_weights", voters.class_weights)
            changes["members"] = replace(voters.members, class_weights=factors)
        changes["division"] = voters.divided if embeddings is None else voters.division
        if labels is not None:
            changes["division"] = None  # its leaves may now mix classes
        return set_of(replace(voters, **changes))

    def to(self, device: torch.device | str) -> ReferenceSet:
        """The same set on another device; this one stays where it is."""
        return set_of(self._voters.to(device))

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
        voters = self._voters  # read once: another thread may edit the set meanwhile
        result = voters.query(inputs.as_queries(queries, voters.embeddings), checks.positive_int(k, "k"), backend)
        labels, sizes = voters.labels[result.rows].cpu().numpy(), voters.counted
        log_w = voters.log_weights_at(result.squared_distances)
        if voters.weights is not None:
            log_w = log_w + voters.weights[result.rows].log()
        neighbors = Neighbors(
            voters.ids_at(result.rows.cpu().numpy()),
            labels,
            result.squared_distances.cpu().numpy(),
            log_w.cpu().numpy() + voters.log_class_factors[labels],
            np.ones(labels.shape) if sizes is None else sizes[result.rows].cpu().numpy(),
        )
        return _like(queries, result.log_class_weights), neighbors

    def log_group_weights(self, queries: Any, *, backend: str = "auto") -> Any:
        """log Σ_{i in g} w(h, h_i): the votes of each group, (n, G) float64, exactly; weights included."""
        voters = self._voters
        return _like(queries, voters.group_sums(inputs.as_queries(queries, voters.embeddings), backend))

    def distribution(self, queries: Any) -> VoteDistribution:
        """The weighted distribution of the voters' targets for each query, exactly, for regression.

        Its mean, quantiles and so on are computed on first use, from the votes of this set as it is now.

        >>> refs = ReferenceSet([[0.0], [1.0], [5.0]], [0, 0, 0], targets=[10.0, 20.0, 90.0])
        >>> refs.distribution([[0.5]]).mean.round(6)
        array([[15.]])
        """
        voters = self._voters
        h = inputs.as_queries(queries, voters.embeddings)
        return VoteDistribution(voters, h, tensors=isinstance(queries, Tensor))

    def _votes(self, queries: Any, backend: str) -> Tensor:
        voters = self._voters
        return voters.query(inputs.as_queries(queries, voters.embeddings), 0, backend).log_class_weights

    # Edits: each is exact, gives the same set as rebuilding from the edited data, and happens completely or not at all.
    # If examples represent others, edits act on all of them, and the representatives are updated.

    def _edit(self, change: Callable[[Voters], Voters]) -> None:
        voters = self._voters
        self._voters = change(voters) if voters.members is None else change(voters.members).condensed()

    @property
    def _all(self) -> Voters:
        return self._voters if self._voters.members is None else self._voters.members

    def add(
        self, embeddings: Any, labels: Any, ids: Iterable[Hashable] | None = None, targets: Any = None
    ) -> list[Any]:
        """Add voters; returns their ids. Without `ids`, they get numbers that were never used before.

        They are stored in the precision of the set. They need targets if the set has targets.
        """
        voters = self._all
        h = checks.float_tensor(embeddings, "embeddings").detach()
        h = checks.float_tensor(h.to(voters.embeddings), f"embeddings as {voters.embeddings.dtype}")
        if h.shape[1] != voters.embeddings.shape[1]:
            raise ShapeError(
                f"embeddings must have {voters.embeddings.shape[1]} columns, like those of the set; "
                f"got shape {tuple(h.shape)}"
            )
        y = checks.class_labels(labels, "labels", n=len(h), n_classes=self.n_classes)
        numbers = inputs.as_new_targets(targets, len(h), voters.targets)
        next_id = voters.next_id
        if ids is not None:
            names = as_ids(ids, len(h))
            whole = [int(i) for i in names if isinstance(i, int | np.integer)]
            next_id = None if next_id is None else max([next_id, *(i + 1 for i in whole)])
        elif next_id is not None:
            names = pd.RangeIndex(next_id, next_id + len(h))
            next_id += len(h)
        else:
            raise IdError("this set was created with ids, so new examples need ids too; got none; give ids=…")
        taken = names[names.isin(voters.ids)]
        if len(taken):
            raise IdError(f"ids must be new; taken: {checks.listed(taken)}; remove them first or relabel them")
        self._edit(lambda full: full.added(h, torch.as_tensor(y, device=h.device), names, next_id, numbers))
        return list(names)

    def remove(self, ids: Iterable[Hashable]) -> None:
        """Remove voters. Removing all of them is an error: an empty set cannot vote."""
        places = self._all.positions(ids)
        if len(places) == len(self._all.labels):
            raise EmptyReferenceError(
                "a reference set needs at least one example; got the ids of all; keep at least one"
            )
        self._edit(lambda full: full.removed(places))

    def relabel(self, ids: Iterable[Hashable], labels: Any = None, *, targets: Any = None) -> None:
        """Change the labels of examples, one per id, or their targets, or both; None changes nothing."""
        places, device = self._all.positions(ids), self._voters.labels.device
        if labels is None and targets is None:
            raise InputError("relabel needs labels or targets, one per id; got neither")
        y = None if labels is None else checks.class_labels(labels, "labels", n=len(places), n_classes=self.n_classes)
        numbers = None if targets is None else inputs.as_new_targets(targets, len(places), self._all.targets)

        def change(full: Voters) -> Voters:
            full = full if y is None else full.relabelled(places, torch.as_tensor(y, device=device))
            return full if numbers is None else full.retargeted(places, numbers)

        self._edit(change)

    def reweigh(self, ids: Iterable[Hashable], factors: Any) -> None:
        """Multiply the votes of examples by positive factors, one per id.

        >>> refs = ReferenceSet([[0.0], [0.0]], [0, 1])
        >>> refs.reweigh([1], [3.0]); refs.probabilities([[0.0]])
        array([[0.25, 0.75]])
        """
        places = self._all.positions(ids)
        values = torch.as_tensor(inputs.as_weights(factors, len(places), "factors"), device=self._voters.labels.device)
        self._edit(lambda full: full.reweighed(places, values))


# Variants of a set.


def without_members(references: ReferenceSet) -> ReferenceSet:
    """The same voters without the members that they represent."""
    voters = references.voters
    return set_of(replace(voters, members=None, division=voters.divided))


def without_look_alikes(references: ReferenceSet) -> ReferenceSet:
    """The same set without a second, narrower kernel for look-alikes; base votes stay."""
    voters = references.voters
    return set_of(replace(voters, look_alikes=voters.base_vote, division=voters.divided))


def with_groups(references: ReferenceSet, leaves: Any, parents: Any, factors: Any = None) -> ReferenceSet:
    """The same set with these groups: the leaf of each example (m,), and the group of each leaf (L,).

    factors: (L,) factors on the votes of each leaf when its representative casts them; by default 1.
    """
    voters = references.voters
    codes = inputs.as_leaves(leaves, voters.labels)
    above = checks.class_labels(parents, "parents", n=int(codes.max()) + 1)
    if len(np.unique(above)) != int(above.max()) + 1 or not inputs.within(voters.labels.cpu().numpy(), above[codes]):
        raise LabelError("parents must number groups from 0 without gaps, each within one class")
    return set_of(replace(voters, division=Division(codes, above, inputs.as_factors(factors, len(above)))))


def with_classes(references: ReferenceSet, classes: Any, n_classes: int) -> ReferenceSet:
    """The same voters with other classes: votes for class k become votes for class classes[k], (K,).

    Leaves stay the same; groups are recomputed, so that each holds more. The result is cached until the next edit.

    >>> refs = ReferenceSet([[0.0], [1.0], [5.0]], [0, 1, 2])
    >>> with_classes(refs, [0, 0, 1], n_classes=2).labels.tolist()
    [0, 0, 1]
    """
    n_classes = checks.positive_int(n_classes, "n_classes")
    codes = checks.class_labels(classes, "classes", n=references.n_classes, n_classes=n_classes)
    if not (references.class_weights == 1).all():
        raise InputError("classes that have weights cannot be merged into others; leave out class_weights")
    return set_of(references.voters.recoded(codes, n_classes))


def put_voters(references: ReferenceSet, voters: Voters) -> None:
    """Replace the voters of a set in place."""
    references._voters = voters


def set_of(voters: Voters) -> ReferenceSet:
    """A set with these voters."""
    references = object.__new__(ReferenceSet)
    references._voters = voters
    return references


def _per_example(values: Tensor | None, m: int) -> NDArray[np.float64]:
    """(m,), read-only: values change through edits of the set."""
    array = np.broadcast_to(1.0, m) if values is None else values.cpu().numpy().view()  # ones take no memory
    array.flags.writeable = False
    return array


def _like(queries: Any, answer: Tensor) -> Any:
    """The answer in the caller's type: tensors for tensors, NumPy otherwise."""
    return answer if isinstance(queries, Tensor) else answer.cpu().numpy()
