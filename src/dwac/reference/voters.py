"""Voters: the immutable arrays of a reference set, which an edit replaces all at once, and how they vote."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac import engine
from dwac.engine.backends import sum_by_label
from dwac.engine.choice import answers_alone
from dwac.engine.exact import answer_again, check_queries, smallest
from dwac.engine.stack import MOST_STACKED, Stack, StackResult
from dwac.errors import IdError
from dwac.kernels import Kernel, squared_distances
from dwac.reference.groups import Division, Floats, Groups, Ints, find_groups
from dwac.reference.inputs import LookAlikes, as_ids, as_queries, compact, concatenate

# The fixed number of queries per call of the engine on a GPU. Rounding depends on the shape of a computation, so
# otherwise an answer would depend on the other queries in its batch. Smaller batches are padded. On a CPU, the engine
# itself sees to it.
_TOGETHER = 1024
_CLOSE = 1e-9  # squared distances that differ by less are taken for each other
_FEW = 2**14  # up to this many numbers in the embeddings, votes are computed in float64: it takes hardly longer
MATRIX = 2**17  # differences held at once
COLUMNS = ("embeddings", "labels", "weights", "sizes", "targets")  # of `Voters`: one row for each reference


@dataclass(frozen=True, eq=False)
class Voters:
    """The references of a `ReferenceSet`; immutable: an edit replaces them."""

    embeddings: Tensor
    labels: Tensor
    ids: pd.Index[Any]
    next_id: int | None  # the next free default id; None if the caller chose the ids
    n_classes: int
    kernel: Kernel
    class_weights: tuple[float, ...] | None = None
    weights: Tensor | None = None  # (m,) float64: how many votes each reference has; None for one each
    sizes: Tensor | None = None  # (m,) float64: how many examples each stands for; None for as many as it has votes
    look_alikes: LookAlikes | None = None
    division: Division | None = None
    members: Voters | None = None  # all examples that these references represent
    targets: Tensor | None = None  # (m, T) float64: the numbers that are averaged; None if voters only have labels

    @property
    def weighted(self) -> bool:
        """Whether examples have individual weights."""
        return self.weights is not None

    @cached_property
    def represents(self) -> bool:
        """Whether examples stand for others: their weights are then votes of these."""
        return self.members is not None or (self.counted is not None and bool((self.counted != 1).any()))

    @property
    def n_targets(self) -> int:
        """T, how many numbers each example votes for; 0 if it only has a label."""
        return 0 if self.targets is None else self.targets.shape[1]

    @property
    def leaf_factors(self) -> Floats:
        """(L,): the factor on the votes of each leaf when its representative casts them."""
        return np.ones(len(self.groups.parents)) if self.divided is None else self.divided.factors

    @property
    def blocks(self) -> tuple[Any, ...]:
        """The blocks of voters that are read from files; empty for voters in memory."""
        return ()

    def positions(self, ids: Iterable[Hashable]) -> Ints:
        """The positions of examples in the set, by id."""
        names = as_ids(ids, None)
        where = self.ids.get_indexer(names) if len(names) else np.zeros(0)
        unknown = names[where < 0]
        if len(unknown):
            raise IdError(
                f"ids must be in the set; not in it: {checks.listed(unknown)}; "
                f"its ids look like {self.ids[:1].tolist()[0]!r}"
            )
        return np.asarray(where, dtype=np.int64)

    # Votes

    @cached_property
    def index(self) -> engine.Index:
        """The engine's layout by class."""
        h = self.embeddings.double() if self.are_few else self.embeddings
        lifted = h if self._lift is None else torch.cat([h.to(self._lift.dtype), self._lift[:, None]], dim=1)
        return engine.build_index(lifted, self.labels, self.n_classes, self.kernel)

    @cached_property
    def weighted_references(self) -> engine.WeightedReferences:
        """The votes of single references, with all weights included: for averages of targets."""
        factors: Tensor | None = None
        if self.weights is not None or self.class_weights is not None:
            factors = self.log_factors + torch.as_tensor(self.log_class_factors, device=self.labels.device)[self.labels]
        return engine.WeightedReferences(self.embeddings, self.kernel, factors, self.look_alikes)

    @cached_property
    def ordered(self) -> list[engine.SortedTargets]:
        """For each target, the references sorted by it."""
        assert self.targets is not None
        return [engine.sort_targets(target) for target in self.targets.T]

    @property
    def points(self) -> Any:
        """The embeddings, for one pass over all of them: an object with a shape and `split`."""
        return self.embeddings

    def ids_at(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The ids at positions of any shape, without building an array of all ids."""
        return np.asarray(self.ids.take(rows.ravel()).to_numpy()).reshape(rows.shape)

    @cached_property
    def each_once(self) -> Voters:
        """The same voters with one vote each, so that the nearest comes first."""
        if self.weights is None:
            return self
        return replace(self, weights=None, sizes=None, members=None, division=None)

    @cached_property
    def directions(self) -> Voters:
        """The same voters with embeddings of length 1, and one vote each."""
        return replace(self.each_once, embeddings=unit(self.embeddings), look_alikes=None, members=None, division=None)

    @cached_property
    def groups(self) -> Groups:
        """The groups of the given division, or the default ones."""
        if self.division is None:
            return find_groups(self.embeddings, self.labels, self.counted, self.n_classes)
        return Groups.build(self.points, self.labels, self.counted, self.division.leaves, self.division.parents)

    @property
    def counted(self) -> Tensor | None:
        """(m,): how many examples each stands for; None for one each."""
        return self.weights if self.sizes is None else self.sizes

    @cached_property
    def log_class_factors(self) -> NDArray[np.float64]:
        """(K,): the logs of the class weights."""
        return np.zeros(self.n_classes) if self.class_weights is None else np.log(self.class_weights)

    @cached_property
    def log_factors(self) -> Tensor:
        """(m,) float64: the logs of the weights."""
        return torch.zeros_like(self.labels, dtype=torch.float64) if self.weights is None else self.weights.log()

    @cached_property
    def _lift(self) -> Tensor | None:
        """(m,): an extra coordinate that encodes weights, for the gaussian kernel; None if all weights are equal.

        n exp(-d²) = n_max exp(-(d² + log n_max / n)): a vote of weight n equals that of a reference further away, in a
        direction that no query has. So the engine need not know about weights.
        """
        if self.weights is None or self.kernel.name != "gaussian":
            return None
        exact = (self.log_factors.max() - self.log_factors).sqrt()
        return exact if self.are_few else exact.to(torch.promote_types(self.embeddings.dtype, torch.float32))

    def query(self, h: Tensor, k: int, backend: str) -> engine.QueryResult:
        """Class sums and the k heaviest votes, with weights; a query's answer does not depend on the other queries."""
        alone = h.device.type == "cpu" and backend in ("auto", "torch")  # no query depends on the others
        if alone or (h.requires_grad and torch.is_grad_enabled()):
            result = self._query(h, k, backend)
        else:
            least = 0 if k == 0 and h.is_cuda and self._answers_alone(backend) else _TOGETHER
            parts = [self._query(pad_rows(part, least), k, backend) for part in h.split(_TOGETHER)]
            result = engine.QueryResult(*(torch.cat(column)[: len(h)] for column in zip(*parts, strict=True)))
        if self.class_weights is None:
            return result
        factors = torch.as_tensor(self.log_class_factors, device=h.device)
        return result._replace(log_class_weights=result.log_class_weights + factors)

    def _answers_alone(self, backend: str) -> bool:
        """Whether the engine's votes on a query on a GPU are the same whatever the other queries are."""
        direct = self.weights is not None and self._lift is None
        near = self.narrow is None or self.narrow._answers_alone(backend)
        return near and not direct and answers_alone(self.index, backend)

    @cached_property
    def are_few(self) -> bool:
        """Whether votes are computed in float64."""
        return self.labels.device.type == "cpu" and self.embeddings.numel() <= _FEW

    def _query(self, h: Tensor, k: int, backend: str) -> engine.QueryResult:
        """`query` for one batch, without class weights."""
        result = self._sum_votes(h, k, backend)
        if self.look_alikes is None:
            return result
        near = self.base_votes
        if self.narrow is not None:
            near = self.narrow._query(self.look_alikes.factor * h, 0, backend).log_class_weights
        return result._replace(log_class_weights=self.add_votes(result.log_class_weights, near))

    @property
    def base_vote(self) -> LookAlikes | None:
        """The second kernel if it is a base vote."""
        return self.look_alikes if self.look_alikes is not None and self.look_alikes.factor == 0 else None

    @cached_property
    def narrow(self) -> Voters | None:
        """The same references as the second kernel sees them, without class weights; None for a base vote."""
        if self.look_alikes is None or self.look_alikes.factor == 0:
            return None
        embeddings = self.look_alikes.factor * self.embeddings
        return replace(self, embeddings=embeddings, look_alikes=None, class_weights=None, members=None)

    def add_votes(self, wide: Tensor, narrow: Tensor) -> Tensor:
        """log (wide + weight · narrow), from logs."""
        assert self.look_alikes is not None
        narrow = narrow + math.log(self.look_alikes.weight)
        # Not torch.logaddexp: its last digit depends on the position in memory, and so on the other queries.
        gap = (wide - narrow).abs().nan_to_num(nan=0.0, posinf=math.inf)  # NaN: neither has a vote
        return torch.maximum(wide, narrow) + torch.log1p(torch.exp(-gap))

    def log_weights_at(self, squared: Tensor) -> Tensor:
        """log w at squared distances, for a reference of weight 1."""
        wide = self.kernel.log_weights(squared)
        if self.look_alikes is None:
            return wide
        return self.add_votes(wide, self.kernel.log_weights(self.look_alikes.factor**2 * squared))

    def group_sums(self, h: Tensor, backend: str) -> Tensor:
        """Log-weights of the groups, (n, G)."""
        sums = self._by_group.query(h, 0, backend).log_class_weights
        return sums + torch.as_tensor(self.log_class_factors[self.groups.labels], device=h.device)

    @cached_property
    def _by_group(self) -> Voters:
        """The same voters with their groups as classes."""
        labels, n_groups = torch.as_tensor(self.groups.of, device=self.labels.device), len(self.groups)
        bare: dict[str, Any] = {"class_weights": None, "division": None, "members": None, "targets": None}
        return replace(self, labels=labels, n_classes=n_groups, **bare)

    def _sum_votes(self, h: Tensor, k: int, backend: str) -> engine.QueryResult:
        if self.weights is not None and self._lift is None:
            return self._direct(h, k)
        above = self.lifted(h)
        recorded = h.requires_grad and torch.is_grad_enabled()
        if backend == "auto" and self.stack is not None and not recorded and len(h):
            result = self._query_stack(above, k)
        else:
            result = engine.query(self.index, above, k=k, backend=backend)
        if self._lift is None:
            return result
        squared = (result.squared_distances - self._lift[result.rows].double().square()).clamp_min_(0)
        return engine.QueryResult(result.log_class_weights + self.log_factors.max(), result.rows, squared)

    def lifted(self, h: Tensor) -> Tensor:
        """Queries h (n, d) as the index takes them: with a coordinate for weights, if there are any."""
        return h if self._lift is None else torch.cat([h, torch.zeros_like(h[..., :1])], dim=-1)

    @cached_property
    def stack(self) -> Stack | None:
        """The faster way for few voters on a CPU; None if there are too many, or they are in files."""
        return stack_of([self])

    def _query_stack(self, h: Tensor, k: int) -> engine.QueryResult:
        assert self.stack is not None
        check_queries(self.index.embeddings, h, k)
        stacked = self.stack.query(h[None], k)
        result = engine.QueryResult(*(field[:, 0] for field in stacked[:3]))
        if stacked.unsure.any():
            answer_again(result, self.index, h, stacked.unsure[:, 0])
        return result

    def nearest(self, h: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Rows and squared distances (n, k) of the k nearest, whatever their weights; ties in any order."""
        once = self.each_once
        if once.stack is None or len(h) == 0:
            return once.query(h, k, "auto")[1:]
        check_queries(self.embeddings, h, k)
        result = once.stack.query(h[None], k, votes=False)
        return result.rows[:, 0], nearest_of(result, [once], h[None])[:, 0]

    @cached_property
    def base_votes(self) -> Tensor:
        """(K,) float64: the log of all votes for each class at distance 0, without look-alikes."""
        return torch.bincount(self.labels, self.weights, minlength=self.n_classes).double().log()

    def _direct(self, h: Tensor, k: int) -> engine.QueryResult:
        """Class sums and the k heaviest votes, by differences in float64, without look-alikes."""
        check_queries(self.embeddings, h, k)
        answers, ref_h, most = [], self.embeddings.double(), self.base_votes
        for part in h.double().split(max(1, MATRIX // len(ref_h))):
            squared = torch.cdist(part, ref_h, compute_mode="donot_use_mm_for_euclid_dist").square()
            log_w = self.kernel.log_weights(squared) + self.log_factors
            sums = torch.minimum(sum_by_label(log_w, self.labels, self.n_classes), most)
            with torch.no_grad():
                rows = smallest(-log_w, k)
                answers.append((sums, rows, (part[:, None] - ref_h[rows]).square().sum(dim=2)))
        return engine.QueryResult(*(torch.cat(column) for column in zip(*answers, strict=True)))

    @torch.no_grad()
    def log_votes(self, h: Tensor) -> Tensor:
        """(m,) float64: log w(h, h_i) of every reference, its log weight included, for one query (d,)."""
        point = h.double()
        squared = torch.cat([(part.double() - point).square().sum(dim=1) for part in self.embeddings.split(65_536)])
        return self.log_weights_at(squared) + self.log_factors

    def every_vote(self, queries: Any) -> Any:
        """(n, m) float64: the log of every example's vote on each query, its own and its class's weight included.

        The matrix is held in memory: pass few queries at a time.

        >>> from dwac import ReferenceSet
        >>> ReferenceSet([[0.0], [1.0], [5.0]], [0, 0, 1]).voters.every_vote([[1.0]])
        array([[ -1.,   0., -16.]])
        """
        votes = engine.every_vote(self.weighted_references, as_queries(queries, self.embeddings))
        return votes if isinstance(queries, Tensor) else votes.cpu().numpy()

    # Other voters

    def to(self, device: torch.device | str) -> Voters:
        """The same voters on a device."""
        members = None if self.members is None else self.members.to(device)
        return replace(self, **self.columns(lambda rows: rows.to(device)), division=self.divided, members=members)

    def columns(self, change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """Every tensor with a row for each reference, changed; by name, None where there is none."""
        present = {name: getattr(self, name) for name in COLUMNS}
        return {name: None if column is None else change(column) for name, column in present.items()}

    @property
    def divided(self) -> Division | None:
        """The division, if it is known already."""
        groups: Groups | None = self.__dict__.get("groups")
        if groups is None or self.division is not None:
            return self.division
        return Division(groups.leaves, groups.parents, np.ones(len(groups.parents)))

    def condensed(self, leaves: Ints | None = None, factors: Floats | None = None) -> Voters:
        """The most central member of each leaf, with the votes of all its members; by default, the present leaves.

        leaves: (m,), the leaf of each reference, without gaps. factors: (L,), factors on those votes.
        """
        full = self
        if leaves is not None:
            groups = Groups.build(self.points, self.labels, self.counted, leaves)
            factors = np.ones(len(groups.parents)) if factors is None else factors
            full = replace(self, division=Division(groups.leaves, groups.parents, factors))
            full.__dict__["groups"] = groups
        groups, division = full.groups, full.divided
        assert division is not None
        rows = torch.as_tensor(groups.leaf_representatives, device=self.labels.device)
        columns = self.columns(lambda column: column[rows])  # a representative's own embedding, label and targets
        votes = None if self.weights is None else self.weights.cpu().numpy()
        columns["weights"] = torch.as_tensor(np.bincount(groups.leaves, votes) * division.factors, device=rows.device)
        columns["sizes"] = torch.as_tensor(groups.leaf_sizes, device=rows.device)
        return replace(
            full,
            **columns,
            ids=_ids_in(self.ids, groups.leaf_representatives),
            next_id=None,
            look_alikes=self.base_vote,  # few representatives are near enough to look alike
            division=Division(np.arange(len(rows)), groups.parents, division.factors),
            members=full,
        )

    def recoded(self, codes: Ints, n_classes: int) -> Voters:
        """The same voters with class codes[k] in place of class k, and the same leaves; groups are found by Ward."""
        known = self._recoded.get((codes.tobytes(), n_classes))
        return known or self._recoded.setdefault((codes.tobytes(), n_classes), self._in_classes(codes, n_classes))

    @cached_property
    def _recoded(self) -> dict[tuple[bytes, int], Voters]:
        return {}

    def _in_classes(self, codes: Ints, n_classes: int) -> Voters:
        labels = torch.as_tensor(codes, device=self.labels.device)[self.labels]
        members = None if self.members is None else self.members.recoded(codes, n_classes)
        # A representative is in the group of the examples that it represents.
        parents = None if members is None else members.groups.parents
        groups = Groups.build(self.points, labels, self.counted, self.groups.leaves, parents)
        division = Division(groups.leaves, groups.parents, self.leaf_factors)
        voters = replace(
            self, labels=labels, n_classes=n_classes, class_weights=None, division=division, members=members
        )
        voters.__dict__["groups"] = groups
        return voters

    # Edits

    def added(
        self, h: Tensor, labels: Tensor, ids: pd.Index[Any], next_id: int | None, targets: Tensor | None = None
    ) -> Voters:
        """Voters plus references of weight 1; each joins the leaf of its class whose representative is nearest."""
        one = torch.ones_like(labels, dtype=torch.float64)
        return replace(
            self,
            embeddings=torch.cat([self.embeddings, h]),
            labels=torch.cat([self.labels, labels]),
            ids=concatenate(self.ids, ids),
            next_id=next_id,
            weights=None if self.weights is None else torch.cat([self.weights, one]),
            sizes=None if self.sizes is None else torch.cat([self.sizes, one]),
            division=self._join_leaves(h, labels, np.arange(len(self.labels), len(self.labels) + len(h))),
            targets=None if self.targets is None or targets is None else torch.cat([self.targets, targets]),
        )

    def removed(self, places: Ints) -> Voters:
        """Voters without the references at these positions."""
        keep = np.ones(len(self.labels), dtype=bool)
        keep[places] = False
        mask, division = torch.as_tensor(keep, device=self.labels.device), self.divided
        division = None if division is None else division._replace(leaves=division.leaves[keep]).without_gaps()
        return replace(self, **self.columns(lambda rows: rows[mask]), ids=_ids_in(self.ids, keep), division=division)

    def relabelled(self, places: Ints, labels: Tensor) -> Voters:
        """Voters with other labels at these positions; those whose label changes join a leaf of their new class."""
        other = (labels != self.labels[torch.as_tensor(places, device=self.labels.device)]).cpu().numpy()
        places, labels = places[other], labels[torch.as_tensor(other, device=labels.device)]
        where = torch.as_tensor(places, device=self.labels.device)
        changed = self.labels.clone()
        changed[where] = labels
        return replace(self, labels=changed, division=self._join_leaves(self.embeddings[where], labels, places))

    def retargeted(self, places: Ints, targets: Tensor) -> Voters:
        """Voters with other targets (n, T) at these positions; labels and groups stay."""
        assert self.targets is not None
        changed = self.targets.clone()
        changed[torch.as_tensor(places, device=changed.device)] = targets
        return replace(self, targets=changed, division=self.divided)

    def reweighed(self, places: Ints, factors: Tensor) -> Voters:
        """Voters with factors (n,) on the votes of the references at these positions; their sizes stay."""
        one = torch.ones_like(self.labels, dtype=torch.float64)
        weights = one.clone() if self.weights is None else self.weights.clone()
        weights[torch.as_tensor(places, device=weights.device)] *= factors
        sizes = one if self.counted is None else self.counted
        return replace(self, weights=weights, sizes=sizes, division=self.divided)

    def _join_leaves(self, h: Tensor, labels: Tensor, places: Ints) -> Division | None:
        """The division after references (n, d) join at these positions; None if there is none yet."""
        division = self.divided
        if division is None:
            return None
        groups = self.groups
        missing = max(0, places.max(initial=-1) + 1 - len(division.leaves))
        leaves, parents, factors = np.append(division.leaves, np.zeros(missing, dtype=np.int64)), *division[1:]
        y = labels.cpu().numpy()
        for label in np.unique(y):
            rows, own = np.flatnonzero(y == label), np.flatnonzero(groups.leaf_labels == label)
            if len(own) == 0:  # the first of their class: a new leaf and group
                leaves[places[rows]] = len(parents)
                parents, factors = np.append(parents, parents.max() + 1), np.append(factors, 1.0)
                continue
            centres = self.embeddings[torch.as_tensor(groups.leaf_representatives[own], device=h.device)]
            new = h[torch.as_tensor(rows, device=h.device)]
            nearest = squared_distances(new.double(), centres.double()).argmin(dim=1).cpu().numpy()
            leaves[places[rows]] = own[nearest]
        return Division(leaves, parents, factors).without_gaps()


def stack_of(sets: Sequence[Voters]) -> Stack | None:
    """The layout of small sets for one pass; None for large ones, and for voters in files."""
    few = sum(len(voters.labels) for voters in sets) <= MOST_STACKED
    if not few or any(voters.blocks for voters in sets):
        return None
    return Stack.of([voters.index for voters in sets])


def nearest_of(result: StackResult, sets: Sequence[Voters], queries: Tensor) -> Tensor:
    """(n, F, k): the squared distances of a stack's result; computed again where rounding may have hidden a neighbour.

    Equal distances hide no neighbour here, unlike where the neighbours themselves are wanted. Replaces rows, too.
    """
    squared, unsure = result.squared_distances, result.unsure[..., 1] & (result.rounding > _CLOSE)
    if unsure.any():
        for place, (voters, rows) in enumerate(zip(sets, unsure.unbind(1), strict=True)):
            _, result.rows[rows, place], squared[rows, place] = voters.query(
                queries[place][rows], squared.shape[2], "auto"
            )
    return squared


def unit(h: Tensor) -> Tensor:
    """h / ‖h‖, (n, d), however large or small; 0 stays 0."""
    h = h.to(torch.promote_types(h.dtype, torch.float32))
    largest = h.abs().amax(dim=1, keepdim=True)
    scaled = h / torch.where(largest > 0, largest, 1)
    return torch.nn.functional.normalize(scaled, dim=1)


def pad_rows(rows: Tensor, size: int) -> Tensor:
    """Rows padded to at least `size` by repeating the last one."""
    missing = size - len(rows)
    return rows if missing <= 0 or len(rows) == 0 else torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])])


def _ids_in(ids: pd.Index[Any], rows: NDArray[Any]) -> pd.Index[Any]:
    return ids[rows] if ids.dtype == "int64" else compact(list(ids[rows]))
