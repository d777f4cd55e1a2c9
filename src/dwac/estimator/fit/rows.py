"""Fitting on rows in memory: cross-fitted, or with some of them held out."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch.utils.data import Dataset

from dwac import _checks as checks
from dwac._machine import few_threads
from dwac.encoders import Encoder, TabularEncoder, TextEncoder, choose
from dwac.encoders.module import read_dataset
from dwac.errors import InputError
from dwac.estimator.condensing import should_condense
from dwac.estimator.editing import condense, keep
from dwac.estimator.fit.near_copies import have_near_copies
from dwac.estimator.fit.network import (
    EncodedRows,
    TrainingRows,
    class_weights_of,
    cross_fit,
    encoder_for_target,
    ignore_columns,
    name_voters,
    new_model,
    own_seed,
    random_generator,
    train,
)
from dwac.estimator.fitted import Features, Fitted
from dwac.estimator.held_out import Folds, HeldOutRows
from dwac.estimator.observed import features_of, rows_for, width_of
from dwac.estimator.preparation import (
    Examples,
    FitInput,
    Parts,
    all_rows,
    count,
    number_groups,
    read_within,
    row_ids,
    row_weights,
    split,
    take,
)
from dwac.estimator.settings import SMALL_TABLE, FitSettings, device_of, ways_of
from dwac.nn import WeightedAverage
from dwac.nn.batches import Inputs
from dwac.reference import ReferenceSet
from dwac.reference.references import set_of
from dwac.tasks import read_target
from dwac.tasks.base import CLASSES, Target, log_probabilities
from dwac.tasks.by_group import read_groups
from dwac.tasks.targets import TargetValues
from dwac.training.cross_fit import FOLDS, VIEWS, WAVES, WIDE, folds_of
from dwac.training.rows import fixed_features

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def fit_rows(settings: FitSettings, rows: FitInput) -> Fitted:
    """Train on X and y, and calibrate."""
    if isinstance(rows.X, Dataset):
        X, labels = read_dataset(rows.X)
        rows = rows._replace(X=X, y=labels if rows.y is None else rows.y)
    encoder = choose(settings.encoder, rows.X)
    prepared = prepare(settings, encoder, rows)
    names, n = prepared.ids, len(prepared.ids)
    apart = Apart.of(rows.apart, prepared)
    kept_together = None if rows.groups is None else number_groups(rows.groups, names, at_least=FOLDS)
    weights = row_weights(rows.sample_weight, n)
    rng = random_generator(settings)
    columns = width_of(prepared.X) if encoder.kind == "tabular" else 0
    ways = ways_of(settings, encoder, n, columns, classes=prepared.outcomes.exact.shape[1] == 0)
    fits = [
        _fit_way(settings, encoder, prepared, apart, weights, kept_together, rng, crossed=crossed) for crossed in ways
    ]
    fitted = fits[0] if len(fits) == 1 else _choose(*fits)
    if settings.voters is not None and should_condense(
        settings.voters, len(fitted.references), len(fitted.validation.y)
    ):
        return condense(fitted, None if settings.voters == "auto" else int(settings.voters), strict=False)
    return fitted


def _choose(crossed: Fitted, split: Fitted) -> Fitted:
    """Of a cross-fitted model and one with rows held out, the one that is better on the latter's validation rows.

    The networks and voters that judge a row never saw it; of the second model, only its scales and the number of its
    epochs were chosen by these rows.
    """
    folds, kept = crossed.folds, crossed.calibration
    assert folds is not None
    rows = kept.at(kept.ids.isin(split.validation.ids))
    sets, units = folds.sets(crossed.references), np.asarray(kept.exact.std(axis=0)) + 1e-300
    losses = [_losses(voters, rows.of_fold(folds, fold), units) for fold, voters in enumerate(sets)]
    other = _losses(split.references, split.validation, units)
    return crossed if np.concatenate(losses).mean() <= other.mean() else split


def _losses(voters: ReferenceSet, rows: HeldOutRows, units: Floats) -> Floats:
    """-log P(y), at most 20, of each row; of numbers the CRPS, in these units."""
    if voters.targets is not None:
        return np.asarray((np.asarray(voters.distribution(rows.h).crps(rows.exact).cpu()) / units).mean(axis=1))
    log_p = log_probabilities(np.asarray(voters.log_class_weights(rows.h).cpu()))[np.arange(len(rows.y)), rows.y]
    return np.asarray(-np.maximum(np.where(rows.y < 0, -np.inf, log_p), -20))


def _fit_way(
    settings: FitSettings,
    encoder: Encoder,
    rows: PreparedRows,
    apart: Apart,
    weights: Floats,
    kept_together: Ints | None,
    rng: np.random.RandomState,
    *,
    crossed: bool,
) -> Fitted:
    """Fit all rows by cross-fitting, or with some of them held out."""
    X, features, outcomes, names, within = rows
    n, table = len(names), encoder.kind == "tabular"
    if crossed:
        waves = WAVES if table and n < min(SMALL_TABLE, WIDE * width_of(X)) else 0
        encoder = TabularEncoder(network="wide", waves=waves) if table else TextEncoder(network="linear")
        parts = all_rows(n)
    else:
        encoder = encoder_for_target(settings, encoder)
        parts = split(outcomes.strata, settings.validation_size, settings.calibration_size, rng, kept_together)
    encoder = ignore_columns(settings, encoder)
    if not (weights[parts.training] > 0).any():
        raise InputError(
            "sample_weight must be positive for at least one training row; all rows with positive weights are in "
            "validation or calibration"
        )
    target = outcomes.target(parts.training)
    codes = outcomes.strata if target.has_codes else target.codes(outcomes.exact)
    by_class = class_weights_of(settings, target, codes[parts.training])
    joint, by_joint = apart.joint(codes, target), apart.factors(by_class)
    seed = int(rng.randint(2**31 - 1))
    inputs = _encode(encoder, X, joint, parts)
    numbers = target.numbers_of_voters(outcomes.exact)
    if kept_together is None and encoder.kind == "tabular" and have_near_copies(inputs, codes, numbers):
        checks.warn(
            "most rows have near-copies among the others, with which they share what is predicted; if rows belong "
            "together, such as visits of one patient, name that with groups=… (dwac train --groups COLUMN): "
            "otherwise sets and accuracy promise too much for rows of new groups"
        )
    with few_threads(encoder.recipe.threads), ExitStack() as fixed:
        device = device_of(settings.device)
        with own_seed(seed, device):
            size = settings.ensemble_size or encoder.recipe.networks_on(device)
            if crossed:
                size = FOLDS * (VIEWS + bool(waves)) if table else 1
            loss = target.loss(codes[parts.training])
            model = new_model(settings, encoder, target, size, loss=loss, groups=apart.n).to(device)
            inputs = fixed.enter_context(fixed_features(model, inputs, show=settings.verbose))
            learned = TrainingRows.of(inputs, joint, weights, by_joint)
            if crossed:
                fold_of = folds_of(n, kept_together, seed=seed)
                history = cross_fit(settings, model, target, learned, by_joint, fold_of, seed)
            else:
                held_out = learned.at(parts.validation)
                history = train(settings, model, encoder, learned.at(parts.training), held_out, by_joint, seed)
        apart.merge(model)
        encoded = EncodedRows(inputs, codes, names, outcomes.exact)
        novelty = name_voters(settings, model, encoder, target, encoded.at(parts.training), by_class)
        validation = novelty.hold_out(model, *encoded.at(parts.validation))
        folds = Folds(names, fold_of.numpy(), size) if crossed else None
        held = parts.calibration if len(parts.calibration) else parts.validation
        if crossed:
            assert isinstance(encoder, TabularEncoder | TextEncoder)
            left_out, held = encoder.transform_left_out(X, kept_together), parts.training
            encoded = encoded._replace(inputs=left_out if table else (*left_out[:-1], inputs[-1]))
        calibration = novelty.hold_out(model, *encoded.at(held))
        return Fitted(
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
            within=within,
            n_groups=None if kept_together is None else len(np.unique(kept_together[held])),
        )


class Apart(NamedTuple):
    """Groups that the embedding tells apart: a network learns outcome and group; then voters vote for their outcome."""

    codes: Ints  # (n,): the group of each row, 0 … G - 1
    n: int  # G; 1 if there is nothing to tell apart

    @classmethod
    def of(cls, given: Any, rows: PreparedRows) -> Apart:
        """Those given to fit: names of columns of X, or one value per row; several columns give intersections."""
        if given is None:
            return cls(np.zeros(len(rows.ids), dtype=np.int64), 1)
        groups = read_groups(given, rows.X, len(rows.ids))
        codes, names = pd.factorize(pd.MultiIndex.from_frame(groups.astype(str)))
        return cls(codes.astype(np.int64), len(names))

    def joint(self, codes: Ints, target: Target) -> Ints:
        """(n,): the outcome and the group of each row as one code."""
        if self.n > 1 and target.kind != CLASSES:
            raise InputError("apart=… is for one label per row, without an order; leave it out")
        return codes * self.n + self.codes

    def factors(self, by_class: Floats | None) -> Floats | None:
        """(K G,): those of the outcomes (K,), for joint codes."""
        return None if by_class is None else np.repeat(by_class, self.n)

    def merge(self, model: WeightedAverage) -> None:
        """Let voters vote for their outcome, whatever their group: P(outcome) is the sum over groups."""
        if self.n > 1:
            voters = model.references.voters
            model.n_classes //= self.n
            labels = voters.labels // self.n
            merged = replace(voters, labels=labels, n_classes=model.n_classes, division=None, class_weights=None)
            model.references = set_of(merged)


class PreparedRows(NamedTuple):
    """Rows in memory, read and checked."""

    X: Any
    features: Features
    outcomes: TargetValues
    ids: pd.Index[Any]
    within: pd.Series[Any] | None  # their groups, by id, for guarantees within each


def prepare(settings: FitSettings, encoder: Encoder, rows: FitInput) -> PreparedRows:
    """Read X, y, ids and within; an error names what does not fit."""
    X = rows_for(rows.X, encoder)
    features, n = features_of(X, encoder), count(X)
    outcomes = read_target(rows.y, n, regression=settings.regression, ordered=settings.ordered)
    names = row_ids(X, rows.ids, n)
    within = read_within(rows.within, settings.within, X, names)
    return PreparedRows(X, features, outcomes, names, within)


def _encode(encoder: Encoder, X: Any, codes: Ints, parts: Parts) -> Inputs:
    """Fit the encoder on the training rows alone, and encode all rows."""
    try:
        encoder.fit(take(X, parts.training), codes[parts.training])
    except InputError:
        encoder.fit(X)  # its error names the row as the caller counts it
        raise
    return encoder.transform(X)
