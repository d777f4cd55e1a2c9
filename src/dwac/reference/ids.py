"""Ids of references: unique hashable names, kept exactly as given."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from dwac import _checks as checks
from dwac.errors import IdError, ShapeError


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
    """Whole numbers are stored compactly; everything else keeps the objects given, never converted."""
    whole = values and all(type(v) is int and -(2**63) <= v < 2**63 for v in values)
    return pd.Index(values, tupleize_cols=False, dtype="int64" if whole else "object")


def concatenate(a: pd.Index[Any], b: pd.Index[Any]) -> pd.Index[Any]:
    """One index after another."""
    # Appending objects would infer a common type: 2⁶⁰+1 next to 0.5 would become a float, None a NaN.
    return a.append(b) if a.dtype == b.dtype == "int64" else compact([*a, *b])
