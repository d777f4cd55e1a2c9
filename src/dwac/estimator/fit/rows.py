"""Fitting on rows in memory: cross-fitted, or with some of them held out."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch.utils.data import Dataset

from dwac import _checks as checks
from dwac.encoders import Encoder, TabularEncoder, choose
from dwac.encoders.module import read_dataset
from dwac.errors import InputError
from dwac.estimator.condensing import wanted
from dwac.estimator.editing import condense, keep
from dwac.estimator.fit.near_copies import have_near_copies
from dwac.estimator.fit.network import cross_fit, new_model, own_seed, train_parts
from dwac.estimator.fit.reading import agree_on_seed, class_weights_of, features_of, read_target, suited, width_of
from dwac.estimator.fitted import Fitted
from dwac.estimator.folds import Folds
from dwac.estimator.held_out import HeldOutRows
from dwac.estimator.novelty import Novelty
from dwac.estimator.observed import rows_for
from dwac.estimator.preparation import (
    Examples,
    Parts,
    all_rows,
    count,
    number_groups,
    read_groups,
    row_ids,
    row_weights,
    split,
    take,
)
from dwac.estimator.settings import Settings, cross_fitted, device_of
from dwac.nn import WeightedAverage
from dwac.nn.batches import Inputs
from dwac.tasks import NUMBERS
from dwac.training.cross_fit import FOLDS, VIEWS, folds_of
from dwac.training.resources import few_threads
from dwac.training.rows import fixed_features

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def fit_rows(
    settings: Settings,
    X: Any,
    y: Any,
    sample_weight: Any,
    ids: Iterable[Hashable] | None,
    within: Iterable[Hashable] | None,
    groups: Iterable[Hashable] | None,
) -> Fitted:
    """Train on X and y, and calibrate."""
    if isinstance(X, Dataset):
        X, labels = read_dataset(X)
        y = labels if y is None else y
    encoder = choose(settings.encoder, X)
    X = rows_for(X, encoder)
    features = features_of(X, encoder)
    n = count(X)
    reading = read_target(settings, y, n)
    names = row_ids(X, ids, n)
    within_of = None if within is None else read_groups(within, names, "within")
    kept_together = None if groups is None else number_groups(groups, names, at_least=FOLDS)
    weights = row_weights(sample_weight, n)
    rng = check_random_state(settings.random_state if settings.random_state is not None else agree_on_seed())
    crossed = cross_fitted(settings, encoder, n, width_of(X) if encoder.kind == "tabular" else 0)
    if crossed:
        encoder, parts = TabularEncoder(network="wide"), all_rows(n)
    else:
        encoder = suited(settings, encoder)
        parts = split(reading.strata, settings.validation_size, settings.calibration_size, rng, kept_together)
    if not (weights[parts.training] > 0).any():
        raise InputError(
            "sample_weight must be positive for at least one training row; all rows with positive weights are in "
            "validation or calibration"
        )
    target = reading.target(parts.training)
    codes = reading.strata if target.kind != NUMBERS else target.codes(reading.exact)
    by_class = class_weights_of(settings, target, codes[parts.training])
    seed = int(rng.randint(2**31 - 1))
    inputs = _encode(encoder, X, codes, parts)
    numbers = reading.exact if target.kind == NUMBERS else np.zeros((n, 0))
    if groups is None and encoder.kind == "tabular" and have_near_copies(inputs, codes, numbers):
        checks.warn(
            "most rows have near-copies among the others, with which they share what is predicted; if rows belong "
            "together, such as visits of one patient, name that with groups=… (dwac train --groups COLUMN): "
            "otherwise sets and accuracy promise too much for rows of new groups"
        )
    with few_threads(encoder.recipe.threads), ExitStack() as fixed:
        device = device_of(settings.device)
        with own_seed(seed, device):
            size = FOLDS * VIEWS if crossed else settings.ensemble_size or encoder.recipe.networks_on(device)
            loss = target.loss(codes[parts.training])
            model = new_model(settings, encoder, target, size, loss=loss).to(device)
            inputs = fixed.enter_context(fixed_features(model, inputs, show=settings.verbose))
            if crossed:
                fold_of = folds_of(n, kept_together, seed=seed)
                history = cross_fit(settings, model, target, inputs, codes, weights, by_class, fold_of, seed)
            else:
                history = train_parts(settings, model, encoder, inputs, codes, weights, by_class, parts, seed)
        exact = reading.exact[parts.training] if target.kind == NUMBERS else None
        name_voters(model, names[parts.training], exact, by_class)
        novelty = Novelty.of(model, encoder, _some(inputs, parts.training), raw_features=settings.raw_features)

        def hold_out(inputs: Inputs, rows: Ints) -> HeldOutRows:
            compared = novelty.known is not None
            own = _some(inputs, rows), codes[rows], names[rows], reading.exact[rows]
            return HeldOutRows.of(model, *own, compared=compared)

        validation = hold_out(inputs, parts.validation)
        folds = Folds(names, fold_of.numpy(), size) if crossed else None
        held = parts.calibration if len(parts.calibration) else parts.validation
        if isinstance(encoder, TabularEncoder) and crossed:
            inputs, held = encoder.transform_left_out(X, kept_together), parts.training
        calibration = hold_out(inputs, held)
        fitted = Fitted(
            settings=settings,
            encoder=encoder,
            model=model,
            target=target,
            history=history,
            examples=keep(Examples(), encoder, names[parts.training], take(X, parts.training)),
            novelty=novelty.learn(model.references, validation, calibration, folds),
            validation=validation,
            validation_ids=names[parts.validation],
            calibration=calibration,
            features=features,
            folds=folds,
            within=within_of,
            n_groups=None if kept_together is None else len(np.unique(kept_together[held])),
        )
        if settings.voters is not None and wanted(settings.voters, len(parts.training), len(validation.y)):
            return condense(fitted, None if settings.voters == "auto" else int(settings.voters), strict=False)
    return fitted


def name_voters(model: WeightedAverage, ids: pd.Index[Any], exact: Floats | None, by_class: Floats | None) -> None:
    """Give the voters their ids, in the order in which the model remembers them; exact: their numbers."""
    model.references = model.references.replaced(ids=ids.tolist(), class_weights=by_class, targets=exact)


def _encode(encoder: Encoder, X: Any, codes: Ints, parts: Parts) -> Inputs:
    """Fit the encoder on the training rows alone, and encode all rows."""
    try:
        encoder.fit(take(X, parts.training), codes[parts.training])
    except InputError:
        encoder.fit(X)  # its error names the row as the caller counts it
        raise
    return encoder.transform(X)


def _some(inputs: Inputs, rows: Ints) -> Inputs:
    return tuple(part[rows] for part in inputs)
