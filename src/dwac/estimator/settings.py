"""The settings of an estimator as a value, and all checks of them that need no data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np
import torch

from dwac import _checks as checks
from dwac.encoders import Encoder
from dwac.errors import InputError
from dwac.kernels import get_kernel
from dwac.nn.ranks import owns_gpu, sharing_ranks
from dwac.training.cross_fit import FEWEST

P = ParamSpec("P")
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
# Settings of the training loop, which cross-fitting does not use.
_OTHER_WAYS = (
    "embedding_size", "ensemble_size", "auxiliary_weight", "epochs", "batch_size", "learning_rate", "weight_decay",
    "patience", "validation_size", "calibration_size", "checkpoint",
)  # fmt: skip
SMALL_TABLE, _COLUMNS = 4_000, 1_000  # "auto" cross-fits below this number of rows, and up to this number of columns
MIDDLE_TABLE = 30_000  # below this number of rows, "auto" fits a table both ways, and held-out votes choose
SMALL_TEXTS = 30_000  # "auto" cross-fits fewer texts than this
_WHOLE = ("epochs", "batch_size", "patience", "embedding_size", "ensemble_size")
_RATES = ("learning_rate", "weight_decay", "penalty", "auxiliary_weight")


@dataclass(frozen=True, kw_only=True, repr=False)
class Training:
    """Advanced settings: how networks are trained and their embeddings joined.

    >>> import dwac
    >>> dwac.DWACClassifier(epochs=20, training=dwac.Training(learning_rate=1e-2, batch_size=64))
    DWACClassifier(epochs=20, training=Training(batch_size=64, learning_rate=0.01))

    Settings left at None follow the encoder's recipe. A search over settings names them as scikit-learn does:
    `GridSearchCV(clf, {"training__learning_rate": [1e-3, 1e-2]})`. The object itself never changes.

    Args:
        embedding_size: |h|, for each network of the ensemble.
        ensemble_size: how many networks to train side by side. Their embeddings are joined, so a prediction is still
            one vote of training examples. More accurate, and as many times slower. By default as many as are
            known to help: on a CPU mostly 1.
        penalty: weight of mean ‖h‖² in the loss.
        auxiliary_weight: weight of an auxiliary softmax cross-entropy in the loss. It takes no part in predictions. Not
            for numbers.
        batch_size: rows per training step; they vote on one another.
        learning_rate: the peak of the one-cycle schedule.
        weight_decay: AdamW's weight decay.
        patience: training stops after this many epochs without a lower validation loss, and keeps the best weights.
            With 0 all epochs run, and the last weights are kept.
        rescale: after training, fit the scale of the embeddings to the validation rows, for calibrated probabilities.
        raw_features: for a table, add its raw numbers to the embedding, with a weight fitted to the validation rows:
            voters are then similar in both. (Not if `embedding_size` is given.) In any case typicality compares raw
            rows, too. False does neither, and keeps no numbers of rows.
        look_alikes: give the nearest voters more weight, by a second, narrower kernel, if that improves validation
            rows. Not for representatives (`voters`, `condense`).
        mixed_precision: compute the network in bfloat16: True, False, or "auto" (on a GPU, where it helps).
        compiled: replay training steps as a CUDA graph: True, False, or "auto" (on a GPU, where it helps).
        ignored: a column of a table, or a list of columns, that the model must not learn from. Rows have it all the
            same, for example for guarantees in each of its values (`within`).
    """

    embedding_size: int | None = None
    ensemble_size: int | None = None
    penalty: float | None = None
    auxiliary_weight: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    patience: int | None = None
    rescale: bool = True
    raw_features: bool = True
    look_alikes: bool = True
    mixed_precision: bool | str = "auto"
    compiled: bool | str = "auto"
    ignored: Any = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name; scikit-learn turns them into names such as `training__learning_rate`."""
        del deep
        return dict(vars(self))

    def __repr__(self) -> str:
        """The settings that differ from the defaults."""
        usual = {each.name: each.default for each in fields(self)}
        changed = {name: value for name, value in vars(self).items() if repr(value) != repr(usual[name])}
        return f"Training({_written(changed)})"


@dataclass(frozen=True, eq=False, kw_only=True)
class FitSettings(Training):
    """The settings of `DWACClassifier` or `DWACRegressor`, with those of `Training` among them.

    Settings that an estimator does not have keep their defaults.
    """

    regression: bool  # whether numbers are predicted
    encoder: Any = "auto"
    kernel: str = "gaussian"
    shards: int | None = None
    epochs: int | None = None
    validation_size: float | None = None
    calibration_size: float | None = None
    cross_fit: bool | str = "auto"
    nonconformity: str = "auto"
    ordered: bool | str = "auto"
    class_conditional: bool = False
    class_weight: Any = None
    within: Any = None
    average: str = "mean"
    unknown: str = "atypical"
    voters: str | int | None = None
    checkpoint: str | PathLike[str] | None = None
    device: str = "auto"
    random_state: Any = None
    verbose: bool | str = "auto"

    def or_recipe(self, name: str, encoder: Encoder) -> Any:
        """A setting, or the value of the encoder's recipe if it is None."""
        value = getattr(self, name)
        return getattr(encoder.recipe, name) if value is None else value

    def check(self) -> None:
        """Raise an error that names the first invalid setting."""
        get_kernel(self.kernel)
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if not any(type(value) is type(choice) and value == choice for choice in choices):
                raise InputError(f"{name} must be {' or '.join(map(repr, choices))}; got {value!r}")
        for name in _WHOLE:
            if (value := getattr(self, name)) is not None:  # a batch of one has no voters
                checks.positive_int(value, name, minimum=2 if name == "batch_size" else int(name != "patience"))
        for name in _RATES:
            if (value := getattr(self, name)) is not None:
                _check_rate(name, value)
        if self.regression and self.auxiliary_weight is not None:
            raise InputError(f"auxiliary_weight is not for numbers; got {self.auxiliary_weight!r}; leave it out")
        for setting in ("within", "ignored"):
            columns = getattr(self, setting)
            if not {*map(type, listed_columns(columns))} <= {str, int}:
                raise InputError(f"{setting} must be the name of a column, or a list of names; got {columns!r:.80}")
        if self.voters not in (None, "all", "auto"):
            if isinstance(self.voters, str):
                raise InputError(f"voters must be 'all', 'auto' or a whole number; got {self.voters!r}")
            checks.positive_int(self.voters, "voters")
        if self.shards is not None:
            _check_shards(self)
        if self.checkpoint is not None:
            _check_checkpoint(self.checkpoint, self.random_state)
        device_of(self.device)


def listed_columns(names: Any) -> list[Any]:
    """The columns that a setting names: one, several or, if it is None, none."""
    return [] if names is None else list(names) if isinstance(names, list | tuple) and names else [names]


NAMES = frozenset(field.name for field in fields(Training))


def flat(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of an estimator, with the settings of its `training` among them."""
    training = Training() if parameters["training"] is None else parameters["training"]
    if not isinstance(training, Training):
        raise InputError(f"training must be dwac.Training(…) or None; got {training!r:.80}")
    return {name: value for name, value in parameters.items() if name != "training"} | training.get_params()


def parameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of an estimator from flat settings; those of `Training` become one object."""
    training = Training(**{name: value for name, value in settings.items() if name in NAMES})
    others = {name: value for name, value in settings.items() if name not in NAMES}
    return others if training == Training() else {**others, "training": training}


def refuse_moved(given: Mapping[str, Any]) -> None:
    """Raise an error for settings of `Training` that were given to the estimator; it says where they belong."""
    if moved := _written({name: value for name, value in given.items() if name in NAMES}):
        raise InputError(f"{moved}: how to train is set in one object; use training=dwac.Training({moved})")


def _written(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def takes_training(init: Callable[P, None]) -> Callable[P, None]:
    """Make `__init__` say where a setting of `Training` belongs; Python would only call it unexpected."""

    @wraps(init)
    def checked(*args: P.args, **given: P.kwargs) -> None:
        refuse_moved(given)
        init(*args, **given)

    return checked


def _check_shards(settings: FitSettings) -> None:
    """Refuse settings that let rows of one shard reach another's network, or that depend on the number of rows."""
    checks.positive_int(settings.shards or 0, "shards", minimum=2)
    wrong = [name for name in ("ensemble_size", "checkpoint") if getattr(settings, name) is not None]
    wrong += ["cross_fit"] * (settings.cross_fit is True) + ["voters"] * (settings.voters not in (None, "all"))
    if wrong:
        raise InputError(
            f"with shards, {wrong[0]} must be left out; got {getattr(settings, wrong[0])!r}; each shard has one network"
        )
    sizes = {"validation_size": settings.validation_size, "calibration_size": settings.calibration_size}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int | float | np.number) or not 0 <= size < 1:
            raise InputError(
                f"with shards, {name} must be a share in [0, 1); got {size!r}; a number of rows would make the part of "
                "one row depend on the others"
            )
    if sum(size for size in sizes.values() if size is not None) >= 1:
        raise InputError("with shards, validation_size and calibration_size must leave rows to train on")


def other_ways(settings: FitSettings) -> list[str]:
    """The settings that say how to train, which cross-fitting does not use."""
    return [name for name in _OTHER_WAYS if getattr(settings, name) is not None]


def ways_of(settings: FitSettings, encoder: Encoder, n: int, columns: int, *, classes: bool) -> tuple[bool, ...]:
    """How n rows with this many columns are fitted: cross-fitted (True), with rows held out (False), or both ways.

    classes: whether one label per row is predicted, as texts need it.

    "auto" applies to default settings only: not if a setting says how to train. With cross_fit=True, an error says why
    rows cannot be cross-fitted.
    """
    setting = settings.cross_fit
    if setting is False:
        return (False,)
    usual = isinstance(settings.encoder, str) and settings.encoder in (
        ("auto", "text", "text:linear") if encoder.kind == "text" else ("auto", "tabular", "tabular:wide")
    )
    given = other_ways(settings)
    wrong = ""
    if encoder.kind not in ("tabular", "text") or not usual:
        wrong = (
            f"encoder='auto', 'tabular' or 'text', and not images; got {settings.encoder!r:.80} for {encoder.kind} data"
        )
    elif encoder.kind == "text" and not classes:
        wrong = "one label per text; got numbers or several labels"
    elif given:
        wrong = f"no settings of other ways to train; got {given[0]}={getattr(settings, given[0])!r}"
    elif n < FEWEST:
        wrong = f"at least {FEWEST} rows; got {n}"
    elif columns > _COLUMNS:
        wrong = f"at most {_COLUMNS:,} columns; got {columns:,}"
    if setting is True and wrong:
        raise InputError(f"cross_fit=True needs {wrong}; change that, or use cross_fit='auto'")
    texts, linear = encoder.kind == "text", usual and settings.encoder == "text:linear"
    if wrong or setting is True or linear or n < (SMALL_TEXTS if texts else SMALL_TABLE):
        return (not wrong,)
    both = not texts and (classes or settings.regression) and n < MIDDLE_TABLE and sharing_ranks() is None
    return (True, False) if both else (False,)


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
        return torch.device("cuda" if torch.cuda.is_available() and owns_gpu() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(
            f"device must be 'auto' or an available device, such as 'cpu'; got {name!r}: {error}"
        ) from None
    return device
