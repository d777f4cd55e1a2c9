"""Fitting: from X and y to a model that votes and is calibrated."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch.utils.data import Dataset

from dwac import _checks as checks
from dwac import training
from dwac.encoders import Encoder, TabularEncoder, backbone, choose
from dwac.encoders.module import gathered
from dwac.errors import InputError, ShapeError
from dwac.estimator.base import has_columns, rows_for
from dwac.estimator.condensing import wanted
from dwac.estimator.editing import Editable
from dwac.estimator.folds import Folds
from dwac.estimator.near_copies import have_near_copies
from dwac.estimator.preparation import Examples, Parts, count, everybody, row_ids, row_weights, split, take
from dwac.estimator.settings import cross_fitted, device_of
from dwac.estimator.targets import CLASSES, LABELS, NUMBERS, ORDERED, Target
from dwac.nn import WeightedAverage
from dwac.nn.batches import Inputs
from dwac.nn.ranks import shared, sharing
from dwac.training.cross_fit import FOLDS, VIEWS, folds_of
from dwac.training.fixed import fixed_features
from dwac.training.progress import progress_bar
from dwac.training.threads import few_threads

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Reading(NamedTuple):
    """What y says of n rows."""

    exact: Floats  # (n, T) numbers, or (n, L) labels as 0 and 1; (n, 0) for classes
    strata: Ints  # (n,) what validation rows are spread over; the codes, except of numbers
    target: Callable[[Ints], Target]  # given the training rows


class Task(NamedTuple):
    """What codes stand for in the loss of a network."""

    likeness: torch.Tensor | None  # (K, K)
    averaged: torch.Tensor | None  # (K, B)


class DWACEstimator(Editable):
    """What `DWACClassifier` and `DWACRegressor` have in common."""

    kernel: str
    embedding_size: int | None
    ensemble_size: int | None
    validation_size: float | None
    calibration_size: float | None
    rescale: bool
    look_alikes: bool
    voters: str | int | None
    checkpoint: str | PathLike[str] | None
    device: str
    random_state: Any
    verbose: bool | str

    _base_votes = True  # whether a cross-fitted model may give every example a vote at any distance

    def _read_target(self, y: Any, n: int) -> Reading:
        """What y (n rows) says."""
        raise NotImplementedError

    def _class_weights(self, target: Target, codes: Ints) -> Floats | None:
        """(K,) factors on the votes and losses of the outcomes, given the codes of the training rows."""
        del target, codes
        return None

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        ids: Iterable[Hashable] | None,
        *,
        within: Iterable[Hashable] | None = None,
        groups: Iterable[Hashable] | None = None,
    ) -> Self:
        with sharing():  # by all processes, where there are several (dwac.training.processes)
            return self._fit_shared(X, y, sample_weight, ids, within, groups)

    def _fit_shared(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        ids: Iterable[Hashable] | None,
        within: Iterable[Hashable] | None,
        groups: Iterable[Hashable] | None,
    ) -> Self:
        self._check_settings()
        if isinstance(X, Dataset):
            X, labels = gathered(X)
            y = labels if y is None else y
        encoder = choose(self.encoder, X)
        X = rows_for(X, encoder)
        features = self._features(X, encoder)
        n = count(X)
        reading = self._read_target(y, n)
        names = row_ids(X, ids, n)
        within_of = None if within is None else grouped(within, names, "within")
        kept_together = None if groups is None else together(groups, names)
        weights = row_weights(sample_weight, n)
        rng = check_random_state(self.random_state if self.random_state is not None else agreed_seed())
        crossed = cross_fitted(self.get_params(deep=False), encoder, n, _width(X) if encoder.kind == "tabular" else 0)
        if crossed:
            encoder, parts = TabularEncoder(network="wide"), everybody(n)
        else:
            encoder = self._suited(encoder)
            parts = split(reading.strata, self.validation_size, self.calibration_size, rng, kept_together)
        if not (weights[parts.training] > 0).any():
            raise InputError(
                "sample_weight must be positive for at least one training row; all rows with positive weights are in "
                "validation or calibration"
            )
        target = reading.target(parts.training)
        codes = reading.strata if target.kind != NUMBERS else target.codes(reading.exact)
        by_class = self._class_weights(target, codes[parts.training])
        seed = int(rng.randint(2**31 - 1))
        inputs = self._encoded(encoder, X, codes, parts)
        numbers = reading.exact if target.kind == NUMBERS else np.zeros((n, 0))
        if groups is None and encoder.kind == "tabular" and have_near_copies(inputs, codes, numbers):
            checks.warn(
                "most rows have near-copies among the others, with which they share what is predicted; if rows belong "
                "together, such as visits of one patient, name that with groups=… (dwac train --groups COLUMN): "
                "otherwise sets and accuracy promise too much for rows of new groups"
            )
        with few_threads(encoder.recipe.threads), ExitStack() as fixed:
            device = device_of(self.device)
            with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if device.type == "cuda" else []):
                torch.manual_seed(seed)
                ensemble_size = self.ensemble_size or encoder.recipe.networks_on(device)
                ensemble_size = FOLDS * VIEWS if crossed else ensemble_size
                task = self._task(target, codes[parts.training])
                model = self._new_model(encoder, target, ensemble_size, task=task).to(device)
                inputs = fixed.enter_context(fixed_features(model, inputs, show=self.verbose))
                if crossed:
                    folds = folds_of(n, kept_together, seed=seed)
                    history = self._cross_fit(
                        model, inputs, codes, weights, by_class, folds, seed, target.kind != LABELS
                    )
                else:
                    history = self._train_parts(model, encoder, inputs, codes, weights, by_class, parts, seed)
            self._took(features, target, encoder, model, history, within_of)
            exact = reading.exact[parts.training] if target.kind == NUMBERS else None
            self._name_voters(names[parts.training], take(X, parts.training), exact, by_class)
            self._novelty = self._new_novelty(tuple(part[parts.training] for part in inputs))
            held = parts.calibration if len(parts.calibration) else parts.validation
            self._validation_rows = self._held_out(inputs, codes, reading.exact, names, parts.validation)
            self.validation_ids_ = names[parts.validation]
            self._folds = Folds(names, folds.numpy(), ensemble_size) if crossed else None
            if isinstance(encoder, TabularEncoder) and crossed:
                inputs, held = encoder.transform_left_out(X, kept_together), parts.training
            self._calibrate(self._held_out(inputs, codes, reading.exact, names, held))
            self._n_groups = None if kept_together is None else len(np.unique(kept_together[held]))
            self._novelty = self._fitted_novelty()
            n = len(self._validation_rows.y)
            if self.voters is not None and wanted(self.voters, len(parts.training), n):
                self._represent(None if self.voters == "auto" else int(self.voters), strict=False)
        return self

    def _took(
        self,
        features: dict[str, Any],
        target: Target,
        encoder: Encoder,
        model: WeightedAverage,
        history: pd.DataFrame,
        within: pd.Series[Any] | None,
    ) -> None:
        """Take what was trained; a fit that fails or is interrupted before that leaves the estimator unchanged."""
        for name in ("n_features_in_", "feature_names_in_", "stream_"):
            if hasattr(self, name):
                delattr(self, name)
        for name, value in features.items():
            setattr(self, name, value)
        self.target_, self.encoder_, self.model_, self.history_ = target, encoder, model, history
        self._named()
        self._within, self._n_groups = within, None
        self._fitted = self.get_params(deep=False)
        self.examples_, self.private_ = Examples(), False
        self._agreement, self._agreed, self._described = None, None, None
        self._shards, self.deletions_ = None, []

    def _name_voters(self, ids: pd.Index[Any], X: Any, exact: Floats | None, by_class: Floats | None) -> None:
        """Name those who vote, in the order in which the model remembers them, and keep their records X."""
        model = self.model_
        model.references = model.references.replaced(ids=ids.tolist(), class_weights=by_class, targets=exact)
        self._keep(ids, X)

    def _suited(self, encoder: Encoder) -> Encoder:
        """The encoder that suits what is predicted, where none was asked for by name."""
        return encoder

    def _task(self, target: Target, codes: Ints) -> Task:
        """What codes stand for in the loss; codes: of the training rows."""
        return Task(target.likeness(codes), target.averaged(codes))

    def _features(self, X: Any, encoder: Encoder) -> dict[str, Any]:
        """What scikit-learn keeps of the columns, found on another estimator: this one may already be fitted."""
        if not has_columns(X, encoder):
            return {}
        probe = type(self)()
        try:
            validate_data(probe, X, reset=True, skip_check_array=True)
        except TypeError as error:  # column names of several types
            raise InputError(
                f"the columns of X must be named by strings alone, or by whole numbers alone: {error}"
            ) from None
        return {name: value for name, value in vars(probe).items() if name in ("n_features_in_", "feature_names_in_")}

    def _encoded(self, encoder: Encoder, X: Any, codes: NDArray[np.int64], parts: Parts) -> Inputs:
        """Fit the encoder on the training rows alone, and encode all."""
        try:
            encoder.fit(take(X, parts.training), codes[parts.training])
        except InputError:
            encoder.fit(X)  # names the row as the caller counts it
            raise
        return encoder.transform(X)

    def _new_model(
        self,
        encoder: Encoder,
        target: Target,
        ensemble_size: int,
        size: int | None = None,
        n_features: int | None = None,
        *,
        task: Task | None = None,
    ) -> WeightedAverage:
        """A new network; with n_features given, one of a stored model's size, to be filled with its weights."""
        outputs = target.n_codes if target.kind in (CLASSES, ORDERED) else target.table.shape[1]
        usual = max(encoder.recipe.embedding_size or outputs, target.least_size)
        size = size or self.embedding_size or usual
        network = backbone(encoder, ensemble_size)
        terms = {
            name: getattr(encoder.recipe, name) if getattr(self, name, None) is None else getattr(self, name)
            for name in ("penalty", "auxiliary_weight")
        }
        if n_features is not None or target.kind != CLASSES:
            terms["auxiliary_weight"] = 0.0  # no prediction needs the auxiliary head, and none is stored
        tables: dict[str, Any] = {} if task is None else {"likeness": task.likeness, "averaged": task.averaged}
        return WeightedAverage(
            network, target.n_codes, size, kernel=self.kernel, n_features=n_features, **tables, **terms
        )

    def _train_parts(
        self,
        model: WeightedAverage,
        encoder: Encoder,
        inputs: Inputs,
        codes: NDArray[np.int64],
        weights: Floats,
        by_class: Floats | None,
        parts: Parts,
        seed: int,
        **options: Any,
    ) -> pd.DataFrame:
        """Train on rows of which some are held out; options: as for `train`."""
        weights = weights if by_class is None else weights * by_class[codes]
        y = torch.as_tensor(codes)
        rows, held = torch.as_tensor(parts.training), torch.as_tensor(parts.validation)
        return self._train(
            model,
            encoder,
            tuple(part[rows] for part in inputs),
            y[rows],
            (tuple(part[held] for part in inputs), y[held]) if len(held) else None,
            None if (weights == 1).all() else torch.as_tensor(weights)[rows],
            by_class,
            seed,
            **options,
        )

    def _train(
        self,
        model: WeightedAverage,
        encoder: Encoder,
        x: Inputs,
        y: torch.Tensor,
        validation: tuple[Inputs, torch.Tensor] | None,
        weights: torch.Tensor | None,
        by_class: Floats | None,
        seed: int,
        **options: Any,
    ) -> pd.DataFrame:
        """Train with the settings of the estimator, or else of the encoder's recipe; options: as for `train`."""
        recipe, cuda = encoder.recipe, model.device.type == "cuda"
        settings = {
            name: getattr(recipe, name) if getattr(self, name) is None else getattr(self, name)
            for name in ("epochs", "batch_size", "learning_rate", "weight_decay", "patience")
        }
        settings["beta2"] = recipe.beta2
        for name in ("mixed_precision", "compiled"):
            asked = getattr(self, name)
            settings[name] = cuda and getattr(recipe, name) if asked == "auto" else asked
        settings["raw_features"] = self.raw_features and self.embedding_size is None
        settings["look_alikes"] = self.look_alikes
        with progress_bar("training", settings["epochs"], show=self.verbose) as watch:
            return training.train(
                model,
                x,
                y,
                validation=validation,
                weights=weights,
                class_weights=None if by_class is None else by_class.tolist(),
                augment=encoder.augment,
                rescale=self.rescale,
                checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
                seed=seed,
                **watch,
                **settings | options,
            )

    def _cross_fit(
        self,
        model: WeightedAverage,
        inputs: Inputs,
        codes: NDArray[np.int64],
        weights: Floats,
        by_class: Floats | None,
        folds: torch.Tensor,
        seed: int,
        linear_start: bool,
    ) -> pd.DataFrame:
        weights = weights if by_class is None else weights * by_class[codes]
        with progress_bar("training", 10, show=self.verbose) as watch:
            return training.cross_fit(
                model,
                inputs,
                torch.as_tensor(codes),
                folds,
                weights=None if (weights == 1).all() else torch.as_tensor(weights),
                class_weights=None if by_class is None else by_class.tolist(),
                rescale=self.rescale,
                base_votes=self._base_votes,
                linear_start=linear_start,
                seed=seed,
                **watch,
            )


def agreed_seed() -> int | None:
    """A random seed that all processes have; None for a single one, which needs none."""
    ranks = shared()
    return None if ranks is None else int(ranks.agreed([check_random_state(None).randint(2**31 - 1)])[0])


def grouped(groups: Iterable[Hashable], names: pd.Index[Any], argument: str) -> pd.Series[Any]:
    """The groups of rows, by their ids. argument: how the caller named them."""
    given = list(groups)
    if len(given) != len(names):
        raise ShapeError(f"{argument} must have one name per row; X has {len(names)} rows; got {len(given)}")
    for row, group in enumerate(given):
        if not isinstance(group, Hashable) or group is None or group is pd.NA or group != group:
            raise InputError(
                f"{argument} must be names that can be compared, such as texts; got {group!r:.60} at row {row}"
            )
    return pd.Series(given, index=names, dtype=object)


def together(groups: Iterable[Hashable], names: pd.Index[Any]) -> Ints:
    """(n,): the number of each row's group, whose rows stay together in folds, validation and calibration."""
    codes = pd.factorize(grouped(groups, names, "groups"))[0].astype(np.int64)
    found = int(codes.max()) + 1
    if found < FOLDS:
        raise InputError(
            f"groups must be at least {FOLDS}, so that some train and others judge; got {found}; leave groups out if "
            "rows of one group are as different as rows of several"
        )
    return codes


def _width(X: Any) -> int:
    """The number of columns of a table."""
    return int(X.shape[1]) if getattr(X, "ndim", 0) == 2 else len(X[0]) if isinstance(X, list) and X else 0
