"""Checks of the estimator's settings: everything that can be checked before seeing the data."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dwac import _checks as checks
from dwac.encoders import Encoder
from dwac.errors import InputError
from dwac.kernels import get_kernel
from dwac.nn.ranks import gpus_are_own
from dwac.training.cross_fit import FEWEST

_CHOICES: dict[str, tuple[Any, ...]] = {
    "nonconformity": ("auto", "weights", "probability"),
    "mixed_precision": (True, False, "auto"),
    "compiled": (True, False, "auto"),
    "verbose": (True, False, "auto"),
    "rescale": (True, False),
    "raw_features": (True, False),
    "look_alikes": (True, False),
    "class_conditional": (True, False),
    "cross_fit": (True, False, "auto"),
    "ordered": (True, False, "auto"),
    "average": ("mean", "median"),
    "unknown": ("atypical", "missing", "refuse"),
}
# Settings of the training loop, which cross-fitting does without.
_OTHER_WAYS = (
    "embedding_size", "ensemble_size", "auxiliary_weight", "epochs", "batch_size", "learning_rate", "weight_decay",
    "patience", "validation_size", "calibration_size", "checkpoint",
)  # fmt: skip
SMALL_TABLE, _COLUMNS = 4_000, 1_000  # below so many rows, and up to so many columns, "auto" cross-fits
_WHOLE = ("epochs", "batch_size", "patience", "embedding_size", "ensemble_size")
_RATES = ("learning_rate", "weight_decay", "penalty", "auxiliary_weight")


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise an error that names the first invalid setting."""
    get_kernel(settings["kernel"])
    for name, choices in _CHOICES.items():
        if name in settings and not any(
            type(settings[name]) is type(choice) and settings[name] == choice for choice in choices
        ):
            raise InputError(f"{name} must be {' or '.join(map(repr, choices))}; got {settings[name]!r}")
    for name in _WHOLE:
        if settings[name] is not None:  # in a batch of one there is nobody to vote
            checks.positive_int(settings[name], name, minimum=2 if name == "batch_size" else int(name != "patience"))
    for name in _RATES:
        if settings.get(name) is not None:
            _check_rate(name, settings[name])
    if settings["voters"] not in (None, "all", "auto"):
        if isinstance(settings["voters"], str):
            raise InputError(f"voters must be 'all', 'auto' or a whole number; got {settings['voters']!r}")
        checks.positive_int(settings["voters"], "voters")
    if settings["shards"] is not None:
        _check_shards(settings)
    if settings["checkpoint"] is not None:
        _check_checkpoint(settings["checkpoint"], settings["random_state"])
    device_of(settings["device"])


def _check_shards(settings: Mapping[str, Any]) -> None:
    """Refuse what would let rows of one shard reach the network of another, or depends on how many rows there are."""
    checks.positive_int(settings["shards"], "shards", minimum=2)
    wrong = [name for name in ("ensemble_size", "checkpoint") if settings[name] is not None]
    wrong += ["cross_fit"] * (settings["cross_fit"] is True) + ["voters"] * (settings["voters"] not in (None, "all"))
    if wrong:
        raise InputError(
            f"with shards, {wrong[0]} must be left out; got {settings[wrong[0]]!r}; each shard has one network"
        )
    sizes = {name: settings[name] for name in ("validation_size", "calibration_size") if settings[name] is not None}
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int | float | np.number) or not 0 <= size < 1:
            raise InputError(
                f"with shards, {name} must be a share in [0, 1); got {size!r}; a number of rows would make the part of "
                "one row depend on the others"
            )
    if sum(sizes.values()) >= 1:
        raise InputError("with shards, validation_size and calibration_size must leave rows to train on")


def cross_fitted(settings: Mapping[str, Any], encoder: Encoder, n: int, columns: int) -> bool:
    """Whether n rows of so many columns are cross-fitted; cross_fit=True raises an error that says why they cannot be.

    "auto" leaves alone whoever says how to train: it applies to default settings.
    """
    asked = settings["cross_fit"]
    if asked is False:
        return False
    table = (
        settings["encoder"] in ("auto", "tabular", "tabular:wide") if isinstance(settings["encoder"], str) else False
    )
    given = [name for name in _OTHER_WAYS if settings.get(name) is not None]
    wrong = ""
    if encoder.kind != "tabular" or not table:
        wrong = f"a table with encoder='auto' or 'tabular'; got {settings['encoder']!r:.80} for {encoder.kind} data"
    elif given:
        wrong = f"no settings of other ways to train; got {given[0]}={settings[given[0]]!r}"
    elif n < FEWEST:
        wrong = f"at least {FEWEST} rows; got {n}"
    elif columns > _COLUMNS:
        wrong = f"at most {_COLUMNS:,} columns; got {columns:,}"
    if asked is True and wrong:
        raise InputError(f"cross_fit=True needs {wrong}; change that, or use cross_fit='auto'")
    return not wrong and (asked is True or n < SMALL_TABLE)


def _check_rate(name: str, value: Any) -> None:
    positive = name == "learning_rate"
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 <= value < float("inf") or (positive and value == 0):
        raise InputError(f"{name} must be a finite number, {'positive' if positive else 'at least 0'}; got {value!r}")


def _check_checkpoint(path: Any, random_state: Any) -> None:
    if not isinstance(path, str | PathLike):
        raise InputError(f"checkpoint must be the path of a file; got {path!r}")
    if not Path(path).absolute().parent.is_dir():
        raise InputError(f"checkpoint must be in an existing folder; the folder of {path} does not exist; create it")
    if not isinstance(random_state, int | np.integer):
        raise InputError(
            "checkpoint needs a whole number as random_state; otherwise a resumed fit would split the rows differently"
        )


def device_of(name: Any) -> torch.device:
    """The device with this name; "auto" is a GPU if there is one, else the CPU."""
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() and gpus_are_own() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(
            f"device must be 'auto' or an available device, such as 'cpu'; got {name!r}: {error}"
        ) from None
    return device
