"""Checks and converts the inputs of a reference set. Ids are kept exactly as given."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac import _checks as checks
from dwac.engine.exact import check_queries
from dwac.errors import IdError, InputError, LabelError, ShapeError


class LookAlikes(NamedTuple):
    """A second kernel: w = k(d) + weight · k(factor · d).

    If it is narrower (factor > 1), very near voters count more. With factor 0 it is a base vote, which every voter has
    at any distance: where no voter is near, the classes get their shares of the references.
    """

    factor: float
    weight: float


def as_queries(queries: Any, embeddings: Tensor) -> Tensor:
    """(n, d) queries, on the device of the references unless they are a tensor."""
    h = checks.float_tensor(queries, "queries")
    h = h if isinstance(queries, Tensor) else h.to(embeddings.device)
    check_queries(embeddings, h)
    return h


def as_weights(weights: Any, m: int, name: str) -> NDArray[np.float64]:
    """(m,) positive numbers."""
    values = checks.scores(weights.cpu() if isinstance(weights, Tensor) else weights, name, ndim=1)
    if len(values) != m or not ((values > 0) & np.isfinite(values)).all():
        raise ShapeError(f"{name} must be {m} positive numbers, one per example; got {checks.listed(values.tolist())}")
    return values


def as_targets(targets: Any, m: int) -> Tensor:
    """(m, T) float64: a copy, so that later edits of the caller's array do not change the votes."""
    try:
        array = np.asarray(targets.detach().cpu() if isinstance(targets, Tensor) else targets)
    except (TypeError, ValueError) as error:
        raise InputError(f"targets must be an array of numbers: {error}") from None
    if array.dtype.kind not in "biufO":
        raise InputError(f"targets must be numbers; got {array.dtype}, such as {array.flat[:1].tolist()}; convert them")
    values = checks.scores(array, "targets")
    if values.ndim not in (1, 2) or len(values) != m or values.shape[1:] == (0,):
        raise ShapeError(f"targets must be {m} numbers, one per example, or ({m}, T); got shape {values.shape}")
    return checks.float_tensor(torch.tensor(values[:, None] if values.ndim == 1 else values), "targets")


def as_new_targets(targets: Any, n: int, present: Tensor | None) -> Tensor | None:
    """(n, T): targets of new examples for a set with targets (m, T); None if the set has none."""
    if present is None:
        if targets is not None:
            raise InputError("the examples of this set have labels but no targets; leave targets=… out")
        return None
    if targets is None:
        raise InputError("the examples of this set have targets, so new ones need them too; got none; give targets=…")
    numbers, columns = as_targets(targets, n).to(present.device), present.shape[1]
    if numbers.shape[1] != columns:
        shape = tuple(numbers.shape)
        raise ShapeError(f"targets must have {columns} columns, like those of the set; got shape {shape}")
    return numbers


def as_leaves(leaves: Any, labels: Tensor) -> NDArray[np.int64]:
    """(m,): the leaf of each reference; each leaf lies within one class."""
    codes = checks.class_labels(leaves, "leaves", n=len(labels))
    if len(np.unique(codes)) != int(codes.max()) + 1 or not within(labels.cpu().numpy(), codes):
        raise LabelError("leaves must be numbered from 0 without gaps, each within one class")
    return codes


def as_look_alikes(values: tuple[float, float] | None, *, represents: bool) -> LookAlikes | None:
    """The factor and the weight of a second kernel, if there is one."""
    if values is None:
        return None
    pair = checks.scores(list(values), "look_alikes", ndim=1)
    if pair.shape != (2,) or not np.isfinite(pair).all() or not (pair[0] > 1 or pair[0] == 0) or pair[1] <= 0:
        raise InputError(
            "look_alikes must be a factor above 1, or 0 for a base vote, and a weight above 0, such as (4.0, 100.0); "
            f"got {pair.tolist()}"
        )
    if represents and pair[0] > 1:
        raise InputError(
            "look_alikes need examples that stand for themselves alone; got weights for others, too; leave one out"
        )
    return LookAlikes(float(pair[0]), float(pair[1]))


def as_factors(factors: Any, n_leaves: int) -> NDArray[np.float64]:
    """(L,): the factor on the votes of each leaf, by default 1."""
    return np.ones(n_leaves) if factors is None else as_weights(factors, n_leaves, "factors")


def within(labels: NDArray[np.int64], groups: NDArray[np.int64]) -> bool:
    """Whether no group mixes classes."""
    of = np.zeros(int(groups.max()) + 1, dtype=np.int64)
    of[groups] = labels
    return bool((of[groups] == labels).all())


def as_class_weights(weights: Any, n_classes: int) -> tuple[float, ...] | None:
    """(K,) positive numbers, if there are any."""
    if weights is None:
        return None
    values = checks.scores(weights, "class_weights", ndim=1)
    if values.shape != (n_classes,) or not ((values > 0) & np.isfinite(values)).all():
        raise ShapeError(f"class_weights must be {n_classes} positive numbers, one per class; got {values.tolist()}")
    return tuple(values.tolist())


def as_ids(ids: Iterable[Hashable], n: int | None) -> pd.Index[Any]:
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
    index = compact([int(v) if isinstance(v, np.integer) else v for v in values])
    repeated = index[index.duplicated()]
    if len(repeated):
        raise IdError(f"ids must be unique; repeated: {checks.listed(dict.fromkeys(repeated))}; drop or rename them")
    return index


def compact(values: list[Any]) -> pd.Index[Any]:
    """Store whole numbers compactly; keep all other objects as given, never converted."""
    whole = values and all(type(v) is int and -(2**63) <= v < 2**63 for v in values)
    return pd.Index(values, tupleize_cols=False, dtype="int64" if whole else "object")


def concatenate(a: pd.Index[Any], b: pd.Index[Any]) -> pd.Index[Any]:
    """Append one index to another."""
    # Appending objects would infer a common type: 2⁶⁰+1 next to 0.5 would become a float, None a NaN.
    return a.append(b) if a.dtype == b.dtype == "int64" else compact([*a, *b])
