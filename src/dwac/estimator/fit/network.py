"""A new network and its training, with the settings of the estimator or, by default, of the encoder's recipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from dwac import training
from dwac.encoders import Encoder, TabularEncoder, TextEncoder, backbone
from dwac.encoders.text_networks import LinearNetwork
from dwac.errors import InputError
from dwac.estimator.novelty import Novelty
from dwac.estimator.preparation import class_weights
from dwac.estimator.settings import FitSettings, listed_columns
from dwac.nn import WeightedAverage
from dwac.nn.batches import Inputs
from dwac.nn.ranks import sharing_ranks
from dwac.tasks import Loss, Target
from dwac.training.cross_fit import FOLDS
from dwac.training.cross_fit import cross_fit as train_folds
from dwac.training.lines import cross_fit_lines
from dwac.training.progress import progress_bar

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROOM = 16  # the least |h| if there are more classes than the encoder's usual |h|


class EncodedRows(NamedTuple):
    """Rows as inputs of a network, and their outcomes."""

    inputs: Inputs
    codes: Ints  # (n,)
    ids: pd.Index[Any]
    exact: Floats  # (n, T) numbers, or (n, L) labels as 0 and 1; (n, 0) for classes

    def at(self, places: Ints) -> EncodedRows:
        """The rows at these positions."""
        inputs = tuple(part[places] for part in self.inputs)
        return EncodedRows(inputs, self.codes[places], self.ids[places], self.exact[places])


class TrainingRows(NamedTuple):
    """Rows as inputs of a network, the codes of their outcomes, and their weights in the loss."""

    inputs: Inputs
    y: torch.Tensor  # (n,)
    weights: torch.Tensor | None = None  # (n,); None if all count the same

    @classmethod
    def of(cls, inputs: Inputs, codes: Ints, weights: Floats, by_class: Floats | None) -> TrainingRows:
        """Rows whose weights are multiplied by those of their classes."""
        weights = weights if by_class is None else weights * by_class[codes]
        return cls(inputs, torch.as_tensor(codes), None if (weights == 1).all() else torch.as_tensor(weights))

    def at(self, places: Ints | torch.Tensor) -> TrainingRows:
        """Some of the rows, by a mask or by position."""
        rows = torch.as_tensor(places)
        inputs = tuple(part[rows] for part in self.inputs)
        return TrainingRows(inputs, self.y[rows], None if self.weights is None else self.weights[rows])


def new_model(
    settings: FitSettings,
    encoder: Encoder,
    target: Target,
    ensemble_size: int,
    size: int | None = None,
    n_features: int | None = None,
    *,
    loss: Loss | None = None,
    groups: int = 1,
) -> WeightedAverage:
    """A new network; with n_features given, one of a stored model's size, to be filled with its weights.

    groups: how many groups it tells apart, each with outcomes of its own, until they are merged.
    """
    outputs = target.n_outputs * groups
    usual = encoder.recipe.embedding_size or outputs
    if usual < outputs:
        usual = max(usual, _ROOM)
    usual = max(usual, target.least_size)
    terms = {name: settings.or_recipe(name, encoder) for name in ("penalty", "auxiliary_weight")}
    if n_features is not None or not target.cross_entropy:
        terms["auxiliary_weight"] = 0.0  # predictions do not need the auxiliary head, and it is not stored
    return WeightedAverage(
        backbone(encoder, ensemble_size),
        target.n_codes * groups,
        size or settings.embedding_size or usual,
        kernel=settings.kernel,
        n_features=n_features,
        **({} if loss is None else loss._asdict()),
        **terms,
    )


def train(
    settings: FitSettings,
    model: WeightedAverage,
    encoder: Encoder,
    rows: TrainingRows,
    validation: TrainingRows,
    by_class: Floats | None,
    seed: int,
    **options: Any,
) -> pd.DataFrame:
    """Train on `rows`; `validation` says when to stop, if it has any. options: as for `dwac.training.train`."""
    if isinstance(encoder, TextEncoder) and encoder.settings["network"] == "linear":
        raise InputError(
            "linear scores of texts are cross-fitted: that needs encoder='text:linear', one label per text, and no "
            "setting that says how to train; or use encoder='text'"
        )
    names = ("epochs", "batch_size", "learning_rate", "weight_decay", "patience")
    given: dict[str, Any] = {name: settings.or_recipe(name, encoder) for name in names}
    for name in ("mixed_precision", "compiled"):
        value = getattr(settings, name)
        given[name] = model.device.type == "cuda" and getattr(encoder.recipe, name) if value == "auto" else value
    given |= {
        "beta2": encoder.recipe.beta2,
        "raw_features": settings.raw_features and settings.embedding_size is None,
        "look_alikes": settings.look_alikes,
        "rescale": settings.rescale,
        "checkpoint": None if settings.checkpoint is None else Path(settings.checkpoint),
    }
    with progress_bar("training", given["epochs"], show=settings.verbose) as watch:
        return training.train(
            model,
            rows.inputs,
            rows.y,
            validation=(validation.inputs, validation.y) if len(validation.y) else None,
            weights=rows.weights,
            class_weights=None if by_class is None else by_class.tolist(),
            augment=encoder.augment,
            seed=seed,
            **watch,
            **given | options,
        )


def cross_fit(
    settings: FitSettings,
    model: WeightedAverage,
    target: Target,
    rows: TrainingRows,
    by_class: Floats | None,
    folds: torch.Tensor,
    seed: int,
) -> pd.DataFrame:
    """Train the networks of a cross-fitted model, or linear classifiers of texts, each without one fold of the rows."""
    lines = isinstance(model.backbone, LinearNetwork)
    with progress_bar("training", FOLDS if lines else 10, show=settings.verbose) as watch:
        fit: Any = cross_fit_lines if lines else partial(train_folds, linear_start=target.linear_start)
        history: pd.DataFrame = fit(
            model,
            rows.inputs,
            rows.y,
            folds,
            weights=rows.weights,
            class_weights=None if by_class is None else by_class.tolist(),
            rescale=settings.rescale,
            base_votes=settings.nonconformity != "weights",  # every example may have a vote at any distance
            seed=seed,
            **watch,
        )
        return history


def name_voters(
    settings: FitSettings,
    model: WeightedAverage,
    encoder: Encoder,
    target: Target,
    rows: EncodedRows,
    by_class: Floats | None,
) -> Novelty:
    """Give the voters that a model remembers their ids and numbers; returns how novelty beside them is measured.

    rows: the voters, in the order in which the model remembers them.
    """
    numbers = target.numbers_of_voters(rows.exact)
    model.references = model.references.replaced(ids=rows.ids.tolist(), class_weights=by_class, targets=numbers)
    return Novelty.of(model, encoder, rows.inputs, raw_features=settings.raw_features)


# What the settings, the target and other processes decide


def class_weights_of(settings: FitSettings, target: Target, codes: Ints) -> Floats | None:
    """(K,) factors on the votes and losses of the outcomes, given the codes of the training rows."""
    if settings.class_weight is not None and not target.has_codes:
        raise InputError("class_weight is for one label per row; y has several; use sample_weight")
    return class_weights(settings.class_weight, codes, target.outcomes)


def encoder_for_target(settings: FitSettings, encoder: Encoder) -> Encoder:
    """The encoder that suits the target, if the settings name none."""
    usual = isinstance(settings.encoder, str) and settings.encoder in ("auto", "tabular")
    return TabularEncoder(network="numbers") if settings.regression and usual and encoder.kind == "tabular" else encoder


def ignore_columns(settings: FitSettings, encoder: Encoder) -> Encoder:
    """The same encoder, which ignores the columns that the settings name."""
    if settings.ignored is None:
        return encoder
    if not isinstance(encoder, TabularEncoder):
        raise InputError(f"ignored={settings.ignored!r} names columns of a table; X is no table; leave it out")
    encoder.settings["ignored"] = listed_columns(settings.ignored)
    return encoder


def random_generator(settings: FitSettings) -> np.random.RandomState:
    """The generator that the settings ask for; if they ask for none, all processes share one."""
    seed, ranks = settings.random_state, sharing_ranks()
    if seed is None and ranks is not None:
        seed = int(ranks.broadcast_numbers([check_random_state(None).randint(2**31 - 1)])[0])
    rng: np.random.RandomState = check_random_state(seed)
    return rng


@contextmanager
def own_seed(seed: int, device: torch.device) -> Iterator[None]:
    """Make torch's draws inside follow from the seed, and leave its own generators unchanged."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
