"""The values and the network of a stored model, checked before they are used and before they take any memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dwac import _checks as checks
from dwac.drawing.legend import ColumnName, Legend
from dwac.encoders import Encoder, ImageEncoder, ModuleEncoder, backbone
from dwac.encoders.sharded import Sharded
from dwac.errors import InputError, StorageError
from dwac.estimator.saving import MOST_BYTES, NETWORK
from dwac.explain.profiles import Profile, read_profile
from dwac.metrics import Agreement
from dwac.nn import Ensemble, WeightedAverage
from dwac.storage import Stored, decode_value
from dwac.tasks.shift import Shift

_WHOLE = (  # tensors of whole numbers
    "ref_y", "ref_leaf", "leaf_group", "calibration_y", "validation_y", "known_rows", "folds", "shard_codes",
    "shard_shard", "shard_role", "fold_y", "fold_known",
)  # fmt: skip
_SAME_SHAPE = ("mul", "__mul__", "__rmul__", "div", "__truediv__", "div_", "normal_", "uniform_")


def require(condition: Any, message: str) -> None:
    """Raise an error about the contents of a folder unless the condition holds."""
    if not condition:
        raise StorageError(message)


# Values


def read_ids(values: Any) -> pd.Index[Any]:
    """Distinct ids."""
    require(isinstance(values, list), f"ids must be a list; got {values!r:.100}")
    index: pd.Index[Any] = pd.Index([decode_value(value) for value in values], tupleize_cols=False)
    if not index.is_unique:
        raise StorageError(f"ids must be unique; {index[index.duplicated()][0]!r} is repeated")
    return index


def read_weight(value: Any, *, possible: bool) -> float:
    """The weight of the raw features."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
    require(
        number and (possible or not value),
        f"its raw_feature_weight must be a number of at least 0, and 0 without coordinates; got {value!r}",
    )
    return float(value)


def read_group_count(value: Any, n: int) -> int | None:
    """How many groups the n calibration rows belong to; None if they belong to none."""
    fits = value is None or (type(value) is int and value > 0)
    require(fits, f"calibration_groups must be how many groups calibrated, or null; got {value!r:.60}")
    return None if value is None else min(value, n) or None  # until 1.0.0rc1, `forget` did not count again


def read_shift(values: Any, coefficients: Tensor | None, n_folds: int, size: int) -> Shift | None:
    """How calibration rows are weighted for rows from elsewhere; size: of embeddings, in all folds together."""
    if values is None:
        return None
    fits = (
        isinstance(values, list)
        and [type(value) for value in values] == [int, float]
        and isinstance(coefficients, Tensor)
        and coefficients.dtype == torch.float64
        and coefficients.shape == (n_folds, size // n_folds + 1)
        and bool(coefficients.isfinite().all())
    )
    require(fits, f"its shift must be a number of rows, a share, and finite coefficients; got {values!r:.60}")
    assert coefficients is not None
    return Shift(coefficients.numpy(), values[0], values[1])


def read_groups(values: Any, ids: pd.Index[Any]) -> pd.Series[Any] | None:
    """The groups of the calibration rows, by id."""
    if values is None:
        return None
    fits = isinstance(values, list) and len(values) == len(ids)
    require(fits, f"its groups must be a list of {len(ids)} names, one per calibration row; they are not")
    return pd.Series([decode_value(value) for value in values], index=ids, dtype=object)


def read_agreement(value: Any) -> Agreement | None:
    """How often representatives agree with all."""
    if value is None:
        return None
    wrong = f"its agreement must be three shares and a number of rows; got {value!r:.100}"
    require(isinstance(value, list) and len(value) == 4 and all(isinstance(v, int | float) for v in value), wrong)
    share, low, high, n = value
    require(type(n) is int and n >= 1 and 0 <= low <= share <= high <= 1, wrong)
    return Agreement(float(share), float(low), float(high), n)


def read_descriptions(value: Any, n_groups: int) -> list[str | None] | None:
    """What sets each group of voters apart."""
    texts = isinstance(value, list) and len(value) == n_groups and all(isinstance(v, str | None) for v in value)
    require(value is None or texts, f"its descriptions must be {n_groups} texts, one per group of voters; they are not")
    descriptions: list[str | None] | None = value
    return descriptions


def read_legend(values: Any) -> Legend:
    """What columns and codes are called."""
    try:
        names = {decode_value(column): ColumnName(title, unit, dict(codes)) for column, title, unit, codes in values}
        texts = [text for name in names.values() for text in (*name[:2], *name.codes, *name.codes.values())]
    except (TypeError, ValueError) as error:
        raise StorageError(f"its names of columns are damaged: {error}; save the model again") from error
    require(all(isinstance(text, str) for text in texts), "its names of columns must be texts; they are not")
    return Legend(names)


def read_groups_profile(values: Any, shares: Tensor | None, n_groups: int) -> Profile | None:
    """How each column is spread in each group of voters; None if that is not stored."""
    if values is None or shares is None:
        return None
    try:
        named = [{**each, "name": decode_value(each["name"])} for each in values.get("columns", [])]
        profile = read_profile(values | ({"columns": named} if named else {}), shares.double().numpy())
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise StorageError(f"its profile of groups is damaged: {error}; save the model again") from error
    require(len(profile.sizes) == n_groups, f"its profile must be of {n_groups} groups; it is of {len(profile.sizes)}")
    return profile


# The network


def sizes_of(stored: Stored, encoder: Encoder, module: nn.Module | None = None) -> tuple[int, int, int]:
    """(number of networks, size of h of each, width of its features) of the network to build.

    An error if they differ from those of the stored tensors.
    """
    config, tensors = stored.config, stored.tensors
    ensemble_size = checks.positive_int(config["ensemble_size"], "ensemble_size")
    held = _stored_networks(tensors)
    if ensemble_size > 1 and ensemble_size != held:
        raise StorageError(f"its config has {ensemble_size} networks; {held} are stored")
    joined = len(module) if isinstance(module, Ensemble) else ensemble_size + encoder.n_beside
    # Not from the recipe, which may have changed since.
    setting = None if isinstance(encoder, Sharded) else config["settings"]["embedding_size"]
    size = setting or len(tensors["embedding.bias"]) // joined
    n_features = int(tensors["embedding.weight"].shape[1])
    _check_shapes("embedding", {"weight": (joined * size, n_features), "bias": (joined * size,)}, tensors)
    encoder.check()
    _check_numbers({name: value for name, value in tensors.items() if name not in stored.rows})
    if not isinstance(encoder, ModuleEncoder):
        rehearse(encoder, ensemble_size, tensors)
    return ensemble_size, size, n_features


def _stored_networks(tensors: Mapping[str, Tensor]) -> int:
    """How many networks of an ensemble are stored: one by one, or stacked in one tensor."""
    stacked = tensors.get("backbone.weight")
    if stacked is not None and stacked.ndim == 3:
        return len(stacked) + len(tensors.get("backbone.scores", ()))
    return len({name.split(".")[2] for name in tensors if name.startswith("backbone.members.")})


def load_weights(model: WeightedAverage, tensors: Mapping[str, Tensor]) -> None:
    """Give a new network its stored weights, which must be finite numbers."""
    for part in NETWORK:
        network = getattr(model, part, None)
        if isinstance(network, nn.Module):
            _check_shapes(part, {name: tuple(value.shape) for name, value in network.state_dict().items()}, tensors)
            network.load_state_dict(_weights_of(part, tensors))
            _check_weights(part, network)


def _weights_of(part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(f"{part}."): value for name, value in tensors.items() if name.startswith(f"{part}.")}


def _check_shapes(part: str, wanted: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Tensor]) -> None:
    """Compare the shapes that a network needs with the stored ones."""
    held = {name: tuple(value.shape) for name, value in _weights_of(part, tensors).items()}
    for name in {**wanted, **held}:
        if wanted.get(name) != held.get(name):
            raise StorageError(
                f"{part}.{name} must have shape {wanted.get(name, 'none: the network has no such weights')}; "
                f"{held.get(name, 'nothing')} is stored; "
                "give the module that the model was trained with, or restore the folder from a copy"
            )


def _check_weights(part: str, network: nn.Module) -> None:
    running = [
        (name, value) for name, value in network.named_buffers() if name.endswith(("running_mean", "running_var"))
    ]
    for name, value in [*network.named_parameters(), *running]:
        if not bool(value.isfinite().all()) or (name.endswith("running_var") and bool((value < 0).any())):
            raise StorageError(f"{part}.{name} must hold finite numbers; it does not; restore the folder from a copy")


def _check_numbers(tensors: Mapping[str, Tensor]) -> None:
    """Check dwac's own tensors: labels and rows must be whole numbers, everything else real and finite."""
    for name, value in tensors.items():
        if name.startswith("backbone.") or name == "shard_images":
            continue
        whole = name in _WHOLE
        real = value.is_floating_point() and bool(value.float().isfinite().all())
        right = value.dtype == torch.int64 if whole else real
        if not right:
            raise StorageError(f"{name} must hold {'whole' if whole else 'finite'} numbers; it is of {value.dtype}")


class _Rehearsal(TorchFunctionMode):
    """Counts operations; constants (category counts, means) stay real, because a network may compute with them."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.calls = most, 0

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        if self.calls > self.most:
            raise StorageError("its config describes a network of many more layers than are stored")
        kwargs = {"device": "cpu", **(kwargs or {})} if function is torch.tensor else kwargs or {}
        # Computing without memory would import PyTorch's compiler, which takes seconds, only to find shapes.
        if function in (torch.randn, torch.rand):
            function = torch.empty
        elif getattr(function, "__name__", "") in _SAME_SHAPE:
            tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
            if len(tensors) == 1 and tensors[0].is_meta:
                return tensors[0]
        return function(*args, **kwargs)


def rehearse(encoder: Encoder, ensemble_size: int, tensors: Mapping[str, Tensor]) -> None:
    """Build the network without memory and compare shapes: a few characters of JSON could ask for terabytes."""
    # If building is interrupted, a torch.no_grad() might not be undone, because undoing it is an operation too.
    try:
        as_it_was = torch.set_grad_enabled(torch.is_grad_enabled())
        with as_it_was, torch.device("meta"), _Rehearsal(10_000 + 100 * len(tensors)):
            network = backbone(encoder, ensemble_size)
    except (RuntimeError, NotImplementedError, InputError):
        if isinstance(encoder, ImageEncoder) and encoder.settings["network"].startswith("timm:"):
            return  # some timm networks cannot be built this way; their size follows from their name, not the folder
        raise
    state = network.state_dict()
    _check_shapes("backbone", {name: tuple(value.shape) for name, value in state.items()}, tensors)
    made = sum(value.nbytes for name, value in network.named_buffers() if name not in state)
    if made > MOST_BYTES:
        raise StorageError(
            f"its network would compute {made:,} bytes besides its weights; at most {MOST_BYTES:,} are allowed"
        )
