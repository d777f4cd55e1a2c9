"""ReferenceSet: the training examples that vote, with their labels and ids, editable without retraining."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac import engine
from dwac.errors import EmptyReferenceError, IdError, ShapeError
from dwac.kernels import Kernel, get_kernel


class Neighbors(NamedTuple):
    """The k nearest references of each of n queries, nearest first; every field is (n, k).

    `log_weights` is log w(h, h_i) ≤ 0, plus the log of the class weight if there is one. Equal distances are
    in the order of the reference set.
    """

    ids: NDArray[Any]
    labels: NDArray[np.int64]
    squared_distances: NDArray[np.float64]
    log_weights: NDArray[np.float64]


@dataclass(frozen=True)
class _State:
    """Everything an edit replaces at once, so that a failed edit changes nothing."""

    embeddings: Tensor
    labels: Tensor
    ids: pd.Index[Any]
    next_id: int | None  # the next free default id; None if the caller chose the ids
    n_classes: int
    kernel: Kernel
    class_weights: tuple[float, ...] | None = None

    @cached_property
    def index(self) -> engine.Index:
        return engine.build_index(self.embeddings, self.labels, self.n_classes, self.kernel)

    @cached_property
    def cells(self) -> engine.Cells:
        return engine.build_cells(self.index)

    @cached_property
    def log_class_factors(self) -> NDArray[np.float64]:
        """(K,): the logs of the class weights."""
        return np.zeros(self.n_classes) if self.class_weights is None else np.log(self.class_weights)

    def query(self, h: Tensor, k: int, backend: str) -> engine.QueryResult:
        """The engine's answer with class weights applied; a query's answer does not depend on the other queries."""
        if h.requires_grad and torch.is_grad_enabled():
            result = engine.query(self.index, h, k=k, backend=backend)
            return result._replace(log_class_weights=self._weighted(result.log_class_weights))
        size = _TOGETHER.get(h.device.type, 64)
        parts = [engine.query(self.index, filled(part, size), k=k, backend=backend) for part in h.split(size)]
        votes, rows, squared = (torch.cat(column)[: len(h)] for column in zip(*parts, strict=True))
        return engine.QueryResult(self._weighted(votes), rows, squared)

    def within(self, h: Tensor, tolerance: float) -> engine.BoundedResult:
        """The same within a tolerance, with bounds on the errors."""
        result = engine.query_within(self.cells, h, tolerance)
        return result._replace(log_class_weights=self._weighted(result.log_class_weights))

    def _weighted(self, log_class_weights: Tensor) -> Tensor:
        if self.class_weights is None:
            return log_class_weights
        return log_class_weights + torch.as_tensor(self.log_class_factors, device=log_class_weights.device)


# The fixed number of queries per call of the engine. Rounding depends on the shape of a computation, so otherwise an
# answer would depend on the other queries in its batch. Smaller batches are padded.
_TOGETHER = {"cpu": 64, "cuda": 1024}


class Bounded(NamedTuple):
    """Log class weights (n, K) of n queries, and for each query a bound on the errors of its K, (n,)."""

    log_class_weights: Any
    bounds: Any


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
        names = pd.RangeIndex(len(h)) if ids is None else _as_ids(ids, len(h))
        next_id = len(h) if ids is None else None
        # A copy: later edits of the caller's array must not change the votes.
        labels = torch.as_tensor(y, device=h.device)
        factors = None if class_weights is None else _as_class_weights(class_weights, n_classes)
        self._state = _State(h.clone(), labels, names, next_id, n_classes, chosen, factors)

    # Contents

    def __len__(self) -> int:
        """The number of references m."""
        return len(self._state.labels)

    def __repr__(self) -> str:
        """Its size, in words."""
        state = self._state
        m, d = state.embeddings.shape
        return f"ReferenceSet({m:,} examples, {d} dimensions, {state.n_classes} classes, kernel={state.kernel.name!r})"

    @property
    def embeddings(self) -> Tensor:
        """(m, d), read-only: change the set with `add` and `remove`."""
        return self._state.embeddings

    @property
    def labels(self) -> Tensor:
        """(m,) int64, read-only: change them with `relabel`."""
        return self._state.labels

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
    def index(self) -> engine.Index:
        """The engine's layout of this set: immutable, built once, replaced by the next edit."""
        return self._state.index

    def snapshot(self) -> ReferenceSet:
        """This set as it is now, unaffected by later edits, for consistent reads. Nothing is copied."""
        same = object.__new__(ReferenceSet)
        same._state = self._state
        return same

    def replaced(
        self, *, embeddings: Any = None, ids: Iterable[Hashable] | None = None, class_weights: Any = None
    ) -> ReferenceSet:
        """The same references with other embeddings (m, d), ids or class weights; this set stays as it is."""
        state = self._state
        changes: dict[str, Any] = {}
        if embeddings is not None:
            changes["embeddings"] = checks.float_tensor(embeddings, "embeddings").detach().to(state.labels.device)
            if len(changes["embeddings"]) != len(state.labels):
                given = len(changes["embeddings"])
                raise ShapeError(f"embeddings must have one row per reference: {len(state.labels)}; got {given}")
        if ids is not None:
            changes |= {"ids": _as_ids(ids, len(state.labels)), "next_id": None}
        if class_weights is not None:
            changes["class_weights"] = _as_class_weights(class_weights, state.n_classes)
        same = object.__new__(ReferenceSet)
        same._state = replace(state, **changes)
        return same

    def to(self, device: torch.device | str) -> ReferenceSet:
        """The same set on another device; this one stays where it is."""
        moved, state = object.__new__(ReferenceSet), self._state
        moved._state = replace(state, embeddings=state.embeddings.to(device), labels=state.labels.to(device))
        return moved

    def move(self, device: torch.device | str) -> None:
        """Move this set itself to another device."""
        self._state = self.to(device)._state

    # Queries

    def log_class_weights(self, queries: Any, *, backend: str = "auto", tolerance: float = 0.0) -> Any:
        """log Σ_i I(y_i=k) w(h, h_i): the votes for each class, (n, K) float64; -inf for an empty class.

        The log of each class weight is added, if there are any. With a tolerance above 0 each number may be off by that
        much, which takes less work with many examples; `log_class_weights_within` also returns a bound on the errors.
        """
        return _like(queries, self._votes(queries, backend, tolerance))

    def log_class_weights_within(self, queries: Any, tolerance: float) -> Bounded:
        """The votes for each class, and for each query a guaranteed bound on their errors, at most the tolerance.

        Examples that are far away or near each other are summed in groups. The first call sorts the set. This pays off
        with many queries, or 100,000 examples and more, if they lie in clusters or in few dimensions.

        >>> refs = ReferenceSet([[0.0], [0.1], [5.0]], [0, 0, 1])
        >>> votes, bounds = refs.log_class_weights_within([[0.5]], tolerance=0.01)
        >>> bool((abs(votes - refs.log_class_weights([[0.5]])) <= bounds[:, None]).all())
        True
        """
        state = self._state
        result = state.within(_as_queries(queries, state), tolerance)
        return Bounded(_like(queries, result.log_class_weights), _like(queries, result.bounds))

    def log_probabilities(self, queries: Any, *, backend: str = "auto", tolerance: float = 0.0) -> Any:
        """log P(y=k given h), (n, K) float64: finite for every class with an example, however far away.

        Votes within a tolerance give log-probabilities within twice that.
        """
        return _like(queries, torch.log_softmax(self._votes(queries, backend, tolerance), dim=1))

    def probabilities(self, queries: Any, *, backend: str = "auto", tolerance: float = 0.0) -> Any:
        """P(y=k given h), (n, K) float64; rows sum to 1."""
        return _like(queries, torch.softmax(self._votes(queries, backend, tolerance), dim=1))

    def nearest(self, queries: Any, k: int, *, backend: str = "auto") -> Neighbors:
        """The k nearest references of each query, exactly."""
        return self.query(queries, k=k, backend=backend)[1]

    def query(self, queries: Any, *, k: int, backend: str = "auto") -> tuple[Any, Neighbors]:
        """Log class weights and the k nearest references from one pass over the set."""
        state = self._state  # read once: another thread may edit the set meanwhile
        result = state.query(_as_queries(queries, state), checks.positive_int(k, "k"), backend)
        rows, labels = result.rows.cpu().numpy(), state.labels.cpu().numpy()
        neighbors = Neighbors(
            state.ids.to_numpy()[rows],
            labels[rows],
            result.squared_distances.cpu().numpy(),
            state.kernel.log_weights(result.squared_distances).cpu().numpy() + state.log_class_factors[labels[rows]],
        )
        return _like(queries, result.log_class_weights), neighbors

    def _votes(self, queries: Any, backend: str, tolerance: float) -> Tensor:
        engine.check_tolerance(tolerance)
        state = self._state
        if tolerance > 0:
            return state.within(_as_queries(queries, state), tolerance).log_class_weights
        return state.query(_as_queries(queries, state), 0, backend).log_class_weights

    # Edits: each is exact, gives the same set as rebuilding from the edited data, and happens completely or not at all

    def add(self, embeddings: Any, labels: Any, ids: Iterable[Hashable] | None = None) -> list[Any]:
        """Add voters; returns their ids. Without `ids`, they get numbers that were never used before.

        They are stored in the precision of the set.
        """
        state = self._state
        h = checks.float_tensor(embeddings, "embeddings").detach()
        h = checks.float_tensor(h.to(state.embeddings), f"embeddings as {state.embeddings.dtype}")
        if h.shape[1] != state.embeddings.shape[1]:
            raise ShapeError(
                f"embeddings must have {state.embeddings.shape[1]} columns, like those of the set; "
                f"got shape {tuple(h.shape)}"
            )
        y = checks.class_labels(labels, "labels", n=len(h), n_classes=self.n_classes)
        next_id = state.next_id
        if ids is not None:
            names = _as_ids(ids, len(h))
            numbers = [int(i) for i in names if isinstance(i, int | np.integer)]
            next_id = None if next_id is None else max([next_id, *(i + 1 for i in numbers)])
        elif next_id is not None:
            names = pd.RangeIndex(next_id, next_id + len(h))
            next_id += len(h)
        else:
            raise IdError("this set was created with ids, so new examples need ids too; got none; give ids=…")
        taken = names[names.isin(state.ids)]
        if len(taken):
            raise IdError(f"ids must be new; taken: {checks.listed(taken)}; remove them first or relabel them")
        self._state = replace(
            state,
            embeddings=torch.cat([state.embeddings, h]),
            labels=torch.cat([state.labels, torch.as_tensor(y, device=state.labels.device)]),
            ids=_concatenate(state.ids, names),
            next_id=next_id,
        )
        return list(names)

    def remove(self, ids: Iterable[Hashable]) -> None:
        """Remove voters. Removing all of them is an error: an empty set cannot vote."""
        state = self._state
        keep = np.ones(len(state.labels), dtype=bool)
        keep[_positions(state, ids)] = False
        if not keep.any():
            raise EmptyReferenceError(
                "a reference set needs at least one example; got the ids of all; keep at least one"
            )
        mask = torch.as_tensor(keep, device=state.labels.device)
        ids_left = state.ids[keep] if state.ids.dtype == "int64" else _index(list(state.ids[keep]))
        self._state = replace(state, embeddings=state.embeddings[mask], labels=state.labels[mask], ids=ids_left)

    def relabel(self, ids: Iterable[Hashable], labels: Any) -> None:
        """Change the labels of examples: one label per id."""
        state = self._state
        where = _positions(state, ids)
        y = checks.class_labels(labels, "labels", n=len(where), n_classes=state.n_classes)
        changed = state.labels.clone()
        changed[torch.as_tensor(where, device=changed.device)] = torch.as_tensor(y, device=changed.device)
        self._state = replace(state, labels=changed)

    def positions(self, ids: Iterable[Hashable]) -> NDArray[np.int64]:
        """The positions of examples in the set, by id."""
        return _positions(self._state, ids)


def _positions(state: _State, ids: Iterable[Hashable]) -> NDArray[np.int64]:
    names = _as_ids(ids, None)
    where = state.ids.get_indexer(names) if len(names) else np.zeros(0)
    unknown = names[where < 0]
    if len(unknown):
        raise IdError(
            f"ids must be in the set; not in it: {checks.listed(unknown)}; "
            f"its ids look like {state.ids[:1].tolist()[0]!r}"
        )
    return np.asarray(where, dtype=np.int64)


def filled(rows: Tensor, size: int) -> Tensor:
    """Rows padded to at least `size` by repeating the last one."""
    missing = size - len(rows)
    return rows if missing <= 0 or len(rows) == 0 else torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])])


def _as_queries(queries: Any, state: _State) -> Tensor:
    h, d = checks.float_tensor(queries, "queries"), state.embeddings.shape[1]
    if h.shape[1] != d:
        raise ShapeError(f"queries must have {d} columns, like the references; got shape {tuple(h.shape)}")
    return h if isinstance(queries, Tensor) else h.to(state.embeddings.device)


def _as_ids(ids: Iterable[Hashable], n: int | None) -> pd.Index[Any]:
    """Unique ids as a pandas index, with tuples kept as single ids."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise IdError(f"ids must be a list of ids; got {ids!r}; write [{ids!r}] for a single one")
    if isinstance(ids, np.ndarray | Tensor) and ids.ndim != 1:
        raise IdError(f"ids must be a 1-D array; got shape {tuple(ids.shape)}; give tuples for compound ids")
    values = ids.tolist() if isinstance(ids, np.ndarray | Tensor) else list(ids)
    if n is not None and len(values) != n:
        raise ShapeError(f"ids must have one entry per row: {n} required, got {len(values)}")
    for value in values:
        try:
            hash(value)
        except TypeError as error:
            raise IdError(
                f"ids must be hashable, such as numbers, strings or tuples; got {value!r:.100}: {error}"
            ) from None
    index = _index([int(v) if isinstance(v, np.integer) else v for v in values])
    repeated = index[index.duplicated()]
    if len(repeated):
        raise IdError(f"ids must be unique; repeated: {checks.listed(dict.fromkeys(repeated))}; drop or rename them")
    return index


def _as_class_weights(weights: Any, n_classes: int) -> tuple[float, ...]:
    values = checks.scores(weights, "class_weights", ndim=1)
    if values.shape != (n_classes,) or not ((values > 0) & np.isfinite(values)).all():
        raise ShapeError(f"class_weights must be {n_classes} positive numbers, one per class; got {values.tolist()}")
    return tuple(values.tolist())


def _index(values: list[Any]) -> pd.Index[Any]:
    """Whole numbers are stored compactly; everything else keeps the objects given, never converted."""
    compact = values and all(type(v) is int and -(2**63) <= v < 2**63 for v in values)
    return pd.Index(values, tupleize_cols=False, dtype="int64" if compact else "object")


def _concatenate(a: pd.Index[Any], b: pd.Index[Any]) -> pd.Index[Any]:
    # Appending objects would infer a common type: 2⁶⁰+1 next to 0.5 would become a float, None a NaN.
    return a.append(b) if a.dtype == b.dtype == "int64" else _index([*a, *b])


def _like(queries: Any, answer: Tensor) -> Any:
    """The answer in the caller's type: tensors for tensors, NumPy otherwise."""
    return answer if isinstance(queries, Tensor) else answer.cpu().numpy()
