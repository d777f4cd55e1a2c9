"""What of a fitted classifier goes into a model folder, and how it comes back: plain values, tensors and records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from dwac.encoders import ENCODERS, Encoder
from dwac.errors import DwacError, StorageError
from dwac.nn import WeightedAverage
from dwac.preparation import Examples
from dwac.reference import ReferenceSet
from dwac.storage import Stored, decode_value, encode_value

_NETWORK = ("backbone", "embedding", "logits")


def pack(clf: Any, *, include_examples: bool) -> tuple[dict[str, Any], dict[str, Tensor], pd.DataFrame | None]:
    """(config, tensors, examples) of a fitted classifier."""
    settings = {name: _packed(value) for name, value in clf.get_params(deep=False).items() if name != "encoder"}
    settings |= {"random_state": clf.random_state if isinstance(clf.random_state, int) else None, "checkpoint": None}
    config = {
        "settings": settings,
        "encoder": {
            "asked": clf.encoder if isinstance(clf.encoder, str) else None,
            "kind": clf.encoder_.kind,
            "config": clf.encoder_.config(),
        },
        "classes": [encode_value(label) for label in clf.classes_],
        "classes_type": clf.classes_.dtype.str,
        "features": [encode_value(name) for name in getattr(clf, "feature_names_in_", [])],
        "n_features": getattr(clf, "n_features_in_", None),
        "validation_ids": [encode_value(name) for name in clf.validation_ids_],
        "calibration_ids": [encode_value(name) for name in clf.calibration_ids_],
        "history": clf.history_.to_dict("list"),
        "ended": clf.history_.attrs.get("ended"),
    }
    tensors = {
        f"{part}.{name}": value
        for part in _NETWORK
        if hasattr(clf.model_, part)
        for name, value in getattr(clf.model_, part).state_dict().items()
    }
    tensors |= {"calibration_h": clf.calibration_h_, "calibration_y": torch.as_tensor(clf.calibration_y_)}
    if not isinstance(clf.model_, WeightedAverage):
        return config, tensors, None
    references = clf.references_
    tensors |= {"ref_h": references.embeddings, "ref_y": references.labels}
    if clf.class_weight is not None:
        tensors["class_weights"] = torch.as_tensor(references.class_weights)
    # Ids are the index of the records; without records, of a frame without columns.
    ids = pd.Index(list(references.ids), tupleize_cols=False)
    records = clf.examples_.frame() if include_examples else None
    examples = pd.DataFrame(index=ids) if records is None else records.reindex(ids)
    return config, tensors, examples


def encoder_of(config: Mapping[str, Any]) -> Encoder:
    """The fitted encoder."""
    kind = config["encoder"]["kind"]
    if kind not in ENCODERS:
        raise StorageError(f"unknown encoder {kind!r}; this dwac knows {', '.join(ENCODERS)}")
    return ENCODERS[kind].from_config(config["encoder"]["config"])


def settings_of(config: Mapping[str, Any], encoder: Encoder) -> dict[str, Any]:
    """The constructor's parameters."""
    asked = config["encoder"]["asked"]
    settings = {name: _unpacked(value) for name, value in config["settings"].items()}
    return {**settings, "encoder": encoder if asked is None else asked}


def sizes_of(stored: Stored) -> tuple[int, int]:
    """K and the width of the backbone's output."""
    return len(stored.config["classes"]), int(stored.tensors["embedding.weight"].shape[1])


def unpack(clf: Any, stored: Stored, encoder: Encoder, model: Any, device: torch.device) -> None:
    """Fill a new classifier with what was stored."""
    config, tensors = stored.config, stored.tensors
    for part in _NETWORK:
        held = {name.removeprefix(f"{part}."): value for name, value in tensors.items() if name.startswith(f"{part}.")}
        if isinstance(getattr(model, part, None), nn.Module):
            getattr(model, part).load_state_dict(held)
    clf.encoder_, clf.model_ = encoder, model.to(device).eval()
    labels = [decode_value(label) for label in config["classes"]]
    clf.classes_ = np.empty(len(labels), dtype=object)
    clf.classes_[:] = labels
    clf.classes_ = clf.classes_.astype(_label_type(config["classes_type"]))
    clf.history_ = pd.DataFrame(config["history"])
    clf.history_.attrs["ended"] = config["ended"]
    if config["n_features"] is not None:
        clf.n_features_in_ = int(config["n_features"])
    if config["features"]:
        clf.feature_names_in_ = np.array([decode_value(name) for name in config["features"]], dtype=object)
    clf.validation_ids_ = _ids(config["validation_ids"])
    clf.calibration_h_ = tensors["calibration_h"].to(device)
    clf.calibration_y_ = tensors["calibration_y"].numpy()
    clf.calibration_ids_ = _ids(config["calibration_ids"])
    clf._calibrated = None
    clf.examples_ = Examples()
    if isinstance(model, WeightedAverage):
        if stored.examples is None:
            raise StorageError("the file of training examples, and with it their ids, is missing")
        ids = stored.examples.index
        ref_h, ref_y = tensors["ref_h"].to(device), tensors["ref_y"].to(device)
        model.references = ReferenceSet(
            ref_h, ref_y, ids.tolist(), len(labels), clf.kernel, tensors.get("class_weights")
        )
        if stored.examples.shape[1]:
            clf.examples_.add(ids, stored.examples)


@contextmanager
def reading(path: str | PathLike[str]) -> Iterator[None]:
    """Whatever a folder's well-formed but senseless contents make go wrong is one clear error."""
    try:
        yield
    except StorageError as error:
        raise StorageError(f"{path}: {error}") from None
    except DwacError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        raise StorageError(
            f"{path} holds no model that can be built: {type(error).__name__}: {error}; save the model again"
        ) from error


def _packed(value: Any) -> Any:
    if isinstance(value, Mapping):  # class_weight: labels may be anything hashable
        return {"pairs": [[encode_value(key), float(weight)] for key, weight in value.items()]}
    return value.item() if isinstance(value, np.generic) else value


def _unpacked(value: Any) -> Any:
    return {decode_value(key): weight for key, weight in value["pairs"]} if isinstance(value, Mapping) else value


def _label_type(name: str) -> np.dtype[Any]:
    kind = np.dtype(name)
    if kind.kind not in "OUSiufb":
        raise StorageError(f"labels of type {name!r} are not known")
    return kind


def _ids(values: list[Any]) -> pd.Index[Any]:
    index: pd.Index[Any] = pd.Index([decode_value(value) for value in values], tupleize_cols=False)
    return index
