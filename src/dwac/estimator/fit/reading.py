"""What fit reads from X and y before training: rows, class weights, columns, and a suitable encoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch.utils.data import DataLoader

from dwac.encoders import Encoder, ModuleEncoder, TabularEncoder
from dwac.errors import InputError
from dwac.estimator.containers import batches_of, gathered_batches, native, require_order
from dwac.estimator.fitted import Features
from dwac.estimator.preparation import class_weights
from dwac.estimator.settings import FitSettings
from dwac.nn.ranks import sharing_ranks
from dwac.tasks import Target

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def receive(encoder: Any, X: Any, y: Any, ids: Any) -> tuple[Any, Any]:
    """X and y of fit as pandas, NumPy, tensors, lists or a stream."""
    if not isinstance(X, DataLoader):
        return native(X), native(y, "y")
    if ids is not None and not isinstance(ids, str):
        require_order(X, "ids name rows in the order of the dataset")
    batches, tables = batches_of(X)
    if tables and not isinstance(encoder, torch.nn.Module | ModuleEncoder):
        return batches, y  # a stream
    rows, labels = gathered_batches(batches)
    if labels is None and y is not None:
        require_order(X, "y has labels in the order of the dataset")
    if labels is not None and y is not None:
        raise InputError("the batches of the DataLoader have labels, and y was given besides; leave y out")
    return rows, native(y, "y") if labels is None else labels


def class_weights_of(settings: FitSettings, target: Target, codes: Ints) -> Floats | None:
    """(K,) factors on the votes and losses of the outcomes, given the codes of the training rows."""
    if settings.class_weight is not None and not target.has_codes:
        raise InputError("class_weight is for one label per row; y has several; use sample_weight")
    return class_weights(settings.class_weight, codes, target.outcomes)


def suited(settings: FitSettings, encoder: Encoder) -> Encoder:
    """The encoder that suits the target, if the settings name none."""
    usual = isinstance(settings.encoder, str) and settings.encoder in ("auto", "tabular")
    return TabularEncoder(network="numbers") if settings.regression and usual and encoder.kind == "tabular" else encoder


def has_columns(X: Any, encoder: Encoder) -> bool:
    """Whether X has columns that must be the same in `predict`."""
    return (encoder.kind == "tabular" and getattr(X, "ndim", 2) == 2) or (
        encoder.kind == "module" and isinstance(X, pd.DataFrame)
    )


def features_of(X: Any, encoder: Encoder) -> Features:
    """What scikit-learn records about columns: how many there are, and their names if these are strings."""
    if not has_columns(X, encoder):
        return Features()
    if not isinstance(X, pd.DataFrame):
        return Features(width_of(X))
    kinds = sorted({type(name).__name__ for name in X.columns})
    if "str" in kinds and len(kinds) > 1:
        raise InputError(
            "the columns of X must be named by strings alone, or by whole numbers alone; got names of the types "
            f"{', '.join(kinds)}; rename them, e.g. X.columns = X.columns.astype(str)"
        )
    return Features(X.shape[1], np.asarray(X.columns, dtype=object) if kinds == ["str"] else None)


def width_of(X: Any) -> int:
    """The number of columns of a table."""
    return int(X.shape[1]) if getattr(X, "ndim", 0) == 2 else len(X[0]) if isinstance(X, list) and X else 0


def agree_on_seed() -> int | None:
    """A random seed that all processes share; None for a single process, which needs none."""
    ranks = sharing_ranks()
    return None if ranks is None else int(ranks.broadcast_numbers([check_random_state(None).randint(2**31 - 1)])[0])
